//! Durations as users write them, and the schedules that follow from them.

use rlock::cli;
use rlock::lock::instant::Instant;
use rlock::lock::restart::{RestartGuard, Restarted};
use rlock::lock::schedule::{LONGEST_TTL, ScheduleOptions};
use rlock::settings;
use rlock::text::duration::{parse, parse_or_seconds, show, show_rounded};

use super::is_fit_to_be_shown;

/// The input has durations with `|` between them: a TTL, a node timeout, a kill grace, and a drift
/// in thousandths.
pub fn hold(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let words: Vec<&str> = text.split('|').collect();
    for word in &words {
        a_duration(word);
    }
    let at = |index: usize| {
        words
            .get(index)
            .and_then(|word| parse_or_seconds(word).ok())
    };
    let drift = words
        .get(3)
        .and_then(|word| word.parse::<u16>().ok())
        .unwrap_or(10);
    if let Some(ttl) = at(0) {
        let drift = f64::from(drift.min(500)) / 1000.0;
        a_schedule(ScheduleOptions {
            ttl,
            drift,
            node_timeout: at(1),
            kill_after: at(2),
        });
    }
}

fn a_duration(text: &str) {
    let with_unit = parse(text);
    if let Ok(span) = with_unit {
        assert!(
            !text.contains('M') && !text.trim().starts_with('-'),
            "{text:?} could be misread"
        );
        assert!(
            text.contains(char::is_alphabetic) || span.is_zero(),
            "{text:?} has no unit"
        );
        assert_eq!(parse_or_seconds(text), Ok(span), "{text:?}");
        assert_eq!(
            cli::restart_guard(text),
            Ok(RestartGuard::For(span)),
            "{text:?}"
        );
    }
    if let Ok(span) = parse_or_seconds(text) {
        let written = show(span);
        is_fit_to_be_shown(&written, 100);
        assert_eq!(parse(&written), Ok(span), "{text:?} is shown as {written}");
        let rounded = show_rounded(span);
        is_fit_to_be_shown(&rounded, 40);
        assert!(rounded.split(' ').count() <= 2, "{rounded}");
        is_fit_to_be_shown(
            &Restarted::new("restarted", span / 2, span).to_string(),
            300,
        );
    }
}

fn a_schedule(wishes: ScheduleOptions) {
    let schedule = match settings::schedule(wishes) {
        Ok(schedule) => schedule,
        Err(failure) => return is_fit_to_be_shown(&failure.to_string(), 1000),
    };
    assert!(schedule.ttl() <= LONGEST_TTL);
    let sent = Instant::from_nanos(1 << 50);
    let deadline = schedule.term().end(sent);
    assert!(deadline < sent + schedule.ttl());
    assert!(
        schedule.signal_at(deadline) <= schedule.kill_at(deadline)
            && schedule.kill_at(deadline) <= deadline
    );
    let two_failures = (schedule.node_timeout() + schedule.retry()) * 2;
    assert!(sent + schedule.renew_every() + two_failures <= schedule.signal_at(deadline));
    assert!(schedule.renew_at(deadline) <= sent + schedule.renew_every());
    assert!(schedule.round() <= schedule.renew_every());
}
