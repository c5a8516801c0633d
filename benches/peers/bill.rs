//! The bill of one server: what hosts that wait for a lock cost it, and hosts that ask for one all
//! at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::RLOCK;
use crate::figures::{Row, Section, Unit, millis};
use crate::peer::World;
use crate::replay::Conversation;
use testkit::Server;
use testkit::measure::batch::{Batch, Place};
use testkit::measure::commands;
use testkit::measure::contender::Times;
use testkit::measure::locker::RlockRun;

pub(crate) const WAITING: &str = "Hosts that wait, one server";
pub(crate) const ASKING: &str = "Hosts that ask at once and do not wait, one server";

/// Numbers of waiters, with the names of their rows.
const CROWDS: [(&str, usize); 3] = [
    ("rlock, 10 wait", 10),
    ("rlock, 100 wait", 100),
    ("rlock, 1,000 wait", 1000),
];

/// Numbers of hosts that ask, with the names of their rows.
const RUSHES: [(&str, usize); 2] = [("rlock, 200 ask", 200), ("rlock, 2,000 ask", 2000)];

/// Time in which nothing happens: three renewals of the holder.
const IDLE: Duration = Duration::from_secs(30);

/// Time for which each waiter holds the lock, in µs.
const STAY: &str = "1000";

/// Times that each rush is repeated; the median is told.
const REPEATED: usize = 5;

/// Descriptors beside the connections.
const OTHER_FILES: u64 = 100;

/// Measures waiters of one lock: each is a process of its own, as on a host of its own.
pub(crate) fn waiting(world: &World) -> Result<Vec<Section>> {
    let about = format!(
        "They come one after another, wait for {} s while the holder renews, and then have the lock for 1 ms each. Memory is what the \
         server takes more than without them. Times are from the end of a command to the begin of the next.",
        IDLE.as_secs()
    );
    let columns = vec![
        ("hand-over p50", Unit::Millis),
        ("p99", Unit::Millis),
        ("commands a second, idle", Unit::Count),
        ("commands per hand-over", Unit::Count),
        ("memory of the server", Unit::Megabytes),
        ("connections", Unit::Count),
    ];
    let rows = CROWDS
        .into_iter()
        .map(|(name, waiters)| crowd(world, name, waiters))
        .collect::<Result<_>>()?;
    Ok(vec![Section {
        title: WAITING,
        about,
        columns,
        rows,
    }])
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn crowd(world: &World, name: &'static str, waiters: usize) -> Result<Row> {
    let server = Server::tcp(&[]);
    let place = Place {
        dir: &world.dir,
        witness: &world.witness,
    };
    let mut locker = RlockRun::on(RLOCK, std::slice::from_ref(&server))?;
    let mut asked = server.connect();
    let [memory, connections] = footprint(&mut asked)?;
    let batch = Batch::form(&mut locker, place, waiters, STAY).context(name)?;
    let (stood, begin) = (commands::sent(&mut asked, &[])?, Instant::now());
    std::thread::sleep(IDLE);
    let (idle, span) = (commands::sent(&mut asked, &[])?, begin.elapsed());
    let [more_memory, more_connections] = footprint(&mut asked)?;
    let log = batch.run().context(name)?;
    let after = commands::sent(&mut asked, &[])?;
    let gaps = Times::new(name, log.hand_overs().collect());
    let figures = [
        millis(gaps.median()),
        millis(gaps.percentile(99)),
        (idle - stood) as f64 / span.as_secs_f64(),
        (after - idle) as f64 / waiters as f64,
        (more_memory - memory) / 1e6,
        more_connections - connections,
    ];
    Ok(Row {
        name,
        figures: figures.map(Some).to_vec(),
    })
}

/// Measures hosts that ask for a held lock in the same moment. What one `rlock run -n` says to the
/// server is replayed on a connection for each: that many processes would measure this machine.
pub(crate) fn asking(_: &World) -> Result<Vec<Section>> {
    let about = format!(
        "Another rlock holds the lock. What `rlock run -n` says to the server is recorded, and replayed on as many connections at \
         once, opened for it. Medians of {REPEATED}, from the first connection to the last answer."
    );
    let columns = vec![
        ("all answered", Unit::Millis),
        ("processor time of the server", Unit::Millis),
        ("commands of each", Unit::Count),
    ];
    let rows = RUSHES
        .into_iter()
        .map(|(name, hosts)| rush(name, hosts))
        .collect::<Result<_>>()?;
    Ok(vec![Section {
        title: ASKING,
        about,
        columns,
        rows,
    }])
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn rush(name: &'static str, hosts: usize) -> Result<Row> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(
        Resource::RLIMIT_NOFILE,
        soft.max(hosts as u64 + OTHER_FILES).min(hard),
        hard,
    )?;
    let server = Server::tcp(&[]);
    let mut holder = testkit::program::clean(RLOCK);
    holder.args([
        "run",
        "--key",
        KEY,
        "--restart-guard",
        "off",
        "--node",
        &server.tcp_url(),
        "--",
        "sleep",
        "1000",
    ]);
    let mut holder = holder.spawn()?;
    let measured = (|| {
        testkit::until("the lock is held", || {
            Ok(redis::cmd("EXISTS")
                .arg(KEY)
                .query::<bool>(&mut server.connect())?
                .then_some(()))
        })?;
        let conversation = Conversation::of(&server, |url| {
            let mut asks = testkit::program::clean(RLOCK);
            asks.args([
                "run",
                "-n",
                "--key",
                KEY,
                "--restart-guard",
                "off",
                "--node",
                url,
                "--",
                "true",
            ]);
            asks
        })?;
        let mut times = Vec::with_capacity(REPEATED);
        let before = processor_time(&server)?;
        for _ in 0..REPEATED {
            times.push(conversation.replay(&server, hosts)?);
        }
        let spent = (processor_time(&server)? - before) / REPEATED as f64;
        Ok([
            millis(Times::new(name, times).median()),
            spent * 1e3,
            conversation.commands() as f64,
        ])
    })();
    // It may have ended by itself.
    let _ = holder.kill();
    let _ = holder.wait();
    measured.map(|figures: [f64; 3]| Row {
        name,
        figures: figures.map(Some).to_vec(),
    })
}

/// Key of the lock that all ask for.
const KEY: &str = "rush";

/// Returns the bytes that the server uses, and the number of its connections.
fn footprint(server: &mut redis::Connection) -> Result<[f64; 2]> {
    Ok([
        figure(server, "used_memory")?,
        figure(server, "connected_clients")?,
    ])
}

/// Returns the seconds of processor time that the server has used.
fn processor_time(server: &Server) -> Result<f64> {
    let mut connection = server.connect();
    Ok(figure(&mut connection, "used_cpu_user")? + figure(&mut connection, "used_cpu_sys")?)
}

/// Returns a figure of INFO.
fn figure(server: &mut redis::Connection, field: &str) -> Result<f64> {
    let text: String = redis::cmd("INFO").query(server)?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value
        .with_context(|| format!("INFO has no {field}"))?
        .trim()
        .parse()?)
}
