//! Settings: flags, environment and files, completed and checked, before anything is sent to a node.

mod credentials;
mod hand_back;
mod remains;
mod schedule;
mod store;
pub mod token;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

pub use schedule::schedule;
pub use store::StoreConfig;
use store::addresses;

use crate::cli::{LockArgs, NodeArgs, OutputArgs, RunArgs, Sources};
use crate::exit::{Failure, Outcome};
use crate::job::handback::HandBack;
use crate::job::policy;
use crate::lock::key::Key;
use crate::lock::keys::Keys;
use crate::lock::mode::Mode;
use crate::lock::outer::{self, OuterLocks};
use crate::lock::queue::Order;
use crate::lock::remains::RemainsOptions;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::node::address::Address;
use crate::report::Reporter;
use crate::secret;
use crate::text::duration;

/// Settings of `rlock run`.
pub struct RunSettings {
    pub lock: LockSettings,
    pub policy: policy::PolicyOptions,
    pub remains: RemainsOptions,
    /// The command, at least one word.
    pub argv: Vec<OsString>,
    /// Variables for the command, beside those that name the grant.
    pub environment: Vec<(&'static str, OsString)>,
    /// Variables with which the guard releases the locks once rlock was killed, less the tokens; `None` if it need not or
    /// cannot.
    pub hand_back: Option<HandBack>,
}

/// Settings of the locks, for `run` and `acquire`.
pub struct LockSettings {
    pub keys: Keys,
    pub place: StoreConfig,
    /// `--restart-guard`.
    pub restart_guard: RestartGuard,
    pub schedule: Schedule,
    /// The kind of the lock.
    pub mode: Mode,
    /// `--wait`; `None`: without end.
    pub wait: Option<Duration>,
    /// `--order`.
    pub order: Order,
    /// `--supersede`, or `--replace`, which implies it.
    pub supersede: bool,
    /// `--replace`.
    pub replace: bool,
    /// `--busy-code`.
    pub busy_code: u8,
    /// `--note`, uncut.
    pub note: Option<String>,
    pub report: Reporter,
    /// Locks of outer rlocks, as the environment claims.
    pub outer: OuterLocks,
    /// Whether neither a flag nor a variable named a node. An unreachable one is perhaps not meant then.
    pub node_is_default: bool,
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Outcome::Usage, message)
}

fn config(message: impl Into<String>) -> Failure {
    Failure::new(Outcome::Config, message)
}

impl RunSettings {
    /// Checks what was typed.
    pub fn new(args: RunArgs, sources: &Sources) -> Result<Self, Failure> {
        let remains = remains::given(&args);
        let mut lock = LockSettings::new(&args.lock, args.kill_after, remains, &args.output, sources)?;
        if args.replace {
            replace(&mut lock)?;
        }
        let environment = environment(&args.lock, &lock.keys, sources);
        let hand_back = hand_back::of(&args.lock, &lock);
        let words = match args.shell {
            Some(string) => vec!["sh".into(), "-c".into(), string],
            None => args.argv,
        };
        if words.first().is_none_or(|command| command.is_empty()) {
            return Err(usage("the command's name is empty"));
        }
        let policy = policy::PolicyOptions {
            schedule: lock.schedule,
            on_lost: args.on_lost,
            first_signal: args.signal,
            max_run: args.max_run.filter(|span| !span.is_zero()),
            contain: args.contain,
        };
        Ok(Self { lock, policy, remains, argv: words, environment, hand_back })
    }
}

impl LockSettings {
    /// Checks what was typed. `kill_after` and `remains`: those of a command.
    pub fn new(
        args: &LockArgs,
        kill_after: Option<Duration>,
        remains: RemainsOptions,
        output: &OutputArgs,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let keys = keys(&args.nodes, &args.keys)?;
        let schedule = schedule(ScheduleOptions {
            ttl: args.ttl,
            drift: args.drift,
            node_timeout: args.nodes.node_timeout,
            kill_after,
        })?;
        let lock_delay = args.lock_delay.unwrap_or_default();
        let schedule = schedule.outlasted(lock_delay, remains.longest());
        let wait = wait(args, sources)?;
        let mode = mode(args, sources)?;
        let place = StoreConfig::new(&args.nodes)?;
        if args.supersede {
            supersedes("--supersede", &keys, args.order, &place)?;
        }
        let report = reporter(&keys, output);
        let note = args.note.as_ref().map(|note| note.to_string_lossy().into_owned());
        let lock = Self {
            keys,
            place,
            restart_guard: args.restart_guard,
            schedule,
            mode,
            wait,
            order: args.order,
            supersede: args.supersede,
            replace: false,
            busy_code: args.busy_code,
            note,
            report,
            outer: outer_locks(),
            node_is_default: !sources.given("node"),
        };
        remains::check(RemainsOptions { lock_delay, ..remains }, &lock)?;
        Ok(lock)
    }
}

/// Checks a lock's name.
pub fn key(nodes: &NodeArgs, name: &str) -> Result<Key, Failure> {
    Key::new(&nodes.prefix, name).map_err(|error| usage(format!("--key: {error}")))
}

/// Checks the names of the locks of one run.
pub fn keys(nodes: &NodeArgs, names: &[String]) -> Result<Keys, Failure> {
    let keys: Vec<Key> = names.iter().map(|name| key(nodes, name)).collect::<Result<_, _>>()?;
    Keys::new(keys).map_err(|error| usage(format!("--key: {error}")))
}

/// Makes the reporter of one lock, or of several.
pub fn reporter(keys: impl Into<Keys>, output: &OutputArgs) -> Reporter {
    Reporter { keys: keys.into(), log: output.log, quiet: output.quiet, verbose: output.verbose }
}

/// Returns the locks of outer rlocks that the environment claims. Only the nodes can confirm them.
fn outer_locks() -> OuterLocks {
    let variable = |name| std::env::var(name).unwrap_or_default();
    OuterLocks::read(&variable(outer::VARIABLE), &variable("RLOCK_TOKEN"))
}

/// Returns the kind of the lock. Kinds contradict each other only if they were typed, or if none was and the variables name two.
fn mode(args: &LockArgs, sources: &Sources) -> Result<Mode, Failure> {
    let kinds = [
        ("shared", args.shared.then_some(Mode::Shared)),
        ("exclusive", args.exclusive.then_some(Mode::Exclusive)),
        ("slots", args.slots),
    ];
    let is_typed = kinds.iter().any(|(id, mode)| mode.is_some() && sources.typed(id));
    let given = kinds.iter().filter(|(id, _)| !is_typed || sources.typed(id)).filter_map(|(_, mode)| *mode);
    match given.collect::<Vec<_>>()[..] {
        [] => Ok(Mode::Exclusive),
        [mode] => Ok(mode),
        _ => Err(usage("--shared, --exclusive and --slots contradict each other: give one of them")),
    }
}

/// Checks that waiters of this lock can supersede each other, as `option` asks.
fn supersedes(option: &str, keys: &Keys, order: Order, place: &StoreConfig) -> Result<(), Failure> {
    if keys.len() > 1 {
        return Err(usage(format!("{option} is for one lock: a run of several waits for each in its turn")));
    }
    if order != Order::Oldest {
        return Err(usage(format!("{option} and --order contradict each other: the last that came goes on alone")));
    }
    if place.local().is_some() {
        return Err(usage(format!("{option} needs a server: a lock on this machine alone has no queue")));
    }
    Ok(())
}

/// Sets `--replace`, if it fits the other options.
fn replace(lock: &mut LockSettings) -> Result<(), Failure> {
    supersedes("--replace", &lock.keys, lock.order, &lock.place)?;
    if let Mode::Slots(_) = lock.mode {
        return Err(usage("--replace and --slots contradict each other: it is unknown which of the holders must go"));
    }
    if lock.wait == Some(Duration::ZERO) {
        return Err(usage("--replace and --no-wait contradict each other: the holder must stop first"));
    }
    (lock.supersede, lock.replace) = (true, true);
    Ok(())
}

/// `--wait` and `--no-wait` contradict each other only if both were typed; else the typed one beats the variable.
fn wait(args: &LockArgs, sources: &Sources) -> Result<Option<Duration>, Failure> {
    let longer = args.wait.filter(|wait| !wait.is_zero());
    match (args.no_wait, longer) {
        (true, Some(_)) if sources.typed("wait") && sources.typed("no_wait") => {
            Err(usage("--no-wait and --wait contradict each other: give one of them"))
        }
        (true, Some(wait)) if sources.typed("wait") => Ok(Some(wait)),
        (true, _) => Ok(Some(Duration::ZERO)),
        (false, _) => Ok(args.wait),
    }
}

/// Returns the variables for the command with which an rlock inside it needs no flags. None holds a password that the
/// command did not have before: a typed address is passed on without it, and one from the environment is there already.
fn environment(args: &LockArgs, keys: &Keys, sources: &Sources) -> Vec<(&'static str, OsString)> {
    let mut set = vec![
        ("RLOCK_KEY", keys.typed().into()),
        ("RLOCK_TTL", duration::show(args.ttl).into()),
        ("RLOCK_PREFIX", OsString::from(&args.nodes.prefix)),
    ];
    if sources.typed("node") || !sources.given("node") {
        // An invalid address ends the run before there is a command.
        let shown: Vec<OsString> =
            addresses(&args.nodes).unwrap_or_default().iter().map(Address::without_secret).collect();
        set.push(("RLOCK_NODE", shown.join(OsStr::new(","))));
    }
    for (name, id, file) in
        [("RLOCK_CA", "ca", &args.nodes.ca), ("RLOCK_PASSWORD_FILE", "password_file", &args.nodes.password_file)]
    {
        if let Some(file) = file.as_deref().filter(|_| sources.typed(id)) {
            let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
            set.push((name, absolute.into_os_string()));
        }
    }
    set
}

/// Returns the command's file name, the only part of it that is stored: arguments may hold secrets, and so may an address
/// that was taken for a command.
pub fn file_name(command: &OsStr) -> String {
    let command = secret::without_userinfo(&command.to_string_lossy());
    Path::new(&command).file_name().map_or_else(|| command.clone(), |name| name.to_string_lossy().into_owned())
}
