//! `rlock break`: takes a lock away from the holder that was shown, and from no other.
//!
//! The lock of a live `run` is not deleted: a tombstone keeps other clients out until the holder
//! has stopped its command.

use std::time::{Duration, SystemTime};

use super::caller::Caller;
use super::{block_on, open, same_list, unanswered, warn_of_refusals};
use crate::cli::subcommands::BreakArgs;
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::hold::Nodes;
use crate::hold::observe::{Observations, observe};
use crate::hold::outside;
use crate::lock::census::Census;
use crate::lock::details::{Breaker, Details, LONGEST_REASON, fits};
use crate::lock::fault::Faults;
use crate::lock::key::Key;
use crate::lock::last::{Entry, Note, Run};
use crate::lock::messages::{Look, TakeAway};
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;
use crate::report::{Event, Progress, Reporter, Status, ask, failures, occupied};
use crate::settings::{self, NodeSettings, Sources};
use crate::store::Feature;
use crate::text::is_pattern;

/// Interval at which the nodes are asked whether the holder has released the key.
const PAUSE: Duration = Duration::from_millis(100);

/// Time beyond the TTL: for the holder's last renewal, and for an observation.
const MARGIN: Duration = Duration::from_secs(1);

struct BreakRequest<'a> {
    args: &'a BreakArgs,
    key: Key,
    reach: NodeSettings,
    report: Reporter,
}

pub fn break_lock(args: &BreakArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let reach = NodeSettings::new(&args.nodes, sources)?;
    reach.store.needs(Feature::Parking, "break")?;
    let name = args.key.as_deref().or(args.name.as_deref());
    let name = name
        .ok_or_else(|| Failure::new(Outcome::Usage, "no KEY is given; see rlock break --help"))?;
    let key = settings::key(&args.nodes, name)?;
    reach.store.must_know(&key, false)?;
    let report = settings::reporter(&key, &args.output);
    if args
        .reason
        .as_ref()
        .is_some_and(|reason| !fits(reason, LONGEST_REASON))
    {
        return Err(Failure::new(
            Outcome::Usage,
            format!("--reason is at most {LONGEST_REASON} bytes long"),
        )
        .into());
    }
    let order = BreakRequest {
        args,
        key,
        reach,
        report,
    };
    block_on(order.carry_out())
}

impl BreakRequest<'_> {
    async fn carry_out(&self) -> anyhow::Result<Outcome> {
        let nodes = open(&self.key, &self.reach)?;
        let looks = observe(&nodes, self.reach.limit, Look::default(), |_| false).await;
        let census = looks.census();
        if !census.is_answered() {
            return Err(unanswered(&self.key, nodes.quorum(), &looks.faults).into());
        }
        let targets = self.targets(&census);
        let Some(first) = targets.first() else {
            // A success under a lock that is free keeps `run --once` from running.
            return match census.last()[1]
                .filter(|_| census.leading().is_none() && self.args.slot.is_none())
            {
                Some(run) => self.forget(&nodes, &looks, run).await,
                None if census.leading().is_some() => {
                    let meant = self.args.slot.map_or_else(
                        || "by this token".to_owned(),
                        |slot| format!("in slot {slot}"),
                    );
                    let why = format!(
                        "nothing to break: the lock is held, and not {meant}; see rlock inspect"
                    );
                    Err(self.no(why).into())
                }
                None => Err(self.nothing().into()),
            };
        };
        same_list(&self.key, &nodes, &looks)?;
        self.confirm(&targets)?;
        warn_of_refusals(&self.report, &looks.faults);
        if first.holder().is_none() {
            return self.clear(&nodes, &looks).await;
        }
        let highest = looks
            .of_nodes
            .iter()
            .flatten()
            .filter_map(|observation| observation.fence)
            .max();
        let highest = highest.map_or(0, crate::lock::fence::Fence::get);
        let by = Breaker {
            name: Caller::new().to_string(),
            reason: self.args.reason.clone().filter(|reason| !reason.is_empty()),
        };
        let (mut has_deleted, mut stopped, mut failed) = (false, Vec::new(), None);
        for (token, details) in targets.iter().filter_map(|target| target.holder()) {
            let done = if self.args.now || !details.kept {
                let note = note(&census, token, details, &by);
                let done = self
                    .delete(&nodes, |_| {
                        Some(TakeAway::Delete(token, highest, note.as_ref()))
                    })
                    .await;
                done.map(|()| has_deleted = true)
            } else {
                let tombstone = details.tombstone(token, by.clone());
                // One tombstone is enough for the holder to stop its command.
                let done = self
                    .force(&nodes, |_| Some(TakeAway::Tombstone(token, &tombstone)))
                    .await;
                done.map(|_| stopped.push(token))
            };
            failed = done.err().or(failed);
        }
        if has_deleted {
            self.report.say(&Event::KeyDeleted);
        }
        if !stopped.is_empty() {
            self.report.say(&Event::Tombstoned);
        }
        // Of several holders, one may have ended by itself meanwhile.
        let is_meant = |failure: &Failure| {
            failure.outcome != Outcome::No || (!has_deleted && stopped.is_empty())
        };
        if let Some(failure) = failed.filter(is_meant) {
            return Err(failure.into());
        }
        if stopped.is_empty() {
            return Ok(Outcome::Done);
        }
        self.wait(&nodes, &stopped, &looks).await
    }

    /// Returns the failure of a free lock. A name that looks like a pattern was perhaps meant as
    /// one.
    fn nothing(&self) -> Failure {
        let advice = if is_pattern(self.key.typed()) {
            "; break takes no pattern, but inspect does"
        } else {
            ""
        };
        self.no(format!("nothing to break: the lock is free{advice}"))
    }

    fn no(&self, why: impl Into<String>) -> Failure {
        Failure::about(&self.key, Outcome::No, why)
    }

    /// Returns the holders that are meant: all members, or the one that was chosen. Of an exclusive
    /// lock, the occupant at most nodes.
    fn targets<'c>(&self, census: &Census<'c>) -> Vec<&'c Occupant> {
        let Some((leading, _)) = census.leading() else {
            return Vec::new();
        };
        let has_members =
            leading.holder().is_some() && leading.mode().is_some_and(Mode::has_members);
        let held = census.holders().into_iter().map(|(occupant, _)| occupant);
        let all: Vec<&Occupant> = if has_members {
            held.collect()
        } else {
            vec![leading]
        };
        // What is left over of members holds nothing, and can be broken as what is left over of an
        // exclusive lock.
        let all = if all.is_empty() { vec![leading] } else { all };
        let is_meant = |occupant: &&Occupant| {
            let token = occupant.holder().map(|(token, _)| token);
            self.args.token.is_none_or(|meant| token == Some(meant))
                && self
                    .args
                    .slot
                    .is_none_or(|slot| slot > 0 && occupant.seat.index == slot)
        };
        all.into_iter().filter(is_meant).collect()
    }

    /// Shows the holders and asks the user, before anything is changed.
    fn confirm(&self, holders: &[&Occupant]) -> Result<(), Failure> {
        let Some(first) = holders.first() else {
            return Ok(());
        };
        if first.holder().is_none() && !self.args.foreign {
            let why = format!("{}; give --foreign to delete it", occupied(first));
            return Err(failures::forbidden_by(first, why).of(&self.key));
        }
        if self.args.yes {
            for holder in holders {
                self.report.say(&Event::Holder { occupant: holder });
            }
            return Ok(());
        }
        let shown: Vec<String> = holders.iter().map(|holder| occupied(holder)).collect();
        let question = if holders.len() == 1 {
            "Break it?"
        } else {
            "Break all of these?"
        };
        self.ask(&shown, question, |why| failures::forbidden_by(first, why))
    }

    /// Asks the user, or fails as `unasked` does without a terminal.
    fn ask(
        &self,
        shown: &[String],
        question: &str,
        unasked: impl Fn(String) -> Failure,
    ) -> Result<(), Failure> {
        let lines: Vec<String> = shown
            .iter()
            .map(|shown| format!("{}: {shown}", self.key))
            .collect();
        match ask(lines.join("\n"), question) {
            Some(true) => Ok(()),
            Some(false) => Err(self.no("not broken")),
            None => Err(unasked(format!(
                "{}; no terminal to ask at, so give --yes",
                shown[0]
            ))
            .of(&self.key)),
        }
    }

    /// Forces the lock at all nodes, as `how` says for each; an error if it was done at none.
    async fn force<'f>(
        &self,
        nodes: &Nodes,
        how: impl Fn(usize) -> Option<TakeAway<'f>>,
    ) -> Result<Faults, Failure> {
        let count = outside::take_away(nodes, self.reach.limit, how).await;
        if count.done > 0 {
            Ok(count.faults)
        } else if count.faults.is_empty() {
            Err(self.no("the holder has changed or released it meanwhile; nothing was broken"))
        } else {
            Err(unanswered(&self.key, nodes.quorum(), &count.faults))
        }
    }

    /// The same, and an error if the nodes that were not reached may still be a majority.
    async fn delete<'f>(
        &self,
        nodes: &Nodes,
        how: impl Fn(usize) -> Option<TakeAway<'f>>,
    ) -> Result<(), Failure> {
        let faults = self.force(nodes, how).await?;
        if faults.len() >= nodes.quorum().needed() {
            return Err(unanswered(&self.key, nodes.quorum(), &faults));
        }
        Ok(())
    }

    /// Deletes the last success and all before it that nodes know, unless another run has succeeded
    /// meanwhile.
    async fn forget(
        &self,
        nodes: &Nodes,
        looks: &Observations,
        run: &Entry,
    ) -> anyhow::Result<Outcome> {
        if self.args.token.is_some_and(|meant| meant != run.token) {
            return Err(self.nothing().into());
        }
        if self.args.yes {
            self.report.say(&Event::Success { run });
        } else {
            self.ask(&[run.success()], "Break it?", |why| {
                Failure::new(Outcome::Usage, why)
            })?;
        }
        let known = |node: usize| {
            looks.of_nodes[node]
                .as_ref()
                .and_then(|seen| seen.last.success.as_ref())
        };
        let token = |node: usize| known(node).unwrap_or(run).token;
        self.delete(nodes, |node| Some(TakeAway::Forget(token(node))))
            .await?;
        self.report.say(&Event::Forgotten);
        Ok(Outcome::Done)
    }

    /// Deletes a foreign value, unless it has changed since it was observed.
    async fn clear(&self, nodes: &Nodes, looks: &Observations) -> anyhow::Result<Outcome> {
        let census = looks.census();
        let seen = |node: usize| {
            looks.of_nodes[node]
                .as_ref()?
                .foreign
                .as_ref()
                .filter(|_| census.agrees_with_leading(node) == Some(true))
        };
        self.delete(nodes, |node| seen(node).map(TakeAway::DeleteForeign))
            .await?;
        self.report.say(&Event::KeyDeleted);
        Ok(Outcome::Done)
    }

    /// Waits until the holders have released their tombstones, or these have expired.
    async fn wait(
        &self,
        nodes: &Nodes,
        tokens: &[Token],
        looks: &Observations,
    ) -> anyhow::Result<Outcome> {
        let census = looks.census();
        // Where no look tells how long a lease lasts, it lasts its whole length at most.
        let lefts = census
            .holders()
            .into_iter()
            .map(|(occupant, _)| census.ttl_of(occupant).or(occupant.lease_length()));
        let left = lefts
            .chain([census.ttl()])
            .flatten()
            .max()
            .unwrap_or_default();
        let (begun, mut alarm) = (clock::now(), Alarm::new()?);
        let progress = Progress::new(&self.report);
        loop {
            let looks = observe(nodes, self.reach.limit, Look::default(), |_| false).await;
            let kept = tokens
                .iter()
                .any(|token| looks.census().is_anywhere(*token));
            let waited = clock::now().since(begun);
            if looks.census().is_answered() && !kept {
                drop(progress);
                let parked = tokens
                    .iter()
                    .filter_map(|token| looks.census().parked(*token))
                    .max();
                self.report.say(&Event::HolderReleased {
                    after: waited,
                    parked,
                });
                return Ok(Outcome::Done);
            }
            if waited > left + MARGIN {
                drop(progress);
                let why = "it cannot end its command, or runs with --on-lost warn";
                let remedy = "the key still keeps other clients out; --now deletes it";
                return Err(self
                    .no(format!(
                        "broken, but its holder has not released it: {why}; {remedy}"
                    ))
                    .into());
            }
            progress.show(
                &self.report,
                &Status::Break {
                    waited,
                    limit: left,
                },
            );
            alarm.reached(clock::now() + PAUSE).await;
        }
    }
}

/// Returns what the record is to say of a holder that is not waited for. One that is parked has
/// written its own.
fn note(census: &Census, token: Token, holder: &Details, by: &Breaker) -> Option<Note> {
    let fence = census.fence(token).filter(|_| !holder.parked)?;
    let end = clock::unix_millis(SystemTime::now());
    let run = Run {
        start: holder.since,
        end,
        broken: Some(by.clone()),
        ..Run::default()
    };
    Some(Note::of(run.of(holder), fence, token))
}
