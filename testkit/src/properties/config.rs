//! The configuration: the words of the command line, which variables can hold too, and the files
//! that they name.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use rlock::cli::subcommands::HeldArgs;
use rlock::cli::{self, Command, NodeArgs, RunArgs};
use rlock::exit::{Failure, Outcome, outcome_of};
use rlock::secret::Secret;
use rlock::settings::{HeldLock, LockSettings, NodeSettings, RunSettings, Sources, StoreConfig};
use rlock::store::address::{Address, joined};
use rlock::store::redis::address::Remote;
use rlock::text::duration;

use super::is_fit_to_be_shown;

/// The input has one word a line up to an empty line. The rest is the file that `--password-file @`
/// and `--ca @` name.
pub fn hold(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let (words, contents) = text.split_once("\n\n").unwrap_or((text, ""));
    let words: Vec<&str> = words.lines().collect();
    if words
        .iter()
        .any(|word| word.contains('\0') || asks_for_help(word))
    {
        return;
    }
    let Some(file) = File::new(contents) else {
        return;
    };
    let Some(words) = words
        .iter()
        .map(|word| file.named_in(word))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let parsed = match cli::parse(std::iter::once("rlock".into()).chain(words).collect()) {
        Ok(Some(parsed)) => parsed,
        Ok(None) => return,
        Err(error) => {
            assert_eq!(outcome_of(&error), Outcome::Usage);
            return is_fit_to_be_shown(&format!("{error:#}"), 20 * input.len() + 2000);
        }
    };
    let subcommand = parsed.matches.subcommand();
    let sources = &subcommand
        .map(|(_, matches)| Sources::new(matches))
        .unwrap_or_default();
    let checked = match parsed.command {
        Command::Run(args) => run(*args.0, contents, sources),
        Command::Acquire(args) => {
            let args = *args.0;
            LockSettings::new(&args.lock, &args.output, None, sources, StoreConfig::new)
                .map(|lock| store(&lock.store))
        }
        Command::Renew(args) => held(&args.held, sources),
        Command::Release(args) => held(&args, sources),
        Command::Check(args) => held(&args.held, sources),
        Command::Inspect(args) => reach(&args.nodes, sources),
        Command::Break(args) => reach(&args.nodes, sources),
        Command::Doctor(args) => reach(&args.nodes, sources),
        Command::Config(_) | Command::Completions { .. } | Command::Man { .. } => Ok(()),
    };
    if let Err(failure) = checked {
        assert!(
            matches!(failure.outcome, Outcome::Usage | Outcome::Config),
            "{:?}: {failure}",
            failure.outcome
        );
        is_fit_to_be_shown(&failure.to_string(), 20 * input.len() + 2000);
    }
}

/// Whether the word asks for help, which ends the parsing.
fn asks_for_help(word: &str) -> bool {
    let short = word.starts_with('-') && !word.starts_with("--") && word.contains(['h', 'V']);
    short || ["--help", "--version", "help"].contains(&word)
}

fn run(args: RunArgs, contents: &str, sources: &Sources) -> Result<(), Failure> {
    let (ttl, has_file) = (args.lock.ttl, args.lock.nodes.password_file.is_some());
    let settings = RunSettings::new(args, sources)?;
    assert!(!settings.argv.is_empty() && !settings.argv[0].is_empty());
    assert_eq!(settings.lock.schedule().ttl(), ttl);
    store(&settings.lock.store);
    let variable = |name| {
        settings
            .environment
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.clone())
    };
    let text = |name| variable(name).map(|value| value.into_string().expect("text in, text out"));
    assert!(text("RLOCK_TTL").is_none_or(|shown| duration::parse(&shown) == Ok(ttl)));
    let StoreConfig::Servers(servers) = &settings.lock.store else {
        return Ok(());
    };
    for way in servers.iter().filter(|_| has_file) {
        let password = way
            .remote
            .password
            .as_ref()
            .filter(|password| password.source() != "the address");
        let password = password.map(Secret::reveal);
        assert!(
            password.is_none_or(|password| Some(password) == contents.lines().next()),
            "the file's first line"
        );
    }
    // An rlock inside the command finds the same servers, as the same user, without a password.
    if let Some(nodes) = text("RLOCK_NODE") {
        let meant = servers.iter().map(|way| {
            Address::Remote(Remote {
                password: None,
                ..way.remote.clone()
            })
        });
        let found: Result<Vec<_>, _> = joined(nodes.split(','))
            .iter()
            .map(|node| Address::parse(node))
            .collect();
        assert_eq!(found, Ok(meant.collect()), "{nodes}");
    }
    Ok(())
}

fn held(args: &HeldArgs, sources: &Sources) -> Result<(), Failure> {
    HeldLock::new(args, sources).map(|lock| store(&lock.reach.store))
}

fn reach(args: &NodeArgs, sources: &Sources) -> Result<(), Failure> {
    NodeSettings::new(args, sources).map(|reach| store(&reach.store))
}

fn store(store: &StoreConfig) {
    let StoreConfig::Servers(servers) = store else {
        return;
    };
    assert!((1..=9).contains(&servers.len()));
    for (index, one) in servers.iter().enumerate() {
        assert!(
            servers[..index]
                .iter()
                .all(|other| other.to_string() != one.to_string()),
            "a node has two votes"
        );
    }
}

/// A file in memory that only this process can read.
struct File(OwnedFd);

impl File {
    fn new(contents: &str) -> Option<Self> {
        let file = memfd_create("fuzzed", MFdFlags::MFD_CLOEXEC).ok()?;
        fchmod(&file, Mode::S_IRUSR).ok()?;
        std::fs::File::from(file.try_clone().ok()?)
            .write_all(contents.as_bytes())
            .ok()?;
        Some(Self(file))
    }

    /// Returns the word with this file in the place of `@`; none if it would name a file on this
    /// machine.
    fn named_in(&self, word: &str) -> Option<OsString> {
        for option in ["--ca", "--password-file"] {
            if let Some(value) = word.strip_prefix(option) {
                let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
                return (value == "=@").then(|| format!("{option}={path}").into());
            }
        }
        Some(word.into())
    }
}
