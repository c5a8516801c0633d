//! What a guard is to do: written by rlock, read by its guard, in memory that both have.
//!
//! A message would wake the guard each time, at a moment when the processor is wanted for the command, or for the server that
//! passes the lock on.

use std::io;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::unistd::Pid;
use uuid::Uuid;

use super::handback::HandBack;
use crate::lock::instant::Instant;

/// Bytes that a [`HandBack`] may have: a key, nine nodes and a password fit many times.
const LONGEST_HAND_BACK: usize = 16 * 1024;

/// In the place of a group, while there is none; also what the kernel fills new memory with.
const NOBODY: i32 = 0;

/// The orders. A fork has the same ones.
#[derive(Debug)]
pub(super) struct WatchdogState(NonNull<Page>);

/// Each is written in one go, and by one process at a time: rlock's own, which stands still while its command's makes itself
/// known.
#[derive(Debug)]
struct Page {
    /// The command's group, or [`NOBODY`].
    group: AtomicI32,
    /// When that was written, in ns since boot: the group's leader began no later.
    began: AtomicU64,
    /// When it must be dead, in ns since boot.
    kill_at: AtomicU64,
    /// What processes under the lock have in their environment. The guard knows them by it once rlock is gone.
    mark: [AtomicU64; 2],
    /// `--contain`: all that have the mark are to be killed too.
    contains: AtomicBool,
    /// The mark is the token of a lock under which runs may be nested: the guard stays until they have ended.
    outlasts: AtomicBool,
    /// Whether rlock may hold the lock whose token the mark is: if rlock dies, the guard gives it back.
    gives_back: AtomicBool,
    /// Number of bytes in `hand_back`; none, if that cannot be done.
    hand_back_length: AtomicUsize,
    hand_back: [AtomicU8; LONGEST_HAND_BACK],
}

impl WatchdogState {
    /// Orders to do nothing.
    pub(super) fn new() -> io::Result<Self> {
        let length = NonZero::new(size_of::<Page>()).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: it is new memory, and lies where nothing else does.
        let page = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) }?;
        let orders = Self(page.cast());
        orders.kill_by(Instant::NEVER);
        Ok(orders)
    }

    fn page(&self) -> &Page {
        // SAFETY: it stays mapped until `self` is dropped. The kernel maps whole pages, aligned for anything and full of
        // zeros, which are valid numbers, and all who have it use it as these atomic ones.
        unsafe { self.0.as_ref() }
    }

    /// Kill `group`, whose leader runs `now`, at the latest at `kill_at`. Allocates nothing.
    pub(super) fn watch_over(&self, group: Pid, now: Instant, kill_at: Instant) {
        self.kill_by(kill_at);
        self.page().began.store(now.as_nanos(), SeqCst);
        self.page().group.store(group.as_raw(), SeqCst);
    }

    /// The command's processes have `mark` in their environment.
    pub(super) fn know(&self, mark: Uuid, contains: bool, outlasts: bool) {
        let (high, low) = mark.as_u64_pair();
        self.page().mark[0].store(high, SeqCst);
        self.page().mark[1].store(low, SeqCst);
        self.page().contains.store(contains, SeqCst);
        self.page().outlasts.store(outlasts, SeqCst);
    }

    /// The lock is to be given back like this, once rlock may hold it. One that is too long is not taken.
    pub(super) fn learn(&self, how: &HandBack) {
        let page = self.page();
        let Some(bytes) = Some(how.bytes()).filter(|bytes| bytes.len() <= LONGEST_HAND_BACK) else { return };
        page.hand_back.iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Relaxed));
        page.hand_back_length.store(bytes.len(), SeqCst);
    }

    /// rlock may hold the lock of `token` from now on.
    pub(super) fn may_hold(&self, token: Uuid) {
        self.know(token, false, false);
        self.page().gives_back.store(true, SeqCst);
    }

    /// There is nothing to give back.
    pub(super) fn holds_nothing(&self) {
        self.page().gives_back.store(false, SeqCst);
    }

    /// At the latest at `kill_at`; when it was before.
    pub(super) fn kill_by(&self, kill_at: Instant) -> Instant {
        Instant::from_nanos(self.page().kill_at.swap(kill_at.as_nanos(), SeqCst))
    }

    /// Nobody is to be killed any more.
    pub(super) fn withdraw(&self) {
        self.page().group.store(NOBODY, SeqCst);
    }

    /// Whom to kill; `None` while there is nobody.
    pub(super) fn group(&self) -> Option<Pid> {
        Some(self.page().group.load(SeqCst)).filter(|group| *group != NOBODY).map(Pid::from_raw)
    }

    /// When, at the latest.
    pub(super) fn kill_at(&self) -> Instant {
        Instant::from_nanos(self.page().kill_at.load(SeqCst))
    }

    /// A moment at which the group's leader had begun and had started nothing.
    pub(super) fn began(&self) -> Instant {
        Instant::from_nanos(self.page().began.load(SeqCst))
    }

    /// What the command's processes have in their environment.
    pub(super) fn mark(&self) -> Uuid {
        let [high, low] = [0, 1].map(|half| self.page().mark[half].load(SeqCst));
        Uuid::from_u64_pair(high, low)
    }

    /// Whether all that have the mark are to be killed.
    pub(super) fn contains(&self) -> bool {
        self.page().contains.load(SeqCst)
    }

    /// The token of the lock whose nested runs are to be outlasted.
    pub(super) fn outlasts(&self) -> Option<Uuid> {
        self.page().outlasts.load(SeqCst).then(|| self.mark())
    }

    /// How to give the lock back, as [`HandBack::bytes`]; `None` if that is not to be done.
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
        // SAFETY: it was mapped with this length, and the references to it were borrowed from `self`.
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
        let orders = WatchdogState::new().unwrap();
        assert_eq!((orders.group(), orders.kill_at(), orders.hand_back()), (None, Instant::NEVER, None));
        let (group, token, later) = (Pid::from_raw(4711), Uuid::new_v4(), Instant::from_nanos(1 << 60));
        let hand_back = HandBack::default().with("RLOCK_KEY", "job".as_ref()).unwrap();
        // SAFETY: the child stores numbers and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                orders.learn(&hand_back);
                orders.may_hold(token);
                orders.know(token, true, true);
                orders.watch_over(group, Instant::from_nanos(5), later);
                // SAFETY: it ends the process, and nothing that was copied by the fork is to be run.
                unsafe { libc::_exit(0) };
            }
            ForkResult::Parent { child } => drop(waitpid(child, None)),
        }
        assert_eq!((orders.group(), orders.began(), orders.kill_at()), (Some(group), Instant::from_nanos(5), later));
        assert_eq!((orders.mark(), orders.contains(), orders.outlasts()), (token, true, Some(token)));
        assert_eq!(orders.hand_back().as_deref(), Some(hand_back.bytes()));
        assert_eq!(orders.kill_by(Instant::from_nanos(7)), later);
        orders.withdraw();
        assert_eq!((orders.group(), orders.kill_at()), (None, Instant::from_nanos(7)));
    }

    #[test]
    fn how_to_give_the_lock_back_can_be_withdrawn_and_is_left_out_if_it_is_too_long() {
        let orders = WatchdogState::new().unwrap();
        let of_length = |length: usize| HandBack::default().with("A", "x".repeat(length - 3).as_ref()).unwrap();
        orders.learn(&of_length(LONGEST_HAND_BACK + 1));
        orders.may_hold(Uuid::new_v4());
        assert_eq!(orders.hand_back(), None);
        orders.learn(&of_length(LONGEST_HAND_BACK));
        assert_eq!(orders.hand_back().as_deref(), Some(of_length(LONGEST_HAND_BACK).bytes()));
        orders.holds_nothing();
        assert_eq!(orders.hand_back(), None);
    }
}
