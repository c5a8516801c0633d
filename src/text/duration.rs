//! Durations as users write them: `30s`, `1h30m`, `500ms`.
//!
//! The grammar is humantime's without its ambiguities: `M` (a month there, minutes to most readers)
//! and numbers without a unit. Where flock(1) and timeout(1) take bare seconds,
//! [`parse_or_seconds`] does too.

use std::time::Duration;

/// Reads a duration with its unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err("it cannot be negative".to_owned());
    }
    if trimmed.contains('M') {
        return Err("M is not a unit here: write m for minutes".to_owned());
    }
    match humantime::parse_duration(trimmed) {
        Ok(span) => Ok(span),
        Err(_) if trimmed.parse::<f64>().is_ok_and(f64::is_finite) => Err(format!(
            "the unit is missing: write {trimmed}s or {trimmed}ms"
        )),
        Err(_) => Err("write it like 30s, 5m or 1h30m".to_owned()),
    }
}

/// Reads a duration with its unit, or a bare number of seconds, with a fraction or not.
pub fn parse_or_seconds(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    match trimmed.parse::<f64>() {
        Ok(seconds) if trimmed.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            Duration::try_from_secs_f64(seconds).map_err(|_| "it is too long".to_owned())
        }
        _ => parse(text),
    }
}

/// Returns the shortest spelling that [`parse`] reads back: `30s`, `1m30s`, `500ms`.
pub fn show(span: Duration) -> String {
    humantime::format_duration(span)
        .to_string()
        .replace(' ', "")
}

/// Returns a spelling for messages: at most two units, tenths of a second or whole milliseconds,
/// and below one its tenths.
pub fn show_rounded(span: Duration) -> String {
    let rounded = match span.as_secs() {
        0 if span.subsec_millis() > 0 => Duration::from_millis(span.subsec_millis().into()),
        0 => Duration::from_micros(u64::from(span.subsec_micros()) / 100 * 100),
        1..60 => {
            Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
        }
        _ => Duration::from_secs(span.as_secs()),
    };
    humantime::format_duration(rounded)
        .to_string()
        .split(' ')
        .take(2)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns [`show_rounded`], and `<1ms` below a millisecond, where a measured time is below the
/// precision that counts.
pub fn show_measured(span: Duration) -> String {
    if span < Duration::from_millis(1) {
        "<1ms".to_owned()
    } else {
        show_rounded(span)
    }
}

/// Returns a spelling in whole seconds, of two units at most: `3m 2s`.
pub fn show_seconds(span: Duration) -> String {
    show_rounded(Duration::from_secs(span.as_secs()))
}

/// Returns a spelling in whole days: `366d`.
pub fn days(span: Duration) -> String {
    format!("{}d", span.as_secs() / (24 * 3600))
}

/// Returns the time that is left at `now` (unix time in ms), and of an hour or more also when it is
/// over: `2days 23h (Sun 12:00 UTC)`.
pub fn show_until(left: Duration, now: u64) -> String {
    let span = show_rounded(left);
    if left < Duration::from_secs(3600) {
        return span;
    }
    format!("{span} ({})", time_of_day(now.saturating_add(millis(left))))
}

/// Returns the day of the week and the time of day at `at`, in unix milliseconds: `Fri 22:15 UTC`.
fn time_of_day(at: u64) -> String {
    // 1970 began on a Thursday.
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let minutes = at / 60_000;
    let day = DAYS[usize::try_from(minutes / 1440 % 7).unwrap_or_default()];
    format!("{day} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

/// Returns whole milliseconds.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_time_of_day_has_its_weekday() {
        assert_eq!(time_of_day(0), "Thu 00:00 UTC");
        // date -u -d @1795817700: Fri Nov 27 22:15:00 UTC 2026
        assert_eq!(time_of_day(1_795_817_700_999), "Fri 22:15 UTC");
    }

    #[test]
    fn units_are_needed_and_months_are_not_minutes() {
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        for bad in [
            "30",
            "5M",
            "-3s",
            "",
            "s",
            "1e3",
            "inf",
            "nan",
            "30 parsecs",
        ] {
            assert!(parse(bad).is_err(), "{bad} must be refused");
        }
    }

    #[test]
    fn a_unit_is_missing_behind_a_number_alone() {
        assert!(parse("30").is_err_and(|why| why.contains("write 30s")));
        for bad in ["inf", "nan", "infinity"] {
            assert!(
                parse(bad).is_err_and(|why| why.contains("like 30s")),
                "{bad}"
            );
        }
    }

    #[test]
    fn bare_seconds_are_taken_where_flock_and_timeout_take_them() {
        assert_eq!(parse_or_seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(parse_or_seconds("0"), Ok(Duration::ZERO));
        assert_eq!(parse_or_seconds(".5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_or_seconds("5m"), Ok(Duration::from_secs(300)));
        for bad in ["-1", "inf", "nan", "+inf", "1e400", "M", ""] {
            assert!(parse_or_seconds(bad).is_err(), "{bad} must be refused");
        }
    }

    #[test]
    fn what_people_read_has_two_units_at_most() {
        assert_eq!(show_rounded(Duration::from_millis(723_456)), "12m 3s");
        assert_eq!(show_rounded(Duration::from_micros(412)), "400us");
        assert_eq!(show_rounded(Duration::from_micros(3_512)), "3ms");
        assert_eq!(show_rounded(Duration::from_millis(9_876)), "9s 800ms");
        assert_eq!(show_rounded(Duration::ZERO), "0s");
        assert_eq!(
            [999, 1_000].map(Duration::from_micros).map(show_measured),
            ["<1ms", "1ms"]
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(ms in 0u64..10_000_000_000) {
            let span = Duration::from_millis(ms);
            prop_assert_eq!(parse(&show(span)), Ok(span));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".*") {
            let _ = (parse(&text), parse_or_seconds(&text));
        }
    }
}
