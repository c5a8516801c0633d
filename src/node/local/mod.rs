//! A lock on this machine alone: flock(2) on a file. For trying rlock out, for laptops, for jobs that live on one host.
//!
//! The kernel releases the lock when the last descriptor of the open file is closed, however its holder ends, so a grant has
//! no expiry. It is still lost if the file or directory is deleted, moved or replaced under the holder. The holder watches
//! for that, and each renewal checks it.

mod directory;
mod fence;
mod file;
mod watch;

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use self::directory::Directory;
use self::file::LockFile;
use self::watch::Watch;
use super::{
    Answer, Claim, Fault, FaultKind, ForceUnlock, Heal, Look, Node, Pages, Pending, Probe, Release, ReleaseReply,
    Renew, Renewal, Store, Vote, Wake,
};
use crate::clock::{self, Alarm};
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::observation::Observation;
use crate::lock::token::Token;
use crate::text::escape;

/// Characters that must be encoded in a file name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Encoded names longer than this are cut and given a hash. `NAME_MAX` is 255.
const LONGEST_NAME: usize = 180;

/// Number of tries, each of which fails if the file or its directory was deleted or replaced after it was opened.
const TRIES: u32 = 1000;

/// Time for which a new holder has no watch. The kernel takes some ten milliseconds to close one, which would lengthen a short
/// command.
const UNWATCHED: Duration = Duration::from_millis(500);

/// A directory of locks.
pub struct LocalStore {
    name: String,
    dir: Option<PathBuf>,
}

impl LocalStore {
    /// Locks in `dir`, or in the user's own directory. Errors are configuration errors: they name the directory.
    pub fn open(dir: Option<&Path>) -> Result<Self, String> {
        let name = dir.map_or_else(|| "local".to_owned(), |dir| format!("local:{}", shown(dir)));
        Directory::open(dir).map_err(|why| format!("--node {name}: {why}"))?;
        Ok(Self { name, dir: dir.map(Path::to_path_buf) })
    }
}

impl Store for LocalStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> Box<dyn Node> {
        Box::new(LocalNode {
            name: self.name.clone(),
            chosen: self.dir.clone(),
            held: Rc::default(),
            busy: Rc::default(),
            watch: Rc::default(),
        })
    }

    fn keys(&self, _prefix: &str) -> Option<Pages> {
        None
    }

    fn probe(&self, _keys: &[Key]) -> Option<Pending<Result<Probe, Fault>>> {
        None
    }
}

/// flock(2) on files of one directory.
struct LocalNode {
    name: String,
    /// The directory of `local:/dir`; `None` is the user's own. It is opened again for each attempt and observation, since it
    /// may have been replaced.
    chosen: Option<PathBuf>,
    held: Rc<RefCell<Option<Held>>>,
    /// The file that another process has locked.
    busy: Rc<RefCell<Option<LockFile>>>,
    watch: Rc<Watch>,
}

struct Held {
    file: LockFile,
    token: Token,
}

impl LocalNode {
    fn directory(&self) -> Result<Rc<Directory>, Fault> {
        Directory::open(self.chosen.as_deref()).map(Rc::new).map_err(unfit)
    }

    fn take(&self, claim: &Claim) -> Result<Vote, Fault> {
        for _ in 0..TRIES {
            let dir = self.directory()?;
            let Some(mut file) = LockFile::open(Rc::clone(&dir), file_name(claim.key.stored())).map_err(unfit)? else {
                continue;
            };
            if !file.lock().map_err(unfit)? {
                let occupant = file.holder().map_err(unfit)?.unwrap_or_else(file::unnamed);
                *self.busy.borrow_mut() = Some(file);
                return Ok(Vote::Held(Box::new(occupant)));
            }
            // The last holder may have deleted it between our open and our flock.
            if !file.stands().map_err(|error| unfit(file.told(&error)))? {
                continue;
            }
            file.must_be_ours().map_err(unfit)?;
            // No grant without a value: a `check` or an `rlock run` under it could not tell whose the lock is.
            let fence = fence::next(&dir, claim.fence_hint);
            let granted =
                fence.and_then(|fence| file.publish(&claim.details.value(claim.token)).map(|()| fence).map_err(unfit));
            let fence = granted.inspect_err(|_| file.delete())?;
            *self.held.borrow_mut() = Some(Held { file, token: claim.token });
            return Ok(Vote::Granted { until: Instant::NEVER, fence, index: 0 });
        }
        Err(Fault::new(FaultKind::Unavailable, "the lock's file is deleted or replaced all the time"))
    }

    fn standing(&self, token: Token) -> Result<Option<Revoked>, Fault> {
        match self.held.borrow().as_ref().filter(|held| held.token == token) {
            None => Ok(Some(Revoked::Missing)),
            Some(Held { file, .. }) => match file.stands() {
                Ok(true) => Ok(None),
                Ok(false) if file.path().symlink_metadata().is_ok() => Ok(Some(Revoked::TakenOver)),
                Ok(false) => Ok(Some(Revoked::Missing)),
                Err(error) => Err(unfit(file.told(&error))),
            },
        }
    }

    fn renewed(&self, token: Token) -> Result<Renewal, Fault> {
        if let Some(revoked) = self.standing(token)? {
            return Ok(Renewal::Lost(revoked, None));
        }
        if let Some(held) = self.held.borrow().as_ref() {
            held.file.touch();
        }
        Ok(Renewal::Renewed(Instant::NEVER, None))
    }

    fn seen(&self, key: &Key) -> Result<Observation, Fault> {
        let file = LockFile::existing(self.directory()?, file_name(key.stored())).map_err(unfit)?;
        let occupant = file.map(|mut file| file.holder()).transpose().map_err(unfit)?.flatten();
        // All locks share the fence counter, so it says nothing about one. There is no queue.
        Ok(Observation { holders: occupant.into_iter().collect(), ..Observation::of_nothing(clock::now()) })
    }

    fn let_go(&self, token: Token) -> Result<ReleaseReply, Fault> {
        if let Some(revoked) = self.standing(token)? {
            return Ok(ReleaseReply::NotOurs(revoked));
        }
        if let Some(held) = self.held.borrow_mut().take() {
            held.file.delete();
        }
        Ok(ReleaseReply::Released)
    }
}

impl Node for LocalNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let vote = self.take(claim).unwrap_or_else(Vote::Failed);
        Box::pin(std::future::ready(vote.into()))
    }

    fn renew(&self, renew: &Renew) -> Pending<Renewal> {
        Box::pin(std::future::ready(self.renewed(renew.token).unwrap_or_else(Renewal::Failed)))
    }

    fn heal(&self, _heal: &Heal) -> Pending<Renewal> {
        // The file is gone and any process may take its name: no key could cover the time until the command is dead.
        Box::pin(std::future::ready(Renewal::Lost(Revoked::Missing, None)))
    }

    fn observe(&self, key: &Key, _look: Look) -> Pending<Result<Observation, Fault>> {
        Box::pin(std::future::ready(self.seen(key)))
    }

    fn force_unlock(&self, _key: &Key, _how: ForceUnlock) -> Pending<Result<Option<Revoked>, Fault>> {
        let why = "a lock on this machine alone ends with the rlock that holds it: end that one";
        Box::pin(std::future::ready(Err(Fault::new(FaultKind::Unfit, why))))
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        Box::pin(std::future::ready(self.let_go(release.token).unwrap_or_else(ReleaseReply::Failed)))
    }

    fn wake(&self) -> Pending<Wake> {
        let (busy, watch) = (Rc::clone(&self.busy), Rc::clone(&self.watch));
        Box::pin(async move {
            // A holder deletes the file before it releases the lock. After a holder that was killed, and where no file can be
            // watched, the waiter polls.
            let file = busy.borrow_mut().take();
            match file {
                Some(file) if until_gone(&file, &watch).await.is_ok() => Wake::Recheck,
                _ => std::future::pending().await,
            }
        })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.held.borrow().as_ref().map(|held| held.file.as_raw_fd())
    }

    fn broken(&self) -> Pending<()> {
        let (held, watch) = (Rc::clone(&self.held), Rc::clone(&self.watch));
        Box::pin(async move {
            if until_taken_away(&held, &watch).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn written(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Returns when `file`, which another process has locked, is no longer the file at its path.
async fn until_gone(file: &LockFile, watch: &Watch) -> io::Result<()> {
    watch.begin(file)?;
    // It may have been deleted before it was watched.
    while file.stands()? {
        watch.stirred().await?;
    }
    Ok(())
}

/// Returns when the file that is held is no longer the file at its path.
async fn until_taken_away(held: &RefCell<Option<Held>>, watch: &Watch) -> io::Result<()> {
    if !watch.has_begun() {
        Alarm::new()?.reached(clock::now() + UNWATCHED).await;
    }
    held.borrow().as_ref().map_or(Ok(()), |held| watch.begin(&held.file))?;
    while held.borrow().as_ref().map_or(Ok(false), |held| held.file.stands())? {
        watch.stirred().await?;
    }
    Ok(())
}

/// A fault that waiting does not mend.
fn unfit(why: String) -> Fault {
    Fault::new(FaultKind::Unfit, why)
}

/// Returns the file name of `key`. Two keys share a name only if the hashes of over-long ones collide, which merely makes two
/// locks exclude each other.
fn file_name(key: &str) -> String {
    let mut name = utf8_percent_encode(key, ENCODED).to_string();
    if let Some(rest) = name.strip_prefix('.') {
        name = format!("%2E{rest}");
    }
    if name.len() > LONGEST_NAME {
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).simple();
        name = format!("{}~{hash}", &name[..LONGEST_NAME]);
    }
    name + ".lock"
}

fn shown(path: &Path) -> String {
    escape::text(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_key_is_a_safe_file_name_and_no_other_keys(a in ".{1,300}", b in ".{1,300}") {
            let name = file_name(&a);
            prop_assert!(name.len() <= 255 && !name.contains('/') && !name.starts_with('.'));
            prop_assert_eq!(name == file_name(&b), a == b);
        }
    }

    #[test]
    fn dots_and_slashes_do_not_leave_the_directory() {
        assert_eq!(file_name(".."), "%2E..lock");
        assert_eq!(file_name("../x"), "%2E.%2Fx.lock");
        assert_eq!(file_name(".fence"), "%2Efence.lock");
    }
}
