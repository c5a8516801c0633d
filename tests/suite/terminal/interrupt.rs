//! Ctrl-C: the command gets it once, and a loop around rlock stops.

use super::{CTRL_BACKSLASH, CTRL_C, FOR_EVER, UNTIL_ON, run, shell_has_the_terminal};
use crate::support::{RLOCK, Session};

#[test]
fn ctrl_c_reaches_the_command_exactly_once_whether_it_has_the_terminal_or_not() {
    let mut shell = Session::bash(RLOCK);
    let script = format!(
        "trap \"n=\\$((n+1)); echo hit \\$n.\" INT; trap \"echo \\$n in all; exit 0\" QUIT
        n=0; echo begins; {UNTIL_ON}; read x; echo read $x; {FOR_EVER}"
    );
    shell.line(&run(&script));
    shell.sees("begins");
    for hit in 1..=5 {
        shell.press(CTRL_C);
        shell.sees(&format!("hit {hit}."));
    }
    std::fs::write(shell.dir().join("on"), "").expect("a file");
    shell.line("line");
    shell.sees("read line");
    for hit in 6..=10 {
        shell.press(CTRL_C);
        shell.sees(&format!("hit {hit}."));
    }
    shell.press(CTRL_BACKSLASH);
    shell.sees("10 in all");
    shell.prompt();
    assert_eq!(shell.code(), 0);
}

#[test]
fn ctrl_c_that_kills_the_command_stops_the_loop_around_rlock() {
    // A shell that is about to fork may miss the signal, so the last process prints.
    let sleep = "sh -c \"echo runs; exec sleep 60\"";
    for script in [
        sleep,
        &format!("read x; {sleep}"),
        &format!("stty sane -echo; exec {sleep}"),
    ] {
        for interactive in [true, false] {
            let mut shell = Session::bash(RLOCK);
            let job = run(script);
            let text =
                format!("for host in a b c; do echo on $host; {job}; done; echo after the loop");
            if interactive {
                shell.line(&text);
            } else {
                std::fs::write(shell.dir().join("deploy"), text).expect("a script");
                shell.line("bash deploy");
            }
            shell.sees("on a");
            if script.contains("read") {
                shell.line("x");
            }
            shell.sees("runs");
            shell.press(CTRL_C);
            shell.prompt();
            assert_eq!(shell.code(), 130, "{script} {interactive}");
            assert!(!shell.seen().contains("on b"), "{}", shell.seen());
            assert!(!shell.seen().contains("after"), "{}", shell.seen());
            shell_has_the_terminal(&mut shell);
            assert_eq!(shell.answer("rlock run -n -k job -- echo free"), "free\n");
        }
    }
}

#[test]
fn ctrl_c_stops_the_loop_around_nested_rlocks_too() {
    for key in ["outer", "job"] {
        let mut shell = Session::bash(RLOCK);
        let job = format!("rlock run -k {key} -- {}", run("echo runs; exec sleep 60"));
        shell.line(&format!("for host in a b c; do echo on $host; {job}; done"));
        shell.sees("runs");
        shell.press(CTRL_C);
        shell.prompt();
        assert_eq!(shell.code(), 130, "{key}");
        assert!(!shell.seen().contains("on b"), "{}", shell.seen());
    }
}

#[test]
fn ctrl_c_ends_a_run_of_the_same_lock_that_the_command_left_and_the_loop_around_it() {
    let mut shell = Session::bash(RLOCK);
    let left = "rlock run -k job -- sh -c \"echo runs; exec sleep 60\" & read x; true";
    shell.line(&format!(
        "for host in a b c; do echo on $host; {}; done",
        run(left).replace("run -k", "run -v -k")
    ));
    shell.sees("runs");
    shell.line("");
    shell.sees("keeping the lock");
    shell.press(CTRL_C);
    shell.prompt();
    assert_eq!(shell.code(), 130);
    assert!(!shell.seen().contains("on b"), "{}", shell.seen());
    assert_eq!(shell.answer("rlock run -n -k job -- echo free"), "free\n");
}

#[test]
fn ctrl_c_while_rlock_waits_stops_the_loop_too() {
    let mut shell = Session::bash(RLOCK);
    shell.line(&format!("{} &", run("echo holds; exec sleep 60")));
    shell.sees("holds");
    shell.line("for host in a b c; do echo on $host; rlock run -v -k job -- echo ran; done");
    shell.sees("on a");
    shell.sees("waiting");
    shell.press(CTRL_C);
    shell.prompt();
    assert_eq!(shell.code(), 130);
    assert!(!shell.seen().contains("on b"));
}
