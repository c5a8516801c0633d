//! Fingerprints of states, by which the search knows a state that it has met. States that differ only in the names of the nodes
//! have the same fingerprint.

use std::hash::{Hash, Hasher};

use rlock::lock::fence::Fence;

use super::state::{NODES, Node, Phase, Request, World};

/// A quick hash for small numbers, mixed as in splitmix64.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mut mixed = (self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Request {
    /// Returns all of the request but its client.
    fn print(&self) -> (u8, u8, u64, u64, u64) {
        match self {
            Self::Acquire { token, asked } => (0, token.1, *asked, 0, 0),
            Self::Renew { token, asked, fence } => (1, token.1, *asked, fence.get(), 0),
            Self::Heal { token, asked, fence, told } => {
                (2, token.1, *asked, fence.get(), told.map_or(0, |told| told + 1))
            }
        }
    }
}

impl World {
    /// Returns a number that does not depend on the order of the nodes, nor on that of two clients.
    pub(super) fn print(&self) -> u64 {
        let order: Vec<usize> = (0..self.clients.len()).collect();
        if let [first, second] = order[..] {
            self.print_in(&order).min(self.print_in(&[second, first]))
        } else {
            self.print_in(&order)
        }
    }

    fn print_in(&self, order: &[usize]) -> u64 {
        let mut columns = [0; NODES];
        for (node, column) in columns.iter_mut().enumerate() {
            let mut hasher = Mixer::default();
            let Node { key, counter, started } = self.nodes[node];
            (counter, started).hash(&mut hasher);
            key.map(|((client, attempt), expires)| (order[client], attempt, expires)).hash(&mut hasher);
            for &client in order {
                let client = &self.clients[client];
                (client.known[node], client.told[node]).hash(&mut hasher);
                for request in &client.requests[node] {
                    request.print().hash(&mut hasher);
                }
            }
            *column = hasher.finish();
        }
        columns.sort_unstable();
        let mut hasher = Mixer::default();
        (self.now, self.last_fence, self.restarts, columns).hash(&mut hasher);
        for &client in order {
            let client = &self.clients[client];
            let phase = match &client.phase {
                Phase::Idle => (0, 0, 0),
                Phase::Asking { begun, confirming, .. } => (1, *begun, confirming.map_or(0, Fence::get)),
                Phase::Holding { fence, .. } => (2, fence.get(), 0),
            };
            (client.attempts, client.upkeep, phase).hash(&mut hasher);
        }
        hasher.finish()
    }
}
