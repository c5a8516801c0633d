//! The queue of waiters: how they enqueue, and what the cases of its submodules share.

mod ends;
mod order;
mod requests;
mod rights;
mod skipped;
mod status_line;

use crate::support::{Rlock, Running, Server, eventually, rlock};

const QUEUE: &str = "rlock:queue:{job}:job";

/// The lock `job` on all of `servers`.
fn job(servers: &[Server]) -> Rlock {
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    rlock("job").node(&urls).args(["--restart-guard", "off"])
}

fn hold(servers: &[Server]) -> Running {
    job(servers).hold("echo ready; read line; true")
}

/// Starts a waiter that appends `name` to the list `ran` of the first server once it is let in, and waits until it stands
/// in the queue of every server.
fn queued(servers: &[Server], options: &[&str], name: &str) -> Running {
    let before = servers[0].cli(&["ZCARD", QUEUE]);
    let script = format!("redis-cli -s {} rpush ran {name} >/dev/null", servers[0].socket().display());
    let waiter = job(servers).args(options).args(["--", "sh", "-c", &script]).spawn();
    for server in servers {
        eventually("it stands in the queue", || server.cli(&["ZCARD", QUEUE]) != before);
    }
    waiter
}

fn ran(servers: &[Server]) -> Vec<String> {
    servers[0].cli(&["LRANGE", "ran", "0", "-1"]).lines().map(str::to_owned).collect()
}

fn nothing_is_left(servers: &[Server]) {
    for server in servers {
        assert_eq!(
            server.cli(&["EXISTS", "job", QUEUE, "rlock:offer:{job}:job", "rlock:watch:{job}:job"]),
            "0",
            "{}",
            server.cli(&["KEYS", "*"])
        );
    }
}

/// Lets the holder go, and all waiters run to their end.
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

/// The members of the queue, the first first.
fn line(server: &Server) -> Vec<String> {
    server.cli(&["ZRANGE", QUEUE, "0", "-1"]).lines().map(str::to_owned).collect()
}

fn listening(server: &Server) -> usize {
    server.cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"]).lines().count()
}
