//! What was measured, as tables in Markdown.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use testkit::measure::contender::Times;
use testkit::processes::processor_time_of_tree;

/// A table of its own.
pub(crate) struct Section {
    pub(crate) title: &'static str,
    /// Subject of the figures.
    pub(crate) about: String,
    pub(crate) columns: Vec<(&'static str, Unit)>,
    pub(crate) rows: Vec<Row>,
}

/// Who takes part, and a figure for each column, if there is one.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) figures: Vec<Option<f64>>,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Unit {
    Millis,
    Megabytes,
    Count,
    /// Ratio to the figure of the base in the first column.
    Ratio,
}

impl Unit {
    /// Shows it with about three significant digits.
    pub(crate) fn written(self, figure: f64) -> String {
        let digits = match figure {
            _ if self == Self::Count && figure.fract() == 0.0 => 0,
            100.0.. => 0,
            10.0.. => 1,
            _ => 2,
        };
        match self {
            Self::Millis => format!("{figure:.digits$} ms"),
            Self::Megabytes => format!("{figure:.digits$} MB"),
            Self::Count | Self::Ratio => format!("{figure:.digits$}"),
        }
    }
}

impl Section {
    /// Makes a section of times by their median, p10 and p90, with ratios to those of `base`.
    pub(crate) fn of_times(
        title: &'static str,
        about: String,
        times: &[Times],
        base: &str,
    ) -> Self {
        let row = |times: &Times| Row {
            name: times.name,
            figures: [50, 10, 90]
                .map(|percent| Some(millis(times.percentile(percent))))
                .to_vec(),
        };
        let columns = vec![
            ("median", Unit::Millis),
            ("p10", Unit::Millis),
            ("p90", Unit::Millis),
        ];
        Self {
            title,
            about,
            columns,
            rows: times.iter().map(row).collect(),
        }
        .against(base)
    }

    /// Adds a second column, the first one divided by that of `base`.
    pub(crate) fn against(mut self, base: &str) -> Self {
        let Some(base) = self.row(base).and_then(|row| row.figures[0]) else {
            return self;
        };
        for row in &mut self.rows {
            row.figures
                .insert(1, row.figures[0].map(|figure| figure / base));
        }
        self.columns.insert(1, ("of rlock's", Unit::Ratio));
        self
    }

    /// Removes the columns without a figure.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        for column in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.figures[column].is_none()) {
                self.columns.remove(column);
                for row in &mut self.rows {
                    row.figures.remove(column);
                }
            }
        }
        self
    }

    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Returns heading, text and table.
    pub(crate) fn markdown(&self) -> String {
        format!("## {}\n\n{}\n\n{}", self.title, self.about, self.table())
    }

    /// Returns the table alone.
    pub(crate) fn table(&self) -> String {
        let heads: Vec<String> = self
            .columns
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        let rows = self.rows.iter().map(|row| {
            let cells = row.figures.iter().zip(&self.columns);
            (
                row.name,
                cells
                    .map(|(figure, (_, unit))| cell(*figure, *unit))
                    .collect(),
            )
        });
        table(&heads, "---:", rows)
    }
}

/// A figure, or a dash for one that does not exist.
pub(crate) fn cell(figure: Option<f64>, unit: Unit) -> String {
    figure.map_or("–".to_owned(), |figure| unit.written(figure))
}

/// Below dashes such as `---:`, which puts the cells to the right.
pub(crate) fn table<'a>(
    heads: &[String],
    dashes: &str,
    rows: impl Iterator<Item = (&'a str, Vec<String>)>,
) -> String {
    let mut text = format!(
        "| | {} |\n|---|{}\n",
        heads.join(" | "),
        format!("{dashes}|").repeat(heads.len())
    );
    for (name, cells) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}

/// Returns the processor time of a server with all its processes, in ms.
pub(crate) fn processor_time(pid: i32) -> Result<f64> {
    Ok(millis(processor_time_of_tree(pid)?))
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
