//! Settings of locks: of those that `run` and `acquire` take, and of one that its holder claims.

use std::time::Duration;

use super::store::{FindStore, copies, node_timeout};
use super::{NodeSettings, Sources, StoreConfig, command_name, usage};
use crate::cli::subcommands::HeldArgs;
use crate::cli::{LockArgs, NodeArgs, OutputArgs, RunArgs};
use crate::exit::Failure;
use crate::lock::key::{Key, Keys};
use crate::lock::mode::Mode;
use crate::lock::outer::{self, OuterLocks};
use crate::lock::quorum::Quorum;
use crate::lock::remains::RemainsOptions;
use crate::lock::schedule::{LONGEST_TTL, Schedule, ScheduleError, ScheduleOptions, millis_up};
use crate::lock::token::Token;
use crate::lock::waiting::WaitOptions;
use crate::report::Reporter;
use crate::store::Feature;
use crate::store::redis::{Form, WriteOptions};
use crate::text::duration;

/// Settings of the locks, for `run` and `acquire`.
pub struct LockSettings {
    pub keys: Keys,
    pub store: StoreConfig,
    /// `--as`, `--wait-replicas`, `--fsync`.
    pub writes: WriteOptions,
    /// The kind of the lock.
    pub mode: Mode,
    /// The rules of the wait, and the lease's schedule.
    pub waiting: WaitOptions,
    /// `--hold-at-least`, `--lock-delay` and `--once`.
    pub remains: RemainsOptions,
    /// Name of the command for other clients.
    pub name: String,
    /// `--busy-code`.
    pub busy_code: u8,
    /// `--note`, uncut.
    pub note: Option<String>,
    pub report: Reporter,
}

/// A lock that the caller claims by its token.
pub struct HeldLock {
    pub key: Key,
    pub token: Token,
    /// Whether the environment says that an outer `rlock run` renews and releases it.
    pub is_kept: bool,
    pub report: Reporter,
    pub reach: NodeSettings,
}

impl HeldLock {
    /// Checks what was typed.
    pub fn new(args: &HeldArgs, sources: &Sources) -> Result<Self, Failure> {
        if args.name.is_some() && sources.typed("key") {
            return Err(usage(
                "KEY and --key contradict each other: give one of them",
            ));
        }
        // clap requires one of them.
        let key = key(&args.nodes, args.key().unwrap_or_default())?;
        let reach = NodeSettings::new(&args.nodes, sources)?;
        reach.store.must_know(&key, false)?;
        Ok(Self {
            report: reporter(&key, &args.output),
            key,
            token: args.token,
            is_kept: outer_locks().is_run(args.token),
            reach,
        })
    }
}

impl LockSettings {
    /// Checks what was typed. `command`: the options of `run`; `acquire` has none. `find_store` is
    /// asked for the nodes.
    pub fn new(
        args: &LockArgs,
        output: &OutputArgs,
        command: Option<&RunArgs>,
        sources: &Sources,
        find_store: FindStore,
    ) -> Result<Self, Failure> {
        let keys = keys(&args.nodes, &args.keys)?;
        let remains = RemainsOptions {
            hold_at_least: command
                .and_then(|run| run.hold_at_least)
                .unwrap_or_default(),
            lock_delay: args.lock_delay.unwrap_or_default(),
            once: command.and_then(|run| run.once),
        };
        let node_timeout = node_timeout(args.nodes.node_timeout, args.copies);
        let options = ScheduleOptions {
            ttl: args.ttl,
            drift: args.drift,
            node_timeout,
            kill_after: command.and_then(|run| run.kill_after),
        };
        let schedule = schedule(options)?.outlasted(remains);
        let mode = mode(args, sources)?;
        let wait = wait(args, sources)?;
        let of_rlock = [
            ("--supersede", Feature::Supersede, args.supersede),
            (
                "--hold-at-least",
                Feature::Remains,
                !remains.hold_at_least.is_zero(),
            ),
            (
                "--lock-delay",
                Feature::Remains,
                !remains.lock_delay.is_zero(),
            ),
            ("--once", Feature::Once, remains.once.is_some()),
        ];
        let of_servers = [
            (
                "--as redisson",
                Feature::OtherForms,
                args.form == Form::Redisson,
            ),
            (
                "--wait-replicas",
                Feature::Copies,
                args.copies
                    .wait_replicas
                    .is_some_and(|replicas| replicas > 0),
            ),
            ("--fsync", Feature::Copies, args.copies.fsync),
            ("--shared", Feature::Shared, mode == Mode::Shared),
            ("--slots", Feature::Slots, mode.number().is_some()),
            (
                "--restart-guard",
                Feature::RestartGuard,
                sources.typed("restart_guard"),
            ),
        ];
        if args.form == Form::Redisson && mode != Mode::Exclusive {
            return Err(usage(
                "--as redisson is for exclusive locks: its clients know no other kind",
            ));
        }
        if let Some((option, _)) = given(&of_rlock)
            .next()
            .filter(|_| args.form == Form::Redisson)
        {
            let why = "it is for a lock that is held and released";
            return Err(usage(format!(
                "--as redisson and {option} contradict each other: {why}"
            )));
        }
        if args.supersede && keys.len() > 1 {
            return Err(usage(
                "--supersede is for one lock: a run of several waits for each in its turn",
            ));
        }
        let store = find_store(&args.nodes, sources)?;
        for (option, feature) in given(&of_servers).chain(given(&of_rlock)) {
            store.needs(feature, option)?;
        }
        let has_record = remains.once.is_some();
        keys.iter()
            .try_for_each(|key| store.must_know(key, has_record))?;
        check_remains(remains, &keys, mode, schedule)?;
        let waiting = WaitOptions {
            quorum: Quorum::of(store.count()),
            wait,
            schedule,
            restart_guard: args.restart_guard,
            outer: outer_locks(),
            supersede: args.supersede,
            for_command: command.is_some(),
        };
        let note = args
            .note
            .as_ref()
            .map(|note| note.to_string_lossy().into_owned())
            .filter(|note| !note.is_empty());
        Ok(Self {
            report: reporter(&keys, output),
            keys,
            store,
            writes: WriteOptions {
                form: args.form,
                copies: copies(args.copies),
            },
            mode,
            waiting,
            remains,
            name: command.map_or_else(|| "acquire".to_owned(), command_name),
            busy_code: args.busy_code,
            note,
        })
    }

    /// Returns the lease's schedule.
    pub fn schedule(&self) -> Schedule {
        self.waiting.schedule
    }
}

/// Returns the options that are given, with the features that they need.
fn given(
    options: &[(&'static str, Feature, bool)],
) -> impl Iterator<Item = (&'static str, Feature)> {
    options
        .iter()
        .filter(|(.., is_given)| *is_given)
        .map(|(option, feature, _)| (*option, *feature))
}

/// Refuses times that no server can keep, and `--once` where more than one run may succeed at a
/// time.
fn check_remains(
    options: RemainsOptions,
    keys: &Keys,
    mode: Mode,
    schedule: Schedule,
) -> Result<(), Failure> {
    let times = [
        ("--hold-at-least", options.hold_at_least, ""),
        (
            "--lock-delay",
            options.lock_delay.saturating_add(schedule.ttl()),
            " with --ttl",
        ),
        ("--once", options.once.unwrap_or_default(), ""),
    ];
    if let Some((option, _, with)) = times.into_iter().find(|(_, time, _)| *time > LONGEST_TTL) {
        return Err(usage(format!(
            "{option} is at most {}{with}",
            duration::days(LONGEST_TTL)
        )));
    }
    match options.once {
        Some(Duration::ZERO) => Err(usage("--once 0 would find no success: give a longer time")),
        Some(_) if mode != Mode::Exclusive => Err(usage(
            "--once needs an exclusive lock: with --shared and --slots several runs may succeed at a time",
        )),
        Some(_) if keys.len() > 1 => Err(usage(
            "--once takes one lock: of several, some may know of the success and others not",
        )),
        _ => Ok(()),
    }
}

/// Checks a lock's name.
pub fn key(nodes: &NodeArgs, name: &str) -> Result<Key, Failure> {
    Key::new(&nodes.prefix, name).map_err(|error| usage(format!("--key: {error}")))
}

/// Checks the names of the locks of one run.
fn keys(nodes: &NodeArgs, names: &[String]) -> Result<Keys, Failure> {
    let keys: Vec<Key> = names
        .iter()
        .map(|name| key(nodes, name))
        .collect::<Result<_, _>>()?;
    Keys::new(keys).map_err(|error| usage(format!("--key: {error}")))
}

/// Makes the reporter of one lock, or of several.
pub fn reporter(keys: impl Into<Keys>, output: &OutputArgs) -> Reporter {
    let OutputArgs {
        quiet,
        verbose,
        log,
        progress,
    } = *output;
    Reporter {
        keys: keys.into(),
        log: log.form(),
        quiet,
        verbose,
        progress,
    }
}

/// Returns the locks of outer rlocks that the environment claims. Only the nodes can confirm them.
fn outer_locks() -> OuterLocks {
    let variable = |name| std::env::var(name).unwrap_or_default();
    OuterLocks::read(&variable(outer::VARIABLE), &variable("RLOCK_TOKEN"))
}

/// Returns the kind of the lock.
fn mode(args: &LockArgs, sources: &Sources) -> Result<Mode, Failure> {
    let kinds = [
        ("shared", args.shared),
        ("exclusive", args.exclusive),
        ("slots", args.slots.is_some()),
    ];
    Ok(match sources.decisive(&kinds)? {
        Some("shared") => Mode::Shared,
        Some("slots") => args.slots.unwrap_or_default(),
        _ => Mode::Exclusive,
    })
}

/// Returns `--wait`, which is nothing with `--no-wait`.
fn wait(args: &LockArgs, sources: &Sources) -> Result<Option<Duration>, Failure> {
    let is_longer = args.wait.is_some_and(|wait| !wait.is_zero());
    let is_none =
        sources.decisive(&[("no_wait", args.no_wait), ("wait", is_longer)])? == Some("no_wait");
    Ok(if is_none {
        Some(Duration::ZERO)
    } else {
        args.wait
    })
}

/// Derives the schedule, or says which TTL would fit.
pub fn schedule(options: ScheduleOptions) -> Result<Schedule, Failure> {
    Schedule::new(options).map_err(|error| usage(worded(error)))
}

fn worded(error: ScheduleError) -> String {
    let ScheduleError::TooShort { schedule, shortest } = error else {
        return format!("--ttl is at most {}", duration::days(LONGEST_TTL));
    };
    let show = |span| duration::show(millis_up(span));
    let remedy = match shortest {
        Some(ttl) => format!("give --ttl {} or more", show(ttl)),
        None => "give a smaller --node-timeout or --drift".to_owned(),
    };
    format!(
        "--ttl {} is too short for its own schedule: a third to renew, drift {}, twice --node-timeout {} and pause {}, and margin {} make {}; {remedy}",
        show(schedule.ttl()),
        show(schedule.drift()),
        show(schedule.node_timeout()),
        show(schedule.retry()),
        show(schedule.margin()),
        show(schedule.needed()),
    )
}
