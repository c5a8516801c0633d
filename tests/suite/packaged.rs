//! Files that are shipped beside the binary: units of systemd, the action for GitHub, and the
//! package's files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::documentation::links;
use crate::support::{RLOCK, Rlock, Running, Server, eventually, rlock, rlock_words, skipped};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("contrib")
        .join(name)
}

/// The program, if the machine has it. A run for packaging must have it.
fn has(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&folders).any(|folder| folder.join(program).is_file()) {
        return true;
    }
    let missing = format!("{program} is not installed");
    assert!(
        std::env::var_os("TEST_PACKAGING").is_none_or(|wish| wish != "required"),
        "{missing}"
    );
    skipped(&missing);
    false
}

/// The programs of the units are this machine's, since systemd looks whether they exist.
#[test]
fn the_units_are_valid() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let units = ["backup.service", "backup.timer", "singleton.service"].map(|name| {
        let unit = std::fs::read_to_string(contrib("systemd").join(name)).expect(name);
        let unit = unit
            .replace("/usr/bin/rlock", RLOCK)
            .replace("User=backup", "User=root");
        let unit = unit.replace("User=scheduler", "User=root");
        // With the sandbox, whose lines have no blank behind the #.
        let line = |line: &str| {
            let option = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
            option.unwrap_or(line).to_owned() + "\n"
        };
        let unit: String = unit.lines().map(line).collect();
        assert!(name == "backup.timer" || unit.contains("\nNoNewPrivileges=yes\n"));
        std::fs::write(folder.path().join(name), unit).expect(name);
        folder.path().join(name)
    });
    are_valid(&units);
}

/// Asks systemd about the units, and what lies beside them.
fn are_valid(units: &[PathBuf]) {
    let output = Command::new("systemd-analyze")
        .arg("verify")
        .args(units)
        .output()
        .expect("systemd-analyze");
    let told = String::from_utf8_lossy(&output.stderr);
    // Units of the machine itself may be broken.
    let names = ["backup.", "importer.", "singleton.", "told"];
    let is_ours = |line: &&str| names.iter().any(|name| line.contains(name));
    assert_eq!(told.lines().find(is_ours), None, "{told}");
}

/// As their first lines name them.
#[test]
fn the_units_of_the_recipes_are_valid() {
    if !has("systemd-analyze") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let mut units = Vec::new();
    for page in ["being-told", "systemd"] {
        let page = root.join(format!("docs/recipes/{page}.md"));
        let page = std::fs::read_to_string(page).expect("a page");
        for block in page.split("```ini\n# /etc/systemd/system/").skip(1) {
            let (unit, _) = block.split_once("```").expect("an end");
            let (name, unit) = unit.split_once('\n').expect("a unit");
            let unit = unit
                .replace("ExecStart=rlock", &format!("ExecStart={RLOCK}"))
                .replace("/usr/local/bin/tell-slack", RLOCK)
                .replace("User=backup", "User=root");
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, unit).expect("a unit");
            if path.parent() == Some(folder.path()) {
                units.push(path);
            }
        }
    }
    assert_eq!(units.len(), 4);
    are_valid(&units);
}

/// The units' command lines, less the service.
#[test]
fn the_units_start_rlock_as_it_understands() {
    for (name, count) in [("backup.service", 1), ("singleton.service", 1)] {
        let unit = std::fs::read_to_string(contrib("systemd").join(name)).expect(name);
        let lines: Vec<&str> = unit
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/"))
            .collect();
        assert_eq!(lines.len(), count, "{name}");
        for line in lines {
            let words = line.split(' ').map(std::ffi::OsString::from).collect();
            assert!(rlock::cli::parse(words).is_ok(), "{name}: {line}");
        }
    }
}

/// The blocks of the page, as the objects that they are.
fn objects() -> Vec<serde_json::Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recipes/kubernetes.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let blocks = page.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|rest| rest.split("```").next().expect("an end"))
        .collect();
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(sys.argv[1]))))";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script, &blocks.join("---\n")])
        .output()
        .expect("python3");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// python3-yaml comes with ansible-core.
#[test]
fn the_objects_for_kubernetes_run_rlock_as_it_understands() {
    if !has("ansible-playbook") {
        return;
    }
    let objects = objects();
    let kinds: Vec<&str> = objects
        .iter()
        .map(|object| object["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(kinds, ["CronJob", "Deployment"]);
    for (object, pod) in objects.iter().zip([
        "/spec/jobTemplate/spec/template/spec",
        "/spec/template/spec",
    ]) {
        let pod = object.pointer(pod).expect("a pod");
        let container = &pod["containers"][0];
        let words: Vec<std::ffi::OsString> = container["command"]
            .as_array()
            .expect("words")
            .iter()
            .map(|word| word.as_str().expect("a word, and no number").into())
            .collect();
        let parsed = rlock::cli::parse(words).expect("words that rlock understands");
        let rlock::cli::Command::Run(run) = parsed.expect("a command").command else {
            panic!("{container}");
        };
        let grace = pod["terminationGracePeriodSeconds"]
            .as_u64()
            .expect("a number");
        // Five seconds at most are the default.
        assert!(run.kill_after.is_none() && grace > 10, "{container}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let mut known = rlock::cli::definition();
        known.build();
        let run = known.find_subcommand("run").expect("run");
        for setting in container["env"].as_array().expect("settings") {
            let name = setting["name"].as_str().expect("a name");
            let mut variables = run.get_arguments().filter_map(clap::Arg::get_env);
            assert!(variables.any(|known| known == name), "{name}");
        }
        assert_eq!(pod["volumes"][0]["secret"]["defaultMode"], 0o440);
    }
}

/// A secret's files are links into a folder that is exchanged as a whole, root's, and its group's to
/// read.
#[test]
fn a_password_in_a_secret_of_kubernetes_is_read() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root makes a file of root");
    }
    let server = Server::with(&["--requirepass", "hunter2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("..2026_11_26");
    std::fs::create_dir(&data).expect("a folder");
    std::fs::write(data.join("password"), "hunter2").expect("a file");
    let mode = std::fs::Permissions::from_mode(0o440);
    std::fs::set_permissions(data.join("password"), mode).expect("its mode");
    symlink("..2026_11_26", folder.path().join("..data")).expect("a link");
    symlink("..data/password", folder.path().join("password")).expect("a link");
    rlock("job")
        .on(&server)
        .args(["--password-file"])
        .args([folder.path().join("password")])
        .sh("exit 3")
        .code(3)
        .silent();
}

/// Less the package and the cron job, which are for a host. A second time it changes nothing.
#[test]
fn the_playbook_for_ansible_configures_a_host() {
    if !has("ansible-playbook") {
        return;
    }
    let server = Server::tcp(&["--appendonly", "yes", "--requirepass", "hunter2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let etc = folder.path().join("etc");
    std::fs::create_dir(&etc).expect("a folder");
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let variables = serde_json::json!({
        "ansible_become": false,
        "ansible_python_interpreter": "/usr/bin/python3",
        "rlock_etc": etc,
        "rlock_nodes": [server.tcp_url()],
        "rlock_password": "hunter2",
        "rlock_user": user.expect("users").expect("a user").name,
    });
    let play = || {
        let path = std::env::var("PATH").expect("a path");
        let here = Path::new(RLOCK).parent().expect("a folder").display();
        let output = Command::new("ansible-playbook")
            .args([
                "-c",
                "local",
                "-i",
                "localhost,",
                "--skip-tags",
                "package,cron",
            ])
            .args(["-e", &variables.to_string()])
            .arg(contrib("ansible/rlock.yml"))
            .env("PATH", format!("{here}:{path}"))
            .env("HOME", folder.path())
            .env("ANSIBLE_NOCOLOR", "1")
            .output()
            .expect("ansible-playbook");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        told
    };
    assert!(play().contains("changed=2 "));
    rlock_words(["run", "-k", "backup", "--config"])
        .args([etc.join("config.toml")])
        .args(["--", "sh", "-c", "exit 3"])
        .finish()
        .code(3);
    assert!(play().contains("changed=0 "));
}

/// Starts the service of singleton.service as a host does.
fn host(server: &Server, name: &str) -> Rlock {
    let service = format!("echo {name} is active; exec sleep 60");
    rlock("scheduler")
        .on(server)
        .args(["--ttl", "15s", "--contain", "--", "sh", "-c", &service])
}

fn is_waiting(server: &Server) {
    eventually("the other host stands by", || {
        server.cli(&["ZCARD", "rlock:queue:{scheduler}:scheduler"]) == "1"
    });
}

#[test]
fn the_standby_of_a_singleton_takes_over_when_the_active_host_stops_or_dies() {
    use nix::sys::signal::Signal::{SIGKILL, SIGTERM};
    for end in [SIGTERM, SIGKILL] {
        let server = Server::start();
        let mut active: Running = host(&server, "first").spawn();
        active.wait_for("first is active");
        let mut standby = host(&server, "second").spawn();
        is_waiting(&server);
        active.signal(end);
        standby.wait_for("second is active");
        if end == SIGTERM {
            active.finish().code(143);
        }
        let holder = rlock_words(["inspect", "scheduler", "--json"])
            .on(&server)
            .finish()
            .code(0)
            .stdout
            .concat();
        let holder: serde_json::Value = serde_json::from_str(&holder).expect("JSON");
        assert_eq!(holder[0]["holder"]["pid"], standby.pid());
    }
}

/// The runner's side of the action: its files, and the variables of a step.
struct Job<'a> {
    server: &'a Server,
    folder: tempfile::TempDir,
}

impl<'a> Job<'a> {
    fn of(server: &'a Server) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { server, folder }
    }

    fn step(&self, script: &str, state: &[(String, String)]) -> Output {
        self.step_with(script, state, &[])
    }

    /// The same with further inputs.
    fn step_with(
        &self,
        script: &str,
        state: &[(String, String)],
        further: &[(&str, &str)],
    ) -> Output {
        let mut command = Command::new("node");
        command
            .arg(contrib("github-action").join(script))
            .stdin(Stdio::null());
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"RLOCK_"))
        {
            command.env_remove(name);
        }
        for file in ["GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STATE"] {
            command.env(file, self.folder.path().join(file));
        }
        let inputs = [
            ("KEY", "deploy"),
            ("NODE", &self.server.url()),
            ("TTL", "6s"),
            ("WAIT", "0"),
            ("NOTE", "job 7"),
            ("MAX-HOLD", "5"),
            ("RLOCK", RLOCK),
        ];
        for (name, value) in inputs.iter().chain(further) {
            command.env(format!("INPUT_{name}"), value);
        }
        command.env("RLOCK_CONFIG", "none");
        command.envs(
            state
                .iter()
                .map(|(name, value)| (format!("STATE_{name}"), value)),
        );
        command.output().expect("node")
    }

    fn told(&self, file: &str) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        let pair = |line: &str| {
            line.split_once('=')
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        text.lines().filter_map(pair).collect()
    }
}

#[test]
fn the_action_holds_its_lock_from_its_step_to_the_end_of_the_job() {
    if !has("node") {
        return;
    }
    let server = Server::start();
    let job = Job::of(&server);
    let first = job.step("main.js", &[]);
    assert!(
        first.status.success(),
        "{}",
        String::from_utf8_lossy(&first.stderr)
    );
    let state = job.told("GITHUB_STATE");
    let token = state
        .iter()
        .find(|(name, _)| name == "token")
        .expect("a token")
        .1
        .clone();
    assert!(
        job.told("GITHUB_ENV")
            .contains(&("RLOCK_TOKEN".to_owned(), token.clone()))
    );
    assert!(
        job.told("GITHUB_OUTPUT")
            .iter()
            .any(|(name, fence)| name == "fence" && fence.parse::<u64>().is_ok())
    );
    // The time left grows only by a renewal.
    let left = || {
        server
            .cli(&["PTTL", "deploy"])
            .parse::<i64>()
            .expect("a number")
    };
    let mut before = left();
    eventually("it is renewed", || {
        std::mem::replace(&mut before, left()) < before
    });
    assert!(server.cli(&["GET", "deploy"]).starts_with(&token));
    let other = Job::of(&server);
    let busy = other.step("main.js", &[]);
    let told = String::from_utf8_lossy(&busy.stdout);
    assert_eq!(busy.status.code(), Some(75), "{told}");
    assert!(told.contains("job 7"));
    assert!(
        other
            .step("post.js", &other.told("GITHUB_STATE"))
            .status
            .success()
    );
    let ended = job.step("post.js", &state);
    assert!(
        ended.status.success(),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    assert_eq!(server.cli(&["EXISTS", "deploy"]), "0");
    let lost = job.step("post.js", &state);
    assert_eq!(lost.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&lost.stdout).contains("\n::error::rlock: deploy was not released")
    );
}

/// A pull request's title or an event of the API may become a key.
#[test]
fn the_action_writes_no_line_for_an_input_and_shows_no_secret() {
    if !has("node") {
        return;
    }
    let server = Server::with(&["--requirepass", "hunter2"]);
    let evil = "x\nBASH_ENV=/tmp/evil";
    let of_password = "redis://ci:hunter2@127.0.0.1:1,redis://h";
    for (name, value) in [
        ("KEY", evil),
        ("NODE", evil),
        ("NOTE", "x\r::set-output name=y::z"),
        ("PASSWORD", "x\u{85}y"),
        ("NODE", of_password),
    ] {
        let job = Job::of(&server);
        let refused = job.step_with("main.js", &[], &[(name, value)]);
        assert_eq!(refused.status.code(), Some(64), "{name}");
        let told = String::from_utf8_lossy(&refused.stdout);
        assert!(
            told.starts_with("::error::rlock: ") && told.lines().count() == 1,
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
        assert!(job.told("GITHUB_ENV").is_empty() && job.told("GITHUB_STATE").is_empty());
    }

    let job = Job::of(&server);
    let inputs = [("PASSWORD", "hunter2"), ("NOTE", "##[stop-commands]x")];
    let first = job.step_with("main.js", &[], &inputs);
    let told = String::from_utf8_lossy(&first.stdout);
    assert!(first.status.success(), "{told}");
    let state = job.told("GITHUB_STATE");
    let of = |wanted: &str| {
        let found = state.iter().find(|(name, _)| name == wanted);
        found.expect("a line of the state").1.clone()
    };
    assert!(
        told.lines()
            .any(|line| line == format!("::add-mask::{}", of("token"))),
        "{told}"
    );
    let renewer = std::fs::read(format!("/proc/{}/environ", of("renewer"))).expect("the renewer");
    assert!(!String::from_utf8_lossy(&renewer).contains("hunter2"));
    assert!(
        job.told("GITHUB_ENV")
            .iter()
            .all(|(_, value)| !value.contains("hunter2"))
    );
    let left = || {
        server
            .cli_as(&["hunter2"], &["PTTL", "deploy"])
            .parse::<i64>()
            .expect("a number")
    };
    let mut before = left();
    eventually("it is renewed", || {
        std::mem::replace(&mut before, left()) < before
    });

    // What rlock says of another job is no command of this one's.
    let busy = Job::of(&server).step_with("main.js", &[], &inputs);
    let told = String::from_utf8_lossy(&busy.stdout);
    let (stop, told) = told.split_once('\n').expect("lines");
    let resume = format!(
        "::{}::",
        stop.strip_prefix("::stop-commands::").expect("a command")
    );
    let note = told.find("##[stop-commands]x").expect("the note");
    assert!(
        busy.status.code() == Some(75) && told.find(&resume).is_some_and(|end| note < end),
        "{told}"
    );

    assert!(job.step_with("post.js", &state, &inputs).status.success());
    assert_eq!(server.cli_as(&["hunter2"], &["EXISTS", "deploy"]), "0");
}

/// Looks at README and the pages that the package has of `docs/`. Notes for contributors link into
/// the checkout.
fn links_lead_to_files(root: &Path) {
    for folder in ["docs", "docs/recipes", "docs/reference"] {
        let entries = std::fs::read_dir(root.join(folder))
            .expect(folder)
            .map(|entry| entry.expect("an entry").path());
        for page in entries
            .filter(|path| path.is_file())
            .chain([root.join("README.md")])
        {
            let text = std::fs::read_to_string(&page).expect("a page");
            for link in links(&text).filter(|link| !link.contains("://") && !link.starts_with('#'))
            {
                let file = link.split('#').next().expect("a file");
                assert!(
                    page.with_file_name(file).exists(),
                    "{}: {link}",
                    page.display()
                );
            }
        }
    }
}

#[test]
fn the_crate_is_packaged_without_a_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join(".git").exists() || !has("git") {
        return skipped("no checkout of git");
    }
    let output = Command::new(root.join("packaging/crate"))
        .args(["package", "--no-verify", "--offline"])
        .output()
        .expect("packaging/crate");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("Packaged ") && !told.contains("warning"),
        "{told}"
    );
}

/// As packaging/release does, with the binary under test in the place of the static one.
#[test]
fn the_package_installs_runs_and_goes_without_a_trace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !has("dpkg-deb") || !has("openssl") {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        return skipped("only root installs packages");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let run = |script: &str, words: &[&Path]| {
        let output = Command::new(root.join("packaging").join(script))
            .args(words)
            // The binary of a test is large.
            .env("DPKG_DEB_COMPRESSOR_LEVEL", "0")
            .output()
            .expect(script);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{script}: {told}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    };
    let version = concat!(env!("CARGO_PKG_VERSION"), "+git202611242210.a924fff");
    let notices = root.join("LICENSE-MIT");
    let words = [
        Path::new(RLOCK),
        &notices,
        folder.path(),
        Path::new(version),
    ];
    let package = run("deb", &words);
    let name = format!("rlock_{version}_");
    assert!(package.contains(&name), "{package}");
    let unpacked = Command::new("dpkg-deb")
        .args(["-x", &package, "."])
        .current_dir(folder.path())
        .status();
    assert!(unpacked.expect("dpkg-deb").success());
    links_lead_to_files(&folder.path().join("usr/share/doc/rlock"));
    let tried = run("smoke", &[Path::new(RLOCK), Path::new(&package)]);
    assert!(tried.ends_with("packaging/smoke: passed"), "{tried}");
}
