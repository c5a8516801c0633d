//! A primary and two replicas, which change places with each failover.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use redis::Connection;

use testkit::{Delay, Proxy, Server, until};

use crate::{Case, Heir};

/// Limit of a WAIT, in ms.
const LIMIT: u64 = 1000;

/// Part of a replica's line at its primary, once it reports to that: it does so once a second.
const REPORTS: &str = "lag=0";

/// The servers. Each is followed through a proxy, which delays what it sends to its replicas.
pub(crate) struct Set {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    primary: usize,
    number: u64,
}

impl Set {
    /// Starts the servers, with replicas that get each write after `distance` ms.
    pub(crate) fn start(distance: u64) -> Result<Self> {
        let options = [
            "--repl-diskless-sync-delay",
            "0",
            "--repl-disable-tcp-nodelay",
            "no",
        ];
        let servers: Vec<Server> = (0..3).map(|_| Server::tcp(&options)).collect();
        let delays = move |_| {
            let late = Box::new(move || Duration::from_millis(distance)) as Delay;
            [Box::new(|| Duration::ZERO) as Delay, late]
        };
        let open = |server: &Server| Proxy::open(Ipv4Addr::LOCALHOST, server.port(), delays);
        let proxies = servers.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self {
            servers,
            proxies,
            primary: 0,
            number: 0,
        })
    }

    /// Has a grant acknowledged, kills the primary at once and promotes a replica. Returns whether
    /// that has the lock; `None` if the grant was not acknowledged.
    pub(crate) fn fail_over(&mut self, case: &Case) -> Result<Option<bool>> {
        self.settle(case.least)?;
        self.number += 1;
        let key = format!("lock-{}", self.number);
        let mut replicas: Vec<(usize, Connection)> = self
            .replicas()
            .map(|replica| (replica, self.servers[replica].connect()))
            .collect();
        let mut primary = self.servers[self.primary].connect();
        redis::cmd("SET")
            .arg(&key)
            .arg("token")
            .arg(&["NX", "PX", "600000"])
            .exec(&mut primary)?;
        let copies: usize = match case.copies {
            0 => 0,
            copies => redis::cmd("WAIT")
                .arg(copies)
                .arg(LIMIT)
                .query(&mut primary)?,
        };
        self.servers[self.primary].crash();
        // The links end at once: what is still on its way is lost with the primary's machine.
        for (_, replica) in &mut replicas {
            redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).exec(replica)?;
        }
        let mut heirs = Vec::new();
        for (number, replica) in &mut replicas {
            heirs.push((
                offset(replica)?,
                *number,
                redis::cmd("EXISTS").arg(&key).query::<bool>(replica)?,
            ));
        }
        heirs.sort_unstable();
        let heir = match case.heir {
            Heir::Best => heirs.last(),
            Heir::Worst => heirs.first(),
        };
        let (_, heir, has_lock) = *heir.context("a replica")?;
        self.servers[self.primary].come_back();
        self.primary = heir;
        Ok((copies >= case.copies).then_some(has_lock))
    }

    fn replicas(&self) -> impl Iterator<Item = usize> + use<> {
        let primary = self.primary;
        (0..self.servers.len()).filter(move |number| *number != primary)
    }

    /// Makes all others replicas of the primary, and waits until they are in step.
    fn settle(&self, least: usize) -> Result<()> {
        let primary = &self.servers[self.primary];
        primary.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        let port = self.proxies[self.primary].port().to_string();
        for replica in self.replicas() {
            self.servers[replica].cli(&["REPLICAOF", "127.0.0.1", &port]);
        }
        let mut connection = primary.connect();
        until("the replicas are in step", || {
            let told: String = redis::cmd("INFO")
                .arg("replication")
                .query(&mut connection)?;
            let online = told
                .lines()
                .filter(|line| line.contains("state=online") && line.contains(REPORTS));
            Ok((online.count() == self.servers.len() - 1).then_some(()))
        })?;
        let begin = Instant::now();
        let copies: usize = redis::cmd("WAIT")
            .arg(2)
            .arg(LIMIT)
            .query(&mut connection)?;
        anyhow::ensure!(copies == 2, "{copies} replicas after {:?}", begin.elapsed());
        primary.cli(&["CONFIG", "SET", "min-replicas-to-write", &least.to_string()]);
        Ok(())
    }
}

/// Returns the number of bytes of the primary's writes that a former replica has.
fn offset(replica: &mut Connection) -> Result<u64> {
    let told: String = redis::cmd("INFO").arg("replication").query(replica)?;
    let offset = told
        .lines()
        .find_map(|line| line.strip_prefix("master_repl_offset:"));
    Ok(offset.context("an offset")?.trim().parse()?)
}
