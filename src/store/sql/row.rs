//! A row of the table: `locked_by` as rlock writes and reads it, and whose the lock is. Pure.
//!
//! `rlock STATE TOKEN TTL[+DELAY] PID USER@HOST CMD [BY] [NOTE]`, at most [`LONGEST`] bytes, with one
//! blank between two words. STATE has four letters, so that a statement can change it and keep the
//! rest. A row in any other form is another client's.

use std::time::Duration;

use crate::lock::details::{Breaker, Details};
use crate::lock::fence::Fence;
use crate::lock::last::{Entry, Run};
use crate::lock::messages::ForeignValue;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::schedule::LONGEST_TTL;
use crate::lock::token::Token;
use crate::text::escape;

/// Longest text in the column, in bytes.
pub(super) const LONGEST: usize = 255;

/// Longest text of a row that is read, in bytes: that of the column's 255 characters. A table of
/// another type may have more.
const LONGEST_TOLD: usize = 1020;

/// Number of bytes before the token.
pub(super) const BEFORE_TOKEN: usize = "rlock held ".len();

/// Stands for a word that is empty.
const NOTHING: &str = "-";

/// Stands for the number of a process that keeps the lock and does not say its own.
const UNKNOWN: &str = "?";

/// Most by which a column makes a time later: one of milliseconds may round it.
const ROUNDED: Duration = Duration::from_millis(1);

/// Stands in the place of the part that is cut off.
const ELLIPSIS: &str = "...";

/// State of a lock that an rlock had last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It is the token's.
    Held,
    /// A tombstone: its holder is to stop.
    Dead,
    /// The command has ended, and the lock stays for a time.
    Parked,
    /// It was given back.
    Free,
    /// It was taken away.
    Gone,
}

impl State {
    const ALL: [Self; 5] = [Self::Held, Self::Dead, Self::Parked, Self::Free, Self::Gone];

    /// Returns the text before the token.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Held => "rlock held ",
            Self::Dead => "rlock dead ",
            Self::Parked => "rlock park ",
            Self::Free => "rlock free ",
            Self::Gone => "rlock gone ",
        }
    }

    /// Whether others are kept out by it, until its end.
    fn holds(self) -> bool {
        matches!(self, Self::Held | Self::Dead | Self::Parked)
    }
}

/// A row as the database told it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) locked_by: String,
    /// `locked_at`, unix time in µs.
    pub(super) locked_at: u64,
    /// Time until `lock_until`; `None` if that has come.
    pub(super) left: Option<Duration>,
    /// Time since `lock_until`.
    pub(super) over: Duration,
}

impl Row {
    /// Returns the state and the token, if an rlock wrote the row.
    pub(super) fn owner(&self) -> Option<(State, Token)> {
        let state = State::ALL
            .into_iter()
            .find(|state| self.locked_by.starts_with(state.prefix()))?;
        let token = self.locked_by[BEFORE_TOKEN..].split(' ').next()?;
        Some((state, token.parse().ok()?))
    }

    /// Whether it is in `state` as the token's, whatever the time.
    pub(super) fn is(&self, state: State, token: Token) -> bool {
        self.owner() == Some((state, token))
    }

    /// Returns the row at the end of a request that took `took`. The row's times are those of the
    /// request's begin, so that a lock seems to have time left that an rlock gave back meanwhile.
    pub(super) fn at_the_end(self, took: Duration) -> Self {
        let is_given_back = self.owner().is_some_and(|(state, _)| !state.holds());
        let left = self
            .left
            .filter(|left| !is_given_back || *left > took + ROUNDED);
        Self { left, ..self }
    }

    /// Returns the fence of the last grant.
    pub(super) fn fence(&self) -> Option<Fence> {
        Fence::new(self.locked_at)
    }

    /// Returns what its holder says, without what no holder has room for.
    fn told(&self) -> String {
        cut(self.locked_by.clone(), LONGEST_TOLD)
    }

    /// Returns the party that has the lock, if one has.
    pub(super) fn occupant(&self) -> Option<Occupant> {
        let left = self.left?;
        let holder = self
            .owner()
            .filter(|(state, _)| state.holds())
            .and_then(|(state, token)| Some((token, self.details(state)?)));
        let who = match holder {
            Some((token, details)) => OccupantKind::Holder(token, details),
            None => OccupantKind::Foreign(format!(
                "{} (ShedLock or the like)",
                escape::text(&self.told())
            )),
        };
        Some(Occupant::new(who, Some(left)))
    }

    /// Returns the row as what `rlock break --foreign` frees, if another client has the lock.
    pub(super) fn foreign(&self) -> Option<ForeignValue> {
        let is_foreign = self.occupant()?.holder().is_none();
        is_foreign.then(|| ForeignValue(vec![self.locked_by.clone().into_bytes()]))
    }

    /// Reads what the holder says of itself.
    fn details(&self, state: State) -> Option<Details> {
        let told = self.told();
        let mut words = told[BEFORE_TOKEN..].split(' ').skip(1);
        let term = words.next()?;
        let (ttl, delay) = term.split_once('+').unwrap_or((term, "0"));
        let longest = u64::try_from(LONGEST_TTL.as_millis()).unwrap_or(u64::MAX);
        let [ttl, delay] = [ttl, delay].map(|ms| ms.parse::<u64>().ok());
        let (ttl, delay) = (ttl?.min(longest), delay?.min(longest));
        let pid = words.next()?;
        let (user, host) = words.next()?.split_once('@')?;
        let cmd = words.next()?;
        let by = (state == State::Dead).then(|| words.next());
        let note: Vec<&str> = words.collect();
        let note = Some(note.join(" ")).filter(|note| !note.is_empty());
        let broken = by.map(|by| Breaker {
            name: by.map_or("another user", meant).to_owned(),
            reason: note.clone(),
        });
        let is_parked = state == State::Parked;
        Some(Details {
            host: meant(host).to_owned(),
            pid: pid.parse().ok().filter(|_| !is_parked),
            user: meant(user).to_owned(),
            since: self.locked_at / 1000,
            cmd: meant(cmd).to_owned(),
            note: note.filter(|_| broken.is_none()),
            kept: pid != NOTHING && !is_parked,
            broken,
            ttl: ttl.saturating_add(delay),
            delay,
            n: 1,
            parked: is_parked,
            ..Details::default()
        })
    }
}

/// Returns what the holder `token` writes.
pub(super) fn held(token: Token, details: &Details) -> String {
    let note = details.note.as_deref().unwrap_or_default();
    fitted(owned(State::Held, token, details), note)
}

/// Returns the tombstone that `details` tell of; its reason takes the place of the note.
pub(super) fn dead(token: Token, details: &Details) -> String {
    let (by, reason) = match &details.broken {
        Some(by) => (by.name.as_str(), by.reason.as_deref().unwrap_or_default()),
        None => ("", ""),
    };
    let text = format!("{} {}", owned(State::Dead, token, details), word(by, 48));
    fitted(text, reason)
}

fn owned(state: State, token: Token, details: &Details) -> String {
    let delay = match details.delay {
        0 => String::new(),
        delay => format!("+{delay}"),
    };
    let pid = match details.pid {
        _ if !details.kept => NOTHING.to_owned(),
        None => UNKNOWN.to_owned(),
        Some(pid) => pid.to_string(),
    };
    format!(
        "{}{token} {}{delay} {pid} {}@{} {}",
        state.prefix(),
        details.ttl.saturating_sub(details.delay),
        word(&details.user.replace('@', "_"), 32),
        word(&details.host, 48),
        word(&details.cmd, 40),
    )
}

/// Returns the text with as much of `note` as there is room for.
fn fitted(text: String, note: &str) -> String {
    let blank = |c: char| if is_blank(c) { ' ' } else { c };
    let note: String = note.trim().chars().map(blank).collect();
    let room = LONGEST.saturating_sub(text.len() + 1);
    if note.is_empty() || room <= ELLIPSIS.len() {
        return text;
    }
    format!("{text} {}", cut(note, room))
}

/// Returns `text` as one word of at most `most` bytes.
fn word(text: &str, most: usize) -> String {
    if text.is_empty() {
        return NOTHING.to_owned();
    }
    let joined = |c: char| if is_blank(c) { '_' } else { c };
    cut(text.chars().map(joined).collect(), most)
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let mut end = most - ELLIPSIS.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ELLIPSIS}", &text[..end])
}

fn meant(word: &str) -> &str {
    if word == NOTHING { "" } else { word }
}

/// A row beside the lock's, with one entry of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordKind {
    /// The last run.
    Last,
    /// The last success.
    Once,
}

impl RecordKind {
    pub(super) const ALL: [Self; 2] = [Self::Last, Self::Once];

    /// Returns the text before the lock's name in the row's, and before the token in `locked_by`.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Last => "rlock last ",
            Self::Once => "rlock once ",
        }
    }
}

/// Returns what the row of a record says: `rlock last TOKEN START END HOW USER@HOST CMD [BY] [REASON]`.
/// Its `locked_at` is the fence, and its `lock_until` the time of the release.
pub(super) fn record(kind: RecordKind, entry: &Entry) -> String {
    let run = &entry.run;
    let how = match (run.exit, &run.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => word(signal, 10),
        (None, None) => NOTHING.to_owned(),
    };
    let text = format!(
        "{}{} {} {} {how} {}@{} {}",
        kind.prefix(),
        entry.token,
        run.start,
        run.end,
        word(&run.user.replace('@', "_"), 32),
        word(&run.host, 48),
        word(&run.cmd, 24),
    );
    match &run.broken {
        None => text,
        Some(by) => {
            let room = LONGEST - text.len() - 1;
            let text = format!("{text} {}", word(&by.name, room.min(32)));
            fitted(text, by.reason.as_deref().unwrap_or_default())
        }
    }
}

/// Reads the row of a record.
pub(super) fn entry(kind: RecordKind, row: &Row) -> Option<Entry> {
    let told = row.told();
    let mut words = told.strip_prefix(kind.prefix())?.split(' ');
    let token = words.next()?.parse().ok()?;
    let (start, end) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let how = words.next()?;
    let (user, host) = words.next()?.split_once('@')?;
    let cmd = meant(words.next()?).to_owned();
    let by = words.next();
    let reason: Vec<&str> = words.collect();
    let reason = Some(reason.join(" ")).filter(|reason| !reason.is_empty());
    let exit = how.parse().ok();
    let signal = (exit.is_none() && how != NOTHING).then(|| how.to_owned());
    Some(Entry {
        fence: row.fence()?,
        token,
        age: row.over,
        run: Run {
            host: meant(host).to_owned(),
            user: meant(user).to_owned(),
            cmd,
            start,
            end,
            exit,
            signal,
            broken: by.map(|name| Breaker {
                name: name.to_owned(),
                reason,
            }),
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(locked_by: String) -> Row {
        Row {
            name: "job".to_owned(),
            locked_by,
            locked_at: 1_700_000_000_123_456,
            left: Some(Duration::from_secs(9)),
            over: Duration::ZERO,
        }
    }

    fn details() -> Details {
        Details {
            host: "web1".to_owned(),
            pid: Some(4711),
            user: "deploy".to_owned(),
            since: 1_700_000_000_123,
            cmd: "backup.sh".to_owned(),
            note: Some("nightly, see wiki".to_owned()),
            ttl: 35_000,
            delay: 5_000,
            n: 1,
            ..Details::default()
        }
    }

    #[test]
    fn a_holder_is_read_as_it_was_written() {
        let token = Token::fresh();
        let text = held(token, &details());
        assert_eq!(
            text,
            format!("rlock held {token} 30000+5000 4711 deploy@web1 backup.sh nightly, see wiki")
        );
        let occupant = row(text).occupant().unwrap();
        assert_eq!(occupant.holder(), Some((token, &details())));
        let acquired = Details {
            pid: None,
            kept: false,
            note: None,
            user: String::new(),
            ..details()
        };
        let occupant = row(held(token, &acquired)).occupant().unwrap();
        assert_eq!(occupant.holder(), Some((token, &acquired)));
    }

    #[test]
    fn a_statement_changes_the_state_and_keeps_the_rest() {
        let token = Token::fresh();
        let text = held(token, &details());
        for state in State::ALL {
            assert_eq!(state.prefix().len(), BEFORE_TOKEN);
            let changed = row(format!("{}{}", state.prefix(), &text[BEFORE_TOKEN..]));
            assert!(changed.is(state, token) && !changed.is(state, Token::fresh()));
        }
        let parked = row(format!(
            "{}{}",
            State::Parked.prefix(),
            &text[BEFORE_TOKEN..]
        ));
        let occupant = parked.occupant().unwrap();
        assert!(occupant.is_parked() && !occupant.holder().unwrap().1.kept);
    }

    #[test]
    fn a_lock_that_was_given_back_during_a_request_has_no_time_left_at_its_end() {
        let at_the_end = |text: &str, took| row(text.to_owned()).at_the_end(took);
        let (longer, shorter) = (Duration::from_millis(8999), Duration::from_millis(8998));
        for state in State::ALL {
            let text = format!("{}{} 30000", state.prefix(), Token::fresh());
            let is_over = matches!(state, State::Free | State::Gone);
            assert_eq!(
                at_the_end(&text, longer).left.is_none(),
                is_over,
                "{state:?}"
            );
            assert!(at_the_end(&text, shorter).left.is_some(), "{state:?}");
        }
        for text in ["host1", "rlock free -"] {
            assert!(at_the_end(text, longer).left.is_some(), "{text}");
        }
    }

    #[test]
    fn a_tombstone_tells_who_broke_the_lock_and_why() {
        let (token, by) = (
            Token::fresh(),
            Breaker {
                name: "ci@ops".to_owned(),
                reason: Some("it hung".to_owned()),
            },
        );
        let broken = Details {
            broken: Some(by.clone()),
            ..details()
        };
        let read = row(dead(token, &broken)).occupant().unwrap();
        let (_, told) = read.holder().unwrap();
        assert_eq!(told.broken, Some(by));
        assert_eq!(told.pid, Some(4711));
    }

    #[test]
    fn the_row_of_another_client_is_shown_and_freed_as_it_was_seen() {
        for text in ["host1", "", "rlock", "rlock held x", "rlock free - "] {
            let there = row(text.to_owned());
            assert!(there.occupant().unwrap().holder().is_none(), "{text}");
            assert_eq!(there.foreign().unwrap().0, [text.as_bytes()]);
            assert_eq!(
                Row {
                    left: None,
                    ..there
                }
                .foreign(),
                None
            );
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let run = Run {
            host: "web1".to_owned(),
            user: "deploy".to_owned(),
            cmd: "backup.sh".to_owned(),
            start: 1,
            end: 2,
            ..Run::default()
        };
        let by = Breaker {
            name: "ci@ops".to_owned(),
            reason: Some("it hung".to_owned()),
        };
        for run in [
            Run {
                exit: Some(3),
                ..run.clone()
            },
            Run {
                signal: Some("SIGTERM".to_owned()),
                ..run.clone()
            },
            Run {
                broken: Some(by),
                ..run
            },
        ] {
            let entry = Entry {
                fence: Fence::new(1_700_000_000_123_456).unwrap(),
                token: Token::fresh(),
                age: Duration::ZERO,
                run,
            };
            let text = record(RecordKind::Last, &entry);
            assert_eq!(super::entry(RecordKind::Last, &row(text)), Some(entry));
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_long_and_none_makes_the_reader_panic(
            host in ".{0,99}", user in ".{0,99}", cmd in ".{0,99}", note in ".{0,300}", by in ".{0,99}", text in ".{0,99}"
        ) {
            let token = Token::fresh();
            let broken = Some(Breaker { name: by.clone(), reason: Some(note.clone()) });
            let longest = Details {
                host: host.clone(), user: user.clone(), cmd: cmd.clone(), note: Some(note), pid: Some(u32::MAX),
                ttl: 7_776_000_000, delay: 3_888_000_000, broken: broken.clone(), ..Details::default()
            };
            let run = Run { host, user, cmd, start: u64::MAX, end: u64::MAX, exit: None, signal: Some("SIGVTALRM".to_owned()), broken };
            let entry = Entry { fence: Fence::FIRST, token, age: Duration::ZERO, run };
            for written in [held(token, &longest), dead(token, &longest), record(RecordKind::Once, &entry)] {
                prop_assert!(written.len() <= LONGEST, "{}", written);
                prop_assert!(!written.chars().any(char::is_control));
            }
            prop_assert!(row(dead(token, &longest)).occupant().unwrap().holder().is_some());
            for prefix in ["", "rlock held ", "rlock dead ", "rlock last "] {
                let read = row(format!("{prefix}{text}"));
                let _ = (read.occupant(), read.foreign(), super::entry(RecordKind::Last, &read));
            }
        }
    }
}
