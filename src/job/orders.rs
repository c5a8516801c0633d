//! What a guard is to do: written by rlock, read by its guard, in memory that both have.
//!
//! A message would wake the guard each time, at a moment when the processor is wanted for the command, or for the server that
//! passes the lock on.

use std::io;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::unistd::Pid;
use uuid::Uuid;

use crate::lock::instant::Instant;

/// In the place of a group, while there is none; also what the kernel fills new memory with.
const NOBODY: i32 = 0;

/// The orders. A fork has the same ones.
#[derive(Debug)]
pub(super) struct Orders(NonNull<Page>);

/// Each is written in one go, and by one process at a time: rlock's own, which stands still while its command's makes itself
/// known.
#[derive(Debug)]
struct Page {
    /// The command's group, or [`NOBODY`].
    group: AtomicI32,
    /// When it must be dead, in ns since boot.
    kill_at: AtomicU64,
    /// The token by which `--contain` finds what left the group, once rlock is gone; nil without it.
    contain: [AtomicU64; 2],
}

impl Orders {
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

    /// Kill `group` at the latest at `kill_at`. Allocates nothing.
    pub(super) fn watch_over(&self, group: Pid, kill_at: Instant) {
        self.kill_by(kill_at);
        self.page().group.store(group.as_raw(), SeqCst);
    }

    /// Whoever has `token` in its environment is to be killed too.
    pub(super) fn contain(&self, token: Option<Uuid>) {
        let (high, low) = token.unwrap_or(Uuid::nil()).as_u64_pair();
        self.page().contain[0].store(high, SeqCst);
        self.page().contain[1].store(low, SeqCst);
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

    /// The token of whom else.
    pub(super) fn contained(&self) -> Option<Uuid> {
        let [high, low] = [0, 1].map(|half| self.page().contain[half].load(SeqCst));
        Some(Uuid::from_u64_pair(high, low)).filter(|token| !token.is_nil())
    }
}

impl Drop for Orders {
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
        let orders = Orders::new().unwrap();
        assert_eq!((orders.group(), orders.kill_at(), orders.contained()), (None, Instant::NEVER, None));
        let (group, token, later) = (Pid::from_raw(4711), Uuid::new_v4(), Instant::from_nanos(1 << 60));
        // SAFETY: the child stores numbers and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                orders.contain(Some(token));
                orders.watch_over(group, later);
                // SAFETY: it ends the process, and nothing that was copied by the fork is to be run.
                unsafe { libc::_exit(0) };
            }
            ForkResult::Parent { child } => drop(waitpid(child, None)),
        }
        assert_eq!((orders.group(), orders.kill_at(), orders.contained()), (Some(group), later, Some(token)));
        assert_eq!(orders.kill_by(Instant::from_nanos(7)), later);
        orders.withdraw();
        assert_eq!((orders.group(), orders.kill_at()), (None, Instant::from_nanos(7)));
    }
}
