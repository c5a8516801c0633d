//! What is meant: flags, environment and files, completed and checked, before anything is sent to anybody.

mod hand_back;
pub mod token;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Uid;

use crate::cli::{LockArgs, NodeArgs, OutputArgs, RunArgs, Sources};
use crate::exit::{Failure, Outcome};
use crate::input;
use crate::job::handback::HandBack;
use crate::job::policy;
use crate::lock::details::{LONGEST_NOTE, fits};
use crate::lock::key::Key;
use crate::lock::outer::{self, OuterLocks};
use crate::lock::queue::Order;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::node::address::{Address, Endpoint, Secret, Server};
use crate::node::redis::connection::Access;
use crate::node::redis::tls::Trust;
use crate::report::{Event, Reporter};
use crate::secret;
use crate::text::duration;
use crate::text::escape;

/// The longest first line of a `--password-file` that is read.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// The most nodes that are accepted.
const MOST_NODES: usize = 9;

/// All that `rlock run` needs to know.
pub struct RunSettings {
    /// The lock.
    pub lock: LockSettings,
    /// What is to happen to the command, and when.
    pub policy: policy::PolicyOptions,
    /// The command, at least one word.
    pub argv: Vec<OsString>,
    /// Variables for the command, beside those that name the grant.
    pub environment: Vec<(&'static str, OsString)>,
    /// How the guard gives the lock back once rlock was killed, less the token; `None` if it need not or cannot.
    pub hand_back: Option<HandBack>,
}

/// All that concerns the lock.
pub struct LockSettings {
    /// The lock.
    pub key: Key,
    /// Where it lives.
    pub place: StoreConfig,
    /// `--restart-guard`.
    pub restart_guard: RestartGuard,
    /// The lease's schedule.
    pub schedule: Schedule,
    /// `None`: wait for ever.
    pub wait: Option<Duration>,
    /// `--order`.
    pub order: Order,
    /// `--busy-code`.
    pub busy_code: u8,
    /// `--note`.
    pub note: Option<String>,
    /// Says what happens.
    pub report: Reporter,
    /// The locks that rlocks above us hold, if their variables tell the truth.
    pub outer: OuterLocks,
    /// Whether nobody chose the node: then an unreachable one is perhaps not meant at all.
    pub node_is_default: bool,
}

/// The nodes, ready to be opened.
pub enum StoreConfig {
    /// One server, or several independent ones.
    Servers(Vec<Access>),
    /// A directory of this machine; `None` is the user's own.
    Local(Option<std::path::PathBuf>),
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
        let environment = environment(&args.lock, sources);
        let wishes = ScheduleOptions {
            ttl: args.lock.ttl,
            drift: args.lock.drift,
            node_timeout: args.lock.nodes.node_timeout,
            kill_after: args.kill_after,
        };
        let named = hand_back::named(&args.lock);
        let lock = LockSettings::new(args.lock, wishes, &args.output, sources)?;
        let hand_back = named.and_then(|named| hand_back::reached(named, &lock));
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
        Ok(Self { lock, policy, argv: words, environment, hand_back })
    }
}

impl LockSettings {
    /// Checks what was typed.
    pub fn new(
        args: LockArgs,
        wishes: ScheduleOptions,
        output: &OutputArgs,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let key = Key::new(&args.nodes.prefix, &args.key).map_err(usage)?;
        let schedule = Schedule::new(wishes).map_err(|unfit| usage(unfit.to_string()))?;
        let place = place(&args.nodes)?;
        let wait = wait(&args, sources)?;
        let report = Reporter { key: key.clone(), log: output.log, quiet: output.quiet, verbose: output.verbose };
        let note = args.note.map(|note| note.to_string_lossy().into_owned());
        if note.as_deref().is_some_and(|note| !fits(note, LONGEST_NOTE)) {
            report.say(&Event::NoteCut { limit: LONGEST_NOTE });
        }
        Ok(Self {
            key,
            place,
            restart_guard: args.restart_guard,
            schedule,
            wait,
            order: args.order,
            busy_code: args.busy_code,
            note,
            report,
            outer: outer_locks(),
            node_is_default: !sources.given("node"),
        })
    }
}

/// What the environment claims to be held above us. To be checked with the nodes.
fn outer_locks() -> OuterLocks {
    let variable = |name| std::env::var(name).unwrap_or_default();
    OuterLocks::read(&variable(outer::VARIABLE), &variable("RLOCK_TOKEN"))
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

fn place(args: &NodeArgs) -> Result<StoreConfig, Failure> {
    let mut servers: Vec<Server> = Vec::new();
    for address in addresses(args)? {
        match address {
            Address::Local(dir) if args.node.len() == 1 => return Ok(StoreConfig::Local(dir)),
            Address::Local(_) => return Err(usage("--node local is a lock on this machine alone: give no other node")),
            Address::Server(server) if servers.iter().any(|other| other.endpoint == server.endpoint) => {
                return Err(config(format!("--node names {server} twice: nodes must be independent")));
            }
            Address::Server(server) => servers.push(server),
        }
    }
    if servers.len() > MOST_NODES {
        let count = servers.len();
        return Err(usage(format!("--node names {count} nodes; {MOST_NODES} are enough to survive the loss of four")));
    }
    let tls = |server: &Server| matches!(server.endpoint, Endpoint::Tcp { tls: true, .. });
    let trust = if servers.iter().any(tls) { Some(Trust::new(args.ca.as_deref()).map_err(config)?) } else { None };
    let common = if servers.iter().any(|server| server.password.is_none()) {
        password(args.password_file.as_deref())?
    } else {
        None
    };
    let access = |server: Server| Access {
        password: server.password.clone().or_else(|| common.clone()),
        trust: trust.clone().filter(|_| tls(&server)),
        server,
    };
    Ok(StoreConfig::Servers(servers.into_iter().map(access).collect()))
}

fn addresses(args: &NodeArgs) -> Result<Vec<Address>, Failure> {
    // The rest of an address whose password has a comma: none of its parts is fit to be shown.
    let is_rest = |node: &String| node.contains('@') && !node.contains("://") && !node.starts_with("local:");
    if args.node.iter().skip(1).any(is_rest) {
        return Err(config(
            "--node: an address begins with redis:// or the like; a comma in a password must be written %2C",
        ));
    }
    args.node.iter().map(|node| Address::parse(node.trim()).map_err(config)).collect()
}

/// The password that the URL does not have: of `--password-file`, `RLOCK_PASSWORD`, `REDISCLI_AUTH`, in that order.
fn password(file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    if let Some(file) = file {
        return read_password(file).map(Some);
    }
    for variable in ["RLOCK_PASSWORD", "REDISCLI_AUTH"] {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            let text = value.into_string().map_err(|_| config(format!("{variable} is not UTF-8")))?;
            return Ok(Some(Secret::new(text)));
        }
    }
    Ok(None)
}

fn read_password(path: &Path) -> Result<Secret, Failure> {
    let shown = escape::text(&path.to_string_lossy());
    let fail = |why: &dyn std::fmt::Display| config(format!("--password-file {shown}: {why}"));
    let (file, there) = input::open(path).map_err(|e| fail(&e))?;
    let user = Uid::effective().as_raw();
    if there.uid() != user && there.uid() != 0 {
        return Err(fail(&format!(
            "it belongs to uid {}; run chown, so that it is uid {user}'s or root's",
            there.uid()
        )));
    }
    if there.mode() & 0o077 != 0 {
        return Err(fail(&format!("others may read it (mode {:03o}); run chmod 600", there.mode() & 0o777)));
    }
    let mut text = String::new();
    file.take(LONGEST_PASSWORD).read_to_string(&mut text).map_err(|e| fail(&e))?;
    match text.lines().next() {
        None | Some("") => Err(fail(&"its first line is empty")),
        Some(line) => Ok(Secret::new(line)),
    }
}

/// What the command is told, so that an rlock inside it needs no flags. Never a password that it did not have before:
/// an address that was typed is passed on without it, one from the environment is there already.
fn environment(args: &LockArgs, sources: &Sources) -> Vec<(&'static str, OsString)> {
    let mut set = vec![
        ("RLOCK_KEY", OsString::from(&args.key)),
        ("RLOCK_TTL", duration::show(args.ttl).into()),
        ("RLOCK_PREFIX", OsString::from(&args.nodes.prefix)),
    ];
    if sources.typed("node") || !sources.given("node") {
        // An address that cannot be read ends the run before there is a command.
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

/// The command's file name, which is all of it that is stored: arguments may hold secrets, and so may an address that was
/// taken for a command.
pub fn file_name(command: &OsStr) -> String {
    let command = secret::without_userinfo(&command.to_string_lossy());
    Path::new(&command).file_name().map_or_else(|| command.clone(), |name| name.to_string_lossy().into_owned())
}
