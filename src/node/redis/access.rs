//! The way to a server: its address, and the secrets that it asks for.

use super::tls::Trust;
use crate::node::address::{Secret, Server};

/// How to connect: the address, completed with what the environment or a file says.
#[derive(Clone)]
pub struct Access {
    /// Endpoint, user and database.
    pub server: Server,
    /// The password, from whichever source.
    pub password: Option<Secret>,
    /// Needed for `rediss://` only.
    pub trust: Option<Trust>,
}
