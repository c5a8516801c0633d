//! Services with sentinels: their troubles, carried out and mended. And what the other faults do to
//! services and clusters.

use std::time::Duration;

use rlock::lock::instant::Instant;

use super::World;
use crate::cluster::Cluster;
use crate::deployment::Deployment;
use crate::fault::Trouble;
use crate::kernel::{self, BEGIN, Event, Kernel};
use crate::network::{self, Way};
use crate::node::{Node, Survives};
use crate::scenario::Scenario;
use crate::server::Wait;
use crate::service::{Service, Step};

/// Time after which it is tried again to answer a client of a server that is stopped.
const RESUMES: Duration = Duration::from_millis(5);

/// Returns the services of a world; none where each node is one server.
pub(super) fn of(scenario: &Scenario, nodes: &mut [Node]) -> Vec<Service> {
    let deployment = scenario.settings.deployment;
    let Deployment::Sentinels { down_after, .. } = deployment else {
        return vec![];
    };
    (0..scenario.settings.nodes)
        .map(|node| Service::new(node, deployment, down_after, nodes))
        .collect()
}

impl World<'_> {
    /// Lets a service do what is due.
    pub(super) fn service_does(&mut self, node: usize, step: Step) {
        kernel::with(|kernel| self.services[node].step(step, &mut self.nodes, kernel));
    }

    /// When a server last took over, which may not grant yet.
    pub(super) fn deployments_changed(&self) -> Instant {
        let all = self
            .services
            .iter()
            .map(Service::changed)
            .chain(self.clusters.iter().map(Cluster::changed));
        all.max().unwrap_or(BEGIN)
    }

    /// A server has changed its data.
    pub(super) fn has_written(&mut self, machine: usize, kernel: &mut Kernel) {
        let node = self.node_of(machine);
        if let Some(service) = self.services.get_mut(node) {
            service.has_written(machine, &self.nodes, kernel);
        }
        if let Some(cluster) = self.clusters.get_mut(node) {
            cluster.has_written(machine, &self.nodes, kernel);
        }
    }

    /// Lets the clients wait that have asked a server for it.
    pub(super) fn begin_waits(&mut self, machine: usize, kernel: &mut Kernel) {
        let node = self.node_of(machine);
        for wait in self.nodes[machine].server_mut().take_waits() {
            let service = self.services.get(node);
            let at = service.map_or(kernel.now, |it| it.copied(machine, &wait, kernel.now));
            kernel.at(at, Event::Waited(machine, wait));
        }
    }

    /// Answers a client that has waited. A server that is stopped does so when it resumes.
    pub(super) fn has_waited(&mut self, machine: usize, wait: Wait) {
        kernel::with(|kernel| {
            if self.nodes[machine].is_stopped() {
                return kernel.after(RESUMES, Event::Waited(machine, wait));
            }
            let service = self.services.get(self.node_of(machine));
            let copies = service.map_or(0, |it| it.copies(machine, wait.writes, kernel.now));
            let before = self.nodes[machine].server().writes();
            self.nodes[machine].answer(kernel, wait.peer, copies);
            self.has_served(machine, before, kernel);
        });
    }

    /// Whether a machine may be harmed: a majority of the sentinels must hear of a switch, and all
    /// members of a cluster but one.
    pub(super) fn may_harm(&self, machine: usize, now: Instant) -> bool {
        let node = self.node_of(machine);
        let is_needed =
            |service: &Service| service.sentinels().contains(&machine) && service.is_switching(now);
        !self.services.get(node).is_some_and(is_needed)
            && self
                .clusters
                .get(node)
                .is_none_or(|cluster| cluster.may_harm(now))
    }

    /// A machine's server has been stopped or killed.
    pub(super) fn falls(&mut self, machine: usize, kernel: &mut Kernel) {
        let node = self.node_of(machine);
        if let Some(service) = self.services.get_mut(node) {
            service.falls(machine, kernel);
        }
        if let Some(cluster) = self.clusters.get_mut(node) {
            cluster.falls(machine, kernel);
        }
    }

    /// A machine's server runs again; if it `started`, as a new process.
    pub(super) fn rises(&mut self, machine: usize, started: bool, kernel: &mut Kernel) {
        let node = self.node_of(machine);
        if !self.nodes[machine].is_up() {
            return;
        }
        if let Some(service) = self.services.get_mut(node) {
            if started {
                service.sentinel_started(machine, &mut self.nodes, kernel);
            }
            service.rises(machine, &mut self.nodes, kernel);
        }
        if let Some(cluster) = self.clusters.get_mut(node) {
            cluster.rises(machine, &mut self.nodes, kernel);
            self.tells_members(machine, kernel);
        }
    }

    /// Starts a machine's server again.
    pub(super) fn restart(&mut self, machine: usize, survives: Survives, kernel: &mut Kernel) {
        self.nodes[machine].restart(kernel, survives);
        let (node, guard) = (self.node_of(machine), self.grown_up());
        if let Some(cluster) = self
            .clusters
            .get_mut(node)
            .filter(|_| survives != Survives::All)
        {
            cluster.forgets(kernel.now + guard);
        }
        self.rises(machine, true, kernel);
    }

    fn node_of(&self, machine: usize) -> usize {
        machine / self.scenario.settings.deployment.machines()
    }

    /// Kills or stops a machine for the trouble of this number.
    pub(super) fn bring_down(
        &mut self,
        number: usize,
        machine: usize,
        kills: bool,
        kernel: &mut Kernel,
    ) {
        self.struck.insert(number, (machine, None));
        let machine = &mut self.nodes[machine];
        if kills {
            machine.kill(kernel);
        } else {
            machine.stop();
        }
    }

    /// Lets a trouble hit a service. Returns whether it did.
    pub(super) fn trouble(
        &mut self,
        number: usize,
        node: usize,
        trouble: Trouble,
        kernel: &mut Kernel,
    ) -> bool {
        let holder = kernel.witness.any_holder(kernel.now);
        let host = holder.map(|holder| self.scenario.clients[holder.client].host);
        let (service, nodes) = (&mut self.services[node], &mut self.nodes);
        let primary = service.primary();
        match trouble {
            Trouble::StopPrimary | Trouble::KillPrimary(_) => {
                if !nodes[primary].is_up() {
                    return false;
                }
                self.bring_down(
                    number,
                    primary,
                    matches!(trouble, Trouble::KillPrimary(_)),
                    kernel,
                );
                self.services[node].falls(primary, kernel);
                true
            }
            Trouble::Failover => service.begins_failover(nodes, kernel),
            Trouble::CutOff { with_holder } => {
                if !service.is_whole() || service.is_switching(kernel.now) {
                    return false;
                }
                let host = host.filter(|_| with_holder);
                self.struck.insert(number, (primary, host));
                service.cut_off(Some(primary), nodes, kernel);
                self.cut_beside(node, primary, host, true, kernel);
                true
            }
            Trouble::Isolate { sentinel: one } => {
                let may = service.is_whole() && !service.is_switching(kernel.now);
                if may {
                    service.isolate(Some(service.sentinels().start + one), kernel);
                }
                may
            }
            Trouble::Deafen => {
                let Some(host) = host else { return false };
                self.struck.insert(number, (primary, Some(host)));
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
    pub(super) fn mend_trouble(
        &mut self,
        number: usize,
        node: usize,
        trouble: Trouble,
        kernel: &mut Kernel,
    ) {
        let struck = self.struck.remove(&number);
        let (service, nodes) = (&mut self.services[node], &mut self.nodes);
        match (trouble, struck) {
            (Trouble::StopPrimary, Some((machine, _))) => {
                nodes[machine].resume(kernel);
                self.rises(machine, false, kernel);
            }
            (Trouble::KillPrimary(survives), Some((machine, _))) => {
                self.restart(machine, survives, kernel);
            }
            (Trouble::CutOff { .. }, Some((machine, host))) => {
                service.cut_off(None, nodes, kernel);
                self.cut_beside(node, machine, host, false, kernel);
            }
            (Trouble::Isolate { .. }, _) => service.isolate(None, kernel),
            (Trouble::Deafen, Some((_, Some(host)))) => {
                cut(host, service.sentinels(), false, kernel);
            }
            (Trouble::Lag(_), _) => service.set_lag(Duration::ZERO),
            _ => {}
        }
    }

    /// Cuts `host` off from all machines of a service but this one, or ends that.
    fn cut_beside(
        &self,
        node: usize,
        machine: usize,
        host: Option<usize>,
        is_cut: bool,
        kernel: &mut Kernel,
    ) {
        let service = &self.services[node];
        let others = service
            .servers()
            .chain(service.sentinels())
            .filter(|other| *other != machine);
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
