//! A table fitted to a width: text in, text out.

use unicode_width::UnicodeWidthStr;

pub use crate::text::escape::cut;

/// Cells between two columns.
const GAP: usize = 2;

/// Least width of a column that is cut; below it columns are left out.
const NARROWEST: usize = 8;

#[derive(Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    /// Whether its cells may be cut.
    pub yields: bool,
    /// Columns of higher rank are left out first if the width does not suffice.
    pub rank: u8,
}

/// Returns lines of at most `width` cells, or as wide as needed for `None`. The caller has escaped
/// the cells.
pub fn fit(columns: &[Column], rows: &[Vec<String>], width: Option<usize>) -> Vec<String> {
    let natural = |column: usize| {
        let cells = rows
            .iter()
            .map(|row| row[column].width())
            .max()
            .unwrap_or_default();
        cells.max(columns[column].title.width())
    };
    let empty = |column: &usize| rows.iter().all(|row| row[*column].is_empty());
    let mut shown: Vec<(usize, usize)> = (0..columns.len())
        .filter(|column| !empty(column))
        .map(|column| (column, natural(column)))
        .collect();
    if let Some(width) = width {
        squeeze(columns, &mut shown, width);
    }
    let title = line(
        shown
            .iter()
            .map(|(column, room)| (columns[*column].title, *room)),
    );
    let body = rows.iter().map(|row| {
        line(
            shown
                .iter()
                .map(|(column, room)| (row[*column].as_str(), *room)),
        )
    });
    std::iter::once(title).chain(body).collect()
}

/// Cuts the widest column that yields, repeatedly; if none can be cut, leaves out the one of
/// highest rank.
fn squeeze(columns: &[Column], shown: &mut Vec<(usize, usize)>, width: usize) {
    loop {
        let total = shown
            .iter()
            .map(|(_, room)| room + GAP)
            .sum::<usize>()
            .saturating_sub(GAP);
        let Some(excess) = total.checked_sub(width).filter(|excess| *excess > 0) else {
            return;
        };
        let widest = shown
            .iter_mut()
            .filter(|(column, room)| columns[*column].yields && *room > NARROWEST);
        if let Some((_, room)) = widest.max_by_key(|(_, room)| *room) {
            // In steps: after each, another column may be the widest.
            *room -= excess.min((*room - NARROWEST).div_ceil(4));
        } else if shown.len() > 1 {
            let last = (0..shown.len())
                .max_by_key(|index| columns[shown[*index].0].rank)
                .unwrap_or_default();
            shown.remove(last);
        } else {
            shown[0].1 = width;
            return;
        }
    }
}

fn line<'a>(cells: impl Iterator<Item = (&'a str, usize)>) -> String {
    let mut line = String::new();
    for (cell, room) in cells {
        let cell = cut(cell, room);
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', room - cell.width() + GAP));
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COLUMNS: [Column; 3] = [
        Column {
            title: "KEY",
            yields: true,
            rank: 0,
        },
        Column {
            title: "PID",
            yields: false,
            rank: 1,
        },
        Column {
            title: "NOTE",
            yields: true,
            rank: 2,
        },
    ];

    fn rows(cells: &[[&str; 3]]) -> Vec<Vec<String>> {
        cells
            .iter()
            .map(|row| row.map(str::to_owned).to_vec())
            .collect()
    }

    #[test]
    fn columns_line_up_whatever_the_script_and_empty_ones_are_left_out() {
        let table = fit(
            &COLUMNS,
            &rows(&[["größe", "1", ""], ["漢字", "22", ""]]),
            None,
        );
        assert_eq!(table, ["KEY    PID", "größe  1", "漢字   22"]);
    }

    #[test]
    fn the_widest_is_cut_first_and_then_columns_go() {
        let cells = rows(&[[
            "a-rather-long-key",
            "12345",
            "a note that is longer than all of the rest",
        ]]);
        let table = fit(&COLUMNS, &cells, Some(40));
        assert!(
            table[1].contains("12345") && table[1].ends_with('…'),
            "{table:?}"
        );
        let table = fit(&COLUMNS, &cells, Some(16));
        assert_eq!(
            table,
            ["KEY       PID", "a-rathe…  12345"].map(str::to_owned)
        );
        assert_eq!(fit(&COLUMNS, &cells, Some(4)), ["KEY", "a-r…"]);
    }

    proptest! {
        #[test]
        fn no_line_is_too_wide(cells in proptest::collection::vec("[a-z漢 ]{0,30}", 3..4), width in 1usize..99) {
            for line in fit(&COLUMNS, &[cells], Some(width)) {
                prop_assert!(line.width() <= width, "{line:?} {width}");
            }
        }
    }
}
