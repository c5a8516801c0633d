//! Others want the lock: how fast it passes on to one who waits, and what 200 who wait cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::figures::{Row, Section, Unit, millis};
use crate::process;
use crate::support::batch::{Batch, Place};
use crate::support::commands;
use crate::support::contender::Times;
use crate::support::locker::Locker;
use crate::support::machine::megabytes;
use crate::who::{ON_SERVERS, ON_THIS_MACHINE, Who, World};

pub(crate) const HAND_OVER: &str = "Hand-over to one who waits, one server";
pub(crate) const HAND_OVER_LOCAL: &str = "Hand-over to one who waits, this machine";
pub(crate) const CROWD: &str = "200 who wait, one server";
pub(crate) const CROWD_LOCAL: &str = "200 who wait, this machine";

const HAND_OVERS: usize = 30;

/// The lock becomes free at times spread evenly over this, so that nobody who looks now and then is lucky by habit.
const SPREAD: Duration = Duration::from_millis(300);

const WAITERS: usize = 200;

/// How long nothing happens while all of them wait.
const IDLE: Duration = Duration::from_secs(5);

/// How long each of them keeps the lock, in µs.
const STAY: &str = "1000";

/// From the end of the holder's command to the begin of the next one's.
pub(crate) fn hand_over(world: &World) -> Result<Vec<Section>> {
    let place = Place { dir: &world.dir, witness: &world.witness };
    let mut lockers = world.waiting(&ON_SERVERS)?;
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
    let times: Vec<Times> = lockers.iter().zip(gaps).map(|(locker, gaps)| Times::new(locker.name(), gaps)).collect();
    let about = format!(
        "From the end of a command to the begin of the next, which has waited for it; {HAND_OVERS} times by turns. The \
         interpreters have been started long before, so their start is no part of it. Who asks now and then is found at \
         any point of its pause."
    );
    Ok(vec![
        Section::of_times(HAND_OVER, about.clone(), &times[..split], Who::Rlock.name()),
        Section::of_times(HAND_OVER_LOCAL, about, &times[split..], Who::RlockLocal.name()),
    ])
}

/// Many who wait, one kind after the other.
pub(crate) fn crowd(world: &World) -> Result<Vec<Section>> {
    let section = |title, all: &[Who], about: &str| -> Result<Section> {
        // Not etcd in memory, which waits as on disk, and not a script of which 200 want more than two processors to start their redis-cli.
        let takes_part = |who: &Who| ![Who::EtcdctlInMemory, Who::Shell].contains(who);
        let all: Vec<Who> = all.iter().copied().filter(takes_part).collect();
        let rows = world.waiting(&all)?.into_iter().map(|locker| of_one(world, locker)).collect::<Result<_>>()?;
        let about = format!(
            "They come one after another, wait for {} s more while nothing happens, and then have the lock for 1 ms each. \
             Memory is of one, as below; times are from the end of a command to the begin of the next. {about}",
            IDLE.as_secs()
        );
        let columns = vec![
            ("memory of one", Unit::Megabytes),
            ("commands a second, idle", Unit::Count),
            ("commands per hand-over", Unit::Count),
            ("in the order they came", Unit::Count),
            ("hand-over p50", Unit::Millis),
            ("p99", Unit::Millis),
        ];
        Ok(Section { title, about, columns, rows }.without_empty_columns())
    };
    let commands = "Commands are those that the server gets from all of them together. Left out: the shell script, 200 of \
                    which start a redis-cli ten times a second each, for which two processors are not enough.";
    Ok(vec![
        section(CROWD, &ON_SERVERS, commands)?.against(Who::Rlock.name()),
        section(CROWD_LOCAL, &ON_THIS_MACHINE, "")?.against(Who::RlockLocal.name()),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn of_one(world: &World, mut locker: Box<dyn Locker>) -> Result<Row> {
    let name = locker.name();
    let place = Place { dir: &world.dir, witness: &world.witness };
    let mut server = world.servers[0].connect()?;
    let batch = Batch::form(&mut *locker, place, WAITERS, STAY).context(name)?;
    let also = extra(name);
    let (stood, begin) = (commands::sent(&mut server, also)?, Instant::now());
    std::thread::sleep(IDLE);
    let (idle, span) = (commands::sent(&mut server, also)?, begin.elapsed());
    let memory: u64 = batch.waiters().map(|waiter| process::memory(waiter, "witness")).sum();
    // Looking at them takes its time, in which they go on asking.
    let before = commands::sent(&mut server, also)?;
    let log = batch.run().context(name)?;
    let after = commands::sent(&mut server, also)?;
    let in_order = log.stays().iter().enumerate().filter(|(place, stay)| *place > 0 && stay.label == *place).count();
    let gaps = Times::new(name, log.hand_overs().collect());
    let on_redis = |figure: f64| Some(figure).filter(|_| after > before);
    Ok(Row {
        name,
        figures: vec![
            Some(megabytes(memory) / WAITERS as f64),
            on_redis((idle - stood) as f64 / span.as_secs_f64()),
            on_redis((after - before) as f64 / WAITERS as f64),
            Some(in_order as f64),
            Some(millis(gaps.median())),
            Some(millis(gaps.percentile(99))),
        ],
    })
}

/// What only clients send, if they are of this name.
fn extra(name: &str) -> &'static [&'static str] {
    if name == Who::RedisPy.name() { &["set"] } else { &[] }
}
