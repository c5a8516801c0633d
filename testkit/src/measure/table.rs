//! Figures in columns.

use std::fmt::Write;
use std::time::Duration;

/// Aligns names to the left and figures to the right, one line a row.
pub fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    });
    rows.iter()
        .fold(String::new(), |text, row| text + &line(row, &widths))
}

fn line<const COLUMNS: usize>(row: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let mut line = format!("{:width$}", row[0], width = widths[0]);
    for (cell, width) in row.iter().zip(widths).skip(1) {
        // Writing to a string cannot fail.
        let _ = write!(line, "  {cell:>width$}");
    }
    line.trim_end().to_owned() + "\n"
}

/// Shows a time in ms, to the µs.
pub fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}
