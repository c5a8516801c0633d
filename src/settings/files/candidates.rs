//! Which files are read, and which of them are refused.
//!
//! 1. Never one of the working directory: a checkout must not redirect locks.
//! 2. A standard file that another user owns or may write to is refused: under `sudo` with a kept
//!    HOME, that user would choose root's nodes and password file. A file that was named is the
//!    caller's choice.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid};

use crate::exit::{Failure, Outcome};
use crate::settings::open_regular;
use crate::text::escape;

/// The file for all users of this machine.
const SYSTEM: &str = "/etc/rlock/config.toml";

/// Size in bytes from which on a file is refused.
const LARGEST: u64 = 1024 * 1024;

/// Permissions of the group and of other users.
const OF_OTHERS: u32 = 0o077;

/// The value of `--config` for no file.
pub const NO_FILE: &str = "none";

/// A file that may be read.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    kind: Kind,
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Contents {
    /// Its path, escaped for messages.
    pub(super) shown: String,
    pub(super) text: String,
    /// Whether only its owner can read it.
    pub(super) is_private: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The system's, which may be missing.
    System,
    /// The user's, which may be missing, also because the directory is another user's.
    User,
    /// One that was named, which must be there.
    Named,
}

/// Returns the files to read, of which later ones go before earlier ones: the one that `--config`
/// names, or the standard ones.
pub(super) fn of(named: Option<&Path>) -> Vec<ConfigFile> {
    match named {
        Some(path) if path == Path::new(NO_FILE) => Vec::new(),
        Some(path) => vec![ConfigFile {
            path: path.to_owned(),
            kind: Kind::Named,
        }],
        None => {
            let is_own = Uid::current() == Uid::effective() && Gid::current() == Gid::effective();
            let system = ConfigFile {
                path: SYSTEM.into(),
                kind: Kind::System,
            };
            let user = is_own
                .then(|| users(|name| std::env::var_os(name)))
                .flatten();
            std::iter::once(system)
                .chain(user.map(|path| ConfigFile {
                    path,
                    kind: Kind::User,
                }))
                .collect()
        }
    }
}

/// Returns the path of the user's file. Relative directories are ignored (XDG Base Directory
/// Specification).
fn users(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("rlock/config.toml"))
}

impl ConfigFile {
    /// Reads the file; `None` if it may be missing and is.
    pub(super) fn read(&self) -> Result<Option<Contents>, Failure> {
        let shown = escape::text(&self.path.to_string_lossy());
        match self.text() {
            Ok((text, is_private)) => Ok(Some(Contents {
                shown,
                text,
                is_private,
            })),
            Err(error) if self.may_be_missing(error.kind()) => Ok(None),
            Err(error) => {
                let why = match error.kind() {
                    ErrorKind::NotFound => {
                        "there is no such file; --config takes the path of one, or none".to_owned()
                    }
                    ErrorKind::InvalidData => "it is not UTF-8".to_owned(),
                    _ => error.to_string(),
                };
                Err(Failure::new(Outcome::Config, format!("{shown}: {why}")))
            }
        }
    }

    /// Returns the text, and whether only the owner can read it.
    fn text(&self) -> io::Result<(String, bool)> {
        let (file, metadata) = open_regular(&self.path)?;
        if let Some(why) = foreign(&metadata).filter(|_| self.kind != Kind::Named) {
            return Err(io::Error::other(why));
        }
        // With room for the whole file, it is read at once.
        let mut text =
            String::with_capacity(usize::try_from(metadata.len().min(LARGEST)).unwrap_or(0) + 64);
        if file.take(LARGEST).read_to_string(&mut text)? as u64 >= LARGEST {
            return Err(io::Error::other(format!("it has {LARGEST} bytes or more")));
        }
        Ok((text, metadata.mode() & OF_OTHERS == 0))
    }

    fn may_be_missing(&self, error: ErrorKind) -> bool {
        match (self.kind, error) {
            (Kind::System | Kind::User, ErrorKind::NotFound | ErrorKind::NotADirectory) => true,
            // HOME may be left over from another user. A file that is there and cannot be read is
            // an error (as git does).
            (Kind::User, ErrorKind::PermissionDenied) => self.path.symlink_metadata().is_err(),
            _ => false,
        }
    }
}

/// Returns why another user could have written the file.
fn foreign(metadata: &Metadata) -> Option<String> {
    let (user, owner) = (Uid::effective().as_raw(), metadata.uid());
    if owner != user && owner != 0 {
        let remedy = "set HOME, or name a file with --config";
        Some(format!(
            "it belongs to uid {owner}, not to uid {user} or root; {remedy}"
        ))
    } else {
        (metadata.mode() & 0o002 != 0)
            .then(|| "every user may write to it; run chmod o-w".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_users_file_is_below_xdg_config_home_or_home_and_never_relative() {
        let found = |xdg: Option<&str>, home: Option<&str>| {
            users(|name| if name == "HOME" { home } else { xdg }.map(OsString::from))
                .map(|path| path.display().to_string())
        };
        let is = |path: &str| Some(format!("{path}/rlock/config.toml"));
        assert_eq!(found(Some("/x"), Some("/h")), is("/x"));
        for xdg in [None, Some(""), Some("x")] {
            assert_eq!(found(xdg, Some("/h")), is("/h/.config"));
            assert_eq!(found(xdg, None), None);
            assert_eq!(found(xdg, Some(".")), None);
        }
    }

    #[test]
    fn only_a_standard_file_may_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [dir.path().join("none"), file.join("none")] {
            for (kind, is_fine) in [
                (Kind::System, true),
                (Kind::User, true),
                (Kind::Named, false),
            ] {
                assert_eq!(
                    ConfigFile {
                        path: path.clone(),
                        kind
                    }
                    .read()
                    .is_ok(),
                    is_fine,
                    "{kind:?} {path:?}"
                );
            }
        }
        std::fs::write(&file, b"\xff").unwrap();
        let failure = ConfigFile {
            path: file,
            kind: Kind::User,
        }
        .read()
        .unwrap_err();
        assert!(failure.message.ends_with("it is not UTF-8"), "{failure}");
        for kind in [Kind::System, Kind::User, Kind::Named] {
            let failure = ConfigFile {
                path: dir.path().to_owned(),
                kind,
            }
            .read()
            .unwrap_err();
            assert_eq!(failure.outcome, Outcome::Config);
        }
    }

    #[test]
    fn a_standard_file_that_every_user_may_write_to_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |mode: u32, kind| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            ConfigFile {
                path: file.path().to_owned(),
                kind,
            }
            .read()
            .map(|read| read.map(|contents| contents.is_private))
        };
        assert!(
            read(0o646, Kind::User)
                .unwrap_err()
                .message
                .contains("chmod o-w")
        );
        assert_eq!(read(0o646, Kind::Named).unwrap(), Some(false));
        assert_eq!(read(0o640, Kind::System).unwrap(), Some(false));
        assert_eq!(read(0o600, Kind::User).unwrap(), Some(true));
    }
}
