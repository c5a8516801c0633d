//! What is meant: flags, environment and files, completed and checked, before anything is sent to anybody.

pub mod held;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::cli::{LockArgs, NodeArgs, OutputArgs, RunArgs, Sources};
use crate::escape;
use crate::exit::{Failure, Outcome};
use crate::job::policy;
use crate::lock::details::{LONGEST_NOTE, encoded_length};
use crate::lock::duration;
use crate::lock::key::Key;
use crate::lock::queue::Order;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule::{Schedule, Wishes};
use crate::lock::token::Token;
use crate::node::address::{Address, Endpoint, Secret, Server};
use crate::node::link::Access;
use crate::node::tls::Trust;
use crate::report::Reporter;

/// The longest first line of a `--password-file` that is read.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// The most nodes that are accepted.
const MOST_NODES: usize = 9;

/// All that `rlock run` needs to know.
pub struct RunSettings {
    /// The lock.
    pub lock: LockSettings,
    /// What is to happen to the command, and when.
    pub policy: policy::Wishes,
    /// The command, at least one word.
    pub argv: Vec<OsString>,
    /// Variables for the command, beside those that name the grant.
    pub environment: Vec<(&'static str, OsString)>,
}

/// All that concerns the lock.
pub struct LockSettings {
    /// The lock.
    pub key: Key,
    /// Where it lives.
    pub place: Place,
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
    /// The lock of this name that an rlock above us holds, if its variables tell the truth.
    pub outer: Option<Token>,
    /// Whether nobody chose the node: then an unreachable one is perhaps not meant at all.
    pub node_is_default: bool,
}

/// The nodes, ready to be opened.
pub enum Place {
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
        let wishes = Wishes {
            ttl: args.lock.ttl,
            drift: args.lock.drift,
            node_timeout: args.lock.nodes.node_timeout,
            kill_after: args.kill_after,
        };
        let lock = LockSettings::new(args.lock, wishes, &args.output, sources)?;
        let words = match args.shell {
            Some(string) => vec!["sh".into(), "-c".into(), string],
            None => args.argv,
        };
        if words.first().is_none_or(|command| command.is_empty()) {
            return Err(usage("the command's name is empty"));
        }
        let policy = policy::Wishes {
            schedule: lock.schedule,
            on_lost: args.on_lost,
            first_signal: args.signal,
            max_run: args.max_run.filter(|span| !span.is_zero()),
            contain: args.contain,
        };
        Ok(Self { lock, policy, argv: words, environment })
    }
}

impl LockSettings {
    /// Checks what was typed.
    pub fn new(args: LockArgs, wishes: Wishes, output: &OutputArgs, sources: &Sources) -> Result<Self, Failure> {
        let key = Key::new(&args.nodes.prefix, &args.key).map_err(usage)?;
        let schedule = Schedule::new(wishes).map_err(|unfit| usage(unfit.to_string()))?;
        if args.note.as_deref().is_some_and(|note| encoded_length(note) > LONGEST_NOTE) {
            return Err(usage(format!("--note is too long: {LONGEST_NOTE} bytes are stored")));
        }
        let place = place(&args.nodes)?;
        let outer = outer(&args);
        let report = Reporter { key: key.clone(), log: output.log, quiet: output.quiet, verbose: output.verbose };
        Ok(Self {
            key,
            place,
            restart_guard: args.restart_guard,
            schedule,
            wait: wait(&args, sources)?,
            order: args.order,
            busy_code: args.busy_code,
            note: args.note,
            report,
            outer,
            node_is_default: !sources.given("node"),
        })
    }
}

/// The lock that the command we are part of runs under, if it is the one that is asked for. To be checked with the nodes.
fn outer(args: &LockArgs) -> Option<Token> {
    let variable = |name| std::env::var(name).ok();
    let same = variable("RLOCK_KEY")? == args.key && variable("RLOCK_PREFIX").unwrap_or_default() == args.nodes.prefix;
    let token = variable("RLOCK_TOKEN")?.parse().ok()?;
    same.then_some(token)
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

fn place(args: &NodeArgs) -> Result<Place, Failure> {
    let mut servers: Vec<Server> = Vec::new();
    for address in addresses(args)? {
        match address {
            Address::Local(dir) if args.node.len() == 1 => return Ok(Place::Local(dir)),
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
    Ok(Place::Servers(servers.into_iter().map(access).collect()))
}

fn addresses(args: &NodeArgs) -> Result<Vec<Address>, Failure> {
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
    // O_NONBLOCK: a FIFO without a writer would keep us from ever saying so.
    let file =
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(|e| fail(&e))?;
    let there = file.metadata().map_err(|e| fail(&e))?;
    if !there.is_file() {
        return Err(fail(&"it is not a file"));
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

/// The command's file name, which is all of it that is stored: arguments may hold secrets.
pub fn file_name(command: &OsStr) -> String {
    Path::new(command).file_name().unwrap_or(command).to_string_lossy().into_owned()
}
