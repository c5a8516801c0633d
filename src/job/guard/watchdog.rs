//! The watchdog's state: written by rlock, read by its guard, in memory that both map.
//!
//! A message would wake the guard each time, when the CPU is needed for the command or for the server that passes the lock
//! on. Each field is one atomic with one writer at a time: rlock, or its vforked child while rlock is suspended.

use std::io;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::unistd::Pid;
use uuid::Uuid;

use crate::job::handback::HandBack;
use crate::lock::instant::Instant;

/// The largest [`HandBack`] in bytes: a key, nine nodes and a password fit many times.
const MAX_HAND_BACK: usize = 16 * 1024;

/// The value of `group` while unarmed. The kernel fills new memory with it.
const UNARMED: i32 = 0;

/// The mapping. A forked process shares it.
#[derive(Debug)]
pub(super) struct WatchdogState(NonNull<Page>);

#[derive(Debug)]
struct Page {
    /// The command's group, or [`UNARMED`].
    group: AtomicI32,
    /// When `group` was written, in ns since boot: its leader began no later.
    armed_at: AtomicU64,
    /// When the group must be dead, in ns since boot.
    kill_at: AtomicU64,
    /// The token or mark in the environment of the command's processes. Without rlock the guard knows them by it.
    mark: [AtomicU64; 2],
    /// `--contain`: all processes with the mark are to be killed.
    contains: AtomicBool,
    /// The mark is the token of a lock under which runs may be nested: the guard stays until they have ended.
    outlasts: AtomicBool,
    /// Whether rlock may hold the lock whose token the mark is: if rlock dies, the guard gives it back.
    gives_back: AtomicBool,
    /// Number of bytes in `hand_back`; 0 if the guard cannot give the lock back.
    hand_back_length: AtomicUsize,
    hand_back: [AtomicU8; MAX_HAND_BACK],
}

impl WatchdogState {
    /// Maps an unarmed watchdog.
    pub(super) fn new() -> io::Result<Self> {
        let length = NonZero::new(size_of::<Page>()).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses an unused address.
        let page = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) }?;
        let state = Self(page.cast());
        state.set_kill_at(Instant::NEVER);
        Ok(state)
    }

    fn page(&self) -> &Page {
        // SAFETY: it stays mapped until `self` is dropped. The kernel maps whole pages, aligned for any type and zeroed,
        // which is valid for every field, and all processes access them as these atomics.
        unsafe { self.0.as_ref() }
    }

    /// Arms it: `group`, whose leader runs `now`, must be dead at `kill_at`. Allocates nothing.
    pub(super) fn arm(&self, group: Pid, now: Instant, kill_at: Instant) {
        self.set_kill_at(kill_at);
        self.page().armed_at.store(now.as_nanos(), SeqCst);
        self.page().group.store(group.as_raw(), SeqCst);
    }

    /// Sets the deadline and returns the one before.
    pub(super) fn set_kill_at(&self, kill_at: Instant) -> Instant {
        Instant::from_nanos(self.page().kill_at.swap(kill_at.as_nanos(), SeqCst))
    }

    /// Disarms it: no process is to be killed.
    pub(super) fn disarm(&self) {
        self.page().group.store(UNARMED, SeqCst);
    }

    /// Sets the mark in the environment of the command's processes.
    pub(super) fn set_mark(&self, mark: Uuid, contains: bool, outlasts: bool) {
        let (high, low) = mark.as_u64_pair();
        self.page().mark[0].store(high, SeqCst);
        self.page().mark[1].store(low, SeqCst);
        self.page().contains.store(contains, SeqCst);
        self.page().outlasts.store(outlasts, SeqCst);
    }

    /// Sets how to give the lock back once rlock may hold it. One that is too long is left out.
    pub(super) fn set_hand_back(&self, how: &HandBack) {
        let page = self.page();
        let Some(bytes) = Some(how.bytes()).filter(|bytes| bytes.len() <= MAX_HAND_BACK) else { return };
        page.hand_back.iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Relaxed));
        page.hand_back_length.store(bytes.len(), SeqCst);
    }

    /// Notes that rlock may hold the lock of `token`.
    pub(super) fn may_hold(&self, token: Uuid) {
        self.set_mark(token, false, false);
        self.page().gives_back.store(true, SeqCst);
    }

    /// Notes that there is nothing to give back.
    pub(super) fn holds_nothing(&self) {
        self.page().gives_back.store(false, SeqCst);
    }

    /// The group to kill; `None` while unarmed.
    pub(super) fn group(&self) -> Option<Pid> {
        Some(self.page().group.load(SeqCst)).filter(|group| *group != UNARMED).map(Pid::from_raw)
    }

    pub(super) fn kill_at(&self) -> Instant {
        Instant::from_nanos(self.page().kill_at.load(SeqCst))
    }

    /// An instant at which the group's leader existed and had no children.
    pub(super) fn armed_at(&self) -> Instant {
        Instant::from_nanos(self.page().armed_at.load(SeqCst))
    }

    pub(super) fn mark(&self) -> Uuid {
        let [high, low] = [0, 1].map(|half| self.page().mark[half].load(SeqCst));
        Uuid::from_u64_pair(high, low)
    }

    pub(super) fn contains(&self) -> bool {
        self.page().contains.load(SeqCst)
    }

    /// The token of the lock whose nested runs the guard must outlast.
    pub(super) fn outlasts(&self) -> Option<Uuid> {
        self.page().outlasts.load(SeqCst).then(|| self.mark())
    }

    /// Returns [`HandBack::bytes`]; `None` if the guard has nothing to give back, or cannot.
    pub(super) fn hand_back(&self) -> Option<Vec<u8>> {
        if !self.page().gives_back.load(SeqCst) {
            return None;
        }
        let length = self.page().hand_back_length.load(SeqCst);
        let bytes = self.page().hand_back.get(..length)?;
        (length > 0).then(|| bytes.iter().map(|byte| byte.load(Relaxed)).collect())
    }
}

impl Drop for WatchdogState {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all references to it were borrowed from `self`.
        let _ = unsafe { munmap(self.0.cast(), size_of::<Page>()) };
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn what_one_process_writes_its_fork_reads() {
        let state = WatchdogState::new().unwrap();
        assert_eq!((state.group(), state.kill_at(), state.hand_back()), (None, Instant::NEVER, None));
        let (group, token, later) = (Pid::from_raw(4711), Uuid::new_v4(), Instant::from_nanos(1 << 60));
        let hand_back = HandBack::default().with("RLOCK_KEY", "job".as_ref()).unwrap();
        // SAFETY: the child stores numbers and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                state.set_hand_back(&hand_back);
                state.may_hold(token);
                state.set_mark(token, true, true);
                state.arm(group, Instant::from_nanos(5), later);
                // SAFETY: it ends the process, and nothing that was copied by the fork is to be run.
                unsafe { libc::_exit(0) };
            }
            ForkResult::Parent { child } => drop(waitpid(child, None)),
        }
        assert_eq!((state.group(), state.armed_at(), state.kill_at()), (Some(group), Instant::from_nanos(5), later));
        assert_eq!((state.mark(), state.contains(), state.outlasts()), (token, true, Some(token)));
        assert_eq!(state.hand_back().as_deref(), Some(hand_back.bytes()));
        assert_eq!(state.set_kill_at(Instant::from_nanos(7)), later);
        state.disarm();
        assert_eq!((state.group(), state.kill_at()), (None, Instant::from_nanos(7)));
    }

    #[test]
    fn a_hand_back_can_be_cancelled_and_is_left_out_if_it_is_too_long() {
        let state = WatchdogState::new().unwrap();
        let of_length = |length: usize| HandBack::default().with("A", "x".repeat(length - 3).as_ref()).unwrap();
        state.set_hand_back(&of_length(MAX_HAND_BACK + 1));
        state.may_hold(Uuid::new_v4());
        assert_eq!(state.hand_back(), None);
        state.set_hand_back(&of_length(MAX_HAND_BACK));
        assert_eq!(state.hand_back().as_deref(), Some(of_length(MAX_HAND_BACK).bytes()));
        state.holds_nothing();
        assert_eq!(state.hand_back(), None);
    }
}
