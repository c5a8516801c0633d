//! The table, as MySQL knows it: what it must be like, so that no lock in it lies.

use super::super::columns::{Types, has_two_rows};
use super::super::session::Statement;
use super::super::statements::Table;
use crate::store::Fault;
use crate::text::escape;

const TYPES: Types = Types {
    is_same: str::eq_ignore_ascii_case,
    text: "varchar(",
    times: &["datetime", "timestamp"],
    digits: 0,
    remedy: "give it the type DATETIME(3) (ALTER TABLE … MODIFY)",
};

/// Checks the columns: rows of a name, a type, and what else is known of it.
pub(super) fn check(table: &Table, columns: &Statement) -> Result<(), Fault> {
    let rows = columns.rows.iter();
    let known: Vec<(&str, &str)> = rows
        .map(|row| (text(row.first()), text(row.get(1))))
        .collect();
    let types = TYPES.of(table, &known)?;
    TYPES.keep_milliseconds(table, &types)?;
    let [_, _, begin, _] = table.columns();
    let changes = |row: &Vec<Option<String>>| {
        text(row.first()).eq_ignore_ascii_case(begin)
            && text(row.get(2)).to_ascii_lowercase().contains("on update")
    };
    if columns.rows.iter().any(changes) {
        let what = format!("the column {begin} changes with each update (ON UPDATE)");
        let remedy = "give it the type DATETIME(3) without that (ALTER TABLE … MODIFY)";
        return Err(Fault::unfit(what, remedy));
    }
    Ok(())
}

/// Checks that a name has one row, and that a crash of the server and its replicas leave it. `engine`
/// is `None` of a view.
pub(super) fn check_rows(
    table: &Table,
    is_keyed: bool,
    engine: Option<&str>,
    repeats_statements: bool,
) -> Result<(), Fault> {
    let shown = table.table_name();
    if let Some(engine) = engine {
        if !engine.eq_ignore_ascii_case("InnoDB") {
            let engine = escape::short(engine);
            let what =
                format!("{shown} is of the engine {engine}: a crash of the server may lose locks");
            let remedy = "give it InnoDB (ALTER TABLE … ENGINE=InnoDB)";
            return Err(Fault::unfit(what, remedy));
        }
        if !is_keyed {
            return Err(has_two_rows(table));
        }
    }
    if repeats_statements {
        let what = "binlog_format is STATEMENT: a replica would run a statement with the time of its own clock";
        return Err(Fault::unfit(what, "set it to ROW or MIXED"));
    }
    Ok(())
}

fn text(cell: Option<&Option<String>>) -> &str {
    cell.and_then(Option::as_deref).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::address::Address;

    #[test]
    fn what_a_server_says_of_its_table_does_nothing_to_a_terminal() {
        let Ok(Address::Sql(address)) = Address::parse("mysql://a/b") else {
            panic!("an address")
        };
        let table = Table::new(&address, Duration::from_secs(1));
        let hostile = "x\x1b]0;y\x07\n";
        let row = |name: &str, kind: &str| vec![Some(name.to_owned()), Some(kind.to_owned())];
        let columns = Statement {
            rows: vec![
                row("name", "varchar(64)"),
                row("lock_until", hostile),
                row("locked_at", "datetime(3)"),
                row("locked_by", "varchar(255)"),
            ],
            count: 0,
        };
        let typed = check(&table, &columns).unwrap_err().why;
        let stored = check_rows(&table, true, Some(hostile), false).unwrap_err();
        for why in [typed, stored.why] {
            assert!(why.contains(r"x\x1b]0;y\x07\n"), "{why}");
            assert!(!why.contains(char::is_control), "{why}");
        }
    }
}
