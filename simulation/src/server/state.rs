//! The state of a server's process, and how it executes a call.

use std::collections::{BTreeMap, BTreeSet};

use super::WallMicros;
use super::command::{Command, Flag};
use super::condition::{Condition, Lack};
use super::identity::Identity;
use super::keyspace::Keyspace;
use super::member::Member;
use super::peers::{Peer, Peers};
use super::refusal::Refusal;
use super::reply::{Outcome, Reply};
use super::wait::Wait;
use super::watch::Watch;

/// The state of a server's process.
#[derive(Default, Debug)]
pub(super) struct State {
    pub(super) keyspace: Keyspace,
    pub(super) peers: Peers,
    pub(super) identity: Identity,
    pub(super) condition: Condition,
    /// The digests of the scripts that it keeps.
    pub(super) scripts: BTreeSet<String>,
    /// The service that it watches, if it is a sentinel.
    pub(super) watch: Option<Watch>,
    /// The state of its cluster as it knows it, if it is in one.
    pub(super) member: Option<Member>,
    /// The clients whose last request was ASKING.
    pub(super) asking: BTreeSet<Peer>,
    /// The messages that other members of the cluster are to pass on.
    pub(super) bus: Vec<(Vec<u8>, Vec<u8>)>,
    /// The clients that have begun to wait for replicas.
    pub(super) waits: Vec<Wait>,
    /// The clock at the current call.
    pub(super) now: WallMicros,
    /// The client whose request is executed.
    pub(super) caller: Peer,
    /// Number of requests by clients, for each command.
    pub(super) requests: BTreeMap<&'static str, u64>,
    /// Number of commands so far that may have changed data.
    pub(super) writes: u64,
    outbox: Vec<(Peer, Vec<u8>)>,
    script: Script,
}

/// How far the script that runs has come.
#[derive(Clone, Copy, Default, Debug)]
struct Script {
    /// Whether memory was short when it began.
    out_of_memory: bool,
    /// Whether it has called a command that writes.
    has_written: bool,
}

impl State {
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            identity,
            ..Self::default()
        }
    }

    /// Sets the clock for what follows.
    pub(super) fn set_clock(&mut self, now: WallMicros) {
        self.now = now;
        self.keyspace.now = now.0.div_euclid(1000);
        self.keyspace.keeps_expired = self.condition.replica;
    }

    /// Executes a request of the caller, and adds the reply to the outbox.
    pub(super) fn serve(&mut self, words: &[&[u8]]) {
        let reply = self.request(words).unwrap_or_else(Reply::Error);
        self.send(self.caller, &reply);
    }

    fn request(&mut self, words: &[&[u8]]) -> Outcome {
        let Some(name) = words.first() else {
            return Ok(Reply::Several(vec![]));
        };
        let known = Command::find(name).filter(|command| command.is_known(self.watch.is_some()));
        let Some(command) = known else {
            return Err(unknown(words));
        };
        if !command.takes(words.len()) {
            return Err(Refusal::wrong_arity(command.name));
        }
        if let Some(subcommand) = command.lacks(words) {
            return Err(Refusal::unknown_subcommand(command.name, subcommand));
        }
        let is_asking = self.asking.remove(&self.caller);
        if let Some(member) = &self.member {
            member.route(command.keys(words), is_asking, &mut self.keyspace)?;
        }
        self.condition.admit(command, words)?;
        if self.peers.hears_only(self.caller) && !command.is(Flag::Subscribed) {
            return Err(Refusal::with(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.full_name()
            )));
        }
        *self.requests.entry(command.name).or_default() += 1;
        self.script = Script {
            out_of_memory: self.condition.refuses_growth(),
            has_written: false,
        };
        self.writes += u64::from(command.is(Flag::Write));
        command.run(self, words)
    }

    /// Executes a command that a script calls, after Redis' checks in their order (script.c,
    /// `scriptCall`).
    pub(super) fn call(&mut self, words: &[&[u8]]) -> Outcome {
        let unknown = Refusal::new("ERR Unknown Redis command called from script");
        let command = words
            .first()
            .and_then(|name| Command::find(name))
            .filter(|command| command.is_known(false));
        let command = command.ok_or(unknown.clone())?;
        if command.lacks(words).is_some() {
            return Err(unknown);
        }
        if !command.takes(words.len()) {
            return Err(Refusal::new(
                "ERR Wrong number of args calling Redis command from script",
            ));
        }
        if command.is(Flag::NoScript) {
            return Err(Refusal::new(
                "ERR This Redis command is not allowed from script",
            ));
        }
        match self.condition.lack(command, words) {
            Some(Lack::Command) => {
                return Err(Refusal::new(
                    "ERR The user executing the script can't run this command or subcommand",
                ));
            }
            Some(Lack::Channel) => {
                let why = "ERR The user executing the script can't publish to the channel mentioned in the command";
                return Err(Refusal::new(why));
            }
            None => {}
        }
        if self.condition.replica && command.is(Flag::Write) {
            return Err(Refusal::READ_ONLY);
        }
        if self.script.out_of_memory && !self.script.has_written && command.is(Flag::DenyOom) {
            return Err(Refusal::OUT_OF_MEMORY);
        }
        self.script.has_written |= command.is(Flag::Write);
        self.writes += u64::from(command.is(Flag::Write));
        command.run(self, words)
    }

    /// Whether the client may make this call: `redis.acl_check_cmd`.
    pub(super) fn may(&self, words: &[&[u8]]) -> Result<bool, Refusal> {
        let command = words.first().and_then(|name| Command::find(name));
        let command = command.ok_or(Refusal::new(
            "ERR Invalid command passed to redis.acl_check_cmd()",
        ))?;
        Ok(self.condition.lack(command, words).is_none())
    }

    /// Sends a message to the subscribers of a channel; returns their number.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        if self.member.is_some() {
            self.bus.push((channel.to_vec(), message.to_vec()));
        }
        self.pass_on(channel, message)
    }

    /// The same for a message that came from another member of the cluster.
    pub(super) fn pass_on(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let subscribers = self.peers.subscribers(channel).to_vec();
        let push = Reply::Push(vec![
            Reply::bulk("message"),
            Reply::bulk(channel),
            Reply::bulk(message),
        ]);
        for peer in &subscribers {
            self.send(*peer, &push);
        }
        subscribers.len()
    }

    pub(super) fn send(&mut self, peer: Peer, reply: &Reply) {
        let mut bytes = Vec::new();
        reply.write(self.peers.protocol(peer), &mut bytes);
        self.outbox.push((peer, bytes));
    }

    pub(super) fn take_outbox(&mut self) -> Vec<(Peer, Vec<u8>)> {
        std::mem::take(&mut self.outbox)
    }
}

fn unknown(words: &[&[u8]]) -> Refusal {
    let text = |word: &&[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let (name, args) = words
        .split_first()
        .map(|(name, args)| (text(name), args))
        .unwrap_or_default();
    let args: Vec<String> = args
        .iter()
        .map(|word| format!("'{}' ", text(word)))
        .collect();
    let args = args.concat();
    Refusal::with(format!(
        "ERR unknown command '{name}', with args beginning with: {args}"
    ))
}
