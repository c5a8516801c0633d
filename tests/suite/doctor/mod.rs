//! `doctor`: it names each fault of a set of nodes, and calls a set without a fault fit.

mod line;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Certificates, Finished, RLOCK, Rlock, STEADY, Server, eventually, renewed, rlock, rlock_words,
};

fn doctor(node: &str) -> Rlock {
    rlock_words(["doctor"]).node(node)
}

/// Starts a server without a fault.
fn good() -> Server {
    Server::with(&["--appendonly", "yes"])
}

fn joined(servers: &[&Server]) -> String {
    servers
        .iter()
        .map(|server| server.url())
        .collect::<Vec<_>>()
        .join(",")
}

trait Told {
    fn tells(self, words: &[&str]) -> Self;
}

impl Told for Finished {
    /// Checks that all these words are in its stdout, and that its stderr is empty.
    #[track_caller]
    fn tells(self, words: &[&str]) -> Self {
        let text = self.stdout.join("\n");
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {text}");
        }
        self.silent()
    }
}

#[test]
fn good_nodes_are_fit_and_nothing_is_changed() {
    let server = good();
    let before = server.cli(&["INFO", "keyspace"]);
    doctor(&server.url()).finish().code(0).tells(&[
        "NODE",
        "master",
        "aof everysec",
        "noeviction",
        "verdict: fit",
    ]);
    assert_eq!(server.cli(&["INFO", "keyspace"]), before);

    let servers = [good(), good(), good()];
    let nodes = joined(&servers.iter().collect::<Vec<_>>());
    doctor(&nodes)
        .args(["--restart-guard", "off"])
        .finish()
        .code(0)
        .tells(&["verdict: fit"]);
    // No lock is granted yet, and `run -n` ends so too.
    rlock("job")
        .node(&nodes)
        .args(["-n"])
        .command(["true"])
        .code(69);
    doctor(&nodes).finish().code(69).tells(&[
        "it restarted",
        "counts again in",
        "unfit: ",
        "not fit",
    ]);
}

#[test]
fn the_schema_is_that_of_the_design() {
    let server = Server::start();
    let finished = doctor(&server.url())
        .args(["--json"])
        .finish()
        .code(1)
        .silent();
    let told: Value = serde_json::from_str(&finished.stdout.join("\n")).expect("an object");
    assert_eq!(told["verdict"], "warn");
    assert_eq!(
        (&told["nodes"][0]["node"], &told["nodes"][0]["role"]),
        (&server.url().into(), &"master".into())
    );
    let finding = &told["findings"][0];
    assert_eq!(
        (&finding["node"], &finding["level"]),
        (&server.url().into(), &"warn".into())
    );
    assert!(
        finding["what"]
            .as_str()
            .is_some_and(|what| what.contains("append-only")),
        "{told}"
    );
    assert_eq!(
        finding["remedy"],
        "CONFIG SET appendonly yes, and CONFIG REWRITE"
    );
}

#[test]
fn eviction_and_no_persistence_are_warnings() {
    let server = Server::with(&["--maxmemory-policy", "allkeys-lru"]);
    let words = [
        "allkeys-lru can evict",
        "once maxmemory is set",
        "no append-only file",
        "see the warnings",
    ];
    doctor(&server.url()).finish().code(1).tells(&words);
}

#[test]
fn a_replica_is_unfit_and_its_primary_is_warned_of_it() {
    let primary = Server::tcp(&["--appendonly", "yes"]);
    let replica = Server::tcp(&["--appendonly", "yes", "--repl-diskless-sync-delay", "0"]);
    replica.cli(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    eventually("it is in step", || {
        replica
            .cli(&["INFO", "replication"])
            .contains("master_link_status:up")
    });
    doctor(&replica.url())
        .finish()
        .code(69)
        .tells(&["it is a replica", "not fit"]);
    doctor(&primary.url())
        .finish()
        .code(1)
        .tells(&["it has a replica", "failover"]);
    doctor(&joined(&[&primary, &replica]))
        .finish()
        .code(78)
        .tells(&["has the same data as", "independent"]);
}

#[test]
fn certificates_that_end_soon_and_servers_without_a_password_are_warnings() {
    let week = Certificates::ending_in(Duration::from_secs(7 * 24 * 3600 - 60));
    let Some(server) = Server::tls(&week) else {
        return;
    };
    server.cli(&["CONFIG", "SET", "appendonly", "yes"]);
    let path = |name: &str| week.file(name).display().to_string();
    let url = format!("rediss://127.0.0.1:{}", server.port());
    let with_tls = || doctor(&url).args(["--ca", &path("ca.pem")]);
    let told = with_tls().finish().code(1);
    assert!(
        !told.stdout.concat().contains("--cert"),
        "{:?}",
        told.stdout
    );
    told.tells(&[
        "warn: ",
        "its certificate ends within 7 days; replace it on the server",
    ]);
    with_tls()
        .args([
            "--cert",
            &path("client.pem"),
            "--cert-key",
            &path("client.key"),
        ])
        .finish()
        .code(1)
        .tells(&["the certificate of --cert ends within 7 days"]);

    // The kernel takes this for the machine itself, and doctor for any address.
    let server = Server::tcp(&["--appendonly", "yes"]);
    let url = server.tcp_url().replace("127.0.0.1", "0.0.0.0");
    let told = "lets any client write that reaches it, without a password";
    doctor(&url).finish().code(1).tells(&[told]);
    doctor(&server.tcp_url()).finish().code(0);
    server.cli(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"]);
    let of_user = || {
        doctor(&url.replace("://", "://app@"))
            .env("RLOCK_PASSWORD", "pw")
            .finish()
    };
    of_user().code(1).tells(&[told]);
    server.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    of_user().code(0);
}

#[test]
fn the_same_server_twice_is_unfit() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    doctor(&format!("{},{}", server.url(), server.tcp_url()))
        .finish()
        .code(78)
        .tells(&["is the same server as"]);
}

#[test]
fn a_clock_that_is_wrong_is_told_from_those_that_are_right() {
    let wrong = Server::ahead(60);
    doctor(&wrong.url()).finish().code(1).tells(&[
        "its clock is 1m",
        "ahead of this machine's",
        "chrony",
    ]);
    let right = [good(), good()];
    let nodes = joined(&[&right[0], &wrong, &right[1]]);
    let told = doctor(&nodes)
        .args(["--restart-guard", "off"])
        .finish()
        .code(1);
    let complaints: Vec<&String> = told
        .stdout
        .iter()
        .filter(|line| line.contains("its clock is"))
        .collect();
    assert!(
        complaints.len() == 1 && complaints[0].contains(&wrong.url()),
        "{complaints:?}"
    );
    let behind = Server::ahead(-60);
    doctor(&behind.url())
        .finish()
        .code(1)
        .tells(&["behind this machine's"]);
}

#[test]
fn rights_that_are_missing_are_named() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    let url = server.tcp_url().replace("://", "://weak@");
    let told = || doctor(&url).env("RLOCK_PASSWORD", "pw").finish();
    server.cli(&[
        "ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-eval",
    ]);
    told().code(77).tells(&[
        "may not use eval",
        "not fit",
        "ACL SETUSER weak on {>PASSWORD} resetkeys ~* resetchannels &rlock:wake:* -@all +eval",
    ]);
    server.cli(&["ACL", "SETUSER", "weak", "+eval", "-info"]);
    told().code(1).tells(&["warn: ", "may not use info"]);
    server.cli(&["ACL", "SETUSER", "weak", "+info", "-zadd", "-zrank"]);
    told()
        .code(1)
        .tells(&["warn: ", "may not use zadd, zrank: waiters"]);
    server.cli(&["ACL", "SETUSER", "weak", "+zadd", "+zrank", "resetchannels"]);
    told()
        .code(1)
        .tells(&["warn: ", "may not use the channels &rlock:wake:*"]);
    server.cli(&["ACL", "SETUSER", "weak", "-info", "&rlock:wake:*"]);
    let other = Server::with(&["--appendonly", "yes"]);
    let both = format!("{url},{}", other.url());
    let pair = || {
        doctor(&both)
            .env("RLOCK_PASSWORD", "pw")
            .args(["--restart-guard", "off"])
            .finish()
    };
    // The other server has no password, so that a password is one fault more.
    pair().code(77).tells(&[
        "the user or the password is wrong",
        "may not use info",
        "cannot be told",
    ]);
    server.cli(&["ACL", "SETUSER", "weak", "+info", "resetkeys", "~x"]);
    doctor(&url)
        .env("RLOCK_PASSWORD", "pw")
        .args(["-k", "job"])
        .finish()
        .code(77)
        .tells(&["may not use the keys of job"]);
}

#[test]
fn a_wrong_password_and_none_are_77() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let told = doctor(&server.tcp_url())
        .env("RLOCK_PASSWORD", "hunter3")
        .finish()
        .code(77);
    told.tells(&["the user or the password is wrong", "not fit"]);
    let told = doctor(&server.tcp_url())
        .finish()
        .code(77)
        .tells(&["NOAUTH"]);
    assert!(!told.stdout.join("\n").contains("may not use"));
    doctor(&server.tcp_url())
        .env("RLOCK_PASSWORD", "hunter2")
        .finish()
        .code(1);
}

#[test]
fn a_hung_node_is_a_warning_among_three_and_69_alone() {
    let servers = [good(), good(), good()];
    servers[1].freeze();
    let nodes = joined(&servers.iter().collect::<Vec<_>>());
    let told = doctor(&nodes)
        .args(["--restart-guard", "off"])
        .finish()
        .code(1)
        .within(Duration::from_secs(4));
    told.tells(&["away", "no answer within 1s", &servers[1].url()]);
    doctor(&servers[1].url())
        .finish()
        .code(69)
        .tells(&["no answer within 1s", "not fit"]);
    doctor("redis://127.0.0.1:1")
        .finish()
        .code(69)
        .tells(&["cannot connect"]);
}

/// Returns the words of the line that grants the rights for the lock `job`.
pub(crate) fn granted(node: &str) -> Vec<String> {
    let told = doctor(node).args(["-k", "job", "--json"]).finish();
    let told: Value = serde_json::from_str(&told.stdout.join("\n")).expect("an object");
    let line = told["acl"]
        .as_str()
        .expect("a line")
        .replace("{>PASSWORD}", ">pw");
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn a_user_with_the_rights_of_the_line_can_do_everything() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    let line = granted(&server.url());
    assert_eq!(
        server.cli(&line.iter().map(String::as_str).collect::<Vec<_>>()),
        "OK"
    );
    let node = server.tcp_url().replace("://", "://rlock@");
    let verb = |words: &[&str]| {
        rlock_words([words[0]])
            .node(&node)
            .env("RLOCK_PASSWORD", "pw")
            .args(&words[1..])
    };
    let in_run = format!("{RLOCK} check && {RLOCK} run -k job -- echo nested");
    rlock("job")
        .node(&node)
        .env("RLOCK_PASSWORD", "pw")
        .sh(&in_run)
        .code(0)
        .silent()
        .printed(&["nested"]);
    // With a restart guard rlock asks the server for its uptime.
    let held = verb(&["run", "-k", "job", "--restart-guard", "1ms", "-q"])
        .args(STEADY)
        .hold("echo ready; read line");
    renewed([&server]);
    held.finish().silent();
    let token = verb(&["acquire", "-k", "job"])
        .finish()
        .code(0)
        .silent()
        .stdout
        .remove(0);
    let waiter = verb(&["run", "-k", "job", "--", "true"]).spawn();
    eventually("it stands in line", || {
        server.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
    });
    verb(&["inspect", "job"])
        .finish()
        .code(0)
        .silent()
        .tells(&["1 waits"]);
    for step in ["renew", "check", "release"] {
        verb(&[step, "-k", "job", "--token", &token])
            .finish()
            .code(0)
            .silent();
    }
    waiter.finish().code(0).silent();
    let run = || verb(&["run", "-k", "job", "--ttl", "2s"]).hold("echo ready; exec sleep 60");
    let held = run();
    verb(&["inspect", "job"]).finish().code(0).silent();
    verb(&["inspect"]).finish().code(0).silent();
    verb(&["run", "-k", "job", "-n", "true"]).finish().code(75);
    verb(&["break", "job", "-y", "-q"])
        .finish()
        .code(0)
        .silent();
    held.finish().code(79);
    // The key is deleted by hand: rlock sets it again until the command is dead.
    let held = run();
    server.cli(&["DEL", "job"]);
    held.finish()
        .code(79)
        .mentions(&["the key is gone", "being stopped"]);
    let held = run();
    verb(&["break", "job", "-y", "-q", "--now"])
        .finish()
        .code(0)
        .silent();
    held.finish().code(79);
    server.cli(&["HSET", "job", "a", "b"]);
    verb(&["break", "job", "-y", "-q", "--foreign"])
        .finish()
        .code(0)
        .silent();
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
    verb(&["doctor", "-k", "job"])
        .finish()
        .code(0)
        .tells(&["verdict: fit"]);
    // The user has no other right.
    verb(&["run", "-k", "other", "true"]).finish().code(77);
    for refused in [
        &["KEYS", "*"][..],
        &["FLUSHALL"],
        &["CONFIG", "GET", "requirepass"],
        &["CONFIG", "SET", "appendonly", "no"],
        &["ACL", "LIST"],
    ] {
        let said = server.cli_as(&["rlock", "pw"], refused);
        assert!(said.contains("no permissions"), "{refused:?}: {said}");
    }
}

#[test]
fn each_right_of_the_line_is_missed_when_it_is_taken_away() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    let line = granted(&server.url());
    assert_eq!(
        server.cli(&line.iter().map(String::as_str).collect::<Vec<_>>()),
        "OK"
    );
    let node = server.tcp_url().replace("://", "://rlock@");
    // Since Redis 6.2 no user can be kept from HELLO.
    for right in line
        .iter()
        .filter_map(|word| word.strip_prefix('+'))
        .filter(|right| *right != "hello")
    {
        // Before Redis 7 a subcommand can be granted, but not revoked.
        let taken = right.split('|').next().unwrap_or(right);
        assert_eq!(
            server.cli(&["ACL", "SETUSER", "rlock", &format!("-{taken}")]),
            "OK"
        );
        let told = doctor(&node).env("RLOCK_PASSWORD", "pw").finish();
        let text = told.stdout.join("\n");
        assert!(
            text.contains(&format!("may not use {right}")),
            "{right} is not missed: {text}"
        );
        assert_eq!(
            server.cli(&["ACL", "SETUSER", "rlock", &format!("+{right}")]),
            "OK"
        );
    }
}

/// CONFIG GET would show the server's passwords, and a pattern with `*` for the kind would reach
/// counters of other locks.
#[test]
fn the_line_opens_neither_the_servers_passwords_nor_other_locks() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    let line = granted(&server.url());
    assert_eq!(
        server.cli(&line.iter().map(String::as_str).collect::<Vec<_>>()),
        "OK"
    );
    let words = ["--acl", "--pattern", "deploy-*"];
    let url = server.tcp_url().replace("://", "://deployer@");
    let told = doctor(&url).args(words).finish().stdout;
    line::admit(&server, &told, "deployer");
    let as_user = |user: &str, words: &[&str]| server.cli_as(&[user, "pw"], words);
    for secret in ["requirepass", "masterauth", "*"] {
        assert!(
            as_user("rlock", &["CONFIG", "GET", secret]).contains("no permissions"),
            "{secret}"
        );
    }
    for kind in ["fence", "leases", "holders", "last", "queue", "turns"] {
        let own = format!("rlock:{kind}:{{deploy-1}}:deploy-1");
        assert_eq!(as_user("deployer", &["TYPE", &own]), "none");
        for foreign in [
            "{prod:deploy-1}:prod:deploy-1",
            "{other}:other",
            "{deploy-1}:prod{deploy-1}",
        ] {
            let said = as_user("deployer", &["TYPE", &format!("rlock:{kind}:{foreign}")]);
            assert!(said.contains("NOPERM"), "{kind} {foreign}: {said}");
        }
    }
    let run = |key: &str| {
        rlock(key)
            .node(&server.tcp_url().replace("://", "://deployer@"))
            .env("RLOCK_PASSWORD", "pw")
    };
    run("deploy-1").command(["true"]).code(0).silent();
    run("prod:deploy-1").command(["true"]).code(77);
}

/// Checks what doctor says of a server that refuses to set keys, and that `run` ends there with 69
/// as well.
fn sets_no_key(server: &Server, words: &[&str]) {
    rlock("job")
        .on(server)
        .args(["-n"])
        .command(["true"])
        .code(69);
    let all: Vec<&str> = [&["unfit: ", "not fit"], words].concat();
    doctor(&server.url()).finish().code(69).tells(&all);
    // Among three nodes it is a missing vote.
    let others = [good(), good()];
    let nodes = joined(&[server, &others[0], &others[1]]);
    let told = doctor(&nodes)
        .args(["--restart-guard", "off"])
        .finish()
        .code(1);
    told.tells(&[&["warn: ", "see the warnings"], words].concat());
}

#[test]
fn a_server_that_is_out_of_memory_is_unfit() {
    let server = good();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    sets_no_key(&server, &["it sets no key: OOM", "raise its maxmemory"]);
}

#[test]
fn a_server_that_lacks_replicas_is_unfit() {
    let server = Server::with(&["--appendonly", "yes", "--min-replicas-to-write", "1"]);
    sets_no_key(
        &server,
        &["it sets no key: NOREPLICAS", "restart its replicas"],
    );
}

#[test]
fn a_server_whose_snapshot_failed_is_unfit_if_it_refuses_writes_for_that() {
    let server = Server::with(&["--appendonly", "yes"]);
    server.cli(&["CONFIG", "SET", "save", "3600 1"]);
    // The obstacle is a directory, which even root cannot write to.
    std::fs::create_dir(server.socket().with_file_name("dump.rdb")).expect("a directory");
    server.cli(&["BGSAVE"]);
    eventually("it failed", || {
        server
            .cli(&["INFO", "persistence"])
            .contains("rdb_last_bgsave_status:err")
    });
    sets_no_key(&server, &["it sets no key: MISCONF", "BGSAVE"]);
    server.cli(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    rlock("job")
        .on(&server)
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
    doctor(&server.url())
        .finish()
        .code(0)
        .tells(&["verdict: fit"]);
}

#[test]
fn a_cluster_without_its_slots_is_unfit() {
    let server = Server::with(&["--appendonly", "yes", "--cluster-enabled", "yes"]);
    sets_no_key(&server, &["it sets no key: CLUSTERDOWN", "CLUSTER INFO"]);
}

#[test]
fn a_minority_that_refuses_us_is_a_warning_with_its_own_cure() {
    let servers = [
        good(),
        good(),
        Server::tcp(&["--appendonly", "yes", "--requirepass", "hunter2"]),
    ];
    let nodes = [servers[0].url(), servers[1].url(), servers[2].tcp_url()];
    let told = doctor(&nodes.join(","))
        .args(["--restart-guard", "off"])
        .finish()
        .code(1);
    told.tells(&[
        "warn: ",
        &nodes[2],
        "  refused",
        "NOAUTH",
        "give the password that the server knows",
        "see the warnings",
    ]);
}

#[test]
fn a_local_lock_is_fit_where_its_directory_is() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o750)).expect("its mode");
    let node = format!("local:{}", dir.path().display());
    let place = format!("directory {}, on ", dir.path().display());
    doctor(&node)
        .finish()
        .code(0)
        .tells(&["verdict: fit", &place, "mode 0750"]);
    let told = doctor(&node)
        .args(["--json"])
        .finish()
        .code(0)
        .stdout
        .join("");
    let told: Value = serde_json::from_str(&told).expect("an object");
    let shown = &told["nodes"][0];
    assert_eq!(
        (&shown["directory"], &shown["mode"]),
        (&json!(dir.path()), &json!("0750"))
    );
    assert!(
        shown["file_system"].is_string() && shown["owner"].is_u64(),
        "{shown}"
    );
    doctor("local:/dev/null").finish().code(78);
}

#[test]
fn bad_input_is_64() {
    for (words, flag) in [
        (&["--ttl", "1ms"][..], "--ttl"),
        (&["-k", ""], "--key"),
        (&["--restart-guard", "x"], "--restart"),
    ] {
        doctor("redis://127.0.0.1:1")
            .args(words)
            .finish()
            .code(64)
            .said(&[flag])
            .printed(&[]);
    }
}
