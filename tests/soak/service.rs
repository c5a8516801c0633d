//! A service with sentinels whose primaries fail over, also with the loss of writes that no replica
//! has.
//!
//! The contenders have a restart guard, so rlock promises that no failover makes two of them hold
//! the lock.

use anyhow::Result;
use testkit::Watched;

use crate::deployment::{Deployment, kill_connections, pause};
use crate::fault::Fault;
use crate::network::{Cut, INTERNAL};
use crate::server;

/// Faults of a service with sentinels. Those by which a replica takes over come more often.
const FAULTS: [Fault; 10] = [
    Fault::FailOver,
    Fault::FailOver,
    Fault::StopPrimary,
    Fault::StopPrimary,
    Fault::KillPrimary,
    Fault::KillPrimary,
    Fault::StopSentinels,
    Fault::Forget,
    Fault::KillConnections,
    // The last one, since it needs a packet filter.
    Fault::SplitOff,
];

/// A service. Each fault hits the primary that all sentinels name.
pub(crate) struct Service {
    set: Watched,
    /// Whether packets can be dropped.
    cuts: bool,
}

impl Service {
    /// Starts a primary, two replicas and three sentinels.
    pub(crate) fn start(cuts: bool) -> Self {
        // Servers and sentinels ask each other from an address of their own, so that clients still
        // reach a server that is cut off.
        let server = [
            "--bind-source-addr",
            INTERNAL,
            "--replica-announce-ip",
            "127.0.0.1",
            "--protected-mode",
            "no",
        ];
        let sentinel = format!("bind-source-addr {INTERNAL}\nsentinel announce-ip 127.0.0.1\n");
        Self {
            set: Watched::with(&server, &sentinel),
            cuts,
        }
    }

    /// Stops a primary for a moment, or until a replica has taken over.
    fn stop(&self, primary: usize, random: &mut fastrand::Rng) {
        self.set.servers[primary].freeze();
        if random.bool() {
            pause(random, 50..800);
        } else {
            self.set.switched_from(primary);
            pause(random, 0..1000);
        }
        self.set.servers[primary].thaw();
    }

    /// Kills a primary at any moment, whatever its replicas have. It comes back empty.
    fn kill(&mut self, primary: usize, random: &mut fastrand::Rng) {
        self.set.servers[primary].crash();
        self.set.switched_from(primary);
        pause(random, 0..1000);
        self.set.servers[primary].come_back();
    }

    /// Cuts a primary off from sentinels and replicas, for a moment or until one has taken over.
    /// Clients go on writing to it.
    fn split(&self, primary: usize, random: &mut fastrand::Rng) -> Result<()> {
        let cuts = Cut::internal(self.set.servers[primary].port())?;
        if random.u8(..4) == 0 {
            pause(random, 50..800);
        } else {
            self.set.switched_from(primary);
            pause(random, 0..3000);
        }
        cuts.into_iter().try_for_each(Cut::mend)
    }

    /// Stops one sentinel, or two, without which no grant and no renewal is confirmed.
    fn stop_sentinels(&self, random: &mut fastrand::Rng) {
        let first = random.usize(..self.set.sentinels.len());
        let stopped = self
            .set
            .sentinels
            .iter()
            .cycle()
            .skip(first)
            .take(random.usize(1..=2));
        stopped.clone().for_each(testkit::Sentinel::freeze);
        pause(random, 50..4000);
        stopped.for_each(testkit::Sentinel::thaw);
    }
}

impl Deployment for Service {
    fn settle(&self) {
        self.set.settled();
    }

    fn url_for(&self, _: usize) -> String {
        self.set.url()
    }

    fn inject_one(&mut self, random: &mut fastrand::Rng) -> Result<(Fault, String)> {
        let possible = FAULTS.len() - usize::from(!self.cuts);
        let fault = FAULTS[random.usize(..possible)];
        let primary = self.set.agreed();
        match fault {
            Fault::FailOver => drop(self.set.fail_over()),
            Fault::StopPrimary => self.stop(primary, random),
            Fault::KillPrimary => self.kill(primary, random),
            Fault::SplitOff => self.split(primary, random)?,
            Fault::Forget => {
                self.set.servers[primary].crash();
                self.set.servers[primary].come_back();
            }
            Fault::KillConnections => kill_connections(&self.set.servers[primary]),
            _ => self.stop_sentinels(random),
        }
        // Most faults follow before the last primary has been demoted, which takes ten seconds.
        self.set.ready();
        if random.u8(..3) == 0 {
            self.settle();
        }
        // The restart guard is over in some of these pauses only.
        pause(random, 0..5000);
        Ok((fault, format!("server {primary}")))
    }

    fn left(&self) -> Result<Vec<String>> {
        server::left(&self.set.servers)
    }
}
