//! The size of requests: what a waiter may write to a server that hangs must be read at once.

use super::*;

/// A waiter may write to a server that hangs: a request for the lock, the release behind it, and the release by which it
/// leaves. Redis 6.2 reads 16 KiB of that, and no more of a client that has gone. The rest is for a key and a note of usual
/// length.
#[test]
fn a_request_and_both_releases_fit_into_what_a_server_reads_at_once() {
    const ARGUMENTS: usize = 2048;
    for (request, release) in
        [(ACQUIRE_NEWEST, RELEASE), (ACQUIRE_AS_REDISSON, RELEASE_AS_REDISSON), (JOIN_NEWEST, LEAVE)]
    {
        let size = request.len() + 2 * release.len() + ARGUMENTS;
        assert!(size <= 16 * 1024, "{size} bytes");
    }
}

/// The same with a key, a host, a user and a note of usual length.
#[test]
fn a_waiters_requests_with_its_user_and_note_fit_too() {
    let note = Some("https://ci.example.com/deploy/web/-/jobs/1234567890".to_owned());
    let came = Some(1_795_270_471_061_520);
    let guard = Some(Duration::from_secs(30));
    for (mode, index, key, supersedes, min_uptime) in [
        (Mode::Exclusive, 0, "deploy-production", came, guard),
        (Mode::Slots(16), 9, "deploy-production", None, guard),
        (Mode::Slots(16), 9, "job", came, None),
    ] {
        let (host, user) = ("runner-x7k2-project-482".to_owned(), "deploy".to_owned());
        let (pid, since) = (4_194_303, 1_795_270_471_061);
        let waiter = Waiter { id: Uuid::new_v4(), host, pid, since, mode, user, note: note.clone() };
        let ticket = Ticket { waiter: waiter.clone(), number: 1_795_270_471_061_520, supersedes };
        let Waiter { host, user, note, .. } = waiter.clone();
        let cmd = "deploy.sh".to_owned();
        let details =
            Details { mode, host, pid: Some(pid), user, since, cmd, note, ttl: 30_000, n: 3, ..Details::default() };
        let (ticket, waits) = (Some(ticket), claim(key, false));
        let fence_hint = 1_795_270_471_061_520;
        let claim = Claim { details: details.fitted(), ticket: ticket.clone(), fence_hint, index, min_uptime, ..waits };
        let releases = ticket.map(QueueAction::Keep).into_iter().chain([QueueAction::Leave(waiter)]);
        let releases = releases.map(|queue| release::command(&claim.release(queue)));
        let size: usize =
            std::iter::once(claim::usual(&claim)).chain(releases).map(|cmd| cmd.get_packed_command().len()).sum();
        assert!(size <= 16 * 1024, "{size} bytes");
    }
}

#[test]
fn scripts_are_sent_without_what_only_people_read() {
    for script in [
        ACQUIRE_NEWEST,
        JOIN_NEWEST,
        ANNOUNCE,
        ACQUIRE,
        JOIN,
        RENEW,
        HEAL,
        TOMBSTONE,
        FORCE_DELETE,
        DELETE_FOREIGN,
        OBSERVE,
        RELEASE,
        LEAVE,
    ] {
        let is_code = |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.starts_with("--");
        assert!(script.ends_with('\n') && script.lines().all(is_code), "{script}");
    }
}
