//! Watches a lock's files. By the loss of a name a waiter learns that the lock was released, and a
//! holder that it was taken away. By a write to the file a waiter for a seat learns that a member
//! left.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

use super::file::LockFile;
use super::files::Files;
use crate::lock::mode::Mode;

/// An instance of inotify(7), made when there is something to watch and kept open until exit:
/// closing it can take the kernel 20 ms, which would delay the new holder.
#[derive(Default)]
pub(super) struct Watch {
    queue: OnceCell<WatchQueue>,
}

struct WatchQueue {
    /// Before the descriptor that it names, so that it is dropped first.
    news: AsyncFd<RawFd>,
    inotify: Inotify,
}

impl Watch {
    /// Watches `file` and its directory from now on: these very ones, not others that get their
    /// names. `writes`: what is written to the file, too. An error if the kernel refuses, for
    /// instance at the limit `fs.inotify.max_user_instances`.
    pub(super) fn begin(&self, file: &LockFile, writes: bool) -> io::Result<()> {
        let queue = self.queue()?;
        let add = |descriptor: RawFd, changes| {
            queue
                .inotify
                .add_watch(format!("/proc/self/fd/{descriptor}").as_str(), changes)
        };
        let more = if writes {
            AddWatchFlags::IN_MODIFY
        } else {
            AddWatchFlags::empty()
        };
        add(
            file.as_raw_fd(),
            AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF | more,
        )?;
        add(
            file.dir().as_fd().as_raw_fd(),
            AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF,
        )?;
        Ok(())
    }

    /// Returns when something may have happened to the watched files.
    pub(super) async fn stirred(&self) -> io::Result<()> {
        let queue = self.queue()?;
        queue.news.readable().await?.clear_ready();
        while queue.inotify.read_events().is_ok() {}
        Ok(())
    }

    fn queue(&self) -> io::Result<&WatchQueue> {
        if let Some(queue) = self.queue.get() {
            return Ok(queue);
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        // SAFETY: the number stays the queue's: `inotify` owns it, and both are dropped together.
        let news = unsafe { AsyncFd::register(inotify.as_fd().as_raw_fd()) }?;
        Ok(self.queue.get_or_init(|| WatchQueue { news, inotify }))
    }
}

/// The change that a waiter waits for, since its last attempt.
pub(super) struct Awaited {
    /// This file is no longer the one at its path: a holder deletes it before it releases the lock.
    pub(super) gone: LockFile,
    /// Or a seat of it is free for a member of this kind.
    pub(super) room: Option<Mode>,
    /// The files of the lock, and the waiter's value, if members of another kind must leave for it.
    pub(super) gate: Option<(Files, String)>,
}

impl Awaited {
    pub(super) async fn happened(&self, watch: &Watch) -> io::Result<()> {
        watch.begin(&self.gone, self.room.is_some())?;
        // It may have happened before it was watched.
        while self.gone.stands()? && !self.has_room()? {
            watch.stirred().await?;
        }
        Ok(())
    }

    fn has_room(&self) -> io::Result<bool> {
        self.room.map_or(Ok(false), |mode| {
            Ok(self.gone.free_seat(mode, 1)?.is_some())
        })
    }
}
