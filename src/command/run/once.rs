//! `--once`: the end of a run whose command is not started, because another run has succeeded or
//! because too few nodes tell.

use super::cover::Cover;
use crate::command::common::report_releases;
use crate::exit::Outcome;
use crate::hold::once::run_before;
use crate::hold::{Nodes, ReleaseOutcome};
use crate::lock::remains::Remains;
use crate::lock::waiting::Blocked;
use crate::report::{Event, failures};
use crate::settings::RunSettings;

/// Returns the lock if the command may run, else how rlock ends, with the lock given back.
pub(super) async fn unless_done(
    settings: &RunSettings,
    nodes: &Nodes,
    cover: Cover,
) -> anyhow::Result<Result<Cover, Outcome>> {
    let (lock, report) = (&settings.lock, &settings.lock.report);
    let before = match (&cover, settings.remains.once) {
        (Cover::Own(holdings), Some(within)) => {
            run_before(nodes, &lock.keys[0], lock.schedule, holdings, within).await
        }
        _ => Ok(Ok(None)),
    };
    match before {
        Ok(Ok(None)) => Ok(Ok(cover)),
        Ok(Ok(Some(run))) => {
            report.say_to_user(&Event::RunBefore { run: &run });
            let remains = Remains {
                earlier: Some(run),
                once: settings.remains.once,
                ..Remains::default()
            };
            let freed = cover.release(&remains).await;
            report_releases(report, &freed);
            if freed
                .iter()
                .any(|freed| matches!(freed, ReleaseOutcome::Unconfirmed(_)))
            {
                report.say(&Event::SuccessUnknown);
            }
            Ok(Err(Outcome::Done))
        }
        Ok(Err(faults)) => {
            cover.give_up(report).await;
            // Without a fault the nodes answer, and too few of them have the lock as ours any more.
            let blocked = if faults.is_empty() {
                Blocked::TooLate
            } else {
                Blocked::Unreachable(faults, nodes.quorum())
            };
            Err(failures::unreachable(&blocked).of(&lock.keys).into())
        }
        Err(error) => {
            cover.give_up(report).await;
            Err(error.into())
        }
    }
}
