//! Commands that clients have sent to a server.

use anyhow::Result;

/// Commands that only clients send. INFO counts the calls of scripts too, and no script here calls
/// any of these.
const BY_CLIENTS: [&str; 14] = [
    "auth",
    "client|setinfo",
    "client|setname",
    "eval",
    "eval_ro",
    "evalsha",
    "hello",
    "ping",
    "quit",
    "select",
    "subscribe",
    "unsubscribe",
    "wait",
    "waitaof",
];

/// Returns the number of commands that clients have sent so far. `also` has further commands that
/// no script of theirs calls.
pub fn sent(server: &mut redis::Connection, also: &[&str]) -> Result<u64> {
    let text: String = redis::cmd("INFO").arg("commandstats").query(server)?;
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        (BY_CLIENTS.contains(&name) || also.contains(&name)).then_some(())?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    Ok(text.lines().filter_map(calls).sum())
}
