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
use crate::lock::{key, keys};

/// The largest [`HandBack`] in bytes: the longest keys of a run, and nine nodes and a password many times.
const MAX_HAND_BACK: usize = keys::MOST * key::LONGEST + 16 * 1024;

/// The value of `group` while unarmed. The kernel fills new memory with it.
const UNARMED: i32 = 0;

/// The mapping. A forked process shares it.
#[derive(Debug)]
pub(super) struct WatchdogState(NonNull<Page>);

// SAFETY: it stays mapped until it is dropped, and consists of atomics.
unsafe impl Send for WatchdogState {}
// SAFETY: as above.
unsafe impl Sync for WatchdogState {}

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
    /// Runs may be nested under the locks in `tokens`: the guard stays until they have ended.
    outlasts: AtomicBool,
    /// For each lock of the run, the token with which rlock asked for it last; nil if it did not.
    tokens: [[AtomicU64; 2]; keys::MOST],
    /// For each lock of the run, whether rlock may hold it: if rlock dies, the guard gives it back.
    gives_back: [AtomicBool; keys::MOST],
    /// Number of locks of the run.
    locks: AtomicUsize,
    /// Number of bytes in `hand_back`; 0 if the guard cannot give the locks back.
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

    /// Sets how to give the locks back once rlock may hold them. One that is too long is left out.
    pub(super) fn set_hand_back(&self, how: &HandBack) {
        let page = self.page();
        let Some(bytes) = Some(how.bytes()).filter(|bytes| bytes.len() <= MAX_HAND_BACK) else { return };
        page.hand_back.iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Relaxed));
        page.locks.store(how.locks(), SeqCst);
        page.hand_back_length.store(bytes.len(), SeqCst);
    }

    /// Notes that rlock may hold lock number `lock` with `token`.
    pub(super) fn may_hold(&self, lock: usize, token: Uuid) {
        let (high, low) = token.as_u64_pair();
        self.page().tokens[lock][0].store(high, SeqCst);
        self.page().tokens[lock][1].store(low, SeqCst);
        self.page().gives_back[lock].store(true, SeqCst);
    }

    /// Notes that lock number `lock` is not to be given back.
    pub(super) fn does_not_hold(&self, lock: usize) {
        self.page().gives_back[lock].store(false, SeqCst);
    }

    /// The tokens with which rlock asked for the locks of the run, or nil.
    fn tokens(&self) -> impl Iterator<Item = Uuid> {
        self.page().tokens.iter().map(|[high, low]| Uuid::from_u64_pair(high.load(SeqCst), low.load(SeqCst)))
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

    /// The tokens of the locks whose nested runs the guard must outlast.
    pub(super) fn outlasts(&self) -> Vec<Uuid> {
        let outlasts = self.page().outlasts.load(SeqCst);
        self.tokens().filter(|token| outlasts && !token.is_nil()).collect()
    }

    /// Returns [`HandBack::bytes`] and a token for each lock, nil where none is to be released. `None` if the guard has nothing
    /// to give back, or cannot.
    pub(super) fn hand_back(&self) -> Option<(Vec<u8>, Vec<Uuid>)> {
        let gives_back = self.page().gives_back.iter().map(|gives_back| gives_back.load(SeqCst));
        let tokens = self.tokens().zip(gives_back).map(|(token, given)| if given { token } else { Uuid::nil() });
        let tokens: Vec<Uuid> = tokens.take(self.page().locks.load(SeqCst)).collect();
        let length = self.page().hand_back_length.load(SeqCst);
        let bytes = self.page().hand_back.get(..length)?;
        let holds_any = length > 0 && tokens.iter().any(|token| !token.is_nil());
        holds_any.then(|| (bytes.iter().map(|byte| byte.load(Relaxed)).collect(), tokens))
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
    use crate::lock::key::Key;

    #[test]
    fn what_one_process_writes_its_fork_reads() {
        let state = WatchdogState::new().unwrap();
        assert_eq!((state.group(), state.kill_at(), state.hand_back()), (None, Instant::NEVER, None));
        let (group, token, later) = (Pid::from_raw(4711), Uuid::new_v4(), Instant::from_nanos(1 << 60));
        let hand_back = HandBack::of(&["a", "b"].map(|name| Key::new("", name).unwrap())).unwrap();
        // SAFETY: the child stores numbers and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                state.set_hand_back(&hand_back);
                state.may_hold(1, token);
                state.set_mark(token, true, true);
                state.arm(group, Instant::from_nanos(5), later);
                // SAFETY: it ends the process, and nothing that was copied by the fork is to be run.
                unsafe { libc::_exit(0) };
            }
            ForkResult::Parent { child } => drop(waitpid(child, None)),
        }
        assert_eq!((state.group(), state.armed_at(), state.kill_at()), (Some(group), Instant::from_nanos(5), later));
        assert_eq!((state.mark(), state.contains(), state.outlasts()), (token, true, vec![token]));
        assert_eq!(state.hand_back(), Some((hand_back.bytes().to_vec(), vec![Uuid::nil(), token])));
        assert_eq!(state.set_kill_at(Instant::from_nanos(7)), later);
        state.disarm();
        assert_eq!((state.group(), state.kill_at()), (None, Instant::from_nanos(7)));
    }

    #[test]
    fn a_hand_back_can_be_cancelled_and_is_left_out_if_it_is_too_long() {
        let state = WatchdogState::new().unwrap();
        let job = [Key::new("", "job").unwrap()];
        let of_length =
            |length: usize| HandBack::of(&job).unwrap().with("A", "x".repeat(length - 17).as_ref()).unwrap();
        state.set_hand_back(&of_length(MAX_HAND_BACK + 1));
        state.may_hold(0, Uuid::new_v4());
        assert_eq!(state.hand_back(), None);
        state.set_hand_back(&of_length(MAX_HAND_BACK));
        assert_eq!(state.hand_back().map(|(bytes, _)| bytes).as_deref(), Some(of_length(MAX_HAND_BACK).bytes()));
        state.does_not_hold(0);
        assert_eq!(state.hand_back(), None);
    }
}
