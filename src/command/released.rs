//! The events of a release.

use crate::redlock::ReleaseOutcome;
use crate::report::{AtNode, Event, Reporter};

/// Reports the outcomes of the releases of all locks of `report`.
pub(super) fn report_releases(report: &Reporter, freed: &[ReleaseOutcome]) {
    for (key, freed) in report.keys.iter().zip(freed) {
        report_release(&report.of(key), freed);
    }
}

/// Reports the outcome of a release.
pub(super) fn report_release(report: &Reporter, freed: &ReleaseOutcome) {
    match freed {
        ReleaseOutcome::Ours => report.say(&Event::Released),
        ReleaseOutcome::NotOurs(_) => report.say(&Event::NothingToRelease),
        ReleaseOutcome::Unconfirmed(faults) => {
            for there in faults.iter() {
                report.say(&Event::NotReleased(AtNode { node: &there.name, why: &there.fault.why }));
            }
        }
    }
}
