//! The answers of sentinels to the question which server is the primary of a service, and their
//! sum. Pure.
//!
//! 1. A majority of the sentinels that are listed must name a primary. Of their answers the highest
//!    epoch counts: a sentinel that has not heard of a failover yet names the old one.
//! 2. A server that was found is confirmed if a majority still names it, and no answer has a higher
//!    epoch.

use super::naming::{Location, Naming, SentinelAnswer};
use super::{Confirmation, Primary};
use crate::lock::quorum::Quorum;
use crate::store::{Fault, FaultKind};

const PASSWORD_OF_SENTINELS: &str = "give RLOCK_SENTINEL_PASSWORD or --sentinel-password-file, and RLOCK_SENTINEL_USER for another user than default";

/// The sentinels that were asked, by name, with their answers; `None`: silent so far.
pub(super) struct Answers<'a> {
    /// The name of the service.
    pub(super) service: &'a str,
    pub(super) of: Vec<(&'a str, Option<SentinelAnswer>)>,
}

impl Answers<'_> {
    /// Returns the primary that all answers together name, with the longest time for which any
    /// sentinel has seen it as that.
    pub(super) fn primary(&self) -> Result<Naming, Fault> {
        let quorum = Quorum::of(self.of.len());
        if self.namings().count() < quorum.needed() {
            return Err(self.too_few(quorum));
        }
        let highest = self
            .namings()
            .map(|(_, naming)| naming.epoch)
            .max()
            .unwrap_or_default();
        let mut latest = self.namings().filter(|(_, naming)| naming.epoch == highest);
        let Some((name, first)) = latest.next() else {
            return Err(self.too_few(quorum));
        };
        let mut age = first.age;
        for (other, naming) in latest {
            if naming.primary != first.primary {
                let why = format!(
                    "the sentinels disagree: {name} names {}, {other} names {}, both at epoch {highest}",
                    first.primary, naming.primary
                );
                return Err(Fault::new(FaultKind::Unfit, why));
            }
            // A sentinel that restarted has not seen it for long.
            age = age.max(naming.age);
        }
        Ok(Naming {
            age,
            ..first.clone()
        })
    }

    /// Says whether `found` still is the primary, and by the failover that made it that.
    pub(super) fn confirm(&self, found: &Primary) -> Confirmation {
        let replaced = |by: &Location, epoch: u64| {
            let why = format!("{found} was replaced by {by} in epoch {epoch}");
            Confirmation::Replaced(Fault::new(FaultKind::Unknown, why))
        };
        let (location, epoch) = (&found.location, found.epoch.unwrap_or_default());
        let later = self
            .namings()
            .filter(|(_, naming)| naming.epoch > epoch)
            .max_by_key(|(_, naming)| naming.epoch);
        if let Some((_, later)) = later {
            return replaced(&later.primary, later.epoch);
        }
        let needed = Quorum::of(self.of.len()).needed();
        if self
            .namings()
            .filter(|(_, naming)| naming.primary == *location)
            .count()
            >= needed
        {
            return Confirmation::Present;
        }
        match self.primary() {
            Ok(named) if named.primary != *location => replaced(&named.primary, named.epoch),
            Ok(_) => {
                let why = format!("too few sentinels name {location}");
                Confirmation::Unknown(Fault::new(FaultKind::Unavailable, why))
            }
            Err(fault) => Confirmation::Unknown(fault),
        }
    }

    /// Returns each sentinel that names a primary, and what it says.
    pub(super) fn namings(&self) -> impl Iterator<Item = (&str, &Naming)> {
        self.of.iter().filter_map(|(name, answer)| match answer {
            Some(SentinelAnswer::Names(naming)) => Some((*name, naming)),
            _ => None,
        })
    }

    /// The fault of sentinels of which too few name a primary. It is that of an address only if
    /// that alone is the cause.
    fn too_few(&self, quorum: Quorum) -> Fault {
        let faults = || {
            self.of.iter().filter_map(|(name, answer)| match answer {
                Some(SentinelAnswer::Failed(fault)) => Some((name, fault)),
                _ => None,
            })
        };
        let strangers = self
            .of
            .iter()
            .filter(|(_, answer)| *answer == Some(SentinelAnswer::NoService))
            .count();
        let of_kind = |kind| faults().filter(|(_, fault)| fault.kind == kind).count();
        let first_of = |kind| faults().find(|(_, fault)| fault.kind == kind);
        if strangers > quorum.tolerated() {
            let who = match quorum.total() {
                1 => "the sentinel knows".to_owned(),
                total if strangers == total => "the sentinels know".to_owned(),
                total => format!("{strangers} of the {total} sentinels know"),
            };
            let what = format!("{who} no service {}", self.service);
            return Fault::unfit(what, "see SENTINEL MASTERS there");
        }
        for kind in [FaultKind::Refused, FaultKind::Unfit] {
            if let Some((name, fault)) =
                first_of(kind).filter(|_| of_kind(kind) > quorum.tolerated())
            {
                let remedy = if fault.denied.is_some() {
                    Some(PASSWORD_OF_SENTINELS)
                } else {
                    fault.remedy
                };
                return Fault {
                    why: format!("sentinel {name}: {fault}"),
                    remedy,
                    ..fault.clone()
                };
            }
        }
        let whys = self.of.iter().filter_map(|(name, answer)| match answer {
            Some(SentinelAnswer::Names(_)) => None,
            Some(SentinelAnswer::NoService) => {
                Some(format!("{name}: it knows no service {}", self.service))
            }
            Some(SentinelAnswer::Failed(fault)) => Some(format!("{name}: {fault}")),
            None => Some(format!("{name}: no answer")),
        });
        let (named, total, needed) = (self.namings().count(), quorum.total(), quorum.needed());
        let whys = whys.collect::<Vec<_>>().join(", ");
        let why =
            format!("{named} of {total} sentinels name a primary, and {needed} must ({whys})");
        Fault::new(FaultKind::Unavailable, why).with_remedy("see the sentinels that the list names")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(port: u16) -> Location {
        Location {
            host: "10.0.0.5".to_owned(),
            port,
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "a sentinel may be silent")]
    fn names(port: u16, epoch: u64) -> Option<SentinelAnswer> {
        let naming = Naming {
            primary: at(port),
            epoch,
            age: Duration::ZERO,
            down_after: None,
            others: None,
        };
        Some(SentinelAnswer::Names(naming))
    }

    #[expect(clippy::unnecessary_wraps, reason = "a sentinel may be silent")]
    fn failed(kind: FaultKind, why: &str) -> Option<SentinelAnswer> {
        Some(SentinelAnswer::Failed(Fault::new(kind, why)))
    }

    fn all(answers: Vec<Option<SentinelAnswer>>) -> Answers<'static> {
        Answers {
            service: "svc",
            of: ["a", "b", "c", "d", "e"].into_iter().zip(answers).collect(),
        }
    }

    fn found(answers: Vec<Option<SentinelAnswer>>) -> Result<(u16, u64), (FaultKind, String)> {
        let named = all(answers)
            .primary()
            .map_err(|fault| (fault.kind, fault.why))?;
        Ok((named.primary.port, named.epoch))
    }

    #[test]
    fn the_highest_epoch_counts_among_a_majority_of_those_listed() {
        assert_eq!(
            found(vec![names(1, 7), names(1, 7), names(1, 7)]),
            Ok((1, 7))
        );
        assert_eq!(
            found(vec![names(1, 7), names(2, 8), names(1, 7)]),
            Ok((2, 8))
        );
        assert_eq!(found(vec![names(1, 7), None, names(1, 7)]), Ok((1, 7)));
        assert_eq!(found(vec![names(1, 7)]), Ok((1, 7)));
        let (kind, why) = found(vec![
            names(1, 7),
            None,
            failed(FaultKind::Unavailable, "refused"),
        ])
        .unwrap_err();
        assert_eq!(kind, FaultKind::Unavailable);
        assert_eq!(
            why,
            "1 of 3 sentinels name a primary, and 2 must (b: no answer, c: refused)"
        );
        assert!(
            found(vec![names(1, 7), names(1, 7), None, None]).is_err(),
            "half is no majority"
        );
    }

    #[test]
    fn what_no_time_mends_is_told_from_what_time_mends() {
        let stranger = || Some(SentinelAnswer::NoService);
        let kind = |answers| found(answers).unwrap_err();
        let (unfit, why) = kind(vec![stranger(), stranger(), stranger()]);
        assert!(
            unfit == FaultKind::Unfit && why.starts_with("the sentinels know no service svc;"),
            "{why}"
        );
        assert_eq!(
            kind(vec![stranger(), stranger(), names(1, 1)]).0,
            FaultKind::Unfit
        );
        assert_eq!(
            kind(vec![stranger(), None, names(1, 1)]).0,
            FaultKind::Unavailable
        );
        let noauth = || failed(FaultKind::Refused, "NOAUTH Authentication required");
        let (refused, why) = kind(vec![noauth(), noauth(), names(1, 1)]);
        assert!(
            refused == FaultKind::Refused && why == "sentinel a: NOAUTH Authentication required",
            "{why}"
        );
        assert_eq!(
            kind(vec![noauth(), None, names(1, 1)]).0,
            FaultKind::Unavailable
        );
        let (unfit, why) = kind(vec![names(1, 3), names(2, 3), names(1, 3)]);
        assert!(
            unfit == FaultKind::Unfit && why.contains("disagree") && why.contains("10.0.0.5:2"),
            "{why}"
        );
    }

    #[test]
    fn a_server_is_confirmed_by_a_majority_that_names_it_and_by_no_later_failover() {
        let found = Primary {
            location: at(1),
            epoch: Some(7),
            since: None,
        };
        let confirmed = |answers| all(answers).confirm(&found);
        assert!(matches!(
            confirmed(vec![names(1, 7), names(1, 7), None]),
            Confirmation::Present
        ));
        // A sentinel that was added lately has no epoch yet.
        assert!(matches!(
            confirmed(vec![names(1, 0), names(1, 7), None]),
            Confirmation::Present
        ));
        assert!(matches!(
            confirmed(vec![names(1, 7), None, None]),
            Confirmation::Unknown(_)
        ));
        for answers in [
            vec![names(1, 7), names(1, 7), names(2, 8)],
            vec![names(2, 8), names(2, 8), None],
            vec![names(1, 9), names(1, 9), names(1, 9)],
        ] {
            assert!(
                matches!(confirmed(answers.clone()), Confirmation::Replaced(_)),
                "{answers:?}"
            );
        }
        assert!(matches!(
            confirmed(vec![names(2, 7), names(2, 7), names(2, 7)]),
            Confirmation::Replaced(_)
        ));
        assert!(matches!(
            confirmed(vec![names(1, 7), names(2, 7), None]),
            Confirmation::Unknown(_)
        ));
    }

    #[test]
    fn the_longest_age_of_the_latest_epoch_counts() {
        let aged = |epoch, seconds| {
            let age = Duration::from_secs(seconds);
            Some(SentinelAnswer::Names(Naming {
                primary: at(1),
                epoch,
                age,
                down_after: None,
                others: None,
            }))
        };
        let age = |answers| all(answers).primary().unwrap().age.as_secs();
        assert_eq!(age(vec![aged(7, 2), aged(7, 40), aged(7, 3)]), 40);
        assert_eq!(age(vec![aged(8, 2), aged(8, 3), aged(7, 90)]), 3);
    }
}
