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

use super::{Feature, Wire, World};

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

    fn lacks(&self, feature: Feature) -> Option<&'static str> {
        Some(match feature {
            Feature::Leases => "local: a grant ends with its process",
            Feature::Line => "local: there is no line of waiters",
            Feature::Superseding => "local: a waiter does not know of others",
            Feature::Healing => "local: a lock whose file is gone is not set again",
            Feature::TakingAway => "local: no lock is taken from its process",
            Feature::Records => "local: no run is recorded",
            Feature::Shared | Feature::Slots | Feature::LongerLeases | Feature::TimeLeft => {
                return None;
            }
            Feature::Servers | Feature::Uptime => "local: there is no server",
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
