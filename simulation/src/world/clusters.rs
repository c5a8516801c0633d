//! Clusters: their troubles, carried out and mended.

use std::time::Duration;

use super::World;
use crate::cluster::{Cluster, Step};
use crate::deployment::Deployment;
use crate::fault::Shift;
use crate::kernel::{self, Event, Kernel};
use crate::node::Node;
use crate::scenario::Scenario;

/// Longest time that a message takes from one member to another.
const BUS: Duration = Duration::from_millis(1);

/// Returns the clusters of a world, if its nodes are some.
pub(super) fn of(scenario: &Scenario, nodes: &mut [Node]) -> Vec<Cluster> {
    let deployment = scenario.settings.deployment;
    let Deployment::Cluster { node_timeout, .. } = deployment else {
        return vec![];
    };
    let slot = crate::server::slot(scenario.settings.keys[0].stored().as_bytes());
    (0..scenario.settings.nodes)
        .map(|node| Cluster::new(node, deployment, node_timeout, slot, nodes))
        .collect()
}

impl World<'_> {
    /// Lets a cluster do what is due.
    pub(super) fn cluster_does(&mut self, node: usize, step: Step) {
        kernel::with(|kernel| self.clusters[node].step(step, &mut self.nodes, kernel));
    }

    /// Sends what clients have published at a member to the others.
    pub(super) fn tells_members(&mut self, machine: usize, kernel: &mut Kernel) {
        let deployment = self.scenario.settings.deployment;
        for (channel, message) in self.nodes[machine].server_mut().take_bus() {
            for other in deployment
                .servers(machine / deployment.machines())
                .filter(|other| *other != machine)
            {
                let takes = kernel.random.time(Duration::ZERO, BUS);
                kernel.after(takes, Event::Bus(other, channel.clone(), message.clone()));
            }
        }
    }

    /// Passes on what was published at another member.
    pub(super) fn passes_on(&mut self, machine: usize, channel: &[u8], message: &[u8]) {
        if self.nodes[machine].is_up() {
            kernel::with(|kernel| self.nodes[machine].publish(kernel, channel, message));
        }
    }

    /// Lets a trouble hit a cluster. Returns whether it did.
    pub(super) fn shift(
        &mut self,
        number: usize,
        node: usize,
        shift: Shift,
        kernel: &mut Kernel,
    ) -> bool {
        let (cluster, nodes) = (&mut self.clusters[node], &mut self.nodes);
        let primary = cluster.primary();
        match shift {
            Shift::Stop | Shift::Kill(_) => {
                let may = nodes[primary].is_up() && cluster.may_harm(kernel.now);
                if may {
                    self.bring_down(number, primary, matches!(shift, Shift::Kill(_)), kernel);
                    self.clusters[node].falls(primary, kernel);
                }
                may
            }
            Shift::HandOver => cluster.hands_over(nodes, kernel),
            Shift::Move { at_once, pause } => cluster.moves_slot(at_once, pause, nodes, kernel),
        }
    }

    /// Ends a trouble of a cluster.
    pub(super) fn mend_shift(&mut self, number: usize, shift: Shift, kernel: &mut Kernel) {
        match (shift, self.struck.remove(&number)) {
            (Shift::Stop, Some((machine, _))) => {
                self.nodes[machine].resume(kernel);
                self.rises(machine, false, kernel);
            }
            (Shift::Kill(survives), Some((machine, _))) => {
                self.restart(machine, survives, kernel);
            }
            _ => {}
        }
    }
}
