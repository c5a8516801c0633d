//! `rlock inspect`: who holds what. Looks, and changes nothing.

mod json;
mod table;

use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::nodes::{block_on, no_majority, open_for_looks, tell_of_default_node, unanswered};
use super::output::print;
use crate::cli::Sources;
use crate::cli::subcommands::InspectArgs;
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::lock::census::State;
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::redlock::Nodes;
use crate::redlock::observe::{Observations, Room, observe_with_waiters};
use crate::redlock::scan::scan;
use crate::report::StatusLine;
use crate::settings;
use crate::settings::token::NodeSettings;
use crate::text::glob::Glob;

/// So many locks are looked at at once.
const AT_ONCE: usize = 32;

/// So many of those who wait for a lock are shown.
const CROWD: usize = 1000;

/// So many of them are asked for while it is looked at several locks at once.
const FEW: usize = 32;

/// How often the progress is drawn.
const DRAWN: Duration = Duration::from_millis(100);

/// A screen that is redrawn more often is no more up to date.
const OFTEN: Duration = Duration::from_millis(50);

/// Which locks are meant.
struct Wanted {
    /// By their names.
    keys: Vec<Key>,
    /// By patterns; one that matches everything, if nothing was named.
    patterns: Vec<Glob>,
    prefix: String,
}

/// What was seen of them.
struct View {
    nodes: Nodes,
    locks: Vec<(Key, Observations)>,
    /// The nodes that could not be walked through for locks, and why.
    unread: Faults,
}

/// Shows the locks.
pub fn inspect(args: &InspectArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let reach = NodeSettings::new(&args.nodes, sources)?;
    let wanted = Wanted::new(args)?;
    if !wanted.patterns.is_empty() {
        reach.place.needs_server("inspect without a lock's name")?;
    }
    tell_of_default_node(&reach.place, reach.node_is_default, &args.output, None);
    let quiet = args.output.quiet;
    block_on(async {
        if let Some(every) = args.watch {
            return watch(&reach, &wanted, args.json, every.max(OFTEN)).await;
        }
        let view = View::take(&reach, &wanted, quiet).await?;
        print(view.shown(args.json).as_bytes())?;
        view.outcome(&reach, &wanted)
    })
}

impl Wanted {
    fn new(args: &InspectArgs) -> Result<Self, Failure> {
        let (patterns, names): (Vec<&String>, Vec<&String>) = args.words.iter().partition(|word| Glob::is_one(word));
        let prefix = args.nodes.prefix.clone();
        let key = |name: &String| settings::key(&args.nodes, name);
        let keys = args.keys.iter().chain(names).map(key).collect::<Result<Vec<_>, _>>()?;
        let mut patterns: Vec<Glob> = patterns.into_iter().map(|text| Glob::new(text)).collect();
        if keys.is_empty() && patterns.is_empty() {
            patterns.push(Glob::new("*"));
        }
        Ok(Self { keys, patterns, prefix })
    }

    /// Whether the answer is about one lock: held or free.
    fn is_one(&self) -> bool {
        self.keys.len() == 1 && self.patterns.is_empty()
    }

    fn is_named(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }
}

impl View {
    async fn take(reach: &NodeSettings, wanted: &Wanted, quiet: bool) -> anyhow::Result<Self> {
        let nodes = open_for_looks(&reach.place, reach.limit, AT_ONCE)?;
        let mut keys = wanted.keys.clone();
        let (found, unread) = found(reach, wanted, &nodes, quiet).await?;
        keys.extend(found);
        let mut locks = Vec::with_capacity(keys.len());
        let mut rest = keys.into_iter();
        // The first one alone: a node that hangs costs its time once, not for every lock.
        if let Some(key) = rest.next() {
            let seen = observe_with_waiters(&nodes, &key, reach.limit, CROWD, &Faults::default(), |_| false).await;
            locks.push((key, seen));
        }
        let away = locks.first().map(|(_, looks)| looks.away()).unwrap_or_default();
        // Of what was found by itself only locks that are held are of interest.
        let is_shown = |key: &Key, looks: &Observations| wanted.is_named(key) || looks.census().holder().is_some();
        let room = RefCell::new(Room::new(&nodes, away));
        let look = async |key: &Key, max_waiters: usize| {
            let away = room.borrow().away().clone();
            let seen = observe_with_waiters(&nodes, key, reach.limit, max_waiters, &away, |_| false).await;
            if is_shown(key, &seen) {
                room.borrow_mut().count(&nodes, &seen);
            }
            seen
        };
        let mut others = stream::iter(rest.map(async |key| (look(&key, FEW).await, key))).buffered(AT_ONCE);
        while let Some((looks, key)) = others.next().await {
            if is_shown(&key, &looks) {
                locks.push((key, looks));
            }
        }
        drop(others);
        // Where more wait, one after the other: what was read of several at once has a limit.
        for (key, looks) in locks.iter_mut().skip(1).filter(|(_, looks)| looks.census().has_more_waiters()) {
            *looks = look(key, CROWD).await;
        }
        locks.retain(|(key, looks)| is_shown(key, looks));
        let away = room.into_inner();
        if away.is_overfull() && away.away().len() > nodes.quorum().tolerated() {
            return Err(no_majority("cannot look at all locks", &nodes, away.away(), reach.node_is_default).into());
        }
        Ok(Self { nodes, locks, unread })
    }

    fn shown(&self, json: bool) -> String {
        let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into());
        if json { json::of(&self.locks, &self.nodes) } else { table::of(&self.locks, &self.nodes, &self.unread, width) }
    }

    /// Whether the answer could be given, and for a single lock what it is.
    fn outcome(&self, reach: &NodeSettings, wanted: &Wanted) -> anyhow::Result<Outcome> {
        for (key, looks) in &self.locks {
            let census = looks.census();
            if !census.is_answered() || (wanted.is_one() && census.state() == State::Unknown) {
                return Err(unanswered(key, &self.nodes, &looks.faults, reach.node_is_default).into());
            }
        }
        let free = self.locks.first().is_some_and(|(_, looks)| looks.census().state() == State::Free);
        Ok(if wanted.is_one() && free { Outcome::No } else { Outcome::Done })
    }
}

/// The locks that match a pattern and are not named as well, and the nodes that were of no use for that.
async fn found(
    reach: &NodeSettings,
    wanted: &Wanted,
    nodes: &Nodes,
    quiet: bool,
) -> anyhow::Result<(Vec<Key>, Faults)> {
    if wanted.patterns.is_empty() {
        return Ok(Default::default());
    }
    let progress = StatusLine::new(!quiet, DRAWN);
    let told = |seen: u64, of: u64| progress.draw(|| format!("looking: {} of {of} keys", seen.min(of)));
    let matches =
        |key: &Key| wanted.patterns.iter().any(|pattern| pattern.matches(key.typed())) && !wanted.is_named(key);
    let found = scan(reach.place.servers(), reach.limit, &wanted.prefix, matches, told).await;
    if found.faults.len() > nodes.quorum().tolerated() {
        let what = "cannot look for locks";
        return Err(no_majority(what, nodes, &found.faults, reach.node_is_default).into());
    }
    Ok((found.keys, found.faults))
}

/// Looks again and again, until a signal ends it or nobody reads it any more. A look that fails is shown, and not the last.
async fn watch(reach: &NodeSettings, wanted: &Wanted, json: bool, every: Duration) -> anyhow::Result<Outcome> {
    let mut alarm = Alarm::new()?;
    loop {
        let begun = clock::now();
        // Nodes are opened anew each time, so that one that came back is found at once.
        let text = match View::take(reach, wanted, true).await {
            Ok(view) => view.shown(json),
            Err(error) => format!("{error:#}\n"),
        };
        if !print(screen(&text, json).as_bytes())? {
            return Ok(Outcome::Done);
        }
        alarm.reached(begun + every).await;
    }
}

/// On a terminal in the place of the last one, cut to its height; else below it.
fn screen(text: &str, json: bool) -> String {
    let stdout = std::io::stdout();
    let size = terminal_size::terminal_size_of(&stdout).filter(|_| !json && stdout.is_terminal());
    let Some((_, height)) = size else { return if json { text.to_owned() } else { format!("{text}\n") } };
    let room = usize::from(height.0).saturating_sub(1).max(1);
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > room { room - 1 } else { lines.len() };
    let drawn = lines[..shown].join("\x1b[K\n");
    let left = lines.len() - shown;
    let more = if left > 0 { format!("\x1b[K\n… and {left} more lines") } else { String::new() };
    format!("\x1b[H{drawn}{more}\x1b[K\n\x1b[J")
}
