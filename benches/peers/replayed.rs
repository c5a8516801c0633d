//! What hosts cost one Redis, by the requests of one that are replayed: as many processes would
//! measure this machine.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use redis::Value;
use uuid::Uuid;

use crate::RLOCK;
use crate::figures::{Row, Section, Unit, millis, processor_time};
use crate::peer::World;
use crate::replay::{Client, Conversation, Recorder};
use testkit::Server;
use testkit::measure::commands;
use testkit::measure::contender::Times;
use testkit::measure::machine::megabytes;
use testkit::processes::memory_of_tree;
use testkit::program::clean;

pub(crate) const ASKING: &str = "Hosts that ask at once and do not wait, one server";
pub(crate) const RUNNING: &str = "A whole run, one server";
pub(crate) const STANDING: &str = "Hosts that wait, replayed, one server";

/// Numbers of hosts that ask, with the names of their rows.
const RUSHES: [(&str, usize); 2] = [("rlock, 200 ask", 200), ("rlock, 2,000 ask", 2000)];

/// Numbers of hosts that wait, with the names of their rows.
const LINES: [(&str, usize); 4] = [
    ("rlock, 10 wait", 10),
    ("rlock, 100 wait", 100),
    ("rlock, 1,000 wait", 1000),
    ("rlock, 10,000 wait", 10_000),
];

/// Most hand-overs that are measured in a line.
const HAND_OVERS: usize = 500;

/// Times that each rush is repeated; the median is told.
const REPEATED: usize = 5;

/// Number of whole runs of each kind, in batches by turns.
const RUNS: u32 = 2000;
const BATCHES: u32 = 10;

/// Descriptors beside the connections.
const OTHER_FILES: u64 = 100;

/// Key of the lock.
const KEY: &str = "rush";

/// Measures hosts that ask for a held lock in the same moment.
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
    let server = server_for(hosts)?;
    let holder = Holder::of(&server)?;
    let conversation = Conversation::of(&server, |url| run(url, &["-n"]))?;
    let mut times = Vec::with_capacity(REPEATED);
    let before = processor_time(server.pid())?;
    for _ in 0..REPEATED {
        times.push(conversation.replay(&server, hosts)?);
    }
    let spent = processor_time(server.pid())? - before;
    drop(holder);
    let figures = [
        millis(Times::new(name, times).median()),
        spent / REPEATED as f64,
        conversation.commands() as f64,
    ];
    Ok(Row {
        name,
        figures: figures.map(Some).to_vec(),
    })
}

/// Measures runs without contention, one after another, beside the least that a client can say.
#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
pub(crate) fn running(world: &World) -> Result<Vec<Section>> {
    let server = Server::tcp(&[]);
    // The server knows rlock's script from then on.
    Conversation::of(&server, |url| run(url, &[]))?;
    let said = [
        (
            "floor.c",
            Conversation::of(&server, |url| {
                let mut floor = clean(&world.floor);
                let (host, port) = url
                    .trim_start_matches("redis://")
                    .split_once(':')
                    .unwrap_or_default();
                floor.args([host, port, KEY, "true"]);
                floor
            })?,
        ),
        ("rlock run", Conversation::of(&server, |url| run(url, &[]))?),
    ];
    let mut spent = [0.0; 2];
    for _ in 0..BATCHES {
        for ((_, conversation), spent) in said.iter().zip(&mut spent) {
            let before = processor_time(server.pid())?;
            for _ in 0..RUNS / BATCHES {
                conversation.replay(&server, 1)?;
            }
            *spent += processor_time(server.pid())? - before;
        }
    }
    let row = |((name, conversation), spent): (&(&'static str, Conversation), f64)| Row {
        name,
        figures: [
            spent / f64::from(RUNS),
            conversation.commands() as f64,
            conversation.bytes() as f64,
        ]
        .map(Some)
        .to_vec(),
    };
    let section = Section {
        title: RUNNING,
        about: format!(
            "What `true` under a lock says to the server, from the connection to its end, recorded and replayed {RUNS} times by turns. \
             The server knows the scripts already."
        ),
        columns: vec![
            ("processor time of the server", Unit::Millis),
            ("commands", Unit::Count),
            ("bytes sent", Unit::Count),
        ],
        rows: said.iter().zip(spent).map(row).collect(),
    };
    Ok(vec![section.against("rlock run")])
}

/// Measures hosts that stand in line for one lock.
pub(crate) fn standing(_: &World) -> Result<Vec<Section>> {
    let about = format!(
        "What one `rlock run` that waits says to the server is recorded, and replayed by as many clients in one process, which start no \
         command. Times are of up to {HAND_OVERS} hand-overs, from the release that a client sends to the grant that the next one gets."
    );
    let columns = vec![
        ("hand-over p50", Unit::Millis),
        ("p99", Unit::Millis),
        ("commands per hand-over", Unit::Count),
        ("processor time per hand-over", Unit::Millis),
        ("memory of the server", Unit::Megabytes),
    ];
    let rows = LINES
        .into_iter()
        .map(|(name, hosts)| line(name, hosts).context(name))
        .collect::<Result<_>>()?;
    Ok(vec![Section {
        title: STANDING,
        about,
        columns,
        rows,
    }])
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
fn line(name: &'static str, hosts: usize) -> Result<Row> {
    let server = server_for(hosts + 1)?;
    let waiter = Waiter::recorded(&server)?;
    let memory = memory_of_tree(server.pid(), "");
    let mut clients = (0..=hosts)
        .map(|number| waiter.stands(&server, number))
        .collect::<Result<Vec<_>>>()?;
    let more = memory_of_tree(server.pid(), "") - memory;
    let (mut asked, before) = (server.connect(), processor_time(server.pid())?);
    let commands = commands::sent(&mut asked, &[])?;
    let count = hosts.min(HAND_OVERS);
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let begin = Instant::now();
        let [holder, next] = &mut clients[number..number + 2] else {
            break;
        };
        holder.releases()?;
        next.is_told()?;
        ensure!(next.takes()?, "the next one is not granted the lock");
        times.push(begin.elapsed());
    }
    let commands = commands::sent(&mut asked, &[])? - commands;
    let spent = processor_time(server.pid())? - before;
    let times = Times::new(name, times);
    let figures = [
        millis(times.median()),
        millis(times.percentile(99)),
        commands as f64 / count as f64,
        spent / count as f64,
        megabytes(more),
    ];
    Ok(Row {
        name,
        figures: figures.map(Some).to_vec(),
    })
}

/// What a waiter says: it opens its connection, stands in line, takes the lock at its turn, and
/// gives it back.
struct Waiter {
    said: Conversation,
    /// Its own names for itself and its claims.
    names: BTreeSet<String>,
    /// Its number in the line.
    number: u64,
}

/// A client that says the same under other names.
struct Standing {
    client: Client,
    said: Conversation,
}

impl Waiter {
    fn recorded(server: &Server) -> Result<Self> {
        let recorder = Recorder::before(server)?;
        let mut holder = Holder::of(server)?;
        let mut waiter = run(recorder.url(), &[]).spawn()?;
        testkit::until("a waiter is enqueued", || {
            let queue = redis::cmd("ZCARD")
                .arg(format!("rlock:queue:{{{KEY}}}:{KEY}"))
                .to_owned();
            Ok((queue.query::<usize>(&mut server.connect())? == 1).then_some(()))
        })?;
        holder.gives_back()?;
        ensure!(waiter.wait()?.success(), "the waiter failed");
        let said = recorder.conversation()?;
        let text = said.text();
        ensure!(text.len() == 4, "a waiter says something else: {text:?}");
        // Behind what the waiter tells of itself comes the length of its number, and the number.
        let is_entry = |word: &&str| word.contains(' ') && !word.contains('{');
        let mut words = text[1].split("\r\n").skip_while(|word| !is_entry(word));
        let number = words.nth(2).and_then(|word| word.parse().ok());
        Ok(Self {
            names: text.iter().flat_map(|text| names_in(text)).collect(),
            number: number.context("a waiter has no number")?,
            said,
        })
    }

    /// Lets a client stand in line; the first one holds the lock.
    fn stands(&self, server: &Server, number: usize) -> Result<Standing> {
        let fresh: Vec<String> = (self.names.iter().map(|_| Uuid::new_v4().to_string())).collect();
        let numbers = [self.number, self.number + number as u64].map(|it| it.to_string());
        let names = self.names.iter().zip(&fresh);
        let words: Vec<(&str, &str)> = names
            .map(|(name, fresh)| (name.as_str(), fresh.as_str()))
            .chain([(numbers[0].as_str(), numbers[1].as_str())])
            .collect();
        let mut standing = Standing {
            client: Client::of(server)?,
            said: self.said.with(&words),
        };
        standing.say(0)?;
        if number == 0 {
            ensure!(standing.takes()?, "the first one is not granted the lock");
        } else {
            standing.say(1)?;
        }
        Ok(standing)
    }
}

impl Standing {
    fn say(&mut self, which: usize) -> Result<Vec<Value>> {
        let request = &self.said.requests()[which];
        self.client.send(request)?;
        self.client.answers(request)
    }

    fn takes(&mut self) -> Result<bool> {
        Ok(format!("{:?}", self.say(2)?).contains("granted"))
    }

    fn releases(&mut self) -> Result<()> {
        let answer = format!("{:?}", self.say(3)?);
        ensure!(answer.contains("released"), "not released: {answer}");
        Ok(())
    }

    /// Waits until it is told that it is its turn.
    fn is_told(&mut self) -> Result<()> {
        let told = self.client.next()?;
        ensure!(matches!(told, Value::Push { .. }), "told something else");
        Ok(())
    }
}

/// Returns the UUIDs in a text.
fn names_in(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_ascii_hexdigit() && letter != '-');
    words
        .filter(|word| Uuid::parse_str(word).is_ok())
        .map(str::to_owned)
}

/// An rlock that holds the lock until it is dropped.
struct Holder(std::process::Child);

impl Holder {
    fn of(server: &Server) -> Result<Self> {
        let mut holder = clean(RLOCK);
        holder.args(words(&server.tcp_url(), &[])).arg("cat");
        let holder = Self(holder.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?);
        testkit::until("the lock is held", || {
            let exists = redis::cmd("EXISTS").arg(KEY).to_owned();
            Ok(exists.query::<bool>(&mut server.connect())?.then_some(()))
        })?;
        Ok(holder)
    }

    fn gives_back(&mut self) -> Result<()> {
        // Its command reads until then.
        drop(self.0.stdin.take());
        ensure!(self.0.wait()?.success(), "the holder failed");
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an rlock that runs `true` under the lock.
fn run(url: &str, options: &[&str]) -> Command {
    let mut command = clean(RLOCK);
    command.args(words(url, options)).arg("true");
    command
}

/// Returns its words up to the command.
fn words<'a>(url: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let lock = ["run", "--key", KEY, "--restart-guard", "off", "--node", url];
    [&lock, options, &["--"]].concat()
}

/// Starts a server that as many clients can reach.
fn server_for(clients: usize) -> Result<Server> {
    let files = clients as u64 + OTHER_FILES;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(files).min(hard), hard)?;
    Ok(Server::tcp(&["--maxclients", &files.to_string()]))
}
