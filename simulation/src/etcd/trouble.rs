//! Troubles of a cluster, and their ends.

use super::cluster::EtcdCluster;
use crate::kernel::Kernel;
use crate::network::Packet;
use crate::node::State;

/// A trouble of the cluster. Members are counted from the one that leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// SIGSTOP to a member.
    Stop(usize),
    /// SIGKILL to a member. It starts again with its data.
    Kill(usize),
    /// From this member on, as many as the second number says are cut off from the others. Their
    /// clients are not.
    CutOff(usize, usize),
    /// The disk of a member stands still.
    Stall(usize),
    /// The leadership moves to the next member.
    MoveLeader,
}

impl EtcdCluster {
    /// Returns the member that a trouble is about.
    pub(super) fn meant(&self, from_leader: usize) -> usize {
        (self.leader.unwrap_or(0) + from_leader) % self.members.len()
    }

    /// Lets a trouble hit. Returns the members that it has hit; none if it cannot.
    pub fn strike(&mut self, trouble: Trouble, kernel: &mut Kernel) -> Vec<usize> {
        let number = match trouble {
            Trouble::Stop(from)
            | Trouble::Kill(from)
            | Trouble::Stall(from)
            | Trouble::CutOff(from, _) => self.meant(from),
            Trouble::MoveLeader => self.meant(1),
        };
        if !self.members[number].is_live() {
            return Vec::new();
        }
        let mut hit = vec![number];
        match trouble {
            Trouble::Stop(_) => self.members[number].state = State::Stopped,
            Trouble::Stall(_) => self.members[number].is_stalled = true,
            Trouble::Kill(_) => self.kill(number, kernel),
            Trouble::CutOff(_, count) => {
                if self.members.iter().any(|member| member.part != 0) {
                    return Vec::new();
                }
                hit = (number..number + count)
                    .map(|number| number % self.members.len())
                    .collect();
                for number in &hit {
                    self.members[*number].part = 1;
                }
            }
            Trouble::MoveLeader => {
                if self.served_by(number).is_none() {
                    return Vec::new();
                }
                self.hand_over(number, kernel);
                return hit;
            }
        }
        self.changed(kernel);
        hit
    }

    pub(super) fn kill(&mut self, number: usize, kernel: &mut Kernel) {
        let there = &mut self.members[number];
        there.disconnect(kernel, &Packet::Reset);
        (there.state, there.leader) = (State::Down, None);
        (there.held, there.results) = (Vec::new(), Vec::new());
        there.ends.clear();
        there.unrenewed.clear();
        if self.leader == Some(number) {
            self.leader = None;
        }
    }

    /// Ends a trouble that has hit these members.
    pub fn mend(&mut self, trouble: Trouble, hit: &[usize], kernel: &mut Kernel) {
        for number in hit.iter().copied() {
            let there = &mut self.members[number];
            match trouble {
                Trouble::Stop(_) => {
                    there.state = State::Up;
                    for (socket, packet) in std::mem::take(&mut there.inbox) {
                        self.serve(kernel, number, socket, packet);
                    }
                }
                Trouble::Kill(_) => there.state = State::Up,
                Trouble::Stall(_) => there.is_stalled = false,
                Trouble::CutOff(..) => there.part = 0,
                Trouble::MoveLeader => return,
            }
        }
        // Members without PreVote come back with a higher term, which ends that of the leader.
        let disturbs = matches!(trouble, Trouble::CutOff(..)) && kernel.random.chance(0.5);
        if let Some(leader) = self.leader.filter(|_| disturbs) {
            self.leader = None;
            self.members[leader].leader = None;
            self.members[leader].ends.clear();
        }
        self.changed(kernel);
    }
}
