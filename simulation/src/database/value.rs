//! Values of SQL, as far as rlock's statements have them. Times are in UTC, in unix microseconds.

use std::cmp::Ordering;
use std::fmt;

/// An error of the server: its code, and its words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlError(pub &'static str, pub String);

/// Parts of a number that are one.
pub(super) const ONE: i128 = 1_000_000;

const DAY: i64 = 86_400_000_000;

/// A month, where intervals are compared.
const MONTH: i64 = 30 * DAY;

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number, in millionths.
    Number(i128),
    /// A text.
    Text(String),
    /// A timestamp. The largest number stands for the one that never comes.
    Time(i64),
    /// An interval: months, and microseconds.
    Span(i64, i64),
    /// The value of a function that has none.
    Void,
}

impl Value {
    /// A whole number.
    pub fn whole(number: i64) -> Self {
        Self::Number(i128::from(number) * ONE)
    }

    /// Returns it as the server writes it; `None` for NULL.
    pub fn shown(&self) -> Option<String> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(is) => if *is { "t" } else { "f" }.to_owned(),
            Self::Number(number) if number % ONE == 0 => (number / ONE).to_string(),
            Self::Number(number) => {
                let (whole, part) = (number / ONE, (number % ONE).abs());
                let sign = if *number < 0 && whole == 0 { "-" } else { "" };
                format!("{sign}{whole}.{part:06}")
            }
            Self::Text(text) => text.clone(),
            Self::Time(micros) => Moment(*micros).to_string(),
            Self::Span(months, micros) => format!("{months} months {micros} microseconds"),
            Self::Void => String::new(),
        })
    }

    /// Compares two values as the server does; `None` if one is NULL.
    pub(super) fn compared(&self, other: &Self) -> Result<Option<Ordering>, SqlError> {
        Ok(Some(match (self, other) {
            (Self::Null, _) | (_, Self::Null) => return Ok(None),
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Number(one), Self::Number(other)) => one.cmp(other),
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Time(one), Self::Time(other)) => one.cmp(other),
            (Self::Span(months, one), Self::Span(others, other)) => {
                (months * MONTH + one).cmp(&(others * MONTH + other))
            }
            (Self::Time(one), Self::Text(text)) => one.cmp(&time(text)?),
            (Self::Text(text), Self::Time(other)) => time(text)?.cmp(other),
            _ => return Err(strange(format!("{self:?} beside {other:?}"))),
        }))
    }

    pub(super) fn plus(self, other: Self) -> Result<Self, SqlError> {
        Ok(match (self, other) {
            (Self::Null, _) | (_, Self::Null) => Self::Null,
            (Self::Number(one), Self::Number(other)) => Self::Number(one + other),
            (Self::Span(months, one), Self::Span(others, other)) => {
                Self::Span(months + others, one + other)
            }
            (Self::Time(time), Self::Span(months, span)) => Self::Time(later(time, months, span)),
            (one, other) => return Err(strange(format!("{one:?} + {other:?}"))),
        })
    }

    pub(super) fn minus(self, other: Self) -> Result<Self, SqlError> {
        Ok(match (self, other) {
            (Self::Null, _) | (_, Self::Null) => Self::Null,
            (Self::Number(one), Self::Number(other)) => Self::Number(one - other),
            (Self::Time(one), Self::Time(other)) if is_finite(one) && is_finite(other) => {
                Self::Span(0, one - other)
            }
            (Self::Time(_), Self::Time(_)) => {
                let why = "cannot subtract infinite timestamps";
                return Err(SqlError("22008", why.to_owned()));
            }
            (one, other) => return Err(strange(format!("{one:?} - {other:?}"))),
        })
    }

    pub(super) fn times(self, other: Self) -> Result<Self, SqlError> {
        Ok(match (self, other) {
            (Self::Null, _) | (_, Self::Null) => Self::Null,
            (Self::Number(one), Self::Number(other)) => Self::Number(one * other / ONE),
            (one, other) => return Err(strange(format!("{one:?} * {other:?}"))),
        })
    }
}

/// The error of a statement that this server does not understand.
pub(super) fn strange(mut what: String) -> SqlError {
    what.insert_str(0, "syntax error: ");
    SqlError("42601", what)
}

fn is_finite(time: i64) -> bool {
    time != i64::MAX && time != i64::MIN
}

fn later(time: i64, months: i64, span: i64) -> i64 {
    if !is_finite(time) {
        return time;
    }
    let (days, rest) = (time.div_euclid(DAY), time.rem_euclid(DAY));
    let (year, month, day) = date_of(days);
    let all = year * 12 + month - 1 + months;
    let (year, month) = (all.div_euclid(12), all.rem_euclid(12) + 1);
    let next = days_of(year + month / 12, month % 12 + 1, 1);
    let days = (days_of(year, month, 1) + day - 1).min(next - 1);
    days * DAY + rest + span
}

/// Reads a timestamp.
pub(super) fn time(text: &str) -> Result<i64, SqlError> {
    match text {
        "epoch" => return Ok(0),
        "infinity" => return Ok(i64::MAX),
        "-infinity" => return Ok(i64::MIN),
        _ => {}
    }
    let wrong = || {
        SqlError(
            "22007",
            format!("invalid input syntax for type timestamp: \"{text}\""),
        )
    };
    let numbers = |text: &str, mark: char| -> Option<[i64; 3]> {
        let all: Option<Vec<i64>> = text.split(mark).map(|part| part.parse().ok()).collect();
        all?.try_into().ok()
    };
    let (date, clock) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let [year, month, day] = numbers(date, '-').ok_or_else(wrong)?;
    let (clock, part) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':').ok_or_else(wrong)?;
    let part: i64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
    let seconds = (hour * 60 + minute) * 60 + second;
    Ok(days_of(year, month, day) * DAY + seconds * 1_000_000 + part)
}

/// Reads an interval of one unit.
pub(super) fn span(text: &str) -> Result<Value, SqlError> {
    let wrong = || strange(format!("the interval {text}"));
    let (number, unit) = text.split_once(' ').ok_or_else(wrong)?;
    let number: i64 = number.parse().map_err(|_| wrong())?;
    Ok(match unit.trim_end_matches('s') {
        "millisecond" => Value::Span(0, number * 1_000),
        "second" => Value::Span(0, number * 1_000_000),
        "minute" => Value::Span(0, number * 60_000_000),
        "year" => Value::Span(number * 12, 0),
        _ => return Err(wrong()),
    })
}

/// Number of days from 1970 to a date of the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Returns the year, the month and the day, so many days after 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// A time as the server writes it.
struct Moment(i64);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !is_finite(self.0) {
            let sign = if self.0 < 0 { "-" } else { "" };
            return write!(f, "{sign}infinity");
        }
        let (year, month, day) = date_of(self.0.div_euclid(DAY));
        let rest = self.0.rem_euclid(DAY);
        let (seconds, part) = (rest / 1_000_000, rest % 1_000_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}"
        )?;
        let part = format!(".{part:06}");
        let part = part.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{part}")
    }
}
