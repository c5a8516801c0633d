//! What `run` says of a release.

use crate::redlock::ReleaseOutcome;
use crate::report::Reporter;

/// Says what became of a release; silent if all is well.
pub(super) fn report_release(report: &Reporter, freed: &ReleaseOutcome) {
    match freed {
        ReleaseOutcome::Ours => report.step("released", "released"),
        ReleaseOutcome::NotOurs(_) => report.step("released", "there was nothing of ours to release"),
        ReleaseOutcome::Unconfirmed(faults) => {
            for there in faults.iter() {
                let (node, fault) = (&there.name, &there.fault);
                let text =
                    format_args!("{node}: release not confirmed ({fault}); the lock ends with its lease at the latest");
                report.note("unreleased", text);
            }
        }
    }
}
