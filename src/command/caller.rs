//! The names of this machine and of its user.

use std::fmt;

use nix::unistd::Uid;

use crate::user;

/// The names of this machine and of the user.
pub(super) struct Caller {
    pub(super) host: String,
    pub(super) user: String,
}

impl Caller {
    /// Returns the names. The user's is that of the environment, else that of the system's file of
    /// users, else its number.
    pub(super) fn new() -> Self {
        let host = nix::unistd::gethostname().map_or_else(
            |_| "?".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        );
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let name = variable("LOGNAME").or_else(|| variable("USER"));
        let user = name
            .or_else(user::name)
            .unwrap_or_else(|| format!("uid {}", Uid::effective()));
        Self { host, user }
    }
}

/// `deploy@web1`.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, self.host)
    }
}
