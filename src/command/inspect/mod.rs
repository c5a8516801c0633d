//! `rlock inspect`: shows which locks are held, and by which client. Changes nothing.

mod keyboard;
mod programs;
mod table;

use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use futures_util::{StreamExt, stream};
use glob::{Pattern, PatternError};

use self::keyboard::Keyboard;

use crate::cli::NodeArgs;
use crate::cli::subcommands::{InspectArgs, InspectFormat};
use crate::clock::{self, Alarm};
use crate::command::acquisition::await_interruption;
use crate::command::{block_on, nodes_of, print, unanswered};
use crate::exit::{Failure, Outcome};
use crate::hold::observe::{Observations, Room, ScanResult, observe_but, scan};
use crate::job::signals::Signals;
use crate::job::spawn::Inherited;
use crate::lock::census::State;
use crate::lock::fault::{Denied, Faults};
use crate::lock::key::Key;
use crate::lock::quorum::Quorum;
use crate::report::{ProgressForm, Status, StatusLine, failures};
use crate::settings::{self, NodeSettings, Sources};
use crate::store::{Feature, Look, Store};
use crate::text;
use crate::text::{duration, escape, is_pattern};

/// Number of locks that are observed at once.
const AT_ONCE: usize = 32;

/// Number of waiters that are shown of each lock.
const MAX_WAITERS: usize = 1000;

/// Number of waiters that are asked for while several locks are observed at once.
const MAX_WAITERS_AT_ONCE: usize = 32;

/// Failure of a scan.
const SCAN_FAILS: &str = "cannot scan for locks";

/// Shortest interval of `--watch`.
const OFTEN: Duration = Duration::from_millis(50);

/// The locks to show.
pub(super) struct Selection {
    /// Those given by name.
    keys: Vec<Key>,
    /// Whether the exit code tells if one of them is held: a name, a pattern or a host was given.
    is_question: bool,
    /// Patterns for others.
    patterns: Vec<Pattern>,
    prefix: String,
    /// `--host`.
    host: Option<String>,
}

/// The locks as observed.
struct View {
    stores: Vec<Box<dyn Store>>,
    locks: Vec<(Key, Observations)>,
    /// Those that were found, and that the user may not read.
    unreadable: Vec<(Key, Observations)>,
    /// The nodes that could not be scanned for locks, and why.
    unread: Faults,
    /// Why the locks are unknown, where too few nodes could be scanned.
    incomplete: Option<Failure>,
}

pub fn inspect(
    args: &InspectArgs,
    sources: &Sources,
    inherited: &Inherited,
) -> anyhow::Result<Outcome> {
    let format = format(args, sources)?;
    let reach = NodeSettings::new(&args.nodes, sources)?;
    let selection = Selection::new(&args.nodes, &args.keys, &args.words, args.host.as_ref())?;
    if !selection.patterns.is_empty() {
        reach
            .store
            .needs(Feature::Listing, "inspect without a lock's name")?;
    }
    let form = args
        .output
        .progress
        .form(args.output.log.form(), args.output.quiet);
    let with_line = form == ProgressForm::Line;
    block_on(async {
        if let Some(every) = args.watch {
            return watch(&reach, &selection, format, every.max(OFTEN), inherited).await;
        }
        let view = View::take(&reach, &selection, with_line).await?;
        if let Some(shown) = view.shown(format) {
            print(shown.as_bytes())?;
        }
        view.outcome(&selection)
    })
}

/// `--json` and `--format` contradict each other only if both were typed.
fn format(args: &InspectArgs, sources: &Sources) -> Result<InspectFormat, Failure> {
    match args.format {
        Some(format) if format != InspectFormat::Json && args.json && sources.typed("json") => {
            Err(Failure::new(
                Outcome::Usage,
                "--json and --format contradict each other: give one of them",
            ))
        }
        Some(format) => Ok(format),
        None if args.json => Ok(InspectFormat::Json),
        None => Ok(InspectFormat::Table),
    }
}

impl Selection {
    /// Reads names, and words that are names or patterns. All locks, if there is neither.
    pub(super) fn new(
        nodes: &NodeArgs,
        keys: &[String],
        words: &[String],
        host: Option<&String>,
    ) -> Result<Self, Failure> {
        let every = ["*".to_owned()];
        let is_named = !keys.is_empty() || !words.is_empty();
        let words = if is_named { words } else { &every };
        let (patterns, names): (Vec<&String>, Vec<&String>) =
            words.iter().partition(|word| is_pattern(word));
        let key = |name: &String| settings::key(nodes, name);
        let keys = keys.iter().chain(names).map(key);
        let read = |text: &String| {
            let refusal = |error: PatternError| {
                format!("{}: {}; -k takes any name", escape::text(text), error.msg)
            };
            Pattern::new(text).map_err(|error| Failure::new(Outcome::Usage, refusal(error)))
        };
        let mut all: Vec<Key> = Vec::new();
        for key in keys {
            let key = key?;
            if !all.contains(&key) {
                all.push(key);
            }
        }
        Ok(Self {
            keys: all,
            patterns: patterns.into_iter().map(read).collect::<Result<_, _>>()?,
            prefix: nodes.prefix.clone(),
            is_question: is_named || host.is_some(),
            host: host.cloned(),
        })
    }

    pub(super) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Returns the locks that are named, and those that match and have been used within a week. With
    /// a host, only those of which it may be a holder.
    pub(super) async fn find(&self, reach: &NodeSettings) -> anyhow::Result<Vec<Key>> {
        if self.host.is_some() {
            let view = View::take(reach, self, false).await?;
            let locks = view.incomplete.map_or(Ok(view.locks), Err)?;
            return Ok(locks.into_iter().map(|(key, _)| key).collect());
        }
        let mut keys = self.keys.clone();
        if self.has_patterns() {
            let stores = reach.store.open(reach.limit, AT_ONCE, reach.writes)?;
            let found = find_locks(self, &stores, false).await;
            if found.faults.len() > Quorum::of(stores.len()).tolerated() {
                return Err(without_majority(SCAN_FAILS, stores.len(), &found.faults).into());
            }
            keys.extend(found.keys);
            // Otherwise it would seem that there is none.
            if keys.is_empty() {
                keys = found.closed;
            }
        }
        Ok(keys)
    }

    /// Whether a lock may match that is at this place or below it.
    fn may_be_below(&self, place: &Key) -> bool {
        let place = format!("{}/", place.typed());
        let may_be = |pattern: &Pattern| {
            let head = pattern.as_str().split(['*', '?', '[']).next();
            let head = head.unwrap_or_default();
            head.starts_with(&place) || place.starts_with(head)
        };
        self.patterns.iter().any(may_be)
    }

    /// Whether a client of the host holds the lock, or it is unknown which client does.
    fn is_of_host(&self, observations: &Observations) -> bool {
        let census = observations.census();
        let holders = census.holders();
        let mut hosts = holders
            .iter()
            .filter_map(|(occupant, _)| Some(&occupant.holder()?.1.host));
        self.host
            .as_ref()
            .is_none_or(|host| census.state() == State::Unknown || hosts.any(|there| there == host))
    }

    pub(super) fn names(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }
}

impl View {
    async fn take(
        reach: &NodeSettings,
        selection: &Selection,
        with_line: bool,
    ) -> anyhow::Result<Self> {
        let stores = reach.store.open(reach.limit, AT_ONCE, reach.writes)?;
        let mut keys = selection.keys.clone();
        let found = find_locks(selection, &stores, with_line).await;
        let unread = found.faults;
        if unread.len() > Quorum::of(stores.len()).tolerated() {
            let incomplete = Some(without_majority(SCAN_FAILS, stores.len(), &unread));
            return Ok(Self {
                stores,
                locks: Vec::new(),
                unreadable: Vec::new(),
                unread,
                incomplete,
            });
        }
        keys.extend(found.keys.into_iter().chain(found.closed));
        let mut locks = Vec::with_capacity(keys.len());
        let mut rest = keys.into_iter();
        let seen = async |key: &Key, max_waiters: usize, away: &Faults| {
            let wanted = Look {
                max_waiters,
                token: None,
            };
            observe_but(&nodes_of(&stores, key), away, reach.limit, wanted, |_| {
                false
            })
            .await
        };
        // The first lock alone: a node that hangs then costs one node timeout, not one for every
        // lock.
        if let Some(key) = rest.next() {
            let observations = seen(&key, MAX_WAITERS, &Faults::default()).await;
            locks.push((key, observations));
        }
        let away = locks
            .first()
            .map(|(_, observations)| observations.away())
            .unwrap_or_default();
        // Locks that a scan found are shown unless a majority says that they are free.
        let is_shown = |key: &Key, observations: &Observations| {
            let census = observations.census();
            selection.names(key) || census.holder().is_some() || !census.is_answered()
        };
        let room = RefCell::new(Room::new(stores.len(), away));
        let look_at = async |key: &Key, max_waiters: usize| {
            let away = room.borrow().away().clone();
            let observations = seen(key, max_waiters, &away).await;
            if is_shown(key, &observations) {
                room.borrow_mut().count(&stores, &observations);
            }
            observations
        };
        let mut others =
            stream::iter(rest.map(async |key| (look_at(&key, MAX_WAITERS_AT_ONCE).await, key)))
                .buffered(AT_ONCE);
        while let Some((observations, key)) = others.next().await {
            if is_shown(&key, &observations) {
                locks.push((key, observations));
            }
        }
        drop(others);
        // Locks with more waiters, one after the other: replies that are read at once have a limit
        // in common.
        for (key, observations) in locks
            .iter_mut()
            .skip(1)
            .filter(|(_, observations)| observations.census().has_more_waiters())
        {
            *observations = look_at(key, MAX_WAITERS).await;
        }
        locks.retain(|(key, observations)| is_shown(key, observations));
        let away = room.into_inner();
        if away.is_overfull() && away.away().len() > Quorum::of(stores.len()).tolerated() {
            return Err(
                without_majority("cannot observe all locks", stores.len(), away.away()).into(),
            );
        }
        let is_readable = |(key, observations): &(Key, Observations)| {
            let mut faults = observations.faults.iter();
            observations.faults.is_empty()
                || selection.names(key)
                || faults.any(|there| there.fault.denied != Some(Denied::Key))
        };
        let (mut locks, unreadable): (Vec<_>, _) = locks.into_iter().partition(is_readable);
        locks.retain(|(_, observations)| selection.is_of_host(observations));
        Ok(Self {
            stores,
            locks,
            unreadable,
            unread,
            incomplete: None,
        })
    }

    /// Returns the text for stdout. `None` if the locks are unknown and the form tells nothing
    /// else.
    fn shown(&self, format: InspectFormat) -> Option<String> {
        let Self {
            stores,
            locks,
            unreadable,
            unread,
            incomplete,
        } = self;
        match format {
            InspectFormat::OpenMetrics => Some(programs::openmetrics(
                locks,
                unreadable.len(),
                stores,
                unread,
                clock::unix_millis(SystemTime::now()),
            )),
            _ if incomplete.is_some() => None,
            InspectFormat::Json => Some(programs::json(locks.iter().chain(unreadable), stores)),
            InspectFormat::Name => Some(programs::names(locks)),
            InspectFormat::Table | InspectFormat::Wide => {
                let width = Some(std::io::stdout()).filter(|_| format == InspectFormat::Table);
                let width = width.and_then(text::columns);
                Some(table::of(locks, unreadable.len(), stores, unread, width))
            }
        }
    }

    /// Returns whether the nodes could tell, and whether any lock is held that was asked for.
    fn outcome(self, selection: &Selection) -> anyhow::Result<Outcome> {
        if let Some(failure) = self.incomplete {
            return Err(failure.into());
        }
        let state = |observations: &Observations| observations.census().state();
        let is_held = self
            .locks
            .iter()
            .any(|(_, observations)| state(observations) == State::Held);
        // A lock that a scan found, and that the user may not read, says nothing of the nodes.
        let readable = self.locks.iter().map(|lock| (lock, true));
        let unreadable = self.unreadable.iter().map(|lock| (lock, false));
        for ((key, observations), is_readable) in readable.chain(unreadable) {
            // A lock of which the nodes say different things may be the one that is held.
            let decides =
                selection.is_question && !is_held && state(observations) == State::Unknown;
            if (!observations.census().is_answered() && is_readable) || decides {
                return Err(
                    unanswered(key, observations.census().quorum(), &observations.faults).into(),
                );
            }
        }
        Ok(if selection.is_question && !is_held {
            Outcome::No
        } else {
            Outcome::Done
        })
    }
}

fn without_majority(what: &str, nodes: usize, faults: &Faults) -> Failure {
    let failure = failures::no_majority(faults, Quorum::of(nodes));
    Failure {
        message: format!("{what}: {}", failure.message),
        ..failure
    }
}

/// Scans for locks that match a pattern and are not named. Of the places that the user may not list,
/// those stay where one may be.
async fn find_locks(
    selection: &Selection,
    stores: &[Box<dyn Store>],
    with_line: bool,
) -> ScanResult {
    if selection.patterns.is_empty() {
        return ScanResult::default();
    }
    let progress = StatusLine::new(with_line);
    let drawn = |seen: u64, of: u64| progress.draw(|| Status::Scan { seen, of }.line());
    let matches = |key: &Key| {
        selection
            .patterns
            .iter()
            .any(|pattern| pattern.matches(key.typed()))
            && !selection.names(key)
    };
    let mut found = scan(stores, &selection.prefix, matches, drawn).await;
    let may_be = |place: &Key| selection.may_be_below(place) && !selection.names(place);
    found.closed.retain(may_be);
    found
}

/// Shows the locks every `every`, until a signal comes, the reader has gone or the user presses `q`.
/// A failure is shown, and does not end it.
async fn watch(
    reach: &NodeSettings,
    selection: &Selection,
    format: InspectFormat,
    every: Duration,
    inherited: &Inherited,
) -> anyhow::Result<Outcome> {
    let is_data = !matches!(format, InspectFormat::Table | InspectFormat::Wide);
    let keyboard = (!is_data).then(Keyboard::open).flatten();
    let head = format!("every {}; q quits", duration::show(every));
    let drawing = async {
        let mut alarm = Alarm::new()?;
        loop {
            let begun = clock::now();
            // Opened each time, so that a node that came back is found at once.
            let text = match View::take(reach, selection, false).await {
                Ok(view) => {
                    let told = || {
                        view.incomplete
                            .as_ref()
                            .map(|failure| format!("{failure}\n"))
                            .unwrap_or_default()
                    };
                    view.shown(format).unwrap_or_else(told)
                }
                Err(error) => format!("{error:#}\n"),
            };
            let text = match &keyboard {
                Some(_) => {
                    let now = humantime::format_rfc3339_seconds(SystemTime::now());
                    format!("{now}, {head}\n{text}")
                }
                None => text,
            };
            if !print(screen(&text, is_data).as_bytes())? {
                return Ok(Outcome::Done);
            }
            alarm.reached(begun + every).await;
        }
    };
    let Some(keyboard) = &keyboard else {
        return drawing.await;
    };
    // A signal that ends rlock must find the terminal as it was before.
    let mut signals = Signals::catch(inherited)?;
    let signal = tokio::select! {
        drawn = drawing => return drawn,
        key = keyboard.quits() => key,
        caught = await_interruption(&mut signals) => Some(caught.signal),
    };
    Ok(signal.map_or(Outcome::Done, |signal| Outcome::Interrupted(signal as i32)))
}

/// Returns the text for a redraw: on a terminal in place of the last one, cut to its height; else
/// below it.
fn screen(text: &str, is_data: bool) -> String {
    let stdout = std::io::stdout();
    let rows = text::rows(&stdout).filter(|_| !is_data && stdout.is_terminal());
    let Some(rows) = rows else {
        return if is_data {
            text.to_owned()
        } else {
            format!("{text}\n")
        };
    };
    let room = rows.saturating_sub(1).max(1);
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > room {
        room - 1
    } else {
        lines.len()
    };
    let drawn = lines[..shown].join("\x1b[K\n");
    let left = lines.len() - shown;
    let more = if left > 0 {
        format!("\x1b[K\n… and {left} more lines")
    } else {
        String::new()
    };
    format!("\x1b[H{drawn}{more}\x1b[K\n\x1b[J")
}
