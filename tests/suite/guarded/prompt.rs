//! A guard acts at its deadline, however many processes want to run.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use nix::sys::signal::Signal;
#[cfg(target_arch = "x86_64")]
use testkit::processes::calls_before;
use testkit::processes::{give_up_priority, stat};

use super::Witness;
use crate::support::{Running, Server, eventually, guard_of, rlock, skipped, state};

/// How the kernel schedules `pid`: its nice value, its real-time priority and its policy (proc(5):
/// `nice`, `rt_priority`, `policy`).
fn scheduled(pid: i32) -> [i32; 3] {
    let fields = stat(pid);
    [16, 37, 38].map(|place| fields[place].parse().expect("a number"))
}

/// How an ordinary process with this nice value is scheduled.
fn ordinary(nice: i32) -> [i32; 3] {
    [nice, 0, libc::SCHED_OTHER]
}

/// How the guard of a run with the nice value `nice` is scheduled: before others, if this process
/// has the right to that.
fn at_best(nice: i32) -> [i32; 3] {
    let may = Command::new("nice")
        .args(["-n", "-20", "nice"])
        .output()
        .expect("nice")
        .stdout
        == b"-20\n";
    ordinary(if may && !is_filtered() { -20 } else { nice })
}

/// Whether this process has a seccomp filter, and so has each guard that it starts.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("its state");
    !status.lines().any(|line| line == "Seccomp:\t0")
}

/// Returns a job that holds its lock, run by a process that was changed by `change` before.
fn hold(server: &Server, change: fn() -> io::Result<()>) -> Running {
    let job = rlock("job").on(server).with(|command| {
        // SAFETY: system calls alone.
        unsafe { command.pre_exec(change) };
    });
    job.hold("echo ready; read line; true")
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_guard_stops_the_command_before_it_looks_at_anything() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &["--ttl", "6s"]);
    let stop_rlock = || witness.rlock.signal(Signal::SIGSTOP);
    let calls = calls_before(witness.guard(), libc::SYS_kill, stop_rlock).expect("its calls");
    assert!(
        !calls
            .iter()
            .any(|call| [libc::SYS_open, libc::SYS_openat, libc::SYS_read].contains(call)),
        "{calls:?}"
    );
    witness.dies();
}

#[test]
fn a_guard_runs_before_others_where_it_may_and_the_command_does_not() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &[]);
    let guard = witness.guard();
    eventually("it runs before others", || scheduled(guard) == at_best(0));
    assert_eq!(scheduled(witness.leader), ordinary(0));
}

#[test]
fn a_guard_of_a_nice_rlock_runs_before_others_too() {
    let server = Server::start();
    let job = hold(&server, || {
        // SAFETY: it changes this process' own share.
        unsafe { libc::nice(19) };
        Ok(())
    });
    let guard = guard_of(job.pid());
    eventually("it runs before others", || scheduled(guard) == at_best(19));
    job.finish().code(0);
}

#[test]
fn a_guard_of_a_real_time_rlock_stays_one() {
    let server = Server::start();
    let job = hold(&server, || {
        let wanted = libc::sched_param { sched_priority: 2 };
        // SAFETY: it reads a number. Without the right to it the run stays an ordinary one.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const wanted) };
        Ok(())
    });
    let [_, priority, policy] = scheduled(job.pid());
    if priority == 0 {
        return skipped("this process has no right to real time");
    }
    eventually("its guard waits", || {
        state(guard_of(job.pid())) == Some('S')
    });
    assert_eq!(scheduled(guard_of(job.pid()))[1..], [2, policy]);
    job.finish().code(0);
}

#[test]
fn a_guard_without_the_right_goes_on_without() {
    let server = Server::start();
    let job = hold(&server, give_up_priority);
    assert_eq!(scheduled(guard_of(job.pid())), ordinary(0));
    job.finish().code(0);
}

#[test]
fn a_guard_under_a_filter_that_kills_for_asking_lives() {
    fn filter() -> io::Result<()> {
        let code = |code: u32| u16::try_from(code).unwrap_or_default();
        let [load, compare, ret] = [
            code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS),
            code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            code(libc::BPF_RET | libc::BPF_K),
        ];
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let asks =
            |call: libc::c_long| step(compare, 0, 1, u32::try_from(call).unwrap_or_default());
        let dies = step(ret, 0, 0, libc::SECCOMP_RET_KILL_PROCESS);
        let mut steps = [
            step(load, 0, 0, 0),
            asks(libc::SYS_sched_setattr),
            dies,
            asks(libc::SYS_sched_setscheduler),
            dies,
            asks(libc::SYS_setpriority),
            dies,
            step(ret, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: u16::try_from(steps.len()).unwrap_or_default(),
            filter: steps.as_mut_ptr(),
        };
        // SAFETY: the kernel copies the program.
        let set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        if set {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
    // The filter does what it says.
    let mut chrt = Command::new("chrt");
    // SAFETY: system calls alone.
    unsafe { chrt.args(["--rr", "1", "true"]).pre_exec(filter) };
    assert_eq!(
        chrt.output().expect("chrt").status.signal(),
        Some(libc::SIGSYS)
    );
    let server = Server::start();
    let job = hold(&server, filter);
    let guard = guard_of(job.pid());
    eventually("it waits", || state(guard) == Some('S'));
    assert_eq!(scheduled(guard), ordinary(0));
    assert_eq!(guard_of(job.pid()), guard);
    job.finish().code(0).silent();
}
