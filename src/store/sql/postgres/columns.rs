//! The table, as PostgreSQL knows it: what it must be like, so that no lock in it lies.

use super::super::columns::{Types, has_two_rows};
use super::super::session::CREATE;
use super::super::statements::Table;
use crate::store::Fault;
use crate::text::escape;

/// Stands behind a type, before the name of a collation that takes two texts for one.
pub(super) const FOLDS: &str = " COLLATE ";

const TYPES: Types = Types {
    // A name without quotes is taken in lower case.
    is_same: |name, column| name == column.to_ascii_lowercase(),
    text: "character varying(",
    times: &["timestamp"],
    digits: 6,
    remedy: "give it the type timestamp (ALTER TABLE)",
};

/// Checks the columns of the table: lines of a name and a type.
pub(super) fn check(table: &Table, columns: Option<&str>) -> Result<(), Fault> {
    let Some(columns) = columns else {
        let shown = table.table_name();
        return Err(Fault::unfit(
            format!("relation \"{shown}\" does not exist (42P01)"),
            CREATE,
        ));
    };
    let known: Vec<(&str, &str)> = columns
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    let types = TYPES.of(table, &known)?;
    for (kind, column) in [0, 3].map(|index| (types[index], table.columns()[index])) {
        if kind.contains(FOLDS) || kind.ends_with("citext") || kind.starts_with("character(") {
            let kind = escape::short(kind);
            let what =
                format!("the column {column} is of type {kind}, which takes two texts for one");
            let remedy = "give it the type varchar, and a deterministic collation (ALTER TABLE)";
            return Err(Fault::unfit(what, remedy));
        }
    }
    TYPES.keep_milliseconds(table, &types)?;
    for (kind, column) in types.iter().zip(table.columns()).skip(1).take(2) {
        if !kind.contains("without") && table.zone().is_none() {
            let kind = escape::short(kind);
            let what = format!("the column {column} is of type {kind}");
            let remedy = "give it the type timestamp (ALTER TABLE), or the address the time zone of the other clients' sessions, as in ?time_zone=Europe/Berlin";
            return Err(Fault::unfit(what, remedy));
        }
    }
    Ok(())
}

/// Checks that a name has one row, and that a crash of the server leaves it.
pub(super) fn check_rows(
    table: &Table,
    is_keyed: bool,
    persistence: Option<&str>,
) -> Result<(), Fault> {
    if !is_keyed {
        return Err(has_two_rows(table));
    }
    if persistence != Some("p") {
        let shown = table.table_name();
        let what = format!("{shown} is unlogged or temporary: a crash of the server empties it");
        let remedy = "set it to be logged (ALTER TABLE … SET LOGGED)";
        return Err(Fault::unfit(what, remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::address::Address;

    fn checked(columns: Option<&str>, options: &str) -> Result<(), String> {
        let url = format!("postgresql://a{options}");
        let Ok(Address::Sql(address)) = Address::parse(&url) else {
            panic!("{url}")
        };
        let table = Table::new(&address, Duration::from_secs(1));
        check(&table, columns).map_err(|fault| fault.why)
    }

    #[test]
    fn a_table_that_would_lie_is_refused() {
        let with = |until: &str, by: &str| {
            let at = "timestamp without time zone";
            format!(
                "name character varying(64)\nlock_until {until}\nlocked_at {at}\nlocked_by {by}"
            )
        };
        let (plain, by) = ("timestamp without time zone", "character varying(255)");
        for (columns, options, why) in [
            (Some(with(plain, by)), "", ""),
            (Some(with("timestamp(3) without time zone", "text")), "", ""),
            (
                Some(with("timestamp with time zone", by)),
                "?time_zone=UTC",
                "",
            ),
            (Some(with("timestamp with time zone", by)), "", "time_zone="),
            (
                Some(with("timestamp(0) without time zone", by)),
                "",
                "milliseconds",
            ),
            (
                Some(with("date\x1b[1m", by)),
                "",
                r"type date\x1b[1m, which",
            ),
            (Some(with(plain, "citext")), "", "two texts for one"),
            (
                Some(with(plain, "text COLLATE ci")),
                "",
                "type text COLLATE ci, which takes",
            ),
            (
                Some(with(plain, by).replace(" varying(64)", "(64)")),
                "",
                "the column name is of type character(64)",
            ),
            (
                Some(with(plain, "character varying(100)")),
                "",
                "room for 100",
            ),
            (
                Some(with(plain, by).replace("varying(64)", "varying(40)")),
                "",
                "the column name has room for 40",
            ),
            (
                Some("name text\nlock_until date".to_owned()),
                "",
                "no column locked_at",
            ),
            (None, "", "relation \"shedlock\" does not exist"),
            (
                Some(with(plain, by)),
                "?columns=n,lock_until,locked_at,locked_by",
                "no column n",
            ),
        ] {
            match checked(columns.as_deref(), options) {
                Ok(()) => assert_eq!(why, "", "{columns:?}"),
                Err(told) => assert!(!why.is_empty() && told.contains(why), "{told}"),
            }
        }
    }

    #[test]
    fn a_table_that_has_two_rows_of_a_name_or_loses_them_is_refused() {
        let Ok(Address::Sql(address)) = Address::parse("postgresql://a") else {
            panic!("an address")
        };
        let table = Table::new(&address, Duration::from_secs(1));
        let checked =
            |is_keyed, kept| check_rows(&table, is_keyed, Some(kept)).map_err(|fault| fault.why);
        assert_eq!(checked(true, "p"), Ok(()));
        assert!(checked(false, "p").is_err_and(|why| why.contains("two rows")));
        assert!(checked(true, "u").is_err_and(|why| why.contains("unlogged")));
    }
}
