//! Scenarios: everything that a world does not decide while it runs, drawn from its seed before it
//! begins.
//!
//! Three rules keep the promise within what the contract claims:
//! 1. Faults of the network, of processes and of servers that keep their data may hit everything at
//!    once. So may restarts without data, where a restart guard is on.
//! 2. A key that a server loses while it runs is lost only where the holder's majority outlasts it
//!    (`tenure`).
//! 3. A majority may be broken so only if the holder can set the key again, or end, before another
//!    client could use that.
//!
//! One fault is left out, since only the fence covers it: rlock and its guard both stopped.

use std::time::Duration;

use rlock::lock::key::Key;
use rlock::lock::mode::Mode;
use rlock::lock::remains::RemainsOptions;
use rlock::lock::restart::RestartGuard;
use rlock::lock::schedule::{Schedule, ScheduleOptions};
use rlock::store::redis::Copies;

use crate::client::Settings;
use crate::client::acquire::Steps;
use crate::command::{AtTerm, Behaviour};
use crate::database::{self, Nature};
use crate::deployment::Deployment;
use crate::fault::{Fault, Faults};
use crate::network::Latency;
use crate::node::WallClock;
use crate::random::Random;

/// A kind of world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No fault: order, hand-over, requests.
    Calm,
    /// One node that keeps its data.
    One,
    /// One node that forgets, under a restart guard.
    Forgetful,
    /// Two to five nodes; restarts without data under a restart guard.
    Several,
    /// Three or five nodes, of which one loses keys while it runs.
    Lossy,
    /// Three or five nodes, of which one forgets while so many are away that the holder's majority
    /// is broken.
    Away,
    /// One to five nodes, restarts as in `several`, and runs that take up to three locks at once.
    Keys,
    /// One to five nodes that are well, and clients that stop, die or give up while they wait.
    Waiters,
    /// The same, and most runs have `--supersede`.
    Newest,
    /// One to three nodes that are well, and fifty clients, of which one in four dies as the holder
    /// or stops as a waiter.
    Crowd,
    /// One to five nodes, restarts as in `several`, and holders of every kind: exclusive, shared
    /// and with slots.
    Kinds,
    /// One to five nodes, restarts as in `several`, and runs with `--once`.
    Once,
    /// One to five nodes, restarts as in `several`, and runs with `--hold-at-least` and
    /// `--lock-delay`.
    Parked,
    /// One to five nodes whose clocks are wrong and are set.
    Clocks,
    /// One or three nodes, each a service with sentinels: failovers that lose writes, under a
    /// restart guard.
    Sentinel,
    /// The same with clusters, where the locks' slot moves too.
    Cluster,
    /// Services as in `sentinel` whose servers keep their data, without a restart guard: each write
    /// waits for all replicas, whose clocks are apart.
    Copies,
    /// One etcd cluster of three or five members.
    Etcd,
    /// One ZooKeeper ensemble of three or five servers.
    ZooKeeper,
    /// One database: alone, or with a synchronous standby.
    Sql,
    /// One database with an asynchronous standby, or a clock that is set by more than the drift: the
    /// promise has limits.
    Asynchronous,
}

impl Kind {
    /// All kinds, with their names on the command line.
    pub const ALL: [(&'static str, Self); 21] = [
        ("calm", Self::Calm),
        ("one", Self::One),
        ("forgetful", Self::Forgetful),
        ("several", Self::Several),
        ("lossy", Self::Lossy),
        ("away", Self::Away),
        ("keys", Self::Keys),
        ("waiters", Self::Waiters),
        ("newest", Self::Newest),
        ("crowd", Self::Crowd),
        ("kinds", Self::Kinds),
        ("once", Self::Once),
        ("parked", Self::Parked),
        ("clocks", Self::Clocks),
        ("sentinel", Self::Sentinel),
        ("cluster", Self::Cluster),
        ("copies", Self::Copies),
        ("etcd", Self::Etcd),
        ("zookeeper", Self::ZooKeeper),
        ("sql", Self::Sql),
        ("asynchronous", Self::Asynchronous),
    ];

    /// Whether the store is a database.
    pub fn is_database(self) -> bool {
        matches!(self, Self::Sql | Self::Asynchronous)
    }

    /// Whether the store is Redis.
    pub fn is_redis(self) -> bool {
        !matches!(self, Self::Etcd | Self::ZooKeeper) && !self.is_database()
    }

    /// Whether clients find out which of several servers to ask, and another one may take over.
    fn finds_servers(self) -> bool {
        !self.is_redis() || matches!(self, Self::Sentinel | Self::Cluster | Self::Copies)
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(name, _)| name)
    }
}

/// Traits by which a world is less plain than others of its kind. They are drawn from a stream of
/// their own, so that a seed without any of them tells the same story as before.
#[derive(Clone, Copy, Debug)]
struct Twists {
    /// The clocks of servers are up to a minute apart, and those of hosts up to eight seconds.
    clocks_apart: bool,
    /// Holders are of every kind.
    mixes_kinds: bool,
    leaves: Leaves,
}

/// The remains of runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    Nothing,
    /// `--once`
    Successes,
    /// `--hold-at-least` and `--lock-delay`
    ParkedLocks,
}

impl Twists {
    fn draw(kind: Kind, seed: u64) -> Self {
        let mut random = Random::of(seed, kind.name(), 1);
        let leaves = match kind {
            Kind::Once => Leaves::Successes,
            Kind::Parked => Leaves::ParkedLocks,
            Kind::Lossy | Kind::Sql | Kind::Etcd => random.weighted(&[
                (2, Leaves::Nothing),
                (1, Leaves::Successes),
                (1, Leaves::ParkedLocks),
            ]),
            Kind::ZooKeeper => random.weighted(&[(3, Leaves::Nothing), (1, Leaves::Successes)]),
            _ => Leaves::Nothing,
        };
        // A success and a parked lock are of one holder, and a crowd and those that supersede each
        // other want one lock.
        let may_mix = leaves == Leaves::Nothing
            && !matches!(kind, Kind::Crowd | Kind::Newest)
            && !kind.is_database();
        Self {
            clocks_apart: matches!(kind, Kind::Lossy | Kind::Away) && random.chance(0.5),
            mixes_kinds: kind == Kind::Kinds || may_mix && random.chance(0.3),
            leaves,
        }
    }
}

/// The work of a client in one round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errand {
    /// `rlock run`, with `--max-run`.
    Run(Behaviour, Option<Duration>),
    /// `rlock acquire`, and what follows.
    Acquire(Steps),
    /// `rlock break`, whose question is answered after this time.
    Break {
        /// Time from the question to the answer.
        answer: Duration,
        /// `--now`.
        now: bool,
    },
    /// Nothing: a round that shrinking has taken out.
    Rest,
}

/// One round of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    /// Time since the round before it.
    pub after: Duration,
    /// The work.
    pub errand: Errand,
    /// `--wait`.
    pub wait: Option<Duration>,
    /// The locks that it takes: bit n stands for lock n.
    pub locks: u8,
    /// The kind of lock that it wants.
    pub mode: Mode,
    /// `--supersede`.
    pub supersedes: bool,
}

impl Round {
    /// Returns the numbers of the locks, ascending.
    pub fn locks(&self) -> Vec<usize> {
        (0..8).filter(|lock| self.locks >> lock & 1 == 1).collect()
    }
}

/// A client, which is one process after another on its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Number of its host.
    pub host: usize,
    /// Its rounds.
    pub rounds: Vec<Round>,
}

/// A whole scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed from which it was drawn, and from which the world draws.
    pub seed: u64,
    /// The kind of world.
    pub kind: Kind,
    /// Settings that the clients share.
    pub settings: Settings,
    /// The network's speed.
    pub latency: Latency,
    /// Errors of the hosts' wall clocks, in milliseconds.
    pub skews: Vec<i64>,
    /// The nodes' wall clocks.
    pub clocks: Vec<WallClock>,
    /// The clients.
    pub clients: Vec<Plan>,
    /// The faults, with their times since the begin.
    pub faults: Vec<(Duration, Fault)>,
}

/// Number of clients of a crowd.
pub const CROWD: usize = 50;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

impl Scenario {
    /// Number of rounds in which a client does something.
    pub fn rounds(&self) -> usize {
        self.clients
            .iter()
            .flat_map(|plan| &plan.rounds)
            .filter(|round| round.errand != Errand::Rest)
            .count()
    }

    /// Whether all clients want exclusive locks.
    pub fn is_exclusive(&self) -> bool {
        self.clients
            .iter()
            .flat_map(|plan| &plan.rounds)
            .all(|round| round.mode == Mode::Exclusive)
    }

    /// Draws the scenario of `seed`.
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut random = Random::of(seed, kind.name(), 0);
        let nodes = match kind {
            Kind::One
            | Kind::Forgetful
            | Kind::Etcd
            | Kind::ZooKeeper
            | Kind::Sql
            | Kind::Asynchronous => 1,
            Kind::Several => random.weighted(&[(1, 2), (4, 3), (1, 4), (3, 5)]),
            Kind::Crowd => random.weighted(&[(1, 1), (1, 3)]),
            Kind::Lossy | Kind::Away => random.weighted(&[(2, 3), (1, 5)]),
            Kind::Sentinel | Kind::Cluster | Kind::Copies => random.weighted(&[(2, 1), (1, 3)]),
            Kind::Calm
            | Kind::Clocks
            | Kind::Keys
            | Kind::Waiters
            | Kind::Newest
            | Kind::Kinds
            | Kind::Once
            | Kind::Parked => random.weighted(&[(1, 1), (2, 3), (1, 5)]),
        };
        let twists = Twists::draw(kind, seed);
        let settings = settings(kind, nodes, twists.leaves, &mut random);
        let ttl = settings.schedule.ttl();
        let hosts = 2 + random.below(4);
        let skew = match kind {
            Kind::Clocks | Kind::Forgetful => 2_000,
            _ if !kind.is_redis() => 2_000,
            _ if twists.clocks_apart => 4_000,
            _ => 0,
        };
        let skews = (0..hosts).map(|_| signed(&mut random, skew)).collect();
        let ahead = match kind {
            _ if kind == Kind::Clocks || twists.clocks_apart => 60_000_000,
            Kind::Calm => 0,
            // The fence of a lone node rises by its servers' clocks where the guard is short.
            Kind::Sentinel | Kind::Cluster => 150_000,
            _ => 1_500_000,
        };
        let clock = |_| WallClock {
            ahead: signed(&mut random, ahead),
            rate: signed(&mut random, 4_000),
        };
        let deployment = settings.deployment;
        let machines = nodes * deployment.machines();
        let mut clocks: Vec<WallClock> = (0..machines).map(clock).collect();
        if kind == Kind::ZooKeeper && twists.leaves == Leaves::Successes {
            // One leader notes when a success was, and another one tells what the time is.
            let first = clocks[0];
            clocks.fill(first);
        }
        if kind == Kind::Cluster {
            // A replica that takes over counts leases by its own clock, and no guard waits for them
            // to end.
            for cluster in clocks.chunks_mut(deployment.machines()) {
                cluster.fill(cluster[0]);
            }
        }
        if kind == Kind::Copies || kind == Kind::Sql {
            // A lease ends by the clock of a replica that takes over. They agree within what K
            // leaves beside the time that a kill takes here.
            // `acquire` has no K: of a database they agree within what the drift leaves.
            let apart = match kind {
                Kind::Sql => database::within(ttl) / 2,
                _ => settings.schedule.margin().mul_f64(0.1),
            };
            let apart = apart.as_micros();
            for service in clocks.chunks_mut(deployment.machines()) {
                let first = service[0];
                for clock in service {
                    clock.rate = first.rate;
                    clock.ahead =
                        first.ahead + signed(&mut random, i64::try_from(apart).unwrap_or(0));
                }
            }
        }
        let latency = latency(kind, settings.schedule, &mut random);
        let mut clients: Vec<Plan> = match kind {
            Kind::Crowd => (0..CROWD)
                .map(|number| one_of_a_crowd(number, hosts, &mut random))
                .collect(),
            _ => (0..2 + random.below(6))
                .map(|_| plan(kind, ttl, hosts, &mut random))
                .collect(),
        };
        if !matches!(
            kind,
            Kind::Calm | Kind::Waiters | Kind::Newest | Kind::Crowd
        ) {
            clients.push(probes(ttl, hosts, &mut random));
        }
        if twists.mixes_kinds {
            mix(kind, &mut clients, &mut random);
        }
        if kind == Kind::Newest {
            for round in clients.iter_mut().flat_map(|plan| &mut plan.rounds) {
                round.supersedes = random.weighted(&[(1, false), (3, true)]);
            }
        }
        let horizon = ms(random.between(5_000, 25_000));
        let faults = if kind == Kind::Calm {
            Vec::new()
        } else {
            let node_timeout = settings.schedule.node_timeout();
            let faults = Faults {
                kind,
                machines,
                deployment,
                hosts,
                ttl,
                node_timeout,
            };
            faults.draw(horizon, &mut random)
        };
        Self {
            seed,
            kind,
            settings,
            latency,
            skews,
            clocks,
            clients,
            faults,
        }
    }
}

fn settings(kind: Kind, nodes: usize, leaves: Leaves, random: &mut Random) -> Settings {
    let nature = nature(kind, random);
    let ttl = random.weighted(&[(3, 1_000), (2, 2_000), (1, 5_000)]);
    let ttl = ms(if kind == Kind::Crowd { 900 } else { ttl });
    let kill_after = random.weighted(&[(2, None), (1, Some(ms(100))), (1, Some(ms(10_000)))]);
    let options = ScheduleOptions {
        ttl,
        drift: 0.01,
        node_timeout: Some(ttl / 12),
        kill_after,
    };
    let schedule = Schedule::new(options).expect("a twelfth of the TTL fits");
    // What a run leaves ends by the clock of a server, and those of two are apart.
    let remains = match leaves {
        _ if nature.is_some_and(|nature| nature.standby.is_some()) => RemainsOptions::default(),
        Leaves::Successes => RemainsOptions {
            once: Some(random.time(ttl, ttl * 3)),
            ..RemainsOptions::default()
        },
        Leaves::ParkedLocks => {
            let (hold_at_least, lock_delay) = (random.time(ms(20), ttl), random.time(ms(20), ttl));
            RemainsOptions {
                hold_at_least,
                lock_delay,
                once: None,
            }
        }
        Leaves::Nothing => RemainsOptions::default(),
    };
    let schedule = schedule.outlasted(remains);
    let guard = match kind {
        Kind::One | Kind::Calm => RestartGuard::Auto,
        Kind::Copies => RestartGuard::Off,
        _ if !kind.is_redis() => RestartGuard::Off,
        _ => RestartGuard::For(
            schedule.remembered() + ms(random.weighted(&[(1, 0), (1, 999), (1, 500)])),
        ),
    };
    let names: &[&str] = if kind == Kind::Keys {
        &["a", "b", "c"]
    } else {
        &["job"]
    };
    let keys = names
        .iter()
        .map(|name| Key::new("", name).expect("a name"))
        .collect();
    let deployment = match kind {
        Kind::Sentinel | Kind::Copies => Deployment::Sentinels {
            replicas: 1 + random.below(2),
            down_after: ms(random.weighted(&[(1, 100), (1, 300), (1, 1_000)])),
        },
        Kind::Cluster => Deployment::Cluster {
            replicated: random.chance(0.7),
            node_timeout: ms(random.weighted(&[(1, 100), (1, 300), (1, 1_000)])),
        },
        Kind::Etcd => Deployment::Etcd {
            members: random.weighted(&[(2, 3), (1, 5)]),
            election: ms(random.weighted(&[(1, 100), (1, 300), (1, 600)])),
        },
        Kind::ZooKeeper => Deployment::ZooKeeper {
            servers: random.weighted(&[(2, 3), (1, 5)]),
            tick: ms(random.weighted(&[(1, 40), (2, 100), (1, 250)])),
            sync_limit: random.weighted(&[(1, 2), (2, 5), (1, 10)]),
        },
        _ => nature.map_or(Deployment::Alone, Deployment::Database),
    };
    let replicas = deployment.servers(0).len() - 1;
    let copies = (kind == Kind::Copies).then(|| Copies {
        replicas: u16::try_from(replicas).unwrap_or(u16::MAX),
        fsync: false,
    });
    Settings {
        nodes,
        deployment,
        copies,
        keys,
        schedule,
        guard,
        remains,
    }
}

/// Returns the traits of a database.
fn nature(kind: Kind, random: &mut Random) -> Option<Nature> {
    let standby = match kind {
        Kind::Sql => random.weighted(&[(1, None), (2, Some(true))]),
        Kind::Asynchronous => random.weighted(&[(1, None), (3, Some(false))]),
        _ => return None,
    };
    Some(Nature {
        standby,
        is_pooled: random.chance(0.3),
        commits_late: random.chance(0.5),
    })
}

fn latency(kind: Kind, schedule: Schedule, random: &mut Random) -> Latency {
    // Each request takes several exchanges where servers are found out.
    let slow = if kind.finds_servers() { 5_000 } else { 15_000 };
    let most = Duration::from_micros(random.weighted(&[(2, 300), (2, 2_000), (1, slow)]));
    let spikes = if matches!(
        kind,
        Kind::Calm | Kind::Away | Kind::Waiters | Kind::Newest | Kind::Crowd
    ) {
        0.0
    } else {
        random.weighted(&[(2, 0.0), (2, 0.01), (1, 0.05)])
    };
    Latency {
        least: Duration::from_micros(50),
        most,
        spikes,
        spike: schedule.node_timeout() * 3,
    }
}

fn plan(kind: Kind, ttl: Duration, hosts: usize, random: &mut Random) -> Plan {
    let rounds = 1 + random.below(8);
    Plan {
        host: random.below(hosts),
        rounds: (0..rounds).map(|_| round(kind, ttl, random)).collect(),
    }
}

/// A client that comes within a third of a second, after those of a smaller number, and wants the
/// lock once.
fn one_of_a_crowd(number: usize, hosts: usize, random: &mut Random) -> Plan {
    let behaviour = Behaviour {
        runs: random.time(ms(30), ms(200)),
        code: 0,
        at_term: AtTerm::Dies(ms(1)),
    };
    let after = ms(6 * number as u64);
    let round = Round {
        after,
        errand: Errand::Run(behaviour, None),
        wait: None,
        locks: 1,
        mode: Mode::Exclusive,
        supersedes: false,
    };
    Plan {
        host: random.below(hosts),
        rounds: vec![round],
    }
}

/// A client that tries again and again, without waiting: it takes the lock as soon as a majority
/// lets it.
fn probes(ttl: Duration, hosts: usize, random: &mut Random) -> Plan {
    let behaviour = Behaviour {
        runs: ms(1),
        code: 0,
        at_term: AtTerm::Dies(ms(1)),
    };
    let (errand, wait) = (Errand::Run(behaviour, None), Some(Duration::ZERO));
    let round = |_| Round {
        after: random.time(Duration::ZERO, ttl / 8),
        errand,
        wait,
        locks: 1,
        mode: Mode::Exclusive,
        supersedes: false,
    };
    let rounds = (0..60).map(round).collect();
    Plan {
        host: random.below(hosts),
        rounds,
    }
}

fn round(kind: Kind, ttl: Duration, random: &mut Random) -> Round {
    let is_calm = kind == Kind::Calm;
    let after = random.weighted(&[(3, ms(1)), (3, ms(50)), (1, ttl)]);
    let wait = match random.below(10) {
        0 if is_calm => Some(random.time(ms(200), ttl)),
        _ if is_calm => None,
        0 | 1 => Some(Duration::ZERO),
        2 => Some(random.time(ms(10), ttl * 2)),
        _ => None,
    };
    let short = random.time(Duration::from_micros(100), ms(30));
    let errand = match random.below(12) {
        0 if !is_calm => Errand::Break {
            answer: random.time(Duration::ZERO, ttl / 2),
            now: random.chance(0.3),
        },
        1 => Errand::Acquire(Steps {
            pause: random.time(ms(1), ttl / 2),
            renewals: u32::try_from(random.below(4)).unwrap_or(0),
            releases: is_calm || random.chance(0.7),
        }),
        _ => {
            // Long enough for another server to take over and to grant the lock, where one may.
            let long = if kind.finds_servers() {
                ttl * 6
            } else {
                ttl * 2
            };
            let runs = random.weighted(&[(5, short), (3, ttl / 3), (2, long)]);
            let at_term = random.weighted(&[
                (3, AtTerm::Dies(ms(1))),
                (1, AtTerm::Dies(ms(200))),
                (1, AtTerm::LeavesOne(ms(5))),
                (2, AtTerm::Ignores),
            ]);
            let behaviour = Behaviour {
                runs,
                code: u8::from(random.chance(0.2)),
                at_term,
            };
            Errand::Run(
                behaviour,
                random.chance(0.1).then(|| random.time(ms(10), ttl)),
            )
        }
    };
    let several = u8::try_from(random.between(1, 7)).unwrap_or(1);
    let locks = match (kind, errand) {
        (Kind::Keys, Errand::Break { .. }) => 1 << random.below(3),
        (Kind::Keys, _) => several,
        _ => 1,
    };
    Round {
        after: random.time(Duration::ZERO, after),
        errand,
        wait,
        locks,
        mode: Mode::Exclusive,
        supersedes: false,
    }
}

/// Lets each round be of one of the world's kinds of lock.
fn mix(kind: Kind, clients: &mut [Plan], random: &mut Random) {
    const OF_TWO: Mode = Mode::Slots(2);
    let modes: &[Mode] = if kind == Kind::Etcd {
        &[Mode::Exclusive, Mode::Shared, Mode::Shared]
    } else {
        random.weighted(&[
            (
                2,
                &[Mode::Exclusive, Mode::Shared, OF_TWO, Mode::Slots(3)][..],
            ),
            (2, &[Mode::Exclusive, Mode::Shared, Mode::Shared]),
            (2, &[Mode::Exclusive, OF_TWO, OF_TWO, OF_TWO]),
            (1, &[Mode::Shared, OF_TWO]),
            (1, &[OF_TWO]),
        ])
    };
    for round in clients.iter_mut().flat_map(|plan| &mut plan.rounds) {
        round.mode = modes[random.below(modes.len())];
    }
}

/// A number from -`most` to `most`.
fn signed(random: &mut Random, most: i64) -> i64 {
    let size = u64::try_from(most).unwrap_or(0);
    i64::try_from(random.between(0, 2 * size)).unwrap_or(0) - most
}
