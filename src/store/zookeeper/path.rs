//! The path of a lock: the chroot, a slash, and the lock's name less one leading slash.

use super::jute::{ANY_VERSION, Operation};
use super::line;
use super::view::{LEASES, MUTEX};
use crate::lock::key::Key;
use crate::lock::mode::Mode;

/// The znode below which ZooKeeper keeps its own.
const RESERVED: &str = "zookeeper";

/// The beginning of the znodes that tell the last successes. They are no part of any lock.
const MARK: &str = "rlock:once:";

/// The znode of a lock, and the one that tells its last success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LockPath {
    lock: String,
    mark: String,
}

impl LockPath {
    /// Returns the path of `key` below `chroot`, which is empty or begins with a slash. Errors are
    /// for people.
    pub(super) fn of(chroot: &str, key: &Key) -> Result<Self, String> {
        let name = key.stored();
        let name = name.strip_prefix('/').unwrap_or(name);
        if name.starts_with(MARK) {
            return Err(
                "begins with rlock:once:, where ZooKeeper has the successes of --once".to_owned(),
            );
        }
        let lock = format!("{chroot}/{name}");
        check(&lock)?;
        let one_part = name.replace('%', "%25").replace('/', "%2F");
        let mark = format!("{chroot}/{MARK}{one_part}");
        Ok(Self { lock, mark })
    }

    /// Returns the path of the znode that tells the last success.
    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Returns the paths of the znodes in which the entries of a claim are: the lock's, and with slots
    /// those of the semaphore, the mutex first.
    pub(super) fn znodes(&self, mode: Mode) -> Vec<String> {
        let mut all = vec![self.lock.clone()];
        if mode.number().is_some() {
            all.extend([MUTEX, LEASES].map(|znode| self.child(znode)));
        }
        all
    }

    /// Returns the path of an entry.
    pub(super) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.lock)
    }

    /// Returns the parts of a transaction that delete these entries.
    pub(super) fn deletions(&self, entries: &[String]) -> Vec<Operation> {
        let delete = |name: &String| Operation::Delete(self.child(name), ANY_VERSION);
        entries.iter().map(delete).collect()
    }

    /// Returns the name of the entry whose path this is, as it was to [`LockPath::child`].
    pub(super) fn name_of(&self, path: &str) -> String {
        let name = path.strip_prefix(&self.lock).unwrap_or(path);
        name.trim_start_matches('/').to_owned()
    }

    /// Returns the paths of the znode and of all above it, the highest first.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &str> {
        let ends = self.lock.match_indices('/').map(|(at, _)| at).skip(1);
        ends.chain([self.lock.len()]).map(|end| &self.lock[..end])
    }
}

/// Checks an absolute path by the rules of `PathUtils.java`, and that no client would take a part
/// of it for something else.
pub(super) fn check(path: &str) -> Result<(), String> {
    for segment in path.split('/').skip(1) {
        let why = match segment {
            "" => "has an empty part between two slashes, or at its end",
            "." | ".." => "has a part that is . or ..",
            _ if segment.contains(is_forbidden) => "has characters that no znode has",
            _ if line::is_entry(segment) => "has a part that looks like an entry of a lock's line",
            _ => continue,
        };
        return Err(why.to_owned());
    }
    if path.split('/').nth(1).is_some_and(is_reserved) {
        return Err("is below /zookeeper, which is ZooKeeper's own".to_owned());
    }
    Ok(())
}

/// Whether ZooKeeper keeps its own below the highest znode of this name.
pub(super) fn is_reserved(name: &str) -> bool {
    name == RESERVED
}

fn is_forbidden(c: char) -> bool {
    // Those above U+FFFF are two characters to Java, neither of which a name has.
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(chroot: &str, name: &str) -> Result<String, String> {
        LockPath::of(chroot, &Key::new("", name).unwrap()).map(|path| path.lock)
    }

    #[test]
    fn a_lock_is_where_other_clients_would_name_it() {
        assert_eq!(of("/locks", "job").as_deref(), Ok("/locks/job"));
        assert_eq!(of("", "/locks/job").as_deref(), Ok("/locks/job"));
        let path = LockPath::of("/a", &Key::new("", "b/c").unwrap()).unwrap();
        assert_eq!(
            path.prefixes().collect::<Vec<_>>(),
            ["/a", "/a/b", "/a/b/c"]
        );
        for name in ["x", "locks/x"] {
            assert_eq!(path.name_of(&path.child(name)), name);
        }
        let znodes = ["/a/b/c", "/a/b/c/locks", "/a/b/c/leases"];
        assert_eq!(path.znodes(Mode::Slots(2)), znodes);
        assert_eq!(path.znodes(Mode::Shared), znodes[..1]);
        assert_eq!(path.mark(), "/a/rlock:once:b%2Fc");
    }

    #[test]
    fn names_that_are_no_znodes_are_refused() {
        for (name, why) in [
            ("a//b", "empty part"),
            ("a/", "empty part"),
            ("a/../b", ".."),
            ("a\nb", "no znode"),
            ("a\u{e000}", "no znode"),
            ("a\u{1f600}", "no znode"),
            ("a/x-lock-0000000001", "entry"),
            ("zookeeper/config", "own"),
            ("rlock:once:job", "successes"),
        ] {
            assert!(of("", name).is_err_and(|told| told.contains(why)), "{name}");
        }
        assert!(of("/x", "zookeeper").is_ok());
        assert!(of("", "größe 漢字").is_ok());
    }
}
