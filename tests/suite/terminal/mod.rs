//! rlock at a terminal: the command uses it as without rlock. What the cases of the submodules
//! share is here, too.

mod interrupt;
mod stop;

use std::process::Command;

use crate::support::{RLOCK, Session, alive, eventually, parent, skipped, state};

const CTRL_C: &str = "\x03";

const CTRL_Z: &str = "\x1a";

const CTRL_BACKSLASH: &str = "\x1c";

/// Returns `rlock run` of a script, in quotes.
fn run(script: &str) -> String {
    assert!(!script.contains('\''));
    format!("rlock run -k job -- sh -c '{script}'")
}

/// Waits for [`Session::go`] without touching the terminal, and may be interrupted by a trap. It
/// forks nothing: a shell whose child was stopped between vfork and exec cannot be stopped itself,
/// with or without rlock.
const UNTIL_GO: &str = "until read go < go; do :; done";

/// Waits for the file `on`, in a shell with traps: a `read` would delay a trap whose signal comes
/// just before it.
const UNTIL_ON: &str = "until [ -e on ]; do sleep 0.01; done";

/// Runs for ever, and can be interrupted.
const FOR_EVER: &str = "while :; do sleep 0.1; done";

/// Starts a command that runs until [`Session::go`] and then prints `went on`. Returns its pid and
/// that of its rlock.
fn start(shell: &mut Session, with_terminal: bool) -> (i32, i32) {
    let read = if with_terminal { "read x; " } else { "" };
    shell.line(&run(&format!(
        "{read}echo pid $$; {UNTIL_GO}; echo went on"
    )));
    if with_terminal {
        shell.line("x");
    }
    let command = shell.number("pid ");
    (command, parent(command))
}

/// Waits until the shell's list of jobs has `word`.
#[track_caller]
fn job_is(shell: &mut Session, word: &str) {
    eventually(word, || shell.answer("jobs -l").contains(word));
}

#[track_caller]
fn shell_has_the_terminal(shell: &mut Session) {
    assert_eq!(shell.foreground(), shell.leader());
    assert_eq!(
        shell.answer("read word && echo the word: $word\nhere"),
        "the word: here\n"
    );
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
    assert_eq!(
        shell.answer("rlock run -k job -- echo through | cat"),
        "through\n"
    );
    assert_eq!(
        shell.answer("printf 'x\\n' | rlock run -k job -- cat"),
        "x\n"
    );
    assert_eq!(
        shell.answer("printf 'x\\n' | rlock run -k job -- cat | cat"),
        "x\n"
    );
    shell_has_the_terminal(&mut shell);
}

#[test]
fn the_reader_of_a_commands_output_keeps_the_terminal() {
    let mut shell = Session::bash(RLOCK);
    let job = run(&format!("{UNTIL_GO}; seq 3"));
    shell.line(&format!(
        "{job} | sh -c 'read x < /dev/tty; echo asked $x; echo > go; cat'"
    ));
    shell.line("more");
    shell.sees("asked more");
    assert_eq!(shell.prompt().replace('\r', ""), "\n1\n2\n3\n");
    assert_eq!(shell.answer("echo ${PIPESTATUS[@]}"), "0 0\n");
}

#[test]
fn the_terminal_is_back_with_the_rest_of_the_job_however_the_command_ends() {
    for (job, typed, code) in [
        (&run("read x"), true, 0),
        (&run("read x; exit 3"), true, 3),
        (&run("read x; kill -KILL $$"), true, 137),
        (&run("read x; kill -TERM 0"), true, 143),
        (&run("exit 3"), false, 3),
        (
            &"rlock run -k job -- no-such-command".to_owned(),
            false,
            127,
        ),
        (&"rlock run -k job -- /".to_owned(), false, 126),
    ] {
        let mut shell = Session::bash(RLOCK);
        // In a script no shell takes the terminal by itself.
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
        for job in [
            "rlock run -k job -- less text",
            "rlock run -k job -- cat text | less",
        ] {
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
        // In vim Ctrl-Z is a key like any other: vim stops itself.
        shell.press(CTRL_Z);
        shell.prompt();
        shell_has_the_terminal(&mut shell);
        shell.line("fg");
        shell.sees("line 20.");
        shell.press(":wq\r");
        shell.prompt();
        assert_eq!(
            std::fs::read_to_string(shell.dir().join("text")).expect("the text"),
            format!("first {lines}")
        );
        shell_has_the_terminal(&mut shell);
    } else {
        skipped("vim is not installed");
    }
}

#[test]
fn an_interactive_shell_under_rlock_has_job_control_of_its_own() {
    let mut shell = Session::bash(RLOCK);
    // The terminal shows this line, and `fg` does: it must not look like the prompt that it sets.
    shell.line("PS1='in''ner> ' rlock run -k job -- bash --norc --noprofile --noediting -i");
    shell.sees("inner> ");
    shell.line("sh -c 'echo runs; exec sleep 60'");
    shell.sees("runs");
    shell.press(CTRL_Z);
    shell.sees("Stopped");
    shell.sees("inner> ");
    shell.line("kill -KILL %1; disown %1; suspend");
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
    shell.line(&run(&format!(
        "{trap}; n=0; echo ready; {UNTIL_ON}; read x; echo got $x; {FOR_EVER}"
    )));
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
    assert_eq!(
        shell.answer("rlock run -k job -- echo in the foreground"),
        "in the foreground\n"
    );
}

#[test]
fn rlocks_within_rlocks_share_the_terminal() {
    for key in ["outer", "job"] {
        let mut shell = Session::bash(RLOCK);
        let nested = |script: &str| format!("rlock run -k {key} -- {}", run(script));
        shell.line(&nested(&format!(
            "echo pid $$; {UNTIL_GO}; read x; echo got $x; read y; echo and $y; read z"
        )));
        let command = shell.number("pid ");
        let (inner, outer) = (parent(command), parent(parent(command)));
        let all_stopped = || {
            [command, inner, outer]
                .iter()
                .all(|pid| state(*pid) == Some('T'))
        };
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
