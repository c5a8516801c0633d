//! Plain commands to a server, one after the other, where no lock depends on the replies.

use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::Connection;
use super::connector::Connector;
use super::state::Effect;
use crate::clock;
use crate::node::Fault;

/// A connection for plain commands.
pub struct Client {
    connection: Connection,
    limit: Duration,
}

impl Client {
    /// Connects. `limit` bounds this, and each exchange; a reply has at most `size` bytes.
    pub async fn open(connector: &Connector, limit: Duration, size: usize) -> Result<Self, Fault> {
        let opened = clock::until(clock::now() + limit, Box::pin(connector.open(limit, size, None))).await;
        Ok(Self { connection: opened.unwrap_or_else(|| Err(Fault::timeout(limit)))?, limit })
    }

    /// Whether it is of use for another command.
    pub fn works(&self) -> bool {
        self.connection.works()
    }

    /// Sends a command and waits for its reply.
    pub async fn ask(&self, command: &Cmd) -> Result<Value, Fault> {
        let reply = self.connection.send(command, Effect::None);
        clock::until(clock::now() + self.limit, reply).await.unwrap_or_else(|| Err(Fault::timeout(self.limit)))
    }

    /// The same for a command of plain words.
    pub async fn command(&self, words: &[&str]) -> Result<Value, Fault> {
        let mut command = Cmd::new();
        command.arg(words);
        self.ask(&command).await
    }

    /// Whether the server has closed the connection and never said anything.
    pub(super) fn is_dumb(&self) -> bool {
        self.connection.is_dumb()
    }

    /// Whether the server has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }
}
