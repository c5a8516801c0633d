//! The text format of metrics, as Prometheus and `OpenMetrics` read it: gauges, each with its help
//! and its samples.

use std::fmt::{Display, Write};

/// A gauge, with one sample for each set of labels.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    name: &'static str,
    help: &'static str,
}

impl Gauge {
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help }
    }

    /// Adds the head and `samples`, each with its labels, to `text`. A gauge without samples is
    /// left out.
    pub fn write(
        self,
        text: &mut String,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let Self { name, help } = self;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
}

/// Returns `{name="value",…}`.
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Gauge = Gauge::new("held", "Whether it is held.");

    #[test]
    fn a_gauge_has_its_head_once_and_none_without_samples() {
        let mut text = String::new();
        HELD.write(
            &mut text,
            [
                (labels(&[("key", "a")]), 1),
                (labels(&[("key", "b"), ("node", "c")]), 0),
            ],
        );
        HELD.write(&mut text, Vec::<(String, u8)>::new());
        let expected = "# HELP held Whether it is held.\n# TYPE held gauge\nheld{key=\"a\"} 1\nheld{key=\"b\",node=\"c\"} 0\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_label_cannot_end_before_its_end() {
        assert_eq!(labels(&[("key", "a\"} 1\nb\\")]), r#"{key="a\"} 1\nb\\"}"#);
    }
}
