//! The store suite: what each store of locks must do, whatever it is made of.
//!
//! 1. A [`World`] opens a store as many processes would, and hurts it. A second store only adds a
//!    world.
//! 2. Each scenario of `scenarios/` is written once, over `Store` and `Node`, and knows no store.
//! 3. [`store_suite!`](crate::store_suite) makes a `#[test]` of each scenario in one world. A world
//!    says which [`Ability`] its store lacks: the test is still in the list, and prints what it
//!    skips.

mod client;
mod etcd;
mod local;
mod memory;
mod redis;
pub mod scenarios;
mod sql;
mod wire;
mod zookeeper;

use std::any::Any;
use std::time::Duration;

use rlock::lock::details::Details;
use rlock::lock::key::Key;
use rlock::lock::mode::Mode;
use rlock::store::Store;
use uuid::Uuid;

pub use client::{Client, within};
use client::{IMPATIENT, PATIENT};
pub use etcd::EtcdWorld;
pub use local::Local;
pub use memory::Memory;
pub use redis::{Cluster, Redis, Sentinel};
pub use sql::{MariaDbWorld, PostgresWorld};
pub use wire::Wire;
pub use zookeeper::ZooKeeper;

use crate::skipped;

/// Makes a `#[test]` of each scenario in a [`World`](crate::store_suite::World).
#[macro_export]
macro_rules! store_suite {
    ($world:ty) => {
        $crate::store_suite!($world;
            exclusion: a_holder_keeps_all_others_out
            exclusion: of_clients_that_come_at_once_one_has_the_lock
            exclusion: a_release_by_another_token_frees_nothing
            exclusion: a_release_that_comes_again_frees_nothing
            exclusion: each_fence_is_above_the_last
            exclusion: locks_of_a_store_are_independent
            exclusion: a_foreign_value_is_respected
            exclusion: a_look_shows_the_holder_and_changes_nothing
            kinds: readers_share_the_lock_and_keep_writers_out
            kinds: each_slot_has_one_holder
            kinds: kinds_exclude_each_other
            kinds: a_look_shows_each_member
            kinds: each_member_ends_by_itself
            leases: a_grant_ends_by_itself_and_not_early
            leases: a_renewal_extends_the_grant
            leases: a_renewal_by_another_token_extends_nothing
            leases: a_holder_is_told_that_its_lock_is_gone
            leases: a_holder_is_told_that_another_client_has_its_lock
            leases: a_lock_is_set_again_where_nothing_is
            leases: a_lock_is_not_set_again_over_another_clients
            leases: a_lock_is_not_set_again_after_another_client_has_had_it
            waiting: a_release_wakes_the_next_waiter
            waiting: waiters_have_their_turns_in_the_order_in_which_they_came
            waiting: a_waiter_that_leaves_is_passed_over
            waiting: a_waiter_that_is_gone_is_passed_over
            waiting: readers_that_are_next_are_woken_together
            waiting: a_look_shows_the_waiters_in_their_order
            waiting: a_later_waiter_supersedes_an_earlier_one
            breaking: a_tombstone_keeps_the_lock_until_its_holder_deletes_it
            breaking: a_lock_that_is_deleted_passes_on_and_its_holder_is_told
            breaking: a_lock_is_taken_from_the_holder_that_is_named_and_no_other
            breaking: a_foreign_value_is_deleted_while_it_is_the_one_that_was_seen
            records: a_run_is_recorded_with_its_release
            records: a_success_outlasts_later_runs_and_is_forgotten_by_its_token
            records: a_record_is_written_over_a_lower_fence_only
            records: a_lock_that_is_taken_away_is_recorded_as_broken
            servers: a_release_undoes_a_grant_whose_reply_was_lost
            servers: a_release_undoes_what_a_server_that_hung_grants_late
            servers: what_is_written_runs_without_its_caller
            servers: a_holder_renews_once_a_server_that_hung_goes_on
            servers: a_holder_survives_a_restart_that_keeps_its_lock
            servers: a_lock_is_set_again_at_a_server_that_returns_empty
            servers: a_server_that_has_just_started_grants_no_careful_client
        );
    };
    ($world:ty; $($group:ident: $scenario:ident)*) => {
        $(
            #[test]
            fn $scenario() {
                $crate::store_suite::run::<$world>(async |place| $crate::store_suite::scenarios::$group::$scenario(place).await);
            }
        )*
    };
}

/// A part of what stores do that a store may lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ability {
    /// A grant ends by itself unless it is renewed.
    Leases,
    /// Waiters have places in a line, which is shown, and are told when it is their turn.
    Line,
    /// A later waiter ends the earlier ones.
    Superseding,
    /// A lock is set again where nothing is.
    Healing,
    /// A lock is taken from its holder.
    TakingAway,
    /// The last run is recorded.
    Records,
    /// A lock has holders that share it.
    Shared,
    /// A lock has a number of slots.
    Slots,
    /// A renewal may ask for a longer lease than the grant has.
    LongerLeases,
    /// A look tells how long a lease lasts.
    TimeLeft,
    /// A server tells for how long it has forgotten nothing.
    Uptime,
    /// There are servers, which hang and restart, and a network.
    Servers,
}

/// A store that a test can open and hurt.
pub trait World {
    /// Lets `test` have the world for itself. It is without locks.
    fn with(test: impl FnOnce(&Self))
    where
        Self: Sized;

    /// Opens the store as a process would: connections of its own, which lead over `wire`. Each
    /// exchange takes `limit` at most.
    fn open(&self, wire: &Wire, limit: Duration) -> Box<dyn Store>;

    /// Returns why the store lacks `ability`, or `None` if it has it.
    fn lacks(&self, ability: Ability) -> Option<&'static str>;

    /// Whether waiters have their places by when they came to the store, and not by their tickets.
    fn orders_by_arrival(&self) -> bool {
        false
    }

    /// Whether a look tells since when a lock is held by the store's clock, and not by the holder's
    /// word.
    fn dates_grants(&self) -> bool {
        false
    }

    /// Deletes the lock by hand.
    fn delete(&self, key: &Key);

    /// Puts at the lock's place what is not rlock's. It stays until it is deleted by hand or what
    /// is returned is dropped.
    fn occupy(&self, key: &Key) -> Box<dyn Any>;

    /// Stops the server that has the lock.
    fn hang(&self, _key: &Key) {}

    /// Continues it.
    fn resume(&self, _key: &Key) {}

    /// Kills the server that has the lock, and starts it again, with its data or without any.
    fn restart(&self, _key: &Key, _data: Data) {}
}

/// Data of a server that comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// All that it had.
    Kept,
    /// Nothing.
    Lost,
}

/// A lock of a world's store, which one scenario has for itself.
pub struct Place<'a> {
    world: &'a dyn World,
    key: Key,
}

impl Place<'_> {
    /// Returns a client that wants the lock for itself.
    pub fn client(&self) -> Client {
        self.client_of(Mode::Exclusive)
    }

    /// Returns a client that wants the lock in this way.
    pub fn client_of(&self, mode: Mode) -> Client {
        Client::new(self.world, &self.key, mode, PATIENT)
    }

    /// Returns a client that waits for no answer for long.
    pub fn impatient_client(&self) -> Client {
        Client::new(self.world, &self.key, Mode::Exclusive, IMPATIENT)
    }

    /// Returns another lock of the same store.
    pub fn another(&self) -> Self {
        Self {
            world: self.world,
            key: fresh_key(),
        }
    }

    /// Whether the store lacks `ability`. If so, prints why.
    pub fn lacks(&self, ability: Ability) -> bool {
        self.world
            .lacks(ability)
            .inspect(|why| skipped(why))
            .is_some()
    }

    /// Returns what a look tells of a holder with these details.
    pub fn told(&self, details: &Details, seen: &Details) -> Details {
        let since = if self.world.dates_grants() {
            seen.since
        } else {
            details.since
        };
        Details {
            since,
            ..details.clone()
        }
    }

    /// Returns waiters in the order in which they come to the store, to have their turns in the
    /// order of the list.
    pub fn arrivals<'w>(&self, mut waiters: Vec<&'w mut Client>) -> Vec<&'w mut Client> {
        if !self.world.orders_by_arrival() {
            waiters.reverse();
        }
        waiters
    }

    /// Deletes the lock by hand.
    pub fn delete(&self) {
        self.world.delete(&self.key);
    }

    /// Puts at the lock's place what is not rlock's.
    pub fn occupy(&self) -> Box<dyn Any> {
        self.world.occupy(&self.key)
    }

    /// Stops the server that has the lock.
    pub fn hang(&self) {
        self.world.hang(&self.key);
    }

    /// Continues it.
    pub fn resume(&self) {
        self.world.resume(&self.key);
    }

    /// Kills the server that has the lock, and starts it again.
    pub fn restart(&self, data: Data) {
        self.world.restart(&self.key, data);
    }
}

/// A name that no other scenario has.
fn fresh_key() -> Key {
    Key::new("", &format!("job-{}", Uuid::new_v4().simple())).expect("a name")
}

/// Plays `scenario` in a world.
pub fn run<W: World>(scenario: impl AsyncFnOnce(&Place<'_>)) {
    W::with(|world| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(scenario(&Place {
            world,
            key: fresh_key(),
        }));
        runtime.shutdown_background();
    });
}
