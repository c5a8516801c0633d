//! Locks in etcd, in ZooKeeper and in a database, beside the clients that people use there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::RLOCK;
use crate::figures::Section;
use crate::peer::{HERE, World};
use testkit::measure::batch::{Batch, Place};
use testkit::measure::contender::{Contender, Times, measure};
use testkit::measure::locker::{Locker, OnDatabase, OnEtcd, OnZooKeeper, RlockRun, etcd_is_there};
use testkit::program::clean;
use testkit::witness::Log;
use testkit::zookeeper::{curator, has_zookeeper, kazoo};
use testkit::{Database, MariaDb, Postgres, ZooKeeper};

const WARM_UP: usize = 5;
const ROUNDS: usize = 50;

/// Number of hand-overs to one waiter.
const HAND_OVERS: usize = 30;

/// Number of waiters of a crowd, and of crowds.
const WAITERS: usize = 20;
const CROWDS: usize = 10;

/// Time for which each of a crowd holds the lock, in µs.
const STAY: &str = "5000";

/// Measures rlock beside `etcdctl lock` at the same member.
pub(crate) fn etcd(world: &World) -> Result<Vec<Section>> {
    if !etcd_is_there() {
        testkit::skipped("etcd is not installed (Debian's etcd-server and etcd-client)");
        return Ok(Vec::new());
    }
    let etcdctl = OnEtcd::on_disk(&world.dir)?;
    let mut lockers: [Box<dyn Locker>; 2] = [Box::new(etcdctl.rlock(RLOCK)), Box::new(etcdctl)];
    let contenders = lockers
        .each_ref()
        .map(|locker| Contender::running(locker.name(), &locker.command(), &["true"]));
    Ok(vec![
        start("Start to end, etcd", &contenders)?,
        handed_over(
            "Hand-over to one who waits, etcd",
            world,
            &mut lockers,
            1,
            HAND_OVERS,
        )?,
        handed_over("20 who wait, etcd", world, &mut lockers, WAITERS, CROWDS)?,
    ])
}

/// Measures rlock beside a program with kazoo's Lock, and beside threads with Curator's mutex.
pub(crate) fn zookeeper(world: &World) -> Result<Vec<Section>> {
    if !has_zookeeper() {
        return Ok(Vec::new());
    }
    let options = ["tickTime=2000", "4lw.commands.whitelist=srvr,mntr"];
    let server = Rc::new(ZooKeeper::start(&options));
    let hosts = format!("127.0.0.1:{}", server.port());
    let mut rlock = OnZooKeeper::rlock(RLOCK, &server);
    let on_redis = RlockRun::on(RLOCK, &world.servers[..1])?;
    let mut contenders = vec![
        Contender::running(rlock.name(), &rlock.command(), &["true"]),
        Contender::running("rlock run, Redis", &on_redis.command(), &["true"]),
    ];
    if let Some(python) = kazoo() {
        let wrapper = format!("{HERE}/kazoo_lock.py");
        let words = [&wrapper, &hosts, "/kazoo", "true"];
        contenders.push(Contender::running("kazoo Lock", &python, &words));
    }
    let mut crowds = None;
    if let Some(mut threads) = Threads::start(&hosts)? {
        // The compiler of the JVM has seen the code by then.
        for _ in 0..WARM_UP {
            threads.sleeping()?;
            threads.running(world)?;
        }
        let mut gaps: [Vec<Duration>; 3] = Default::default();
        for _ in 0..CROWDS {
            let batch = Batch::form(&mut rlock, place(world), WAITERS, STAY)?;
            gaps[0].extend(batch.run()?.hand_overs());
            gaps[1].extend(threads.running(world)?);
            gaps[2].extend(threads.sleeping()?);
        }
        let [own, running, sleeping] = gaps;
        let times = [
            Times::new(rlock.name(), own),
            Times::new("Curator's threads in a warm JVM", running),
            Times::new("the same, which start no command", sleeping),
        ];
        let about = about_crowds(
            "rlock and Curator's threads start a command each. The last ones sleep in its place.",
        );
        crowds = Some(Section::of_times(
            "20 who wait, ZooKeeper",
            about,
            &times,
            rlock.name(),
        ));
    }
    // By now the compiler of the server has seen its code, as that of one that runs for days.
    let alone = start("Start to end, ZooKeeper", &contenders)?;
    Ok(std::iter::once(alone).chain(crowds).collect())
}

/// Measures rlock beside mariadb, which begins one session and asks one thing.
pub(crate) fn mysql(world: &World) -> Result<Vec<Section>> {
    let Some(server) = MariaDb::start() else {
        return Ok(Vec::new());
    };
    let (server, port) = at(server);
    let words = ["--no-defaults", "-h", "127.0.0.1", "-P", &port];
    let words = [
        &words[..],
        &["-u", "rlock", "-D", "rlock", "-e", "select 1"],
    ]
    .concat();
    let client = Contender::running("mariadb -e 'select 1'", &clean("mariadb"), &words);
    database(
        world,
        &server,
        client,
        [
            "Start to end, MariaDB",
            "Hand-over to one who waits, MariaDB",
        ],
    )
}

/// Measures rlock beside psql, which does the same.
pub(crate) fn postgres(world: &World) -> Result<Vec<Section>> {
    let Some(server) = Postgres::start() else {
        return Ok(Vec::new());
    };
    let (server, port) = at(server);
    let words = ["-X", "-h", "127.0.0.1", "-p", &port];
    let words = [&words[..], &["-U", "rlock", "-c", "select 1"]].concat();
    let client = Contender::running("psql -c 'select 1'", &clean("psql"), &words);
    database(
        world,
        &server,
        client,
        [
            "Start to end, PostgreSQL",
            "Hand-over to one who waits, PostgreSQL",
        ],
    )
}

/// Returns the server for all that use it, and its port.
fn at<D: Database>(server: D) -> (Rc<D>, String) {
    let host = server.host();
    let port = host.rsplit(':').next().unwrap_or_default();
    (Rc::new(server), port.to_owned())
}

fn database<D: Database>(
    world: &World,
    server: &Rc<D>,
    client: Contender,
    [start_to_end, hand_over]: [&'static str; 2],
) -> Result<Vec<Section>> {
    let rlock = OnDatabase::rlock(RLOCK, server);
    let own = Contender::running(rlock.name(), &rlock.command(), &["true"]);
    let mut lockers: [Box<dyn Locker>; 1] = [Box::new(rlock)];
    Ok(vec![
        start(start_to_end, &[own, client])?,
        handed_over(hand_over, world, &mut lockers, 1, HAND_OVERS)?,
    ])
}

fn place(world: &World) -> Place<'_> {
    Place {
        dir: &world.dir,
        witness: &world.witness,
    }
}

/// Measures `true` under a lock. The first contender is the base of the ratios.
fn start(title: &'static str, contenders: &[Contender]) -> Result<Section> {
    let times = measure(contenders, WARM_UP, ROUNDS, |_, _| Ok(()))?;
    let about = format!(
        "Wall time of `true` under a lock without contention, from spawn to exit, {ROUNDS} times by turns after \
         {WARM_UP} to warm up. One server, its data on disk as it comes."
    );
    Ok(Section::of_times(
        title,
        about,
        &times,
        contenders[0].name(),
    ))
}

/// Measures from the end of a command to the begin of the next, in batches by turns.
fn handed_over(
    title: &'static str,
    world: &World,
    lockers: &mut [Box<dyn Locker>],
    waiters: usize,
    batches: usize,
) -> Result<Section> {
    let mut gaps: Vec<Vec<Duration>> = vec![Vec::new(); lockers.len()];
    for _ in 0..batches {
        for (locker, gaps) in lockers.iter_mut().zip(&mut gaps) {
            let batch = Batch::form(&mut **locker, place(world), waiters, STAY)?;
            gaps.extend(batch.run()?.hand_overs());
        }
    }
    let times = lockers.iter().zip(gaps);
    let times: Vec<Times> = times
        .map(|(locker, gaps)| Times::new(locker.name(), gaps))
        .collect();
    let about = if waiters == 1 {
        format!("From the end of a command to the begin of the next, {batches} times by turns.")
    } else {
        about_crowds("Both start a command.")
    };
    Ok(Section::of_times(title, about, &times, times[0].name))
}

fn about_crowds(what: &str) -> String {
    format!(
        "From the end of one stay under the lock to the begin of the next, {CROWDS} times {WAITERS} who wait, by turns. {what}"
    )
}

/// Threads of one JVM that wait for a mutex of Curator.
struct Threads {
    process: Child,
    rounds: ChildStdin,
    gaps: BufReader<ChildStdout>,
}

impl Threads {
    /// Starts the JVM; `None` where Curator is not installed, which is printed.
    fn start(hosts: &str) -> Result<Option<Self>> {
        let Some(mut java) = curator() else {
            return Ok(None);
        };
        java.arg(format!("{HERE}/CuratorCrowd.java"));
        java.args([hosts, &WAITERS.to_string(), STAY]);
        java.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = java.stderr(Stdio::null()).spawn()?;
        let rounds = process.stdin.take().context("its input")?;
        let gaps = BufReader::new(process.stdout.take().context("its output")?);
        Ok(Some(Self {
            process,
            rounds,
            gaps,
        }))
    }

    /// Lets each of them run the witness under the lock once, and returns the times between them.
    fn running(&mut self, world: &World) -> Result<Vec<Duration>> {
        let log = world.dir.join("log-threads");
        let words = format!("{} {}", world.witness.display(), log.display());
        self.round(&words)?;
        let gaps = Log::read(&log)?.hand_overs().collect();
        std::fs::remove_file(log)?;
        Ok(gaps)
    }

    /// The same, with a sleep in the witness' place.
    fn sleeping(&mut self) -> Result<Vec<Duration>> {
        let line = self.round("")?;
        let gaps = line
            .split_whitespace()
            .map(|gap| Ok(Duration::from_nanos(gap.parse()?)));
        let gaps: Vec<Duration> = gaps.collect::<Result<_>>()?;
        ensure!(gaps.len() == WAITERS, "Curator's threads: {line:?}");
        Ok(gaps)
    }

    /// Lets each of them have the lock once, and returns what it prints.
    fn round(&mut self, words: &str) -> Result<String> {
        writeln!(self.rounds, "{words}")?;
        let mut line = String::new();
        self.gaps.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
