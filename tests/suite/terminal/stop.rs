//! Ctrl-Z, `fg` and `bg`: rlock and the command stop and continue together, within the lease.

use super::{CTRL_Z, UNTIL_GO, job_is, run, shell_has_the_terminal, start};
use crate::support::{RLOCK, Server, Session, eventually, is_killed, parent, state};

#[test]
fn ctrl_z_stops_both_with_the_lock_held_and_fg_brings_both_back() {
    for with_terminal in [false, true] {
        let mut shell = Session::bash(RLOCK);
        let (command, rlock) = start(&mut shell, with_terminal);
        for _ in 0..3 {
            shell.press(CTRL_Z);
            shell.prompt();
            assert_eq!((state(command), state(rlock)), (Some('T'), Some('T')));
            let jobs = shell.answer("jobs");
            assert!(jobs.contains("Stopped  "), "{jobs}");
            shell_has_the_terminal(&mut shell);
            shell.line("rlock run -n -k job -- echo ran");
            shell.sees("busy");
            shell.prompt();
            assert_eq!(shell.code(), 75);
            shell.line("fg");
            eventually("it goes on", || {
                state(command) != Some('T') && state(rlock) != Some('T')
            });
            assert_eq!(shell.foreground() == command, with_terminal);
        }
        shell.go();
        shell.sees("went on");
        shell.prompt();
        assert_eq!(shell.code(), 0);
        shell_has_the_terminal(&mut shell);
    }
}

#[test]
fn a_command_that_had_the_terminal_reads_on_after_fg() {
    let mut shell = Session::bash(RLOCK);
    shell.line(&run("read x; echo got $x; read y; echo and $y"));
    shell.line("one");
    shell.sees("got one");
    shell.press(CTRL_Z);
    shell.prompt();
    shell.line("fg");
    shell.line("two");
    shell.sees("and two");
    shell.prompt();
    assert_eq!(shell.code(), 0);
}

#[test]
fn ctrl_z_of_a_pipeline_or_a_script_stops_all_of_it() {
    for read in [false, true] {
        let mut shell = Session::bash(RLOCK);
        let terminal = if read { "read x < /dev/tty; " } else { "" };
        let job = run(&format!(
            "{terminal}echo pid $$ >&2; {UNTIL_GO}; echo went on"
        ));
        std::fs::write(
            shell.dir().join("script"),
            format!("{job} | cat; echo and after"),
        )
        .expect("a script");
        shell.line("bash script");
        if read {
            shell.line("x");
        }
        let command = shell.number("pid ");
        let rlock = parent(command);
        shell.press(CTRL_Z);
        shell.prompt();
        eventually("both are stopped", || {
            (state(command), state(rlock)) == (Some('T'), Some('T'))
        });
        shell.line("fg");
        shell.go();
        shell.sees("went on");
        shell.sees("and after");
        shell.prompt();
    }
}

#[test]
fn bg_lets_both_go_on_and_leaves_the_terminal_with_the_shell() {
    for with_terminal in [false, true] {
        let mut shell = Session::bash(RLOCK);
        let (command, rlock) = start(&mut shell, with_terminal);
        shell.press(CTRL_Z);
        shell.prompt();
        shell.answer("bg");
        eventually("it goes on", || {
            state(command) != Some('T') && state(rlock) != Some('T')
        });
        shell_has_the_terminal(&mut shell);
        shell.go();
        shell.line("wait $!; echo code $?");
        shell.sees("went on");
        shell.sees("code 0");
        shell.prompt();
        shell_has_the_terminal(&mut shell);
    }
}

#[test]
fn a_program_that_stops_itself_gives_the_terminal_up() {
    // nano does this, and a shell's `suspend`.
    for signal in ["STOP", "TSTP", "TTIN", "TTOU"] {
        let mut shell = Session::bash(RLOCK);
        shell.line(&run(&format!(
            "read x; echo stops; kill -{signal} 0; echo goes on; read y; echo got $y"
        )));
        shell.line("x");
        shell.sees("stops");
        // It has the terminal, so that TTIN and TTOU do not stop it.
        if !signal.starts_with("TT") {
            shell.prompt();
            shell_has_the_terminal(&mut shell);
            shell.line("fg");
        }
        shell.sees("goes on");
        shell.line("line");
        shell.sees("got line");
        shell.prompt();
    }
}

#[test]
fn ctrl_z_held_past_the_lease_means_the_command_is_dead_before_the_lock_is_free_and_79() {
    hold_past_the_lease(false, "fg");
}

#[test]
fn ctrl_z_held_past_the_lease_means_the_same_for_a_command_with_the_terminal() {
    hold_past_the_lease(true, "fg");
}

#[test]
fn ctrl_z_held_past_the_lease_means_the_same_in_the_background() {
    hold_past_the_lease(true, "bg; wait $!");
}

fn hold_past_the_lease(with_terminal: bool, back: &str) {
    let server = Server::start();
    let mut shell = Session::bash_on(RLOCK, &server);
    // A twentieth of the lease is left for the guard to run on a busy machine.
    shell.answer("export RLOCK_TTL=10s");
    let (command, rlock) = start(&mut shell, with_terminal);
    shell.press(CTRL_Z);
    shell.prompt();
    eventually("the command is dead", || {
        // In this order: if the lock is free at the first look, it is free when the command is
        // looked at.
        let free = server.cli(&["EXISTS", "job"]) == "0";
        let can_run = !is_killed(command);
        assert!(!(free && can_run), "the lock is free and the command alive");
        !can_run
    });
    assert_eq!(state(rlock), Some('T'));
    eventually("the lock is free", || server.cli(&["EXISTS", "job"]) == "0");
    shell.line(back);
    shell.sees("job: lost the lock");
    shell.prompt();
    assert_eq!(shell.code(), 79);
    assert!(!shell.seen().contains("\nwent on"));
    shell_has_the_terminal(&mut shell);
}

#[test]
fn after_fg_within_the_lease_it_is_renewed_again() {
    let server = Server::start();
    let mut shell = Session::bash_on(RLOCK, &server);
    let (command, _) = start(&mut shell, true);
    shell.press(CTRL_Z);
    shell.prompt();
    shell.answer("jobs");
    server.cli(&["PEXPIRE", "job", "15000"]);
    shell.line("fg");
    eventually("it goes on", || state(command) != Some('T'));
    eventually("it was renewed", || {
        server.cli(&["PTTL", "job"]).parse::<u32>().expect("a time") > 20_000
    });
    shell.go();
    shell.sees("went on");
    shell.prompt();
    assert_eq!(shell.code(), 0);
}

#[test]
fn in_the_background_a_command_that_reads_stops_until_fg() {
    let mut shell = Session::bash(RLOCK);
    shell.answer(&format!("{} &", run("echo $$ > pid; read x; echo got $x")));
    job_is(&mut shell, "Stopped (tty input)");
    let command = std::fs::read_to_string(shell.dir().join("pid"))
        .expect("its pid")
        .trim()
        .parse()
        .expect("a pid");
    let rlock = parent(command);
    for _ in 0..3 {
        job_is(&mut shell, "Stopped (tty input)");
        assert_eq!((state(command), state(rlock)), (Some('T'), Some('T')));
        shell_has_the_terminal(&mut shell);
        shell.answer("bg");
    }
    job_is(&mut shell, "Stopped (tty input)");
    shell.line("fg");
    shell.line("line");
    shell.sees("got line");
    shell.prompt();
    assert_eq!(shell.code(), 0);
}

#[test]
fn ctrl_z_without_a_shell_that_could_say_fg_changes_nothing() {
    // As with `ssh -t host rlock run …`: no shell could continue it, so the kernel does not stop
    // it.
    for read in ["", "read w; "] {
        let script = format!("{read}echo ready; {UNTIL_GO}; read x; echo got $x");
        let mut session = Session::of(
            RLOCK,
            &["rlock", "run", "-k", "job", "--", "sh", "-c", &script],
        );
        if !read.is_empty() {
            session.line("word");
        }
        session.sees("ready");
        for _ in 0..3 {
            session.press(CTRL_Z);
        }
        session.go();
        // Keys are processed in order, so that this is read after the last Ctrl-Z.
        session.line("line");
        session.sees("got line");
        assert_eq!(session.ends(), Some(0));
    }
}
