//! Clients of other projects, which contend for the lock beside rlock.
//!
//! Such a client does not end its command when it loses its lease. Its command is a witness, which
//! ends before a lease has passed since the client was started, and does not begin later. Until then
//! no fault of a server can have ended the lease, so each overlap is rlock's.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::witness;
use testkit::now;
use testkit::program::clean;

/// Lease of each foreign client: time to wait for its turn, and to run.
pub(crate) const LEASE: Duration = Duration::from_secs(8);

/// Time after its start within which its command ends: a lease, less a second.
const ENDS: Duration = Duration::from_secs(7);

/// Longest time for which its command runs.
const HOLD_MS: std::ops::Range<u64> = 1..200;

/// A client of another project.
pub(crate) trait Foreign: Send + Sync {
    /// Returns its name in the log of the witnesses.
    fn name(&self) -> &'static str;

    /// Tries once to take the lock, and runs `witness` if it has it. It may fail, because servers
    /// are hurt.
    fn run(&self, witness: &Witness) -> Result<()>;
}

/// The command of a foreign client.
pub(crate) struct Witness {
    words: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Witness {
    /// Makes one of the client `name`, which is started next.
    pub(crate) fn next(dir: &Path, name: &str, key: &str) -> Result<Self> {
        let started = now();
        let until = started + ENDS;
        let program = std::env::current_exe()?;
        let hold = fastrand::u64(HOLD_MS).to_string();
        let words = [
            &*program.to_string_lossy(),
            witness::WORD,
            &*dir.to_string_lossy(),
            &hold,
            "x",
        ];
        Ok(Self {
            words: words.map(str::to_owned).to_vec(),
            variables: vec![
                (witness::CLIENT, name.to_owned()),
                (witness::STARTED, started.as_nanos().to_string()),
                (witness::UNTIL, until.as_nanos().to_string()),
                ("RLOCK_KEY", key.to_owned()),
            ],
        })
    }

    /// Returns the words of its command line.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// Lets `client`, which runs the command, tell it what it needs. What the client says of its
    /// failures is of no interest.
    pub(crate) fn told_by<'c>(&self, client: &'c mut Command) -> &'c mut Command {
        client
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
    }

    /// Returns its command, for a client that does not run one by itself.
    pub(crate) fn command(&self) -> Command {
        let mut command = clean(&self.words[0]);
        command.args(&self.words[1..]);
        self.told_by(&mut command);
        command
    }
}
