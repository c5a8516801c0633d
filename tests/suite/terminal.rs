//! The terminal and job control: a shell on a pseudoterminal, and somebody who types.

use std::process::Command;

use crate::support::{RLOCK, Server, Session, alive, eventually, parent, skipped, state};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

/// `rlock run` of a script in quotes.
fn run(script: &str) -> String {
    assert!(!script.contains('\''));
    format!("rlock run -k job -- sh -c '{script}'")
}

/// Waits for [`Session::go`] without touching the terminal. Forks nothing: a shell whose child was stopped between vfork
/// and exec can't be stopped itself, with or without rlock. A trap may interrupt it.
const UNTIL_GO: &str = "until read go < go; do :; done";

/// Waits for the file `on`. For a shell with traps, which it runs late if the signal comes just before a `read`.
const UNTIL_ON: &str = "until [ -e on ]; do sleep 0.01; done";

/// Goes on being interrupted.
const FOR_EVER: &str = "while :; do sleep 0.01; done";

/// A command that runs until it is told to go, and says `went on`; the pids of it and its rlock.
fn start(shell: &mut Session, with_terminal: bool) -> (i32, i32) {
    let read = if with_terminal { "read x; " } else { "" };
    shell.line(&run(&format!("{read}echo pid $$; {UNTIL_GO}; echo went on")));
    if with_terminal {
        shell.line("x");
    }
    let command = shell.number("pid ");
    (command, parent(command))
}

/// Waits until the shell's list of jobs says `word`.
#[track_caller]
fn job_is(shell: &mut Session, word: &str) {
    eventually(word, || shell.answer("jobs -l").contains(word));
}

#[track_caller]
fn shell_has_the_terminal(shell: &mut Session) {
    assert_eq!(shell.foreground(), shell.leader());
    assert_eq!(shell.answer("read word && echo the word: $word\nhere"), "the word: here\n");
}

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
    // A shell that is about to fork may miss it, so the last process speaks.
    let sleep = "sh -c \"echo runs; exec sleep 60\"";
    for script in [sleep, &format!("read x; {sleep}"), &format!("stty sane -echo; exec {sleep}")] {
        for interactive in [true, false] {
            let mut shell = Session::bash(RLOCK);
            let job = run(script);
            let text = format!("for host in a b c; do echo on $host; {job}; done; echo after the loop");
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
    shell.line(&format!("for host in a b c; do echo on $host; {}; done", run(left).replace("run -k", "run -v -k")));
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

#[test]
fn a_command_can_read_the_terminal() {
    let mut shell = Session::bash(RLOCK);
    shell.line(&run("read x; echo got $x; read y; echo and $y"));
    shell.line("one");
    shell.sees("got one");
    shell.line("two");
    shell.sees("and two");
    shell.prompt();
    assert_eq!(shell.code(), 0);
    shell_has_the_terminal(&mut shell);
}

#[test]
fn a_password_is_read_without_an_echo() {
    let mut shell = Session::bash(RLOCK);
    shell.line("stty echo");
    shell.prompt();
    shell.line("rlock run -k job -- bash -c 'read -rsp \"Password\"\": \" x; echo; echo \"got ${#x}\"\" characters\"'");
    shell.sees("Password: ");
    shell.line("secret");
    shell.sees("got 6 characters");
    shell.prompt();
    assert!(!shell.seen().contains("secret"));
}

#[test]
fn pipes_work_on_both_sides() {
    let mut shell = Session::bash(RLOCK);
    assert_eq!(shell.answer("rlock run -k job -- echo through | cat"), "through\n");
    assert_eq!(shell.answer("printf 'x\\n' | rlock run -k job -- cat"), "x\n");
    assert_eq!(shell.answer("printf 'x\\n' | rlock run -k job -- cat | cat"), "x\n");
    shell_has_the_terminal(&mut shell);
}

#[test]
fn the_reader_of_a_commands_output_keeps_the_terminal() {
    let mut shell = Session::bash(RLOCK);
    let job = run(&format!("{UNTIL_GO}; seq 3"));
    shell.line(&format!("{job} | sh -c 'read x < /dev/tty; echo asked $x; echo > go; cat'"));
    shell.line("more");
    shell.sees("asked more");
    assert_eq!(shell.prompt().replace('\r', ""), "\n1\n2\n3\n");
    assert_eq!(shell.answer("echo ${PIPESTATUS[@]}"), "0 0\n");
}

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
            eventually("it goes on", || state(command) != Some('T') && state(rlock) != Some('T'));
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
        let job = run(&format!("{terminal}echo pid $$ >&2; {UNTIL_GO}; echo went on"));
        std::fs::write(shell.dir().join("script"), format!("{job} | cat; echo and after")).expect("a script");
        shell.line("bash script");
        if read {
            shell.line("x");
        }
        let command = shell.number("pid ");
        let rlock = parent(command);
        shell.press(CTRL_Z);
        shell.prompt();
        eventually("both are stopped", || (state(command), state(rlock)) == (Some('T'), Some('T')));
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
        eventually("it goes on", || state(command) != Some('T') && state(rlock) != Some('T'));
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
    // nano does so; a shell's `suspend` too.
    for signal in ["STOP", "TSTP", "TTIN", "TTOU"] {
        let mut shell = Session::bash(RLOCK);
        shell.line(&run(&format!("read x; echo stops; kill -{signal} 0; echo goes on; read y; echo got $y")));
        shell.line("x");
        shell.sees("stops");
        // It has the terminal, so that these two do not concern it.
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
    // The guard has a twentieth of it to get a turn on a busy machine.
    shell.answer("export RLOCK_TTL=5s");
    let (command, rlock) = start(&mut shell, with_terminal);
    shell.press(CTRL_Z);
    shell.prompt();
    eventually("the command is dead", || {
        // In this order: if the lock is free now, it is free when the command is looked at.
        let free = server.cli(&["EXISTS", "job"]) == "0";
        let alive = alive(command);
        assert!(!(free && alive), "the lock is free and the command alive");
        !alive
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
    eventually("it was renewed", || server.cli(&["PTTL", "job"]).parse::<u32>().expect("a time") > 20_000);
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
    let command = std::fs::read_to_string(shell.dir().join("pid")).expect("its pid").trim().parse().expect("a pid");
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
fn the_terminal_is_back_with_the_rest_of_the_job_however_the_command_ends() {
    for (job, typed, code) in [
        (&run("read x"), true, 0),
        (&run("read x; exit 3"), true, 3),
        (&run("read x; kill -KILL $$"), true, 137),
        (&run("read x; kill -TERM 0"), true, 143),
        (&run("exit 3"), false, 3),
        (&"rlock run -k job -- no-such-command".to_owned(), false, 127),
        (&"rlock run -k job -- /".to_owned(), false, 126),
    ] {
        let mut shell = Session::bash(RLOCK);
        // In a script there is no shell that takes it by itself.
        let script = format!("{job}\necho code $?.\nread word; echo the word: $word");
        std::fs::write(shell.dir().join("script"), script).expect("a script");
        shell.line("bash script");
        if typed {
            shell.line("x");
        }
        shell.sees(&format!("code {code}."));
        shell.line("here");
        shell.sees("the word: here");
        shell.prompt();
        shell.line(job);
        if typed {
            shell.line("x");
        }
        shell.prompt();
        assert_eq!(shell.code(), code);
        shell_has_the_terminal(&mut shell);
    }
}

#[test]
fn a_pager_and_an_editor_work() {
    let installed = |name: &str| Command::new(name).arg("--version").output().is_ok();
    let mut shell = Session::bash(RLOCK);
    let lines: Vec<String> = (1..=100).map(|n| format!("line {n}.\n")).collect();
    let lines = lines.concat();
    std::fs::write(shell.dir().join("text"), &lines).expect("a text");
    if installed("less") {
        for job in ["rlock run -k job -- less text", "rlock run -k job -- cat text | less"] {
            shell.line(job);
            shell.sees("line 20.");
            shell.press("G");
            shell.sees("line 100.");
            shell.press("q");
            shell.prompt();
            shell_has_the_terminal(&mut shell);
        }
    } else {
        skipped("less is not installed");
    }
    if installed("vim") {
        shell.line("rlock run -k job -- vim -u NONE -i NONE -n text");
        shell.sees("line 20.");
        shell.press("ifirst \x1b");
        // Here a key like any other: vim stops itself.
        shell.press(CTRL_Z);
        shell.prompt();
        shell_has_the_terminal(&mut shell);
        shell.line("fg");
        shell.sees("line 20.");
        shell.press(":wq\r");
        shell.prompt();
        assert_eq!(std::fs::read_to_string(shell.dir().join("text")).expect("the text"), format!("first {lines}"));
        shell_has_the_terminal(&mut shell);
    } else {
        skipped("vim is not installed");
    }
}

#[test]
fn an_interactive_shell_under_rlock_has_job_control_of_its_own() {
    let mut shell = Session::bash(RLOCK);
    shell.line("PS1='inner> ' rlock run -k job -- bash --norc --noprofile --noediting -i");
    shell.sees("inner> ");
    shell.line("sh -c 'echo runs; exec sleep 60'");
    shell.sees("runs");
    shell.press(CTRL_Z);
    shell.sees("Stopped");
    shell.sees("inner> ");
    shell.line("kill -KILL %1; wait %1; suspend");
    shell.prompt();
    shell_has_the_terminal(&mut shell);
    shell.line("fg");
    shell.sees("inner> ");
    shell.line("exit 5");
    shell.prompt();
    assert_eq!(shell.code(), 5);
    shell_has_the_terminal(&mut shell);
}

#[test]
fn a_new_size_of_the_terminal_reaches_the_command_once() {
    let mut shell = Session::bash(RLOCK);
    let trap = "trap \"n=\\$((n+1)); echo \\$n: \\$(stty size)\" WINCH";
    shell.line(&run(&format!("{trap}; n=0; echo ready; {UNTIL_ON}; read x; echo got $x; {FOR_EVER}")));
    shell.sees("ready");
    for n in 1..=3 {
        shell.resize(30 + n, 100);
        shell.sees(&format!("{n}: {} 100", 30 + n));
    }
    std::fs::write(shell.dir().join("on"), "").expect("a file");
    shell.line("line");
    shell.sees("got line");
    for n in 4..=6 {
        shell.resize(30 + n, 100);
        shell.sees(&format!("{n}: {} 100", 30 + n));
    }
    shell.press(CTRL_C);
    shell.prompt();
    assert_eq!(shell.code(), 130);
}

#[test]
fn a_terminal_that_stops_background_writers_does_not_stop_rlock() {
    let mut shell = Session::bash(RLOCK);
    shell.answer("stty tostop");
    shell.line("rlock run -v -k job -- true & wait $!; echo code $?");
    shell.sees("rlock: job: released");
    shell.sees("code 0");
    shell.prompt();
    // The command itself is stopped, as it would be without rlock.
    shell.answer("rlock run -k job -- echo written &");
    job_is(&mut shell, "Stopped (tty output)");
    shell.line("fg");
    shell.sees("written");
    shell.prompt();
    assert_eq!(shell.answer("rlock run -k job -- echo in the foreground"), "in the foreground\n");
}

#[test]
fn rlocks_within_rlocks_share_the_terminal() {
    for key in ["outer", "job"] {
        let mut shell = Session::bash(RLOCK);
        let nested = |script: &str| format!("rlock run -k {key} -- {}", run(script));
        shell.line(&nested(&format!("echo pid $$; {UNTIL_GO}; read x; echo got $x; read y; echo and $y; read z")));
        let command = shell.number("pid ");
        let (inner, outer) = (parent(command), parent(parent(command)));
        let all_stopped = || [command, inner, outer].iter().all(|pid| state(*pid) == Some('T'));
        shell.press(CTRL_Z);
        shell.prompt();
        assert!(all_stopped());
        shell.line("fg");
        shell.go();
        shell.line("one");
        shell.sees("got one");
        shell.press(CTRL_Z);
        shell.prompt();
        assert!(all_stopped());
        shell.line("fg");
        shell.line("two");
        shell.sees("and two");
        shell.press(CTRL_C);
        shell.prompt();
        assert_eq!(shell.code(), 130);
        shell_has_the_terminal(&mut shell);
    }
}

#[test]
fn ctrl_z_without_a_shell_that_could_say_fg_changes_nothing() {
    // As `ssh -t host rlock run …`: nobody could continue it, so the kernel does not stop it.
    for read in ["", "read w; "] {
        let script = format!("{read}echo ready; {UNTIL_GO}; read x; echo got $x");
        let mut session = Session::of(RLOCK, &["rlock", "run", "-k", "job", "--", "sh", "-c", &script]);
        if !read.is_empty() {
            session.line("word");
        }
        session.sees("ready");
        for _ in 0..3 {
            session.press(CTRL_Z);
        }
        session.go();
        // Keys are seen to in their order, so that this is read after the last Ctrl-Z.
        session.line("line");
        session.sees("got line");
        assert_eq!(session.ends(), Some(0));
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_command_and_rlock() {
    for read in ["", "read w; "] {
        let mut shell = Session::bash(RLOCK);
        shell.line(&run(&format!("{read}echo pid $$; {UNTIL_GO}")));
        if !read.is_empty() {
            shell.line("word");
        }
        let command = shell.number("pid ");
        let rlock = parent(command);
        shell.hang_up();
        eventually("both are dead", || !alive(command) && !alive(rlock));
    }
}
