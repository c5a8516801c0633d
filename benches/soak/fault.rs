//! What is done to servers, connections and rlocks, and how it is mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::TTL;
use crate::network::Cut;
use crate::server::Server;

/// One thing that can be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Forget,
    Restart,
    StopServer,
    ClockJump,
    PauseWrites,
    KillConnections,
    Partition,
    LoseReplies,
    StopRlock,
    StopRlockLong,
    KillRlock,
    KillGuard,
}

const ALL: [Fault; 12] = [
    Fault::Forget,
    Fault::Restart,
    Fault::StopServer,
    Fault::ClockJump,
    Fault::PauseWrites,
    Fault::KillConnections,
    Fault::Partition,
    Fault::LoseReplies,
    Fault::StopRlock,
    Fault::StopRlockLong,
    Fault::KillRlock,
    Fault::KillGuard,
];

impl Fault {
    pub(crate) fn any(random: &mut fastrand::Rng) -> Self {
        ALL[random.usize(..ALL.len())]
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Forget => "server killed, back empty",
            Self::Restart => "server killed, back with its data",
            Self::StopServer => "server stopped",
            Self::ClockJump => "server's clock set",
            Self::PauseWrites => "writes paused",
            Self::KillConnections => "connections killed",
            Self::Partition => "client cut off",
            Self::LoseReplies => "replies lost",
            Self::StopRlock => "rlock stopped for a moment",
            Self::StopRlockLong => "rlock stopped past its lease",
            Self::KillRlock => "rlock killed",
            Self::KillGuard => "guard killed",
        }
    }
}

/// What is to be undone, and when.
enum Mend {
    Continue(Pid),
    ContinueServer(usize),
    RightClock(usize),
    Heal(Cut),
}

/// All that can be hurt.
pub(crate) struct World {
    servers: Vec<Server>,
    contenders: Arc<Vec<AtomicI32>>,
    forgets: bool,
    /// Only whoever holds is hurt.
    planted: bool,
    /// Whether clients can be cut off.
    cuts: bool,
    mends: Vec<(Instant, Mend)>,
    /// Until when each server counts as hurt: only a minority may be at a time.
    hurt: Vec<Instant>,
    /// Until when each contender's rlock is stopped, or its guard may be missing: not both at once.
    frail: Vec<Instant>,
}

impl World {
    pub(crate) fn new(
        servers: Vec<Server>,
        contenders: Arc<Vec<AtomicI32>>,
        forgets: bool,
        planted: bool,
        cuts: bool,
    ) -> Self {
        let now = Instant::now();
        let (hurt, frail) = (vec![now; servers.len()], vec![now; contenders.len()]);
        Self { servers, contenders, forgets, planted, cuts, mends: Vec::new(), hurt, frail }
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Does it, if there is somebody to whom it may be done now.
    pub(crate) fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) -> Result<bool> {
        let server = random.usize(..self.servers.len());
        // Most of those who contend wait; whoever holds is to be met as often.
        let anybody = random.usize(..self.contenders.len());
        let contender = if self.planted || random.bool() { self.holder().unwrap_or(anybody) } else { anybody };
        let short = Duration::from_millis(random.u64(50..2000));
        let long = TTL + Duration::from_millis(random.u64(100..1500));
        match fault {
            Fault::Forget if self.forgets => self.hurt(server, Duration::ZERO, Server::restart),
            Fault::Restart if !self.forgets => self.hurt(server, Duration::ZERO, Server::restart),
            Fault::ClockJump if self.forgets => {
                let jump = if random.bool() { 60 } else { -120 };
                let done = self.hurt(server, short, |it| it.set_clock(jump))?;
                if done {
                    self.later(short, Mend::RightClock(server));
                }
                Ok(done)
            }
            Fault::StopServer => {
                let done = self.hurt(server, short, |it| it.signal(Signal::SIGSTOP))?;
                if done {
                    self.later(short, Mend::ContinueServer(server));
                }
                Ok(done)
            }
            Fault::Forget | Fault::Restart | Fault::ClockJump => Ok(false),
            Fault::PauseWrites => self
                .hurt(server, Duration::from_millis(500), |it| it.cli(&["CLIENT", "PAUSE", "500", "WRITE"]).map(drop)),
            // One that is stopped would not answer, and nobody would be there to continue it.
            Fault::KillConnections if self.hurt[server] > Instant::now() => Ok(false),
            Fault::KillConnections => {
                for kind in ["normal", "pubsub"] {
                    self.servers[server].cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
                }
                Ok(true)
            }
            Fault::Partition | Fault::LoseReplies if !self.cuts => Ok(false),
            Fault::Partition => {
                let cut = Cut::partition(contender)?;
                self.later(if random.bool() { short } else { long }, Mend::Heal(cut));
                Ok(true)
            }
            Fault::LoseReplies => {
                let cut = Cut::replies(contender)?;
                self.later(short, Mend::Heal(cut));
                Ok(true)
            }
            Fault::StopRlock => Ok(self.stop_rlock(contender, short)),
            Fault::StopRlockLong => Ok(self.stop_rlock(contender, long)),
            Fault::KillRlock => Ok(self.sound(contender).is_some_and(|pid| kill(pid, Signal::SIGKILL).is_ok())),
            Fault::KillGuard => {
                let Some(guard) = self.sound(contender).and_then(|pid| child_named(pid, "rlock-guard")) else {
                    return Ok(false);
                };
                // Another is in its place in milliseconds, if its rlock can run.
                self.frail[contender] = Instant::now() + Duration::from_secs(1);
                Ok(kill(guard, Signal::SIGKILL).is_ok())
            }
        }
    }

    fn stop_rlock(&mut self, contender: usize, span: Duration) -> bool {
        let Some(pid) = self.sound(contender).filter(|pid| kill(*pid, Signal::SIGSTOP).is_ok()) else {
            return false;
        };
        self.frail[contender] = Instant::now() + span + Duration::from_millis(200);
        self.later(span, Mend::Continue(pid));
        true
    }

    /// The contender whose command runs.
    fn holder(&self) -> Option<usize> {
        let holds = |pid: &AtomicI32| child_named(Pid::from_raw(pid.load(Ordering::Relaxed)), "soak").is_some();
        self.contenders.iter().position(holds)
    }

    /// The contender's rlock, if it runs and its guard is there.
    fn sound(&self, contender: usize) -> Option<Pid> {
        let pid = self.contenders[contender].load(Ordering::Relaxed);
        (pid > 0 && self.frail[contender] < Instant::now()).then(|| Pid::from_raw(pid))
    }

    /// Does `what` to a server unless a minority is hurt already; it counts for `span` and as long as leases from before
    /// and the restart guard go on.
    fn hurt(&mut self, server: usize, span: Duration, what: impl FnOnce(&mut Server) -> Result<()>) -> Result<bool> {
        let now = Instant::now();
        let others = (0..self.servers.len()).filter(|other| *other != server && self.hurt[*other] > now).count();
        let minority = (self.servers.len() - 1) / 2;
        if self.hurt[server] > now || (self.servers.len() > 1 && others >= minority) {
            return Ok(false);
        }
        self.hurt[server] = now + span + 3 * TTL;
        what(&mut self.servers[server])?;
        Ok(true)
    }

    fn later(&mut self, span: Duration, mend: Mend) {
        self.mends.push((Instant::now() + span, mend));
    }

    /// Waits, and mends what is due meanwhile.
    pub(crate) fn wait(&mut self, span: Duration) -> Result<()> {
        let ends = Instant::now() + span;
        while Instant::now() < ends {
            let now = Instant::now();
            let (due, rest) = std::mem::take(&mut self.mends).into_iter().partition(|(at, _)| *at <= now);
            self.mends = rest;
            let due: Vec<(Instant, Mend)> = due;
            for (_, mend) in due {
                self.mend(mend)?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Mends everything.
    pub(crate) fn heal(&mut self) -> Result<()> {
        for (_, mend) in std::mem::take(&mut self.mends) {
            self.mend(mend)?;
        }
        Ok(())
    }

    fn mend(&mut self, mend: Mend) -> Result<()> {
        match mend {
            // It may have been killed meanwhile.
            Mend::Continue(pid) => drop(kill(pid, Signal::SIGCONT)),
            Mend::ContinueServer(server) => self.servers[server].signal(Signal::SIGCONT)?,
            // What was set by the wrong clock would stay for a minute.
            Mend::RightClock(server) => self.servers[server].restart()?,
            Mend::Heal(cut) => cut.mend()?,
        }
        Ok(())
    }
}

/// The child of `rlock` whose name begins so.
fn child_named(rlock: Pid, name: &str) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{rlock}/task/{rlock}/children")).ok()?;
    let named =
        |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(name));
    children.split_whitespace().find(named)?.parse().ok().map(Pid::from_raw)
}
