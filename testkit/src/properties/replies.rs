//! Replies of a server: a connection is set up over a scripted stream in memory, requests are sent,
//! and every kind of reply is looked for in what comes back.
//!
//! Time is virtual: where nothing more would happen, it jumps to the end of the exchange.

use std::time::Duration;

use redis::Value;
use rlock::lock::blocker::Blocker;
use rlock::lock::blocker::Reservation;
use rlock::lock::instant::Instant;
use rlock::lock::messages::Observation;
use rlock::store::net::hosts::Endpoint;
use rlock::store::redis::connect::Access;
use rlock::store::redis::connection::{Connection, REPLY_LIMIT};
use rlock::store::redis::listeners::{Listeners, Words};
use rlock::store::redis::reply;
use rlock::store::redis::scan::page;
use rlock::store::redis::state::{Effect, LockId};
use rlock::store::{Answer, Fault, Renewal, ServerInfo, Vote};

use super::is_fit_to_be_shown;
use crate::stream::Scripted;

/// Separates the pieces that the server sends, one for each request. It is no byte of UTF-8.
const PAUSE: u8 = 0xff;

/// Longest time of an exchange.
const LIMIT: Duration = Duration::from_secs(1);

/// Number of messages to a waiter that are kept.
const WAKES: usize = 16;

/// The channel of a waiter.
const CHANNEL: &str = "rlock:wake:x";

/// Length of the longest message about a server, in bytes.
const LONGEST_MESSAGE: usize = 3000;

/// Length of the longest line about a lock: its value has a KiB, of which each byte may be shown as
/// several.
pub(super) const LONGEST_OCCUPANT: usize = 12_000;

/// The first byte of the input has the options: RESP3 or not, the bytes that one read returns, a
/// greeting or none.
pub fn hold(input: &[u8]) {
    let Some((how, script)) = input.split_first() else {
        return;
    };
    let resp3 = how & 1 == 1;
    let step = usize::from(how >> 1 & 0x1f) * 7 + 1;
    let pieces = script.split(|byte| *byte == PAUSE).map(<[u8]>::to_vec);
    let server = Scripted::new(pieces, step, how & 0x80 != 0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(conversation(server, resp3));
}

async fn conversation(server: Scripted, resp3: bool) {
    let endpoint = Endpoint::Tcp {
        host: "h".to_owned(),
        port: 1,
        tls: false,
    };
    let access = Access::from(endpoint);
    let (listeners, wakes, lock) = (Listeners::default(), Words::default(), LockId(0));
    listeners.add(CHANNEL, &wakes);
    let link = match in_time(Connection::over(
        &access,
        server,
        REPLY_LIMIT,
        resp3.then(|| listeners.hearing()),
    ))
    .await
    {
        Ok(link) => link,
        Err(fault) => return a_fault(&fault),
    };
    if resp3 {
        link.subscribe(CHANNEL).await;
    }
    let mut command = redis::cmd("EVAL");
    command.arg("return 1").arg(0);
    // Two at once and then one after the other, as requests overlap and follow each other.
    let ask = || in_time(link.send(&command, Effect::None));
    let (first, second) =
        futures_util::future::join(in_time(link.send(&command, Effect::Sets(lock))), ask()).await;
    let has_answered = first
        .as_ref()
        .is_ok_and(|value| !matches!(value, Value::ServerError(_)));
    assert!(
        !(has_answered && link.may_set(lock)),
        "it has been answered whether the key is set"
    );
    for answer in [first, second, ask().await, ask().await] {
        match answer {
            Ok(value) => understood(&value),
            Err(fault) => a_fault(&fault),
        }
    }
    let mut heard = 0;
    while wakes.try_next().is_some() {
        heard += 1;
    }
    assert!(heard <= WAKES && (resp3 || heard == 0));
}

async fn in_time<T>(exchange: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(LIMIT, exchange)
        .await
        .unwrap_or_else(|_| Err(Fault::timeout(LIMIT)))
}

/// Reads `value` as a reply to each kind of request.
fn understood(value: &Value) {
    let now = Instant::from_nanos(1 << 50);
    match reply::answer(value, now) {
        Ok(Answer {
            vote,
            server,
            position,
        }) => {
            match vote {
                Vote::Granted { until, .. } => assert_eq!(until, now),
                Vote::Blocked(Blocker::Occupant(occupant)) => {
                    is_fit_to_be_shown(&occupant.told(u64::MAX), LONGEST_OCCUPANT);
                    is_fit_to_be_shown(&occupant.named(), LONGEST_OCCUPANT);
                }
                Vote::Blocked(Blocker::Reserved(reservation)) => {
                    is_fit_to_be_shown(&reservation.to_string(), LONGEST_MESSAGE);
                }
                Vote::Blocked(Blocker::Newer(newer)) => {
                    is_fit_to_be_shown(&Blocker::Newer(newer).told(0), LONGEST_MESSAGE);
                }
                Vote::Restarted => {}
                Vote::Failed(fault) => a_fault(&fault),
            }
            if let ServerInfo::Forbidden(why) = server {
                is_fit_to_be_shown(&why, LONGEST_MESSAGE);
            }
            if let Some(why) = position.and_then(|position| position.refused) {
                is_fit_to_be_shown(&why, LONGEST_MESSAGE);
            }
        }
        Err(fault) => a_fault(&fault),
    }
    for keeps in [false, true] {
        match reply::renewal(value, now, keeps) {
            Renewal::Renewed(until, _) | Renewal::Healed(until, _) => assert_eq!(until, now),
            Renewal::Broken(until, by) => {
                assert_eq!(until, keeps.then_some(now));
                is_fit_to_be_shown(&by.to_string(), LONGEST_OCCUPANT);
            }
            Renewal::NotOurs(..) => {}
            Renewal::Failed(fault) => a_fault(&fault),
        }
    }
    for good in ["released", "forced"] {
        if let Err(fault) = reply::standing(value, good) {
            a_fault(&fault);
        }
    }
    match reply::observation(value, now) {
        Ok(observation) => a_sight(&observation),
        Err(fault) => a_fault(&fault),
    }
    if let Some((cursor, _)) = page(value.clone()) {
        assert!(cursor.bytes().all(|byte| byte.is_ascii_digit()));
        is_fit_to_be_shown(&cursor, 20);
    }
}

pub(super) fn a_sight(observation: &Observation) {
    let Observation {
        holders,
        foreign,
        queue,
        asked,
        ..
    } = observation;
    for occupant in holders {
        is_fit_to_be_shown(&occupant.told(u64::MAX), LONGEST_OCCUPANT);
    }
    let has_foreign = holders.iter().any(|occupant| occupant.holder().is_none());
    assert_eq!(
        has_foreign,
        foreign.is_some(),
        "a lock of ours is never cleared as a foreign one"
    );
    for ticket in queue {
        let next = Reservation {
            waiter: Some(ticket.waiter.clone()),
            left: Duration::ZERO,
        };
        is_fit_to_be_shown(&next.to_string(), LONGEST_MESSAGE);
    }
    for drift in [0.0, 0.01, 0.5] {
        assert!(
            holders
                .iter()
                .all(|occupant| observation.valid_until(occupant, drift) >= *asked)
        );
    }
}

pub(super) fn a_fault(fault: &Fault) {
    is_fit_to_be_shown(&fault.to_string(), LONGEST_MESSAGE);
}
