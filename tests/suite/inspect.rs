//! `inspect`: it shows holders and waiters, for people and for programs, and changes nothing.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    RLOCK, Rlock, Running, Server, Session, eventually, rlock, rlock_words, signal,
};

fn inspect(node: &str) -> Rlock {
    rlock_words(["inspect"]).node(node)
}

fn holder(server: &Server, key: &str) -> Running {
    rlock(key)
        .on(server)
        .args(["--note", "see wiki"])
        .hold("echo ready; read line; true")
}

/// Returns the array that `--json` prints.
fn seen(node: &str, words: &[&str], code: i32) -> Vec<Value> {
    let finished = inspect(node)
        .args(["--json"])
        .args(words)
        .finish()
        .code(code);
    serde_json::from_str(&finished.stdout.join("\n")).expect("an array")
}

fn keys(node: &str, words: &[&str]) -> Vec<String> {
    seen(node, words, 0)
        .iter()
        .map(|lock| lock["key"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn a_held_lock_is_shown_with_its_holder_and_a_free_one_is_1() {
    let server = Server::start();
    let job = holder(&server, "job");
    let shown = inspect(&server.url())
        .args(["job"])
        .finish()
        .code(0)
        .silent()
        .stdout;
    let pid = job.pid().to_string();
    let fence = server.cli(&["GET", "rlock:fence:{job}:job"]);
    assert_eq!(shown[0].split_whitespace().next(), Some("KEY"));
    for word in ["job", "tester@", &pid, "sh", "1/1", &fence, "see wiki"] {
        assert!(shown[1].contains(word), "{word} is missing in {shown:?}");
    }
    assert_eq!(shown.len(), 2, "{shown:?}");
    let free = inspect(&server.url())
        .args(["-k", "other"])
        .finish()
        .code(1)
        .silent()
        .stdout;
    assert!(free[1].contains("(free)"), "{free:?}");
    inspect(&server.url())
        .args(["other", "third"])
        .finish()
        .code(1);
    inspect(&server.url())
        .args(["other", "job"])
        .finish()
        .code(0);
    inspect(&server.url())
        .args(["other", "j*"])
        .finish()
        .code(0);
}

#[test]
fn the_schema_is_that_of_the_design() {
    let server = Server::start();
    let job = holder(&server, "job");
    let mut all = seen(&server.url(), &["job"], 0);
    let lock = all.remove(0);
    let token = server.cli(&["GET", "job"])[..36].to_owned();
    assert_eq!(lock["holder"]["token"], token.as_str());
    assert_eq!(lock["holder"]["pid"], job.pid());
    assert_eq!(lock["holders"], serde_json::json!([lock["holder"]]));
    assert!(lock["holder"]["since"].as_u64() > Some(1_600_000_000_000));
    assert!(
        lock["ttl_ms"]
            .as_u64()
            .is_some_and(|ttl| (20_000..=30_000).contains(&ttl)),
        "{lock}"
    );
    assert_eq!(
        lock["fence"].to_string(),
        server.cli(&["GET", "rlock:fence:{job}:job"])
    );
    let fields = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    for field in [
        "key", "state", "mode", "holder", "foreign", "ttl_ms", "fence", "votes", "nodes", "waiters",
    ] {
        assert!(
            fields(&lock).contains(&field.to_owned()),
            "{field} is missing in {lock}"
        );
    }
    for field in ["token", "host", "pid", "user", "cmd", "note", "since"] {
        assert!(
            fields(&lock["holder"]).contains(&field.to_owned()),
            "{field} is missing in {lock}"
        );
    }
    assert_eq!(lock["votes"], json!({ "held": 1, "needed": 1, "total": 1 }));
    assert_eq!(lock["waiters"], json!([]));
    let node = &lock["nodes"][0];
    assert_eq!(
        (&node["node"], &node["state"], &node["error"]),
        (&json!(server.url()), &json!("held"), &Value::Null)
    );
    assert_eq!(
        (&lock["state"], &lock["mode"], &lock["foreign"]),
        (&json!("held"), &json!("exclusive"), &json!(false))
    );

    let free = seen(&server.url(), &["nothing"], 1).remove(0);
    assert_eq!(
        (&free["state"], &free["holder"], &free["ttl_ms"]),
        (&json!("free"), &Value::Null, &Value::Null)
    );
}

#[test]
fn what_is_foreign_is_shown_as_such_and_nothing_raw_reaches_the_terminal() {
    let server = Server::start();
    server.cli(&["HSET", "hash", "a", "b"]);
    server.cli(&["SETRANGE", "large", "10485760", "x"]);
    server.cli(&["SET", "hostile", "\x1b]0;pwned\x07\u{202e}"]);
    server.cli(&[
        "SET",
        "liar",
        "5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f {\"host\":\"\\u001b[2J\u{202e}\",\"pid\":7}",
    ]);
    let names = ["hash", "large", "hostile", "liar"];
    let shown = inspect(&server.url())
        .args(names)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    for word in [
        "a hash",
        "10485761 bytes",
        "\\x1b]0;pwned\\x07",
        "\\x1b[2J",
        "(not rlock)",
        "for ever",
    ] {
        assert!(shown.contains(word), "{word} is missing in {shown}");
    }
    let raw = inspect(&server.url())
        .args(["--json"])
        .args(names)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(!shown.contains(['\x1b', '\u{202e}']) && !raw.contains(['\x1b', '\u{202e}']));
    let all: Vec<Value> = serde_json::from_str(&raw).expect("an array");
    assert_eq!(all[3]["holder"]["host"], "\x1b[2J\u{202e}");
    let foreign = all
        .iter()
        .map(|lock| lock["foreign"].as_bool())
        .collect::<Vec<_>>();
    assert_eq!(foreign, [Some(true), Some(true), Some(true), Some(false)]);
}

/// A client that may write one key chooses a lock's name, too.
#[test]
fn no_name_on_the_server_reaches_a_terminal_raw_in_any_format() {
    let server = Server::start();
    let name = "a\x1b[2J\x1b]0;p\x07\u{9b}b\u{202e}\n";
    server.cli(&["SET", &format!("rlock:fence:{{{name}}}:{name}"), "5"]);
    server.cli(&["SET", name, "6b29fc40-ca47-4067-b31d-00dd010662da {}"]);
    for format in ["table", "json", "openmetrics"] {
        let told = inspect(&server.url())
            .args(["--format", format])
            .finish()
            .code(0);
        let shown = told.stdout.join("\n") + &told.stderr;
        assert!(
            shown.contains("[2J"),
            "{format}: the lock is missing in {shown}"
        );
        let raw = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!shown.contains(raw), "{format}: {shown:?}");
    }
}

#[test]
fn all_locks_and_patterns_are_found_with_scan_and_never_with_keys() {
    let server = Server::start();
    server.cli(&[
        "EVAL",
        "for i = 1, 3000 do redis.call('SET', 'foreign:' .. i, i) end",
        "0",
    ]);
    let odd = "we}ird:{x";
    let _held: Vec<Running> = ["deploy-a", "deploy-b", "p:job", odd]
        .map(|key| holder(&server, key))
        .into();
    rlock("over").on(&server).command(["true"]).code(0);
    let node = server.url();
    let asked =
        server.monitored(|| assert_eq!(keys(&node, &[]), ["deploy-a", "deploy-b", "p:job", odd]));
    assert!(
        asked
            .iter()
            .any(|line| line.to_uppercase().contains("\"SCAN\"")),
        "{asked:?}"
    );
    assert!(
        !asked
            .iter()
            .any(|line| line.to_uppercase().contains("\"KEYS\"")),
        "{asked:?}"
    );
    assert_eq!(keys(&node, &["deploy-*"]), ["deploy-a", "deploy-b"]);
    assert_eq!(
        keys(&node, &["over", "*[ab]", "p:?ob"]),
        ["over", "deploy-a", "deploy-b", "p:job"]
    );
    assert_eq!(keys(&node, &["--prefix", "p:"]), ["job"]);
    assert_eq!(seen(&node, &["-k", "*", "none*"], 1)[0]["key"], "*");
    let nothing = inspect(&node).args(["none*"]).finish().code(1).silent();
    nothing.printed(&["no lock is held"]);
}

#[test]
fn votes_are_told_by_node_and_no_majority_is_69() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let nodes = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    let _job = rlock("job")
        .node(&nodes)
        .args(["--restart-guard", "off"])
        .hold("echo ready; read line; true");
    servers[2].cli(&["SET", "job", "f00dfeed"]);
    let shown = inspect(&nodes)
        .args(["job"])
        .finish()
        .code(0)
        .silent()
        .stdout;
    assert!(shown[1].contains("2/3"), "{shown:?}");
    assert!(
        shown[2].contains(&servers[2].url()) && shown[2].contains("f00dfeed"),
        "{shown:?}"
    );
    servers[2].freeze();
    let nothing = inspect(&nodes).args(["none*"]).finish().code(1).stdout;
    assert!(
        nothing[0] == "no lock is held" && nothing[1].contains(&servers[2].url()),
        "{nothing:?}"
    );
    let lock = seen(&nodes, &["job"], 0).remove(0);
    assert_eq!(lock["votes"]["held"], 2);
    assert!(
        lock["nodes"][2]["error"]
            .as_str()
            .is_some_and(|error| error.contains("no answer")),
        "{lock}"
    );
    assert_eq!(keys(&nodes, &["j*"]), ["job"]);
    // A node that hangs costs one node timeout, not one for each lock.
    for number in 0..100 {
        servers[0].cli(&["SET", &format!("other-{number}"), "x"]);
    }
    let names: Vec<String> = (0..100).map(|number| format!("other-{number}")).collect();
    // What the third node would say decides whether one of them is held.
    inspect(&nodes)
        .args(&names)
        .finish()
        .code(69)
        .within(Duration::from_secs(3));
    servers[1].freeze();
    let words = ["no majority of the 3 nodes", "no answer within 1s"];
    let limit = Duration::from_secs(5);
    inspect(&nodes)
        .args(["job"])
        .finish()
        .code(69)
        .mentions(&words)
        .within(limit);
    inspect(&nodes)
        .finish()
        .code(69)
        .said(&words)
        .printed(&[])
        .within(limit);
    servers.iter().for_each(Server::thaw);
}

#[test]
fn what_is_left_at_a_minority_is_no_lock() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let nodes = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    rlock_words(["acquire", "-k", "job", "--restart-guard", "off"])
        .node(&nodes)
        .finish()
        .code(0);
    servers[..2]
        .iter()
        .for_each(|server| drop(server.cli(&["DEL", "job"])));
    let shown = inspect(&nodes)
        .args(["job"])
        .finish()
        .code(1)
        .silent()
        .stdout;
    assert!(
        shown[1].contains("(free)") && shown[1].contains("1/3"),
        "{shown:?}"
    );
    assert!(
        shown[2].contains(&servers[2].url()) && shown[2].contains("too few nodes"),
        "{shown:?}"
    );
    let lock = seen(&nodes, &["job"], 1).remove(0);
    assert_eq!(
        (&lock["state"], &lock["holder"], &lock["ttl_ms"]),
        (&json!("free"), &Value::Null, &Value::Null)
    );
    inspect(&nodes)
        .finish()
        .code(0)
        .printed(&["no lock is held"]);
}

#[test]
fn the_table_fits_the_terminal() {
    let server = Server::start();
    let _job = rlock("a-key-with-a-long-name")
        .on(&server)
        .args(["--note", &"long ".repeat(40)])
        .hold("echo ready; read line; true");
    let mut shell = Session::bash_on(RLOCK, &server);
    for columns in [120, 60, 30] {
        shell.resize(24, columns);
        let shown = shell.answer("rlock inspect");
        assert!(shown.contains("KEY") && shown.contains("a-"), "{shown}");
        for line in shown.lines() {
            assert!(
                line.chars().count() <= columns.into(),
                "{columns}: {line:?}"
            );
        }
    }
}

#[test]
fn watching_survives_the_death_of_the_node_and_ends_at_a_signal() {
    let mut server = Server::start();
    server.cli(&["SET", "job", "f00dfeed"]);
    let mut watching = inspect(&server.url()).args(["--watch=50ms", "job"]).spawn();
    watching.wait_for("job  (not rlock)");
    server.crash();
    watching.wait_for(&format!("{}: cannot connect", server.url()));
    server.come_back();
    watching.wait_for("job  (free)");
    watching.signal(Signal::SIGTERM);
    eventually("it has ended", || !watching.is_running());

    let mut shell = Session::bash_on(RLOCK, &server);
    shell.line("rlock inspect --watch=0.1 job");
    shell.sees("\x1b[H");
    shell.sees("(free)");
    server.cli(&["SET", "job", "f00dfeed"]);
    shell.sees("(not rlock)");
    shell.press("\x03");
    shell.prompt();
    assert_eq!(shell.code(), 130);

    // `q` quits, and the terminal is as before.
    let before = shell.answer("stty -a");
    shell.line("rlock inspect --watch=0.1 job");
    shell.sees("Z, every 100ms; q quits");
    shell.press("q");
    shell.prompt();
    assert_eq!(shell.code(), 0);
    assert!(before.contains(" icanon"), "{before}");
    assert_eq!(shell.answer("stty -a"), before);

    // So does a signal of another process.
    for (which, code) in [(Signal::SIGHUP, 129), (Signal::SIGTERM, 143)] {
        shell.line("sh -c 'echo pid $$; exec rlock inspect --watch=0.1 job'");
        let watching = shell.number("pid ");
        shell.sees("Z, every 100ms; q quits");
        shell.sees("(not rlock)");
        signal(watching, which);
        shell.prompt();
        assert_eq!(shell.code(), code);
        assert_eq!(shell.answer("stty -a"), before);
    }
}

const QUEUE: &str = "rlock:queue:{job}:job";

#[test]
fn waiters_are_shown_in_their_order() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let nodes = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    let job = || rlock("job").node(&nodes).args(["--restart-guard", "off"]);
    let _holder = job().hold("echo ready; read line; true");
    let mut waiters = Vec::new();
    for number in ["1", "2", "3"] {
        waiters.push(job().args(["--", "true"]).spawn());
        for server in &servers {
            eventually("it stands in line", || {
                server.cli(&["ZCARD", QUEUE]) == number
            });
        }
    }
    // Each node has forgotten a different lock.
    for (server, rank) in servers.iter().zip(["0", "1", "2"]) {
        server.cli(&["ZREMRANGEBYRANK", QUEUE, rank, rank]);
    }
    let lock = seen(&nodes, &["job"], 0).remove(0);
    let pids: Vec<i32> = waiters.iter().map(Running::pid).collect();
    let told = lock["waiters"].as_array().expect("an array");
    assert_eq!(
        told.iter()
            .map(|waiter| waiter["pid"].clone())
            .collect::<Vec<_>>(),
        pids,
        "{lock}"
    );
    let first = servers[1].cli(&["ZRANGE", QUEUE, "0", "0"]);
    assert_eq!(first.split(' ').next(), told[0]["token"].as_str());
    assert_eq!(first.split(' ').nth(1), told[0]["host"].as_str());
    assert_eq!(
        first.split(' ').nth(3),
        Some(told[0]["since"].to_string().as_str())
    );
    assert_eq!(lock["more_waiters"], json!(false));
    let table = inspect(&nodes)
        .args(["job"])
        .finish()
        .code(0)
        .silent()
        .stdout;
    let at = table
        .iter()
        .position(|line| line == "job: 3 wait")
        .expect("how many wait");
    for (place, pid) in pids.iter().enumerate() {
        assert!(
            table[at + 1 + place].contains(&format!("{}. ", place + 1)),
            "{table:?}"
        );
        assert!(
            table[at + 1 + place].contains(&format!("pid {pid}, for ")),
            "{table:?}"
        );
    }
    // For several locks only the number of waiters is shown.
    let table = inspect(&nodes)
        .args(["job", "other"])
        .finish()
        .code(0)
        .silent()
        .stdout;
    assert_eq!(
        table.last().map(String::as_str),
        Some("job: 3 wait"),
        "{table:?}"
    );
}

#[test]
fn a_queue_is_not_trusted_and_not_told_to_its_end() {
    let server = Server::start();
    let node = server.url();
    let id = "5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f";
    server.cli(&[
        "ZADD",
        QUEUE,
        "1",
        &format!("{id} \x1b]0;owned\x07\u{202e} 7 8"),
        "2",
        "nonsense",
        "3",
        "",
    ]);
    let shown = inspect(&node)
        .args(["job"])
        .finish()
        .code(1)
        .silent()
        .stdout
        .join("\n");
    assert!(
        shown.contains("job: 1 waits\n  1. \\x1b]0;owned"),
        "{shown:?}"
    );
    assert!(
        !shown.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{shown:?}"
    );
    let told = inspect(&node)
        .args(["--json", "job"])
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(
        told.contains(id) && !told.contains('\x07') && !told.contains('\u{202e}'),
        "{told:?}"
    );
    let crowd = "for i = 1, ARGV[1] do
                   redis.call('ZADD', KEYS[1], i, string.format('5ae7c1be-3e1a-4a44-8c5a-%012x ', i) .. ARGV[2] .. ' 7 8')
                 end";
    let long = "x".repeat(400);
    for (number, host, least) in [
        ("1000", "web1", 1000),
        ("1001", "web1", 1000),
        ("1000", &long, 250),
    ] {
        server.cli(&["DEL", QUEUE]);
        server.cli(&["EVAL", crowd, "1", QUEUE, number, host]);
        let lock = seen(&node, &["job"], 1).remove(0);
        let told = lock["waiters"].as_array().map_or(0, Vec::len);
        assert!((least..=1000).contains(&told), "{number} {host}: {told}");
        assert_eq!(lock["more_waiters"], json!(number == "1001" || told < 1000));
    }
    let shown = inspect(&node)
        .args(["job"])
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(shown.contains(" or more wait\n"), "{shown}");
    server.cli(&["DEL", QUEUE]);
    server.cli(&["SET", QUEUE, "nonsense"]);
    assert_eq!(seen(&node, &["job"], 1)[0]["waiters"], json!([]));
}

#[test]
fn the_number_of_waiters_for_each_of_several_locks_is_shown() {
    let server = Server::start();
    let crowd = "for i = 1, ARGV[1] do
                   redis.call('ZADD', KEYS[1], i, string.format('5ae7c1be-3e1a-4a44-8c5a-%012x web1 7 8', i))
                 end";
    let numbers = [40, 1000, 500, 3];
    let names: Vec<String> = numbers
        .iter()
        .map(|number| format!("job{number}"))
        .collect();
    for (name, number) in names.iter().zip(numbers) {
        server.cli(&[
            "EVAL",
            crowd,
            "1",
            &format!("rlock:queue:{{{name}}}:{name}"),
            &number.to_string(),
        ]);
    }
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let told = seen(&server.url(), &words, 1);
    let told: Vec<usize> = told
        .iter()
        .map(|lock| lock["waiters"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(told, numbers);
}

#[test]
fn a_local_lock_can_be_inspected_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    let job = rlock("job").node(&node).hold("echo ready; read line; true");
    let shown = inspect(&node)
        .args(["job"])
        .finish()
        .code(0)
        .silent()
        .stdout;
    assert!(shown[1].contains(&job.pid().to_string()), "{shown:?}");
    inspect(&node).args(["other"]).finish().code(1).silent();
    inspect(&node).finish().code(64).said(&["needs a server"]);
}

#[test]
fn a_clock_that_was_set_back_shows() {
    let server = Server::start();
    let _job = holder(&server, "job");
    server.cli(&["PEXPIRE", "job", "600000"]);
    let shown = inspect(&server.url())
        .args(["job"])
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(shown.contains("longer than its TTL of 30s"), "{shown}");
}

#[test]
fn bad_input_is_64() {
    let server = Server::start();
    for (words, flag) in [
        (&["--watch=x"][..], "--watch"),
        (&[""], "--key"),
        (&["rlock:fence:{a}:a"], "--key"),
    ] {
        inspect(&server.url())
            .args(words)
            .finish()
            .code(64)
            .said(&[flag])
            .printed(&[]);
    }
    eventually("the server was left alone", || {
        !server
            .cli(&["INFO", "commandstats"])
            .contains("cmdstat_evalsha")
    });
}

#[test]
fn locks_that_are_found_and_cannot_be_read_are_not_called_free() {
    let server = Server::tcp(&[]);
    let job = rlock("job")
        .node(&server.tcp_url())
        .hold("echo ready; read line");
    server.cli(&[
        "ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-eval", "-evalsha",
    ]);
    let url = server.tcp_url().replace("redis://", "redis://weak@");
    let inspect = rlock_words(["inspect"])
        .node(&url)
        .env("RLOCK_PASSWORD", "pw")
        .finish();
    let shown = inspect.code(77).said(&["job", "NOPERM"]).stdout.join("\n");
    assert!(
        shown.contains("(unknown)") && !shown.contains("no lock is held"),
        "{shown}"
    );
    drop(job);
}

#[test]
fn the_locks_of_one_host_are_shown_and_none_is_1() {
    let server = Server::start();
    let (job, other) = (holder(&server, "job"), holder(&server, "other"));
    let host = seen(&server.url(), &["job"], 0)[0]["holder"]["host"].clone();
    let host = host.as_str().expect("a host");
    // Another host holds this one, by what it has stored.
    let value = server.cli(&["GET", "other"]);
    let elsewhere = value.replace(host, "web9");
    assert_ne!(value, elsewhere);
    server.cli(&["SET", "other", &elsewhere, "KEEPTTL"]);
    let names = |words: &[&str], code: i32| {
        let told = inspect(&server.url())
            .args(["-o", "name"])
            .args(words)
            .finish();
        told.code(code).silent().stdout
    };
    assert_eq!(names(&[], 0), ["job", "other"]);
    assert_eq!(names(&["--host", host], 0), ["job"]);
    assert_eq!(names(&["--host", "web9"], 0), ["other"]);
    assert_eq!(names(&["--host", "web9", "job"], 1), [""; 0]);
    assert_eq!(names(&["free"], 1), [""; 0]);
    drop((job, other));
}

#[test]
fn a_wide_table_is_not_cut_to_the_terminal() {
    let server = Server::start();
    let job = holder(
        &server,
        "a-name-that-is-longer-than-a-narrow-terminal-has-room-for",
    );
    let mut shell = Session::bash_on(RLOCK, &server);
    shell.resize(24, 60);
    for (form, is_whole) in [("table", false), ("wide", true)] {
        let shown = shell.answer(&format!("rlock inspect -o {form}"));
        assert_eq!(shown.contains("has-room-for"), is_whole, "{form}: {shown}");
    }
    drop(job);
}
