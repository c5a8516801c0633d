//! The programs that a bench runs, and those it builds for itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The release build: `cargo bench` builds it in the bench profile, which inherits release.
pub(crate) const RLOCK: &str = env!("CARGO_BIN_EXE_rlock");

/// What children inherit. Not `RLOCK_*`, which choose what is locked, and not the `LD_LIBRARY_PATH` that cargo sets:
/// the dynamic loader would search cargo's directories for every library of every contender.
const INHERITED: [&str; 6] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"];

/// `program` with nothing of cargo's environment or of rlock's own, stdin empty.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let kept = INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept).stdin(Stdio::null());
    command
}

/// The first line that a program prints when given `flag`.
pub(crate) fn first_line(program: &str, flag: &str) -> Result<String> {
    let output = clean(program).arg(flag).output().with_context(|| format!("{program} is needed"))?;
    ensure!(output.status.success(), "{program} {flag}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// rlock as it lies in the page cache once it is installed. The linker writes it here and there, and what it leaves there is
/// mapped in smaller pieces: a tenth more for a short run.
pub(crate) fn installed(dir: &Path) -> Result<String> {
    let program = dir.join("rlock");
    std::fs::copy(RLOCK, &program)?;
    Ok(program.to_string_lossy().into_owned())
}

/// Builds `benches/NAME.c` in `dir`.
pub(crate) fn compile(name: &str, options: &[&str], dir: &Path) -> Result<PathBuf> {
    let source = format!("{}/benches/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = dir.join(name);
    let mut cc = clean("cc");
    cc.args(["-O2", "-Wall", "-Wextra"]).args(options).arg("-o").arg(&program).arg(&source);
    ensure!(cc.status().context("cc is needed")?.success(), "cc could not build {source}");
    Ok(program)
}
