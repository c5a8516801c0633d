//! Variables for the `rlock release` that a guard becomes: the same locks on the same nodes.

use super::LockSettings;
use crate::cli::LockArgs;
use crate::config::Choice;
use crate::job::handback::HandBack;
use crate::node::address::Secret;
use crate::node::place::Way;
use crate::text::duration;

/// Returns the locks and the nodes as typed, with the passwords of their addresses, and how to reach the nodes. A password
/// from elsewhere than an address is handed over as read: its file may be gone by then. `None` for a lock on this machine
/// alone, which the guard holds by a descriptor, and for one that is to stay after a loss.
pub(super) fn of(args: &LockArgs, lock: &LockSettings) -> Option<HandBack> {
    // With --lock-delay the lock outlasts a killed rlock: it ends by itself.
    if lock.place.local().is_some() || !lock.schedule.term().lock_delay().is_zero() {
        return None;
    }
    let limit = duration::show(lock.schedule.node_timeout());
    // Files must not add to what was in force, or have changed meanwhile.
    let mut whole = HandBack::of(&lock.keys)?
        .with("RLOCK_CONFIG", Choice::NOTHING.as_ref())?
        .with("RLOCK_PREFIX", args.nodes.prefix.as_ref())?
        .with("RLOCK_NODE", args.nodes.node.join(",").as_ref())?;
    let files =
        [("RLOCK_CA", &args.nodes.ca), ("RLOCK_CERT", &args.nodes.cert), ("RLOCK_CERT_KEY", &args.nodes.cert_key)];
    for (name, file) in files {
        if let Some(file) = file {
            whole = whole.with(name, std::path::absolute(file).ok()?.as_ref())?;
        }
    }
    if let Some(name) = &args.nodes.tls_server_name {
        whole = whole.with("RLOCK_TLS_SERVER_NAME", name.to_str().as_ref().as_ref())?;
    }
    whole = whole.with("RLOCK_NODE_TIMEOUT", limit.as_ref())?;
    let servers = lock.place.servers();
    let login = servers.iter().find_map(Way::sentinel_login);
    let password = |name, password: Option<&Secret>| password.map(|password| (name, password.reveal().to_owned()));
    let secrets = [
        password("RLOCK_PASSWORD", servers.iter().find_map(Way::password_from_elsewhere)),
        login.and_then(|login| Some(("RLOCK_SENTINEL_USER", login.user.clone()?))),
        login.and_then(|login| password("RLOCK_SENTINEL_PASSWORD", login.password.as_ref())),
    ];
    secrets.into_iter().flatten().try_fold(whole, |whole, (name, value)| whole.with(name, value.as_ref()))
}

#[cfg(test)]
mod tests {
    use crate::cli::{self, Command, Parsed};
    use crate::settings::RunSettings;

    fn hand_back(words: &[&str]) -> Option<String> {
        let all = ["rlock", "run", "-k", "job"].iter().chain(words).chain(&["true"]).map(Into::into).collect();
        let Ok(Some(Parsed { cli, sources, .. })) = cli::parse(all) else { panic!("{words:?}") };
        let Command::Run(args) = cli.command else { panic!("{words:?}") };
        let settings = RunSettings::new(*args.0, &sources).unwrap_or_else(|failure| panic!("{failure}"));
        settings.hand_back.map(|entries| String::from_utf8(entries.bytes().to_vec()).unwrap())
    }

    #[test]
    fn a_release_is_told_the_lock_and_its_nodes_with_their_passwords() {
        let told = hand_back(&["--prefix", "p:", "--node", "redis://u:pw@h,redis://g", "--ttl", "1234ms"]);
        let wanted = "RLOCK_KEY=job\0RLOCK_CONFIG=none\0RLOCK_PREFIX=p:\0RLOCK_NODE=redis://u:pw@h,redis://g\0RLOCK_NODE_TIMEOUT=61ms700us\0";
        assert_eq!(told.as_deref(), Some(wanted));
    }

    #[test]
    fn a_password_of_a_file_is_told_as_it_was_read() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "hunter2\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let path = file.path().display().to_string();
        let told = hand_back(&["--password-file", &path, "--node", "redis://h"]).unwrap();
        assert!(told.ends_with("RLOCK_PASSWORD=hunter2\0") && !told.contains(&path), "{told:?}");
    }

    #[test]
    fn a_release_is_told_where_the_certificates_are() {
        let words =
            ["--node", "redis://h", "--cert", "c.pem", "--cert-key", "/k.pem", "--tls-server-name", "db.example"];
        let told = hand_back(&words).unwrap();
        assert!(told.contains("/c.pem\0RLOCK_CERT_KEY=/k.pem\0RLOCK_TLS_SERVER_NAME=db.example\0"), "{told:?}");
    }

    #[test]
    fn a_lock_of_this_machine_is_given_back_by_no_release() {
        assert_eq!(hand_back(&["--node", "local"]), None);
    }

    #[test]
    fn a_lock_that_is_to_stay_after_a_loss_is_given_back_by_no_release() {
        assert_eq!(hand_back(&["--node", "redis://h", "--lock-delay", "15s"]), None);
        assert!(hand_back(&["--node", "redis://h", "--lock-delay", "0s"]).is_some());
    }
}
