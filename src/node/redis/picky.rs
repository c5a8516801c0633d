//! A client of a server or proxy that may close the connection at a command that it does not know, or after an error.

use std::time::Duration;

use redis::Value;

use super::client::Client;
use super::connection::REPLY_LIMIT;
use super::connector::Connector;
use crate::node::{Fault, FaultKind};

/// The words of [`PickyClient`] for a command at which the connection was closed.
const CLOSED: &str = "it closes the connection at this command";

/// A client that opens another connection after such a command.
pub(super) struct PickyClient<'a> {
    connector: &'a Connector,
    limit: Duration,
    client: Client,
    /// A key on which a harmless command shows whether the server answers at all.
    key: &'a str,
}

impl<'a> PickyClient<'a> {
    /// Connects.
    pub(super) async fn open(connector: &'a Connector, limit: Duration, key: &'a str) -> Result<Self, Fault> {
        Ok(Self { connector, limit, client: Client::open(connector, limit, REPLY_LIMIT).await?, key })
    }

    /// The connection that is in use.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a command, which must do no harm if it is sent twice. A server may have closed the connection at the command before
    /// it, so it is repeated on a new one. A command at which that is closed too is one that the server does not know, if it answers
    /// another one.
    pub(super) async fn command(&mut self, words: &[&str]) -> Result<Value, Fault> {
        for _ in 0..2 {
            let said = self.client.command(words).await;
            let is_closed = matches!(&said, Err(fault) if fault.kind == FaultKind::Unknown) && self.client.is_closed();
            if !is_closed {
                return said;
            }
            self.client = Client::open(self.connector, self.limit, REPLY_LIMIT).await?;
        }
        match self.client.command(&["TYPE", self.key]).await {
            Err(fault) if fault.kind == FaultKind::Unknown => Err(fault),
            _ => Err(Fault::new(FaultKind::Unfit, CLOSED)),
        }
    }
}

/// Whether the connection was closed at the command, which a script may be able to use.
pub(super) fn is_closed_at(fault: &Fault) -> bool {
    fault.why == CLOSED
}
