//! Word that a file has lost its name: how one who waits for a lock on this machine learns that it was given back.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;

/// A queue of inotify(7), made when there is something to wait for and kept until rlock ends: to close one takes the kernel
/// up to some twenty milliseconds, which whoever has got the lock has better use for.
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
    /// Comes true when `file` is no longer what stands at `path`. An error if the kernel lets nobody watch it, as where too
    /// many of a user's processes do (`fs.inotify.max_user_instances`).
    pub(super) async fn gone(&self, file: &File, path: &Path) -> io::Result<()> {
        let queue = self.queue()?;
        // The very file that was found locked, not what has its name by now.
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        let changes = AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF;
        queue.inotify.add_watch(itself.as_str(), changes)?;
        // It may have gone before it was watched.
        let mut is_gone = !is_at(file, path)?;
        while !is_gone {
            queue.news.readable().await?.clear_ready();
            while queue.inotify.read_events().is_ok() {}
            // The kernel counts its names down and tells us before it takes the name out of the directory.
            is_gone = file.metadata()?.nlink() == 0 || !is_at(file, path)?;
        }
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

/// Whether `file` is what stands at `path` now.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
