//! Metrics: what `run --metrics-dir` writes, what `inspect --format openmetrics` prints, and the
//! alerts that read them.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{RLOCK, Rlock, Server, eventually, rlock, rlock_words, skipped};

/// A directory of metrics.
struct Metrics(tempfile::TempDir);

impl Metrics {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn run(&self, server: &Server, key: &str) -> Rlock {
        rlock(key)
            .on(server)
            .args(["--metrics-dir"])
            .args([self.0.path()])
    }

    fn text(&self, key: &str) -> String {
        std::fs::read_to_string(self.0.path().join(format!("rlock-{key}.prom"))).unwrap_or_default()
    }

    /// Returns the sample of this name in the lock's own file.
    fn sample(&self, key: &str, name: &str) -> Option<f64> {
        let begin = format!("{name}{{key=\"{key}\"}} ");
        self.text(key)
            .lines()
            .find_map(|line| line.strip_prefix(&begin)?.parse().ok())
    }

    /// Returns the time at which a run last ended with this result.
    fn last(&self, key: &str, result: &str) -> Option<f64> {
        let begin =
            format!("rlock_last_end_timestamp_seconds{{key=\"{key}\",result=\"{result}\"}} ");
        let text = self.text(&format!("{key}@{result}"));
        text.lines()
            .find_map(|line| line.strip_prefix(&begin)?.parse().ok())
    }

    #[track_caller]
    fn has(&self, key: &str, name: &str, value: f64) {
        assert_eq!(
            self.sample(key, name),
            Some(value),
            "{name}: {}",
            self.text(key)
        );
    }
}

/// Runs a check of promtool on `text`; skipped where it is not installed (tests/packaging/install).
fn promtool(words: &[&str], text: &str) {
    let installed =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/packaging/.installed/promtool");
    if !installed.exists() {
        let missing = "promtool is not installed (tests/packaging/install)";
        assert!(
            std::env::var_os("TEST_PACKAGING").is_none_or(|wish| wish != "required"),
            "{missing}"
        );
        return skipped(missing);
    }
    let mut command = Command::new(installed);
    let mut tool = command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("promtool");
    tool.stdin
        .take()
        .expect("its stdin")
        .write_all(text.as_bytes())
        .expect("room");
    let output = tool.wait_with_output().expect("its end");
    assert!(
        output.status.success(),
        "{}{text}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn a_run_whose_rlock_was_killed_is_told_by_its_guard() {
    let (server, metrics) = (Server::start(), Metrics::new());
    let job = metrics.run(&server, "job").hold("echo ready; sleep 60");
    eventually("the start is told", || {
        metrics.sample("job", "rlock_held") == Some(1.0)
    });
    job.signal(nix::sys::signal::Signal::SIGKILL);
    eventually("the guard has told it", || {
        metrics.last("job", "killed").is_some()
    });
    metrics.has("job", "rlock_held", 0.0);
    metrics.has("job", "rlock_last_exit_code", 137.0);
    assert!(
        metrics.sample("job", "rlock_last_start_timestamp_seconds")
            <= metrics.last("job", "killed")
    );
}

#[test]
fn a_run_tells_its_start_and_its_end() {
    let (server, metrics) = (Server::start(), Metrics::new());
    let holder = metrics
        .run(&server, "job")
        .hold("echo ready; read line; true");
    eventually("the start is written", || {
        metrics.sample("job", "rlock_held") == Some(1.0)
    });
    assert!(metrics.sample("job", "rlock_last_start_timestamp_seconds") > Some(1.6e9));
    assert_eq!(metrics.sample("job", "rlock_last_exit_code"), None);
    metrics
        .run(&server, "job")
        .args(["-n"])
        .command(["true"])
        .code(75);
    assert!(metrics.last("job", "busy") > Some(1.6e9));
    metrics.has("job", "rlock_held", 1.0);
    holder.finish().code(0).silent();
    metrics.has("job", "rlock_held", 0.0);
    metrics.has("job", "rlock_last_exit_code", 0.0);
    let success = metrics.last("job", "ok");
    assert!(success > Some(1.6e9));
    metrics
        .run(&server, "job")
        .command(["false"])
        .code(1)
        .silent();
    metrics.has("job", "rlock_last_exit_code", 1.0);
    assert!(metrics.last("job", "failed") >= success);
    assert_eq!(metrics.last("job", "ok"), success);
    for file in ["job", "job@ok", "job@failed", "job@busy"] {
        promtool(&["check", "metrics"], &metrics.text(file));
    }
}

#[test]
fn each_lock_has_files_and_a_nested_run_none() {
    let (server, metrics) = (Server::start(), Metrics::new());
    let inner = format!(
        "{RLOCK} run -k a --metrics-dir {} -- false; echo ready; read line; true",
        metrics.0.path().display()
    );
    let holder = metrics.run(&server, "a").args(["-k", "b"]).hold(&inner);
    eventually("both are written", || {
        metrics.sample("b", "rlock_held") == Some(1.0)
    });
    metrics.has("a", "rlock_held", 1.0);
    assert_eq!(metrics.last("a", "failed"), None);
    holder.finish().code(0).silent();
    for key in ["a", "b"] {
        metrics.has(key, "rlock_held", 0.0);
        assert!(metrics.last(key, "ok") > Some(1.6e9));
    }
}

#[test]
fn a_lost_lock_is_a_result() {
    let (server, metrics) = (Server::start(), Metrics::new());
    let holder = metrics
        .run(&server, "job")
        .args(["--ttl", "1s"])
        .hold("echo ready; exec sleep 60");
    server.cli(&["SET", "job", "another"]);
    holder.finish().code(79);
    assert!(metrics.last("job", "lost") > Some(1.6e9));
    metrics.has("job", "rlock_held", 0.0);
    metrics.has("job", "rlock_last_exit_code", 79.0);
}

#[test]
fn an_unreachable_node_is_a_result() {
    let metrics = Metrics::new();
    let run = rlock("job")
        .node("redis://127.0.0.1:1")
        .args(["--wait", "100ms", "--metrics-dir"]);
    run.args([metrics.0.path()]).command(["true"]).code(69);
    assert!(metrics.last("job", "unreachable") > Some(1.6e9));
    assert_eq!(metrics.text("job"), "");
}

#[test]
fn a_file_that_cannot_be_written_is_one_warning() {
    let server = Server::start();
    let run = |directory: &str| rlock("job").on(&server).args(["--metrics-dir", directory]);
    run("/nowhere/at/all").sh("exit 3").code(3).said(&[
        "--metrics-dir /nowhere/at/all: No such file",
        "metrics are missing",
    ]);
    run("/nowhere/at/all")
        .args(["-q"])
        .sh("exit 3")
        .code(3)
        .silent();
    run("/proc")
        .sh("exit 3")
        .code(3)
        .said(&["--metrics-dir /proc: "]);
}

#[test]
fn another_users_file_stays() {
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root gives a file away");
    }
    let (server, metrics) = (Server::start(), Metrics::new());
    let file = metrics.0.path().join("rlock-job.prom");
    std::fs::write(&file, "theirs").expect("a file");
    std::os::unix::fs::chown(&file, Some(65534), None).expect("its owner");
    metrics
        .run(&server, "job")
        .sh("exit 3")
        .code(3)
        .said(&["rlock-job.prom is another user's", "metrics are missing"]);
    assert_eq!(metrics.text("job"), "theirs");
    assert_eq!(
        std::fs::read_dir(metrics.0.path())
            .expect("the folder")
            .count(),
        1
    );
}

#[test]
fn inspect_prints_gauges_of_locks_and_nodes() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let waiter = rlock("job").on(&server).args(["--", "true"]).spawn();
    eventually("it waits", || {
        server.cli(&["ZCARD", "rlock:queue:{job}:job"]) == "1"
    });
    let gauges = |words: &[&str]| {
        rlock_words(["inspect", "--format", "openmetrics"])
            .on(&server)
            .args(words)
            .finish()
    };
    let text = gauges(&[]).code(0).silent().stdout.join("\n") + "\n";
    for line in [
        "rlock_lock_held{key=\"job\"} 1",
        "rlock_lock_waiters{key=\"job\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    for begin in [
        "rlock_lock_held_seconds{key=\"job\"} ",
        "rlock_lock_oldest_waiter_seconds{key=\"job\"} ",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(begin)),
            "{begin}: {text}"
        );
    }
    assert!(
        text.contains(&format!(
            "rlock_node_up{{node=\"{}\"}} 1\n# EOF\n",
            server.url()
        )),
        "{text}"
    );
    promtool(&["check", "metrics"], &text);
    holder.finish().code(0);
    waiter.finish().code(0);
    let free = gauges(&["job"]).code(1).stdout.join("\n");
    assert!(
        free.contains("rlock_lock_held{key=\"job\"} 0") && !free.contains("held_seconds"),
        "{free}"
    );
}

/// Whether or not locks are named: the scan fails, and the nodes are told all the same.
#[test]
fn inspect_tells_of_a_node_that_is_down() {
    for words in [&[][..], &["job"]] {
        let told = rlock_words(["inspect", "--format", "openmetrics"])
            .node("redis://127.0.0.1:1")
            .args(words)
            .finish();
        let told = told.code(69);
        assert_eq!(
            told.stdout
                .iter()
                .filter(|line| !line.starts_with('#'))
                .collect::<Vec<_>>(),
            ["rlock_node_up{node=\"redis://127.0.0.1:1\"} 0"]
        );
    }
}

#[test]
fn a_lock_that_the_user_may_not_read_does_not_make_its_node_fail() {
    let server = Server::tcp(&[]);
    server.cli(&[
        "ACL",
        "SETUSER",
        "narrow",
        "on",
        ">pw",
        "~mine*",
        "~rlock:*:{mine}:mine",
        "+@all",
    ]);
    let (mine, other) = (
        rlock("mine")
            .on(&server)
            .hold("echo ready; read line; true"),
        rlock("other")
            .on(&server)
            .hold("echo ready; read line; true"),
    );
    let url = server.tcp_url().replace("://", "://narrow@");
    let inspect = |words: &[&str]| {
        rlock_words(["inspect"])
            .node(&url)
            .env("RLOCK_PASSWORD", "pw")
            .args(words)
            .finish()
    };
    let text = inspect(&["--format", "openmetrics"])
        .code(0)
        .silent()
        .stdout
        .join("\n");
    for line in [
        &format!("rlock_node_up{{node=\"{}\"}} 1", server.tcp_url()),
        "rlock_lock_held{key=\"mine\"} 1",
        "rlock_locks_unreadable 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("other"), "{text}");
    let shown = inspect(&[]).code(0).stdout;
    assert!(
        shown[1].starts_with("mine") && shown[2..] == ["1 lock that this user may not read"],
        "{shown:?}"
    );
    let json = inspect(&["--json"]).code(0).stdout.join("\n");
    assert!(json.contains(r#""key":"other""#), "{json}");
    // A question about such a lock has no answer.
    inspect(&["other"]).code(77).said(&["other", "NOPERM"]);
    inspect(&["oth*"]).code(77).said(&["other", "NOPERM"]);
    inspect(&["*"]).code(0);
    mine.finish().code(0);
    other.finish().code(0);
}

#[test]
fn a_format_that_is_typed_beats_the_variable_of_json() {
    let server = Server::start();
    let inspect = |words: &[&str]| {
        rlock_words(["inspect", "job"])
            .on(&server)
            .args(words)
            .env("RLOCK_FORMAT", "env")
    };
    let json = inspect(&["--format", "json"])
        .finish()
        .code(1)
        .silent()
        .stdout
        .concat();
    assert!(
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON")[0]["key"] == "job",
        "{json}"
    );
    let table = inspect(&["--format", "table"])
        .env("RLOCK_JSON", "1")
        .finish()
        .code(1);
    assert!(table.stdout[0].starts_with("KEY"), "{:?}", table.stdout);
    inspect(&["--json", "--format", "table"])
        .finish()
        .code(64)
        .said(&["--json and --format contradict"]);
    inspect(&["--format", "xml"])
        .finish()
        .code(64)
        .said(&["--format"]);
}

#[test]
fn the_alerts_are_valid() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/prometheus/rlock.rules.yml");
    let text = std::fs::read_to_string(&rules).expect("the rules");
    assert_eq!(text.matches("- alert:").count(), 6);
    promtool(&["check", "rules", rules.to_str().expect("its path")], "");
}

#[test]
fn the_alerts_fire_when_they_should_and_at_no_other_time() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/metrics/alerts.yml");
    promtool(&["test", "rules", cases.to_str().expect("its path")], "");
}

/// Names of gauges in a text.
fn gauges(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("rlock_"))
        .collect()
}

/// Those of the source are written as words of their own. A cron line of operations.md writes the
/// doctor's.
fn gauges_that_exist() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect(file);
    let source = read("src/metrics.rs") + &read("src/command/inspect/programs.rs");
    let new = source.split("Gauge::new(").skip(1);
    let names = new.filter_map(|rest| rest.split('"').nth(1));
    let mut names: BTreeSet<String> = names.map(str::to_owned).collect();
    assert!(read("docs/operations.md").contains("echo \"rlock_doctor_exit_code $code\""));
    names.insert("rlock_doctor_exit_code".to_owned());
    names
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_gauges_that_exist() {
    let contrib = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib");
    let read = |file: &str| std::fs::read_to_string(contrib.join(file)).expect(file);
    let (dashboard, rules) = (
        read("grafana/rlock.json"),
        read("prometheus/rlock.rules.yml"),
    );
    let exist = gauges_that_exist();
    for name in gauges(&dashboard).union(&gauges(&rules)) {
        assert!(exist.contains(*name), "{name} does not exist");
    }
    for name in &exist {
        assert!(dashboard.contains(name), "the dashboard lacks {name}");
    }

    // Each expression is one that Prometheus understands.
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let rules: Vec<_> = targets
        .enumerate()
        .map(|(number, target)| {
            let expression = target["expr"].as_str().expect("an expression");
            assert!(!expression.contains('$') || expression.contains("$key"));
            let expression = expression.replace("$key", "job");
            serde_json::json!({"record": format!("panel:{number}"), "expr": expression})
        })
        .collect();
    assert!(rules.len() > 12, "{}", rules.len());
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, groups.to_string()).expect("a file");
    promtool(&["check", "rules", file.to_str().expect("its path")], "");
}
