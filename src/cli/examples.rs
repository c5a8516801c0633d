//! The examples of help, of the man pages and of `docs/reference/`. The suite runs them.

/// A command line, and its effect.
pub type Example = (&'static str, &'static str);

/// Returns the examples of a subcommand, or of rlock.
pub fn examples(subcommand: Option<&str>) -> &'static [Example] {
    match subcommand {
        None => &RLOCK,
        Some("run") => &RUN,
        Some("acquire") => &ACQUIRE,
        Some("renew") => &RENEW,
        Some("release") => &RELEASE,
        Some("check") => &CHECK,
        Some("inspect") => &INSPECT,
        Some("break") => &BREAK,
        Some("doctor") => &DOCTOR,
        Some("config") => &CONFIG,
        Some("completions") => &COMPLETIONS,
        Some("man") => &MAN,
        Some(_) => &[],
    }
}

const BACKUP: Example =
    ("rlock run -k backup -- ./backup.sh", "Wait for the lock, run the command, and give the lock back");

const CRON: Example = (
    "rlock run -k backup -n -E 0 -q --hold-at-least 1m -- ./backup.sh",
    "In the crontab of each of several hosts: one host runs the job, the others skip it and exit with 0",
);

const RLOCK: [Example; 4] = [
    BACKUP,
    CRON,
    ("rlock inspect", "Show which locks are held, by which client and since when, and who waits"),
    ("rlock run -k hello --node local -- echo hello", "Try it without a server"),
];

const RUN: [Example; 5] = [
    BACKUP,
    CRON,
    (
        "rlock run -k deploy -w 20m --note \"$CI_JOB_URL\" -- ./deploy.sh",
        "Give up waiting after 20 minutes with exit code 75, and show others which job holds the lock",
    ),
    ("rlock run -k dump -c 'pg_dump shop | gzip >shop.gz'", "Run a pipeline under the lock"),
    (
        "rlock run -k report --slots 4 --max-run 1h -- ./report.sh",
        "Let four of these run at a time, and stop each after an hour",
    ),
];

const ACQUIRE: [Example; 3] = [
    (
        "token=$(rlock acquire -k deploy --ttl 20m --wait 10m) || exit",
        "In a script: take the lock for 20 minutes, and keep its token",
    ),
    (
        "rlock acquire -k deploy --ttl 20m --format env >>\"$GITHUB_ENV\"",
        "In a CI job: later steps find the lock in RLOCK_KEY and RLOCK_TOKEN",
    ),
    ("rlock acquire -k deploy --ttl 72h --note 'frozen until Monday'", "Keep deploys out until Monday"),
];

const RENEW: [Example; 2] = [
    ("rlock renew -k deploy --token \"$token\"", "Extend the lock, by as much as it was taken for"),
    ("rlock renew --ttl 10m", "Extend the lock of RLOCK_KEY and RLOCK_TOKEN so that it ends in ten minutes"),
];

const RELEASE: [Example; 2] = [
    ("rlock release -k deploy --token \"$token\"", "Give the lock back"),
    (
        "trap 'rlock release' EXIT; trap 'exit 1' HUP INT TERM",
        "In a script with RLOCK_KEY and RLOCK_TOKEN: give the lock back however the script ends",
    ),
];

const CHECK: [Example; 3] = [
    ("rlock check && ./switch-over.sh", "In a command of rlock run: take the step only if the lock is still held"),
    ("rlock check --for 5s && ./switch-over.sh", "Take it only if the lock also stays held for five seconds"),
    ("rlock check -k deploy --token \"$token\"", "Check a lock of rlock acquire"),
];

const INSPECT: [Example; 3] = [
    ("rlock inspect", "Show all locks that are held"),
    ("rlock inspect deploy", "Show one lock and its waiters; exit 1 if it is free"),
    ("rlock inspect --json 'deploy*'", "Print the locks that match a pattern for other programs"),
];

const BREAK: [Example; 2] = [
    ("rlock break deploy", "Show the holder, ask, stop its command, and take the lock away"),
    ("rlock break --yes deploy", "Do not ask, as a script needs it"),
];

const DOCTOR: [Example; 3] = [
    ("rlock doctor", "Check the nodes that are configured"),
    ("rlock doctor --node redis://redis1,redis://redis2,redis://redis3", "Check three servers before they are used"),
    ("rlock doctor --acl -k backup -k deploy", "Print the ACL line of a user for these two locks"),
];

const CONFIG: [Example; 2] = [
    ("rlock config -k deploy", "Show the settings that runs of this lock have"),
    ("rlock config --check", "Check the configuration files"),
];

const COMPLETIONS: [Example; 3] = [
    ("source <(rlock completions bash)", "In ~/.bashrc"),
    ("source <(rlock completions zsh)", "In ~/.zshrc, behind compinit"),
    ("rlock completions fish | source", "In ~/.config/fish/config.fish"),
];

const MAN: [Example; 2] = [
    ("rlock man run | man -l -", "Read the page of rlock run"),
    ("rlock man >rlock.1", "Write the page of rlock, for a directory such as /usr/local/share/man/man1"),
];
