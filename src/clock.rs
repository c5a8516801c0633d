//! The boot-time clock: what time it is, and being woken at a time.
//!
//! `CLOCK_BOOTTIME` goes on while the machine is suspended, as the servers' clocks do; tokio's
//! timers and `std::time::Instant` stop (`clock_gettime(2)`, `timerfd_create(2)`).

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::time::{TimeSpec, TimeValLike};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::unix::AsyncFd;

use crate::lock::instant::Instant;

/// Time that a simulation tells in the kernel's place.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedTime {
    /// Returns the time.
    pub now: fn() -> Instant,
    /// Wakes the task at that time, or later.
    pub wake_at: fn(Instant, Waker),
}

thread_local! {
    static SIMULATED: Cell<Option<SimulatedTime>> = const { Cell::new(None) };
}

/// From now on this thread lives in simulated time; `None`: in the kernel's time again. Only
/// simulations and tests call this.
pub fn simulate(time: Option<SimulatedTime>) {
    SIMULATED.set(time);
}

/// Now, on the boot-time clock.
pub fn now() -> Instant {
    if let Some(time) = SIMULATED.get() {
        return (time.now)();
    }
    // The clock exists since Linux 2.6.39 and the call has no other way to fail; were it to, a time
    // that never comes ends every lease at once, which is the safe side.
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
    time.map_or(Instant::NEVER, |t| {
        Instant::from_nanos(u64::try_from(t.num_nanoseconds()).unwrap_or(u64::MAX))
    })
}

/// Unix time in milliseconds, for people and for other hosts; nothing is measured by it.
pub fn unix_millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|span| u64::try_from(span.as_millis()).ok())
        .unwrap_or(0)
}

/// One alarm on the boot-time clock, set anew for each wait. `None` in simulated time, where
/// nothing of the kernel's is used.
#[derive(Debug)]
pub struct Alarm(Option<AsyncFd<Timer>>);

/// nix' timer, with the one trait that tokio wants of it.
#[derive(Debug)]
struct Timer(TimerFd);

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Alarm {
    /// An alarm that is not set. Needs a running tokio runtime.
    pub fn new() -> io::Result<Self> {
        if SIMULATED.get().is_some() {
            return Ok(Self(None));
        }
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Timer(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?);
        // SAFETY: the timer owns its descriptor, always names the same one, and closes it only when
        // dropped.
        Ok(Self(Some(unsafe { AsyncFd::register(timer) }?)))
    }

    /// Returns once `at` has come. May be dropped and called again with another time.
    pub async fn reached(&mut self, at: Instant) {
        if at == Instant::NEVER {
            return std::future::pending().await;
        }
        if let Some(time) = SIMULATED.get() {
            return time.reached(at).await;
        }
        while now() < at {
            let Some(timer) = self.0.as_ref().filter(|timer| set(timer, at).is_ok()) else {
                // Without an alarm the only safe reading is that the time has come.
                return;
            };
            match timer.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            }
        }
    }
}

fn set(timer: &AsyncFd<Timer>, at: Instant) -> nix::Result<()> {
    let since_boot = std::time::Duration::from_nanos(at.as_nanos());
    let expiration = Expiration::OneShot(TimeSpec::from_duration(since_boot));
    timer
        .get_ref()
        .0
        .set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
}

impl SimulatedTime {
    async fn reached(self, at: Instant) {
        let mut waker: Option<Waker> = None;
        std::future::poll_fn(|cx| {
            if (self.now)() >= at {
                return Poll::Ready(());
            }
            if waker
                .as_ref()
                .is_none_or(|waker| !waker.will_wake(cx.waker()))
            {
                waker = Some(cx.waker().clone());
                (self.wake_at)(at, cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// `future`, or `None` once `at` has come.
pub async fn until<F: Future>(at: Instant, future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    // An answer that is there already costs no alarm.
    if let Poll::Ready(output) = futures_util::poll!(&mut future) {
        return Some(output);
    }
    let over = async {
        if let Ok(mut alarm) = Alarm::new() {
            alarm.reached(at).await;
        }
    };
    tokio::select! {
        biased;
        output = future => Some(output),
        () = over => None,
    }
}

/// Time for tests of what waits: tokio's paused clock, which jumps to the next alarm when nothing
/// else is left to do.
#[cfg(test)]
pub(crate) mod virtual_time {
    use std::cell::Cell;
    use std::task::Waker;
    use std::time::Duration;

    use super::SimulatedTime;
    use crate::lock::instant::Instant;

    thread_local! {
        static BEGIN: Cell<Option<tokio::time::Instant>> = const { Cell::new(None) };
    }

    /// Where the virtual clock starts: not at zero, so that a time before it can be named.
    const ORIGIN: Duration = Duration::from_secs(1000);

    /// Runs `test` on a clock of its own, which only its own waiting moves.
    pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            BEGIN.set(Some(tokio::time::Instant::now()));
            super::simulate(Some(SimulatedTime { now, wake_at }));
            let result = tokio::task::LocalSet::new().run_until(test).await;
            super::simulate(None);
            result
        })
    }

    fn now() -> Instant {
        Instant::from_nanos(0) + ORIGIN + BEGIN.get().unwrap().elapsed()
    }

    fn wake_at(at: Instant, waker: Waker) {
        tokio::spawn(async move {
            // tokio's timers count in whole milliseconds, and would fire up to one too late or too
            // early.
            tokio::time::sleep(at.since(now())).await;
            while now() < at {
                tokio::time::advance(Duration::from_micros(1)).await;
            }
            waker.wake();
        });
    }
}
