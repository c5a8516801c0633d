//! `rlock break`: takes a lock away from the holder that was shown, and from no other.
//!
//! The lock of a live `run` is not deleted: a tombstone keeps other clients out until the holder
//! has stopped its command.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use super::caller::Caller;
use super::inspect::Selection;
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
use crate::report::{Event, Progress, Reporter, Status, ask, failure, failures, occupied};
use crate::settings::{self, NodeSettings, Sources};
use crate::store::Feature;

/// Interval at which the nodes are asked whether the holder has released the key.
const PAUSE: Duration = Duration::from_millis(100);

/// Time beyond the TTL: for the holder's last renewal, and for an observation.
const MARGIN: Duration = Duration::from_secs(1);

/// A lock to break, as it was observed.
struct BreakRequest<'a> {
    args: &'a BreakArgs,
    key: Key,
    reach: &'a NodeSettings,
    report: Reporter,
    nodes: Nodes,
    looks: Observations,
    /// Whether no other lock is broken with it.
    is_alone: bool,
}

pub fn break_lock(args: &BreakArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let reach = NodeSettings::new(&args.nodes, sources)?;
    let selection = Selection::new(&args.nodes, &args.keys, &args.words, args.host.as_ref())?;
    if selection.has_patterns() {
        reach.store.needs(Feature::Listing, "break of a pattern")?;
    }
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
    block_on(break_all(args, &selection, &reach))
}

/// Breaks the locks, all after one question, which shows them all. Then one that cannot be broken does
/// not keep the others.
async fn break_all(
    args: &BreakArgs,
    selection: &Selection,
    reach: &NodeSettings,
) -> anyhow::Result<Outcome> {
    let keys = selection.find(reach).await?;
    if keys.len() > 1 && (args.token.is_some() || args.slot.is_some()) {
        let why = "--token and --slot are for one lock; give one KEY";
        return Err(Failure::new(Outcome::Usage, why).into());
    }
    let is_alone = keys.len() == 1;
    let (mut requests, mut shown, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        let is_named = selection.names(&key);
        let request = BreakRequest::look(args, key, reach, is_alone).await?;
        let census = request.looks.census();
        let is_anothers = args.host.is_some() && request.targets(&census).is_empty();
        if (!is_named && census.leading().is_none()) || is_anothers {
            continue;
        }
        match request.shown() {
            Ok(lines) => {
                shown.extend(lines.iter().map(|line| format!("{}: {line}", request.key)));
                requests.push(request);
            }
            Err(failure) => failures.push(failure),
        }
    }
    match requests.first() {
        Some(_) if args.yes => requests.iter().for_each(BreakRequest::show),
        Some(first) => first.ask(&shown)?,
        None if failures.is_empty() => {
            let why = "nothing to break: no lock that matches is held";
            return Err(Failure::new(Outcome::No, why).into());
        }
        None => {}
    }
    let ends = join_all(requests.iter().map(BreakRequest::carry_out)).await;
    let failed = ends.into_iter().filter_map(Result::err);
    let failures = failures.into_iter().map(anyhow::Error::from);
    let mut errors: Vec<anyhow::Error> = failures.chain(failed).collect();
    let last = errors.pop();
    for error in &errors {
        failure(args.output.log.form(), error);
    }
    last.map_or(Ok(Outcome::Done), Err)
}

impl<'a> BreakRequest<'a> {
    async fn look(
        args: &'a BreakArgs,
        key: Key,
        reach: &'a NodeSettings,
        is_alone: bool,
    ) -> anyhow::Result<Self> {
        reach.store.must_know(&key, false)?;
        let nodes = open(&key, reach)?;
        let looks = observe(&nodes, reach.limit, Look::default(), |_| false).await;
        if !looks.census().is_answered() {
            return Err(unanswered(&key, nodes.quorum(), &looks.faults).into());
        }
        Ok(Self {
            args,
            report: settings::reporter(&key, &args.output),
            key,
            reach,
            nodes,
            looks,
            is_alone,
        })
    }

    /// Returns the holders that would lose the lock, for people; of a free lock the success that
    /// would be forgotten.
    fn shown(&self) -> Result<Vec<String>, Failure> {
        let census = self.looks.census();
        let targets = self.targets(&census);
        let is_possible = self.reach.store.needs(Feature::Parking, "break");
        let Some(first) = targets.first() else {
            is_possible?;
            return Ok(vec![self.success()?.success()]);
        };
        same_list(&self.key, &self.nodes, &self.looks)?;
        if let Err(refusal) = is_possible {
            let why = format!("{refusal}; it is {}", occupied(first));
            return Err(failures::forbidden_by(first, why).of(&self.key));
        }
        if first.holder().is_none() && !self.args.foreign {
            let why = format!("{}; give --foreign to delete it", occupied(first));
            return Err(failures::forbidden_by(first, why).of(&self.key));
        }
        Ok(targets.into_iter().map(occupied).collect())
    }

    /// Returns the success that keeps `run --once` from running though the lock is free.
    fn success(&self) -> Result<&Entry, Failure> {
        let census = self.looks.census();
        if census.leading().is_some() {
            let meant = self.args.slot.map_or_else(
                || "by this token".to_owned(),
                |slot| format!("in slot {slot}"),
            );
            let why =
                format!("nothing to break: the lock is held, and not {meant}; see rlock inspect");
            return Err(self.no(why));
        }
        let success = census.last()[1].filter(|run| {
            self.args.slot.is_none() && self.args.token.is_none_or(|meant| meant == run.token)
        });
        success.ok_or_else(|| self.no("nothing to break: the lock is free"))
    }

    /// Breaks the lock of the holders that were shown, and of no other.
    async fn carry_out(&self) -> anyhow::Result<Outcome> {
        let looks = &self.looks;
        let census = looks.census();
        let targets = self.targets(&census);
        let Some(first) = targets.first() else {
            return self.forget(self.success()?).await;
        };
        warn_of_refusals(&self.report, &looks.faults);
        if first.holder().is_none() {
            return self.clear().await;
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
                let note = note(&census, token, details, &by).map(Box::new);
                let done = self
                    .delete(|_| Some(TakeAway::Delete(token, highest, note.clone())))
                    .await;
                done.map(|()| has_deleted = true)
            } else {
                let tombstone = details.tombstone(token, by.clone());
                // One tombstone is enough for the holder to stop its command.
                let done = self
                    .force(|_| Some(TakeAway::Tombstone(token, tombstone.clone())))
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
        self.wait(&stopped).await
    }

    fn no(&self, why: impl Into<String>) -> Failure {
        Failure::about(&self.key, Outcome::No, why)
    }

    /// Returns the holders that are meant: all members, or those that were chosen. Of an exclusive
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
            let (token, details) = occupant.holder().unzip();
            let host = details.map(|details| &details.host);
            self.args.token.is_none_or(|meant| token == Some(meant))
                && self
                    .args
                    .host
                    .as_ref()
                    .is_none_or(|meant| host == Some(meant))
                && self
                    .args
                    .slot
                    .is_none_or(|slot| slot > 0 && occupant.seat.index == slot)
        };
        all.into_iter().filter(is_meant).collect()
    }

    /// Says what is broken, where no question shows it.
    fn show(&self) {
        let census = self.looks.census();
        for occupant in self.targets(&census) {
            self.report.say(&Event::Holder { occupant });
        }
        if let Ok(run) = self.success() {
            self.report.say(&Event::Success { run });
        }
    }

    /// Asks the user about the lines `shown`, before anything is changed, or fails without a
    /// terminal.
    fn ask(&self, shown: &[String]) -> Result<(), Failure> {
        let question = if shown.len() == 1 {
            "Break it?"
        } else {
            "Break all of these?"
        };
        match ask(shown.join("\n"), question) {
            Some(true) => Ok(()),
            Some(false) if self.is_alone => Err(self.no("not broken")),
            Some(false) => Err(Failure::new(Outcome::No, "not broken")),
            None => {
                let why = "no terminal to ask at, so give --yes";
                let why = format!("{}; {why}", self.shown()?[0]);
                let census = self.looks.census();
                let unasked = match self.targets(&census).first() {
                    Some(first) => failures::forbidden_by(first, why),
                    None => Failure::new(Outcome::Usage, why),
                };
                Err(unasked.of(&self.key))
            }
        }
    }

    /// Forces the lock at all nodes, as `how` says for each; an error if it was done at none.
    async fn force(&self, how: impl Fn(usize) -> Option<TakeAway>) -> Result<Faults, Failure> {
        let count = outside::take_away(&self.nodes, self.reach.limit, how).await;
        if count.done > 0 {
            Ok(count.faults)
        } else if count.faults.is_empty() {
            Err(self.no("the holder has changed or released it meanwhile; nothing was broken"))
        } else {
            Err(unanswered(&self.key, self.nodes.quorum(), &count.faults))
        }
    }

    /// The same, and an error if the nodes that were not reached may still be a majority.
    async fn delete(&self, how: impl Fn(usize) -> Option<TakeAway>) -> Result<(), Failure> {
        let faults = self.force(how).await?;
        let quorum = self.nodes.quorum();
        if faults.len() >= quorum.needed() {
            return Err(unanswered(&self.key, quorum, &faults));
        }
        Ok(())
    }

    /// Deletes the last success and all before it that nodes know, unless another run has succeeded
    /// meanwhile.
    async fn forget(&self, run: &Entry) -> anyhow::Result<Outcome> {
        let known = |node: usize| {
            self.looks.of_nodes[node]
                .as_ref()
                .and_then(|seen| seen.last.success.as_ref())
        };
        let token = |node: usize| known(node).unwrap_or(run).token;
        self.delete(|node| Some(TakeAway::Forget(token(node))))
            .await?;
        self.report.say(&Event::Forgotten);
        Ok(Outcome::Done)
    }

    /// Deletes a foreign value, unless it has changed since it was observed.
    async fn clear(&self) -> anyhow::Result<Outcome> {
        let census = self.looks.census();
        let seen = |node: usize| {
            self.looks.of_nodes[node]
                .as_ref()?
                .foreign
                .clone()
                .filter(|_| census.agrees_with_leading(node) == Some(true))
        };
        self.delete(|node| seen(node).map(TakeAway::DeleteForeign))
            .await?;
        self.report.say(&Event::KeyDeleted);
        Ok(Outcome::Done)
    }

    /// Waits until the holders have released their tombstones, or these have expired.
    async fn wait(&self, tokens: &[Token]) -> anyhow::Result<Outcome> {
        let census = self.looks.census();
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
        // Of several, each would draw over the others.
        let progress = self.is_alone.then(|| Progress::new(&self.report));
        loop {
            let looks = observe(&self.nodes, self.reach.limit, Look::default(), |_| false).await;
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
            let limit = left;
            if let Some(progress) = &progress {
                progress.show(&self.report, &Status::Break { waited, limit });
            }
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
