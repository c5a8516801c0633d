//! The path of a lock: the chroot, a slash, and the lock's name less one leading slash.

use super::line;
use crate::lock::key::Key;

/// The znode below which ZooKeeper keeps its own.
const RESERVED: &str = "zookeeper";

/// The znode of a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LockPath(String);

impl LockPath {
    /// Returns the path of `key` below `chroot`, which is empty or begins with a slash. Errors are
    /// for people.
    pub(super) fn of(chroot: &str, key: &Key) -> Result<Self, String> {
        let name = key.stored();
        let path = format!("{chroot}/{}", name.strip_prefix('/').unwrap_or(name));
        check(&path)?;
        Ok(Self(path))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of an entry.
    pub(super) fn child(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Returns the paths of the znode and of all above it, the highest first.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &str> {
        let ends = self.0.match_indices('/').map(|(at, _)| at).skip(1);
        ends.chain([self.0.len()]).map(|end| &self.0[..end])
    }
}

/// Returns the name of the entry whose path this is.
pub(super) fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
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
    if path.split('/').nth(1) == Some(RESERVED) {
        return Err("is below /zookeeper, which is ZooKeeper's own".to_owned());
    }
    Ok(())
}

fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(chroot: &str, name: &str) -> Result<String, String> {
        LockPath::of(chroot, &Key::new("", name).unwrap()).map(|path| path.0)
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
        assert_eq!(name_of(&path.child("x")), "x");
    }

    #[test]
    fn names_that_are_no_znodes_are_refused() {
        for (name, why) in [
            ("a//b", "empty part"),
            ("a/", "empty part"),
            ("a/../b", ".."),
            ("a\nb", "no znode"),
            ("a\u{e000}", "no znode"),
            ("a/x-lock-0000000001", "entry"),
            ("zookeeper/config", "own"),
        ] {
            assert!(of("", name).is_err_and(|told| told.contains(why)), "{name}");
        }
        assert!(of("/x", "zookeeper").is_ok());
        assert!(of("", "größe 漢字").is_ok());
    }
}
