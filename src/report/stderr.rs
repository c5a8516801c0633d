//! Writes to stderr: a short queue, and a thread that empties it.
//!
//! A write to a pipe or a terminal can block, whatever poll(2) said: POLLOUT promises some room,
//! not room for a line. So the thread that renews, waits and starts the command never writes. It
//! queues a line, or drops it if the queue is full. The writer starts with the first line: a silent
//! run has one thread.
//!
//! Opening /proc/self/fd/2 again with `O_NONBLOCK` is no alternative. Sockets and other users'
//! terminals cannot be opened that way, a file would get an offset of its own, and /proc may be
//! missing.
//!
//! The writer touches its queue and descriptor 2, and gets no signal. It may run while a child
//! shares rlock's memory (`job::spawn`), and when a guard is forked (`job::guard`): neither of
//! these prints.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{getpgrp, tcgetpgrp};

use super::{Event, Log};
use crate::clock;
use crate::job::signals::spawn_thread;

/// Capacity of the queue in bytes, that of a pipe. A longer line is taken if the queue is empty.
const ROOM: usize = 64 * 1024;

/// Text that erases the line of the cursor.
const ERASURE: &str = "\r\x1b[K";

/// Size of the writer's stack: it calls write(2) and frees lines.
const STACK: usize = 64 * 1024;

/// Longest wait for a reader at the end. A waiter that gets a TERM must exit within a second, in
/// which it also leaves the nodes' queues.
const LAST: Duration = Duration::from_millis(500);

/// Longest wait for a writer that the kernel does not run: beside many busy processes its start
/// alone took more than [`LAST`].
const STARVED: Duration = Duration::from_secs(10);

/// Longest wait for lines before another process prints: far more than a terminal needs for a line,
/// and little beside the shortest lease.
const ORDER: Duration = Duration::from_millis(50);

/// Lines to be written.
#[derive(Debug)]
struct LineQueue {
    /// The first one stays until it is written.
    lines: VecDeque<String>,
    /// Number of lines dropped since the last notice, and the form of that notice.
    dropped: Option<(u64, Log)>,
    /// Whether a status line is drawn, which must go before any other line comes.
    is_drawn: bool,
    /// Whether the first line is being written: then its reader is what takes time.
    is_writing: bool,
}

impl LineQueue {
    const fn new() -> Self {
        Self {
            lines: VecDeque::new(),
            dropped: None,
            is_drawn: false,
            is_writing: false,
        }
    }

    /// Whether everything is written.
    fn is_idle(&self) -> bool {
        self.lines.is_empty() && self.dropped.is_none()
    }

    /// Adds `line`, or drops it if the queue is full. After that all lines are dropped until the
    /// queue is empty, so that one notice counts them all.
    fn offer(&mut self, line: String, log: Log) {
        let bytes: usize = self.lines.iter().map(String::len).sum();
        match self.dropped {
            Some((count, _)) => self.dropped = Some((count + 1, log)),
            None if bytes > 0 && bytes + line.len() > ROOM => self.dropped = Some((1, log)),
            None => self.insist(line),
        }
    }

    /// Adds `line`, however full the queue is.
    fn insist(&mut self, line: String) {
        self.lines.push_back(line);
    }

    /// Erases the status line, if there is one. `is_ours`: the line of the cursor is not another
    /// job's.
    fn erase(&mut self, is_ours: impl FnOnce() -> bool) {
        if std::mem::take(&mut self.is_drawn) && is_ours() {
            self.insist(ERASURE.to_owned());
        }
    }

    /// Returns the next line to write; after the last one, the notice of those dropped.
    fn next(&mut self) -> Option<String> {
        if self.lines.is_empty()
            && let Some((count, log)) = self.dropped.take()
        {
            self.insist(super::line(log, &Event::Dropped { count }, None));
        }
        self.lines.front().cloned()
    }
}

/// The queue, and those who wait for a change of it.
struct Output {
    queue: Mutex<LineQueue>,
    changed: Condvar,
}

impl Output {
    const fn new() -> Self {
        Self {
            queue: Mutex::new(LineQueue::new()),
            changed: Condvar::new(),
        }
    }

    fn locked(&self) -> MutexGuard<'_, LineQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is queued, and never returns.
    fn run(&self, write: impl Fn(&str)) {
        let mut queue = self.locked();
        loop {
            let Some(line) = queue.next() else {
                queue = self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            queue.is_writing = true;
            self.changed.notify_all();
            drop(queue);
            write(&line);
            queue = self.locked();
            queue.is_writing = false;
            queue.lines.pop_front();
            self.changed.notify_all();
        }
    }

    /// Waits until all is written. The reader gets `limit` at most. Time in which the writer does
    /// not run is not the reader's.
    fn finish(&self, limit: Duration) {
        let (begun, mut left) = (clock::now(), limit);
        let mut queue = self.locked();
        while !queue.is_idle() && !left.is_zero() && clock::now() < begun + STARVED {
            let (is_writing, since) = (queue.is_writing, clock::now());
            let longest = if is_writing { left } else { STARVED };
            queue = self
                .changed
                .wait_timeout(queue, longest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if is_writing {
                left = left.saturating_sub(clock::now().since(since));
            }
        }
    }
}

static STDERR: Output = Output::new();

/// The process whose writer runs; `None` if it could not be started. A fork inherits this, but no
/// writer.
static PROCESS: OnceLock<Option<u32>> = OnceLock::new();

/// Queues a line, unless the queue is full.
pub(super) fn line(line: String, log: Log) {
    queue(line, |queue, line| {
        queue.erase(is_in_the_foreground);
        queue.offer(line, log);
    });
}

/// Queues a line that must not be dropped.
pub(super) fn last_line(line: String) {
    queue(line, |queue, line| {
        queue.erase(is_in_the_foreground);
        queue.insist(line);
    });
}

/// Draws the status line in place of the last one, unless lines wait for a terminal that is not
/// read.
pub(super) fn draw(text: &str) {
    queue(format!("\r{text}\x1b[K"), |queue, line| {
        if queue.is_idle() {
            queue.insist(line);
            queue.is_drawn = true;
        }
    });
}

/// Erases the status line.
pub(super) fn erase() {
    if PROCESS.get().is_some() {
        queue(String::new(), |queue, _| {
            queue.erase(is_in_the_foreground);
        });
    }
}

/// Whether this job has the terminal. In the background the cursor's line belongs to another job.
pub(super) fn is_in_the_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

/// Waits for queued lines to be written before another process prints. The lock is held, so any
/// other delay counts too.
pub fn settle() {
    if has_writer() {
        let _ = STDERR
            .changed
            .wait_timeout_while(STDERR.locked(), ORDER, |queue| !queue.is_idle());
    }
}

/// Waits for queued lines to be written before the process ends. A reader that has stopped reading
/// cannot delay it for long.
pub fn finish() {
    if has_writer() {
        STDERR.finish(LAST);
    }
}

fn queue(line: String, add: impl FnOnce(&mut LineQueue, String)) {
    match PROCESS.get_or_init(start) {
        Some(_) if has_writer() => {
            add(&mut STDERR.locked(), line);
            STDERR.changed.notify_all();
        }
        // A guard has no writer, and its descriptors are closed.
        Some(_) => {}
        None => write_at_once(&line),
    }
}

/// Whether this process has started its writer.
fn has_writer() -> bool {
    PROCESS.get() == Some(&Some(std::process::id()))
}

/// Starts the writer.
fn start() -> Option<u32> {
    spawn_thread("rlock-stderr", STACK, || STDERR.run(write))
        .ok()
        .map(|()| std::process::id())
}

/// One write, so that lines of several rlocks do not mix. An unwritable stderr changes nothing
/// else.
fn write(line: &str) {
    let stderr = io::stderr();
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match nix::unistd::write(&stderr, rest) {
            Ok(0) => return,
            Ok(count) => rest = &rest[count..],
            Err(nix::Error::EINTR) => {}
            // Another process has set O_NONBLOCK for all that share the terminal.
            Err(nix::Error::EAGAIN) => {
                let _ = poll(
                    &mut [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)],
                    PollTimeout::NONE,
                );
            }
            Err(_) => return,
        }
    }
}

/// Writes a line by one write, or not at all where the reader has stopped. A longer one is cut to
/// what a pipe that is writable takes at once (pipe(7)).
pub(super) fn write_at_once(line: &str) {
    let stderr = io::stderr();
    let mut room = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut room, PollTimeout::ZERO) == Ok(1) {
        let _ = nix::unistd::write(&stderr, &line.as_bytes()[..line.len().min(libc::PIPE_BUF)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(letter: &str) -> String {
        letter.repeat(ROOM / 4)
    }

    /// Takes and writes all that is queued.
    fn written(queue: &mut LineQueue) -> Vec<String> {
        std::iter::from_fn(|| {
            queue.next()?;
            queue.lines.pop_front()
        })
        .collect()
    }

    #[test]
    fn a_full_queue_drops_lines_and_says_once_how_many() {
        let mut queue = LineQueue::new();
        for letter in ["a", "b", "c", "d", "e", "f"] {
            queue.offer(line(letter), Log::Text);
        }
        let first = queue.next().unwrap();
        queue.lines.pop_front();
        queue.offer("short\n".to_owned(), Log::Text);
        let rest = written(&mut queue);
        assert_eq!(first, line("a"));
        assert_eq!(rest[..3], ["b", "c", "d"].map(line));
        assert_eq!(
            rest[3..],
            ["rlock: 3 lines were dropped: stderr was not read\n".to_owned()]
        );
        assert!(queue.is_idle());
        queue.offer(line("g"), Log::Text);
        assert_eq!(written(&mut queue), [line("g")]);
    }

    #[test]
    fn a_line_that_is_being_written_takes_its_room() {
        let mut queue = LineQueue::new();
        queue.offer("x".repeat(ROOM + 1), Log::Text);
        queue.next().unwrap();
        assert!(!queue.is_idle());
        queue.offer("dropped\n".to_owned(), Log::Json);
        queue.lines.pop_front();
        let notice: String = written(&mut queue).into_iter().collect();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&notice).unwrap()["event"],
            "dropped"
        );
    }

    #[test]
    fn a_status_line_is_erased_once_before_any_other_line_and_only_where_it_is_ours() {
        let mut queue = LineQueue::new();
        queue.erase(|| true);
        assert!(queue.is_idle());
        for (is_ours, erased) in [(true, vec![ERASURE.to_owned()]), (false, Vec::new())] {
            queue.is_drawn = true;
            queue.erase(|| is_ours);
            queue.erase(|| true);
            assert_eq!(written(&mut queue), erased);
        }
    }

    #[test]
    fn the_last_line_is_kept_however_full_the_queue_is() {
        let mut queue = LineQueue::new();
        for _ in 0..9 {
            queue.offer(line("a"), Log::Text);
        }
        queue.insist("failed\n".to_owned());
        let all = written(&mut queue);
        let last = [
            "failed\n",
            "rlock: 5 lines were dropped: stderr was not read\n",
        ]
        .map(str::to_owned);
        assert_eq!(all[all.len() - 2..], last);
    }

    #[test]
    fn a_writer_that_does_not_run_yet_is_waited_for_and_a_reader_is_not() {
        static LATE: Output = Output::new();
        LATE.locked().insist("last\n".to_owned());
        let reader = Duration::from_millis(1);
        let end = std::thread::spawn(move || {
            LATE.finish(reader);
            LATE.locked().is_idle()
        });
        // The end waits for several times the reader's limit before there is a writer. A shorter
        // time would show less.
        std::thread::sleep(reader * 50);
        let (stopped, waits) = std::sync::mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        std::thread::spawn(move || {
            LATE.run(|line| {
                if line == "unread\n" {
                    let _ = waits.lock().unwrap().recv();
                }
            });
        });
        assert!(end.join().unwrap(), "the line was not written");
        LATE.locked().insist("unread\n".to_owned());
        LATE.changed.notify_all();
        LATE.finish(reader);
        assert!(!LATE.locked().is_idle(), "the reader was waited for");
        drop(stopped);
    }
}
