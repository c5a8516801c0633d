//! The command line: clap's types and nothing else. What the words mean together is `settings`' business.

pub mod subcommands;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use nix::sys::signal::Signal;

use crate::exit::{self, Failure, Outcome};
use crate::job::event::OnLost;
use crate::lock::queue::Order;
use crate::lock::restart::{self, RestartGuard};
use crate::report::Log;
use crate::secret;
use crate::text::duration;
use subcommands::{AcquireArgs, BreakArgs, CheckArgs, DoctorArgs, InspectArgs, ReleaseArgs, RenewArgs};

/// Runs a command under a lock that no other host can hold at the same time.
///
/// rlock takes the lock in Redis (or with flock(2) on this machine, --node local), runs the command, renews the lease
/// while it runs and gives it back when it ends. While the command can still run, nobody else holds the lock; if that
/// cannot be kept true, the command is stopped first.
#[derive(Parser, Debug)]
#[command(name = "rlock", version)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Hold the lock around a command
    ///
    /// Takes the lock, runs CMD in a process group of its own, renews the lease every third of the TTL, and gives the
    /// lock back when CMD has ended. HUP, INT, QUIT, TERM, USR1, USR2 and WINCH sent to rlock reach the whole group, and
    /// so do ALRM, VTALRM, PROF, XCPU, IO and PWR. The terminal is given to the group when it asks for it, and Ctrl-Z stops
    /// both.
    ///
    /// If the lease cannot be renewed, the group is sent --signal and, after --kill-after, SIGKILL, so that it is dead
    /// before the lease ends: a --kill-after that does not fit into the TTL is cut for this. Then rlock exits with 79. Groups that rlocks nested in CMD made die with it. Only when all
    /// of them are dead is the lock given back.
    ///
    /// A nested rlock run of a lock that CMD runs under, directly or further up, starts at once under that lock. It dies
    /// with the rlock that holds the lock. When CMD has ended, that rlock keeps the lock until its nested runs have ended;
    /// HUP, INT, QUIT or TERM ends them.
    ///
    /// A small process, rlock-guard, watches rlock: if rlock is killed, it kills the group at once and, when no process of it
    /// is left, gives the lock back; if rlock is stopped, it kills the group before the lease ends. A guard that is killed or
    /// stopped is replaced. If both are killed at once, the kernel kills
    /// CMD's first process (PR_SET_PDEATHSIG), but not what that had started.
    ///
    /// What CMD leaves in the background goes on without the lock when CMD has ended by itself. With --contain it does
    /// not: rlock adopts CMD's orphans (PR_SET_CHILD_SUBREAPER, no privilege needed) and ends whatever is below itself in
    /// /proc before it gives the lock back; if rlock was killed, its guard ends whatever has the lock's RLOCK_TOKEN in
    /// its environment.
    ///
    /// A command that becomes another user (sudo, setuid) can be signalled only if rlock's user may do that; else rlock
    /// says so and keeps the lock while it can.
    ///
    /// No lock can cover a machine that stands still past the end of the lease, or a guard and an rlock that are both
    /// stopped: CMD may run for some milliseconds when it wakes. Storage that refuses any RLOCK_FENCE below the highest it
    /// has seen can.
    #[allow(clippy::doc_markdown)]
    Run(Box<RunArgs>),
    /// Take the lock and exit, printing the token
    ///
    /// For work of several steps, as CI jobs are, that no single command could be put around. Nobody renews the lock and
    /// nobody stops the work when it ends: it lasts for --ttl, until rlock release, or until that long after the last rlock
    /// renew. Before a step that must not run without the lock, ask rlock check.
    #[allow(clippy::doc_markdown)]
    Acquire(Box<AcquireArgs>),
    /// Extend a lock, if it is still the caller's
    ///
    /// Compare and extend, on a majority of the nodes. Exit 1, naming the holder, if the token is not the holder's.
    Renew(Box<RenewArgs>),
    /// Give a lock back, if it is still the caller's
    ///
    /// Compare and delete. Exit 1, naming the holder, if the token is not the holder's; nothing of anybody else's is touched.
    Release(Box<ReleaseArgs>),
    /// Tell whether the lock is still the caller's
    ///
    /// Exit 0 if a majority of the nodes says so, 1, naming the holder, if it is not, 69 if no majority answers. Inside rlock
    /// run it needs no flags. The answer is good for the moment in which it was given; --for asks that it be good for longer.
    Check(Box<CheckArgs>),
    /// Show who holds which lock
    ///
    /// Each row tells the holder, since when, how long the lock lasts unless renewed, its fence, and how many of the nodes
    /// have it as the holder's. Below stand those who wait, in their order. What is no lock of rlock's is shown as foreign.
    /// Without a name, all locks that an rlock has used within a week and that are held are shown; they are found with SCAN,
    /// which does not stop the servers.
    ///
    /// Exit 0 if it could be told. For a single KEY: 0 if it is held, 1 if it is free. 69 if no majority of the nodes answers.
    Inspect(Box<InspectArgs>),
    /// Take a lock away from its holder
    ///
    /// Shows the holder and asks, or takes --yes. A lock that rlock run holds is not deleted: a tombstone takes its place and
    /// keeps others out, the holder finds it at its next renewal (a third of its TTL at most), stops its command as after
    /// any loss (exit 79) and lets go. rlock break waits for that, for as long as the lease would have lasted. A lock that was
    /// taken with acquire has no command to be stopped and is deleted at once, and so is any with --now: then its command
    /// may still run, until the next renewal, beside that of the next holder. In any case only the lock that was shown is
    /// broken, never its successor.
    ///
    /// Exit 0 if it is broken, 1 if there is nothing to break, or the holder has changed or has not let go.
    Break(Box<BreakArgs>),
    /// Tell whether the nodes are fit to hold locks
    ///
    /// Asks each node what it is and what it would do with a lock: role, version, round trip, clock, uptime, persistence,
    /// eviction, replicas, and which of the rights that rlock needs it refuses; and all of them whether they are independent.
    /// Changes nothing. Says what is wrong, what follows from it and what to do, and prints the ACL SETUSER line that grants
    /// exactly what rlock needs.
    ///
    /// Exit 0 if the nodes are fit, 1 if there is something to know (a policy that evicts, no persistence, a clock that is
    /// wrong, a restart a moment ago, a replica that may lose writes, a minority that is away, refuses us or sets no key), and
    /// 69, 77 or 78 if they are not fit: no majority, refused, or wrongly set up.
    Doctor(Box<DoctorArgs>),
    /// Print the completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a man page: rlock's, or a subcommand's
    #[command(hide = true)]
    Man {
        /// The subcommand
        subcommand: Option<String>,
    },
}

/// Options that concern the nodes.
// The text is for --help, where Markdown would be noise.
#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
#[command(next_help_heading = "Nodes")]
pub struct NodeArgs {
    /// Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N],
    /// or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2
    /// to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or
    /// --password-file
    #[arg(long, alias = "nodes", value_name = "URL", env = "RLOCK_NODE", default_value = "redis://127.0.0.1:6379")]
    #[arg(value_delimiter = ',')]
    pub node: Vec<String>,

    /// Put before every key
    #[arg(long, value_name = "STR", env = "RLOCK_PREFIX", default_value = "")]
    pub prefix: String,

    /// Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least
    /// 50ms, at most 1s; without a TTL 1s]
    #[arg(long, value_name = "DUR", env = "RLOCK_NODE_TIMEOUT", value_parser = duration::parse, allow_negative_numbers = true)]
    pub node_timeout: Option<Duration>,

    /// Trust this issuer (a PEM file) for rediss:// instead of the system's
    #[arg(long, value_name = "FILE", env = "RLOCK_CA")]
    pub ca: Option<PathBuf>,

    /// Read the password from the first line of this file, which must not be readable by others
    #[arg(long, value_name = "FILE", env = "RLOCK_PASSWORD_FILE")]
    pub password_file: Option<PathBuf>,
}

/// Options that concern the lock.
// The text is for --help, where Markdown would be noise.
#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
pub struct LockArgs {
    /// The lock's name; the Redis key is exactly this, so every other SET NX client is excluded too
    #[arg(short, long, value_name = "NAME")]
    pub key: String,

    /// Where it lives.
    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Lease length: the lock passes on this long after its holder's last renewal, at the latest
    #[arg(long, value_name = "DUR", env = "RLOCK_TTL", default_value = "30s", value_parser = duration::parse, allow_negative_numbers = true)]
    pub ttl: Duration,

    /// Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does
    #[arg(short, long, value_name = "DUR", env = "RLOCK_WAIT", value_parser = duration::parse_or_seconds, allow_negative_numbers = true)]
    pub wait: Option<Duration>,

    /// Do not wait: the same as --wait 0
    #[arg(short, long, env = "RLOCK_NO_WAIT", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub no_wait: bool,

    /// Exit code when the lock is busy, 0 to 255
    #[arg(short = 'E', long, value_name = "N", env = "RLOCK_BUSY_CODE", default_value_t = exit::BUSY, allow_negative_numbers = true)]
    pub busy_code: u8,

    /// Who of those who wait has the lock next
    #[arg(long, value_name = "WHO", env = "RLOCK_ORDER", default_value = "oldest")]
    pub order: Order,

    /// Clock-rate error allowed for, as a fraction of the TTL
    #[arg(long, value_name = "RATE", env = "RLOCK_DRIFT", default_value = "0.01", value_parser = rate, allow_negative_numbers = true)]
    pub drift: f64,

    /// A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or
    /// the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different
    /// TTLs for a key, give all of them the longest
    #[arg(long, value_name = "auto|off|DUR", env = "RLOCK_RESTART_GUARD", default_value = "auto", value_parser = restart::parse)]
    #[arg(allow_negative_numbers = true)]
    pub restart_guard: RestartGuard,

    /// Shown to those who ask who holds the lock (a CI job's URL)
    #[arg(long, value_name = "TEXT", env = "RLOCK_NOTE")]
    pub note: Option<OsString>,
}

/// Options that concern what rlock prints.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// No line for busy or waiting; failures still get theirs
    #[arg(short, long, env = "RLOCK_QUIET", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub quiet: bool,

    /// Tell each step on stderr
    #[arg(short, long, env = "RLOCK_VERBOSE", value_parser = yes_or_no, action = ArgAction::SetTrue)]
    pub verbose: bool,

    /// How lines on stderr look; json tells each step as well
    #[arg(long, value_name = "FORMAT", env = "RLOCK_LOG", default_value = "text", hide_possible_values = true)]
    pub log: Log,
}

/// `rlock run`.
#[derive(Args, Debug)]
#[command(
    override_usage = "rlock run [OPTIONS] --key NAME [--] CMD [ARGS]...\n       rlock run [OPTIONS] --key NAME -c STRING"
)]
pub struct RunArgs {
    /// The lock.
    #[command(flatten)]
    pub lock: LockArgs,

    /// Time between the first signal and SIGKILL, cut to what fits into the TTL when the lock is being lost; bare seconds
    /// are taken too [default: a sixth of the TTL, at most 5s]
    #[arg(long, value_name = "DUR", env = "RLOCK_KILL_AFTER", value_parser = duration::parse_or_seconds, allow_negative_numbers = true)]
    #[arg(help_heading = "Command")]
    pub kill_after: Option<Duration>,

    /// Stop the command after this, as timeout(1) does: exit 124, also when SIGKILL was needed; bare seconds are taken
    /// too, 0 is for ever
    #[arg(long, value_name = "DUR", env = "RLOCK_MAX_RUN", value_parser = duration::parse_or_seconds)]
    #[arg(help_heading = "Command", allow_negative_numbers = true)]
    pub max_run: Option<Duration>,

    /// When the lock is lost: kill the command, or warn and let it go on (then somebody else may run it too)
    #[arg(long, value_name = "WHAT", env = "RLOCK_ON_LOST", default_value = "kill", help_heading = "Command")]
    pub on_lost: OnLost,

    /// What to send first when the lock is being lost or time is up
    #[arg(long, value_name = "SIG", env = "RLOCK_SIGNAL", default_value = "TERM", value_parser = signal)]
    #[arg(help_heading = "Command")]
    pub signal: Signal,

    /// Nothing that the command started outlives the lock, setsid or not: when the command ends, the rest gets the first
    /// signal and, after --kill-after, SIGKILL
    #[arg(long, env = "RLOCK_CONTAIN", value_parser = yes_or_no, action = ArgAction::SetTrue, help_heading = "Command")]
    pub contain: bool,

    /// Run sh -c STRING instead of CMD
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "argv", help_heading = "Command")]
    pub shell: Option<OsString>,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,

    /// The command and its arguments, passed on as they are
    #[arg(value_name = "CMD", trailing_var_arg = true, required_unless_present = "shell")]
    pub argv: Vec<OsString>,
}

/// Environment variables that have no flag, in the words of `--help`, the man page and `docs/reference/`.
pub const VARIABLES: &[(&str, &str)] = &[
    ("RLOCK_PASSWORD", "password for the node, unless its URL or --password-file has one"),
    ("REDISCLI_AUTH", "the same, as redis-cli reads it; RLOCK_PASSWORD comes first"),
    ("RLOCK_KEY", "set for the command: the key as typed, without the prefix"),
    ("RLOCK_TOKEN", "set for the command: what proves that the lock is its own"),
    ("RLOCK_FENCE", "set for the command: a number that strictly increases from holder to holder"),
    ("RLOCK_HELD", "set for the command: TOKEN:FENCE of each lock that it runs under, outermost first, with commas"),
];

fn after_help() -> String {
    let table = |title: &str, rows: &[(&str, &str)]| {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().fold(format!("{title}:\n"), |text, (name, what)| text + &format!("  {name:width$}  {what}\n"))
    };
    format!("{}\n{}", table("Exit codes", exit::TABLE), table("Environment", VARIABLES)).trim_end().to_owned()
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err("write 1 or 0, true or false, yes or no".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=0.5).contains(&rate) => Ok(rate),
        _ => Err("it is a fraction from 0 to 0.5, like 0.01".to_owned()),
    }
}

fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let named = if upper.starts_with("SIG") { upper.clone() } else { format!("SIG{upper}") };
    named
        .parse()
        .ok()
        .or_else(|| upper.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok()))
        .ok_or_else(|| "it is a signal's name or number, like TERM or 15".to_owned())
}

/// clap's description of the command line.
pub fn definition() -> clap::Command {
    without_empty_variables(Cli::command())
}

/// The same with the one subcommand that `args` name, unless they may ask for help: a tenth of a millisecond goes into
/// describing the others, which a lock around a short command would feel.
fn definition_for(args: &[OsString]) -> clap::Command {
    let about_help = |arg: &OsString| arg == "--help" || arg == "-h";
    let named = args.get(1).and_then(|word| word.to_str()).filter(|_| !args.iter().any(about_help));
    match named.and_then(subcommand) {
        Some(only) => without_empty_variables(clap::Command::new("rlock").subcommand(only)),
        None => definition(),
    }
}

/// Gives a subcommand its options.
type Augment = fn(clap::Command) -> clap::Command;

/// What each subcommand takes.
const SUBCOMMANDS: [(&str, Augment); 8] = [
    ("run", RunArgs::augment_args),
    ("acquire", AcquireArgs::augment_args),
    ("renew", RenewArgs::augment_args),
    ("release", ReleaseArgs::augment_args),
    ("check", CheckArgs::augment_args),
    ("inspect", InspectArgs::augment_args),
    ("break", BreakArgs::augment_args),
    ("doctor", DoctorArgs::augment_args),
];

/// A subcommand as far as it concerns what is typed, without the texts about it.
fn subcommand(name: &str) -> Option<clap::Command> {
    let (name, augment) = SUBCOMMANDS.into_iter().find(|(known, _)| *known == name)?;
    Some(augment(clap::Command::new(name)))
}

/// Variables that are set but empty are left out: CI systems set an unset parameter to nothing.
fn without_empty_variables(definition: clap::Command) -> clap::Command {
    definition.mut_subcommands(|command| {
        command.mut_args(|arg| {
            let empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
            let arg = arg.hide_env_values(true);
            if empty { arg.env(None::<&'static str>) } else { arg }
        })
    })
}

/// What was typed, and of which options the environment spoke rather than the user.
pub struct Parsed {
    /// The words.
    pub cli: Cli,
    /// Where they came from.
    pub sources: Sources,
}

/// Where the value of an option came from.
pub struct Sources(Option<ArgMatches>);

impl Sources {
    /// Whether option `id` was typed: a flag beats the variable of another option that contradicts it.
    pub fn typed(&self, id: &str) -> bool {
        self.is(id, ValueSource::CommandLine)
    }

    /// Whether option `id` was set at all.
    pub fn given(&self, id: &str) -> bool {
        self.typed(id) || self.is(id, ValueSource::EnvVariable)
    }

    fn is(&self, id: &str, source: ValueSource) -> bool {
        self.0.as_ref().is_some_and(|matches| matches.value_source(id) == Some(source))
    }
}

/// Reads the command line; `None` if it was `--help` or `--version`, which print themselves.
pub fn parse(args: Vec<OsString>) -> anyhow::Result<Option<Parsed>> {
    let read = || {
        let mut matches = definition_for(&args).try_get_matches_from(args)?;
        let sources = Sources(matches.subcommand().map(|(_, sub)| sub.clone()));
        Ok(Some(Parsed { cli: Cli::from_arg_matches_mut(&mut matches)?, sources }))
    };
    read().or_else(|error: clap::Error| {
        let line = match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // A reader that has gone away has seen enough.
                let _ = error.print();
                if error.kind() == ErrorKind::DisplayHelp {
                    let _ = writeln!(std::io::stdout(), "\n{}", after_help());
                }
                return Ok(None);
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                "no subcommand given; try rlock run --key NAME -- CMD, or rlock --help".to_owned()
            }
            _ => one_line(&error),
        };
        Err(Failure::new(Outcome::Usage, line).into())
    })
}

/// clap's message without its usage text and without passwords, on one line.
fn one_line(error: &clap::Error) -> String {
    let text = secret::without_userinfo(&error.render().to_string());
    let words = text
        .split("\n\nUsage:")
        .next()
        .unwrap_or_default()
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    let joined = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| crate::text::escape::text(line.strip_prefix("error: ").unwrap_or(line)))
        .collect::<Vec<_>>()
        .join(" ");
    let of_variable = variable_of(error).map(|name| format!(" (from the environment: {name})")).unwrap_or_default();
    format!("{joined}{of_variable}; see rlock --help")
}

/// The variable that the value which clap complains of came from, if it looks like it.
fn variable_of(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let option = context(ContextKind::InvalidArg)?;
    let long = option.strip_prefix("--")?.split([' ', '=']).next()?;
    let name = format!("RLOCK_{}", long.to_ascii_uppercase().replace('-', "_"));
    let value = std::env::var(&name).ok()?;
    (value == context(ContextKind::InvalidValue)?).then_some(name)
}

/// `--log`, looked for before the command line is known to be sound, so that its errors are told in the right form.
pub fn log_format(args: &[OsString]) -> Log {
    let args = args.split(|arg| arg == "--").next().unwrap_or_default();
    let flag = args.iter().enumerate().find_map(|(index, arg)| match arg.to_str()?.strip_prefix("--log")? {
        "" => args.get(index + 1).cloned(),
        value => value.strip_prefix('=').map(OsString::from),
    });
    match flag.or_else(|| std::env::var_os("RLOCK_LOG")) {
        Some(value) if value == "json" => Log::Json,
        _ => Log::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<Box<RunArgs>, String> {
        let all = ["rlock", "run"].iter().chain(words).map(OsString::from).collect();
        match parse(all).map(|parsed| parsed.unwrap().cli.command) {
            Ok(Command::Run(args)) => Ok(args),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn a_subcommand_alone_reads_what_it_does_among_the_others() {
        for whole in definition().get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
            let alone =
                without_empty_variables(clap::Command::new("rlock").subcommand(subcommand(whole.get_name()).unwrap()));
            let alone = alone.find_subcommand(whole.get_name()).unwrap();
            let options = |command: &clap::Command| format!("{:?}", command.get_arguments().collect::<Vec<_>>());
            assert_eq!(options(alone), options(whole), "{}", whole.get_name());
        }
    }

    #[test]
    fn a_command_may_follow_the_options_without_dashes_and_keeps_its_own() {
        let args = run(&["-k", "job", "ls", "-l", "--key", "--", "x"]).unwrap();
        assert_eq!(args.argv, ["ls", "-l", "--key", "--", "x"]);
        let args = run(&["-k", "job", "--", "-weird", "-q"]).unwrap();
        assert_eq!((args.argv, args.output.quiet), (vec!["-weird".into(), "-q".into()], false));
    }

    #[test]
    fn a_misspelt_option_is_not_taken_for_the_command() {
        assert!(run(&["-k", "job", "--tll", "5s", "true"]).unwrap_err().contains("--tll"));
    }

    #[test]
    fn a_usage_error_is_one_line_that_names_the_flag() {
        for (words, flag) in [
            (&["true"][..], "--key"),
            (&["-k", "job"], "CMD"),
            (&["-k", "job", "-c", "x", "true"], "-c"),
            (&["-k", "job", "--ttl", "30", "true"], "--ttl"),
            (&["-k", "job", "--ttl", "5M", "true"], "--ttl"),
            (&["-k", "job", "--wait=-1", "true"], "--wait"),
            (&["-k", "job", "-E", "256", "true"], "--busy-code"),
            (&["-k", "job", "--drift", "2", "true"], "--drift"),
            (&["-k", "job", "--signal", "NOPE", "true"], "--signal"),
            (&["-k", "job", "-k", "other", "true"], "--key"),
        ] {
            let error = run(words).expect_err(&words.join(" "));
            assert!(error.contains(flag) && !error.contains('\n'), "{words:?}: {error}");
        }
    }

    #[test]
    fn signals_are_taken_by_name_and_number() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(signal(text), Ok(Signal::SIGTERM));
        }
    }
}
