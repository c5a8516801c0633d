//! The guard's turn on a processor. A lease ends by the clock, however many processes want to run on this host.

use std::io;

use nix::sys::resource::{Resource, getrlimit};

/// The shortest slice that the kernel gives (sched(7)), in ns.
const SHORTEST_SLICE: u64 = 100_000;

/// Gives this process the lowest real-time priority, so that it runs before ordinary ones when it wakes. Without a right to that it asks
/// for the shortest slice, whose turn comes sooner. Linux has slices for all users since 6.12.
///
/// Under a seccomp filter it does neither. A filter may kill the guard for the call, as systemd's `SystemCallFilter=~@resources` does.
pub(super) fn raise() {
    // SAFETY: it returns a number.
    let is_filtered = unsafe { libc::prctl(libc::PR_GET_SECCOMP) } > 0;
    let Some(own) = own().filter(|own| !is_filtered && is_ordinary(own)) else { return };
    let real_time = libc::sched_attr { sched_policy: REAL_TIME, sched_nice: 0, sched_priority: 1, ..own };
    if is_limited() || set(&real_time).is_err() {
        let _ = set(&libc::sched_attr { sched_policy: ORDINARY, sched_runtime: SHORTEST_SLICE, ..own });
    }
}

const ORDINARY: u32 = libc::SCHED_OTHER.cast_unsigned();
const REAL_TIME: u32 = libc::SCHED_RR.cast_unsigned();

/// Whether the kernel schedules it by shares. A policy above that was the user's choice, and stays.
fn is_ordinary(own: &libc::sched_attr) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].map(i32::cast_unsigned).contains(&own.sched_policy)
}

/// Whether the kernel kills a real-time process that runs for long.
fn is_limited() -> bool {
    getrlimit(Resource::RLIMIT_RTTIME).is_ok_and(|(soft, _)| soft != libc::RLIM_INFINITY)
}

fn own() -> Option<libc::sched_attr> {
    // SAFETY: it consists of numbers.
    let mut own: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most that many bytes.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, size_of_val(&own), 0) };
    (got == 0).then_some(own)
}

fn set(wanted: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `size` says, which is its own version's or fewer.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *wanted, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
