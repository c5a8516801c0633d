//! A guard acts at its deadline, however many processes want to run.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use nix::sys::signal::Signal;
#[cfg(target_arch = "x86_64")]
use testkit::processes::calls_before;

use super::Witness;
use crate::support::{Running, Server, eventually, guard_of, rlock, state};

/// Number of the capability to be run at any priority (capabilities(7)).
const SYS_NICE: libc::c_ulong = 23;

/// How the kernel schedules `pid`: its real-time priority and its policy (proc(5): `rt_priority`, `policy`).
fn scheduled(pid: i32) -> (u32, i32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    (fields[37].parse().expect("a priority"), fields[38].parse().expect("a policy"))
}

/// How a guard is scheduled that may have what it asks for: by real time only if this process may.
fn at_best() -> (u32, i32) {
    let may = Command::new("chrt").args(["--rr", "1", "true"]).output().expect("chrt").status.success();
    if may { (1, libc::SCHED_RR) } else { (0, libc::SCHED_OTHER) }
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
    let witness = Witness::start(&server.url(), &["--ttl", "2s"]);
    witness.rlock.signal(Signal::SIGSTOP);
    let calls = calls_before(witness.guard(), libc::SYS_kill).expect("its calls");
    assert!(!calls.iter().any(|call| [libc::SYS_open, libc::SYS_openat, libc::SYS_read].contains(call)), "{calls:?}");
    witness.dies();
}

#[test]
fn a_guard_runs_before_others_where_it_may_and_the_command_does_not() {
    let server = Server::start();
    let witness = Witness::start(&server.url(), &[]);
    let guard = witness.guard();
    eventually("it runs before others", || scheduled(guard) == at_best());
    assert_eq!(scheduled(witness.leader), (0, libc::SCHED_OTHER));
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
    eventually("it runs before others", || scheduled(guard) == at_best());
    job.finish().code(0);
}

#[test]
fn a_guard_without_the_right_asks_for_short_slices() {
    let server = Server::start();
    let job = hold(&server, || {
        // SAFETY: it takes rights from this process. One that has none cannot take them either.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, SYS_NICE) };
        Ok(())
    });
    let guard = guard_of(job.pid());
    assert_eq!(scheduled(guard), (0, libc::SCHED_OTHER));
    // Linux shows the slice since it lets anyone ask for one.
    let shown = |pid| {
        let all = std::fs::read_to_string(format!("/proc/{pid}/sched")).unwrap_or_default();
        all.lines()
            .find(|line| line.starts_with("se.slice "))
            .and_then(|line| line.split(' ').next_back()?.parse().ok())
    };
    if let Some(usual) = shown(job.pid()) {
        assert!(usual > 100_000_u64, "{usual}");
        eventually("it has the shortest slice", || shown(guard) == Some(100_000));
    }
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
        let asking =
            [libc::SYS_sched_setattr, libc::SYS_sched_setscheduler].map(|call| u32::try_from(call).unwrap_or_default());
        let mut steps = [
            libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 },
            libc::sock_filter { code: compare, jt: 1, jf: 0, k: asking[0] },
            libc::sock_filter { code: compare, jt: 0, jf: 1, k: asking[1] },
            libc::sock_filter { code: ret, jt: 0, jf: 0, k: libc::SECCOMP_RET_KILL_PROCESS },
            libc::sock_filter { code: ret, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
        ];
        let program = libc::sock_fprog { len: 5, filter: steps.as_mut_ptr() };
        // SAFETY: the kernel copies the program.
        let set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if set { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
    // The filter does what it says.
    let chrt = |words: [&str; 3]| {
        let mut chrt = Command::new("chrt");
        // SAFETY: system calls alone.
        unsafe { chrt.args(words).pre_exec(filter) };
        chrt.output().expect("chrt").status
    };
    assert_eq!(chrt(["--rr", "1", "true"]).signal(), Some(libc::SIGSYS));
    let server = Server::start();
    let job = hold(&server, filter);
    let guard = guard_of(job.pid());
    eventually("it waits", || state(guard) == Some('S'));
    assert_eq!(scheduled(guard), (0, libc::SCHED_OTHER));
    assert_eq!(guard_of(job.pid()), guard);
    job.finish().code(0).silent();
}
