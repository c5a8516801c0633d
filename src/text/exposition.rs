//! The text format of metrics, as Prometheus and `OpenMetrics` read it: families of samples, each with its help and type.
//!
//! The text is valid for both readers. `OpenMetrics` names a counter's family without `_total`, so it is used for gauges alone.

use std::fmt::{Display, Write};

/// The type of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Counter,
    Gauge,
}

/// Samples of one name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

impl Family {
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help }
    }

    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help }
    }

    /// Adds the family's head and `samples`, each with its labels, to `text`. A family without samples is left out.
    pub fn write(&self, text: &mut String, samples: impl IntoIterator<Item = (String, impl Display)>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let Self { name, help, .. } = self;
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
}

/// Returns `{name="value",…}`.
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Family = Family::gauge("held", "Whether it is held.");

    #[test]
    fn a_family_has_its_head_once_and_none_without_samples() {
        let mut text = String::new();
        HELD.write(&mut text, [(labels(&[("key", "a")]), 1), (labels(&[("key", "b"), ("node", "c")]), 0)]);
        HELD.write(&mut text, Vec::<(String, u8)>::new());
        let expected =
            "# HELP held Whether it is held.\n# TYPE held gauge\nheld{key=\"a\"} 1\nheld{key=\"b\",node=\"c\"} 0\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_label_cannot_end_before_its_end() {
        assert_eq!(labels(&[("key", "a\"} 1\nb\\")]), r#"{key="a\"} 1\nb\\"}"#);
    }
}
