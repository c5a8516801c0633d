//! The keys that are pressed while `--watch` draws: `q` quits, as in top(1) and less(1).
//!
//! Ctrl-C and Ctrl-\ arrive as keys too.

use std::io::{self, IsTerminal, Stdin};

use nix::sys::signal::Signal;
use nix::sys::termios::{
    LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};
use nix::unistd::{getpgrp, read, tcgetpgrp};
use tokio::io::unix::AsyncFd;

/// A terminal that tells each key, without an echo. It is as before once this is dropped.
pub(super) struct Keyboard {
    stdin: AsyncFd<Stdin>,
    before: Termios,
}

impl Keyboard {
    /// Returns the keyboard; `None` without a terminal, and in the background, where the terminal is
    /// another job's.
    pub(super) fn open() -> Option<Self> {
        let stdin = io::stdin();
        let is_ours = tcgetpgrp(&stdin).is_ok_and(|group| group == getpgrp());
        if !is_ours || !io::stdout().is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut key_by_key = before.clone();
        key_by_key
            .local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        key_by_key.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        key_by_key.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        // SAFETY: the descriptor of stdin stays the same, and open, until the process ends.
        let stdin = unsafe { AsyncFd::register(stdin) }.ok()?;
        tcsetattr(stdin.get_ref(), SetArg::TCSADRAIN, &key_by_key).ok()?;
        Some(Self { stdin, before })
    }

    /// Waits until the user wants to quit. Returns the signal of a key that has one.
    pub(super) async fn quits(&self) -> Option<Signal> {
        let key_of = |index: SpecialCharacterIndices| self.before.control_chars[index as usize];
        loop {
            let mut key = [0];
            let Ok(mut ready) = self.stdin.readable().await else {
                return std::future::pending().await;
            };
            let count = read(self.stdin.get_ref(), &mut key).unwrap_or_default();
            ready.clear_ready();
            match key[0] {
                // The terminal has hung up.
                _ if count == 0 => return None,
                b'q' | b'Q' => return None,
                key if key == key_of(SpecialCharacterIndices::VINTR) => {
                    return Some(Signal::SIGINT);
                }
                key if key == key_of(SpecialCharacterIndices::VQUIT) => {
                    return Some(Signal::SIGQUIT);
                }
                _ => {}
            }
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        let _ = tcsetattr(self.stdin.get_ref(), SetArg::TCSADRAIN, &self.before);
    }
}
