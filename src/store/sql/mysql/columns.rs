//! The table, as MySQL knows it: what it must be like, so that no lock in it lies.

use super::super::session::{Statement, has_two_rows, keeps_no_milliseconds, types};
use super::super::statements::Table;
use crate::store::Fault;
use crate::text::escape;

/// Checks the columns: rows of a name, a type, and what else is known of it.
pub(super) fn check(table: &Table, columns: &Statement) -> Result<(), Fault> {
    let rows = columns.rows.iter();
    let known: Vec<(&str, &str)> = rows
        .map(|row| (text(row.first()), text(row.get(1))))
        .collect();
    let room = |kind: &str| {
        let room = kind.strip_prefix("varchar(")?;
        room.trim_end_matches(')').parse().ok()
    };
    let types = types(table, &known, str::eq_ignore_ascii_case, room)?;
    for (kind, column) in types.iter().zip(table.columns()).skip(1).take(2) {
        if digits(kind).is_none_or(|digits| digits < 3) {
            let remedy = "give it the type DATETIME(3) (ALTER TABLE … MODIFY)";
            return Err(keeps_no_milliseconds(column, kind, remedy));
        }
    }
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

/// Returns the number of digits of seconds that a type of time keeps; `None` of another type.
fn digits(kind: &str) -> Option<u32> {
    let rest = ["datetime", "timestamp"]
        .iter()
        .find_map(|name| kind.strip_prefix(name))?;
    match rest.strip_prefix('(') {
        Some(rest) => rest.split(')').next()?.parse().ok(),
        None => Some(0),
    }
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

    #[test]
    fn a_type_keeps_the_digits_that_it_names() {
        for (kind, kept) in [
            ("datetime(3)", Some(3)),
            ("timestamp(6)", Some(6)),
            ("timestamp", Some(0)),
            ("datetime", Some(0)),
            ("date", None),
            ("bigint(20)", None),
        ] {
            assert_eq!(digits(kind), kept, "{kind}");
        }
    }
}
