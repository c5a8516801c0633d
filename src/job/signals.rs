//! Signals that rlock gets: noted by a handler, read here one by one.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::found::Found;

/// What is passed on to the command. `rlock` itself goes on until the command has ended.
pub const PASSED_ON: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// The signals that have come.
pub struct Signals {
    delivery: SignalDelivery<AsyncFd<UnixStream>, SignalOnly>,
    come: VecDeque<Signal>,
}

impl Signals {
    /// Catches [`PASSED_ON`], less what was found ignored, and SIGCHLD.
    pub fn catch(found: &Found) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        // SAFETY: the stream owns its descriptor, always names the same one, and closes it only when dropped.
        let read = unsafe { AsyncFd::register_with_interest(read, Interest::READABLE) }?;
        let caught = PASSED_ON.into_iter().filter(|signal| !found.ignored(*signal)).chain([Signal::SIGCHLD]);
        let numbers: Vec<i32> = caught.map(|signal| signal as i32).collect();
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, numbers)?;
        Ok(Self { delivery, come: VecDeque::new() })
    }

    /// The next signal. May be dropped and called again.
    pub async fn next(&mut self) -> Signal {
        loop {
            if let Some(signal) = self.come_already() {
                return signal;
            }
            match self.delivery.get_read().readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is going away, and we with it.
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// A signal that has come and was not yet read.
    pub fn come_already(&mut self) -> Option<Signal> {
        if self.come.is_empty() {
            self.come.extend(self.delivery.pending().filter_map(|number| Signal::try_from(number).ok()));
        }
        self.come.pop_front()
    }
}
