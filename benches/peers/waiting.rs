//! A lock with waiters: how fast it passes on to one, and what many cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::RLOCK;
use crate::figures::{Row, Section, Unit, millis};
use crate::peer::{ON_SERVERS, ON_THIS_MACHINE, Peer, World};
use testkit::measure::batch::{Batch, Place};
use testkit::measure::commands;
use testkit::measure::contender::Times;
use testkit::measure::locker::{KEY, Locker, RlockRun};
use testkit::measure::machine::megabytes;
use testkit::processes::memory_of_tree;
use testkit::{Cluster, Watched};

pub(crate) const HAND_OVER: &str = "Hand-over to one who waits, one server";
pub(crate) const HAND_OVER_LOCAL: &str = "Hand-over to one who waits, this machine";
pub(crate) const FEW: &str = "20 who wait, one server";
pub(crate) const MANY: &str = "200 who wait, one server";
pub(crate) const MANY_LOCAL: &str = "200 who wait, this machine";

/// Further ways to wait with rlock: for other kinds of locks, and in other deployments.
pub(crate) const OF_RLOCK: [&str; 4] = [
    "rlock run --shared",
    "rlock run --slots 5",
    "rlock run, sentinels",
    "rlock run, cluster",
];

/// Number of primaries of the cluster.
const PRIMARIES: usize = 3;

const HAND_OVERS: usize = 30;

/// Span over which the releases are spread evenly, so that no polling contender is met at the same
/// point of its pause each time.
const SPREAD: Duration = Duration::from_millis(300);

/// Time in which nothing happens while all of them wait: for contenders that poll, and for rlock,
/// from one renewal to the next.
const IDLE: Duration = Duration::from_secs(2);
const IDLE_RLOCK: Duration = Duration::from_secs(10);

/// Time for which each holds the lock, in µs.
const STAY: &str = "1000";

/// Measures from the end of the holder's command to the begin of the next one's.
pub(crate) fn hand_over(world: &World) -> Result<Vec<Section>> {
    let place = Place {
        dir: &world.dir,
        witness: &world.witness,
    };
    let (watched, cluster) = (Watched::start(), Cluster::start(PRIMARIES, true));
    let mut lockers = world.waiting(&ON_SERVERS)?;
    let one = &world.servers[..1];
    let of_rlock = [
        RlockRun::on(RLOCK, one)?.taking(&["--shared"]),
        RlockRun::on(RLOCK, one)?.taking(&["--slots", "5"]),
        RlockRun::at(RLOCK, watched.url(), &watched.servers[0])?,
        RlockRun::at(RLOCK, cluster.url(), &cluster.servers[cluster.owner(KEY)])?,
    ];
    for (locker, name) in of_rlock.into_iter().zip(OF_RLOCK) {
        lockers.push(Box::new(locker.named(name)));
    }
    let split = lockers.len();
    lockers.extend(world.waiting(&ON_THIS_MACHINE)?);
    let mut gaps: Vec<Vec<Duration>> = vec![Vec::new(); lockers.len()];
    for round in 0..u32::try_from(HAND_OVERS)? {
        for (locker, gaps) in lockers.iter_mut().zip(&mut gaps) {
            let batch = Batch::form(&mut **locker, place, 1, "0")?;
            std::thread::sleep(SPREAD * round / u32::try_from(HAND_OVERS)?);
            gaps.extend(batch.run()?.hand_overs());
        }
    }
    let times: Vec<Times> = lockers
        .iter()
        .zip(gaps)
        .map(|(locker, gaps)| Times::new(locker.name(), gaps))
        .collect();
    let about = format!(
        "From the end of a command to the begin of the next, which has waited for it; {HAND_OVERS} times by turns. The \
         interpreters have been started long before, so their start is no part of it. Who asks now and then is found at \
         any point of its pause."
    );
    let kinds = " With --shared and --slots the waiter asks for that kind, and the holder has the lock alone. Sentinels and cluster \
                 have replicas.";
    Ok(vec![
        Section::of_times(
            HAND_OVER,
            about.clone() + kinds,
            &times[..split],
            Peer::Rlock.name(),
        ),
        Section::of_times(
            HAND_OVER_LOCAL,
            about,
            &times[split..],
            Peer::RlockLocal.name(),
        ),
    ])
}

/// Measures many waiters of one peer after another: 20 of each, and 200 of those that two
/// processors can start and keep asleep.
pub(crate) fn crowd(world: &World) -> Result<Vec<Section>> {
    let section = |title, waiters, all: &[Peer], about: &str| -> Result<Section> {
        let rows = world
            .waiting(all)?
            .into_iter()
            .map(|locker| of_one(world, locker, waiters))
            .collect::<Result<_>>()?;
        let about = format!(
            "They come one after another, wait while nothing happens, and then have the lock for 1 ms each. Memory is of \
             one, as below; times are from the end of a command to the begin of the next.{about}"
        );
        let columns = vec![
            ("memory of one", Unit::Megabytes),
            ("commands a second, idle", Unit::Count),
            ("commands per hand-over", Unit::Count),
            ("in the order they came", Unit::Count),
            ("hand-over p50", Unit::Millis),
            ("p99", Unit::Millis),
        ];
        Ok(Section {
            title,
            about,
            columns,
            rows,
        }
        .without_empty_columns())
    };
    // etcd in memory waits as on disk.
    let few: Vec<Peer> = ON_SERVERS
        .into_iter()
        .filter(|peer| *peer != Peer::EtcdctlInMemory)
        .collect();
    let commands = format!(
        " Commands are those that the server gets from all of them together, idle for {} s, rlock for {} s.",
        IDLE.as_secs(),
        IDLE_RLOCK.as_secs()
    );
    let left_out = format!(
        "{commands} The other peers would be 200 interpreters, or 2000 redis-cli a second."
    );
    Ok(vec![
        section(FEW, 20, &few, &commands)?.against(Peer::Rlock.name()),
        section(MANY, 200, &[Peer::Rlock, Peer::Etcdctl], &left_out)?.against(Peer::Rlock.name()),
        section(MANY_LOCAL, 200, &ON_THIS_MACHINE, "")?.against(Peer::RlockLocal.name()),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn of_one(world: &World, mut locker: Box<dyn Locker>, waiters: usize) -> Result<Row> {
    let name = locker.name();
    let place = Place {
        dir: &world.dir,
        witness: &world.witness,
    };
    let mut server = world.servers[0].connect();
    let batch = Batch::form(&mut *locker, place, waiters, STAY).context(name)?;
    let also = extra(name);
    let (stood, begin) = (commands::sent(&mut server, also)?, Instant::now());
    std::thread::sleep(if name == Peer::Rlock.name() {
        IDLE_RLOCK
    } else {
        IDLE
    });
    let (idle, span) = (commands::sent(&mut server, also)?, begin.elapsed());
    let memory: u64 = batch
        .waiters()
        .map(|waiter| memory_of_tree(waiter, "witness"))
        .sum();
    // The look at their memory takes time, in which they go on polling.
    let before = commands::sent(&mut server, also)?;
    let log = batch.run().context(name)?;
    let after = commands::sent(&mut server, also)?;
    let in_order = log
        .stays()
        .iter()
        .enumerate()
        .filter(|(place, stay)| *place > 0 && stay.label == *place)
        .count();
    let gaps = Times::new(name, log.hand_overs().collect());
    let on_redis = |figure: f64| Some(figure).filter(|_| after > before);
    Ok(Row {
        name,
        figures: vec![
            Some(megabytes(memory) / waiters as f64),
            on_redis((idle - stood) as f64 / span.as_secs_f64()),
            on_redis((after - before) as f64 / waiters as f64),
            Some(in_order as f64),
            Some(millis(gaps.median())),
            Some(millis(gaps.percentile(99))),
        ],
    })
}

/// Returns further commands that only clients send, for this contender.
fn extra(name: &str) -> &'static [&'static str] {
    if [Peer::Shell, Peer::RedisPy].map(Peer::name).contains(&name) {
        &["set"]
    } else {
        &[]
    }
}
