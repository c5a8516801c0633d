//! Settings: flags, environment and files, completed and checked, before anything is sent to a
//! node.
//!
//! 1. [`complete`] adds what configuration files say to what was typed.
//! 2. [`RunSettings`], [`LockSettings`], [`HeldLock`] and [`NodeSettings`] check it, and read the
//!    passwords and the certificates. They are made once.

mod credentials;
mod defaults;
pub mod files;
mod lock;
mod sources;
mod store;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub use defaults::{EffectiveSettings, Row, complete, runs};
use files::NO_FILE;
pub use lock::{HeldLock, LockSettings, key, reporter, schedule};
pub use sources::{Source, Sources, strange_variables};
use store::FindStore;
pub use store::{NODE_TIMEOUT, NodeSettings, StoreConfig, addresses};

use crate::cli::{LockArgs, RunArgs};
use crate::exit::{Failure, Outcome};
use crate::job::policy;
use crate::lock::key::Keys;
use crate::secret;
use crate::store::address::Address;
use crate::text::duration;

/// Settings of `rlock run`.
pub struct RunSettings {
    pub lock: LockSettings,
    pub policy: policy::PolicyOptions,
    /// The command, at least one word.
    pub argv: Vec<OsString>,
    /// Variables for the command, beside those that name the grant.
    pub environment: Vec<(&'static str, OsString)>,
    /// `--metrics-dir`.
    pub metrics: Option<PathBuf>,
}

/// Opens the regular file `path` for reading, without waiting. Others are an error: a FIFO without
/// a writer blocks, and a device has no end.
fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Outcome::Usage, message)
}

fn config(message: impl Into<String>) -> Failure {
    Failure::new(Outcome::Config, message)
}

impl RunSettings {
    /// Checks what was typed, and reads the passwords and the certificates.
    pub fn new(args: RunArgs, sources: &Sources) -> Result<Self, Failure> {
        Self::with(args, sources, StoreConfig::new)
    }

    /// Checks what stands in files, which may be meant for another user: it reads neither passwords
    /// nor certificates.
    pub fn check(args: RunArgs, sources: &Sources) -> Result<(), Failure> {
        defaults::volume(&args.output, sources)?;
        Self::with(args, sources, StoreConfig::kind).map(drop)
    }

    fn with(args: RunArgs, sources: &Sources, find_store: FindStore) -> Result<Self, Failure> {
        let lock = LockSettings::new(&args.lock, &args.output, Some(&args), sources, find_store)?;
        let environment = environment(&args.lock, &lock.keys, sources);
        let words = args.words();
        if words.first().is_none_or(|command| command.is_empty()) {
            return Err(usage("the command's name is empty"));
        }
        let policy = policy::PolicyOptions {
            schedule: lock.schedule(),
            on_lost: args.on_lost,
            first_signal: args.signal,
            max_run: args.max_run.filter(|span| !span.is_zero()),
            contain: args.contain,
        };
        Ok(Self {
            lock,
            policy,
            argv: words,
            environment,
            metrics: args.metrics_dir,
        })
    }
}

/// Returns the name of the command for other clients: `--name`, or the file name of the program
/// that its first word, or a shell's line, begins with. Never an argument, which may be a secret.
fn command_name(args: &RunArgs) -> String {
    if let Some(name) = args.name.as_ref().filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let first_word = args
        .shell
        .as_ref()
        .or(args.argv.first())
        .map(|word| word.to_string_lossy());
    let word = secret::without_secrets(&first_word.unwrap_or_default());
    let name = word.rsplit('/').find(|part| !part.is_empty());
    name.unwrap_or(&word).to_owned()
}

/// Returns the variables for the command with which an rlock inside it needs no flags: what was
/// typed. The command inherits the variables of the environment, and an rlock inside it reads the
/// same files. No variable holds a password that the command did not have before: a typed address
/// is passed on without it.
fn environment(args: &LockArgs, keys: &Keys, sources: &Sources) -> Vec<(&'static str, OsString)> {
    let mut set = vec![("RLOCK_KEY", keys.typed().into())];
    let absolute = |file: &Path| {
        std::path::absolute(file)
            .unwrap_or_else(|_| file.to_path_buf())
            .into_os_string()
    };
    let nodes = &args.nodes;
    // An invalid address ends the run before there is a command.
    let shown = addresses(&nodes.node).unwrap_or_default();
    let shown: Vec<OsString> = shown.iter().map(Address::without_secret).collect();
    let file = |file: &Option<PathBuf>| file.as_deref().map(absolute);
    for (name, id, value) in [
        ("RLOCK_TTL", "ttl", Some(duration::show(args.ttl).into())),
        (
            "RLOCK_PREFIX",
            "prefix",
            Some(OsString::from(&nodes.prefix)),
        ),
        ("RLOCK_NODE", "node", Some(shown.join(OsStr::new(",")))),
        ("RLOCK_CA", "ca", file(&nodes.ca)),
        ("RLOCK_CERT", "cert", file(&nodes.cert)),
        ("RLOCK_CERT_KEY", "cert_key", file(&nodes.cert_key)),
        (
            "RLOCK_PASSWORD_FILE",
            "password_file",
            file(&nodes.password_file),
        ),
        (
            "RLOCK_SENTINEL_PASSWORD_FILE",
            "sentinel_password_file",
            file(&nodes.sentinel_password_file),
        ),
        (
            "RLOCK_TLS_SERVER_NAME",
            "tls_server_name",
            nodes
                .tls_server_name
                .as_ref()
                .map(|it| it.to_str().as_ref().into()),
        ),
    ] {
        set.extend(
            value
                .filter(|_| sources.typed(id))
                .map(|value| (name, value)),
        );
    }
    let config = nodes.files.config.as_deref();
    let config = config.map(|path| {
        if path == Path::new(NO_FILE) {
            NO_FILE.into()
        } else {
            absolute(path)
        }
    });
    set.extend(config.map(|value| ("RLOCK_CONFIG", value)));
    set
}
