//! Settings: flags, environment and files, completed and checked, before anything is sent to a node.

pub mod copies;
mod credentials;
mod remains;
mod schedule;
mod store;
pub mod token;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use schedule::schedule;
pub use store::{StoreConfig, addresses};

use crate::cli::{LockArgs, NodeArgs, OutputArgs, Rank, RunArgs, Sources};
use crate::config::Choice;
use crate::exit::{Failure, Outcome};
use crate::job::policy;
use crate::lock::form::Form;
use crate::lock::key::Key;
use crate::lock::keys::Keys;
use crate::lock::mode::Mode;
use crate::lock::outer::{self, OuterLocks};
use crate::lock::remains::RemainsOptions;
use crate::lock::request::Copies;
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
    /// Its name for other clients: `--name`, or the file name of its first word.
    pub name: String,
    /// Variables for the command, beside those that name the grant.
    pub environment: Vec<(&'static str, OsString)>,
    /// `--metrics-dir`.
    pub metrics: Option<PathBuf>,
}

/// Settings of the locks, for `run` and `acquire`.
pub struct LockSettings {
    pub keys: Keys,
    pub place: StoreConfig,
    /// `--restart-guard`.
    pub restart_guard: RestartGuard,
    pub schedule: Schedule,
    /// `--wait-replicas`, `--fsync`.
    pub copies: Option<Copies>,
    /// The kind of the lock.
    pub mode: Mode,
    /// `--as`.
    pub form: Form,
    /// `--wait`; `None`: without end.
    pub wait: Option<Duration>,
    /// `--supersede`.
    pub supersede: bool,
    /// `--busy-code`.
    pub busy_code: u8,
    /// `--note`, uncut.
    pub note: Option<String>,
    pub report: Reporter,
    /// Locks of outer rlocks, as the environment claims.
    pub outer: OuterLocks,
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
        let lock = LockSettings::new(&args.lock, args.kill_after, remains, &args.output, sources)?;
        let environment = environment(&args.lock, &lock.keys, sources);
        let words = args.words();
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
        let first_word = args.shell.as_deref().unwrap_or(&words[0]);
        let name = args.name.filter(|name| !name.is_empty()).unwrap_or_else(|| command_name(first_word));
        Ok(Self { lock, policy, remains, argv: words, name, environment, metrics: args.metrics_dir })
    }
}

/// Returns the file name of the program that a command's first word, or a shell's line, begins with. Never an argument, which may be
/// a secret.
fn command_name(first_word: &OsStr) -> String {
    let word = secret::without_secrets(&first_word.to_string_lossy());
    word.rsplit('/').find(|part| !part.is_empty()).unwrap_or(&word).to_owned()
}

/// Checks settings of `run` by the rules that concern several of them. Reads neither passwords nor certificates.
pub fn check(args: &RunArgs, sources: &Sources) -> Result<(), Failure> {
    schedule(options(&args.lock, args.kill_after))?;
    wait(&args.lock, sources)?;
    let mode = mode(&args.lock, sources)?;
    if args.lock.form == Form::Redisson {
        redisson(mode, args.lock.supersede, remains::given(args))?;
    }
    args.output.volume(sources)?;
    let is_given = |span: Option<Duration>| span.is_some_and(|span| !span.is_zero());
    let of_servers = [
        ("--as redisson", args.lock.form == Form::Redisson),
        ("--supersede", args.lock.supersede),
        ("--wait-replicas", args.lock.copies.wait_replicas.is_some_and(|replicas| replicas > 0)),
        ("--fsync", args.lock.copies.fsync),
        ("--lock-delay", is_given(args.lock.lock_delay)),
        ("--hold-at-least", is_given(args.hold_at_least)),
    ];
    let needs_server = of_servers.into_iter().find_map(|(option, is_given)| is_given.then_some(option));
    StoreConfig::check(&args.lock.nodes, needs_server)
}

/// Returns the failures of files that settings of `run` name and that cannot be used by this user.
pub fn faults_of_files(args: &RunArgs) -> Vec<Failure> {
    credentials::faults_of_files(&args.lock.nodes)
}

/// Returns the options of the lease's schedule.
fn options(args: &LockArgs, kill_after: Option<Duration>) -> ScheduleOptions {
    let node_timeout = copies::node_timeout(args.nodes.node_timeout, args.copies);
    ScheduleOptions { ttl: args.ttl, drift: args.drift, node_timeout, kill_after }
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
        let schedule = schedule(options(args, kill_after))?;
        let lock_delay = args.lock_delay.unwrap_or_default();
        let schedule = schedule.outlasted(lock_delay, remains.longest());
        let wait = wait(args, sources)?;
        let mode = mode(args, sources)?;
        let place = StoreConfig::new(&args.nodes, sources)?;
        let copies = copies::of(args.copies, &place)?;
        if args.supersede {
            supersedes(&keys, &place)?;
        }
        let report = reporter(&keys, output);
        let note = args.note.as_ref().map(|note| note.to_string_lossy().into_owned()).filter(|note| !note.is_empty());
        let lock = Self {
            keys,
            place,
            restart_guard: args.restart_guard,
            schedule,
            copies,
            mode,
            form: args.form,
            wait,
            supersede: args.supersede,
            busy_code: args.busy_code,
            note,
            report,
            outer: outer_locks(),
        };
        let remains = RemainsOptions { lock_delay, ..remains };
        remains::check(remains, &lock)?;
        if lock.form == Form::Redisson {
            lock.place.needs_server("--as redisson")?;
            redisson(lock.mode, lock.supersede, remains)?;
        }
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
    let OutputArgs { quiet, verbose, log, progress } = *output;
    Reporter { keys: keys.into(), log: log.form(), quiet, verbose, progress }
}

/// Returns the locks of outer rlocks that the environment claims. Only the nodes can confirm them.
fn outer_locks() -> OuterLocks {
    let variable = |name| std::env::var(name).unwrap_or_default();
    OuterLocks::read(&variable(outer::VARIABLE), &variable("RLOCK_TOKEN"))
}

/// Returns the kind of the lock. Kinds contradict each other only if their sources are of one rank; else the higher one decides.
fn mode(args: &LockArgs, sources: &Sources) -> Result<Mode, Failure> {
    let kinds = [
        ("shared", args.shared.then_some(Mode::Shared)),
        ("exclusive", args.exclusive.then_some(Mode::Exclusive)),
        ("slots", args.slots),
    ];
    let given = kinds.into_iter().filter_map(|(id, mode)| Some((sources.of(id).rank(), mode?))).collect::<Vec<_>>();
    let highest = given.iter().map(|(rank, _)| *rank).max();
    match given.iter().filter(|(rank, _)| Some(*rank) == highest).collect::<Vec<_>>()[..] {
        [] => Ok(Mode::Exclusive),
        [(_, mode)] => Ok(*mode),
        _ => Err(usage("--shared, --exclusive and --slots contradict each other: give one of them")),
    }
}

/// Checks that waiters of this lock can supersede each other.
fn supersedes(keys: &Keys, place: &StoreConfig) -> Result<(), Failure> {
    if keys.len() > 1 {
        return Err(usage("--supersede is for one lock: a run of several waits for each in its turn"));
    }
    if place.local().is_some() {
        return Err(usage("--supersede needs a server: a lock on this machine alone has no queue"));
    }
    Ok(())
}

/// Checks that a lock with these options can have the form of Redisson's.
fn redisson(mode: Mode, supersedes: bool, remains: RemainsOptions) -> Result<(), Failure> {
    let others = [
        ("--supersede", supersedes),
        ("--hold-at-least", !remains.hold_at_least.is_zero()),
        ("--lock-delay", !remains.lock_delay.is_zero()),
        ("--once", remains.once.is_some()),
    ];
    match others.into_iter().find_map(|(option, is_given)| is_given.then_some(option)) {
        _ if mode != Mode::Exclusive => {
            Err(usage("--as redisson is for exclusive locks: its clients know no other kind"))
        }
        Some(option) => Err(usage(format!(
            "--as redisson and {option} contradict each other: it is for a lock that is held and released"
        ))),
        None => Ok(()),
    }
}

/// `--wait` and `--no-wait` contradict each other only if both were typed or stand in one section; else the one of the higher
/// rank decides. Of two variables it is `RLOCK_NO_WAIT`.
fn wait(args: &LockArgs, sources: &Sources) -> Result<Option<Duration>, Failure> {
    let longer = args.wait.filter(|wait| !wait.is_zero());
    let (of_wait, of_no_wait) = (sources.of("wait").rank(), sources.of("no_wait").rank());
    match (args.no_wait, longer) {
        (true, Some(_)) if of_wait == of_no_wait && of_wait != Rank::Variable => {
            Err(usage("--no-wait and --wait contradict each other: give one of them"))
        }
        (true, Some(wait)) if of_wait > of_no_wait => Ok(Some(wait)),
        (true, _) => Ok(Some(Duration::ZERO)),
        (false, _) => Ok(args.wait),
    }
}

/// Returns the variables for the command with which an rlock inside it needs no flags: what was typed. The command inherits the
/// variables of the environment, and an rlock inside it reads the same files. No variable holds a password that the command did not
/// have before: a typed address is passed on without it.
fn environment(args: &LockArgs, keys: &Keys, sources: &Sources) -> Vec<(&'static str, OsString)> {
    let mut set = vec![("RLOCK_KEY", keys.typed().into())];
    if sources.typed("ttl") {
        set.push(("RLOCK_TTL", duration::show(args.ttl).into()));
    }
    if sources.typed("prefix") {
        set.push(("RLOCK_PREFIX", OsString::from(&args.nodes.prefix)));
    }
    if sources.typed("node") {
        // An invalid address ends the run before there is a command.
        let shown: Vec<OsString> =
            addresses(&args.nodes.node).unwrap_or_default().iter().map(Address::without_secret).collect();
        set.push(("RLOCK_NODE", shown.join(OsStr::new(","))));
    }
    let absolute = |file: &Path| std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf()).into_os_string();
    for (name, id, file) in [
        ("RLOCK_CA", "ca", &args.nodes.ca),
        ("RLOCK_CERT", "cert", &args.nodes.cert),
        ("RLOCK_CERT_KEY", "cert_key", &args.nodes.cert_key),
        ("RLOCK_PASSWORD_FILE", "password_file", &args.nodes.password_file),
        ("RLOCK_SENTINEL_PASSWORD_FILE", "sentinel_password_file", &args.nodes.sentinel_password_file),
    ] {
        set.extend(file.as_deref().filter(|_| sources.typed(id)).map(|file| (name, absolute(file))));
    }
    let name = args.nodes.tls_server_name.as_ref().filter(|_| sources.typed("tls_server_name"));
    set.extend(name.map(|name| ("RLOCK_TLS_SERVER_NAME", name.to_str().as_ref().into())));
    match Choice::of(args.nodes.files.config.as_deref()) {
        Choice::Standard => {}
        Choice::Nothing => set.push(("RLOCK_CONFIG", Choice::NOTHING.into())),
        Choice::Named(file) => set.push(("RLOCK_CONFIG", absolute(&file))),
    }
    set
}
