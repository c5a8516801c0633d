//! The commands to the keeper of a place, in their order.

use std::collections::VecDeque;

use futures_util::future::pending;
use tokio::sync::{mpsc, oneshot};

use crate::lock::schedule::Term;
use crate::lock::token::Token;
use crate::store::net::unwritten::Unwritten;
use crate::store::{Answer, Claim, Release, ReleaseReply, Renewal};

/// A command to the keeper.
pub(super) enum Command {
    Acquire(Box<Claim>, oneshot::Sender<Answer>),
    Keep(Token, Term, oneshot::Sender<Renewal>),
    Release(Box<Release>, Unwritten, oneshot::Sender<ReleaseReply>),
    /// A waiter gives its place up.
    Leave(Unwritten, oneshot::Sender<()>),
    /// A holder wants to be told when its entry changes.
    Listen(Token, oneshot::Sender<()>),
    /// A znode that was watched has changed.
    Walk,
    /// The connection broke.
    Attach,
    /// The next waiter's last proof will not be young for much longer.
    Prove,
    /// The server is to hear of a waiter's session.
    Ping,
}

impl Command {
    /// Whether it interrupts what is under way.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Release(..) | Self::Leave(..))
    }
}

/// The commands that came.
pub(super) struct Inbox {
    commands: mpsc::UnboundedReceiver<Command>,
    /// Those that came while another one was carried out.
    later: VecDeque<Command>,
}

impl Inbox {
    pub(super) fn of(commands: mpsc::UnboundedReceiver<Command>) -> Self {
        Self {
            commands,
            later: VecDeque::new(),
        }
    }

    /// Returns the next command; `None` if there will be none. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<Command> {
        match self.later.pop_front() {
            Some(command) => Some(command),
            None => self.commands.recv().await,
        }
    }

    /// Returns a command that interrupts. What came before it is of no use any more. May be dropped
    /// and called again.
    pub(super) async fn urgent(&mut self) -> Command {
        while let Some(command) = self.commands.recv().await {
            if command.is_urgent() {
                self.later.clear();
                return command;
            }
            self.later.push_back(command);
        }
        pending().await
    }
}
