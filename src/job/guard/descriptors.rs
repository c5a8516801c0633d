//! Closes the descriptors that a guard inherits from rlock: its output, whose readers wait for its end, and its connections.

use std::os::fd::RawFd;

use nix::sys::resource::{Resource, getrlimit};

/// Descriptors that a guard tries to close if it cannot see which are open: Linux' own default limit (`fs.nr_open`).
const MAX_DESCRIPTORS: RawFd = 1 << 20;

pub(super) fn close_all_but(mut kept: Vec<RawFd>) {
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the guard uses none of these descriptors, and runs no destructor of their owners.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == -1 {
        // Before Linux 5.9, or denied by a seccomp filter.
        close_each(first, last);
    }
}

fn close_each(first: RawFd, last: RawFd) {
    for fd in open_descriptors().into_iter().filter(|fd| (first..=last).contains(fd)) {
        // SAFETY: as in `close_range`; closing a closed one is EBADF.
        unsafe { libc::close(fd) };
    }
}

/// Returns the open descriptors; all that may be open, if /proc cannot be read.
fn open_descriptors() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard);
        return (0..RawFd::try_from(limit).unwrap_or(RawFd::MAX).min(MAX_DESCRIPTORS)).collect();
    };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::resource::setrlimit;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, dup, fork};

    use super::*;

    #[test]
    fn descriptors_of_any_number_are_closed_one_by_one() {
        // SAFETY: the child makes system calls, uses the allocator, and ends.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
                setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
                let high = RawFd::try_from(hard.min(60_000)).unwrap() - 1;
                // SAFETY: the number is a new descriptor, which is used by its number alone.
                let made = unsafe { libc::dup2(2, high) };
                let low = dup(std::io::stderr()).unwrap();
                close_each(low.as_raw_fd(), RawFd::MAX);
                // SAFETY: it reads a flag.
                let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1;
                let bad = made != high || is_open(high) || is_open(low.as_raw_fd()) || !is_open(2);
                // SAFETY: ends the process, which is a copy of the tests'.
                unsafe { libc::_exit(i32::from(bad)) };
            }
            ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
        }
    }
}
