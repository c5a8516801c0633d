//! A lock that is lost while it is held: the command is dead before another client can hold it, and
//! rlock says why.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Finished, Running, Server, alive, eventually, is_killed, lasts, rlock, runs};

const TTL: Duration = Duration::from_secs(3);

/// A script that prints its own pid and its child's, and then sleeps in both. TERM ends neither.
const STUBBORN: &str =
    "trap '' TERM; sleep 60 & echo child $!; echo self $$; echo ready; wait; sleep 60";

/// A script that ends on TERM, and prints that.
const OBEDIENT: &str =
    "trap 'echo terminated; exit 7' TERM; echo ready; while :; do sleep 0.1; done";

struct Job {
    rlock: Running,
    processes: Vec<i32>,
}

fn stubborn(server: &Server, options: &[&str]) -> Job {
    let mut rlock = rlock("job")
        .on(server)
        .args(options)
        .args(["--", "sh", "-c", STUBBORN])
        .spawn();
    let processes = vec![rlock.wait_for_pid("child"), rlock.wait_for_pid("self")];
    rlock.wait_for("ready");
    Job { rlock, processes }
}

impl Job {
    /// Waits for the end, and checks that no process of the command is left by then.
    fn lost(self) -> Finished {
        let finished = self.rlock.finish().code(79);
        for pid in self.processes {
            assert!(!alive(pid), "{pid} outlived the lock");
        }
        finished
    }
}

#[test]
fn a_key_that_was_replaced_leaves_no_grace_and_the_new_owner_its_key() {
    let server = Server::start();
    let job = stubborn(&server, &["--ttl", "9s"]);
    let begin = Instant::now();
    server.cli(&["SET", "job", "somebody else", "PX", "60000"]);
    job.lost().said(&[
        "rlock: job: lost the lock",
        "redis+unix://",
        "another client has the key",
        "killed",
    ]);
    // Without a renewal that succeeds, its first signal would come after seven seconds.
    assert!(
        begin.elapsed() < Duration::from_secs(6),
        "noticed at the next renewal, after three seconds: {:?}",
        begin.elapsed()
    );
    assert_eq!(server.cli(&["GET", "job"]), "somebody else");
}

#[test]
fn a_key_that_was_deleted_is_shielded_until_the_command_is_dead() {
    let server = Server::start();
    let time = ["--ttl", "9s", "--kill-after", "3s"];
    let job = rlock("job").on(&server).args(time).hold(
        "trap 'while redis-cli -s ${RLOCK_NODE#redis+unix://} exists job | grep -q 0; do :; done; echo shielded; exit 7' TERM
         echo ready; while :; do sleep 0.1; done",
    );
    server.cli(&["DEL", "job"]);
    let finished =
        job.finish()
            .code(79)
            .mentions(&["lost the lock", "the key is gone", "being stopped"]);
    assert!(finished.stdout.contains(&"shielded".to_owned()));
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_command_that_ignores_term_is_killed_after_its_grace() {
    let server = Server::start();
    let job = stubborn(&server, &["--ttl", "3s", "--kill-after", "300ms"]);
    server.cli(&["DEL", "job"]);
    job.lost().mentions(&["the key is gone"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_server_that_stopped_answering_costs_the_command_its_life_within_the_lease() {
    let server = Server::start();
    let job = stubborn(&server, &["--ttl", "3s"]);
    server.freeze();
    let ran = lasts(|| job.processes.iter().any(|pid| runs(*pid)));
    assert!(ran < TTL, "{ran:?}");
    let finished = job.lost();
    assert_eq!(
        finished.stderr.matches("renewals have failed for").count(),
        1,
        "{}",
        finished.stderr
    );
    finished.mentions(&[
        "unless one succeeds\nrlock: job: lost the lock: it could not be renewed in time",
        "no answer within",
        "being stopped",
    ]);
    server.thaw();
    // The release was written before rlock ended.
    eventually("the key is gone", || server.cli(&["EXISTS", "job"]) == "0");
}

#[test]
fn a_server_that_came_back_empty_is_noticed_at_once() {
    let mut server = Server::start();
    let job = rlock("job")
        .on(&server)
        .args(["--ttl", "60s"])
        .hold(OBEDIENT);
    server.crash();
    server.come_back();
    let begin = Instant::now();
    let finished = job.finish().code(79).mentions(&["the key is gone"]);
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "{:?}",
        begin.elapsed()
    );
    assert!(finished.stdout.contains(&"terminated".to_owned()));
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_lock_that_passed_on_while_the_server_was_away_is_not_taken_back() {
    let mut server = Server::start();
    let job = stubborn(&server, &["--ttl", "6s"]);
    server.crash();
    // rlock is stopped meanwhile, so that it cannot reach the server between its start and this
    // write.
    job.rlock.signal(Signal::SIGSTOP);
    server.come_back();
    server.cli(&["SET", "job", "new owner"]);
    job.rlock.signal(Signal::SIGCONT);
    job.lost().mentions(&["another client has the key"]);
    assert_eq!(server.cli(&["GET", "job"]), "new owner");
}

#[test]
fn a_server_that_never_comes_back_is_79_too() {
    let mut server = Server::start();
    let job = stubborn(&server, &["--ttl", "1500ms"]);
    server.crash();
    let begin = Instant::now();
    job.lost()
        .mentions(&["could not be renewed in time", "cannot connect"]);
    assert!(begin.elapsed() < Duration::from_secs(8));
}

#[test]
fn warn_lets_the_command_go_on_and_says_so() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args(["--ttl", "900ms", "--on-lost", "warn"])
        .stdin(Stdio::piped())
        .hold("trap 'echo terminated' TERM; echo ready; read line; exit 5");
    server.cli(&["SET", "job", "somebody else"]);
    job.wait_until_told("goes on");
    drop(job.stdin.take());
    let finished =
        job.finish()
            .code(79)
            .said(&["another client has the key", "goes on", "may not be alone"]);
    assert!(!finished.stdout.contains(&"terminated".to_owned()));
    assert_eq!(server.cli(&["GET", "job"]), "somebody else");
}

#[test]
fn a_loss_that_is_found_at_the_end_only_is_79_unless_the_command_complains_itself() {
    let server = Server::start();
    for (code, outcome) in [(0, 79), (3, 3)] {
        let script = format!(
            "redis-cli -s ${{RLOCK_NODE#redis+unix://}} set job other >/dev/null; exit {code}"
        );
        let finished = rlock("job").on(&server).sh(&script).code(outcome);
        finished.said(&[
            "job",
            "belonged to another client when the command had ended",
        ]);
        assert_eq!(server.cli(&["GET", "job"]), "other");
        server.cli(&["DEL", "job"]);
    }
}

#[test]
fn the_first_signal_is_the_one_that_was_asked_for() {
    let server = Server::start();
    let job = rlock("job")
        .on(&server)
        .args(["--ttl", "9s", "--kill-after", "3s", "--signal", "INT"])
        .hold("trap 'echo interrupted; exit 1' INT; echo ready; while :; do sleep 0.1; done");
    server.cli(&["DEL", "job"]);
    assert!(
        job.finish()
            .code(79)
            .stdout
            .contains(&"interrupted".to_owned())
    );
}

#[test]
fn a_stopped_command_is_killed_like_a_running_one() {
    let server = Server::start();
    let mut job = rlock("job")
        .on(&server)
        .args([
            "--ttl",
            "1500ms",
            "--",
            "sh",
            "-c",
            "echo self $$; kill -STOP $$; echo woke",
        ])
        .spawn();
    let pid = job.wait_for_pid("self");
    server.freeze();
    let ran = lasts(|| !is_killed(pid));
    assert!(ran < Duration::from_millis(1500), "{ran:?}");
    job.finish().code(79);
}

#[test]
fn a_user_who_loses_its_rights_while_it_holds_is_79_within_the_lease() {
    let server = Server::tcp(&[]);
    server.cli(&["ACL", "SETUSER", "u", "on", ">pw", "~*", "+@all"]);
    let url = format!("redis://u@127.0.0.1:{}", server.port());
    let job = rlock("job")
        .node(&url)
        .env("RLOCK_PASSWORD", "pw")
        .args(["--ttl", "1500ms"])
        .hold(&format!("echo self $$; {OBEDIENT}"));
    server.cli(&["ACL", "DELUSER", "u"]);
    let command = job.seen_pids(&["self"])[0];
    let ran = lasts(|| runs(command));
    assert!(ran < Duration::from_millis(1500), "{ran:?}");
    let finished = job.finish().code(79);
    finished.mentions(&[
        "could not be renewed in time",
        "the user or the password is wrong",
    ]);
}
