//! Leases: they are kept alive without raft, and ended through it.

use std::time::Duration;

use prost::Message;
use rlock::store::etcd::rpc::{LeaseResponse, ResponseHeader};

use super::cluster::{EtcdCluster, Step, id_of, lasts};
use super::member::CallId;
use super::store::Command;
use crate::kernel::{Event, Kernel};
use crate::node::State;

/// Interval at which a leader looks for leases that are over.
pub(super) const EXPIRES_EACH: Duration = Duration::from_millis(500);

impl EtcdCluster {
    /// Returns the member that answers for leases, as this one knows it; `None` if it cannot be
    /// reached. A disk that stands still keeps none from answering.
    pub(super) fn lessor(&self, number: usize) -> Option<usize> {
        let there = &self.members[number];
        let leader = there.leader?;
        let that = &self.members[leader];
        let is_reached = leader == number || that.state == State::Up && that.part == there.part;
        (is_reached && that.leader == Some(leader)).then_some(leader)
    }

    pub(super) fn keep_alive(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        call: CallId,
        lease: i64,
        term: u64,
    ) {
        // Without an answer the client asks another member.
        let Some(leader) = self.lessor(number) else {
            return;
        };
        let (now, there) = (kernel.now, &mut self.members[leader]);
        let ttl = match there.ends.get_mut(&lease) {
            None => 0,
            // It is told once the lease has ended.
            Some(known) if known.end <= now => {
                there.unrenewed.push((lease, number, call, term));
                return;
            }
            // A leader that was replaced has not heard of its end.
            Some(known) => {
                known.end = now + lasts(known.ttl, there.clock);
                known.ttl
            }
        };
        self.tell_lease(kernel, number, call, term, ttl, 0);
    }

    /// Tells a keepalive's client that the lease is over.
    pub(super) fn refuse_unrenewed(&mut self, leader: usize, lease: i64, kernel: &mut Kernel) {
        let all = std::mem::take(&mut self.members[leader].unrenewed);
        for (of, number, call, term) in all {
            if of == lease {
                self.tell_lease(kernel, number, call, term, 0, 0);
            } else {
                self.members[leader]
                    .unrenewed
                    .push((of, number, call, term));
            }
        }
    }

    pub(super) fn time_to_live(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        call: CallId,
        lease: i64,
    ) {
        let Some(leader) = self.lessor(number) else {
            return;
        };
        let term = self.members[number].term;
        let known = self.members[leader].ends.get(&lease).copied();
        let (left, granted) = known.map_or((-1, 0), |known| {
            let left = known.end.since(kernel.now);
            // By its own clock.
            let left = left.mul_f64(self.members[leader].clock.speed()).as_secs();
            (i64::try_from(left).unwrap_or(0), known.ttl)
        });
        self.tell_lease(kernel, number, call, term, left, granted);
    }

    pub(super) fn tell_lease(
        &mut self,
        kernel: &mut Kernel,
        number: usize,
        call: CallId,
        raft_term: u64,
        ttl: i64,
        granted_ttl: i64,
    ) {
        let header = ResponseHeader {
            member_id: id_of(number),
            raft_term,
            ..self.store.header()
        };
        let reply = LeaseResponse {
            header: Some(header),
            ttl,
            granted_ttl,
        };
        self.members[number].reply(kernel, call, Ok(reply.encode_to_vec()));
    }

    /// Ends leases that are over.
    pub(super) fn expire(&mut self, leader: usize, kernel: &mut Kernel) {
        let now = kernel.now;
        if self.members[leader].is_live() {
            let ends = &self.members[leader].ends;
            let over: Vec<i64> = ends
                .iter()
                .filter(|(_, known)| known.end <= now)
                .map(|(lease, _)| *lease)
                .collect();
            for lease in over {
                self.propose(leader, None, Command::Revoke(lease), kernel);
            }
        }
        kernel.after(EXPIRES_EACH, Event::Etcd(Step::Expire(self.term)));
    }
}
