//! The rows of the table, and what statements do to them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use super::syntax::{Conflict, Expr, Select, Statement};
use super::value::{ONE, SqlError, Value, strange, time};

/// Most characters of a name, and of the text of a holder.
const LONGEST: [usize; 2] = [64, 255];

/// A row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// `name`.
    pub name: String,
    /// `lock_until`.
    pub until: i64,
    /// `locked_at`.
    pub at: i64,
    /// `locked_by`.
    pub by: String,
}

impl Row {
    fn get(&self, column: &str) -> Result<Value, SqlError> {
        Ok(match column {
            "name" => Value::Text(self.name.clone()),
            "lock_until" => Value::Time(self.until),
            "locked_at" => Value::Time(self.at),
            "locked_by" => Value::Text(self.by.clone()),
            _ => {
                let why = format!("column \"{column}\" does not exist");
                return Err(SqlError("42703", why));
            }
        })
    }

    fn set(&mut self, column: &str, value: Value) -> Result<(), SqlError> {
        let text = |value, longest: usize| match value {
            Value::Text(text) if text.chars().count() <= longest => Ok(text),
            Value::Text(_) => {
                let why = format!("value too long for type character varying({longest})");
                Err(SqlError("22001", why))
            }
            other => Err(strange(format!("{other:?} in the column {column}"))),
        };
        let moment = |value| match value {
            Value::Time(time) => Ok(time),
            Value::Text(text) => time(&text),
            other => Err(strange(format!("{other:?} in the column {column}"))),
        };
        match column {
            "name" => self.name = text(value, LONGEST[0])?,
            "lock_until" => self.until = moment(value)?,
            "locked_at" => self.at = moment(value)?,
            "locked_by" => self.by = text(value, LONGEST[1])?,
            _ => {
                let why = format!("column \"{column}\" does not exist");
                return Err(SqlError("42703", why));
            }
        }
        Ok(())
    }
}

/// The rows, by their names.
pub type Rows = BTreeMap<String, Row>;

/// Facts of the session and of the moment, for expressions.
#[derive(Clone, Debug)]
pub struct Context {
    /// The begin of the transaction, by the server's clock.
    pub now: i64,
    /// The server's time.
    pub clock: i64,
    /// Number of the session's process.
    pub process: u32,
    /// Whether the transaction may not write.
    pub is_read_only: bool,
    /// `lock_timeout`; zero: none.
    pub lock_timeout: Duration,
    /// `synchronous_commit`.
    pub synchronous_commit: String,
}

/// The answer to a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Rows of so many columns.
    Rows(usize, Vec<Vec<Option<String>>>),
    /// Number of rows that were changed.
    Changed(u64),
    /// Number of rows that were added, or changed in their place.
    Added(u64),
}

impl Answer {
    /// Returns what ends the answer.
    pub fn tag(&self) -> String {
        match self {
            Self::Rows(_, rows) => format!("SELECT {}", rows.len()),
            Self::Changed(count) => format!("UPDATE {count}"),
            Self::Added(count) => format!("INSERT 0 {count}"),
        }
    }
}

/// The effect of a statement on the rows that a transaction sees.
#[derive(Debug)]
pub enum Effect {
    /// It is done. `writes`: rows that it writes. `locks`: names of rows that it locks.
    Done {
        /// The answer.
        answer: Answer,
        /// Rows that it writes.
        writes: Vec<Row>,
        /// Names of rows that it locks, those that it writes included.
        locks: Vec<String>,
    },
    /// Another transaction has locked the row of this name.
    Blocked(String),
}

impl Effect {
    fn rows(columns: usize, rows: Vec<Vec<Option<String>>>) -> Self {
        Self::Done {
            answer: Answer::Rows(columns, rows),
            writes: Vec::new(),
            locks: Vec::new(),
        }
    }
}

/// Executes a statement on what its transaction sees. `is_locked`: whether another one has locked
/// the row of a name. It waits for that, and is executed anew (READ COMMITTED).
pub fn execute(
    statement: &Statement,
    rows: &Rows,
    context: &mut Context,
    is_locked: impl Fn(&str) -> bool,
) -> Result<Effect, SqlError> {
    if context.is_read_only && !matches!(statement, Statement::Select(_)) {
        let why = "cannot write in a read-only transaction";
        return Err(SqlError("25006", why.to_owned()));
    }
    match statement {
        Statement::Select(all) => {
            let mut shown = Vec::new();
            for select in all {
                for row in selected(select, rows, context)? {
                    shown.push(row.iter().map(Value::shown).collect());
                }
            }
            let columns = all.first().map_or(0, |select| select.items.len());
            Ok(Effect::rows(columns, shown))
        }
        Statement::Update { sets, condition } => {
            let mut writes = Vec::new();
            for row in rows.values() {
                let scope = [("shedlock", row)];
                if !holds(condition, &scope, rows, context)? {
                    continue;
                }
                if is_locked(&row.name) {
                    return Ok(Effect::Blocked(row.name.clone()));
                }
                writes.push(changed(row, sets, &scope, rows, context)?);
            }
            Ok(Effect::Done {
                answer: Answer::Changed(writes.len() as u64),
                locks: writes.iter().map(|row| row.name.clone()).collect(),
                writes,
            })
        }
        Statement::Insert {
            alias,
            columns,
            row,
            conflict,
        } => {
            let (mut writes, mut locks) = (Vec::new(), Vec::new());
            for values in selected(row, rows, context)? {
                let mut new = Row {
                    name: String::new(),
                    until: 0,
                    at: 0,
                    by: String::new(),
                };
                for (column, value) in columns.iter().zip(values) {
                    new.set(column, value)?;
                }
                let Some(old) = rows.get(&new.name) else {
                    // Another transaction adds it.
                    if is_locked(&new.name) {
                        return Ok(Effect::Blocked(new.name));
                    }
                    locks.push(new.name.clone());
                    writes.push(new);
                    continue;
                };
                let (sets, condition) = match conflict {
                    Conflict::Nothing => continue,
                    Conflict::Update(sets, condition) => (sets, condition),
                    Conflict::Error => {
                        let why = "duplicate key value violates unique constraint";
                        return Err(SqlError("23505", why.to_owned()));
                    }
                };
                if is_locked(&old.name) {
                    return Ok(Effect::Blocked(old.name.clone()));
                }
                locks.push(old.name.clone());
                let old_name = alias.as_deref().unwrap_or("shedlock");
                let scope = [(old_name, old), ("excluded", &new)];
                if holds(condition, &scope, rows, context)? {
                    writes.push(changed(old, sets, &scope, rows, context)?);
                }
            }
            Ok(Effect::Done {
                answer: Answer::Added(writes.len() as u64),
                writes,
                locks,
            })
        }
    }
}

fn changed(
    row: &Row,
    sets: &[(String, Expr)],
    scope: &[(&str, &Row)],
    rows: &Rows,
    context: &mut Context,
) -> Result<Row, SqlError> {
    let mut new = row.clone();
    for (column, expression) in sets {
        new.set(column, value(expression, scope, rows, context)?)?;
    }
    Ok(new)
}

fn selected(
    select: &Select,
    rows: &Rows,
    context: &mut Context,
) -> Result<Vec<Vec<Value>>, SqlError> {
    let items = |scope: &[(&str, &Row)], context: &mut Context| {
        let all = select.items.iter();
        all.map(|item| value(item, scope, rows, context))
            .collect::<Result<Vec<Value>, SqlError>>()
    };
    let mut all = Vec::new();
    if select.from.as_deref() == Some("shedlock") {
        for row in rows.values() {
            let scope = [("shedlock", row)];
            if holds(&select.condition, &scope, rows, context)? {
                all.push(items(&scope, context)?);
            }
        }
    } else if select.from.is_some() {
        // A setting of the server: `client_connection_check_interval`.
        all.push(vec![Value::Text("1s".to_owned())]);
    } else if holds(&select.condition, &[], rows, context)? {
        all.push(items(&[], context)?);
    }
    Ok(all)
}

fn holds(
    condition: &Expr,
    scope: &[(&str, &Row)],
    rows: &Rows,
    context: &mut Context,
) -> Result<bool, SqlError> {
    Ok(value(condition, scope, rows, context)? == Value::Bool(true))
}

/// Returns the value of an expression. `scope`: the rows that it names.
fn value(
    expression: &Expr,
    scope: &[(&str, &Row)],
    rows: &Rows,
    context: &mut Context,
) -> Result<Value, SqlError> {
    let mut of = |expression: &Expr| value(expression, scope, rows, context);
    match expression {
        Expr::Literal(value) => Ok(value.clone()),
        Expr::Column(of, column) => {
            let is_meant = |(name, _): &&(&str, &Row)| of.as_deref().is_none_or(|of| of == *name);
            let row = scope.iter().find(is_meant);
            let (_, row) = row.ok_or_else(|| strange(format!("no row for {column}")))?;
            row.get(column)
        }
        Expr::Not(inner) => Ok(match of(inner)? {
            Value::Bool(is) => Value::Bool(!is),
            _ => Value::Null,
        }),
        Expr::Cast(inner, kind) => cast(of(inner)?, kind),
        Expr::Exists(select) => Ok(Value::Bool(!selected(select, rows, context)?.is_empty())),
        Expr::Case(parts) => {
            let [case, when, then, other] = &**parts;
            let (case, when) = (of(case)?, of(when)?);
            let is = case.compared(&when)? == Some(Ordering::Equal);
            of(if is { then } else { other })
        }
        Expr::Between(operator, left, right) => match operator.as_str() {
            "and" | "or" => {
                let decides = Value::Bool(operator == "or");
                let left = of(left)?;
                if left == decides {
                    return Ok(decides);
                }
                let right = of(right)?;
                Ok(match (left, right) {
                    (_, right) if right == decides => decides,
                    (Value::Null, _) | (_, Value::Null) => Value::Null,
                    (_, right) => right,
                })
            }
            _ => {
                let (left, right) = (of(left)?, of(right)?);
                operated(operator, left, right)
            }
        },
        Expr::Call(name, arguments) => {
            let all: Result<Vec<Value>, _> = arguments.iter().map(of).collect();
            called(name, &all?, context)
        }
    }
}

fn operated(operator: &str, left: Value, right: Value) -> Result<Value, SqlError> {
    let compared = |is: fn(Ordering) -> bool| -> Result<Value, SqlError> {
        let ordering = left.compared(&right)?;
        Ok(ordering.map_or(Value::Null, |ordering| Value::Bool(is(ordering))))
    };
    match operator {
        "=" => compared(Ordering::is_eq),
        "<" => compared(Ordering::is_lt),
        "<=" => compared(Ordering::is_le),
        ">" => compared(Ordering::is_gt),
        ">=" => compared(Ordering::is_ge),
        "+" => left.plus(right),
        "-" => left.minus(right),
        "*" => left.times(right),
        "||" => match (left, right) {
            (Value::Text(left), Value::Text(right)) => Ok(Value::Text(left + &right)),
            (left, right) => Err(strange(format!("{left:?} || {right:?}"))),
        },
        "like" => match (left, right) {
            (Value::Text(text), Value::Text(pattern)) => {
                let (text, pattern): (Vec<char>, Vec<char>) =
                    (text.chars().collect(), pattern.chars().collect());
                Ok(Value::Bool(is_like(&text, &pattern)))
            }
            (left, right) => Err(strange(format!("{left:?} LIKE {right:?}"))),
        },
        _ => Err(strange(format!("the operator {operator}"))),
    }
}

fn is_like(text: &[char], pattern: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|from| is_like(&text[from..], rest)),
        Some(('\\', [escaped, rest @ ..])) => text
            .split_first()
            .is_some_and(|(c, text)| c == escaped && is_like(text, rest)),
        Some(('_', rest)) => text
            .split_first()
            .is_some_and(|(_, text)| is_like(text, rest)),
        Some((first, rest)) => text
            .split_first()
            .is_some_and(|(c, text)| c == first && is_like(text, rest)),
    }
}

fn cast(value: Value, kind: &str) -> Result<Value, SqlError> {
    match (value, kind) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Text(text), "timestamp") => Ok(Value::Time(time(&text)?)),
        (value @ Value::Time(_), "timestamp") => Ok(value),
        (Value::Number(number), "bigint") => {
            // Half of one is rounded away from zero.
            let half = if number < 0 { -ONE / 2 } else { ONE / 2 };
            Ok(Value::Number((number + half) / ONE * ONE))
        }
        (value, kind) => Err(strange(format!("{value:?} as {kind}"))),
    }
}

fn called(name: &str, arguments: &[Value], context: &mut Context) -> Result<Value, SqlError> {
    let text = |number: usize| match arguments.get(number) {
        Some(Value::Text(text)) => Ok(text.clone()),
        other => Err(strange(format!("{name} of {other:?}"))),
    };
    match (name, arguments) {
        ("current_timestamp", []) => Ok(Value::Time(context.now)),
        ("clock_timestamp", []) => Ok(Value::Time(context.clock)),
        ("pg_backend_pid", []) => Ok(Value::whole(context.process.into())),
        ("timezone", [_, Value::Time(time)]) if text(0)? == "utc" => Ok(Value::Time(*time)),
        ("extract", [Value::Time(time)]) => Ok(Value::Number((*time).into())),
        ("extract", [Value::Span(0, micros)]) => Ok(Value::Number((*micros).into())),
        ("make_interval", [Value::Number(seconds)]) => {
            let micros = i64::try_from(*seconds).map_err(|_| strange("a span".to_owned()))?;
            Ok(Value::Span(0, micros))
        }
        ("greatest" | "least", all) => {
            let wanted = if name == "least" {
                Ordering::Less
            } else {
                Ordering::Greater
            };
            let mut best = Value::Null;
            for value in all {
                let better = value.compared(&best)?.is_none_or(|than| than == wanted);
                if *value != Value::Null && (best == Value::Null || better) {
                    best = match value {
                        Value::Text(text) => Value::Time(time(text)?),
                        value => value.clone(),
                    };
                }
            }
            Ok(best)
        }
        ("substr", [Value::Text(text), Value::Number(from)]) => {
            let from = usize::try_from(from / ONE - 1).unwrap_or(0);
            Ok(Value::Text(text.chars().skip(from).collect()))
        }
        ("current_setting", [_]) => match text(0)?.as_str() {
            "synchronous_commit" => Ok(Value::Text(context.synchronous_commit.clone())),
            "transaction_read_only" => {
                let is_on = context.is_read_only;
                Ok(Value::Text(if is_on { "on" } else { "off" }.to_owned()))
            }
            other => Err(strange(format!("the setting {other}"))),
        },
        ("set_config", [_, _, _]) => {
            let (setting, to) = (text(0)?, text(1)?);
            match setting.as_str() {
                "lock_timeout" => {
                    let ms = to.trim_end_matches("ms").parse();
                    let ms = ms.map_err(|_| strange(format!("lock_timeout {to}")))?;
                    context.lock_timeout = Duration::from_millis(ms);
                    return Ok(Value::Text(timeout_shown(ms)));
                }
                "synchronous_commit" => context.synchronous_commit.clone_from(&to),
                "statement_timeout" => {}
                tcp if tcp.starts_with("tcp_") => {}
                _ => return Err(strange(format!("the setting {setting}"))),
            }
            Ok(Value::Text(to))
        }
        _ => Err(strange(format!("{name} of {arguments:?}"))),
    }
}

/// Returns a time as the server shows a setting: in the largest unit that divides it.
fn timeout_shown(ms: u64) -> String {
    let units = [(60_000, "min"), (1_000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    match unit.filter(|_| ms > 0) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None => "0".to_owned(),
    }
}

/// Returns the function and the number of a statement that is about an advisory lock.
pub(super) fn line_call(
    statement: &Statement,
    context: &mut Context,
) -> Result<Option<(String, i64)>, SqlError> {
    let Statement::Select(all) = statement else {
        return Ok(None);
    };
    let [select] = &all[..] else { return Ok(None) };
    let [Expr::Call(name, arguments)] = &select.items[..] else {
        return Ok(None);
    };
    if !name.contains("advisory") {
        return Ok(None);
    }
    let wrong = || strange(format!("{name} of {arguments:?}"));
    let number = arguments.first().ok_or_else(wrong)?;
    let Value::Number(number) = value(number, &[], &Rows::new(), context)? else {
        return Err(wrong());
    };
    let number = i64::try_from(number / ONE).map_err(|_| wrong())?;
    Ok(Some((name.clone(), number)))
}
