//! The guard's state: written by rlock, read by the guard, in memory that both map.
//!
//! A message would wake the guard each time, when the CPU is needed for the command or for the
//! server that passes the lock on. Each field is one atomic with one writer at a time: rlock, or
//! its vforked child while rlock is suspended.

use std::io;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::unistd::Pid;
use uuid::Uuid;

use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::key;

/// The value of `group` while unarmed. The kernel fills new memory with it.
const UNARMED: i32 = 0;

/// The mapping. A forked process shares it.
#[derive(Debug)]
pub(super) struct GuardState(NonNull<SharedPage>);

// SAFETY: it stays mapped until it is dropped, and consists of atomics.
unsafe impl Send for GuardState {}
// SAFETY: as above.
unsafe impl Sync for GuardState {}

#[derive(Debug)]
struct SharedPage {
    /// The command's group, or [`UNARMED`].
    group: AtomicI32,
    /// When `group` was written, in ns since boot: its leader began no later.
    armed_at: AtomicU64,
    /// When the group must be dead, in ns since boot.
    kill_at: AtomicU64,
    /// The token or mark in the environment of the command's processes. Without rlock the guard
    /// knows them by it.
    mark: AtomicUuid,
    /// `--contain`: all processes with the mark are to be killed.
    contains: AtomicBool,
    /// For each lock of the run, the token with which rlock asked for it last; nil if it did not.
    tokens: [AtomicUuid; key::MOST_KEYS],
    /// For each lock of the run, the fence under which the command runs; 0: it has not started.
    fences: [AtomicU64; key::MOST_KEYS],
    /// For each lock of the run, whether rlock may hold it: if rlock dies, the guard gives it back.
    gives_back: [AtomicBool; key::MOST_KEYS],
}

/// A uuid in two halves: it is read only when its writer is dead, or has written all of it.
#[derive(Debug)]
struct AtomicUuid([AtomicU64; 2]);

impl AtomicUuid {
    fn store(&self, uuid: Uuid) {
        let (high, low) = uuid.as_u64_pair();
        self.0[0].store(high, SeqCst);
        self.0[1].store(low, SeqCst);
    }

    fn load(&self) -> Uuid {
        Uuid::from_u64_pair(self.0[0].load(SeqCst), self.0[1].load(SeqCst))
    }
}

impl GuardState {
    /// Maps the state of an unarmed guard.
    pub(super) fn new() -> io::Result<Self> {
        let length = NonZero::new(size_of::<SharedPage>()).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses an unused address.
        let page = unsafe { mmap_anonymous(None, length, access, MapFlags::MAP_SHARED) }?;
        let state = Self(page.cast());
        state.set_kill_at(Instant::NEVER);
        Ok(state)
    }

    fn page(&self) -> &SharedPage {
        // SAFETY: it stays mapped until `self` is dropped. The kernel maps whole pages, aligned for
        // any type and zeroed, which is valid for every field, and all processes access them as
        // these atomics.
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

    /// Sets the mark in the environment of the command's processes, and the fences under which it
    /// runs.
    pub(super) fn set_mark(&self, mark: Uuid, contains: bool, fences: &[Fence]) {
        self.page().mark.store(mark);
        self.page().contains.store(contains, SeqCst);
        self.page()
            .fences
            .iter()
            .zip(fences)
            .for_each(|(page, fence)| page.store(fence.get(), SeqCst));
    }

    /// Notes that rlock may hold lock number `lock` with `token`.
    pub(super) fn may_hold(&self, lock: usize, token: Uuid) {
        self.page().tokens[lock].store(token);
        self.page().gives_back[lock].store(true, SeqCst);
    }

    /// Notes that lock number `lock` is not to be given back.
    pub(super) fn does_not_hold(&self, lock: usize) {
        self.page().gives_back[lock].store(false, SeqCst);
    }

    /// The group to kill; `None` while unarmed.
    pub(super) fn group(&self) -> Option<Pid> {
        Some(self.page().group.load(SeqCst))
            .filter(|group| *group != UNARMED)
            .map(Pid::from_raw)
    }

    pub(super) fn kill_at(&self) -> Instant {
        Instant::from_nanos(self.page().kill_at.load(SeqCst))
    }

    /// An instant at which the group's leader existed and had no children.
    pub(super) fn armed_at(&self) -> Instant {
        Instant::from_nanos(self.page().armed_at.load(SeqCst))
    }

    pub(super) fn mark(&self) -> Uuid {
        self.page().mark.load()
    }

    pub(super) fn contains(&self) -> bool {
        self.page().contains.load(SeqCst)
    }

    /// Returns the token for each lock, where rlock may hold it, and its fence, if the command was
    /// started.
    pub(super) fn to_give_back(&self) -> Vec<Option<(Uuid, Option<Fence>)>> {
        let SharedPage {
            tokens,
            fences,
            gives_back,
            ..
        } = self.page();
        let held = tokens
            .iter()
            .map(AtomicUuid::load)
            .zip(fences.iter().map(|fence| Fence::new(fence.load(SeqCst))));
        held.zip(gives_back)
            .map(|(held, gives_back)| gives_back.load(SeqCst).then_some(held))
            .collect()
    }
}

impl Drop for GuardState {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and all references to it were borrowed from
        // `self`.
        let _ = unsafe { munmap(self.0.cast(), size_of::<SharedPage>()) };
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn what_one_process_writes_its_fork_reads() {
        let state = GuardState::new().unwrap();
        assert_eq!((state.group(), state.kill_at()), (None, Instant::NEVER));
        let (group, token, later) = (
            Pid::from_raw(4711),
            Uuid::new_v4(),
            Instant::from_nanos(1 << 60),
        );
        // SAFETY: the child stores numbers and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                state.may_hold(1, token);
                state.set_mark(token, true, &[Fence::FIRST; 2]);
                state.arm(group, Instant::from_nanos(5), later);
                // SAFETY: it ends the process, and nothing that was copied by the fork is to be
                // run.
                unsafe { libc::_exit(0) };
            }
            ForkResult::Parent { child } => drop(waitpid(child, None)),
        }
        assert_eq!(
            (state.group(), state.armed_at(), state.kill_at()),
            (Some(group), Instant::from_nanos(5), later)
        );
        assert_eq!((state.mark(), state.contains()), (token, true));
        assert_eq!(
            state.to_give_back()[..3],
            [None, Some((token, Some(Fence::FIRST))), None]
        );
        state.does_not_hold(1);
        assert!(state.to_give_back().iter().all(Option::is_none));
        assert_eq!(state.set_kill_at(Instant::from_nanos(7)), later);
        state.disarm();
        assert_eq!(
            (state.group(), state.kill_at()),
            (None, Instant::from_nanos(7))
        );
    }
}
