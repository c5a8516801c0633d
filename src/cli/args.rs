//! The options that subcommands share, and those of `run`: clap's types and nothing else.
//!
//! A doc comment is an option's help: its first paragraph is all that `-h` shows.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use nix::sys::signal::Signal;
use rustls::pki_types::ServerName;

use super::values::{SignalName, rate, restart_guard, server_name, slots, some_time};
use crate::exit;
use crate::job::policy::OnLost;
use crate::lock::mode::Mode;
use crate::lock::restart::RestartGuard;
use crate::lock::schedule;
use crate::report::{LogMode, ProgressMode};
use crate::store::redis::Form;
use crate::text::duration;

// The texts are for --help, where Markdown would be noise.
#[allow(clippy::doc_markdown)]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub struct NodeArgs {
    /// Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS),
    /// redis+unix:///path, etcd://host,host,host[/prefix],
    /// zookeeper://host,host,host[/chroot], postgresql://host,host[/db], mysql://host,host/db, local
    ///
    /// redis-sentinel://host,host,host/service[/db] is the server that a majority of these
    /// sentinels names, with TLS rediss-sentinel://. redis-cluster://host,host is the primary of
    /// the lock's slot in the cluster of these members, with TLS rediss-cluster://.
    /// redis+unix:///path[?db=N] is a Unix socket. etcd://[user[:password]@]host,host[/prefix] is
    /// an etcd cluster, with TLS etcds://. zookeeper://[user:password@]host,host[/chroot] is a
    /// ZooKeeper ensemble, with TLS zookeepers://. postgresql://[user[:password]@]host,host[/db] is
    /// ShedLock's table in PostgreSQL, with TLS ?sslmode=verify-full.
    /// mysql://[user[:password]@]host,host/db is the same in MySQL or MariaDB, with TLS
    /// ?ssl-mode=VERIFY_IDENTITY. local is flock on this machine, local:/dir another directory for
    /// it, local:/dir?shared one for several users who trust each other.
    /// Repeated or separated by commas: a majority of 2 to 9 independent servers holds the lock
    /// (Redlock). ps shows a password in a URL: prefer RLOCK_PASSWORD, REDISCLI_AUTH or
    /// --password-file.
    #[arg(
        long,
        alias = "nodes",
        value_name = "URL",
        env = "RLOCK_NODE",
        value_delimiter = ','
    )]
    pub node: Vec<String>,

    /// Text put before every key
    #[arg(
        long,
        value_name = "STR",
        env = "RLOCK_PREFIX",
        default_value = "",
        hide_short_help = true
    )]
    pub prefix: String,

    /// Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to
    /// 1s]
    ///
    /// Without a TTL the default is 1s.
    #[arg(long, value_name = "DUR", env = "RLOCK_NODE_TIMEOUT", value_parser = some_time, hide_short_help = true)]
    pub node_timeout: Option<Duration>,

    /// Trust this issuer (a PEM file) for TLS instead of the system's
    #[arg(long, value_name = "FILE", env = "RLOCK_CA", hide_short_help = true)]
    pub ca: Option<PathBuf>,

    /// Show this certificate (a PEM file with its chain) to servers that ask for one; needs
    /// --cert-key
    #[arg(long, value_name = "FILE", env = "RLOCK_CERT", hide_short_help = true)]
    pub cert: Option<PathBuf>,

    /// The private key of --cert (a PEM file), which others must not be able to read
    #[arg(
        long,
        value_name = "FILE",
        env = "RLOCK_CERT_KEY",
        hide_short_help = true
    )]
    pub cert_key: Option<PathBuf>,

    /// Name for which the certificate of each server must be valid, instead of the host of its
    /// address
    ///
    /// Sentinels name servers by IP addresses, for which few certificates are valid. The name is
    /// sent as SNI too.
    #[arg(long, value_name = "NAME", env = "RLOCK_TLS_SERVER_NAME", value_parser = server_name, hide_short_help = true)]
    pub tls_server_name: Option<ServerName<'static>>,

    /// Read the password from the first line of this file, which others must not be able to read
    ///
    /// The file is read again when a server refuses the password.
    #[arg(
        long,
        value_name = "FILE",
        env = "RLOCK_PASSWORD_FILE",
        hide_short_help = true
    )]
    pub password_file: Option<PathBuf>,

    /// Read the password for the sentinels from the first line of this file
    ///
    /// Sentinels are not sent the servers' password. Without this option theirs is
    /// RLOCK_SENTINEL_PASSWORD.
    #[arg(
        long,
        value_name = "FILE",
        env = "RLOCK_SENTINEL_PASSWORD_FILE",
        hide_short_help = true
    )]
    pub sentinel_password_file: Option<PathBuf>,

    #[command(flatten)]
    pub files: FileArgs,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Configuration")]
pub struct FileArgs {
    /// Read this configuration file alone; none: read no file
    ///
    /// Without it, /etc/rlock/config.toml is read, then rlock/config.toml in $XDG_CONFIG_HOME or
    /// ~/.config.
    #[arg(
        long,
        value_name = "FILE|none",
        env = "RLOCK_CONFIG",
        hide_short_help = true
    )]
    pub config: Option<PathBuf>,
}

#[allow(
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    reason = "each is an option"
)]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lock")]
pub struct LockArgs {
    /// The lock's name; where run names several, it holds all of them together
    ///
    /// It is the key in Redis, the beginning of keys in etcd, the znode in ZooKeeper, or the row in a
    /// database. So other clients that use it are excluded too. A comma is part of the name. At most
    /// 64 locks are held together. They are taken in the order of their names, so that no clients
    /// wait for each other.
    #[arg(short, long = "key", value_name = "NAME", required = true)]
    pub keys: Vec<String>,

    /// Share the lock with other runs that give -s: no other kind of holder beside them
    ///
    /// A run that waits for the lock in another way keeps later ones out, so that it gets its turn.
    #[arg(short, long, env = "RLOCK_SHARED")]
    pub shared: bool,

    /// Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]
    #[arg(short = 'x', long, env = "RLOCK_EXCLUSIVE", hide_short_help = true)]
    pub exclusive: bool,

    /// Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number
    ///
    /// All runs must give the same K: another one waits until all of these have ended. --slots 1 is
    /// an exclusive lock. Of the free slots each run gets the first one behind a random number.
    #[arg(long, value_name = "K", env = "RLOCK_SLOTS", value_parser = slots)]
    pub slots: Option<Mode>,

    /// Do not wait: the same as --wait 0
    #[arg(short, long, env = "RLOCK_NO_WAIT")]
    pub no_wait: bool,

    /// Give up waiting after this; without it, wait for ever, as flock does
    ///
    /// Bare seconds are taken too.
    #[arg(short, long, value_name = "DUR", env = "RLOCK_WAIT", value_parser = duration::parse_or_seconds)]
    pub wait: Option<Duration>,

    /// Exit code when the lock is busy, 0 to 255
    #[arg(short = 'E', long, value_name = "N", env = "RLOCK_BUSY_CODE", default_value_t = exit::BUSY)]
    pub busy_code: u8,

    /// Text for those who ask which client holds the lock (a CI job's URL)
    #[arg(long, value_name = "TEXT", env = "RLOCK_NOTE")]
    pub note: Option<OsString>,

    /// Lease length: the lock is free this long after its holder's last renewal at the latest
    #[arg(long, value_name = "DUR", env = "RLOCK_TTL", default_value = "30s", value_parser = duration::parse)]
    pub ttl: Duration,

    /// Keep the lock for this long after a loss: what the command had asked others to do may still
    /// go on
    ///
    /// Servers keep the lock for the TTL and this time after the last renewal. If the lock was lost
    /// or broken, it stays for this time once the command is dead. A command that ends by itself
    /// releases it at once.
    #[arg(long, value_name = "DUR", env = "RLOCK_LOCK_DELAY", value_parser = duration::parse, hide_short_help = true)]
    pub lock_delay: Option<Duration>,

    /// Form of the lock in Redis: redisson is one that Redisson's lock() respects and that wakes its
    /// waiters
    ///
    /// With the form rlock, which SET NX clients respect, Redisson's lock() fails with WRONGTYPE.
    /// Give all runs of a lock the same form. redisson is for exclusive locks, without --supersede,
    /// --hold-at-least, --lock-delay and --once.
    #[arg(
        id = "as",
        long = "as",
        value_name = "FORM",
        env = "RLOCK_AS",
        default_value = "rlock"
    )]
    #[arg(hide_short_help = true)]
    pub form: Form,

    /// End the waiters with --supersede that came before: they exit with 76. The holder is left
    /// alone
    ///
    /// So of many runs that wait, as deploys do, only the last one that came goes on.
    #[arg(long, env = "RLOCK_SUPERSEDE")]
    pub supersede: bool,

    /// Clock-rate error allowed for, as a fraction of the TTL
    #[arg(long, value_name = "RATE", env = "RLOCK_DRIFT", default_value_t = schedule::DRIFT, value_parser = rate)]
    #[arg(hide_short_help = true)]
    pub drift: f64,

    /// Ignore a Redis that restarted more recently than this: it may have forgotten locks
    ///
    /// auto: off with one node; with several 30s, or the longest TTL met for the key if that is
    /// more, and so --lock-delay, --hold-at-least and --once. Where hosts use different TTLs for a
    /// key, give all of them the longest.
    #[arg(
        long,
        value_name = "auto|off|DUR",
        env = "RLOCK_RESTART_GUARD",
        default_value = "auto"
    )]
    #[arg(value_parser = restart_guard, hide_short_help = true)]
    pub restart_guard: RestartGuard,

    #[command(flatten)]
    pub copies: CopyArgs,

    #[command(flatten)]
    pub nodes: NodeArgs,
}

#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Lock")]
pub struct CopyArgs {
    /// Count a grant or a renewal only once N replicas of the Redis have it
    ///
    /// A server answers before its replicas have the write, so a failover can lose a lock. Give the
    /// number of all replicas that may become the primary. The command is stopped if they stay
    /// away, as it is if the server does.
    #[arg(
        long,
        value_name = "N",
        env = "RLOCK_WAIT_REPLICAS",
        hide_short_help = true
    )]
    pub wait_replicas: Option<u16>,

    /// Count it only once it is on the disks of the server and of these replicas (Redis 7.2;
    /// appendonly yes)
    ///
    /// Without --wait-replicas, on the server's disk. With appendfsync everysec it takes a second
    /// each time, and the node timeout is 2.5s unless given.
    #[arg(long, env = "RLOCK_FSYNC", hide_short_help = true)]
    pub fsync: bool,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Print nothing when busy or waiting; failures still get their line
    #[arg(short, long, env = "RLOCK_QUIET")]
    pub quiet: bool,

    /// Print each step on stderr
    #[arg(short, long, env = "RLOCK_VERBOSE", hide_short_help = true)]
    pub verbose: bool,

    /// Form of rlock's lines: text, json, which prints each step too, or journal: text with its
    /// level, <4>, for systemd's journal
    ///
    /// auto: journal if systemd connected stderr with it (JOURNAL_STREAM), else text.
    #[arg(
        long,
        value_name = "auto|text|json|journal",
        env = "RLOCK_LOG",
        default_value = "auto"
    )]
    #[arg(hide_possible_values = true, hide_short_help = true)]
    pub log: LogMode,

    /// How to tell what takes longer than a second: one line that is redrawn, or plain lines
    ///
    /// auto: the line on a terminal; plain lines in CI and with TERM=dumb; else nothing. -q:
    /// nothing.
    #[arg(
        long,
        value_name = "auto|line|plain|none",
        env = "RLOCK_PROGRESS",
        default_value = "auto"
    )]
    #[arg(hide_possible_values = true, hide_short_help = true)]
    pub progress: ProgressMode,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "rlock run [OPTIONS] --key NAME [--] CMD [ARGS]...\n       rlock run [OPTIONS] --key NAME -c STRING"
)]
pub struct RunArgs {
    #[command(flatten)]
    pub lock: LockArgs,

    /// Run sh -c STRING instead of CMD
    #[arg(
        short = 'c',
        value_name = "STRING",
        conflicts_with = "argv",
        help_heading = "Command"
    )]
    #[arg(value_hint = ValueHint::CommandString)]
    pub shell: Option<OsString>,

    /// Name of the command for other clients [default: the file name of its first word]
    #[arg(
        long,
        value_name = "TEXT",
        help_heading = "Command",
        hide_short_help = true
    )]
    pub name: Option<String>,

    /// Keep the lock for at least this long after the command's start, though it ends sooner; rlock
    /// does not wait for that
    ///
    /// A job of 50ms that cron starts on two hosts runs once, though their clocks differ. The lock
    /// is then parked: waiters get it when the time is over, and break deletes it at once.
    #[arg(long, value_name = "DUR", env = "RLOCK_HOLD_AT_LEAST", value_parser = duration::parse)]
    #[arg(help_heading = "Command")]
    pub hold_at_least: Option<Duration>,

    /// Run the command once: for this long after it has exited with 0, others exit with 0 and do
    /// not run it
    ///
    /// For a migration that each of 20 hosts starts: one runs it, the others wait for that. With -v
    /// a run says that it skipped the command. A failure counts for nothing. The next break of the
    /// free lock ends the time. Give all runs the same time: a success is remembered for that of
    /// its own run, and for 7 days at least.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, help_heading = "Command")]
    pub once: Option<Duration>,

    /// Time between the first signal and SIGKILL [default: a sixth of the TTL, at most 5s]
    ///
    /// Cut to what fits into the TTL when the lock is being lost. Bare seconds are taken too.
    #[arg(long, value_name = "DUR", env = "RLOCK_KILL_AFTER", value_parser = duration::parse_or_seconds)]
    #[arg(help_heading = "Command", hide_short_help = true)]
    pub kill_after: Option<Duration>,

    /// Stop the command after this, as timeout(1) does: exit 124, even if SIGKILL was needed
    ///
    /// Bare seconds are taken too; 0 is for ever.
    #[arg(long, value_name = "DUR", env = "RLOCK_MAX_RUN", value_parser = duration::parse_or_seconds)]
    #[arg(help_heading = "Command", hide_short_help = true)]
    pub max_run: Option<Duration>,

    /// When the lock is lost: kill the command, or warn and let it go on, perhaps beside another
    #[arg(
        long,
        value_name = "WHAT",
        env = "RLOCK_ON_LOST",
        default_value = "kill"
    )]
    #[arg(help_heading = "Command", hide_short_help = true)]
    pub on_lost: OnLost,

    /// First signal to the command when the lock is being lost or --max-run is over
    #[arg(long, value_name = "SIG", env = "RLOCK_SIGNAL", default_value = "TERM", value_parser = SignalName)]
    #[arg(
        help_heading = "Command",
        hide_short_help = true,
        hide_possible_values = true
    )]
    pub signal: Signal,

    /// End every process that the command started, setsid or not, before the lock is released
    ///
    /// When the command ends, the other processes get the first signal and, after --kill-after,
    /// SIGKILL.
    #[arg(
        long,
        env = "RLOCK_CONTAIN",
        help_heading = "Command",
        hide_short_help = true
    )]
    pub contain: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    /// Write metrics to this directory, for the textfile collector of Prometheus' node_exporter
    ///
    /// A file that cannot be written is one warning and changes nothing else.
    #[arg(
        long,
        value_name = "DIR",
        env = "RLOCK_METRICS_DIR",
        help_heading = "Output",
        hide_short_help = true
    )]
    #[arg(value_hint = ValueHint::DirPath)]
    pub metrics_dir: Option<PathBuf>,

    /// The command and its arguments, passed on unchanged
    #[arg(
        value_name = "CMD",
        trailing_var_arg = true,
        required_unless_present = "shell",
        help_heading = "Command"
    )]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub argv: Vec<OsString>,
}

impl RunArgs {
    /// Returns the command and its arguments.
    pub fn words(&self) -> Vec<OsString> {
        match &self.shell {
            Some(string) => vec!["sh".into(), "-c".into(), string.clone()],
            None => self.argv.clone(),
        }
    }
}
