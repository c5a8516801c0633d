//! Configuration files: where they are found, what goes before what, and how a wrong one is told.

mod passwords;

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::namespaces::unshare;

use crate::support::{
    Finished, NOBODY, RLOCK, Rlock, Server, eventually, guard_of, rlock_words, signal, skipped,
};

/// A folder with a configuration file and a place for local locks.
struct Configured {
    folder: TempDir,
}

impl Configured {
    /// Writes `text`, in which `LOCAL` stands for the local node.
    fn new(text: &str) -> Self {
        let made = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        made.write(text);
        made
    }

    fn write(&self, text: &str) {
        let text = text.replace(
            "LOCAL",
            &format!("local:{}", self.folder.path().join("locks").display()),
        );
        std::fs::write(self.file(), text).expect("the file");
        self.mode(0o600);
    }

    fn mode(&self, mode: u32) {
        std::fs::set_permissions(self.file(), PermissionsExt::from_mode(mode)).expect("its mode");
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    fn rlock(&self, words: &[&str]) -> Rlock {
        rlock_words(words).env("RLOCK_CONFIG", self.file().to_str().expect("a path"))
    }

    /// Refuses the run, with one line that names the file and this line of it.
    fn refused(&self, words: &[&str], line: usize, said: &[&str]) -> Finished {
        let place = format!("{}:{line}", self.file().display());
        self.rlock(words)
            .finish()
            .code(78)
            .printed(&[])
            .said(&[&place])
            .mentions(said)
    }
}

#[test]
fn a_flag_beats_a_variable_a_variable_a_lock_and_a_lock_the_defaults() {
    let set =
        Configured::new("[defaults]\nttl = '11s'\nprefix = 'p:'\n[lock.'j?b']\nttl = '13s'\n");
    let ttl = |key: &str, variable: &str| {
        let shown = set
            .rlock(&["config", "-k", key])
            .env("RLOCK_TTL", variable)
            .finish()
            .code(0)
            .silent()
            .stdout;
        assert!(
            shown
                .iter()
                .any(|line| line.starts_with("prefix") && line.contains(" p: ")),
            "{shown:#?}"
        );
        let row = shown
            .iter()
            .find(|line| line.starts_with("ttl "))
            .expect("a row")
            .clone();
        row.split_whitespace().nth(1).expect("a value").to_owned()
    };
    assert_eq!(
        (ttl("job", ""), ttl("job", "14s"), ttl("other", "")),
        ("13s".into(), "14s".into(), "11s".into())
    );
    set.write("[defaults]\nnode = 'LOCAL'\nttl = '11s'\n");
    let typed = [
        "run",
        "--ttl",
        "15s",
        "-k",
        "job",
        "--",
        "sh",
        "-c",
        "echo $RLOCK_TTL",
    ];
    set.rlock(&typed)
        .env("RLOCK_TTL", "14s")
        .finish()
        .code(0)
        .silent()
        .printed(&["15s"]);
}

#[test]
fn a_wrong_file_is_78_with_its_line_and_no_node_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener
        .set_nonblocking(true)
        .expect("a listener that does not wait");
    let node = format!(
        "[defaults]\nnode = 'redis://{}'\n",
        listener.local_addr().expect("its address")
    );
    let run = ["run", "-k", "job", "true"];
    for (text, line, said) in [
        ("tll = '1m'", 3, &["tll", "did you mean ttl?"][..]),
        ("nodes = 'redis://h'", 3, &["did you mean node?"]),
        (
            "[lock.other]\nno_wait = true",
            4,
            &["no_wait", "did you mean no-wait?"],
        ),
        ("password = 'x'", 3, &["password-file", "RLOCK_PASSWORD"]),
        ("key = 'x'", 3, &["command line only"]),
        ("token = 'x'", 3, &["command line only"]),
        ("config = '/x'", 3, &["command line only"]),
        ("yes = true", 3, &["command line only"]),
        ("ttl = '5M'", 3, &["--ttl", "5M", "[defaults]"]),
        ("ttl = 30", 3, &["--ttl"]),
        ("ttl = '100ms'", 3, &["--ttl 100ms is too short"]),
        ("busy-code = 256", 3, &["--busy-code"]),
        ("no-wait = 'perhaps'", 3, &["--no-wait"]),
        ("ttl = true", 3, &["'true' for '--ttl"]),
        ("ttl = ['1m', '2m']", 3, &["ttl", "not an array"]),
        ("ca = 'ca.pem'", 3, &["ca", "absolute path"]),
        ("profile = 'p'", 3, &["unknown name profile"]),
        (
            "\"redis://u:hunter2@h\" = 1",
            3,
            &["unknown name redis://***@h"],
        ),
        (
            "no-wait = true\nwait = '5m'",
            3,
            &["--no-wait and --wait contradict"],
        ),
        ("shared = true\nslots = 2", 3, &["--shared", "contradict"]),
        ("[lock.job]\nttl = '1ms'", 4, &["[lock.\"job\"]", "--ttl"]),
        ("[default]\nttl = '1m'", 3, &["did you mean defaults?"]),
        ("= 3", 3, &[]),
    ] {
        Configured::new(&format!("{node}{text}\n")).refused(&run, line, said);
    }
    for (text, said) in [
        ("node = []", "empty"),
        ("node = 'gar/bage'", "--node"),
        ("node = ['redis://h', 'redis://h']", "twice"),
    ] {
        Configured::new(&format!("[defaults]\n{text}\n")).refused(&run, 2, &[said]);
    }
    assert!(listener.accept().is_err(), "a node was asked");
}

#[test]
fn a_file_that_is_not_there_is_78() {
    let missing = rlock_words(["run", "--config", "/no/such/file", "-k", "job", "true"])
        .finish()
        .code(78);
    missing.said(&["/no/such/file: there is no such file", "or none"]);
    for file in ["/no/such/file", "/"] {
        rlock_words(["run", "--config", file, "-k", "job", "true"])
            .finish()
            .code(78)
            .said(&[file]);
    }
}

#[test]
fn a_file_with_a_password_in_an_address_is_closed_to_others() {
    let set =
        Configured::new("[lock.unused]\nnode = ['redis://h', 'redis://u:hunter2@127.0.0.1:1']\n");
    let run = [
        "run",
        "--node",
        "redis://127.0.0.1:1",
        "-n",
        "-k",
        "job",
        "true",
    ];
    set.rlock(&run).finish().code(69);
    for mode in [0o640, 0o604] {
        set.mode(mode);
        let finished = set.refused(&run, 2, &["chmod 600"]);
        assert!(!finished.stderr.contains("hunter2"), "{}", finished.stderr);
    }
}

/// Runs `rlock config` as a user of these variables and no others.
fn found(folder: &Path, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(RLOCK);
    command
        .args(["config", "--all"])
        .env_clear()
        .envs(variables.iter().copied())
        .current_dir(folder);
    let output = command.output().expect("rlock");
    let notes = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with("note "))
        .collect::<String>();
    (
        output.status.code(),
        notes + &String::from_utf8_lossy(&output.stderr),
    )
}

#[test]
fn the_users_file_is_found_and_none_of_the_working_directory_or_of_another_user() {
    let home = tempfile::tempdir().expect("a folder");
    let place = |folder: &str, note: &str| {
        let folder = home.path().join(folder).join("rlock");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(
            folder.join("config.toml"),
            format!("[defaults]\nnote = '{note}'\n"),
        )
        .expect("a file");
        folder.join("config.toml")
    };
    let (file, path) = (
        place(".config", "of home"),
        home.path().display().to_string(),
    );
    place("xdg", "of xdg");
    std::fs::copy(&file, home.path().join("config.toml")).expect("a file");
    std::fs::copy(&file, home.path().join(".rlock.toml")).expect("a file");
    let found = |variables: &[(&str, &str)]| found(home.path(), variables);
    assert!(found(&[("HOME", &path)]).1.contains("of home"));
    let xdg = format!("{path}/xdg");
    assert!(
        found(&[("HOME", &path), ("XDG_CONFIG_HOME", &xdg)])
            .1
            .contains("of xdg")
    );
    assert!(
        found(&[("HOME", &path), ("XDG_CONFIG_HOME", "xdg")])
            .1
            .contains("of home")
    );
    for variables in [
        &[][..],
        &[("HOME", ".")],
        &[("HOME", &path), ("RLOCK_CONFIG", "none")],
    ] {
        let (code, told) = found(variables);
        assert!(
            code == Some(0) && told.ends_with("built in"),
            "{variables:?}: {told}"
        );
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o666)).expect("its mode");
    let (code, told) = found(&[("HOME", &path)]);
    assert!(
        code == Some(78) && told.contains("chmod o-w") && told.lines().count() == 1,
        "{told}"
    );
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("its mode");
    if chown(&file, Some(NOBODY), None).is_err() {
        return skipped("only root can give a file away");
    }
    let (code, told) = found(&[("HOME", &path)]);
    assert!(
        code == Some(78) && told.contains("uid 65534") && told.contains("--config"),
        "{told}"
    );
}

#[test]
fn a_user_who_cannot_enter_the_directory_has_no_file_and_one_who_cannot_read_the_file_is_told() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join(".config/rlock");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("config.toml"), "[defaults]\nnote = 'x'\n").expect("a file");
    let Some(rooted) = crate::support::Rooted::make(RLOCK) else {
        return;
    };
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    };
    let run = || {
        let home = home.path().to_str().expect("a path");
        let rlock = Rlock::of(rooted.rlock(), ["config"])
            .env("HOME", home)
            .with(|command| {
                std::os::unix::process::CommandExt::uid(command.env_remove("RLOCK_CONFIG"), NOBODY);
            });
        rlock.finish()
    };
    mode(home.path(), 0o700);
    run().code(0).silent();
    mode(home.path(), 0o755);
    mode(&folder.join("config.toml"), 0o600);
    run().code(78).said(&["config.toml", "Permission denied"]);
}

#[test]
fn the_systems_file_comes_before_the_users() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(home.path().join("rlock")).expect("a folder");
    std::fs::write(
        home.path().join("rlock/config.toml"),
        "[defaults]\nttl = '2m'\n",
    )
    .expect("a file");
    let Some(mut inside) = unshare(&["-rm"]) else {
        return;
    };
    let script = format!(
        "mount -t tmpfs none /etc && mkdir /etc/rlock &&
         printf \"[defaults]\\nttl = '1m'\\nwait = '9s'\\n\" > /etc/rlock/config.toml &&
         exec env -u RLOCK_CONFIG XDG_CONFIG_HOME={} {RLOCK} config",
        home.path().display()
    );
    let output = inside
        .args(["sh", "-c", &script])
        .output()
        .expect("unshare");
    let (told, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let row = |name: &str| {
        told.lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{told}{said}"))
    };
    assert!(
        row("ttl ").contains(" 2m ") && row("ttl ").contains("rlock/config.toml:2"),
        "{told}"
    );
    assert!(
        row("wait ").contains(" 9s ")
            && row("wait ").contains("/etc/rlock/config.toml:3 [defaults]"),
        "{told}"
    );
}

#[test]
fn locks_of_one_run_must_have_the_same_settings() {
    let text = "[defaults]\nnode = 'LOCAL'\n[lock.a]\nttl = '1m'\n[lock.b]\nttl = '60s'\n[lock.c]\nttl = '1m'\n";
    let set = Configured::new(text);
    let both = |other: &'static str| ["run", "-k", "a", "-k", other, "true"];
    set.rlock(&both("c")).finish().code(0).silent();
    set.rlock(&both("b"))
        .finish()
        .code(78)
        .said(&["--ttl", "config.toml:4", "config.toml:6"]);
    set.rlock(&both("d"))
        .finish()
        .code(78)
        .said(&["not at all"]);
    set.rlock(&both("b"))
        .env("RLOCK_TTL", "2m")
        .finish()
        .code(0)
        .silent();
}

#[test]
fn settings_that_contradict_each_other_follow_the_precedence() {
    let set = Configured::new(
        "[defaults]\nnode = 'LOCAL'\nno-wait = true\nshared = true\n[lock.job]\nexclusive = true\n",
    );
    let holder = set
        .rlock(&["run", "-k", "job"])
        .hold("echo ready; read line; true");
    set.rlock(&["run", "-k", "job", "true"]).finish().code(75);
    for (words, variable) in [(&["--wait", "0.3"][..], ""), (&[], "0.3")] {
        let waited = set
            .rlock(&["run"])
            .env("RLOCK_WAIT", variable)
            .args(words)
            .args(["-k", "job", "true"])
            .finish()
            .code(75);
        assert!(waited.took.as_millis() >= 300, "{:?}", waited.took);
    }
    let json = set
        .rlock(&["run"])
        .args(["-k", "job", "true"])
        .env("RLOCK_LOG", "json")
        .finish()
        .code(75)
        .stderr;
    assert!(json.starts_with('{'), "{json}");
    holder.finish().code(0);
    set.write("[defaults]\nnode = 'redis://127.0.0.1:1'\nno-wait = true\nlog = 'json'\n");
    let failed = set
        .rlock(&["run", "-k", "job", "true"])
        .finish()
        .code(69)
        .stderr;
    let line: Value =
        serde_json::from_str(failed.lines().last().expect("a line")).expect("the form of the file");
    assert_eq!(line["code"], 69);
}

/// No variable tells the command what an outer run took from a file: an rlock inside it reads the
/// same file.
#[test]
fn a_nested_run_has_the_settings_of_its_own_lock() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let url = server.tcp_url().replace("redis://", "redis://:hunter2@");
    let text = format!(
        "[defaults]\nnode = '{url}'\n[lock.outer]\nttl = '40s'\n[lock.inner]\nttl = '50s'\n"
    );
    let set = Configured::new(&text);
    let inner = "rlock run -k inner -- sh -c \"rlock config -k inner | grep -o '^ttl  *[^ ]*'\"";
    let script = format!(
        "rlock check && echo ${{RLOCK_NODE-none}} ${{RLOCK_TTL-none}} && {inner} && RLOCK_TTL=20s {inner}"
    );
    let script = script.replace("rlock ", &format!("{RLOCK} "));
    let printed = |rlock: Rlock, expected: &[&str]| {
        let lines = rlock.finish().code(0).silent().stdout;
        let words = lines
            .iter()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(words.collect::<Vec<_>>(), expected);
    };
    let file = set.file();
    let words = [
        "run",
        "--config",
        file.to_str().expect("a path"),
        "-k",
        "outer",
        "--",
        "sh",
        "-c",
        &script,
    ];
    printed(rlock_words(words), &["none none", "ttl 50s", "ttl 20s"]);
    let typed = [
        "run", "--ttl", "45s", "-k", "outer", "--", "sh", "-c", &script,
    ];
    printed(set.rlock(&typed), &["none 45s", "ttl 45s", "ttl 20s"]);
}

/// The file may have changed since, and other settings of it must not be added.
#[test]
fn a_guard_releases_by_the_settings_of_the_run_and_reads_no_file() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let url = server.tcp_url().replace("redis://", "redis://:hunter2@");
    let set = Configured::new(&format!("[defaults]\nnode = '{url}'\nprefix = 'p:'\n"));
    let home = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(home.path().join(".config/rlock")).expect("a folder");
    let running = set
        .rlock(&["run", "-k", "job"])
        .env("HOME", home.path().to_str().expect("a path"));
    let running = running.hold("echo ready; read line");
    let guard = guard_of(running.pid());
    assert!(guard > 0);
    set.write("broken");
    std::fs::write(home.path().join(".config/rlock/config.toml"), "broken").expect("a file");
    let held = || server.cli_as(&["hunter2"], &["EXISTS", "p:job"]);
    assert_eq!(held(), "1");
    signal(running.pid(), Signal::SIGKILL);
    eventually("the lock is released", || held() == "0");
}

#[test]
fn config_shows_each_setting_with_its_source_and_no_password() {
    let set = Configured::new(
        "\n[defaults]\nnode = ['redis://u:hunter2@h', 'redis://i']\n[lock.job]\nno-wait = true\n",
    );
    let shown = set
        .rlock(&["config", "-k", "job"])
        .env("RLOCK_TTL", "2m")
        .finish()
        .code(0)
        .silent()
        .stdout;
    let row = |name: &str| {
        let line = shown
            .iter()
            .find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is missing in {shown:#?}"))
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    let file = set.file().display().to_string();
    let (node, lock) = (format!("{file}:3"), format!("{file}:5"));
    assert_eq!(
        row("node"),
        ["node", "redis://***@h,redis://i", &node, "[defaults]"]
    );
    assert_eq!(row("no-wait"), ["no-wait", "true", &lock, "[lock.\"job\"]"]);
    assert_eq!(row("ttl"), ["ttl", "2m", "RLOCK_TTL"]);
    assert_eq!(shown.len(), 4, "{shown:#?}");
    let all = set
        .rlock(&["config", "--all", "-k", "job"])
        .finish()
        .code(0)
        .silent()
        .stdout;
    assert!(all.len() > 30, "{all:#?}");
    let wait = all.iter().find(|line| line.starts_with("wait "));
    let wait: Vec<&str> = wait.expect("a row").split_whitespace().collect();
    assert_eq!(wait, ["wait", "-", "built", "in"]);
    let json = set
        .rlock(&["config", "--json"])
        .finish()
        .code(0)
        .silent()
        .stdout
        .join("");
    assert!(!json.contains("hunter2"), "{json}");
    let all: Vec<Value> = serde_json::from_str(&json).expect("an array");
    let node = all.iter().find(|row| row["name"] == "node").expect("a row");
    assert_eq!(
        (&node["source"], &node["line"], &node["value"][1]),
        (&"file".into(), &3.into(), &"redis://i".into())
    );
    let no_wait = all
        .iter()
        .find(|row| row["name"] == "no-wait")
        .expect("a row");
    assert_eq!(
        (&no_wait["source"], &no_wait["value"]),
        (&"built-in".into(), &false.into())
    );
    // No run could use it.
    let refused = rlock_words(["config"])
        .env("RLOCK_NODE", "redis://u:hunter2@h:port")
        .finish()
        .code(78)
        .printed(&[]);
    refused
        .said(&["--node redis://h", "from the environment: RLOCK_NODE"])
        .never_said("hunter2");
}

#[test]
fn config_check_finds_what_is_wrong_in_a_section_that_does_not_apply() {
    let check = ["config", "--check"];
    for (text, line, said) in [
        ("[lock.x]\nttl = '5M'\n", 2, "--ttl"),
        ("[lock.x]\nttl = '100ms'\n", 2, "too short"),
        ("[lock.x]\nnode = 'redis:/h'\n", 2, "--node"),
        ("[lock.x]\nformat = 'xml'\n", 2, "--format"),
        (
            "[lock.x]\nnode-timeout = '20s'\n",
            2,
            "--ttl 30s is too short",
        ),
        (
            "[defaults]\nnode-timeout = '3s'\n[lock.x]\nttl = '9s'\n",
            4,
            "too short",
        ),
        ("[lock.x]\nwait = '1s'\nno-wait = true\n", 3, "contradict"),
    ] {
        Configured::new(text).refused(&check, line, &[said]);
    }
    let set = Configured::new("[defaults]\nnode = 'redis://h'\n[lock.x]\nformat = 'json'\n");
    let ok = format!("{}: ok", set.file().display());
    set.rlock(&check)
        .env("RLOCK_TTL", "1ms")
        .finish()
        .code(0)
        .silent()
        .printed(&[&ok]);
    rlock_words(check)
        .finish()
        .code(0)
        .silent()
        .printed(&["no configuration file"]);
    // The job may run as another user, or elsewhere.
    set.write("[defaults]\npassword-file = '/no/such/file'\n[lock.x]\nca = '/no/such/ca'\n");
    set.rlock(&check).finish().code(0).silent().printed(&[&ok]);
}

/// As packages install it, and with every setting in force.
#[test]
fn the_example_sets_nothing_and_each_of_its_settings_is_right() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/config.toml");
    let text = std::fs::read_to_string(example).expect("the example");
    assert!(
        text.lines()
            .all(|line| line.is_empty() || line.starts_with('#')),
        "{text}"
    );
    let settings: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line))
        .collect();
    assert!(
        settings
            .iter()
            .filter(|line| !line.starts_with(' ') && !line.is_empty())
            .count()
            > 12
    );
    let comments = |line: &str| {
        if line.starts_with(' ') {
            String::new()
        } else {
            format!("{line}\n")
        }
    };
    let set = Configured::new(&settings.into_iter().map(comments).collect::<String>());
    for file in [example, &set.file().display().to_string()] {
        let ok = format!("{file}: ok");
        rlock_words(["config", "--check", "--config", file])
            .finish()
            .code(0)
            .silent()
            .printed(&[&ok]);
    }
}
