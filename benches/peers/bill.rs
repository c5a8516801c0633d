//! The bill of a server: what hosts that wait for a lock cost it, by store.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::RLOCK;
use crate::figures::{Row, Section, Unit, millis, processor_time};
use crate::peer::World;
use testkit::measure::batch::{Batch, Place};
use testkit::measure::commands;
use testkit::measure::contender::Times;
use testkit::measure::locker::{Locker, OnDatabase, OnEtcd, OnZooKeeper, RlockRun, etcd_is_there};
use testkit::measure::machine::megabytes;
use testkit::processes::memory_of_tree;
use testkit::zookeeper::has_zookeeper;
use testkit::{Database, MariaDb, Postgres, Server, ZooKeeper};

pub(crate) const WAITING: &str = "Hosts that wait, by store";

/// Numbers of waiters.
const CROWDS: [usize; 3] = [10, 100, 1000];

/// The names of the rows of each store.
const REDIS: [&str; 3] = ["Redis, 10 wait", "Redis, 100 wait", "Redis, 1,000 wait"];
const ETCD: [&str; 3] = ["etcd, 10 wait", "etcd, 100 wait", "etcd, 1,000 wait"];
const ZOOKEEPER: [&str; 3] = [
    "ZooKeeper, 10 wait",
    "ZooKeeper, 100 wait",
    "ZooKeeper, 1,000 wait",
];
const POSTGRES: [&str; 3] = [
    "PostgreSQL, 10 wait",
    "PostgreSQL, 100 wait",
    "PostgreSQL, 1,000 wait",
];
const MARIADB: [&str; 3] = [
    "MariaDB, 10 wait",
    "MariaDB, 100 wait",
    "MariaDB, 1,000 wait",
];

/// Time in which nothing happens: two renewals of the holder.
const IDLE: Duration = Duration::from_secs(20);

/// Time for which each waiter holds the lock, in µs.
const STAY: &str = "1000";

/// Sessions that the databases allow.
const SESSIONS: &str = "max_connections=2200";

/// A server that is billed.
struct Billed {
    locker: Box<dyn Locker>,
    pid: i32,
    /// Returns the number of requests that it has had.
    requests: Box<dyn FnMut() -> Result<u64>>,
}

/// Starts a server; `None` where it is not installed, which is printed.
type Start = fn(&World) -> Result<Option<Billed>>;

const STORES: [(&[&str; 3], Start); 5] = [
    (&REDIS, redis),
    (&ETCD, etcd),
    (&ZOOKEEPER, |_| Ok(zookeeper())),
    (&POSTGRES, |_| Ok(database::<Postgres>())),
    (&MARIADB, |_| Ok(database::<MariaDb>())),
];

fn redis(_: &World) -> Result<Option<Billed>> {
    let server = Server::tcp(&[]);
    let mut asked = server.connect();
    Ok(Some(Billed {
        locker: Box::new(RlockRun::on(RLOCK, std::slice::from_ref(&server))?),
        pid: server.pid(),
        requests: Box::new(move || {
            let _runs = &server;
            commands::sent(&mut asked, &[])
        }),
    }))
}

fn etcd(world: &World) -> Result<Option<Billed>> {
    if !etcd_is_there() {
        return Ok(None);
    }
    let server = OnEtcd::on_disk(&world.dir)?;
    Ok(Some(Billed {
        locker: Box::new(server.rlock(RLOCK)),
        pid: server.pid(),
        requests: Box::new(move || server.requests()),
    }))
}

fn zookeeper() -> Option<Billed> {
    let options = ["tickTime=2000", "4lw.commands.whitelist=srvr,mntr"];
    let server = has_zookeeper().then(|| Rc::new(ZooKeeper::start(&options)))?;
    Some(Billed {
        locker: Box::new(OnZooKeeper::rlock(RLOCK, &server)),
        pid: server.pid(),
        requests: Box::new(move || server.figure("zk_packets_received")),
    })
}

fn database<D: Database>() -> Option<Billed> {
    let server = Rc::new(D::start_with(&[SESSIONS])?);
    Some(Billed {
        locker: Box::new(OnDatabase::rlock(RLOCK, &server)),
        pid: server.instance().pid(),
        requests: Box::new(move || Ok(server.sql(D::STATEMENTS).parse()?)),
    })
}

/// Measures waiters of one lock: each is a process of its own, as on a host of its own.
pub(crate) fn waiting(world: &World) -> Result<Vec<Section>> {
    let about = format!(
        "They come one after another, wait for {} s while the holder renews, and then have the lock for 1 ms each. Times are from the \
         end of a command to the begin of the next. Processor time and memory are those of the server with all its processes; memory \
         is what it takes more than without them, which of a Java server is mostly its heap. Requests are what the server counts: \
         commands (Redis), messages (etcd), packets (ZooKeeper), transactions (PostgreSQL), statements (MariaDB).",
        IDLE.as_secs()
    );
    let columns = vec![
        ("hand-over p50", Unit::Millis),
        ("p99", Unit::Millis),
        ("requests a second, idle", Unit::Count),
        ("requests per hand-over", Unit::Count),
        ("processor time a second, idle", Unit::Millis),
        ("processor time per hand-over", Unit::Millis),
        ("memory of the server", Unit::Megabytes),
    ];
    let mut rows = Vec::new();
    for (names, start) in STORES {
        for (name, waiters) in names.iter().zip(CROWDS) {
            if let Some(billed) = start(world)? {
                rows.push(crowd(world, name, waiters, billed).context(*name)?);
            }
        }
    }
    Ok(vec![Section {
        title: WAITING,
        about,
        columns,
        rows,
    }])
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn crowd(world: &World, name: &'static str, waiters: usize, billed: Billed) -> Result<Row> {
    let Billed {
        mut locker,
        pid,
        mut requests,
    } = billed;
    let place = Place {
        dir: &world.dir,
        witness: &world.witness,
    };
    let memory = memory_of_tree(pid, "");
    let batch = Batch::form(&mut *locker, place, waiters, STAY)?;
    let (begin, stood) = (Instant::now(), (requests()?, processor_time(pid)?));
    std::thread::sleep(IDLE);
    let span = begin.elapsed().as_secs_f64();
    let idle = (requests()?, processor_time(pid)?);
    let more = memory_of_tree(pid, "").saturating_sub(memory);
    let log = batch.run()?;
    let after = (requests()?, processor_time(pid)?);
    let gaps = Times::new(name, log.hand_overs().collect());
    let figures = [
        millis(gaps.median()),
        millis(gaps.percentile(99)),
        (idle.0 - stood.0) as f64 / span,
        (after.0 - idle.0) as f64 / waiters as f64,
        (idle.1 - stood.1) / span,
        (after.1 - idle.1) / waiters as f64,
        megabytes(more),
    ];
    Ok(Row {
        name,
        figures: figures.map(Some).to_vec(),
    })
}
