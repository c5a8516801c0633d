//! `local`: a directory of this machine.

use std::any::Any;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rlock::lock::key::Key;
use rlock::store::Store;
use rlock::store::local::LocalDir;
use rlock::store::local::LocalStore;
use tempfile::TempDir;

use super::{Ability, Wire, World};

/// A directory of its own.
pub struct Local(TempDir);

impl Local {
    fn file(&self, key: &Key) -> PathBuf {
        self.0.path().join(format!("{}.lock", key.stored()))
    }
}

impl World for Local {
    fn with(test: impl FnOnce(&Self)) {
        test(&Self(tempfile::tempdir().expect("a directory")));
    }

    fn open(&self, _wire: &Wire, _limit: Duration) -> Box<dyn Store> {
        let dir = LocalDir {
            path: self.0.path().to_path_buf(),
            is_shared: false,
        };
        Box::new(LocalStore::at(Some(&dir)).expect("a directory"))
    }

    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        Some(match ability {
            Ability::Leases => "local: a grant ends with its process",
            Ability::Line => "local: there is no line of waiters",
            Ability::Superseding => "local: a waiter does not know of others",
            Ability::Healing => "local: a lock whose file is gone is not set again",
            Ability::TakingAway => "local: no lock is taken from its process",
            Ability::Records => "local: no run is recorded",
            Ability::Shared | Ability::Slots | Ability::LongerLeases | Ability::TimeLeft => {
                return None;
            }
            Ability::Servers | Ability::Uptime => "local: there is no server",
        })
    }

    fn delete(&self, key: &Key) {
        std::fs::remove_file(self.file(key)).expect("the lock's file");
    }

    fn occupy(&self, key: &Key) -> Box<dyn Any> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.file(key))
            .expect("a file");
        File::try_lock(&file).expect("flock");
        Box::new(file)
    }
}
