//! Signals to rlock: each reaches the command's whole group.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{RLOCK, Server, eventually, rlock};

#[test]
fn each_signal_reaches_the_whole_group_each_time() {
    let server = Server::start();
    let script = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo outer $s\" $s; done
        sh -c 'for s in HUP TERM USR1 USR2; do trap \"echo inner $s\" $s; done; echo inside; while :; do sleep 0.1; done' &
        while :; do sleep 0.1; done";
    let mut job = rlock("job").on(&server).args(["-c", script]).spawn();
    job.wait_for("inside");
    for _ in 0..3 {
        // A shell lets what it starts in the background ignore INT and QUIT.
        for (signal, lines) in [
            (Signal::SIGHUP, &["outer HUP", "inner HUP"][..]),
            (Signal::SIGINT, &["outer INT"]),
            (Signal::SIGQUIT, &["outer QUIT"]),
            (Signal::SIGTERM, &["outer TERM", "inner TERM"]),
            (Signal::SIGUSR1, &["outer USR1", "inner USR1"]),
            (Signal::SIGUSR2, &["outer USR2", "inner USR2"]),
        ] {
            job.signal(signal);
            job.wait_for_all(lines);
        }
    }
    assert!(job.is_running());
    assert_eq!(server.cli(&["EXISTS", "job"]), "1");
}

#[test]
fn an_alarm_that_was_set_before_rlock_ends_the_command_and_the_lock() {
    let server = Server::start();
    let holder = server.url();
    let alarmed = |seconds: u32, words: &str| {
        let script = format!("alarm {seconds}; exec @ARGV or die; # {words}");
        let mut perl = std::process::Command::new("perl");
        perl.args([
            "-e", &script, RLOCK, "run", "-k", "job", "--node", &holder, "--",
        ]);
        perl.args(["sh", "-c", words]).output().expect("perl")
    };
    let output = alarmed(5, "echo ran; exec sleep 60");
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(142), &b"ran\n"[..]),
        "{output:?}"
    );
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");

    let _holder = rlock("job").on(&server).hold("echo ready; read line");
    let output = alarmed(1, "echo ran");
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(142), &b""[..]),
        "{output:?}"
    );
}

#[test]
fn what_ends_a_process_by_default_reaches_the_command_and_leaves_no_lock() {
    let server = Server::start();
    for signal in [
        Signal::SIGALRM,
        Signal::SIGVTALRM,
        Signal::SIGPROF,
        Signal::SIGXCPU,
        Signal::SIGIO,
        Signal::SIGPWR,
    ] {
        let job = rlock("job").on(&server).hold("echo ready; exec sleep 60");
        job.signal(signal);
        job.finish().code(128 + signal as i32);
        assert_eq!(server.cli(&["EXISTS", "job"]), "0", "{signal}");
    }
}

#[test]
fn a_command_that_dies_of_a_passed_on_signal_gives_its_code_and_the_lock_back() {
    let server = Server::start();
    let job = rlock("job").on(&server).hold("echo ready; sleep 60");
    job.signal(Signal::SIGTERM);
    job.finish().code(143).silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn nohup_stays_in_force() {
    let server = Server::start();
    let script = format!(
        "trap '' HUP; exec {} run --key job --node {} -- sh -c 'echo ready; read x; echo alive'",
        RLOCK,
        server.url()
    );
    let mut shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("sh");
    eventually("it holds", || server.cli(&["EXISTS", "job"]) == "1");
    crate::support::signal(shell.id().cast_signed(), Signal::SIGHUP);
    drop(shell.stdin.take());
    let output = shell.wait_with_output().expect("its end");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ready\nalive\n");
}

#[test]
fn a_signal_is_obeyed_while_a_node_is_asked_for_an_outer_lock() {
    let server = Server::start();
    server.freeze();
    let run = rlock("job").on(&server).env("RLOCK_KEY", "job");
    let run = run.env("RLOCK_TOKEN", "5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f");
    let run = run
        .args(["--ttl", "60s", "--node-timeout", "8s", "--", "true"])
        .spawn();
    let caught = format!("/proc/{}/status", run.pid());
    eventually("TERM is caught", || {
        let status = std::fs::read_to_string(&caught).unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:\t"))
            .unwrap_or_default()
            .to_owned();
        u64::from_str_radix(&mask, 16).is_ok_and(|mask| mask & (1 << 14) != 0)
    });
    let begin = Instant::now();
    run.signal(Signal::SIGTERM);
    run.finish().code(143);
    assert!(
        begin.elapsed() < Duration::from_secs(5),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_command_that_a_real_time_signal_ends_is_128_plus_its_number() {
    let server = Server::start();
    for number in [34, 40, 64] {
        rlock("job")
            .on(&server)
            .sh(&format!("kill -{number} $$"))
            .code(128 + number)
            .silent();
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn an_orphan_that_a_real_time_signal_ends_hides_no_other_orphan() {
    let server = Server::start();
    // Each orphan exists until rlock has reaped it.
    let script = r#"
        reaped() {
            orphan=$(setsid sh -c "$1 >/dev/null & echo \$!")
            for i in $(seq 1000); do
                kill -0 $orphan 2>/dev/null || return 0
                sleep 0.01
            done
            ps -o pid,stat,args --ppid $PPID
        }
        reaped "sh -c 'sleep 0.1; kill -40 \$\$'"
        reaped "sleep 0.1""#;
    rlock("job")
        .on(&server)
        .args(["--contain"])
        .sh(script)
        .code(0)
        .printed(&[]);
}
