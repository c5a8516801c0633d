//! The command line: rlock and its subcommands, as clap's types.

mod args;
mod help;
mod parse;
pub mod subcommands;
mod values;

use std::env;
use std::ops::Deref;

use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use args::{CopyArgs, FileArgs, LockArgs, NodeArgs, OutputArgs, RunArgs};
pub use help::{Example, VARIABLES, examples};
pub use parse::{Common, Parsed, described, log_format, long_flag, one_line, parse};
use subcommands::{
    AcquireArgs, BreakArgs, CheckArgs, ConfigArgs, DoctorArgs, HeldArgs, InspectArgs, RenewArgs,
};
use values::yes_or_no;
pub use values::{Shell, restart_guard};

/// Runs a command under a lock that no other host can hold at the same time.
///
/// rlock takes the lock in Redis, etcd, ZooKeeper, PostgreSQL, MySQL or MariaDB, or with flock(2)
/// on this machine (--node local). It runs the command, renews the lease while that runs, and
/// releases the lock when it ends. While the command can still run, no other client holds the lock.
/// If rlock cannot keep that true, it stops the command first.
#[derive(Parser, Debug)]
#[command(name = "rlock", version = crate::VERSION)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Hold the lock around a command
    ///
    /// Takes the lock, runs CMD in a process group of its own, renews the lease every third of the
    /// TTL, and releases the lock when CMD has ended. HUP, INT, QUIT, TERM, USR1, USR2 and WINCH
    /// sent to rlock reach the whole group, and so do ALRM, VTALRM, PROF, XCPU, IO and PWR. The
    /// group gets the terminal when it asks for it, and Ctrl-Z stops both.
    ///
    /// If the lease cannot be renewed, rlock sends --signal to the group and, after --kill-after,
    /// SIGKILL, so that the group is dead before the lease ends. A --kill-after that does not fit
    /// into the TTL is cut. Then rlock exits with 79. Groups of rlocks nested in CMD die with it.
    /// The lock is released only when all of them are dead.
    ///
    /// A nested rlock run of a lock that CMD runs under, directly or further up, starts at once
    /// under that lock. It dies with the rlock that holds the lock. When CMD has ended, that rlock
    /// keeps the lock until its nested runs have ended; HUP, INT, QUIT or TERM ends them.
    ///
    /// A small process, rlock-guard, watches rlock. If rlock is killed, the guard kills the group
    /// at once and, when no process of it is left, releases the lock. If rlock is stopped, the
    /// guard kills the group before the lease ends. A guard that is killed or stopped is replaced.
    /// If both are killed at once, the kernel kills CMD's first process (PR_SET_PDEATHSIG), but not
    /// the processes that it had started.
    ///
    /// Processes that CMD leaves in the background go on without the lock when CMD has ended by
    /// itself. With --contain they do not: rlock adopts CMD's orphans (PR_SET_CHILD_SUBREAPER, no
    /// privilege needed) and ends every process below itself in /proc before it releases the lock.
    /// If rlock was killed, its guard ends every process that has the lock's RLOCK_TOKEN in its
    /// environment.
    ///
    /// A command that becomes another user (sudo, setuid) can be signalled only if rlock's user may
    /// do that. Otherwise rlock says so and keeps the lock while it can.
    ///
    /// No lock covers a machine that stands still past the end of the lease, or a guard and an
    /// rlock that are both stopped. CMD may then run for some milliseconds when it wakes. Storage
    /// that refuses any RLOCK_FENCE below the highest it has seen covers both.
    #[allow(clippy::doc_markdown)]
    Run(Deferred<RunArgs>),
    /// Take the lock and exit, printing the token
    ///
    /// For work of several steps, such as CI jobs, that no single command can be put around. No
    /// process renews the lock, and none stops the work when it ends: it lasts for --ttl, until
    /// rlock release, or until that long after the last rlock renew. Run rlock check before a step
    /// that must not run without the lock.
    #[allow(clippy::doc_markdown)]
    Acquire(Deferred<AcquireArgs>),
    /// Extend a lock, if it is still the caller's
    ///
    /// Compares and extends, on a majority of the nodes. Exit 1, naming the holder, if the token is
    /// not the holder's.
    Renew(Deferred<RenewArgs>),
    /// Release a lock, if it is still the caller's
    ///
    /// Compares and deletes. Exit 1, naming the holder, if the token is not the holder's; another
    /// client's lock is never touched.
    Release(Deferred<HeldArgs>),
    /// Tell whether the lock is still the caller's
    ///
    /// Exit 0 if a majority of the nodes says so, 1, naming the holder, if it is not, 69 if no
    /// majority answers. Inside rlock run it needs no flags. The answer holds for the moment in
    /// which it was given; --for asks for a longer time.
    Check(Deferred<CheckArgs>),
    /// Show which locks are held, and by which client
    ///
    /// Each row tells the holder, since when, how long the lock lasts unless renewed, its fence,
    /// and how many of the nodes agree on the holder. The waiters stand below, in their order. A
    /// value that rlock did not write is shown as foreign. Without a name, all locks that are held are
    /// shown, in Redis those that an rlock has used within a week. There they are found with SCAN,
    /// which does not block the servers.
    ///
    /// Exit 0 if one of the locks with these names and patterns is held, 1 if none is. Without any,
    /// 0 if the nodes could tell. 69 if no majority of the nodes answers.
    Inspect(Deferred<InspectArgs>),
    /// Take a lock away from its holder
    ///
    /// Shows the holder and asks, or takes --yes. A lock that rlock run holds is not deleted: a
    /// tombstone takes its place and keeps other clients out. The holder is told at once, or finds
    /// it at its next renewal (a third of its TTL at most). It stops its command as after any loss
    /// (exit 79) and releases the key. rlock break waits for that, for as long as the lease would
    /// have lasted. A lock that was taken with acquire has no command to stop and is deleted at
    /// once. --now deletes any lock at once: the holder's command may then run beside that of the
    /// next holder, until its next renewal. Only the lock that was shown is broken, never its
    /// successor.
    ///
    /// Exit 0 if it is broken, 1 if there is nothing to break, or the holder has changed or has not
    /// released it.
    Break(Deferred<BreakArgs>),
    /// Tell whether the nodes are fit to hold locks
    ///
    /// Checks of each node: role, version, round trip, clock, uptime, persistence, eviction,
    /// replicas, and the rights that rlock needs; and whether the nodes are independent. Changes
    /// nothing. Says what is wrong, what follows from it and what to do. With --acl, or where a
    /// right is missing, prints what grants exactly the rights that rlock needs: an ACL SETUSER line
    /// of Redis, commands of etcdctl, or SQL.
    ///
    /// Exit 0 if the nodes are fit, 1 if there are warnings, and 69, 77 or 78 if they are not fit:
    /// no majority, refused, or wrongly configured. Warnings are: a policy that evicts, a clock
    /// that is wrong, a recent restart, or a replica that may lose writes. So are a certificate that
    /// ends within 30 days, and a server to which clients of other hosts may write without a
    /// password. No persistence is one, unless the restart guard of several nodes covers it. A
    /// minority that is away, refuses rlock or sets no key is a warning too.
    Doctor(Deferred<DoctorArgs>),
    /// Show every setting that is in force, and where it comes from
    ///
    /// Each row tells a setting, its value, and the flag's variable or the line of the
    /// configuration file that it comes from. With --key, they are those of runs of this lock.
    /// Passwords are never shown. No node is asked.
    ///
    /// Exit 0, or 78 if a file is wrong. With --check, also sections that do not apply here are
    /// checked.
    Config(Deferred<ConfigArgs>),
    /// Print the completions for a shell
    ///
    /// The package installs them. They complete rlock's words, and the command of run as if it were
    /// typed alone: in bash and fish that is what follows --.
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a man page: rlock's, or a subcommand's
    ///
    /// The package installs them all: man rlock, man rlock-run.
    Man {
        /// The subcommand
        subcommand: Option<String>,
    },
}

/// Returns the name of an option's variable.
pub fn variable(long: &str) -> String {
    format!("RLOCK_{}", long.to_ascii_uppercase().replace('-', "_"))
}

/// clap's description of the command line. Options of a subcommand are described when it is used,
/// or with [`clap::Command::build`].
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Options that clap describes once their subcommand is used.
#[derive(Debug)]
pub struct Deferred<T>(pub Box<T>);

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| with_common_rules(T::augment_args(command)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        T::augment_args_for_update(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(|args| Self(Box::new(args)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Adds what holds for every option, beside its attributes.
fn with_common_rules(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let arg = match arg.get_action() {
            ArgAction::SetTrue => arg.value_parser(yes_or_no),
            // A negative number is a wrong value then, not an unknown option.
            ArgAction::Set | ArgAction::Append if !arg.is_positional() => {
                arg.allow_negative_numbers(true)
            }
            _ => arg,
        };
        // CI systems set an unset parameter to the empty string.
        let is_empty = arg
            .get_env()
            .and_then(env::var_os)
            .is_some_and(|value| value.is_empty());
        // Hidden, so that the option is still known to have a variable.
        if is_empty {
            arg.env(None::<&'static str>).hide_env(true)
        } else {
            arg
        }
    })
}
