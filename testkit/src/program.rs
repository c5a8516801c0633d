//! Programs that are run in a clean environment, and those that are built from C.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Variables that children inherit. `RLOCK_*` is left out, which chooses what is locked, and so is
/// the `LD_LIBRARY_PATH` that cargo sets: the dynamic loader would search cargo's directories for
/// every library of every program.
const INHERITED: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR"];

/// Returns `program` as a command without cargo's and rlock's environment, its stdin empty.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let kept = INHERITED
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(kept).stdin(Stdio::null());
    command
}

/// Returns the first line that `program` prints when given `words`.
pub fn first_line(program: &str, words: &[&str]) -> Result<String> {
    let output = clean(program)
        .args(words)
        .output()
        .with_context(|| format!("{program} is needed"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        words.join(" "),
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned())
}

/// Copies `program` to `dir`, so that it lies in the page cache as an installed one does. The
/// linker scatters what it writes, which is then mapped in smaller pieces: that costs a short run a
/// tenth more.
pub fn installed(program: &str, dir: &Path) -> Result<String> {
    let copy = dir.join(Path::new(program).file_name().context("a program's name")?);
    install(Path::new(program), &copy, 0o755)?;
    Ok(copy.to_string_lossy().into_owned())
}

/// Copies the program `from` to `to`, with this mode. Another process writes the copy: one that
/// this process forks meanwhile would have the file open for writing, and until its exec the kernel
/// would not execute the copy (ETXTBSY).
pub fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let mut install = clean("install");
    install.arg(format!("-m{mode:o}")).args([from, to]);
    ensure!(
        install.status().context("install is needed")?.success(),
        "no copy of {}",
        from.display()
    );
    Ok(())
}

/// Writes the script `text` to `to`, which every user may execute. Another process writes it, as
/// for [`install`].
pub fn install_script(text: &str, to: &Path) -> Result<()> {
    let mut sh = clean("sh");
    sh.args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""])
        .arg(to)
        .arg(text);
    ensure!(sh.status()?.success(), "no script {}", to.display());
    Ok(())
}

/// Builds the C file `source` in `dir` under its own name without `.c`.
pub fn compile(source: &Path, options: &[&str], dir: &Path) -> Result<PathBuf> {
    let program = dir.join(source.file_stem().context("a source's name")?);
    let mut cc = clean("cc");
    cc.args(["-O2", "-Wall", "-Wextra"])
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(source);
    ensure!(
        cc.status().context("cc is needed")?.success(),
        "cc could not build {}",
        source.display()
    );
    Ok(program)
}

/// Returns the path of a C file of the kit.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)
}
