//! A lock on this machine alone: flock(2) on a file. For trying rlock out, for laptops, for jobs that live on one host.
//!
//! The kernel gives the lock back when the last descriptor of the open file is closed, however its holder ends, so a
//! grant has no end of its own. What can still take it away is a file that is deleted or replaced under us: a renewal
//! looks for that.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::Uid;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use super::watch::{Watch, is_at};
use super::{Answer, Claim, Fault, FaultKind, Force, Freed, Node, Pending, Queued, Renewal, Vote, Wake};
use crate::clock;
use crate::escape;
use crate::lock::details::LARGEST_VALUE;
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::lease::Struck;
use crate::lock::occupant::{Occupant, Sighting, Who};
use crate::lock::sight::Sight;
use crate::lock::token::Token;

/// Where a user's locks are, the same for cron and for a login: `TMPDIR` and `XDG_RUNTIME_DIR` differ between the two.
const PARENTS: [&str; 2] = ["/run/lock", "/tmp"];

/// The counter behind all fences of a directory. No key has this file name: a leading dot is encoded.
const FENCES: &str = ".fence";

/// What may stand in a file name as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Encoded names longer than this are cut and given a hash. `NAME_MAX` is 255.
const LONGEST_NAME: usize = 180;

/// flock(2) on files of one directory.
pub struct LocalNode {
    name: String,
    dir: PathBuf,
    held: Rc<RefCell<Option<Held>>>,
    /// The file that was found locked, and its path.
    busy: Rc<RefCell<Option<(File, PathBuf)>>>,
    watch: Rc<Watch>,
}

struct Held {
    file: Flock<File>,
    path: PathBuf,
    token: Token,
}

impl LocalNode {
    /// Locks in `dir`, or in the user's own directory. Errors are configuration errors: they name the directory.
    pub fn open(dir: Option<&Path>) -> Result<Self, String> {
        let (name, dir) = match dir {
            None => ("local".to_owned(), own_directory()?),
            Some(dir) => (format!("local:{}", shown(dir)), made(dir)?),
        };
        Ok(Self { name, dir, held: Rc::default(), busy: Rc::default(), watch: Rc::default() })
    }

    fn take(&self, claim: &Claim) -> io::Result<Vote> {
        let path = self.dir.join(file_name(claim.key.stored()));
        loop {
            let file = open(&path)?;
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((mut file, nix::Error::EWOULDBLOCK)) => {
                    let occupant = occupant(&mut file)?;
                    *self.busy.borrow_mut() = Some((file, path));
                    return Ok(Vote::Held(Box::new(occupant)));
                }
                Err((_, error)) => return Err(error.into()),
            };
            // Whoever held it before may have unlinked it between our open and our flock.
            if !is_at(&file, &path)? {
                continue;
            }
            // Who holds it is told for people's sake, and first; on a full disk the lock still stands.
            let _ = write_whole(&mut file, &claim.value);
            let Some(fence) = self.next_fence(claim.fence_hint) else {
                let why = format!("the fence counter {} has reached 2^52", shown(&self.dir.join(FENCES)));
                return Ok(Vote::Failed(Fault::new(FaultKind::Unfit, why)));
            };
            *self.held.borrow_mut() = Some(Held { file, path, token: claim.token });
            return Ok(Vote::Granted { until: Instant::NEVER, fence });
        }
    }

    /// c := max(c + 1, hint), for all locks of the directory. Its lock is never waited for: a process that is stopped
    /// while it has it must not stop everybody. Without it the clock alone makes the number larger than the last.
    fn next_fence(&self, hint: u64) -> Option<Fence> {
        let counter = open(&self.dir.join(FENCES)).ok().and_then(|mut file| {
            for _ in 0..1000 {
                match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                    Ok(locked) => return Some(locked),
                    Err((unlocked, nix::Error::EWOULDBLOCK)) => file = unlocked,
                    Err(_) => return None,
                }
                std::thread::yield_now();
            }
            None
        });
        let mut text = String::new();
        let Some(mut counter) = counter else { return Fence::after(0, hint) };
        let previous = match counter.read_to_string(&mut text) {
            Ok(_) => text.trim().parse().unwrap_or(0),
            Err(_) => 0,
        };
        let fence = Fence::after(previous, hint)?;
        let _ = counter.write_all_at(format!("{fence}\n").as_bytes(), 0);
        Some(fence)
    }

    /// Who has the file of `key` locked, whatever process: a crashed holder's file may be left over.
    fn read(&self, key: &Key) -> io::Result<Option<Occupant>> {
        let path = self.dir.join(file_name(key.stored()));
        let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
        let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let seen = occupant(&mut file)?;
        Ok(Flock::lock(file, FlockArg::LockSharedNonblock).is_err().then_some(seen))
    }

    fn standing(&self, token: Token) -> io::Result<Option<Struck>> {
        match self.held.borrow().as_ref().filter(|held| held.token == token) {
            None => Ok(Some(Struck::Absent)),
            Some(held) if is_at(&held.file, &held.path)? => Ok(None),
            Some(held) => Ok(Some(if held.path.symlink_metadata().is_ok() { Struck::Another } else { Struck::Absent })),
        }
    }

    /// Cleaners of /tmp go by age (systemd-tmpfiles: 10 days).
    fn touch(&self) {
        if let Some(held) = self.held.borrow().as_ref() {
            let _ = held.file.set_modified(SystemTime::now());
        }
    }

    fn let_go(&self, token: Token) -> io::Result<Freed> {
        if let Some(struck) = self.standing(token)? {
            return Ok(Freed::NotOurs(struck));
        }
        if let Some(held) = self.held.borrow_mut().take() {
            // Unlinked while still locked: who opens it now sees, once locked, that it is not the file at this name.
            let _ = std::fs::remove_file(&held.path);
        }
        Ok(Freed::Released)
    }
}

impl Node for LocalNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim, _anew: bool) -> Pending<Answer> {
        let vote = self.take(claim).unwrap_or_else(|error| Vote::Failed(self.fault(&error)));
        Box::pin(std::future::ready(vote.into()))
    }

    fn renew(&self, claim: &Claim, _fence: Fence, _anew: bool) -> Pending<Renewal> {
        let renewal = match self.standing(claim.token) {
            Ok(None) => {
                self.touch();
                Renewal::Renewed(Instant::NEVER)
            }
            Ok(Some(struck)) => Renewal::Lost(struck),
            Err(error) => Renewal::Failed(self.fault(&error)),
        };
        Box::pin(std::future::ready(renewal))
    }

    fn heal(&self, _claim: &Claim, _fence: Fence, _anew: bool) -> Pending<Renewal> {
        // The file is gone and its name free for all: nothing here could cover the time until the command is dead.
        Box::pin(std::future::ready(Renewal::Lost(Struck::Absent)))
    }

    fn look(&self, key: &Key, _crowd: usize) -> Pending<Result<Sight, Fault>> {
        // The fence counter is all locks' together, and says nothing of one. Nobody stands in line.
        let sight = self.read(key).map(|occupant| Sight { occupant, ..Sight::of_nothing(clock::now()) });
        Box::pin(std::future::ready(sight.map_err(|error| self.fault(&error))))
    }

    fn force(&self, _key: &Key, _force: Force) -> Pending<Result<Option<Struck>, Fault>> {
        let why = "a lock on this machine alone ends with the rlock that holds it: end that one";
        Box::pin(std::future::ready(Err(Fault::new(FaultKind::Unfit, why))))
    }

    fn release(&self, _key: &Key, token: Token, _queued: Queued<'_>) -> Pending<Freed> {
        let freed = self.let_go(token).unwrap_or_else(|error| Freed::Failed(self.fault(&error)));
        Box::pin(std::future::ready(freed))
    }

    fn wake(&self) -> Pending<Wake> {
        let (busy, watch) = (Rc::clone(&self.busy), Rc::clone(&self.watch));
        Box::pin(async move {
            // Who holds it deletes the file before letting go. One who is killed does not: then, and where no file can be
            // watched, the pauses between two looks must do.
            let found = busy.borrow_mut().take();
            match found {
                Some((file, path)) if watch.gone(&file, &path).await.is_ok() => Wake::Look,
                _ => std::future::pending().await,
            }
        })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.held.borrow().as_ref().map(|held| held.file.as_raw_fd())
    }

    fn broken(&self) -> Pending<()> {
        Box::pin(std::future::pending())
    }

    fn written(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }
}

impl LocalNode {
    fn fault(&self, error: &io::Error) -> Fault {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultKind::Unavailable,
            _ => FaultKind::Unfit,
        };
        Fault::new(kind, format!("{}: {}", shown(&self.dir), escape::text(&error.to_string())))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).bits())
        .open(path)
}

/// Cut only after a longer value: ext4 writes a file to disk on close that was cut first.
fn write_whole(file: &mut File, value: &str) -> io::Result<()> {
    let old = file.metadata()?.len();
    file.write_all_at(value.as_bytes(), 0)?;
    if old > value.len() as u64 { file.set_len(value.len() as u64) } else { Ok(()) }
}

/// Whoever has the file locked. It ends with its process, so it is nobody's for ever, whatever is written there.
fn occupant(file: &mut File) -> io::Result<Occupant> {
    let occupant = Occupant::from(sighting(file)?);
    Ok(match occupant.who {
        Who::Foreign(_) => Occupant { who: Who::Unnamed, ..occupant },
        Who::Holder(..) | Who::Waiter(_) | Who::Unnamed => occupant,
    })
}

fn sighting(file: &mut File) -> io::Result<Sighting> {
    let length = file.metadata()?.len();
    let mut head = Vec::new();
    file.rewind()?;
    file.take(LARGEST_VALUE as u64).read_to_end(&mut head)?;
    Ok(Sighting { kind: "string".to_owned(), length, head, ttl: None })
}

/// Any key as a file name, no two keys as the same one but for a collision of hashes of over-long ones, which only
/// makes two locks exclude each other.
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

fn own_directory() -> Result<PathBuf, String> {
    let user = Uid::effective();
    let mut refused = String::new();
    for parent in PARENTS {
        let dir = Path::new(parent).join(format!("rlock-{user}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            // Somebody else's directory, or a symlink, under our name is no reason to go elsewhere: another rlock
            // of ours may have seen a good one there, and then the two would not exclude each other.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return checked(dir, user),
            Err(error) => refused = format!("--node local: cannot make {}: {error}", shown(&dir)),
        }
    }
    Err(refused)
}

fn checked(dir: PathBuf, user: Uid) -> Result<PathBuf, String> {
    let there = dir.symlink_metadata().map_err(|error| format!("--node local: {}: {error}", shown(&dir)))?;
    if there.is_dir() && there.uid() == user.as_raw() && there.mode().trailing_zeros() >= 6 {
        return Ok(dir);
    }
    Err(format!(
        "--node local: {} must be a directory of your own that nobody else may enter (chmod 700); name another with local:/dir",
        shown(&dir)
    ))
}

fn made(dir: &Path) -> Result<PathBuf, String> {
    let fail = |error: io::Error| format!("--node local:{}: {}", shown(dir), escape::text(&error.to_string()));
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(fail(error)),
    }
    if !dir.metadata().map_err(fail)?.is_dir() {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    Ok(dir.to_path_buf())
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
