//! A server in memory that executes the scripts, and nodes that share it.

use std::collections::BTreeMap;

use ::simulation::server::{Peer, Server as Memory, WallMicros};

use super::*;
use crate::clock;

/// Unix time at which the virtual clock begins, in µs.
const BEGIN: i64 = 1_800_000_000_000_000;

/// A server in memory, and nodes that share it.
#[derive(Clone)]
pub(super) struct Host {
    memory: Arc<Mutex<Memory>>,
    streams: Arc<Mutex<BTreeMap<Peer, mpsc::UnboundedSender<Vec<u8>>>>>,
    /// Time that each reply takes.
    delay: Arc<Mutex<Duration>>,
}

impl Host {
    pub(super) fn new() -> Self {
        let memory = Memory::new("node", 0, WallMicros(BEGIN - 3_600_000_000));
        Self {
            memory: Arc::new(Mutex::new(memory)),
            streams: Arc::default(),
            delay: Arc::default(),
        }
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// A node with connections of its own, as another process has them.
    pub(super) fn node(&self) -> RedisNode {
        let host = self.clone();
        let dial: Dial = Arc::new(move |_, _| {
            let host = host.clone();
            Box::pin(async move {
                let (ours, theirs) = duplex(1 << 20);
                tokio::spawn(host.serve(theirs));
                Ok(Box::new(ours) as Box<dyn Stream>)
            })
        });
        server_over(dial).node(&key())
    }

    async fn serve(self, stream: DuplexStream) {
        let peer = self.memory().connect();
        let (say, mut said) = mpsc::unbounded_channel();
        self.streams.lock().unwrap().insert(peer, say);
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut buffer = vec![0; 1 << 16];
        loop {
            tokio::select! {
                Some(bytes) = said.recv() => {
                    let delay = *self.delay.lock().unwrap();
                    tokio::time::sleep(delay).await;
                    drop(writer.write_all(&bytes).await);
                }
                read = reader.read(&mut buffer) => match read {
                    Ok(count @ 1..) => self.receive(peer, &buffer[..count]),
                    _ => return self.memory().disconnect(peer),
                },
            }
        }
    }

    fn receive(&self, peer: Peer, bytes: &[u8]) {
        for (to, reply) in self.memory().receive(peer, bytes, wall()) {
            let _ = self.streams.lock().unwrap()[&to].send(reply);
        }
    }

    /// Lets each reply take this long from now on.
    pub(super) fn delay(&self, time: Duration) {
        *self.delay.lock().unwrap() = time;
    }

    /// The value at a key, and the ms that it has left.
    pub(super) fn get(&self, key: &str) -> Option<(String, i64)> {
        let memory = self.memory();
        let entry = memory.get(key.as_bytes(), wall())?;
        let ::simulation::server::Value::String(value) = &entry.value else {
            panic!("{key} is no string")
        };
        Some((
            String::from_utf8(value.clone()).unwrap(),
            entry.expires? - wall().0 / 1000,
        ))
    }

    pub(super) fn counter(&self) -> u64 {
        self.get(&derived(Derived::Fence))
            .map_or(0, |(count, _)| count.parse().unwrap())
    }

    /// Executes a command by hand, and returns the reply.
    pub(super) fn by_hand(&self, words: &[&str]) -> String {
        let mut command = Cmd::new();
        command.arg(words);
        let mut memory = self.memory();
        let ours = memory.connect();
        let said = memory.receive(ours, &command.get_packed_command(), wall());
        memory.disconnect(ours);
        let mut reply = String::new();
        for (to, bytes) in said {
            if to == ours {
                reply.push_str(&String::from_utf8_lossy(&bytes));
            } else {
                let _ = self.streams.lock().unwrap()[&to].send(bytes);
            }
        }
        reply
    }

    pub(super) fn queue(&self) -> Vec<String> {
        let memory = self.memory();
        let Some(entry) = memory.get(derived(Derived::Queue).as_bytes(), wall()) else {
            return vec![];
        };
        assert!(entry.expires.is_some(), "a queue without an expiry");
        let ::simulation::server::Value::SortedSet(set) = &entry.value else {
            panic!("no queue")
        };
        set.members()
            .iter()
            .map(|(_, member)| String::from_utf8(member.clone()).unwrap())
            .collect()
    }
}

pub(super) fn wall() -> WallMicros {
    let passed = clock::now().since(crate::lock::instant::Instant::from_nanos(1_000_000_000_000));
    WallMicros(BEGIN + i64::try_from(passed.as_micros()).unwrap())
}
