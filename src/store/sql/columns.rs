//! The columns of the table, as a database tells their types: what they must be like, so that no lock in
//! the table lies.

use super::session::CREATE;
use super::statements::Table;
use crate::store::Fault;
use crate::text::escape;

/// How a database writes types.
pub(super) struct Types {
    /// Whether a name in the database is that of a column as the address has it.
    pub(super) is_same: fn(&str, &str) -> bool,
    /// The beginning of a type of text, before the number of characters that it takes.
    pub(super) text: &'static str,
    /// The beginnings of the types of a time, before the number of digits of seconds.
    pub(super) times: &'static [&'static str],
    /// Number of digits that such a type keeps if it names none.
    pub(super) digits: u32,
    /// The way from a type that keeps fewer than three.
    pub(super) remedy: &'static str,
}

impl Types {
    /// Returns the types of the table's columns, of which `known` are the names and types. Checks that
    /// the columns are there, and that a type of text has room.
    pub(super) fn of<'a>(
        &self,
        table: &Table,
        known: &[(&str, &'a str)],
    ) -> Result<[&'a str; 4], Fault> {
        let shown = table.table_name();
        let mut types = [""; 4];
        for (kind, column) in types.iter_mut().zip(table.columns()) {
            let mut known = known.iter();
            let Some((_, found)) = known.find(|(name, _)| (self.is_same)(name, column)) else {
                let what = format!("the table {shown} has no column {column}");
                return Err(Fault::unfit(what, CREATE));
            };
            *kind = found;
        }
        for (index, needed) in [(0, super::LONGEST_NAME), (3, super::row::LONGEST)] {
            let room = self.room(types[index]);
            if let Some(room) = room.filter(|room| *room < needed) {
                let column = table.columns()[index];
                let what = format!(
                    "the column {column} has room for {room} characters; rlock needs {needed}"
                );
                let remedy = "give it a wider type (ALTER TABLE)";
                return Err(Fault::unfit(what, remedy));
            }
        }
        Ok(types)
    }

    /// Checks that the columns of times keep milliseconds.
    pub(super) fn keep_milliseconds(&self, table: &Table, types: &[&str; 4]) -> Result<(), Fault> {
        for (kind, column) in types.iter().zip(table.columns()).skip(1).take(2) {
            if self.digits(kind).is_none_or(|digits| digits < 3) {
                let kind = escape::short(kind);
                let what =
                    format!("the column {column} is of type {kind}, which keeps no milliseconds");
                return Err(Fault::unfit(what, self.remedy));
            }
        }
        Ok(())
    }

    /// Returns the number of characters that a type of text takes, if it names one.
    fn room(&self, kind: &str) -> Option<usize> {
        let room = kind.strip_prefix(self.text)?;
        room.trim_end_matches(')').parse().ok()
    }

    /// Returns the number of digits of seconds that a type of time keeps; `None` of another type.
    fn digits(&self, kind: &str) -> Option<u32> {
        let mut names = self.times.iter();
        let rest = names.find_map(|name| kind.strip_prefix(name))?;
        match rest.strip_prefix('(') {
            Some(rest) => rest.split(')').next()?.parse().ok(),
            None => Some(self.digits),
        }
    }
}

/// Returns the statements that make the table `own`, and give `user` rights to it. `time`: the type of a
/// time. `end`: what stands behind the columns.
pub(super) fn creation(
    own: &str,
    columns: &[String; 4],
    time: &str,
    end: &str,
    user: &str,
) -> String {
    let [name, until, at, by] = columns;
    format!(
        "CREATE TABLE IF NOT EXISTS {own}({name} VARCHAR(64) NOT NULL, {until} {time} NOT NULL, {at} {time} NOT NULL, \
         {by} VARCHAR(255) NOT NULL, PRIMARY KEY ({name})){end}; GRANT SELECT, INSERT, UPDATE ON {own} TO {user};"
    )
}

/// The fault of a table in which a name may have two rows.
pub(super) fn has_two_rows(table: &Table) -> Fault {
    let shown = table.table_name();
    let what = format!(
        "{shown} has no primary key or unique index on its name alone: two rows may be one lock"
    );
    let remedy = "add one (ALTER TABLE … ADD PRIMARY KEY)";
    Fault::unfit(what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_keeps_the_digits_that_it_names() {
        let types = Types {
            is_same: str::eq,
            text: "varchar(",
            times: &["datetime", "timestamp"],
            digits: 0,
            remedy: "",
        };
        for (kind, kept) in [
            ("datetime(3)", Some(3)),
            ("timestamp(6)", Some(6)),
            ("timestamp", Some(0)),
            ("datetime", Some(0)),
            ("date", None),
            ("bigint(20)", None),
        ] {
            assert_eq!(types.digits(kind), kept, "{kind}");
        }
    }
}
