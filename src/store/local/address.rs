//! The directory of `local:/dir`, and whether users share its locks.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use crate::text::escape;

/// The address of the user's own directory. With `:` it begins that of another.
pub(in crate::store) const NAME: &str = "local";

/// The option behind a directory that several users lock in.
const SHARED: &str = "?shared";

/// A directory of this machine that an address names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalDir {
    /// Its absolute path.
    pub path: PathBuf,
    /// Whether the files in it may belong to other users, who are trusted.
    pub is_shared: bool,
}

impl LocalDir {
    /// Reads what follows `local:`.
    pub(in crate::store) fn parse(raw: &str) -> Result<Self, String> {
        let (dir, is_shared) = raw
            .strip_suffix(SHARED)
            .map_or((raw, false), |dir| (dir, true));
        // A directory that is named with an option would be another lock's.
        if dir.contains('?') {
            return Err(
                "local: takes a directory without ?, and no option but ?shared behind it"
                    .to_owned(),
            );
        }
        let path = PathBuf::from(dir);
        if path.is_absolute() {
            Ok(Self { path, is_shared })
        } else {
            Err("local: takes an absolute directory".to_owned())
        }
    }

    /// The address as another rlock reads it.
    pub(in crate::store) fn address(&self) -> OsString {
        [
            OsStr::new(NAME),
            OsStr::new(":"),
            self.path.as_os_str(),
            OsStr::new(self.option()),
        ]
        .into_iter()
        .collect()
    }

    fn option(&self) -> &'static str {
        if self.is_shared { SHARED } else { "" }
    }
}

impl fmt::Display for LocalDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{NAME}:{}{}",
            escape::text(&self.path.to_string_lossy()),
            self.option()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::address::Address;
    use crate::store::address::tests::{refused, shown};

    #[test]
    fn a_directory_may_be_shared_and_has_no_other_option() {
        for (raw, is_shared) in [
            ("local:/var/locks", false),
            ("local:/var/locks?shared", true),
        ] {
            let address = Address::parse(raw).unwrap();
            assert_eq!(
                address,
                Address::Local(Some(LocalDir {
                    path: "/var/locks".into(),
                    is_shared
                }))
            );
            assert_eq!(address.without_secret(), raw);
            assert_eq!(shown(raw), raw);
        }
        for raw in [
            "local:/dir?mode=0660",
            "local:/dir?shared=1",
            "local:/a?b?shared",
            "local:/dir?shared?shared",
        ] {
            refused(raw, "no option but ?shared");
        }
        refused("local:?shared", "absolute");
        refused("local:dir?shared", "absolute");
    }
}
