//! The queue of waiters: how they enqueue, and what the cases of its submodules share.

mod ends;
mod order;
mod requests;
mod rights;
mod skipped;
mod status_line;

use crate::support::{Rlock, Running, Server, eventually, rlock};

const QUEUE: &str = "rlock:queue:{job}:job";

/// Returns `rlock run` for the lock `job` on all of `servers`, to be completed.
fn job(servers: &[Server]) -> Rlock {
    let urls = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    rlock("job").node(&urls).args(["--restart-guard", "off"])
}

fn hold(servers: &[Server]) -> Running {
    job(servers).hold("echo ready; read line; true")
}

/// Starts a waiter, and waits until it is in the queue of every server. Once it has the lock, it
/// appends `name` to the list `ran` of the first server.
fn queued(servers: &[Server], options: &[&str], name: &str) -> Running {
    let before = servers[0].cli(&["ZCARD", QUEUE]);
    let script = format!(
        "redis-cli -s {} rpush ran {name} >/dev/null",
        servers[0].socket().display()
    );
    let waiter = job(servers)
        .args(options)
        .args(["--", "sh", "-c", &script])
        .spawn();
    for server in servers {
        eventually("it stands in the queue", || {
            server.cli(&["ZCARD", QUEUE]) != before
        });
    }
    waiter
}

fn ran(servers: &[Server]) -> Vec<String> {
    servers[0]
        .cli(&["LRANGE", "ran", "0", "-1"])
        .lines()
        .map(str::to_owned)
        .collect()
}

fn nothing_is_left(servers: &[Server]) {
    for server in servers {
        assert_eq!(
            server.cli(&["EXISTS", "job", QUEUE, "rlock:turns:{job}:job"]),
            "0",
            "{}",
            server.cli(&["KEYS", "*"])
        );
    }
}

/// Ends the holder, and waits until all waiters have run.
fn all_run(holder: Running, waiters: Vec<Running>) {
    holder.finish().code(0);
    all_run_of(waiters);
}

fn all_run_of(waiters: Vec<Running>) {
    for waiter in waiters {
        waiter.finish().code(0).silent();
    }
}

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}

/// Returns the members of the queue in their order.
fn line(server: &Server) -> Vec<String> {
    server
        .cli(&["ZRANGE", QUEUE, "0", "-1"])
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Returns the number of waiters that listen.
fn listening(server: &Server) -> usize {
    let holder = server.token();
    let is_waiters = |channel: &&str| holder.is_empty() || !channel.ends_with(&holder);
    server
        .cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"])
        .lines()
        .filter(is_waiters)
        .count()
}

/// Waits until the holder listens, which it does from its first second on.
fn holder_listens(server: &Server) {
    let channel = format!("rlock:wake:{{job}}:{}", server.token());
    eventually("the holder listens", || {
        server.cli(&["PUBSUB", "NUMSUB", &channel]).ends_with('1')
    });
}
