//! Judges the directory of a machine's locks.

use serde_json::{Value, json};

use super::diagnosis::{Finding, Level, Votes};
use super::trial::{self, Trial};
use crate::node::local::Survey;
use crate::text::escape;

/// Returns the findings of a directory, and of the lock that was tried in it.
pub(super) fn judge(survey: &Survey, trial: Option<&Trial>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |level, what: String, cure: &str| {
        findings.push(Finding { node: Some(0), level, what, cure: cure.to_owned() });
    };
    if survey.is_network {
        let what = format!("its directory is on {}: other hosts may not see its locks", survey.file_system);
        say(Level::Warn, what, "name a directory on a disk of this machine, or a server for locks of several hosts");
    }
    if !survey.has_inotify {
        let what =
            "this user has no inotify instance left: waiters poll, and a deleted file is noticed late".to_owned();
        say(Level::Warn, what, "raise fs.inotify.max_user_instances (sysctl)");
    }
    trial::judge(trial, Votes::OF_LOCAL, &mut say);
    findings
}

/// Returns the directory in one line.
pub(super) fn text(survey: &Survey) -> String {
    let Survey { directory, file_system, owner, mode, .. } = survey;
    format!(
        "directory {}, on {file_system}, of uid {owner}, mode {mode:04o}",
        escape::text(&directory.to_string_lossy())
    )
}

/// Returns the node's object.
pub(super) fn object(name: &str, survey: &Survey) -> Value {
    json!({
        "node": name,
        "reachable": true,
        "directory": survey.directory.to_string_lossy(),
        "file_system": survey.file_system,
        "owner": survey.owner,
        "mode": format!("{:04o}", survey.mode),
        "inotify": survey.has_inotify,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_and_a_lack_of_inotify_are_warnings() {
        let fit = Survey {
            directory: "/run/rlock".into(),
            file_system: "tmpfs".to_owned(),
            is_network: false,
            owner: 0,
            mode: 0o700,
            has_inotify: true,
        };
        assert!(judge(&fit, None).is_empty());
        assert_eq!(text(&fit), "directory /run/rlock, on tmpfs, of uid 0, mode 0700");
        for (survey, word) in [
            (Survey { is_network: true, file_system: "nfs".to_owned(), ..fit.clone() }, "on nfs"),
            (Survey { has_inotify: false, ..fit.clone() }, "inotify"),
        ] {
            let findings = judge(&survey, None);
            assert_eq!(findings.len(), 1);
            assert!(findings[0].level == Level::Warn && findings[0].what.contains(word), "{findings:?}");
        }
    }
}
