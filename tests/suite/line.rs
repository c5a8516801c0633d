//! A wait in a store whose line becomes the lock, as stores of consensus have it: with the store in
//! memory of the store suite.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use rlock::clock::{self, Alarm};
use rlock::hold::Nodes;
use rlock::hold::holding::Holding;
use rlock::hold::wait::{Claimant, Waited, wait};
use rlock::lock::details::Details;
use rlock::lock::instant::Instant;
use rlock::lock::key::Key;
use rlock::lock::mode::Mode;
use rlock::lock::occupant::Occupant;
use rlock::lock::outer::OuterLocks;
use rlock::lock::queue::{Ticket, Waiter};
use rlock::lock::quorum::Quorum;
use rlock::lock::remains::Remains;
use rlock::lock::restart::RestartGuard;
use rlock::lock::schedule::{Schedule, ScheduleOptions};
use rlock::lock::token::Token;
use rlock::lock::waiting::{Notice, Reason, Unjoined, WaitOptions, Waiting};
use rlock::store::{Claim, Look, Store};
use testkit::store_suite::{Memory, within};
use uuid::Uuid;

/// A client, and what its claims were.
struct Client {
    name: usize,
    schedule: Schedule,
    /// The token of each claim so far, and whether it had a ticket.
    claims: Vec<(Token, bool)>,
    /// Whether a key of the last claim may be set.
    may_hold: bool,
}

impl Claimant for Client {
    type Outer = ();

    fn turn_to(&mut self, _lock: usize) {}

    fn claim(
        &mut self,
        ticket: Option<Ticket>,
        guarded: Option<Duration>,
        kept: Option<Token>,
    ) -> Claim {
        let token = kept.unwrap_or_else(Token::fresh);
        self.claims.push((token, ticket.is_some()));
        self.may_hold = true;
        Claim {
            token,
            details: Details {
                n: 1,
                ..Details::default()
            },
            fence_hint: 0,
            term: self.schedule.term(),
            guarded,
            ticket,
            index: 0,
            is_exact: false,
            outer: Vec::new(),
        }
    }

    fn undone(&mut self) {
        self.may_hold = false;
    }

    fn waiter(&mut self) -> Waiter {
        Waiter {
            id: Uuid::new_v4(),
            host: format!("host{}", self.name),
            pid: 1,
            since: 0,
            mode: Mode::Exclusive,
            user: String::new(),
            note: None,
        }
    }

    async fn join(
        &mut self,
        _token: Token,
        _holder: &Occupant,
    ) -> anyhow::Result<Result<(), Unjoined>> {
        Ok(Err(Unjoined::Refused))
    }

    fn say(&mut self, _notice: &Notice) {}

    fn redraw_at(&self) -> Instant {
        Instant::NEVER
    }

    fn redraw(&mut self, _waiting: &Waiting) {}

    fn random(&mut self) -> f64 {
        0.5
    }
}

/// The lock `job`.
struct Place(Memory);

impl Place {
    fn open(&self) -> Nodes {
        let key = Key::new("", "job").expect("a name");
        [Store::open(&self.0, &key)].into_iter().collect()
    }

    /// Number of clients that wait.
    async fn waiting(&self) -> usize {
        let look = Look {
            max_waiters: 10,
            ..Look::default()
        };
        let seen = self.open()[0].look(look).await.expect("an answer");
        seen.queue.len()
    }

    async fn until_waiting(&self, number: usize) {
        within("the waiters", async {
            while self.waiting().await != number {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Waits as long as `patience` for the lock, unless `cancelled` ends. Returns the client too.
    async fn take(
        &self,
        name: usize,
        patience: Option<Duration>,
        cancelled: impl Future<Output = ()>,
    ) -> (Result<Box<Holding>, Option<Reason>>, Client) {
        let schedule = Schedule::new(ScheduleOptions::new(Duration::from_secs(60)));
        let mut client = Client {
            name,
            schedule: schedule.expect("a schedule"),
            claims: Vec::new(),
            may_hold: false,
        };
        let options = WaitOptions {
            quorum: Quorum::of(1),
            wait: patience,
            schedule: client.schedule,
            restart_guard: RestartGuard::Off,
            outer: OuterLocks::default(),
            supersede: false,
            for_command: true,
        };
        let mut waiting = Waiting::new(options, client.waiter(), clock::now());
        let mut alarm = Alarm::new().expect("a timer");
        let mut cancelled = std::pin::pin!(cancelled);
        let mut cancelled = async || cancelled.as_mut().await;
        let nodes = self.open();
        let waited = wait(
            &nodes,
            &mut waiting,
            &mut client,
            &mut alarm,
            &mut cancelled,
        );
        let waited = within("the end of the wait", waited).await;
        let taken = match waited.expect("an end") {
            Waited::Held(holding) => Ok(holding),
            Waited::GaveUp(reason) => Err(Some(reason)),
            Waited::Joined(..) | Waited::Cancelled(()) => Err(None),
        };
        (taken, client)
    }
}

fn play(scenario: impl AsyncFnOnce(&Place)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(scenario(&Place(Memory::default())));
}

#[test]
fn each_waiter_enters_at_once_and_its_place_becomes_the_lock() {
    play(async |place| {
        let (first, _) = place.take(0, None, std::future::pending()).await;
        let first = first.expect("a free lock");
        let order = Rc::new(RefCell::new(Vec::new()));
        let waiter = async |name| {
            // They come one after another.
            place.until_waiting(name - 1).await;
            let (held, client) = place.take(name, None, std::future::pending()).await;
            let held = held.expect("its turn");
            order.borrow_mut().push((name, held.fence()));
            let token = client.claims[0].0;
            assert_eq!(
                client.claims,
                [(token, true); 2],
                "asked once, and at its turn"
            );
            assert!(client.may_hold, "its guard knows the token all along");
            held.release(&Remains::default()).await;
        };
        let release = async {
            place.until_waiting(3).await;
            first.release(&Remains::default()).await;
        };
        tokio::join!(release, join_all((1..=3).map(waiter)));
        let order = order.borrow();
        assert!(order.is_sorted(), "in the order of arrival: {order:?}");
        assert_eq!(order.len(), 3);
    });
}

#[test]
fn a_waiter_that_gives_up_or_is_interrupted_leaves_the_line() {
    play(async |place| {
        let (held, _) = place.take(0, None, std::future::pending()).await;
        let held = held.expect("a free lock");
        let patience = Some(Duration::from_millis(200));
        let (taken, client) = place.take(1, patience, std::future::pending()).await;
        assert!(matches!(taken, Err(Some(Reason::Blocked(_)))));
        assert!(!client.may_hold);
        let interrupted = place.until_waiting(1);
        let (taken, client) = place.take(2, None, interrupted).await;
        assert!(taken.is_err() && !client.may_hold);
        assert_eq!(place.waiting().await, 0);
        held.release(&Remains::default()).await;
    });
}

#[test]
fn a_client_that_does_not_wait_enters_no_line() {
    play(async |place| {
        let (held, _) = place.take(0, None, std::future::pending()).await;
        let held = held.expect("a free lock");
        let (taken, client) = place
            .take(1, Some(Duration::ZERO), std::future::pending())
            .await;
        assert!(taken.is_err() && client.claims.iter().all(|(_, has_ticket)| !has_ticket));
        assert_eq!(place.waiting().await, 0);
        held.release(&Remains::default()).await;
        let (taken, _) = place
            .take(2, Some(Duration::ZERO), std::future::pending())
            .await;
        assert!(taken.is_ok());
    });
}
