//! The steps of the model: each returns the states that can follow, by the functions that decide in rlock.

use std::time::Duration;

use rlock::lock::ballot::{Ballot, Discount, Verdict};
use rlock::lock::fence::Fence;
use rlock::lock::lease::Revoked;
use rlock::lock::quorum::Quorum;
use rlock::lock::reply::Vote;
use rlock::lock::restart;

use super::rules::{Bounds, Rule, Rules};
use super::state::{Broken, Client, NODES, Node, Phase, Reply, Request, World, at, denied, terms};

impl World {
    /// Returns all states that can follow.
    pub(super) fn successors(&self, rules: Rules, bounds: Bounds) -> Result<Vec<Self>, Broken> {
        let mut all = Vec::new();
        if self.now < bounds.horizon {
            self.tick(rules, &mut all);
        }
        for node in 0..NODES {
            if self.restarts > 0 && self.may_restart(node) {
                let mut next = self.clone();
                next.restarts -= 1;
                next.nodes[node] = Node { started: Some(self.now), ..Node::default() };
                all.push(next);
            }
        }
        for index in 0..self.clients.len() {
            self.of_client(index, rules, bounds, &mut all)?;
        }
        Ok(all)
    }

    /// Whether a node may restart: a minority forgets at a time, so no other restarted node is still too young to count.
    fn may_restart(&self, node: usize) -> bool {
        (0..NODES).all(|other| other == node || !self.is_young(other))
    }

    fn is_young(&self, node: usize) -> bool {
        let least = restart::least_uptime(Duration::from_secs(self.ttl));
        self.nodes[node].started.is_some_and(|started| self.now - started < least)
    }

    fn tick(&self, rules: Rules, all: &mut Vec<Self>) {
        let mut next = self.clone();
        next.now += 1;
        for node in &mut next.nodes {
            node.key = node.key.filter(|(_, expires)| *expires > next.now);
        }
        let is_over = |client: &Client| match &client.phase {
            Phase::Holding { lease, .. } => lease.deadline().is_none_or(|deadline| deadline <= at(next.now)),
            _ => false,
        };
        // At most one client holds, or the search has ended.
        match next.clients.iter().position(is_over).filter(|_| rules.have(Rule::DeadByDeadline)) {
            Some(index) => next.let_go(index, all),
            None => all.push(next),
        }
    }

    /// Sends a release behind all earlier requests, and ignores all later replies. Each node executes it at once or never. In the
    /// first case the earlier requests are never executed later; in the second they may be at any time.
    fn let_go(&self, index: usize, all: &mut Vec<Self>) {
        let mut quiet = self.clone();
        let token = quiet.clients[index].token(index);
        quiet.clients[index].phase = Phase::Idle;
        quiet.clients[index].known = Default::default();
        quiet.clients[index].told = Default::default();
        for reached in 0..1 << NODES {
            let mut next = quiet.clone();
            for at in (0..NODES).filter(|node| reached >> node & 1 == 1) {
                next.nodes[at].key = next.nodes[at].key.filter(|(holder, _)| *holder != token);
                next.clients[index].requests[at].clear();
            }
            all.push(next);
        }
    }

    fn of_client(&self, index: usize, rules: Rules, bounds: Bounds, all: &mut Vec<Self>) -> Result<(), Broken> {
        let client = &self.clients[index];
        for node in 0..NODES {
            if !client.requests[node].is_empty() {
                self.execute(index, node, rules, all);
            }
        }
        match &client.phase {
            Phase::Idle if client.attempts < bounds.attempts => all.push(self.ask(index)),
            Phase::Idle => {}
            Phase::Asking { begun, ballot, confirming } => {
                let verdict = ballot.verdict();
                if verdict == Verdict::Failed || self.now > *begun {
                    self.let_go(index, all);
                }
                match verdict {
                    Verdict::Won(fence) => self.take(index, fence, rules, all)?,
                    Verdict::Unconfirmed(fence) if !rules.have(Rule::Confirm) => self.take(index, fence, rules, all)?,
                    Verdict::Unconfirmed(fence) if confirming.is_none() => all.push(self.confirm(index, fence)),
                    _ => {}
                }
            }
            Phase::Holding { fence, lease } => {
                self.let_go(index, all);
                if client.upkeep > 0 {
                    for node in (0..NODES).filter(|node| client.requests[*node].is_empty()) {
                        let (token, asked, fence) = (client.token(index), self.now, *fence);
                        let request = if lease.wants_healing(node) {
                            Request::Heal { token, asked, fence, told: client.told[node] }
                        } else {
                            Request::Renew { token, asked, fence }
                        };
                        all.push(self.changed(index, |client| {
                            client.upkeep -= 1;
                            client.requests[node].push_back(request);
                        }));
                    }
                }
            }
        }
        Ok(())
    }

    fn changed(&self, index: usize, change: impl FnOnce(&mut Client)) -> Self {
        let mut next = self.clone();
        change(&mut next.clients[index]);
        next
    }

    fn ask(&self, index: usize) -> Self {
        self.changed(index, |client| {
            client.attempts += 1;
            let (token, asked) = (client.token(index), self.now);
            let ballot = Box::new(Ballot::new(Quorum::of(NODES), terms()));
            client.phase = Phase::Asking { begun: self.now, ballot, confirming: None };
            client.requests.iter_mut().for_each(|queue| queue.push_back(Request::Acquire { token, asked }));
        })
    }

    fn confirm(&self, index: usize, fence: Fence) -> Self {
        self.changed(index, |client| {
            let (token, asked) = (client.token(index), self.now);
            let Phase::Asking { ballot, confirming, .. } = &mut client.phase else { return };
            *confirming = Some(fence);
            client.known.iter_mut().filter(|known| known.vote == 0).for_each(|known| known.vote = 1);
            for node in ballot.confirm(fence) {
                client.requests[node].push_back(Request::Renew { token, asked, fence });
            }
        })
    }

    fn take(&self, index: usize, fence: Fence, rules: Rules, all: &mut Vec<Self>) -> Result<(), Broken> {
        let mut next = self.clone();
        let client = &mut next.clients[index];
        let Phase::Asking { ballot, .. } = &client.phase else { return Ok(()) };
        let lease = ballot.lease().clone();
        if rules.have(Rule::Tenure) && lease.deadline().is_none_or(|deadline| deadline <= at(self.now)) {
            self.let_go(index, all);
            return Ok(());
        }
        if self.clients.iter().any(|other| matches!(other.phase, Phase::Holding { .. })) {
            return Err(Broken::TwoHolders);
        }
        if fence.get() <= self.last_fence {
            return Err(Broken::FenceNotAbove);
        }
        client.phase = Phase::Holding { fence, lease };
        client.known.iter_mut().for_each(|known| known.vote = 0);
        next.last_fence = fence.get();
        all.push(next);
        Ok(())
    }

    /// Executes the first request of a connection, by the scripts' rules.
    fn execute(&self, index: usize, at: usize, rules: Rules, all: &mut Vec<Self>) {
        let mut next = self.clone();
        let young = rules.have(Rule::RestartGuard) && self.is_young(at);
        let Some(request) = next.clients[index].requests[at].pop_front() else { return };
        let node = &mut next.nodes[at];
        let holder = node.key.map(|(token, _)| token);
        let expires = self.now + self.ttl;
        let (asked, token, reply) = match request {
            Request::Acquire { token, asked } if holder.is_some() => (asked, token, Reply::Denied(true)),
            Request::Acquire { token, asked } if young => (asked, token, Reply::Denied(false)),
            Request::Acquire { token, asked } => {
                // The clock of fences is finer than the seconds here: no more than ten attempts fit into one.
                let fence = Fence::after(node.counter, asked * 10).expect("a small number");
                (node.counter, node.key) = (fence.get(), Some((token, expires)));
                (asked, token, Reply::Granted(fence))
            }
            Request::Renew { token, asked, fence } | Request::Heal { token, asked, fence, .. }
                if holder == Some(token) =>
            {
                let reply = Reply::Renewed(node.counter);
                (node.counter, node.key) = (node.counter.max(fence.get()), Some((token, expires)));
                (asked, token, reply)
            }
            Request::Heal { token, asked, fence, told }
                if holder.is_none() && (node.counter <= fence.get() || told == Some(node.counter)) =>
            {
                let reply = Reply::Healed(node.counter);
                (node.counter, node.key) = (node.counter.max(fence.get()), Some((token, expires)));
                (asked, token, reply)
            }
            Request::Renew { token, asked, .. } | Request::Heal { token, asked, .. } => {
                let how = if holder.is_some() { Revoked::TakenOver } else { Revoked::Missing };
                (asked, token, Reply::Revoked(how, node.counter))
            }
        };
        let client = &next.clients[index];
        if client.token(index) == token && !matches!(client.phase, Phase::Idle) {
            next.hear(index, at, asked, &reply, all);
        }
        // A refusal that is not received leads to the same state as a request that was never executed.
        if !matches!(reply, Reply::Denied(_)) {
            all.push(next);
        }
    }

    /// Delivers a reply to its client, which acts as `redlock` does.
    fn hear(&self, index: usize, node: usize, asked: u64, reply: &Reply, all: &mut Vec<Self>) {
        let mut next = self.clone();
        let client = &mut next.clients[index];
        client.known[node].learn(node, &client.phase, [asked, self.now, asked + self.ttl], reply);
        let (now, sent, end) = (at(self.now), at(asked), at(asked + self.ttl));
        let lost = match (&mut client.phase, reply.clone()) {
            (Phase::Asking { ballot, .. }, Reply::Granted(fence)) => {
                ballot.answered(node, sent, Vote::Granted { until: end, fence }.into(), now);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Denied(held)) => {
                ballot.answered(node, sent, denied(held).into(), now);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Renewed(_)) => {
                ballot.confirmed(node, sent, end);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Revoked(how, _)) => {
                ballot.discount(node, Discount::Lost(how), now);
                false
            }
            (Phase::Asking { ballot, .. }, Reply::Healed(_)) => {
                ballot.discount(node, Discount::Unconfirmed, now);
                false
            }
            (Phase::Holding { fence, lease }, Reply::Granted(_) | Reply::Renewed(_) | Reply::Healed(_)) => {
                let gains = lease.wants_healing(node);
                if !gains {
                    lease.extend(node, sent, end);
                } else if lease.deadline().is_some_and(|deadline| now < deadline) {
                    match reply.counter() {
                        Some(counter) if counter <= fence.get() => lease.extend(node, sent, end),
                        _ => lease.admit(node, sent, end, now),
                    }
                }
                false
            }
            (Phase::Holding { lease, .. }, Reply::Revoked(how, counter)) => {
                client.told[node] = (how == Revoked::Missing).then_some(counter);
                if how == Revoked::TakenOver || !lease.wants_healing(node) {
                    lease.revoke(node, how, now);
                }
                lease.loss(now).is_some()
            }
            (Phase::Holding { lease, .. }, Reply::Denied(true)) => {
                lease.revoke(node, Revoked::TakenOver, now);
                lease.loss(now).is_some()
            }
            (Phase::Holding { .. }, Reply::Denied(false)) | (Phase::Idle, _) => false,
        };
        if lost { next.let_go(index, all) } else { all.push(next) }
    }
}
