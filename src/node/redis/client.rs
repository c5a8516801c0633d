//! A server asked plain commands, one after the other, where no lock depends on the answers.

use std::time::Duration;

use redis::{Cmd, Value};

use super::Fault;
use super::connection::{Access, Connection, Effect};
use crate::clock;

/// A connection for that.
pub struct Client {
    link: Connection,
    limit: Duration,
}

impl Client {
    /// Connects. `limit` bounds this, and each exchange; a reply has at most `size` bytes.
    pub async fn open(access: &Access, limit: Duration, size: usize) -> Result<Self, Fault> {
        let opened = Box::pin(Connection::open(access, size, limit, None));
        let link = clock::until(clock::now() + limit, opened).await.unwrap_or_else(|| Err(Fault::timeout(limit)))?;
        Ok(Self { link, limit })
    }

    /// One exchange.
    pub async fn ask(&self, command: &Cmd) -> Result<Value, Fault> {
        let reply = self.link.send(command, Effect::None);
        clock::until(clock::now() + self.limit, reply).await.unwrap_or_else(|| Err(Fault::timeout(self.limit)))
    }

    /// The same, for words.
    pub async fn say(&self, words: &[&str]) -> Result<Value, Fault> {
        let mut command = Cmd::new();
        command.arg(words);
        self.ask(&command).await
    }
}
