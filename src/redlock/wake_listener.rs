//! Listens on all nodes for the wake-ups of one waiter, and for connections that break. `lock::waiting` decides what follows.

use std::future::{pending, poll_fn};
use std::task::{Context, Poll};

use super::Nodes;
use crate::lock::queue::Wake;
use crate::lock::waiting::Event;
use crate::node::Pending;

/// The words of the nodes to a waiter, from one attempt to the next.
pub struct WakeListener {
    nodes: Nodes,
    wakes: Vec<Pending<Wake>>,
    /// For each node that would wake the waiter: the end of its connection. For each other one: its move to another server.
    broken: Vec<Pending<()>>,
}

impl WakeListener {
    /// Listens for wake-ups.
    pub fn new(nodes: &Nodes) -> Self {
        Self {
            wakes: nodes.iter().map(|node| node.wake()).collect(),
            broken: nodes.iter().map(|_| never()).collect(),
            nodes: nodes.clone(),
        }
    }

    /// Listens for the end of connections too, from now on. A node that does not listen has just been tried, and may be gone
    /// for a day; the others will wake the waiter.
    pub fn with_connections(&mut self) {
        self.broken = self.nodes.iter().map(|node| if node.listens() { node.broken() } else { node.moved() }).collect();
    }

    /// Returns the number of nodes that will wake the waiter.
    pub fn subscribed(&self) -> usize {
        self.nodes.iter().filter(|node| node.listens()).count()
    }

    /// Returns the next event. May be dropped and called again.
    pub async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        for (node, wake) in self.wakes.iter_mut().enumerate() {
            if let Poll::Ready(word) = wake.as_mut().poll(cx) {
                *wake = self.nodes[node].wake();
                return Poll::Ready(Event::Woken(node, word));
            }
        }
        for broken in &mut self.broken {
            if broken.as_mut().poll(cx).is_ready() {
                *broken = never();
                return Poll::Ready(Event::Disconnected);
            }
        }
        Poll::Pending
    }
}

fn never() -> Pending<()> {
    Box::pin(pending())
}
