//! Strips the Lua scripts, and links libgcc's unwinder into rlock.
//!
//! A script is sent whole with each request and hashed by the server; a server that hangs reads 16 KiB of what it is sent
//! (node/redis/pool.rs). So comments, empty lines and indentation are left out of the program.
//!
//! As a shared library libgcc takes about a tenth of an uncontended run to be found, mapped, relocated and initialised, and
//! rlock needs it after a panic only. glibc stays shared: name look-ups load plugins.

use std::path::Path;
use std::{env, fs, io};

const SCRIPTS: &str = "src/node/redis/scripts";

/// A variable for packagers: if it is set, libgcc stays a shared library.
const SHARED_LIBGCC: &str = "RLOCK_SHARED_LIBGCC";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    strip_scripts(env::var_os("OUT_DIR").unwrap_or_default().as_ref())?;
    println!("cargo::rerun-if-env-changed={SHARED_LIBGCC}");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" && env::var_os(SHARED_LIBGCC).is_none() {
        // Comes with every gcc, beside the start-up code that the linker takes from there anyway.
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
    Ok(())
}

/// A line that begins with `--` is a comment, so no script may have a string of several lines in which one does.
fn strip_scripts(to: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={SCRIPTS}");
    for script in fs::read_dir(SCRIPTS)? {
        let script = script?;
        let text = fs::read_to_string(script.path())?;
        let code = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("--"));
        let code: Vec<&str> = code.flat_map(|line| [line, "\n"]).collect();
        fs::write(to.join(script.file_name()), code.concat())?;
    }
    Ok(())
}
