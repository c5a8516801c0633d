//! Replies that count only if the server that gave them was still the node's by then.
//!
//! A server that was replaced stays a writable primary for some seconds. One that was stopped runs
//! what it was sent when it resumes, though another has taken over. So each reply is followed by
//! the question whether its server still is the one.

use crate::store::redis::locator::{Confirmation, Locator, Source};
use crate::store::redis::reply::proven;
use crate::store::{Answer, Fault, FaultKind, Renewal, ServerInfo, Vote};

/// Returns `answer` as it counts. A grant that is not confirmed may exist, so the caller releases
/// it.
pub(super) async fn answer(
    locator: &Locator,
    source: Option<&Source>,
    mut answer: Answer,
) -> Answer {
    let Some(source) = source else { return answer };
    if let (ServerInfo::Told(identity), Some(age)) = (&mut answer.server, source.site.age())
        && proven(age.as_secs()) < identity.remembers
    {
        // A server that has just become the primary may lack the last writes, as one that has just
        // started.
        (identity.remembers, identity.event) = (proven(age.as_secs()), "became the primary");
    }
    if matches!(answer.vote, Vote::Granted { .. }) {
        answer.vote = grant(answer.vote, locator.confirm(source).await);
    }
    answer
}

fn grant(vote: Vote, confirmation: Confirmation) -> Vote {
    match confirmation {
        Confirmation::Present => vote,
        Confirmation::Replaced(fault) | Confirmation::Unknown(fault) => Vote::Failed(Fault {
            kind: FaultKind::Unknown,
            ..fault
        }),
    }
}

/// Returns `renewal` as it counts, where replicas lack it for the reason in `lacking`.
pub(super) fn without_copies(renewal: Renewal, lacking: Option<Fault>) -> Renewal {
    match lacking {
        Some(fault) => word(renewal, Confirmation::Unknown(fault)),
        None => renewal,
    }
}

/// Returns `renewal` as it counts.
pub(super) async fn renewal(
    locator: &Locator,
    source: Option<&Source>,
    renewal: Renewal,
) -> Renewal {
    let (Some(source), false) = (source, matches!(renewal, Renewal::Failed(_))) else {
        return renewal;
    };
    word(renewal, locator.confirm(source).await)
}

fn word(renewal: Renewal, confirmation: Confirmation) -> Renewal {
    match (confirmation, renewal) {
        (Confirmation::Present, renewal) => renewal,
        // It may be the primary still, so that a key which is gone there is lost.
        (Confirmation::Unknown(_), Renewal::NotOurs(how, counter, left)) => {
            Renewal::NotOurs(how, counter, left)
        }
        (Confirmation::Unknown(_), Renewal::Broken(_, by)) => Renewal::Broken(None, by),
        // Of a server that was replaced, not even "missing" counts.
        (Confirmation::Replaced(fault) | Confirmation::Unknown(fault), _) => Renewal::Failed(fault),
    }
}

/// Returns the fault of a server that has answered and was replaced by then.
pub(super) async fn replaced(locator: &Locator, source: Option<&Source>) -> Option<Fault> {
    match locator.confirm(source?).await {
        Confirmation::Replaced(fault) => Some(fault),
        Confirmation::Present | Confirmation::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fence::Fence;
    use crate::lock::instant::Instant;
    use crate::lock::lease::Revoked;

    fn fault() -> Fault {
        Fault::new(FaultKind::Unavailable, "why")
    }

    #[test]
    fn a_grant_counts_only_if_it_is_confirmed_and_is_released_otherwise() {
        let granted = || Vote::Granted {
            until: Instant::from_nanos(9),
            fence: Fence::new(7).unwrap_or_else(|| panic!()),
            index: 0,
        };
        assert!(matches!(
            grant(granted(), Confirmation::Present),
            Vote::Granted { .. }
        ));
        for confirmation in [
            Confirmation::Replaced(fault()),
            Confirmation::Unknown(fault()),
        ] {
            // Of a fault of another kind no key would be left to be released.
            assert!(
                matches!(grant(granted(), confirmation), Vote::Failed(fault) if fault.kind == FaultKind::Unknown)
            );
        }
    }

    #[test]
    fn a_renewal_counts_only_if_it_is_confirmed_and_a_loss_unless_the_server_was_replaced() {
        let until = Instant::from_nanos(9);
        let extended = [Renewal::Renewed(until, None), Renewal::Healed(until, None)];
        for renewal in extended {
            let is_same = matches!(
                word(renewal.clone(), Confirmation::Present),
                Renewal::Renewed(..) | Renewal::Healed(..)
            );
            assert!(is_same, "{renewal:?}");
            assert!(
                matches!(
                    word(renewal.clone(), Confirmation::Replaced(fault())),
                    Renewal::Failed(_)
                ),
                "{renewal:?}"
            );
            assert!(
                matches!(
                    word(renewal.clone(), Confirmation::Unknown(fault())),
                    Renewal::Failed(_)
                ),
                "{renewal:?}"
            );
        }
        let lost = || Renewal::NotOurs(Revoked::Missing, None, None);
        assert!(matches!(
            word(lost(), Confirmation::Present),
            Renewal::NotOurs(..)
        ));
        assert!(matches!(
            word(lost(), Confirmation::Unknown(fault())),
            Renewal::NotOurs(..)
        ));
        assert!(matches!(
            word(lost(), Confirmation::Replaced(fault())),
            Renewal::Failed(_)
        ));
        let broken = || Renewal::Broken(Some(until), "me".into());
        assert!(matches!(
            word(broken(), Confirmation::Present),
            Renewal::Broken(Some(_), _)
        ));
        assert!(matches!(
            without_copies(broken(), Some(fault())),
            Renewal::Broken(None, _)
        ));
        assert!(matches!(
            without_copies(lost(), Some(fault())),
            Renewal::NotOurs(..)
        ));
        assert!(matches!(
            without_copies(Renewal::Renewed(until, None), Some(fault())),
            Renewal::Failed(_)
        ));
        assert!(matches!(
            without_copies(Renewal::Renewed(until, None), None),
            Renewal::Renewed(..)
        ));
        assert!(matches!(
            word(broken(), Confirmation::Unknown(fault())),
            Renewal::Broken(None, _)
        ));
    }
}
