//! The guard's turn on a processor. A lease ends by the clock, however many processes want to run on this host.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// The shortest slice that the kernel gives (sched(7)), in ns.
const SHORTEST_SLICE: u64 = 100_000;

/// The nice value of the largest share.
const LEAST_NICE: i32 = -20;

/// Shortens the waits of this process for a processor. It asks for the shortest slice, which Linux gives any user since 6.12, and for
/// the largest share, which takes root, `CAP_SYS_NICE` or `RLIMIT_NICE`. Some kernels share out processors among sessions first
/// (`sched_autogroup`), so this session, the guard's own, is to have that share too.
///
/// It takes no real-time priority. A command with a higher one could keep the guard from running for ever, and a control group without
/// real-time tasks could not take in the guard.
///
/// Under a seccomp filter it asks for nothing: a filter may kill the guard for it, as systemd's `SystemCallFilter=~@resources` does.
pub(super) fn raise() {
    // SAFETY: it returns a number.
    if unsafe { libc::prctl(libc::PR_GET_SECCOMP) } > 0 {
        return;
    }
    let Some(own) = own().filter(is_ordinary) else { return };
    let session = OpenOptions::new().write(true).open("/proc/self/autogroup");
    let _ = session.and_then(|mut session| session.write_all(LEAST_NICE.to_string().as_bytes()));
    let short = libc::sched_attr { sched_policy: ORDINARY, sched_runtime: SHORTEST_SLICE, ..own };
    let _ = set(&libc::sched_attr { sched_nice: LEAST_NICE, ..short }).or_else(|_| set(&short));
}

const ORDINARY: u32 = libc::SCHED_OTHER.cast_unsigned();

/// Whether the kernel schedules it by shares. A policy above that was the user's choice, and stays.
fn is_ordinary(own: &libc::sched_attr) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].map(i32::cast_unsigned).contains(&own.sched_policy)
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
