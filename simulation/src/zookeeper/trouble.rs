//! Troubles of an ensemble, and their ends.

use std::time::Duration;

use rlock::store::zookeeper::jute::{ANY_VERSION, Operation};

use super::ensemble::Ensemble;
use super::server::{Asker, Input, Role};
use super::tree::Command;
use crate::kernel::Kernel;
use crate::network::Packet;
use crate::node::State;

/// A trouble of the ensemble. Servers are counted from the one that leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// SIGSTOP to a server.
    Stop(usize),
    /// SIGKILL to a server. It starts again with its data.
    Kill(usize),
    /// From this server on, as many as the second number says are cut off from the others. Their
    /// clients are not.
    CutOff {
        from: usize,
        count: usize,
        /// Whether the followers notice at once, and the leader does not.
        is_noticed: bool,
    },
    /// The disk of a server stands still.
    Stall(usize),
    /// A server hears its leader so much later.
    Lag(usize, Duration),
    /// A hand deletes an entry of a holder.
    Delete(usize),
    /// A hand ends the session of a holder.
    End,
}

impl Ensemble {
    /// Returns the server that a trouble is about.
    fn meant(&self, from_leader: usize) -> usize {
        (self.working().unwrap_or(0) + from_leader) % self.servers.len()
    }

    /// Lets a trouble hit. Returns the servers that it has hit; none if it cannot.
    pub fn strike(&mut self, trouble: Trouble, kernel: &mut Kernel) -> Vec<usize> {
        let number = match trouble {
            Trouble::Stop(from)
            | Trouble::Kill(from)
            | Trouble::Stall(from)
            | Trouble::Lag(from, _)
            | Trouble::CutOff { from, .. } => self.meant(from),
            Trouble::Delete(_) | Trouble::End => {
                return Vec::from_iter(self.take_away(trouble, kernel));
            }
        };
        let server = &mut self.servers[number];
        if !server.is_able() {
            return Vec::new();
        }
        let mut hit = vec![number];
        match trouble {
            Trouble::Stop(_) => server.state = State::Stopped,
            Trouble::Stall(_) => server.is_stalled = true,
            Trouble::Lag(_, lag) if server.lag.is_zero() => server.lag = lag,
            Trouble::Kill(_) => self.kill(number, kernel),
            Trouble::CutOff {
                count, is_noticed, ..
            } if self.servers.iter().all(|server| server.part == 0) => {
                let all = (number..number + count).map(|number| number % self.servers.len());
                hit = all.collect();
                for number in &hit {
                    self.servers[*number].part = 1;
                }
                if is_noticed {
                    self.notice(kernel);
                }
            }
            _ => hit.clear(),
        }
        hit
    }

    /// Followers that are cut off from their leader lose their connections to it.
    fn notice(&mut self, kernel: &mut Kernel) {
        for number in 0..self.servers.len() {
            let server = &self.servers[number];
            if let Role::Following(following) = &server.role
                && server.state == State::Up
                && self.servers[following.leader].part != server.part
            {
                self.look(number, kernel);
            }
        }
    }

    fn kill(&mut self, number: usize, kernel: &mut Kernel) {
        self.servers[number].disconnect(kernel, &Packet::Reset);
        self.look(number, kernel);
        let server = &mut self.servers[number];
        server.state = State::Down;
        server.inbox.clear();
        server.restart();
    }

    /// Takes the lock of a holder away by hand, through a leader that works.
    fn take_away(&mut self, trouble: Trouble, kernel: &mut Kernel) -> Option<usize> {
        let leader = self.working()?;
        let holders = kernel.witness.held_for(0, Duration::ZERO, kernel.now);
        if holders.is_empty() {
            return None;
        }
        let (token, _) = holders[kernel.random.below(holders.len())];
        let text = token.to_string();
        let tree = self.servers[leader].replica.tree();
        let own = tree.ephemerals().filter(|(path, _)| path.contains(&text));
        let own: Vec<(String, i64)> = own.map(|(path, of)| (path.to_owned(), of)).collect();
        let (path, session) = match trouble {
            Trouble::Delete(which) => own.get(which % own.len().max(1))?,
            _ => own.first()?,
        };
        let timeout = u64::try_from(*tree.sessions().get(session)?).unwrap_or(0);
        let asker = Asker::Hand(token, Duration::from_millis(timeout));
        let command = match trouble {
            Trouble::Delete(_) => {
                Command::Multi(vec![Operation::Delete(path.clone(), ANY_VERSION)])
            }
            _ => Command::End,
        };
        if command == Command::End
            && let Some(leading) = self.servers[leader].leading()
        {
            leading.tracker.close(*session);
        }
        self.propose(leader, *session, command, asker, kernel);
        Some(leader)
    }

    /// Ends a trouble that has hit these servers.
    pub fn mend(&mut self, trouble: Trouble, hit: &[usize], kernel: &mut Kernel) {
        for number in hit.iter().copied() {
            let server = &mut self.servers[number];
            match trouble {
                Trouble::Stop(_) => {
                    server.state = State::Up;
                    self.resume(number, kernel);
                }
                Trouble::Kill(_) => {
                    server.state = State::Up;
                    self.look_later(number, kernel);
                }
                Trouble::Stall(_) => {
                    server.is_stalled = false;
                    self.logs(number, kernel);
                }
                Trouble::CutOff { .. } => server.part = 0,
                Trouble::Lag(..) => server.lag = Duration::ZERO,
                Trouble::Delete(_) | Trouble::End => {}
            }
        }
        self.join_parts(kernel);
    }

    /// A server goes on with what has come meanwhile, or first with what its clock says.
    fn resume(&mut self, number: usize, kernel: &mut Kernel) {
        if kernel.random.chance(0.5) {
            self.ticks(number, kernel);
        }
        for input in std::mem::take(&mut self.servers[number].inbox) {
            match input {
                Input::Packet(socket, packet) => self.serve(number, socket, packet, kernel),
                Input::Message(from, link, message) => {
                    self.hears(number, from, link, message, kernel);
                }
            }
        }
    }
}
