//! Simulated commands and guards: what `rlock run` starts, signals and kills, and what kills it
//! when rlock cannot.
//!
//! The guard is the contract's (docs/design.md §7): it kills the command at the deadline that rlock
//! told last, and when rlock is dead. The shipped one is tried by `tests/faults`; here it is a rule
//! of the world.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Poll, Waker};
use std::time::Duration;

use nix::sys::signal::Signal;
use rlock::job::policy::{CaughtSignal, ExitStatus};
use rlock::lock::instant::Instant;
use rlock::lock::token::Token;

use crate::kernel::{self, Event, Kernel, ProcessId};

/// Longest time from a guard's deadline, or rlock's death, to the guard's SIGKILL.
const GUARD_WAKES: Duration = Duration::from_millis(3);

/// How a command behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// How long it runs if nothing disturbs it.
    pub runs: Duration,
    /// Its exit code then.
    pub code: u8,
    /// Its reaction to SIGTERM.
    pub at_term: AtTerm,
}

/// Reaction of a command to SIGTERM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtTerm {
    /// All of it ends after this time.
    Dies(Duration),
    /// Its first process ends after this time; another one ignores the signal.
    LeavesOne(Duration),
    /// Nothing.
    Ignores,
}

/// Something that becomes of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Its first process ends.
    Ends(ExitStatus),
    /// SIGKILL has ended what was left.
    Killed,
    /// The guard looks at its deadline.
    GuardDue,
    /// The guard notices that rlock is dead.
    Orphaned,
}

/// A signal that a process takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caught {
    /// SIGCHLD: the command's first process has ended so.
    Child(ExitStatus),
    /// Another signal.
    Signal(CaughtSignal),
}

/// A start that came when the lease was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLate;

/// One rlock's command and guard.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about several processes"
)]
#[derive(Debug, Default)]
struct Job {
    behaviour: Option<Behaviour>,
    /// Whether processes of the command live: the first one, and others.
    first_lives: bool,
    others_live: bool,
    /// Whether rlock is stopping the command: then all its processes count.
    is_stopped: bool,
    is_killed: bool,
    /// When the guard must have killed it; `None` while the guard has no command to kill.
    kill_at: Option<Instant>,
    is_guard_dead: bool,
    /// The tokens of the locks that the guard gives back if rlock dies, by their places in the run.
    gives_back: BTreeMap<usize, Token>,
    /// Signals that the process has not taken yet.
    caught: VecDeque<Caught>,
    waker: Option<Waker>,
}

impl Job {
    fn lives(&self) -> bool {
        self.first_lives || self.others_live
    }
}

/// The commands of all processes.
#[derive(Debug)]
pub struct Commands {
    jobs: BTreeMap<ProcessId, Job>,
    /// Longest time from SIGKILL to the end of the last process.
    dying: Duration,
}

impl Commands {
    /// Commands that take up to `dying` to end at SIGKILL.
    pub fn new(dying: Duration) -> Self {
        Self {
            jobs: BTreeMap::new(),
            dying,
        }
    }

    fn of(&mut self, process: ProcessId) -> &mut Job {
        self.jobs.entry(process).or_default()
    }

    /// Whether a process of the command of `process` lives.
    pub fn lives(&self, process: ProcessId) -> bool {
        self.jobs.get(&process).is_some_and(Job::lives)
    }

    /// Returns the locks that the guard of `process` has to give back, by their places in the run.
    pub fn takes_back(&mut self, process: ProcessId) -> BTreeMap<usize, Token> {
        self.jobs
            .get_mut(&process)
            .map(|job| std::mem::take(&mut job.gives_back))
            .unwrap_or_default()
    }
}

/// Calls the kernel about the command of the process that runs.
fn own<T>(call: impl FnOnce(&mut Kernel, ProcessId) -> T) -> T {
    kernel::with(|kernel| {
        let process = kernel.current;
        call(kernel, process)
    })
}

/// Tells the guard that rlock may hold the lock of `token` at this place of the run from now on;
/// `None`: no lock.
pub fn gives_back(place: usize, token: Option<Token>) {
    own(|kernel, process| {
        let all = &mut kernel.commands.of(process).gives_back;
        match token {
            Some(token) => all.insert(place, token),
            None => all.remove(&place),
        };
    });
}

/// Tells the guard that there is no lock to give back.
pub fn gives_nothing_back() {
    own(|kernel, process| kernel.commands.of(process).gives_back.clear());
}

/// Starts the command, which the guard kills at `kill_at`.
pub fn start(behaviour: Behaviour, kill_at: Instant) -> Result<(), TooLate> {
    own(|kernel, process| {
        if kernel.now >= kill_at {
            return Err(TooLate);
        }
        let job = kernel.commands.of(process);
        (job.behaviour, job.first_lives) = (Some(behaviour), true);
        job.others_live = matches!(behaviour.at_term, AtTerm::LeavesOne(_));
        kernel.after(
            behaviour.runs,
            Event::Command(process, Moment::Ends(ExitStatus::Exited(behaviour.code))),
        );
        set_deadline(kernel, process, kill_at);
        Ok(())
    })
}

/// Tells the guard a new deadline.
pub fn extend(kill_at: Instant) {
    own(|kernel, process| set_deadline(kernel, process, kill_at));
}

/// Tells the guard that there is no command to kill.
pub fn disarm() {
    own(|kernel, process| kernel.commands.of(process).kill_at = None);
}

/// Sends the command a signal. `stops`: rlock is stopping it.
pub fn send(signal: Signal, stops: bool) {
    own(|kernel, process| {
        let job = kernel.commands.of(process);
        job.is_stopped |= stops;
        let Some(behaviour) = job
            .behaviour
            .filter(|_| job.first_lives && signal == Signal::SIGTERM)
        else {
            return;
        };
        match behaviour.at_term {
            AtTerm::Ignores => {}
            AtTerm::Dies(after) | AtTerm::LeavesOne(after) => {
                kernel.after(
                    after,
                    Event::Command(process, Moment::Ends(ExitStatus::Killed(libc::SIGTERM))),
                );
            }
        }
    });
}

/// Sends SIGKILL to all of the command.
pub fn kill() {
    own(|kernel, process| {
        kernel.commands.of(process).is_stopped = true;
        strike(kernel, process);
    });
}

/// Whether no process of the command lives.
pub fn is_gone() -> bool {
    own(|kernel, process| !kernel.commands.lives(process))
}

/// Returns the next signal that the process gets.
pub async fn caught() -> Caught {
    std::future::poll_fn(|cx| {
        own(|kernel, process| {
            let job = kernel.commands.of(process);
            if let Some(caught) = job.caught.pop_front() {
                return Poll::Ready(caught);
            }
            job.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    })
    .await
}

/// Sends a signal to the rlock `process`.
pub fn signal(kernel: &mut Kernel, process: ProcessId, signal: Signal) {
    deliver(
        kernel,
        process,
        Caught::Signal(CaughtSignal {
            signal,
            from_terminal: false,
        }),
    );
}

/// The guard of `process` is killed; rlock replaces it if it lives.
pub fn lose_guard(kernel: &mut Kernel, process: ProcessId) {
    kernel.commands.of(process).is_guard_dead = true;
}

/// rlock is dead. Without a guard the kernel kills the command's first process
/// (`PR_SET_PDEATHSIG`).
pub fn orphan(kernel: &mut Kernel, process: ProcessId) {
    let job = kernel.commands.of(process);
    job.waker = None;
    if job.is_guard_dead {
        job.gives_back.clear();
        strike(kernel, process);
    } else {
        let after = kernel.random.time(Duration::ZERO, GUARD_WAKES);
        kernel.after(after, Event::Command(process, Moment::Orphaned));
    }
}

/// Lets `moment` of the command of `process` come. Returns whether the process has news.
pub fn happens(kernel: &mut Kernel, process: ProcessId, moment: Moment) -> bool {
    let now = kernel.now;
    let job = kernel.commands.of(process);
    match moment {
        Moment::Ends(status) => {
            if !job.first_lives {
                return false;
            }
            job.first_lives = false;
            if matches!(
                job.behaviour,
                Some(Behaviour {
                    at_term: AtTerm::Dies(_) | AtTerm::Ignores,
                    ..
                })
            ) {
                job.others_live = false;
            }
            // A command that ended by itself may leave others running: they need no lock.
            if !(job.is_stopped && job.others_live) {
                kernel.witness.ended(process, now);
            }
            kernel.tell(|| format!("{process}: its command ends ({status:?})"));
            deliver(kernel, process, Caught::Child(status))
        }
        Moment::Killed => {
            let had_first = std::mem::replace(&mut job.first_lives, false);
            job.others_live = false;
            kernel.witness.ended(process, now);
            kernel.tell(|| format!("{process}: its command is dead"));
            had_first
                && deliver(
                    kernel,
                    process,
                    Caught::Child(ExitStatus::Killed(libc::SIGKILL)),
                )
        }
        Moment::GuardDue => {
            if !job.is_guard_dead
                && job.kill_at.is_some_and(|at| at <= now)
                && job.lives()
                && !job.is_killed
            {
                job.is_stopped = true;
                kernel
                    .tell(|| format!("{process}: its guard kills the command, whose time is over"));
                strike(kernel, process);
            }
            false
        }
        Moment::Orphaned => {
            if job.kill_at.is_some() && job.lives() {
                job.is_stopped = true;
                kernel.tell(|| format!("{process}: its guard kills the command of the dead rlock"));
                strike(kernel, process);
            }
            let dying = kernel.commands.dying;
            let after = kernel.random.time(dying, dying * 3);
            kernel.after(after, Event::HandBack(process));
            false
        }
    }
}

fn strike(kernel: &mut Kernel, process: ProcessId) {
    kernel.commands.of(process).is_killed = true;
    let dying = kernel.commands.dying;
    let after = kernel.random.time(Duration::ZERO, dying);
    kernel.after(after, Event::Command(process, Moment::Killed));
}

fn set_deadline(kernel: &mut Kernel, process: ProcessId, kill_at: Instant) {
    let job = kernel.commands.of(process);
    // A living rlock replaces its guard before it goes on.
    job.is_guard_dead = false;
    if job.kill_at.replace(kill_at) != Some(kill_at) {
        let late = kernel.random.time(Duration::ZERO, GUARD_WAKES);
        kernel.at(kill_at + late, Event::Command(process, Moment::GuardDue));
    }
}

fn deliver(kernel: &mut Kernel, process: ProcessId, caught: Caught) -> bool {
    let job = kernel.commands.of(process);
    job.caught.push_back(caught);
    job.waker.take().map(Waker::wake).is_some()
}
