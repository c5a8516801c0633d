//! The names that a server goes by: a run id for each process, a replication id for each history of
//! its data.

use sha1_smol::Sha1;

use super::WallMicros;

/// The identity of a server's process.
#[derive(Clone, Default, Debug)]
pub(super) struct Identity {
    name: String,
    seed: u64,
    /// Number of ids made so far.
    made: u64,
    pub(super) run_id: String,
    pub(super) replication_id: String,
    pub(super) started: WallMicros,
}

impl Identity {
    pub(super) fn new(name: &str, seed: u64, now: WallMicros) -> Self {
        let mut identity = Self {
            name: name.to_owned(),
            seed,
            ..Self::default()
        };
        identity.restart(now);
        identity
    }

    /// A new process: both ids are new.
    pub(super) fn restart(&mut self, now: WallMicros) {
        self.run_id = self.next_id();
        self.replication_id = self.next_id();
        self.started = now;
    }

    /// A replica becomes a primary: its data have a history of their own from here on.
    pub(super) fn fork(&mut self) {
        self.replication_id = self.next_id();
    }

    fn next_id(&mut self) -> String {
        self.made += 1;
        Sha1::from(format!("{} {} {}", self.seed, self.made, self.name))
            .digest()
            .to_string()
    }
}
