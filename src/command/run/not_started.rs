//! Why a command could not be started, and what to write in its place.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;

use crate::exit::{Failure, Outcome, is_shortage};
use crate::input;
use crate::job::exec;
use crate::job::spawn::TOO_LATE;
use crate::secret::{is_assignment, without_secrets};
use crate::settings::RunSettings;
use crate::text::escape;

/// Length in bytes of a script's beginning in which the kernel looks for its interpreter (execve(2)).
const FIRST_LINE: u64 = 256;

/// Commands of a shell that no program stands for.
const OF_SHELLS: [&str; 18] = [
    ".", ":", "alias", "bg", "cd", "eval", "exec", "exit", "export", "fg", "set", "shift", "source", "trap", "ulimit",
    "umask", "unset", "wait",
];

/// The file at the place of a program that the kernel does not find.
enum Found {
    Nothing,
    /// A script, and the interpreter that its first line names.
    Script(String),
    /// Another file: its loader is missing, or it is a script that this user cannot read.
    Other,
}

/// Returns the failure of a command that `error` kept from starting. `lock` says whether the lock was released.
pub(super) fn cannot_start(settings: &RunSettings, error: &io::Error, lock: &str) -> Failure {
    let program = &settings.argv[0];
    let typed = program.to_string_lossy();
    let more = if typed.contains(char::is_whitespace) { " …" } else { "" };
    let command = escape::text(&without_secrets(&typed)) + more;
    let (outcome, why) = match error.raw_os_error() {
        Some(libc::ENOENT) => (Outcome::NotFound, not_found(&command, &found(program))),
        Some(libc::ENOEXEC) => (Outcome::CannotExecute, format!("{error} (does the script begin with #!?)")),
        Some(TOO_LATE) => (Outcome::Lost, "the lease was over before it could be started".to_owned()),
        _ if is_shortage(error) => (Outcome::System, error.to_string()),
        _ => (Outcome::CannotExecute, error.to_string()),
    };
    Failure::about(&settings.lock.keys, outcome, format!("{command}: {why}{lock}"))
}

fn not_found(command: &str, found: &Found) -> String {
    match found {
        Found::Script(interpreter) if interpreter.ends_with('\r') => {
            "its first line (#!) ends with a carriage return: save it with the line ends of Unix".to_owned()
        }
        Found::Script(interpreter) => {
            format!("its interpreter {} is not found: see its first line (#!)", escape::text(interpreter))
        }
        Found::Other => "it is there, but its interpreter (#!) or its loader (ld.so) is not".to_owned(),
        Found::Nothing if command.contains(' ') => "no program has this name; give a shell's line with -c".to_owned(),
        Found::Nothing if OF_SHELLS.contains(&command) => {
            "it is a shell's own command, and no program; give a shell's line with -c".to_owned()
        }
        Found::Nothing if is_assignment(command) => {
            "it is no program; write env before it, or give a shell's line with -c".to_owned()
        }
        Found::Nothing => "not found".to_owned(),
    }
}

/// Looks where the kernel has looked for the program.
fn found(program: &OsStr) -> Found {
    let Some(path) = exec::existing(program) else { return Found::Nothing };
    match interpreter(&path) {
        Ok(Some(interpreter)) => Found::Script(interpreter),
        Ok(None) | Err(_) => Found::Other,
    }
}

/// Returns the interpreter that a script's first line names.
fn interpreter(path: &Path) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    input::open(path)?.0.take(FIRST_LINE).read_to_end(&mut head)?;
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(rest) = line.strip_prefix(b"#!") else { return Ok(None) };
    let words = rest.split(|byte| matches!(byte, b' ' | b'\t'));
    let word = words.into_iter().find(|word| !word.is_empty()).unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(word).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_only_a_shell_knows_is_told_so() {
        for (command, told) in [
            ("backup", "not found"),
            ("echo hello", "give a shell's line with -c"),
            ("cd", "a shell's own command"),
            ("FOO=1", "write env before it"),
            ("./a=b/c", "not found"),
        ] {
            assert!(not_found(command, &Found::Nothing).contains(told), "{command}");
        }
    }

    #[test]
    fn an_interpreter_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let told = |text: &str| {
            let path = folder.path().join("script");
            std::fs::write(&path, text).unwrap();
            not_found("./script", &found(path.as_os_str()))
        };
        assert!(told("#! /no/such -x\nexit\n").starts_with("its interpreter /no/such is not found"));
        assert!(told("#!/bin/\x1bsh\n").contains("/bin/\\x1bsh"));
        assert!(told("#!/bin/sh\r\nexit\n").contains("carriage return"));
        assert!(told("\x7fELF").contains("loader"));
        assert_eq!(not_found("./none", &found(folder.path().join("none").as_os_str())), "not found");
    }
}
