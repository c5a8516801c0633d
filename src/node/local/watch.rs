//! Watches a lock's files. By the loss of a name a waiter learns that the lock was released, and a holder that it was taken
//! away. By a write to the table of the members a waiter learns that one left.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

use super::file::LockFile;

/// An instance of inotify(7), made when there is something to watch and kept open until exit: closing it can take the kernel
/// 20 ms, which would delay the new holder.
#[derive(Default)]
pub(super) struct Watch {
    queue: OnceCell<Queue>,
}

struct Queue {
    /// Before the descriptor that it names, so that it is dropped first.
    news: AsyncFd<RawFd>,
    inotify: Inotify,
}

impl Watch {
    /// Watches `file` and its directory from now on: these very ones, not others that get their names. An error if the kernel
    /// refuses, for instance at the limit `fs.inotify.max_user_instances`.
    pub(super) fn begin(&self, file: &LockFile) -> io::Result<()> {
        self.begin_for(file, AddWatchFlags::empty())
    }

    /// The same, and watches what is written to the file.
    pub(super) fn begin_with_writes(&self, file: &LockFile) -> io::Result<()> {
        self.begin_for(file, AddWatchFlags::IN_MODIFY)
    }

    fn begin_for(&self, file: &LockFile, more: AddWatchFlags) -> io::Result<()> {
        let queue = self.queue()?;
        let add = |descriptor: RawFd, changes| {
            queue.inotify.add_watch(format!("/proc/self/fd/{descriptor}").as_str(), changes)
        };
        add(file.as_raw_fd(), AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF | more)?;
        add(file.dir().as_fd().as_raw_fd(), AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF)?;
        Ok(())
    }

    /// Returns when something may have happened to the watched files.
    pub(super) async fn stirred(&self) -> io::Result<()> {
        let queue = self.queue()?;
        queue.news.readable().await?.clear_ready();
        while queue.inotify.read_events().is_ok() {}
        Ok(())
    }

    fn queue(&self) -> io::Result<&Queue> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        // SAFETY: the number stays the queue's: `inotify` owns it, and both are dropped together.
        let news = unsafe { AsyncFd::register(inotify.as_fd().as_raw_fd()) }?;
        Ok(self.queue.get_or_init(|| Queue { news, inotify }))
    }
}
