//! Faults, carried out and mended.

use std::time::Duration;

use nix::sys::signal::Signal;
use rlock::lock::instant::Instant;
use rlock::store::redis::names::{Derived, Names};

use super::World;
use crate::command;
use crate::database::Trouble;
use crate::fault::{Fault, Lost, Target};
use crate::kernel::{self, Event, Kernel, ProcessId};
use crate::network::{self, Way};
use crate::node::Survives;

impl World<'_> {
    /// Lets the fault with this number hit.
    pub(super) fn strike(&mut self, number: usize) {
        let fault = self.scenario.faults[number].1;
        let hits = kernel::with(|kernel| {
            let now = kernel.now;
            match fault {
                Fault::StopServer { node, .. } => {
                    let hits = self.nodes[node].is_up() && self.may_harm(node, now);
                    if hits {
                        self.nodes[node].stop();
                        self.falls(node, kernel);
                    }
                    hits
                }
                Fault::KillServer { node, .. } => {
                    let hits = self.nodes[node].is_up() && self.may_harm(node, now);
                    if hits {
                        self.nodes[node].kill(kernel);
                        self.falls(node, kernel);
                    }
                    hits
                }
                Fault::Save { node } => {
                    self.nodes[node].save();
                    true
                }
                Fault::Lose { node, lost } => {
                    let takes_key = matches!(lost, Lost::Key | Lost::All);
                    let takes_counter = matches!(lost, Lost::Counter | Lost::All);
                    let (tenures, nodes) = (&self.tenures, &self.nodes);
                    let may = (!takes_key || tenures.may_lose(node, nodes, now))
                        && (!takes_counter || tenures.may_lose_counters(&[node], nodes, now))
                        && (lost != Lost::All || tenures.may_forget(node, nodes, now));
                    if may {
                        self.lose(node, lost);
                    }
                    may
                }
                Fault::LoseMeanwhile {
                    away,
                    killed,
                    after,
                    ..
                } => {
                    let forgets = self.forgets(away, killed);
                    let is_ready = self.faults == 0
                        && self.is_settled(kernel, None)
                        && self.tenures.may_lose_counters(&forgets, &self.nodes, now);
                    if is_ready {
                        for node in away_with(away, self.nodes.len()) {
                            match killed {
                                None => self.nodes[node].stop(),
                                Some(_) => self.nodes[node].kill(kernel),
                            }
                        }
                        kernel.after(after, Event::Meanwhile(number));
                    }
                    is_ready
                }
                Fault::StepClock { node, micros } => self.step_clock(node, micros, now),
                Fault::OutOfMemory { node, .. } => {
                    self.nodes[node].server_mut().set_out_of_memory(true);
                    true
                }
                Fault::Demote { node, .. } => {
                    self.nodes[node].server_mut().set_replica(true);
                    true
                }
                Fault::FlushScripts { node } => {
                    self.nodes[node].server_mut().flush_scripts();
                    true
                }
                Fault::Disconnect { node } => {
                    match (&mut self.etcd, &mut self.zookeeper, &mut self.database) {
                        (Some(etcd), ..) => etcd.disconnect_all(node, kernel),
                        (_, Some(ensemble), _) => ensemble.disconnect_all(node, kernel),
                        (.., Some(database)) => database.disconnect_all(node, kernel),
                        _ => self.nodes[node].disconnect_all(kernel),
                    }
                    true
                }
                Fault::Cut {
                    host,
                    node,
                    up,
                    down,
                    ..
                } => {
                    for (way, is_meant) in [(Way::Up, up), (Way::Down, down)] {
                        if is_meant {
                            network::cut(kernel, host, node, way, true);
                        }
                    }
                    true
                }
                Fault::Slow {
                    host, node, extra, ..
                } => {
                    network::slow(kernel, host, node, extra);
                    true
                }
                Fault::Service { node, trouble, .. } => self.trouble(number, node, trouble, kernel),
                Fault::Cluster { node, shift, .. } => self.shift(number, node, shift, kernel),
                Fault::ZooKeeper { trouble, .. } => {
                    let ensemble = self.zookeeper.as_mut();
                    let hit = ensemble.map_or_else(Vec::new, |it| it.strike(trouble, kernel));
                    let hits = !hit.is_empty();
                    self.struck_members.insert(number, hit);
                    hits
                }
                Fault::Etcd { trouble, .. } => {
                    let etcd = self.etcd.as_mut();
                    let hit = etcd.map_or_else(Vec::new, |etcd| etcd.strike(trouble, kernel));
                    let hits = !hit.is_empty();
                    self.struck_members.insert(number, hit);
                    hits
                }
                Fault::Database { trouble, .. } => self.harms_database(number, trouble, kernel),
                Fault::StopClient { .. } | Fault::KillClient { .. } | Fault::Terminate { .. } => {
                    true
                }
            }
        });
        let hits = hits && self.strike_client(number, fault);
        if !hits {
            return;
        }
        self.hits += 1;
        self.faults += 1;
        kernel::with(|kernel| {
            kernel.tell(|| format!("fault {number}: {fault:?}"));
            kernel.after(self.lasts(fault), Event::Mend(number));
        });
    }

    /// Whether the fault hits no client, or one that is there.
    fn strike_client(&mut self, number: usize, fault: Fault) -> bool {
        let (Fault::StopClient { target, .. }
        | Fault::KillClient { target, .. }
        | Fault::Terminate { target }) = fault
        else {
            return true;
        };
        let Some(id) = self.target(target) else {
            return false;
        };
        match fault {
            Fault::StopClient { .. } => {
                let Some(running) = self.processes.get_mut(&id) else {
                    return false;
                };
                running.process.is_stopped = true;
                self.stopped.insert(number, id);
            }
            Fault::KillClient { with_guard, .. } => {
                kernel::with(|kernel| {
                    kernel.tell(|| format!("{id} is killed"));
                    if with_guard {
                        command::lose_guard(kernel, id);
                    }
                });
                self.kill(id);
            }
            _ => {
                kernel::with(|kernel| command::signal(kernel, id, Signal::SIGTERM));
                self.run(id);
            }
        }
        true
    }

    fn target(&self, target: Target) -> Option<ProcessId> {
        let id = match target {
            Target::Holder => kernel::with(|kernel| kernel.witness.any_holder(kernel.now)),
            Target::HolderOf { rest, of } => {
                let holder = kernel::with(|kernel| kernel.witness.any_holder(kernel.now));
                holder.filter(|holder| holder.client % of == rest)
            }
            Target::Waiter(number) => {
                let process = self.clients.get(number).and_then(|(_, process)| *process);
                process.filter(|process| kernel::with(|kernel| kernel.witness.is_queued(*process)))
            }
            Target::Client(number) => self.clients.get(number).and_then(|(_, process)| *process),
        };
        id.filter(|id| {
            self.processes
                .get(id)
                .is_some_and(|running| !running.process.is_stopped)
        })
    }

    /// Ends the fault with this number.
    pub(super) fn mend(&mut self, number: usize) {
        let fault = self.scenario.faults[number].1;
        self.faults -= 1;
        kernel::with(|kernel| {
            self.calm_since = kernel.now;
            if !self.lasts(fault).is_zero() {
                kernel.tell(|| format!("fault {number} is over"));
            }
            match fault {
                Fault::StopServer { node, .. } => {
                    self.nodes[node].resume(kernel);
                    self.rises(node, false, kernel);
                }
                Fault::KillServer { node, survives, .. } => {
                    self.restart(node, survives, kernel);
                }
                Fault::Service { node, trouble, .. } => {
                    self.mend_trouble(number, node, trouble, kernel);
                }
                Fault::Cluster { shift, .. } => self.mend_shift(number, shift, kernel),
                Fault::Etcd { trouble, .. } => {
                    let hit = self.struck_members.remove(&number).unwrap_or_default();
                    if let Some(etcd) = &mut self.etcd {
                        etcd.mend(trouble, &hit, kernel);
                    }
                }
                Fault::ZooKeeper { trouble, .. } => {
                    let hit = self.struck_members.remove(&number).unwrap_or_default();
                    if let Some(ensemble) = &mut self.zookeeper {
                        ensemble.mend(trouble, &hit, kernel);
                    }
                }
                Fault::Database { trouble, .. } => {
                    if let (Some(database), Some((server, _))) =
                        (&mut self.database, self.struck.remove(&number))
                    {
                        database.mend(trouble, server, kernel);
                    }
                }
                Fault::LoseMeanwhile { away, killed, .. } => {
                    for node in away_with(away, self.nodes.len()) {
                        match killed {
                            None => self.nodes[node].resume(kernel),
                            Some(survives) => self.nodes[node].restart(kernel, survives),
                        }
                    }
                }
                Fault::OutOfMemory { node, .. } => {
                    self.nodes[node].server_mut().set_out_of_memory(false);
                }
                Fault::Demote { node, .. } => self.nodes[node].server_mut().set_replica(false),
                Fault::Cut {
                    host,
                    node,
                    up,
                    down,
                    gives_up,
                    ..
                } => {
                    if gives_up {
                        network::give_up(kernel, host, node);
                    }
                    for (way, is_meant) in [(Way::Up, up), (Way::Down, down)] {
                        if is_meant {
                            network::cut(kernel, host, node, way, false);
                        }
                    }
                }
                Fault::Slow { host, node, .. } => network::slow(kernel, host, node, Duration::ZERO),
                _ => {}
            }
            for (number, node) in self.nodes.iter().enumerate() {
                self.tenures.observe(number, node, kernel.now);
            }
        });
        if let Some(id) = self.stopped.remove(&number) {
            kernel::with(|kernel| kernel.witness.resumes(id, kernel.now));
            if let Some(running) = self.processes.get_mut(&id) {
                running.process.is_stopped = false;
            }
            self.run(id);
        }
    }

    /// Lets the other server of a fault forget, while the first is away.
    pub(super) fn lose_meanwhile(&mut self, number: usize) {
        let Fault::LoseMeanwhile {
            away,
            killed,
            node,
            lost,
            ..
        } = self.scenario.faults[number].1
        else {
            return;
        };
        kernel::with(|kernel| {
            let forget = [self.forgets(away, killed), vec![node]].concat();
            let may = self
                .tenures
                .may_lose_counters(&forget, &self.nodes, kernel.now);
            let lost = if may { lost } else { Lost::Key };
            if self.is_settled(kernel, Some(away)) {
                kernel.tell(|| format!("fault {number}: node {node} forgets ({lost:?})"));
                self.lose(node, lost);
            }
        });
    }

    /// Returns the nodes that go away with this one and come back without their data.
    fn forgets(&self, away: usize, killed: Option<Survives>) -> Vec<usize> {
        let forget = killed == Some(Survives::Nothing);
        away_with(away, self.nodes.len())
            .filter(|_| forget)
            .collect()
    }

    /// Whether a living rlock holds the lock for long enough that a renewal has brought it to all
    /// nodes. `away`: but for those that went away with this one.
    fn is_settled(&self, kernel: &mut Kernel, away: Option<usize>) -> bool {
        let now = kernel.now;
        let settled = self.scenario.settings.schedule.ttl() / 2;
        let [(holder, Some(since))] = kernel.witness.holders(0, now)[..] else {
            return false;
        };
        let is_away = |node: usize| {
            away.is_some_and(|away| away_with(away, self.nodes.len()).any(|other| other == node))
        };
        let here = (0..self.nodes.len()).filter(|node| !is_away(*node));
        self.processes.contains_key(&holder)
            && now >= since + settled
            && self.tenures.is_on_all(here, &self.nodes, now)
    }

    /// Loses data of a server that runs.
    fn lose(&mut self, node: usize, lost: Lost) {
        let names = Names::of(&self.scenario.settings.keys[0]);
        let server = self.nodes[node].server_mut();
        match lost {
            Lost::All => server.flush(),
            Lost::Key => server.lose(names.stored().as_bytes()),
            Lost::Counter => server.lose(names.derived(Derived::Fence).as_bytes()),
            Lost::Queue => {
                for kind in [Derived::Queue, Derived::Turns] {
                    server.lose(names.derived(kind).as_bytes());
                }
            }
        }
    }

    /// Lets a trouble hit the database. Returns whether it did.
    fn harms_database(&mut self, number: usize, trouble: Trouble, kernel: &mut Kernel) -> bool {
        let Some(database) = &mut self.database else {
            return false;
        };
        // A lock that is parked has no drift, and the witness allows for the rate alone.
        let remains = self.scenario.settings.remains;
        let parks = !remains.hold_at_least.is_zero() || !remains.lock_delay.is_zero();
        if parks && matches!(trouble, Trouble::SetClock(1..)) {
            return false;
        }
        let Some(server) = database.strike(trouble, kernel) else {
            return false;
        };
        self.struck.insert(number, (server, None));
        if let Trouble::SetClock(micros) = trouble {
            self.set_back += Duration::from_micros(u64::try_from(-micros).unwrap_or(0));
        }
        true
    }

    /// Sets a server's clock. Forward, its keys expire early, as if it had lost them.
    fn step_clock(&mut self, node: usize, micros: i64, now: Instant) -> bool {
        if micros > 0 && !self.tenures.may_lose(node, &self.nodes, now) {
            return false;
        }
        self.nodes[node].step_clock(micros);
        self.set_back += Duration::from_micros(u64::try_from(-micros).unwrap_or(0));
        true
    }

    /// Returns how long a fault lasts; zero if it is done at once.
    fn lasts(&self, fault: Fault) -> Duration {
        match fault {
            Fault::LoseMeanwhile { after, lasts, .. } => {
                after + self.scenario.settings.schedule.ttl() * 2 / 3 + lasts
            }
            Fault::StopServer { lasts, .. }
            | Fault::KillServer { lasts, .. }
            | Fault::OutOfMemory { lasts, .. }
            | Fault::Demote { lasts, .. }
            | Fault::Cut { lasts, .. }
            | Fault::Slow { lasts, .. }
            | Fault::Service { lasts, .. }
            | Fault::Cluster { lasts, .. }
            | Fault::Etcd { lasts, .. }
            | Fault::ZooKeeper { lasts, .. }
            | Fault::Database { lasts, .. }
            | Fault::StopClient { lasts, .. } => lasts,
            Fault::Save { .. }
            | Fault::Lose { .. }
            | Fault::StepClock { .. }
            | Fault::FlushScripts { .. }
            | Fault::Disconnect { .. }
            | Fault::KillClient { .. }
            | Fault::Terminate { .. } => Duration::ZERO,
        }
    }
}

/// Returns the nodes that go away with `away`: as many as a majority can do without.
fn away_with(away: usize, nodes: usize) -> impl Iterator<Item = usize> {
    (0..(nodes - 1) / 2).map(move |further| (away + further) % nodes)
}
