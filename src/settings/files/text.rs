//! The text of one configuration file, as sections and settings.

use std::ops::Range;
use std::sync::Arc;

use glob::Pattern;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::{Config, Origin, Position, Section, Setting, fault, unknown};
use crate::exit::Failure;
use crate::secret;
use crate::text::escape;

/// Names outside the sections.
const TOP: [&str; 2] = ["defaults", "lock"];

impl Config {
    /// Adds what stands in `text`, the contents of the file `shown`.
    pub(super) fn add(&mut self, shown: &str, text: &str) -> Result<(), Failure> {
        let lines = Lines::new(shown, text);
        let table = DeTable::parse(text).map_err(|error| {
            let position = lines.position(error.span().unwrap_or_default());
            fault(
                &position,
                escape::text(&error.message().replace('\n', "; ")),
            )
        })?;
        for (name, value) in in_order(table.get_ref()) {
            let position = lines.position(name.span());
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("defaults", DeValue::Table(settings)) => {
                    self.add_section(&lines, Section::Defaults, settings)?;
                }
                ("lock", DeValue::Table(sections)) => {
                    for (name, settings) in in_order(sections) {
                        let (pattern, position) = (
                            name.get_ref().clone().into_owned(),
                            lines.position(name.span()),
                        );
                        if let Err(error) = Pattern::new(&pattern) {
                            return Err(fault(
                                &position,
                                format!("{}: {}", escape::text(&pattern), error.msg),
                            ));
                        }
                        let DeValue::Table(settings) = settings.get_ref() else {
                            return Err(fault(&position, "lock needs a name: [lock.NAME]"));
                        };
                        self.add_section(&lines, Section::Lock(pattern), settings)?;
                    }
                }
                (kind @ ("defaults" | "lock"), _) => {
                    return Err(fault(&position, format!("{kind} is a section: [{kind}…]")));
                }
                (other, DeValue::Table(_)) => return Err(unknown(&position, other, TOP)),
                (other, _) => {
                    let why = format!(
                        "{} stands outside of a section; put it below [defaults]",
                        escape::text(&secret::without_userinfo(other))
                    );
                    return Err(fault(&position, why));
                }
            }
        }
        Ok(())
    }

    fn add_section(
        &mut self,
        lines: &Lines,
        section: Section,
        table: &DeTable,
    ) -> Result<(), Failure> {
        for (name, value) in in_order(table) {
            let position = lines.position(name.span());
            let name = name.get_ref().clone().into_owned();
            let texts = texts(value.get_ref())
                .map_err(|why| fault(&position, format!("{}: {why}", escape::text(&name))))?;
            let origin = Origin {
                position,
                section: section.clone(),
                earlier: self.sections.len(),
            };
            self.settings.push(Setting {
                name,
                texts,
                origin,
            });
        }
        self.sections.push(section);
        Ok(())
    }
}

/// Entries in the order of their lines.
fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(&'a Spanned<DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

fn texts(value: &DeValue) -> Result<Vec<String>, &'static str> {
    match value {
        DeValue::Array(items) => items.iter().map(|item| text(item.get_ref())).collect(),
        other => text(other).map(|text| vec![text]),
    }
}

fn text(value: &DeValue) -> Result<String, &'static str> {
    match value {
        DeValue::String(text) => Ok(text.clone().into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| "the number is too large"),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(is_on) => Ok(is_on.to_string()),
        DeValue::Datetime(_) => Err("write the value in quotes"),
        DeValue::Array(_) | DeValue::Table(_) => {
            Err("write a string, a number, true, false, or an array of strings")
        }
    }
}

/// The lines of a file.
struct Lines {
    file: Arc<str>,
    /// Offsets of the line ends.
    ends: Vec<usize>,
}

impl Lines {
    fn new(shown: &str, text: &str) -> Self {
        Self {
            file: shown.into(),
            ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        }
    }

    fn position(&self, span: Range<usize>) -> Position {
        Position {
            file: self.file.clone(),
            line: self.ends.partition_point(|end| *end < span.start) + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Config, Failure> {
        let mut config = Config::default();
        config.add("f", text).map(|()| config)
    }

    fn settings(text: &str) -> Vec<(String, String, String)> {
        let config = parse(text).unwrap_or_else(|failure| panic!("{failure}"));
        let shown = |setting: Setting| {
            (
                setting.name.clone(),
                setting.texts.join("|"),
                setting.origin.to_string(),
            )
        };
        config.settings.into_iter().map(shown).collect()
    }

    #[test]
    fn each_setting_knows_its_line_and_section() {
        let text = "\n\n\n[defaults]\nttl = '1m'\nnode = [\n 'a',\n 'b',\n]\nbusy-code = 0\n\
                    [lock.\"x-*\"]\nno-wait = true\ndrift = 0.02\nslots = 0x10\n";
        let wanted = [
            ("ttl", "1m", "f:5 [defaults]"),
            ("node", "a|b", "f:6 [defaults]"),
            ("busy-code", "0", "f:10 [defaults]"),
            ("no-wait", "true", "f:12 [lock.\"x-*\"]"),
            ("drift", "0.02", "f:13 [lock.\"x-*\"]"),
            ("slots", "16", "f:14 [lock.\"x-*\"]"),
        ];
        assert_eq!(
            settings(text),
            wanted.map(|(a, b, c)| (a.into(), b.into(), c.into()))
        );
    }

    const TEXT: &str = "([\\[\\]\"'=.,{}\\n\\PC ]|defaults|lock){0,40}";

    proptest! {
        #[test]
        fn no_text_is_refused_with_more_than_one_line_or_a_control_character(text in TEXT) {
            if let Err(failure) = parse(&text) {
                prop_assert!(failure.message.starts_with("f:"), "{}", failure);
                prop_assert_eq!(escape::text(&failure.message), failure.message.as_str());
            }
        }
    }

    #[test]
    fn a_file_that_is_no_configuration_is_refused_with_the_line() {
        for (text, line, words) in [
            ("[defaults]\nttl = \n", 2, ""),
            ("[defaults]\nttl = '1m'\nttl = '2m'\n", 3, "duplicate"),
            ("[defaults]\n\n[default]\n", 3, "did you mean defaults?"),
            ("\nttl = '1m'\n", 2, "[defaults]"),
            ("lock = 'prod'\n", 1, "section"),
            ("[profile.p]\nnode = 'a'\n", 1, "unknown name profile"),
            ("[lock]\nttl = '1m'\n", 2, "[lock.NAME]"),
            ("[lock.'a[']\nttl = '1m'\n", 1, "a[: invalid range pattern"),
            (
                "[defaults]\nttl = 2020-01-01\n",
                2,
                "ttl: write the value in quotes",
            ),
            ("[defaults]\nnode = [['a']]\n", 2, "node: "),
            ("[defaults.ttl]\nx = 1\n", 1, "ttl: "),
        ] {
            let failure = parse(text).expect_err(text).to_string();
            assert!(
                failure.starts_with(&format!("f:{line}: ")) && failure.contains(words),
                "{text:?}: {failure}"
            );
            assert!(!failure.contains('\n'), "{failure:?}");
        }
    }
}
