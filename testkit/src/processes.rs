//! Processes as the kernel shows them in `/proc`, and signals to them.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::wait::{eventually, until};

/// The unit of processor times in `/proc` (`USER_HZ`, 100 on the machines that rlock is for).
const TICK: Duration = Duration::from_millis(10);

/// Whether `pid` can still run; a zombie cannot.
pub fn alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether `pid` has been killed, though the kernel has not taken it down yet: it runs no
/// instruction any more.
pub fn is_killed(pid: i32) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 4;
    let is_exiting = stat(pid)
        .get(6)
        .and_then(|flags| flags.parse().ok())
        .is_none_or(|flags: u64| flags & EXITING != 0);
    is_exiting || is_pending(pid, Signal::SIGKILL)
}

/// Whether `pid` executes instructions, or will as soon as it has a processor: it is neither killed
/// nor stopped.
pub fn runs(pid: i32) -> bool {
    let is_stopped = matches!(state(pid), Some('T' | 't')) || is_pending(pid, Signal::SIGSTOP);
    !is_stopped && !is_killed(pid)
}

fn is_pending(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut pending = status.lines().filter_map(|line| {
        line.strip_prefix("SigPnd:")
            .or(line.strip_prefix("ShdPnd:"))
    });
    let has = |set: &str| {
        u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set & 1 << (signal as i32 - 1) != 0)
    };
    pending.any(has)
}

/// Returns the letter for the state of `pid`, as in proc(5): T for stopped.
pub fn state(pid: i32) -> Option<char> {
    stat(pid).first().and_then(|field| field.chars().next())
}

/// Stops `pid` (SIGSTOP), and waits until none of its threads runs: the kernel stops each by itself.
pub fn freeze(pid: i32) {
    signal(pid, Signal::SIGSTOP);
    let is_stopped = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        state.is_none_or(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
    };
    eventually("all threads are stopped", || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
        threads.flatten().flatten().all(is_stopped)
    });
}

/// Returns the parent of `pid`.
pub fn parent(pid: i32) -> i32 {
    stat(pid)
        .get(1)
        .and_then(|field| field.parse().ok())
        .unwrap_or_else(|| panic!("{pid} has ended"))
}

/// Returns the fields of `/proc/PID/stat` from the third on: state, parent, group, session. Empty
/// if there is no such process.
pub fn stat(pid: i32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ")
        .map(|(_, rest)| rest.split(' ').map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Returns the children of `pid`, of all its threads and zombies included.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let of = |thread: std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("children")).unwrap_or_default()
    };
    threads
        .flat_map(|thread| {
            of(thread)
                .split_whitespace()
                .flat_map(str::parse)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the name of `pid`, empty if it has ended.
pub fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the first child of `pid` whose name begins with `prefix`.
pub fn child_named(pid: i32, prefix: &str) -> Option<i32> {
    children(pid)
        .into_iter()
        .find(|child| name(*child).starts_with(prefix))
}

/// Waits for the guard of the rlock `pid`, and returns it.
pub fn guard_of(rlock: i32) -> i32 {
    next_guard(rlock, 0).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for a guard of the rlock `pid` other than `old`, and returns it.
pub fn next_guard(rlock: i32, old: i32) -> Result<i32> {
    let is_guard = |pid: &i32| *pid != old && name(*pid) == "rlock-guard";
    until("there is a guard", || {
        Ok(children(rlock).into_iter().find(is_guard))
    })
}

/// Takes the right to run before other processes from this one and what it executes. One without
/// the right keeps none.
pub fn give_up_priority() -> std::io::Result<()> {
    /// The number of `CAP_SYS_NICE` (capabilities(7)).
    const SYS_NICE: libc::c_ulong = 23;
    // SAFETY: it changes what this process may do.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, SYS_NICE) };
    Ok(())
}

/// Sends `which` to `pid`.
#[track_caller]
pub fn signal(pid: i32, which: Signal) {
    try_signal(pid, which).unwrap_or_else(|error| panic!("{error}"));
}

/// Sends `which` to `pid`; an error if there is no such process.
pub fn try_signal(pid: i32, which: Signal) -> Result<()> {
    kill(Pid::from_raw(pid), which).with_context(|| format!("{which} to {pid}"))
}

/// Has the call `epoll_wait` in which `pid` waits fail with EBADF, which no program expects.
/// Returns whether it was in one. This is a debugger's way: no fault outside of a process makes
/// that call fail.
#[cfg(target_arch = "x86_64")]
pub fn fail_epoll_wait(pid: i32) -> Result<bool> {
    let pid = Pid::from_raw(pid);
    ptrace::seize(pid, ptrace::Options::empty()).context("PTRACE_SEIZE")?;
    ptrace::interrupt(pid)?;
    waitpid(pid, None)?;
    let mut registers = ptrace::getregs(pid)?;
    // musl calls the second one.
    let calls = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
    let waits = calls.contains(&registers.orig_rax.cast_signed())
        && registers.rax.cast_signed() == -i64::from(libc::EINTR);
    if waits {
        registers.rax = (-i64::from(libc::EBADF)).cast_unsigned();
        ptrace::setregs(pid, registers)?;
    }
    ptrace::detach(pid, None)?;
    Ok(waits)
}

/// Stops `pid`, runs `begin`, follows `pid` until it makes the system call `last`, and returns the
/// numbers of those that it made before.
#[cfg(target_arch = "x86_64")]
pub fn calls_before(pid: i32, last: i64, begin: impl FnOnce()) -> Result<Vec<i64>> {
    let pid = Pid::from_raw(pid);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACESYSGOOD).context("PTRACE_SEIZE")?;
    ptrace::interrupt(pid)?;
    waitpid(pid, None)?;
    begin();
    let mut calls = Vec::new();
    loop {
        ptrace::syscall(pid, None)?;
        let stopped = waitpid(pid, None)?;
        let registers = ptrace::getregs(pid)?;
        // At the end of a call it would be what the call returns.
        let begins = registers.rax.cast_signed() == -i64::from(libc::ENOSYS);
        if begins && matches!(stopped, WaitStatus::PtraceSyscall(_)) {
            let call = i64::try_from(registers.orig_rax)?;
            if call == last {
                ptrace::detach(pid, None)?;
                return Ok(calls);
            }
            calls.push(call);
        }
    }
}

/// Returns a field of `/proc/PID/status` that is in kB (which there means KiB), in bytes.
pub fn memory(pid: i32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    kilobytes(&status, field).with_context(|| format!("no {field} of {pid}"))
}

/// Returns the memory in bytes of `pid` and all processes below it, except those named `except`.
/// Each page is divided by the number of processes that map it (PSS). A process that has ended
/// takes nothing.
pub fn memory_of_tree(pid: i32, except: &str) -> u64 {
    let proportional = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        kilobytes(&text, "Pss")
    };
    let own = if name(pid) == except {
        0
    } else {
        proportional().unwrap_or_default()
    };
    own + children(pid)
        .into_iter()
        .map(|child| memory_of_tree(child, except))
        .sum::<u64>()
}

/// Returns the processor time of `pid` and all processes below it. Those that have ended are
/// counted in ticks of the kernel, which are 10 ms.
pub fn processor_time_of_tree(pid: i32) -> Result<Duration> {
    let own = clock_getcpuclockid(Pid::from_raw(pid))?.now()?;
    let ended: u64 = stat(pid)
        .iter()
        .skip(13)
        .take(2)
        .flat_map(|ticks| ticks.parse::<u64>())
        .sum();
    let below = children(pid).into_iter();
    // One of them may have ended meanwhile.
    let below: Duration = below.flat_map(processor_time_of_tree).sum();
    Ok(Duration::from(own) + TICK * u32::try_from(ended)? + below)
}

fn kilobytes(text: &str, field: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
