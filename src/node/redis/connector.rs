//! How connections to one server are opened, and what is looked at while one opens.

use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::connection::{Connection, Hearing};
use super::dial::{Dial, dial};
use super::stranger;
use crate::node::Fault;
use crate::node::address::Endpoint;

/// Opens connections to one server.
#[derive(Clone)]
pub struct Connector {
    access: Access,
    dial: Dial,
    /// Whether a server that says nothing is looked at more closely.
    is_real: bool,
}

impl Connector {
    /// Connects to the server that `access` names.
    pub fn new(access: Access) -> Self {
        Self { is_real: true, ..Self::over(access, Arc::new(dial)) }
    }

    /// The same, over streams that `dial` opens.
    pub fn over(access: Access, dial: Dial) -> Self {
        Self { access, dial, is_real: false }
    }

    /// The server's address, without user and password.
    pub fn name(&self) -> String {
        self.access.server.to_string()
    }

    /// Opens a connection, within `time` by the caller's care. For the rest see [`Connection::over`].
    pub(in crate::node) async fn open(
        &self,
        time: Duration,
        limit: usize,
        hearing: Option<Hearing>,
    ) -> Result<Connection, Fault> {
        let stream = (self.dial)(self.access.clone(), time).await?;
        let state = Arc::default();
        let opened = Connection::set_up(&self.access, stream, limit, hearing, &state).await;
        if opened.is_err() && state.borrow().is_dumb() && self.leads_to_tls(time).await {
            return Err(stranger::tls());
        }
        opened
    }

    /// Whether the server speaks TLS where none was asked for. The answer takes a part of `time` at most.
    pub(super) async fn leads_to_tls(&self, time: Duration) -> bool {
        let is_plain = matches!(self.access.server.endpoint, Endpoint::Tcp { tls: false, .. });
        is_plain && self.is_real && stranger::speaks_tls((self.dial)(self.access.clone(), time), time).await
    }
}
