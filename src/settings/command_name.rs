//! The command's name, which other clients see: a pure function of its words.
//!
//! Arguments may hold secrets. So a word is taken only if it must be a program, a script or a module, and an option that is
//! unknown here ends the search.

use std::ffi::OsString;
use std::path::Path;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::secret;

/// A program that runs another one, or a script.
struct Program {
    /// Its names, without a version.
    names: &'static [&'static str],
    /// Letters of options without a value, and with one.
    letters: (&'static str, &'static str),
    /// Long options without a value, and with one.
    long: (&'static [&'static str], &'static [&'static str]),
    /// Letter of the option that takes a shell's command line.
    code: Option<char>,
    /// Letter of the option that takes the name of a module.
    module: Option<char>,
    /// The first word that is no option.
    operand: Operand,
}

/// The first word that is no option.
#[derive(Clone, Copy)]
enum Operand {
    /// It begins another command.
    Command,
    /// It begins another command, behind words of the form `NAME=VALUE`.
    AssignedCommand,
    /// Another command is behind it.
    BeforeCommand,
    /// It is a script.
    Script,
}

/// Name that leads out of a program's options.
enum Found<'a> {
    Operands(&'a [String]),
    Code(&'a str),
    Module(&'a str),
}

const PROGRAMS: &[Program] = &[
    Program {
        names: &["env"],
        letters: ("i0v", "uC"),
        long: (&["ignore-environment", "null", "debug"], &["unset", "chdir"]),
        code: None,
        module: None,
        operand: Operand::AssignedCommand,
    },
    Program {
        names: &["nice"],
        letters: ("0123456789", "n"),
        long: (&[], &["adjustment"]),
        code: None,
        module: None,
        operand: Operand::Command,
    },
    Program {
        names: &["sudo"],
        letters: ("AbBEHknNPS", "CDghprRtTuU"),
        long: (
            &["askpass", "background", "preserve-env", "set-home", "non-interactive", "preserve-groups", "stdin"],
            &["chdir", "group", "host", "prompt", "role", "type", "user", "command-timeout"],
        ),
        code: None,
        module: None,
        operand: Operand::AssignedCommand,
    },
    Program {
        names: &["timeout"],
        letters: ("vfp", "ks"),
        long: (&["preserve-status", "foreground", "verbose"], &["kill-after", "signal"]),
        code: None,
        module: None,
        operand: Operand::BeforeCommand,
    },
    Program {
        names: &["sh", "bash", "dash", "ash", "ksh", "zsh"],
        letters: ("abefhiklmnpruvxBCEHPT", "oO"),
        long: (&["norc", "noprofile", "posix", "login", "verbose", "restricted"], &["rcfile", "init-file"]),
        code: Some('c'),
        module: None,
        operand: Operand::Script,
    },
    Program {
        names: &["python"],
        letters: ("bBdEhiIOPqsSuvVx", "WX"),
        long: (&[], &["check-hash-based-pycs"]),
        code: None,
        module: Some('m'),
        operand: Operand::Script,
    },
    Program {
        names: &["perl", "ruby", "node", "php"],
        letters: ("wW", "I"),
        long: (&[], &[]),
        code: None,
        module: None,
        operand: Operand::Script,
    },
];

/// Returns the file name of the program or script that the command is about. Of `-c STRING`, it is that of the first word.
pub(super) fn of(words: &[OsString]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    named(&words).unwrap_or_default()
}

/// Returns `None` without a word.
fn named(words: &[String]) -> Option<String> {
    let (first, rest) = words.split_first()?;
    let own = file_name(first);
    if own == "rlock" {
        return Some(nested(words).unwrap_or(own));
    }
    // python3.12
    let unversioned = own.trim_end_matches(|c: char| c == '.' || c.is_ascii_digit());
    let Some(program) = PROGRAMS.iter().find(|program| program.names.contains(&unversioned)) else { return Some(own) };
    let found = match program.search(rest) {
        Some(Found::Operands(rest)) => program.operand.named(rest),
        Some(Found::Code(line)) => first_word(line),
        Some(Found::Module(name)) => Some(name.to_owned()),
        None => None,
    };
    Some(found.filter(|name| !name.is_empty()).unwrap_or(own))
}

/// Returns the name of the command of a nested `rlock run`; `None` if `words` are none.
fn nested(words: &[String]) -> Option<String> {
    match Cli::try_parse_from(words).ok()?.command {
        Command::Run(run) => Some(of(&run.words())),
        _ => None,
    }
}

impl Operand {
    /// Returns the name that the words behind the options give.
    fn named(self, words: &[String]) -> Option<String> {
        match self {
            Self::Command => named(words),
            Self::AssignedCommand => {
                let assigned = words.iter().take_while(|word| is_assignment(word)).count();
                named(&words[assigned..])
            }
            Self::BeforeCommand => named(words.get(1..)?),
            Self::Script => words.first().map(|script| file_name(script)),
        }
    }
}

impl Program {
    /// Skips the options; `None` at one that is not known.
    fn search<'a>(&self, words: &'a [String]) -> Option<Found<'a>> {
        let mut rest = words;
        loop {
            let Some((word, behind)) = rest.split_first() else { return Some(Found::Operands(rest)) };
            if word == "--" {
                return Some(Found::Operands(behind));
            }
            let skipped = if let Some(long) = word.strip_prefix("--") {
                self.skipped_long(long)?
            } else if let Some(letters) = word.strip_prefix('-') {
                match self.skipped_letters(letters, behind)? {
                    Ok(skipped) => skipped,
                    Err(found) => return Some(found),
                }
            } else {
                return Some(Found::Operands(rest));
            };
            rest = rest.get(skipped..)?;
        }
    }

    /// Returns the number of words of a long option.
    fn skipped_long(&self, long: &str) -> Option<usize> {
        let (flags, valued) = self.long;
        match long.split_once('=') {
            Some((name, _)) => (flags.contains(&name) || valued.contains(&name)).then_some(1),
            None if flags.contains(&long) => Some(1),
            None => valued.contains(&long).then_some(2),
        }
    }

    /// Returns the number of words of a word of letters, or what one of them gives.
    fn skipped_letters<'a>(&self, letters: &'a str, behind: &'a [String]) -> Option<Result<usize, Found<'a>>> {
        let (flags, valued) = self.letters;
        let mut is_code = false;
        // A lone dash is stdin.
        (!letters.is_empty()).then_some(())?;
        for (at, letter) in letters.char_indices() {
            let value = &letters[at + letter.len_utf8()..];
            if self.module == Some(letter) {
                let module = if value.is_empty() { behind.first()? } else { value };
                return Some(Err(Found::Module(module)));
            }
            if valued.contains(letter) {
                return Some(Ok(if value.is_empty() { 2 } else { 1 })).filter(|_| !is_code);
            }
            is_code |= self.code == Some(letter);
            (self.code == Some(letter) || flags.contains(letter)).then_some(())?;
        }
        Some(if is_code { Err(Found::Code(behind.first()?)) } else { Ok(1) })
    }
}

/// Returns the file name of the first command of a shell's line; `None` if quotes or expansions come first, which may hide a
/// secret.
fn first_word(line: &str) -> Option<String> {
    let is_plain = |word: &&str| word.chars().all(|c| c.is_alphanumeric() || "_-./+@%,:=".contains(c));
    let words = line.split_ascii_whitespace().map(|word| word.trim_end_matches(';')).take_while(is_plain);
    words
        .into_iter()
        .find(|word| !is_assignment(word) && *word != "exec")
        .map(file_name)
        .filter(|word| !word.is_empty())
}

/// Returns the first word of a command without what may be a secret: the value of an assignment, the password of an address, and all
/// behind a blank. A word with blanks is probably a whole command line in quotes.
pub fn without_secrets(word: &str) -> String {
    let word = secret::without_userinfo(word.split(char::is_whitespace).next().unwrap_or_default());
    match word.split_once('=') {
        Some((name, _)) if is_assignment(&word) => format!("{name}=…"),
        _ => word,
    }
}

/// Whether a word is `NAME=VALUE`. env(1) takes any name, as `spring.password=…`, and a shell `NAME+=VALUE` too.
pub fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.contains('/'))
}

/// Returns the last part of a path.
fn file_name(word: &str) -> String {
    let word = without_secrets(word);
    Path::new(&word).file_name().map_or_else(|| word.clone(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> String {
        of(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    fn name_of_code(shell: &str, line: &str) -> String {
        of(&[shell, "-c", line].map(OsString::from))
    }

    #[test]
    fn a_command_is_named_by_its_program_or_script() {
        for (line, wanted) in [
            ("/usr/bin/backup.sh --token hunter2", "backup.sh"),
            ("sh ./x.sh secret", "x.sh"),
            ("bash -eux -o pipefail /a/deploy.sh", "deploy.sh"),
            ("python3 x.py", "x.py"),
            ("python3.12 -u -W ignore x.py", "x.py"),
            ("python3 -m venv secret", "venv"),
            ("env A=1 B=2 -- ./a", "--"),
            ("env -i -u HOME A=1 ./a.sh", "a.sh"),
            ("nice -n 10 ionice -c 3 x", "ionice"),
            ("nice -10 sh x.sh", "x.sh"),
            ("sudo -u deploy -H ./a.sh", "a.sh"),
            ("sudo --user=deploy A=1 timeout -k 5 1h perl a.pl", "a.pl"),
            ("rlock run -k a --ttl 5s -- bash x.sh", "x.sh"),
            ("rlock run -nk a -w 5 ./b", "b"),
            ("rlock check", "rlock"),
            ("redis://u:pw@h", "***@h"),
            ("PASSWORD=hunter2 ./x", "PASSWORD=…"),
            ("PASSWORD=a/hunter2 ./x", "PASSWORD=…"),
            ("env spring.password=hunter2 ./x", "x"),
            ("sudo a-b=hunter2 ./x", "x"),
            ("./a=b/x", "x"),
        ] {
            assert_eq!(name(line), wanted, "{line}");
        }
    }

    #[test]
    fn the_first_word_of_a_shells_line_is_its_name() {
        for (line, wanted) in [
            ("make deploy", "make"),
            ("A=1 exec /opt/job.sh; sleep 60", "job.sh"),
            ("true; false", "true"),
            ("PASSWORD='a b c' ./job", "sh"),
            ("PASSWORD+=hunter2 ./job", "job"),
            ("\"$JOB\" secret", "sh"),
            ("$(cat x) y", "sh"),
            ("", "sh"),
        ] {
            assert_eq!(name_of_code("sh", line), wanted, "{line}");
        }
        assert_eq!(of(&["/usr/bin/mysqldump -phunter2 a/hunter3"].map(OsString::from)), "mysqldump");
        assert_eq!(of(&["bash", "-xec", "make it"].map(OsString::from)), "make");
        assert_eq!(of(&["rlock", "run", "-k", "a", "-c", "'x' y"].map(OsString::from)), "sh");
    }

    #[test]
    fn an_unknown_option_ends_the_search_before_its_value_is_taken() {
        for line in [
            "sudo -Z secret x",
            "bash --what secret x",
            "bash --what=x secret",
            "python3 -c print(1)",
            "perl -e secret",
            "env -S secret",
        ] {
            let own = line.split(' ').next().unwrap();
            assert_eq!(name(line), own, "{line}");
        }
        assert_eq!(of(&["env", "--split-string=x", "secret"].map(OsString::from)), "env");
        for line in ["sh", "sh -", "sh -c", "timeout 5", "env", "sudo -u", "rlock run"] {
            assert_eq!(name(line), line.split(' ').next().unwrap(), "{line}");
        }
    }
}
