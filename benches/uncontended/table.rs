//! The times as a table.

use testkit::measure::contender::Times;
use testkit::measure::table::{aligned, millis};

const HEAD: [&str; 6] = [
    "contender",
    "median",
    "p10",
    "p90",
    "vs floor.c",
    "vs flock",
];

/// One line a contender. Ratios are of medians, and rlock's against the peer that does the same
/// work: on Redis `floor.c`, with flock for information; on this machine flock.
pub(crate) fn of_times(times: &[Times]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(times.iter().map(|own| row(own, times)));
    aligned(&rows)
}

fn row(own: &Times, all: &[Times]) -> [String; 6] {
    let against = |peer: &str, wanted: bool| {
        let peer = all
            .iter()
            .find(|times| times.name.starts_with(peer))
            .filter(|_| wanted);
        peer.map_or(String::new(), |peer| {
            format!(
                "{:.2}",
                own.median().as_secs_f64() / peer.median().as_secs_f64()
            )
        })
    };
    let (on_redis, is_rlock) = (own.name.ends_with("redis"), own.name.starts_with("rlock"));
    [
        own.name.to_owned(),
        millis(own.median()),
        millis(own.percentile(10)),
        millis(own.percentile(90)),
        against("floor.c", is_rlock && on_redis),
        against("flock", is_rlock),
    ]
}
