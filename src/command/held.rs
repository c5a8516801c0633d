//! `rlock check`, `renew` and `release`: work on a lock that the caller claims by its token.

use std::time::Duration;

use super::{block_on, open, same_list, unanswered, warn_of_refusals};
use crate::cli::subcommands::{CheckArgs, HeldArgs, RenewArgs};
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::hold::Nodes;
use crate::hold::observe::{Observations, observe};
use crate::hold::outside::{self, Count};
use crate::lock::census::Census;
use crate::lock::fence::Fence;
use crate::lock::messages::{Keep, Look};
use crate::lock::occupant::Occupant;
use crate::lock::remains::RemainsOptions;
use crate::lock::schedule::{DRIFT, LONGEST_TTL, Schedule, ScheduleOptions};
use crate::report::{Event, failures};
use crate::settings::{HeldLock, Sources, schedule};
use crate::store::Feature;
use crate::text::duration;

/// Time for a release that waits for no reply to be written.
const WRITING: Duration = Duration::from_millis(20);

/// A lock that the caller claims, and its nodes.
struct Claimed<'a> {
    lock: &'a HeldLock,
    nodes: Nodes,
}

/// Tells whether the caller still holds the lock (Chubby's `CheckSequencer`, Burrows 2006, section
/// 2.4).
pub fn check(args: &CheckArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let lock = HeldLock::new(&args.held, sources)?;
    if sources.typed("fence") {
        lock.reach.store.needs(Feature::Parking, "--fence")?;
    }
    if args.at_least.is_some() {
        lock.reach.store.needs(Feature::TimeLeft, "--for")?;
    }
    // On this machine alone all locks share one counter, and the fence in the environment came with
    // the token.
    let has_own_fence = lock.reach.store.has(Feature::Parking);
    let fence = args.fence.filter(|_| has_own_fence);
    let at_least = args.at_least.unwrap_or_default();
    match block_on(async { Ok(Claimed::open(&lock)?.check(fence, at_least).await) })? {
        Err(failure) if failure.outcome == Outcome::No && args.held.output.quiet => Ok(Outcome::No),
        answer => Ok(answer?),
    }
}

/// Compare and extend, on a majority.
pub fn renew(args: &RenewArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let mut lock = HeldLock::new(&args.held, sources)?;
    lock.reach.store.needs(Feature::Parking, "renew")?;
    let node_timeout = lock.reach.copied(args.held.nodes.node_timeout, args.copies);
    let fit = |ttl: Duration| {
        let options = ScheduleOptions {
            node_timeout,
            ..ScheduleOptions::new(ttl)
        };
        schedule(options).map_err(|failure| failure.of(&lock.key))
    };
    // An invalid TTL is refused before any node is asked.
    args.ttl.map(fit).transpose()?;
    block_on(async { Ok(Claimed::open(&lock)?.renew(args, fit).await?) })
}

/// Compare and delete.
pub fn release(args: &HeldArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let lock = HeldLock::new(args, sources)?;
    lock.reach.store.needs(Feature::Parking, "release")?;
    block_on(async { Ok(Claimed::open(&lock)?.release().await?) })
}

impl<'a> Claimed<'a> {
    fn open(lock: &'a HeldLock) -> Result<Self, Failure> {
        Ok(Self {
            lock,
            nodes: open(&lock.key, &lock.reach)?,
        })
    }

    /// Asks the nodes until they are `certain`. A lock whose holder uses another number of nodes is
    /// refused: a majority of ours may be a minority of the holder's.
    async fn observe(&self, certain: impl Fn(&Census) -> bool) -> Result<Observations, Failure> {
        let HeldLock {
            key, token, reach, ..
        } = self.lock;
        let looks = observe(&self.nodes, reach.limit, Look::of(*token), certain).await;
        same_list(key, &self.nodes, &looks)?;
        Ok(looks)
    }

    fn tells_whose(&self) -> impl Fn(&Census) -> bool {
        let token = self.lock.token;
        move |census| census.tells_whose(token)
    }

    /// Returns the failure of a token that has no majority. It names the holder.
    fn not_the_holder(&self, looks: &Observations) -> Failure {
        let census = looks.census();
        match census.is_held_by(self.lock.token) {
            None => unanswered(&self.lock.key, self.nodes.quorum(), &looks.faults),
            Some(_) => failures::not_the_holder(&census).of(&self.lock.key),
        }
    }

    /// Returns the token's entry, which a majority has.
    fn held<'l>(&self, looks: &'l Observations) -> Result<&'l Occupant, Failure> {
        let (census, token) = (looks.census(), self.lock.token);
        let entry = census
            .entry(token)
            .filter(|_| census.is_held_by(token) == Some(true));
        entry.ok_or_else(|| self.not_the_holder(looks))
    }

    /// Reports `event` if a majority did what was asked. If a majority refused it, the lock was
    /// lost a moment ago.
    async fn conclude(&self, count: &Count, event: &Event<'_>) -> Result<Outcome, Failure> {
        let HeldLock {
            key,
            token,
            report,
            reach,
            ..
        } = self.lock;
        match count.is_majority(self.nodes.quorum()) {
            Some(true) => {
                warn_of_refusals(report, &count.faults);
                report.say(event);
                Ok(Outcome::Done)
            }
            Some(false) => {
                let looks = observe(
                    &self.nodes,
                    reach.limit,
                    Look::of(*token),
                    self.tells_whose(),
                )
                .await;
                Err(self.not_the_holder(&looks))
            }
            None => Err(unanswered(key, self.nodes.quorum(), &count.faults)),
        }
    }

    /// Refuses to change a lock that an outer `rlock run` renews. Its command would go on without
    /// the lock, or with a lease that its holder does not know.
    ///
    /// The nodes confirm what the variables claim, and name the holder. A lock that `acquire` took
    /// is the caller's. If too few nodes answer, nothing is changed: *unknown is not no*.
    fn refuse_inside(&self, looks: &Observations) -> Result<(), Failure> {
        if !self.lock.is_kept {
            return Ok(());
        }
        match self.held(looks)?.holder() {
            Some((_, details)) if !details.kept => Ok(()),
            holder => Err(self.kept_by_run(holder.and_then(|(_, details)| details.pid))),
        }
    }

    /// Refuses to free the lock of a run, whose command would go on beside the next one's.
    ///
    /// A tombstone is refused too, until the command is dead. What a run has left at a minority is
    /// freed, since no client holds the lock by it.
    fn refuse_run(&self, looks: &Observations) -> Result<(), Failure> {
        match looks.census().kept(self.lock.token) {
            Some(details) => Err(self.kept_by_run(details.pid)),
            None => Ok(()),
        }
    }

    fn kept_by_run(&self, pid: Option<u32>) -> Failure {
        let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        self.usage(format!(
            "rlock run{pid} holds this lock, and renews and releases it itself; nothing was changed; rlock break ends it"
        ))
    }

    async fn check(&self, fence: Option<Fence>, at_least: Duration) -> Result<Outcome, Failure> {
        let HeldLock {
            key, token, report, ..
        } = self.lock;
        let certain = |census: &Census| match census.is_held_by(*token) {
            Some(true) => self.unmet(census, fence, at_least).is_none(),
            _ => census.tells_whose(*token),
        };
        let looks = self.observe(certain).await?;
        self.held(&looks)?;
        if let Some(why) = self.unmet(&looks.census(), fence, at_least) {
            return Err(Failure::about(
                key,
                Outcome::No,
                format!("the lock is this token's, but {why}"),
            ));
        }
        warn_of_refusals(report, &looks.faults);
        report.say(&Event::Checked);
        Ok(Outcome::Done)
    }

    /// Tells the condition that a lock of the caller's does not meet.
    fn unmet(&self, census: &Census, fence: Option<Fence>, at_least: Duration) -> Option<String> {
        let token = self.lock.token;
        if let Some(asked) = fence.filter(|fence| !census.has_fence(token, *fence)) {
            return Some(match census.fence(token) {
                Some(fence) => format!("its fence is {fence}, not {asked}"),
                None => format!("too few nodes know its fence to say that it is {asked}"),
            });
        }
        // The part of the lease that is certainly left.
        let left = census
            .valid_until(token, DRIFT)
            .map_or(Duration::ZERO, |end| end.since(clock::now()));
        (left < at_least).then(|| {
            let (left, asked) = (duration::show_rounded(left), duration::show(at_least));
            format!("only {left} are certainly left of it, not {asked}")
        })
    }

    async fn renew(
        &self,
        args: &RenewArgs,
        fit: impl Fn(Duration) -> Result<Schedule, Failure>,
    ) -> Result<Outcome, Failure> {
        let largest = self.lock.reach.store.largest_fence();
        if let Some(fence) = args.fence.filter(|fence| fence.get() > largest) {
            return Err(self.usage(format!(
                "--fence {fence} is above {largest}, the largest here"
            )));
        }
        let looks = self.observe(self.tells_whose()).await?;
        self.refuse_inside(&looks)?;
        let entry = self.held(&looks)?;
        let delay = entry.holder().map_or(0, |(_, details)| details.delay);
        let lock_delay = Duration::from_millis(delay).min(LONGEST_TTL);
        let taken = entry
            .lease_length()
            .map(|taken| taken.saturating_sub(lock_delay));
        let schedule = fit(self.ttl(args.ttl, taken)?)?.outlasted(RemainsOptions {
            lock_delay,
            ..RemainsOptions::default()
        });
        let request = Keep {
            token: self.lock.token,
            fence: self.known_fence(args.fence, &looks)?,
            term: schedule.term(),
            index: entry.seat.index,
            mode: entry.mode().unwrap_or_default(),
            // A server without the script then tells its counter, without which nothing is set again.
            raises_counter: true,
            heal: None,
        };
        // Without the lock's own fence nothing is set: a node would take a lower counter for it.
        let has_fence = looks.census().fence(self.lock.token).is_some();
        let healing = entry.holder().filter(|_| has_fence);
        let healing = healing.map(|(_, details)| details.clone());
        let (count, end) =
            outside::renew(&self.nodes, &request, healing, schedule.node_timeout()).await;
        let left = end.map_or(Duration::ZERO, |end| end.since(clock::now()));
        self.conclude(&count, &Event::Renewed { left }).await
    }

    /// Returns the TTL that was asked for, else the one that the lock was `taken` with.
    ///
    /// The restart guard of other clients relies on the one in the lock's value (docs/redis.md,
    /// Restarted servers). So with several nodes no renewal may make it longer.
    fn ttl(&self, asked: Option<Duration>, taken: Option<Duration>) -> Result<Duration, Failure> {
        match (asked, taken) {
            (Some(asked), Some(taken)) if self.nodes.len() > 1 && asked > taken => {
                let taken = duration::show(taken);
                let why = "that the lock was taken for, which other clients rely on";
                Err(self.usage(format!("--ttl is longer than the {taken} {why}")))
            }
            (Some(ttl), _) | (None, Some(ttl)) => Ok(ttl),
            (None, None) => Err(self
                .usage("the lock does not say how long it was taken for; give --ttl".to_owned())),
        }
    }

    /// Returns the fence to carry: the one that the nodes know, or the least one, which lowers no
    /// counter. One above all that the nodes know is a typing error, and would stay with them.
    fn known_fence(&self, given: Option<Fence>, looks: &Observations) -> Result<Fence, Failure> {
        let seen = looks
            .of_nodes
            .iter()
            .flatten()
            .map(|observation| observation.fence)
            .collect::<Option<Vec<_>>>();
        match (given, seen.and_then(|all| all.into_iter().max())) {
            (Some(given), Some(highest)) if given > highest => Err(self.usage(format!(
                "--fence {given} is above the last fence, {highest}"
            ))),
            (Some(given), _) => Ok(given),
            (None, _) => Ok(looks
                .census()
                .fence(self.lock.token)
                .unwrap_or(Fence::FIRST)),
        }
    }

    fn usage(&self, why: String) -> Failure {
        Failure::about(&self.lock.key, Outcome::Usage, why)
    }

    async fn release(&self) -> Result<Outcome, Failure> {
        let HeldLock { token, reach, .. } = self.lock;
        // Observed first: with another list of nodes, only some of the lock's keys would be
        // deleted.
        let looks = self.observe(self.tells_whose()).await?;
        self.refuse_inside(&looks)?;
        self.refuse_run(&looks)?;
        let census = looks.census();
        if census.is_held_by(*token).is_none() {
            // A node that hangs executes it when it resumes. Another node timeout is not spent on
            // its reply. Where no node has told that the lock is no run's, nothing is changed.
            if census.entry(*token).is_some() {
                outside::release(&self.nodes, *token, None, WRITING).await;
            }
            return Err(self.not_the_holder(&looks));
        }
        let count = outside::release(&self.nodes, *token, None, reach.limit).await;
        self.conclude(&count, &Event::Released).await
    }
}
