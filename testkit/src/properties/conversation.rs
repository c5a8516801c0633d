//! A conversation with a store: a lock is taken, kept, looked at, taken away and released, over
//! connections on which a server in memory says what was written down.

use std::sync::Arc;
use std::time::Duration;

use rlock::clock;
use rlock::lock::blocker::Blocker;
use rlock::lock::details::Details;
use rlock::lock::fence::Fence;
use rlock::lock::instant::Instant;
use rlock::lock::key::Key;
use rlock::lock::mode::Mode;
use rlock::lock::queue::{Ticket, Waiter};
use rlock::lock::schedule::{Schedule, ScheduleOptions, Term};
use rlock::lock::token::Token;
use rlock::store::net::dial::HostDial;
use rlock::store::net::dial::Stream;
use rlock::store::{Claim, Look, Pending, Release, ReleaseReply, Renewal, Store, TakeAway, Vote};
use uuid::Uuid;

use super::is_fit_to_be_shown;
use super::replies::{LONGEST_OCCUPANT, a_fault, a_sight};
use crate::stream::Scripted;

/// Separates the pieces that the server sends, one for each write.
const PAUSE: &[u8] = b"\xfe\xfe";

/// The token of the run, which the names of the corpus have.
const TOKEN: &str = "6c0f4a5e-9d0f-4c5b-8e86-1f0c7a4f3c2d";

/// The lease.
const TTL: Duration = Duration::from_secs(10);

/// Longest time of an exchange, of the kernel's clock.
pub(super) const LIMIT: Duration = Duration::from_millis(20);

/// Time within which all exchanges are over, on the busiest machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The first byte of the input has the bytes that one read returns, whether a process keeps the lock,
/// whether it waits, and whether the server speaks first. `most`: time after which an exchange is left;
/// that of a store which waits for late answers does not end by itself.
pub(super) fn hold(input: &[u8], most: Duration, open: impl FnOnce(HostDial) -> Box<dyn Store>) {
    let Some((how, script)) = input.split_first() else {
        return;
    };
    let step = usize::from(how & 0x1f) * 7 + 1;
    let (is_kept, waits, greets) = (how & 0x20 == 0, how & 0x40 != 0, how & 0x80 != 0);
    let pieces = pieces(script);
    let dial: HostDial = Arc::new(move |_, _| {
        let server = Scripted::new(pieces.clone(), step, greets);
        Box::pin(async move { Ok(Box::new(server) as Box<dyn Stream>) })
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let store = open(dial);
        let conversation = conversation(&*store, claim(is_kept, waits), most);
        let done = tokio::time::timeout(PATIENCE, conversation).await;
        done.expect("an exchange that ends");
    });
}

/// Returns the pieces of a script.
fn pieces(mut script: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some(at) = script.windows(PAUSE.len()).position(|some| some == PAUSE) {
        pieces.push(script[..at].to_vec());
        script = &script[at + PAUSE.len()..];
    }
    pieces.push(script.to_vec());
    pieces
}

fn term() -> Term {
    let schedule = Schedule::new(ScheduleOptions::new(TTL));
    schedule.expect("a schedule").term()
}

fn claim(is_kept: bool, waits: bool) -> Claim {
    let waiter = Waiter {
        id: Uuid::nil(),
        host: "web1".to_owned(),
        pid: 1,
        since: 1,
        mode: Mode::Exclusive,
        user: "deploy".to_owned(),
        note: None,
    };
    Claim {
        token: TOKEN.parse().expect("a token"),
        details: Details {
            n: 1,
            kept: is_kept,
            ..Details::default()
        },
        fence_hint: 1,
        term: term(),
        guarded: None,
        ticket: waits.then_some(Ticket {
            waiter,
            number: 1,
            supersedes: None,
        }),
        index: 0,
        is_exact: false,
        outer: Vec::new(),
    }
}

async fn conversation(store: &dyn Store, claim: Claim, most: Duration) {
    let node = store.open(&Key::new("", "job").expect("a name"));
    let mut fence = Fence::new(1).expect("a fence");
    match in_time(most, node.acquire(&claim))
        .await
        .map(|answer| answer.vote)
    {
        Some(Vote::Granted {
            until, fence: told, ..
        }) => {
            is_a_lease(until);
            fence = told;
        }
        Some(Vote::Blocked(Blocker::Occupant(occupant))) => {
            is_fit_to_be_shown(&occupant.told(u64::MAX), LONGEST_OCCUPANT);
            is_fit_to_be_shown(&occupant.named(), LONGEST_OCCUPANT);
        }
        Some(Vote::Blocked(_) | Vote::Restarted) | None => {}
        Some(Vote::Failed(fault)) => a_fault(&fault),
    }
    let token = claim.token;
    node.queue().expect("a line").listen(token);
    match in_time(most, node.keep(&claim.renewal(fence))).await {
        Some(Renewal::Renewed(until, _) | Renewal::Healed(until, _)) => is_a_lease(until),
        Some(Renewal::Broken(until, by)) => {
            until.into_iter().for_each(is_a_lease);
            is_fit_to_be_shown(&by.to_string(), LONGEST_OCCUPANT);
        }
        Some(Renewal::NotOurs(..)) | None => {}
        Some(Renewal::Failed(fault)) => a_fault(&fault),
    }
    let look = Look {
        max_waiters: 10,
        token: None,
    };
    match in_time(most, node.look(look)).await {
        Some(Ok(seen)) => a_sight(&seen),
        Some(Err(fault)) => a_fault(&fault),
        None => {}
    }
    let other = Token::fresh();
    for how in [
        TakeAway::Tombstone(other, "x".to_owned()),
        TakeAway::Delete(token, 1, None),
    ] {
        if let Some(Err(fault)) = in_time(most, node.take_away(how)).await {
            a_fault(&fault);
        }
    }
    let release = Release::of(token);
    for _ in 0..2 {
        let reply = in_time(most, node.release(&release)).await;
        if let Some(ReleaseReply::Failed(fault)) = reply {
            a_fault(&fault);
        }
    }
}

async fn in_time<T>(most: Duration, exchange: Pending<T>) -> Option<T> {
    tokio::time::timeout(most, exchange).await.ok()
}

/// Checks that a lease ends within the TTL.
fn is_a_lease(until: Instant) {
    assert!(until <= clock::now() + TTL, "a lease longer than the TTL");
}
