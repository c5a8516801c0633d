//! The faults of a scenario.

use std::time::Duration;

use crate::database::{self, Takeover};
use crate::deployment::Deployment;
use crate::etcd;
use crate::node::Survives;
use crate::random::Random;
use crate::scenario::{CROWD, Kind};
use crate::zookeeper;

/// The client that a fault hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The holder, if there is one.
    Holder,
    /// The holder, if its client's number leaves this rest.
    HolderOf { rest: usize, of: usize },
    /// The process of the client with this number.
    Client(usize),
    /// The process of the client with this number, if it waits and has a place in the queue.
    Waiter(usize),
}

/// Data that a server forgets while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// The lock's key.
    Key,
    /// Its fence counter.
    Counter,
    /// Its queue, and the turns.
    Queue,
    /// Everything.
    All,
}

/// A fault. `lasts`: how long until it is mended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// SIGSTOP to a server.
    StopServer { node: usize, lasts: Duration },
    /// SIGKILL to a server, which starts again later.
    KillServer {
        node: usize,
        lasts: Duration,
        survives: Survives,
    },
    /// The server's data are saved, for a later restart.
    Save { node: usize },
    /// A server forgets while it runs.
    Lose { node: usize, lost: Lost },
    /// A server goes away, with a second one of five; meanwhile another forgets the key. The holder
    /// has two thirds of a TTL to set it again or to end, before the first is back: a renewal, the
    /// grace, and some slack.
    LoseMeanwhile {
        /// The server that goes away. Without data it comes back empty.
        away: usize,
        /// How it goes away; `None`: SIGSTOP.
        killed: Option<Survives>,
        /// The server that forgets.
        node: usize,
        lost: Lost,
        /// Time from the one to the other.
        after: Duration,
        /// Time for which the first stays away beyond that.
        lasts: Duration,
    },
    /// A server's clock is set.
    StepClock { node: usize, micros: i64 },
    /// A server is out of memory.
    OutOfMemory { node: usize, lasts: Duration },
    /// A server is a replica.
    Demote { node: usize, lasts: Duration },
    /// A server forgets its scripts: SCRIPT FLUSH by hand.
    FlushScripts { node: usize },
    /// All connections of a server are closed.
    Disconnect { node: usize },
    /// A host is cut off from a node: requests, replies or both. `gives_up`: with the cut the
    /// connections end.
    Cut {
        host: usize,
        node: usize,
        up: bool,
        down: bool,
        lasts: Duration,
        gives_up: bool,
    },
    /// A host's packets to and from a node take longer.
    Slow {
        host: usize,
        node: usize,
        extra: Duration,
        lasts: Duration,
    },
    /// A trouble of a service with sentinels.
    Service {
        node: usize,
        trouble: Trouble,
        lasts: Duration,
    },
    /// A trouble of a cluster.
    Cluster {
        node: usize,
        shift: Shift,
        lasts: Duration,
    },
    /// A trouble of the ZooKeeper ensemble.
    ZooKeeper {
        trouble: zookeeper::Trouble,
        lasts: Duration,
    },
    /// A trouble of the etcd cluster.
    Etcd {
        trouble: etcd::Trouble,
        lasts: Duration,
    },
    /// A trouble of the database.
    Database {
        trouble: database::Trouble,
        lasts: Duration,
    },
    /// SIGSTOP to an rlock.
    StopClient { target: Target, lasts: Duration },
    /// SIGKILL to an rlock, and to its guard just before.
    KillClient { target: Target, with_guard: bool },
    /// SIGTERM to an rlock.
    Terminate { target: Target },
}

/// A trouble of a service with sentinels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// SIGSTOP to the primary.
    StopPrimary,
    /// SIGKILL to the primary, which starts again later.
    KillPrimary(Survives),
    /// A failover on an operator's order.
    Failover,
    /// The primary is cut off from sentinels and replicas, perhaps together with the host of the
    /// holder.
    CutOff { with_holder: bool },
    /// A sentinel is cut off from the others, and hears of no switch.
    Isolate { sentinel: usize },
    /// The host of the holder is cut off from all sentinels.
    Deafen,
    /// Replicas get writes later.
    Lag(Duration),
}

/// A trouble of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shift {
    /// SIGSTOP to the primary of the locks.
    Stop,
    /// SIGKILL to it; it starts again later.
    Kill(Survives),
    /// Its replica takes over on an operator's order.
    HandOver,
    /// The slot of the locks moves to another primary, key by key or all at once.
    Move {
        at_once: bool,
        /// Longest time between two steps.
        pause: Duration,
    },
}

/// Facts on which the faults of a scenario depend.
pub struct Faults {
    /// The kind of world.
    pub kind: Kind,
    /// Number of machines with a server or a sentinel.
    pub machines: usize,
    /// How each node is deployed.
    pub deployment: Deployment,
    /// Number of hosts.
    pub hosts: usize,
    /// `--ttl`.
    pub ttl: Duration,
    /// `--node-timeout`.
    pub node_timeout: Duration,
}

impl Faults {
    /// Draws the faults until `horizon`, in the order of their times.
    pub fn draw(&self, horizon: Duration, random: &mut Random) -> Vec<(Duration, Fault)> {
        if self.kind == Kind::Crowd {
            return Self::of_a_crowd(random);
        }
        let pause = self
            .ttl
            .mul_f64(random.weighted(&[(1, 0.1), (2, 0.5), (2, 2.0)]));
        let mut faults = Vec::new();
        let mut at = random.time(Duration::ZERO, pause * 2);
        while at < horizon {
            faults.push((at, self.one(random)));
            at += random.time(Duration::from_micros(1), pause * 2);
        }
        faults
    }

    /// Of eight clients one stops as a waiter, and one dies as the holder, with its guard, so that
    /// no release wakes the next one.
    fn of_a_crowd(random: &mut Random) -> Vec<(Duration, Fault)> {
        let ms = Duration::from_millis;
        let stops = |number: usize| {
            let target = Target::Waiter(8 * number + 7);
            (
                random.time(ms(400), ms(800)),
                Fault::StopClient {
                    target,
                    lasts: ms(60_000),
                },
            )
        };
        let mut faults: Vec<(Duration, Fault)> = (0..CROWD / 8).map(stops).collect();
        let dies = Fault::KillClient {
            target: Target::HolderOf { rest: 3, of: 8 },
            with_guard: true,
        };
        faults.extend((0..1_000).map(|number| (ms(800 + 20 * number), dies)));
        faults.sort_by_key(|(at, _)| *at);
        faults
    }

    fn one(&self, random: &mut Random) -> Fault {
        if self.kind == Kind::Away && random.chance(0.7) {
            return self.lose_meanwhile(random);
        }
        match self.deployment {
            Deployment::Etcd { members, election } if random.chance(0.5) => {
                return self.of_etcd(members, election, random);
            }
            Deployment::ZooKeeper {
                servers,
                tick,
                sync_limit,
            } if random.chance(0.5) => {
                return self.of_zookeeper(servers, tick * sync_limit, random);
            }
            Deployment::Database(nature) if random.chance(0.5) => {
                return self.of_database(nature.standby.is_some(), random);
            }
            Deployment::Sentinels { down_after, .. } if random.chance(0.6) => {
                return self.of_service(down_after, random);
            }
            Deployment::Cluster { node_timeout, .. } if random.chance(0.6) => {
                return self.of_cluster(node_timeout, random);
            }
            _ => {}
        }
        let (node, host) = (random.below(self.machines), random.below(self.hosts));
        let longest =
            random.weighted(&[(3, self.node_timeout), (3, self.ttl / 2), (2, self.ttl * 2)]);
        let lasts = random.time(Duration::from_millis(1), longest);
        if matches!(self.kind, Kind::Waiters | Kind::Newest) {
            // Where waiters end each other, few wait at a time.
            let target =
                Target::Waiter(random.below(if self.kind == Kind::Newest { 3 } else { 8 }));
            return random.weighted(&[
                (
                    2,
                    Fault::StopClient {
                        target,
                        lasts: lasts * 2,
                    },
                ),
                (
                    2,
                    Fault::KillClient {
                        target,
                        with_guard: false,
                    },
                ),
                (1, Fault::Terminate { target }),
            ]);
        }
        if self.kind == Kind::Away {
            // Only what neither a server nor the network does: the holder must notice in time.
            let target = if random.chance(0.3) {
                Target::Holder
            } else {
                Target::Client(random.below(8))
            };
            return random.weighted(&[
                (
                    2,
                    Fault::KillClient {
                        target,
                        with_guard: false,
                    },
                ),
                (
                    1,
                    Fault::KillClient {
                        target,
                        with_guard: true,
                    },
                ),
                (1, Fault::Terminate { target }),
                (2, Fault::Disconnect { node }),
            ]);
        }
        let target = if random.chance(0.5) {
            Target::Holder
        } else {
            Target::Client(random.below(8))
        };
        let servers = u32::from(self.kind.is_redis());
        match random.weighted(&[
            (3 * servers, 0),
            (5 * servers, 1),
            (4, 2),
            (2, 3),
            (2, 4),
            (2, 5),
            (3, 6),
            (1, 7),
            (servers, 8),
            (2 * servers, 9),
        ]) {
            0 => Fault::StopServer { node, lasts },
            1 => self.forgetting(node, lasts, random),
            2 => {
                let (up, down) =
                    random.weighted(&[(2, (true, true)), (1, (true, false)), (1, (false, true))]);
                Fault::Cut {
                    host,
                    node,
                    up,
                    down,
                    lasts,
                    gives_up: random.chance(0.5),
                }
            }
            3 => Fault::Slow {
                host,
                node,
                extra: random.time(Duration::ZERO, self.node_timeout * 3),
                lasts,
            },
            4 => Fault::Disconnect { node },
            5 => Fault::StopClient { target, lasts },
            6 => Fault::KillClient {
                target,
                with_guard: random.chance(0.3),
            },
            7 => Fault::Terminate { target },
            9 => Fault::FlushScripts { node },
            // A server with replicas has its role from others.
            _ if self.deployment != Deployment::Alone || random.chance(0.5) => {
                Fault::OutOfMemory { node, lasts }
            }
            _ => Fault::Demote { node, lasts },
        }
    }

    fn of_service(&self, down_after: Duration, random: &mut Random) -> Fault {
        let node = random.below(self.machines / self.deployment.machines());
        let trouble = match random.below(10) {
            0 | 1 => Trouble::StopPrimary,
            2 | 3 if self.kind == Kind::Copies => Trouble::KillPrimary(Survives::All),
            2 | 3 => Trouble::KillPrimary(Self::survives(random)),
            4 => Trouble::Failover,
            5 | 6 => Trouble::CutOff {
                with_holder: random.chance(0.7),
            },
            7 => Trouble::Isolate {
                sentinel: random.below(self.deployment.sentinels(node).len()),
            },
            8 => Trouble::Deafen,
            _ => Trouble::Lag(random.time(Duration::ZERO, self.ttl)),
        };
        let lasts = if trouble == Trouble::Failover {
            Duration::ZERO
        } else {
            self.longer(down_after, random)
        };
        Fault::Service {
            node,
            trouble,
            lasts,
        }
    }

    fn of_cluster(&self, node_timeout: Duration, random: &mut Random) -> Fault {
        let node = random.below(self.machines / self.deployment.machines());
        let longest = random.weighted(&[
            (1, self.node_timeout / 20),
            (1, self.node_timeout),
            (1, self.ttl),
        ]);
        let shift = match random.below(9) {
            0 | 1 => Shift::Stop,
            2 | 3 => Shift::Kill(Self::survives(random)),
            4 => Shift::HandOver,
            _ => Shift::Move {
                at_once: random.chance(0.3),
                pause: longest,
            },
        };
        let is_short = matches!(shift, Shift::HandOver | Shift::Move { .. });
        Fault::Cluster {
            node,
            shift,
            lasts: if is_short {
                Duration::ZERO
            } else {
                self.longer(node_timeout, random)
            },
        }
    }

    fn of_etcd(&self, members: usize, election: Duration, random: &mut Random) -> Fault {
        // The leader more often than another one.
        let any = random.below(members);
        let from = random.weighted(&[(2, 0), (1, any)]);
        let few = 1 + random.below(members.div_ceil(2));
        let trouble = random.weighted(&[
            (2, etcd::Trouble::Stop(from)),
            (2, etcd::Trouble::Kill(from)),
            (4, etcd::Trouble::CutOff(from, few)),
            (3, etcd::Trouble::Stall(from)),
            (2, etcd::Trouble::MoveLeader),
        ]);
        let lasts = if trouble == etcd::Trouble::MoveLeader {
            Duration::ZERO
        } else {
            self.longer(election, random)
        };
        Fault::Etcd { trouble, lasts }
    }

    /// `patience`: the time for which servers do without each other.
    fn of_zookeeper(&self, servers: usize, patience: Duration, random: &mut Random) -> Fault {
        use zookeeper::Trouble;
        // The leader more often than another one.
        let any = random.below(servers);
        let from = random.weighted(&[(2, 0), (1, any)]);
        let count = 1 + random.below(servers.div_ceil(2));
        let is_noticed = random.chance(0.5);
        let lag = random.time(Duration::ZERO, self.ttl);
        let trouble = random.weighted(&[
            (2, Trouble::Stop(from)),
            (2, Trouble::Kill(from)),
            (
                4,
                Trouble::CutOff {
                    from,
                    count,
                    is_noticed,
                },
            ),
            (2, Trouble::Stall(from)),
            (2, Trouble::Lag(any, lag)),
            (1, Trouble::Delete(any)),
            (1, Trouble::End),
        ]);
        let lasts = if matches!(trouble, Trouble::Delete(_) | Trouble::End) {
            Duration::ZERO
        } else {
            self.longer(patience, random)
        };
        Fault::ZooKeeper { trouble, lasts }
    }

    fn of_database(&self, has_standby: bool, random: &mut Random) -> Fault {
        use database::Trouble;
        let takeover = random.weighted(&[
            (1, Takeover::Orderly),
            (2, Takeover::Kill),
            (2, Takeover::Stop),
            (2, Takeover::CutOff),
        ]);
        let longest = random.weighted(&[(1, self.ttl / 10), (1, self.ttl)]);
        let after = random.time(Duration::ZERO, longest);
        let is_forward = random.chance(0.5);
        // Back it costs time only.
        let most = if is_forward && self.kind != Kind::Asynchronous {
            database::within(self.ttl)
        } else {
            Duration::from_secs(2)
        };
        let size = random.between(1, u64::try_from(most.as_micros()).unwrap_or(1));
        let size = i64::try_from(size).unwrap_or(1);
        let micros = if is_forward { size } else { -size };
        // Clocks that are apart may not be set too.
        let (switches, sets) = if has_standby { (6, 0) } else { (0, 3) };
        let trouble = random.weighted(&[
            (3, Trouble::Stop),
            (3, Trouble::Kill),
            (3, Trouble::Stall),
            (1, Trouble::ReadOnly),
            (sets, Trouble::SetClock(micros)),
            (switches, Trouble::Switch(takeover, after)),
        ]);
        let lasts = match trouble {
            Trouble::SetClock(_) | Trouble::Switch(Takeover::Orderly, _) => Duration::ZERO,
            Trouble::Switch(..) => after + self.longer(self.node_timeout, random),
            _ => self.longer(self.node_timeout, random),
        };
        Fault::Database { trouble, lasts }
    }

    fn survives(random: &mut Random) -> Survives {
        random.weighted(&[(2, Survives::All), (1, Survives::Nothing)])
    }

    /// Returns a time in which another server may take over, and even grant the lock.
    fn longer(&self, noticed: Duration, random: &mut Random) -> Duration {
        let longest = [
            noticed,
            self.ttl + noticed * 3,
            self.ttl * 3 + noticed * 3 + Duration::from_secs(3),
        ];
        let longest = longest[random.below(3)];
        random.time(Duration::from_millis(1), longest)
    }

    fn lose_meanwhile(&self, random: &mut Random) -> Fault {
        let away = random.below(self.machines);
        Fault::LoseMeanwhile {
            away,
            killed: random.weighted(&[
                (2, None),
                (1, Some(Survives::All)),
                (2, Some(Survives::Nothing)),
            ]),
            node: (away + self.machines - 1) % self.machines,
            lost: random.weighted(&[(2, Lost::Key), (1, Lost::All)]),
            after: random.time(Duration::ZERO, self.ttl / 2),
            lasts: random.time(Duration::ZERO, self.ttl),
        }
    }

    /// A fault of the sort that the kind of world is about.
    fn forgetting(&self, node: usize, lasts: Duration, random: &mut Random) -> Fault {
        let down = lasts.min(self.ttl);
        match self.kind {
            Kind::One
            | Kind::Calm
            | Kind::Waiters
            | Kind::Newest
            | Kind::Crowd
            | Kind::Copies
            | Kind::Etcd
            | Kind::ZooKeeper
            | Kind::Sql
            | Kind::Asynchronous => Fault::KillServer {
                node,
                lasts: down,
                survives: Survives::All,
            },
            Kind::Forgetful
            | Kind::Several
            | Kind::Keys
            | Kind::Kinds
            | Kind::Once
            | Kind::Parked
            | Kind::Sentinel
            | Kind::Cluster => {
                let survives = random.weighted(&[
                    (1, Survives::All),
                    (2, Survives::Saved),
                    (3, Survives::Nothing),
                ]);
                if survives == Survives::Saved && random.chance(0.5) {
                    Fault::Save { node }
                } else {
                    Fault::KillServer {
                        node,
                        lasts: down,
                        survives,
                    }
                }
            }
            Kind::Lossy | Kind::Away => {
                let lost = random.weighted(&[
                    (3, Lost::Key),
                    (1, Lost::Counter),
                    (1, Lost::Queue),
                    (2, Lost::All),
                ]);
                Fault::Lose { node, lost }
            }
            Kind::Clocks => {
                let size = i64::try_from(random.between(1_000, 30_000_000)).unwrap_or(0);
                Fault::StepClock {
                    node,
                    micros: if random.chance(0.5) { size } else { -size },
                }
            }
        }
    }
}
