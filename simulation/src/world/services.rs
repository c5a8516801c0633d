//! Services with sentinels: their troubles, carried out and mended, and what the other faults do to them.

use std::time::Duration;

use rlock::lock::instant::Instant;

use super::World;
use crate::deployment::Deployment;
use crate::fault::Trouble;
use crate::kernel::{self, BEGIN, Kernel};
use crate::network::{self, Way};
use crate::node::Node;
use crate::scenario::Scenario;
use crate::service::{Service, Step};

/// Returns the services of a world; none where each node is one server.
pub(super) fn of(scenario: &Scenario, nodes: &mut [Node]) -> Vec<Service> {
    let deployment = scenario.settings.deployment;
    let Deployment::Sentinels { down_after, .. } = deployment else { return vec![] };
    (0..scenario.settings.nodes).map(|node| Service::new(node, deployment, down_after, nodes)).collect()
}

impl World<'_> {
    /// Lets a service do what is due.
    pub(super) fn service_does(&mut self, node: usize, step: Step) {
        kernel::with(|kernel| self.services[node].step(step, &mut self.nodes, kernel));
    }

    /// When the last service changed: then a server takes over that may not grant yet.
    pub(super) fn services_changed(&self) -> Instant {
        self.services.iter().map(Service::changed).max().unwrap_or(BEGIN)
    }

    /// A server has changed its data.
    pub(super) fn has_written(&mut self, machine: usize, kernel: &mut Kernel) {
        if let Some(service) = self.service_of(machine) {
            self.services[service].has_written(machine, &self.nodes, kernel);
        }
    }

    /// Whether a machine may be harmed: a majority of the sentinels must hear of a switch.
    pub(super) fn may_harm(&self, machine: usize, now: Instant) -> bool {
        let service = self.service_of(machine).map(|service| &self.services[service]);
        service.is_none_or(|service| !service.sentinels().contains(&machine) || !service.is_switching(now))
    }

    /// A machine's server has been stopped or killed.
    pub(super) fn falls(&mut self, machine: usize, kernel: &mut Kernel) {
        if let Some(service) = self.service_of(machine) {
            self.services[service].falls(machine, kernel);
        }
    }

    /// A machine's server runs again; if it `started`, as a new process.
    pub(super) fn rises(&mut self, machine: usize, started: bool, kernel: &mut Kernel) {
        let Some(service) = self.service_of(machine).filter(|_| self.nodes[machine].is_up()) else { return };
        if started {
            self.services[service].sentinel_started(machine, &mut self.nodes, kernel);
        }
        self.services[service].rises(machine, &mut self.nodes, kernel);
    }

    fn service_of(&self, machine: usize) -> Option<usize> {
        let service = machine / self.scenario.settings.deployment.machines();
        (service < self.services.len()).then_some(service)
    }

    /// Lets a trouble hit a service. Returns whether it did.
    pub(super) fn trouble(&mut self, number: usize, node: usize, trouble: Trouble, kernel: &mut Kernel) -> bool {
        let (service, nodes) = (&mut self.services[node], &mut self.nodes);
        let primary = service.primary();
        let sentinel = |number: usize| service.sentinels().start + number;
        match trouble {
            Trouble::StopPrimary | Trouble::KillPrimary(_) => {
                if !nodes[primary].is_up() {
                    return false;
                }
                self.struck.insert(number, primary);
                match trouble {
                    Trouble::StopPrimary => nodes[primary].stop(),
                    _ => nodes[primary].kill(kernel),
                }
                service.falls(primary, kernel);
                true
            }
            Trouble::Failover => service.begins_failover(nodes, kernel),
            Trouble::CutOff { host } => {
                if service.is_any_cut_off() || service.is_switching(kernel.now) {
                    return false;
                }
                self.struck.insert(number, primary);
                service.cut_off(Some(primary), nodes, kernel);
                self.cut_beside(node, primary, host, true, kernel);
                true
            }
            Trouble::Isolate { sentinel: one } => {
                let may = !service.is_any_isolated() && !service.is_switching(kernel.now);
                let sentinel = sentinel(one);
                if may {
                    service.isolate(Some(sentinel), kernel);
                }
                may
            }
            Trouble::Deafen { host } => {
                cut(host, service.sentinels(), true, kernel);
                true
            }
            Trouble::Lag(lag) => {
                service.set_lag(lag);
                true
            }
        }
    }

    /// Ends a trouble of a service.
    pub(super) fn mend_trouble(&mut self, number: usize, node: usize, trouble: Trouble, kernel: &mut Kernel) {
        let struck = self.struck.remove(&number);
        let (service, nodes) = (&mut self.services[node], &mut self.nodes);
        match (trouble, struck) {
            (Trouble::StopPrimary, Some(machine)) => {
                nodes[machine].resume(kernel);
                self.rises(machine, false, kernel);
            }
            (Trouble::KillPrimary(survives), Some(machine)) => {
                nodes[machine].restart(kernel, survives);
                self.rises(machine, true, kernel);
            }
            (Trouble::CutOff { host }, Some(machine)) => {
                service.cut_off(None, nodes, kernel);
                self.cut_beside(node, machine, host, false, kernel);
            }
            (Trouble::Isolate { .. }, _) => service.isolate(None, kernel),
            (Trouble::Deafen { host }, _) => cut(host, service.sentinels(), false, kernel),
            (Trouble::Lag(_), _) => service.set_lag(Duration::ZERO),
            _ => {}
        }
    }

    /// Cuts `host` off from all machines of a service but this one, or ends that.
    fn cut_beside(&self, node: usize, machine: usize, host: Option<usize>, is_cut: bool, kernel: &mut Kernel) {
        let service = &self.services[node];
        let others = service.servers().chain(service.sentinels()).filter(|other| *other != machine);
        if let Some(host) = host {
            cut(host, others, is_cut, kernel);
        }
    }
}

/// Cuts both ways between a host and machines, or mends them.
fn cut(host: usize, machines: impl Iterator<Item = usize>, is_cut: bool, kernel: &mut Kernel) {
    for machine in machines {
        for way in [Way::Up, Way::Down] {
            network::cut(kernel, host, machine, way, is_cut);
        }
    }
}
