//! A world: servers, hosts and clients, played from the begin to the end of a scenario.

mod clusters;
mod faults;
mod judge;
mod services;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use rlock::exit::Outcome;
use rlock::lock::instant::Instant;
use rlock::lock::quorum::Quorum;
use rlock::lock::token::Token;

use crate::client::{Client, acquire, operator, run};
use crate::cluster::Cluster;
use crate::command::{self, Commands};
use crate::database::Database;
use crate::deployment::Deployment;
use crate::etcd::EtcdCluster;
use crate::kernel::{self, BEGIN, Event, Kernel, ProcessId};
use crate::network::{self, Network, Packet, SocketId};
use crate::node::Node;
use crate::process::Process;
use crate::random::Random;
use crate::scenario::{Errand, Kind, Plan, Scenario};
use crate::service::Service;
use crate::story::Story;
use crate::tenure::Tenures;
use crate::witness::{Counts, Violation, Witness};
use crate::zookeeper::Ensemble;

/// Time after the last fault in which all clients must have ended.
const PATIENCE: Duration = Duration::from_secs(300);

/// The result of a world.
#[derive(Debug, Default)]
pub struct Report {
    /// The first violation.
    pub violation: Option<Violation>,
    /// The witness's counters.
    pub counts: Counts,
    /// Number of faults that hit.
    pub faults: u64,
    /// Number of servers that took over from others.
    pub switches: u64,
    /// Number of times that a slot was moved.
    pub moves: u64,
    /// Number of requests by which a server that had been replaced changed data.
    pub stale: u64,
    /// Number of requests that the servers executed.
    pub requests: u64,
    /// Simulated time.
    pub took: Duration,
    /// A number that differs if any event came at another time.
    pub digest: u64,
    /// Number of clients by exit code.
    pub exits: BTreeMap<u8, u64>,
    /// The story, if it was asked for.
    pub story: Story,
}

/// Plays `scenario`. `story`: where its lines go.
pub fn play(scenario: &Scenario, story: Story) -> Report {
    let hosts = scenario.skews.len();
    let network = Network::new(
        scenario.seed,
        scenario.latency,
        hosts,
        scenario.clocks.len(),
    );
    let random = Random::of(scenario.seed, "world", 0);
    // Slots are taken in the order in which their waiters come when they are told.
    let keeps_order = scenario.kind == Kind::Calm && scenario.is_exclusive();
    let needed = Quorum::of(scenario.settings.nodes).needed();
    let witness = Witness::new(scenario.settings.keys.len(), needed, keeps_order);
    // The time that is kept for SIGKILL, but for what the guard takes.
    let commands = Commands::new(scenario.settings.schedule.margin().mul_f64(0.8));
    kernel::boot(Kernel::new(random, network, commands, witness, story));
    let mut world = World::new(scenario);
    world.begin();
    world.go_on();
    world.judge_the_end();
    let report = world.report();
    drop(world);
    let story = kernel::halt()
        .map(|kernel| kernel.story)
        .unwrap_or_default();
    Report { story, ..report }
}

/// Plays `scenario`, and takes a panic for a violation.
pub fn play_caught(scenario: &Scenario, story: Story) -> Report {
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(scenario, story)));
    played.unwrap_or_else(|cause| {
        kernel::halt();
        let why = cause.downcast_ref::<String>().cloned();
        let why = why.or_else(|| cause.downcast_ref::<&str>().map(|why| (*why).to_owned()));
        let violation = Some(Violation::Panic(why.unwrap_or_default()));
        Report {
            violation,
            ..Report::default()
        }
    })
}

/// A client's process, and its outcome once it has ended.
struct Running {
    process: Process,
    done: Rc<Cell<Option<Outcome>>>,
}

struct World<'a> {
    scenario: &'a Scenario,
    /// The machines of the nodes; where each node is one server, the nodes.
    nodes: Vec<Node>,
    /// The services with sentinels.
    services: Vec<Service>,
    /// The clusters.
    clusters: Vec<Cluster>,
    /// The etcd cluster, if there is one in the nodes' place.
    etcd: Option<EtcdCluster>,
    /// The ZooKeeper ensemble, likewise.
    zookeeper: Option<Ensemble>,
    /// The database, if there is one in the nodes' place.
    database: Option<Database>,
    /// The members that a fault has hit, by the fault's number.
    struck_members: BTreeMap<usize, Vec<usize>>,
    /// The machine that a fault has hit, and the host, by the fault's number.
    struck: BTreeMap<usize, (usize, Option<usize>)>,
    tenures: Tenures,
    processes: BTreeMap<ProcessId, Running>,
    /// Processes that a fault has stopped, by the fault's number.
    stopped: BTreeMap<usize, ProcessId>,
    /// Each client's next round and present process.
    clients: Vec<(usize, Option<ProcessId>)>,
    /// Number of faults under way, and when the last one ended.
    faults: usize,
    calm_since: Instant,
    /// Time by which clocks of nodes were set back: a key that was left behind stays as much
    /// longer.
    set_back: Duration,
    /// When a node was last seen to have the key of each lock, where a run keeps one lock while it
    /// waits for another.
    last_kept: Vec<Instant>,
    hits: u64,
    exits: BTreeMap<u8, u64>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let nodes = scenario
            .clocks
            .iter()
            .enumerate()
            .map(|(number, clock)| Node::new(number, *clock));
        let mut nodes: Vec<Node> = nodes.collect();
        Self {
            scenario,
            services: services::of(scenario, &mut nodes),
            clusters: clusters::of(scenario, &mut nodes),
            nodes,
            etcd: etcd_of(scenario),
            zookeeper: ensemble_of(scenario),
            database: database_of(scenario),
            struck_members: BTreeMap::new(),
            struck: BTreeMap::new(),
            tenures: Tenures::new(scenario),
            processes: BTreeMap::new(),
            stopped: BTreeMap::new(),
            clients: vec![(0, None); scenario.clients.len()],
            faults: 0,
            calm_since: BEGIN,
            set_back: Duration::ZERO,
            last_kept: vec![BEGIN; scenario.settings.keys.len()],
            hits: 0,
            exits: BTreeMap::new(),
        }
    }

    fn begin(&mut self) {
        kernel::with(|kernel| {
            for (number, plan) in self.scenario.clients.iter().enumerate() {
                if let Some(round) = plan.rounds.first() {
                    kernel.at(BEGIN + round.after, Event::Round(number));
                }
            }
            for (number, (at, _)) in self.scenario.faults.iter().enumerate() {
                kernel.at(BEGIN + *at, Event::Fault(number));
            }
            kernel.after(judge::LOOK, Event::Look);
        });
    }

    /// Lets events happen until all clients have ended, or the first violation.
    fn go_on(&mut self) {
        let last = self
            .scenario
            .faults
            .last()
            .map_or(Duration::ZERO, |(at, _)| *at);
        let rounds = |plan: &Plan| plan.rounds.len();
        let most = self.scenario.clients.iter().map(rounds).sum::<usize>();
        let end = BEGIN + last + PATIENCE + PATIENCE / 10 * u32::try_from(most).unwrap_or(0);
        loop {
            if kernel::with(|kernel| kernel.witness.violation.is_some()) || self.is_over() {
                return;
            }
            let Some(event) = kernel::with(|kernel| kernel.next(end)) else {
                let left: Vec<String> = self.processes.keys().map(ToString::to_string).collect();
                let why = format!("{} did not end", left.join(", "));
                return kernel::with(|kernel| kernel.witness.violated(Violation::Stuck(why)));
            };
            self.happens(event);
        }
    }

    fn is_over(&self) -> bool {
        let is_done = |(number, (round, process)): (usize, &(usize, Option<ProcessId>))| {
            process.is_none() && *round >= self.scenario.clients[number].rounds.len()
        };
        self.processes.is_empty()
            && self.faults == 0
            && self.clients.iter().enumerate().all(is_done)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Alarm(process, waker) => {
                waker.wake();
                self.run(process);
            }
            Event::ToServer(socket, packet) => self.deliver(socket, packet),
            Event::ToClient(socket, packet) => {
                let (owner, waker) = kernel::with(|kernel| {
                    (
                        kernel.network.owner(socket),
                        network::arrive(kernel, socket, packet),
                    )
                });
                if let Some(waker) = waker {
                    waker.wake();
                    self.run(owner);
                }
            }
            Event::Command(process, moment) => {
                if kernel::with(|kernel| command::happens(kernel, process, moment)) {
                    self.run(process);
                }
            }
            Event::Round(client) => self.begin_round(client),
            Event::Fault(number) => self.strike(number),
            Event::Meanwhile(number) => self.lose_meanwhile(number),
            Event::Mend(number) => self.mend(number),
            Event::Service(node, step) => self.service_does(node, step),
            Event::Cluster(node, step) => self.cluster_does(node, step),
            Event::Etcd(step) => {
                if let Some(etcd) = &mut self.etcd {
                    kernel::with(|kernel| etcd.step(&step, kernel));
                }
            }
            Event::ZooKeeper(step) => {
                if let Some(ensemble) = &mut self.zookeeper {
                    kernel::with(|kernel| ensemble.step(step, kernel));
                }
            }
            Event::Database(step) => {
                if let Some(database) = &mut self.database {
                    kernel::with(|kernel| database.step(&step, kernel));
                }
            }
            Event::Bus(machine, channel, message) => self.passes_on(machine, &channel, &message),
            Event::Waited(machine, wait) => self.has_waited(machine, wait),
            Event::HandBack(process) => self.hand_back(process),
            Event::Look => self.look(),
        }
    }

    fn deliver(&mut self, socket: SocketId, packet: Packet) {
        if let Some(etcd) = &mut self.etcd {
            return kernel::with(|kernel| etcd.take(kernel, socket, packet));
        }
        if let Some(ensemble) = &mut self.zookeeper {
            return kernel::with(|kernel| ensemble.take(kernel, socket, packet));
        }
        if let Some(database) = &mut self.database {
            return kernel::with(|kernel| database.take(kernel, socket, packet));
        }
        kernel::with(|kernel| {
            let node = kernel.network.node(socket);
            let before = self.nodes[node].server().writes();
            self.nodes[node].take(kernel, socket, packet);
            self.has_served(node, before, kernel);
        });
    }

    /// A server that had written so often before has executed requests.
    fn has_served(&mut self, machine: usize, before: u64, kernel: &mut Kernel) {
        if self.nodes[machine].server().writes() != before {
            self.has_written(machine, kernel);
        }
        self.begin_waits(machine, kernel);
        self.tells_members(machine, kernel);
        self.tenures
            .observe(machine, &self.nodes[machine], kernel.now);
    }

    /// Runs a process until it waits, unless it is stopped or gone.
    fn run(&mut self, id: ProcessId) {
        let Some(running) = self
            .processes
            .get_mut(&id)
            .filter(|running| !running.process.is_stopped)
        else {
            return;
        };
        kernel::with(|kernel| kernel.current = id);
        if running.process.run() {
            self.has_ended(id);
        }
    }

    fn begin_round(&mut self, number: usize) {
        let plan = &self.scenario.clients[number];
        let id = ProcessId {
            client: number,
            round: self.clients[number].0,
            is_guards: false,
        };
        let round = plan.rounds[id.round];
        self.clients[number] = (id.round + 1, Some(id));
        let client = Client {
            settings: self.scenario.settings.clone(),
            host: plan.host,
            skew_ms: self.scenario.skews[plan.host],
            wait: round.wait,
            locks: round.locks(),
            mode: round.mode,
            supersedes: round.supersedes,
        };
        kernel::with(|kernel| {
            kernel.tell(|| format!("{id} of host {}: {round:?}", plan.host));
        });
        match round.errand {
            Errand::Run(behaviour, max_run) => self.start(id, run::run(client, behaviour, max_run)),
            Errand::Acquire(steps) => self.start(id, acquire::acquire(client, steps)),
            Errand::Break { answer, now } => {
                self.start(id, operator::break_lock(client, answer, now));
            }
            Errand::Rest => self.next_round(id),
        }
    }

    fn start(&mut self, id: ProcessId, main: impl Future<Output = Outcome> + 'static) {
        let done = Rc::<Cell<Option<Outcome>>>::default();
        let result = Rc::clone(&done);
        let draws = Random::of(self.scenario.seed, "process", id.number()).between(0, u64::MAX);
        let process = Process::new(async move { result.set(Some(main.await)) }, draws);
        self.processes.insert(id, Running { process, done });
        self.run(id);
    }

    fn has_ended(&mut self, id: ProcessId) {
        let Some(running) = self.processes.remove(&id) else {
            return;
        };
        let outcome = running.done.get().unwrap_or(Outcome::Bug);
        *self.exits.entry(outcome.code()).or_default() += 1;
        let sockets = kernel::with(|kernel| {
            kernel.tell(|| format!("{id}: ends with {outcome:?}"));
            kernel.witness.waiting.remove(&id);
            kernel.network.most_open(id)
        });
        self.judge_exit(id, outcome, sockets, running.process.tasks());
        end(id, running.process);
        self.next_round(id);
    }

    fn next_round(&mut self, ended: ProcessId) {
        let (next, process) = &mut self.clients[ended.client];
        if *process == Some(ended) {
            *process = None;
            if let Some(round) = self.scenario.clients[ended.client].rounds.get(*next) {
                kernel::with(|kernel| kernel.after(round.after, Event::Round(ended.client)));
            }
        }
    }

    /// Kills a process.
    fn kill(&mut self, id: ProcessId) {
        let Some(running) = self.processes.remove(&id) else {
            return;
        };
        kernel::with(|kernel| {
            kernel.current = id;
            kernel.witness.waiting.remove(&id);
            command::orphan(kernel, id);
        });
        end(id, running.process);
        self.next_round(id);
    }

    fn hand_back(&mut self, dead: ProcessId) {
        let tokens = kernel::with(|kernel| kernel.commands.takes_back(dead));
        if tokens.is_empty() {
            return;
        }
        let plan = &self.scenario.clients[dead.client];
        let all = plan.rounds[dead.round].locks();
        let client = Client {
            settings: self.scenario.settings.clone(),
            host: plan.host,
            skew_ms: 0,
            wait: None,
            locks: tokens.keys().map(|place| all[*place]).collect(),
            mode: plan.rounds[dead.round].mode,
            supersedes: false,
        };
        let tokens: Vec<Token> = tokens.into_values().collect();
        let id = ProcessId {
            is_guards: true,
            ..dead
        };
        kernel::with(|kernel| kernel.tell(|| format!("{id}: gives locks {:?} back", client.locks)));
        self.start(id, operator::release(client, tokens));
    }

    /// Number of scripts that clients have run, of requests to etcd or ZooKeeper, or of transactions.
    fn requests(&self) -> u64 {
        let scripts = |node: &Node| node.server().requests("evalsha");
        let calls = self.etcd.as_ref().map_or(0, EtcdCluster::calls);
        let transactions = self.database.as_ref().map_or(0, Database::requests);
        let asked = self.zookeeper.as_ref().map_or(0, Ensemble::requests);
        self.nodes.iter().map(scripts).sum::<u64>() + calls + asked + transactions
    }

    fn report(&mut self) -> Report {
        kernel::with(|kernel| Report {
            violation: kernel.witness.violation.clone(),
            counts: kernel.witness.counts,
            faults: self.hits,
            switches: self
                .services
                .iter()
                .map(Service::switches)
                .chain(self.clusters.iter().map(Cluster::switches))
                .chain(self.etcd.iter().map(EtcdCluster::switches))
                .chain(self.zookeeper.iter().map(Ensemble::switches))
                .chain(self.database.iter().map(Database::switches))
                .sum(),
            moves: self.clusters.iter().map(Cluster::moves).sum(),
            stale: self
                .services
                .iter()
                .map(Service::stale)
                .chain(self.clusters.iter().map(Cluster::stale))
                .chain(self.database.iter().map(Database::stale))
                .sum(),
            requests: self.requests(),
            took: kernel.now.since(BEGIN),
            digest: kernel.digest(),
            exits: self.exits.clone(),
            story: Story::default(),
        })
    }
}

/// Returns the etcd cluster of a world, if it has one.
fn etcd_of(scenario: &Scenario) -> Option<EtcdCluster> {
    let Deployment::Etcd { election, .. } = scenario.settings.deployment else {
        return None;
    };
    Some(kernel::with(|kernel| {
        EtcdCluster::new(&scenario.clocks, election, kernel)
    }))
}

/// Returns the ZooKeeper ensemble of a world, if it has one.
fn ensemble_of(scenario: &Scenario) -> Option<Ensemble> {
    let Deployment::ZooKeeper {
        tick, sync_limit, ..
    } = scenario.settings.deployment
    else {
        return None;
    };
    Some(kernel::with(|kernel| {
        Ensemble::new(&scenario.clocks, tick, sync_limit, kernel)
    }))
}

/// Returns the database of a world, if it has one.
fn database_of(scenario: &Scenario) -> Option<Database> {
    let Deployment::Database(nature) = scenario.settings.deployment else {
        return None;
    };
    let schedule = scenario.settings.schedule;
    let times = (schedule.node_timeout(), schedule.ttl());
    Some(Database::new(nature, &scenario.clocks, times, BEGIN))
}

/// Ends a process: its sockets are closed in their order, whatever the order in which its tasks are
/// dropped.
fn end(id: ProcessId, process: Process) {
    kernel::with(|kernel| network::close_all(kernel, id));
    drop(process);
}
