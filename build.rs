//! Shortens the Lua scripts.
//!
//! A script is sent whole with each request and hashed by the server; a server that hangs reads 16 KiB of what it is sent
//! (node/redis/pool.rs). So `build/minify.rs` leaves out what only people read.

#[path = "build/minify.rs"]
mod minify;

use std::path::Path;
use std::{env, fs, io};

const SCRIPTS: &str = "src/node/redis/scripts";

/// The file with which each script begins.
const FIRST: &str = "base.lua";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    shorten_scripts(env::var_os("OUT_DIR").unwrap_or_default().as_ref())
}

fn shorten_scripts(to: &Path) -> io::Result<()> {
    println!("cargo::rerun-if-changed={SCRIPTS}");
    let mut scripts = Vec::new();
    for script in fs::read_dir(SCRIPTS)? {
        let script = script?;
        scripts.push((script.file_name(), fs::read_to_string(script.path())?));
    }
    // One map for all files: each is a part of several scripts.
    let names = minify::Names::of(scripts.iter().map(|(_, text)| text.as_str())).map_err(io::Error::other)?;
    for (name, text) in &scripts {
        let code = minify::minified(text, &names);
        let code = code.map_err(|why| io::Error::other(format!("{}: {why}", name.display())))?;
        let prologue = if name == FIRST { names.prologue() } else { String::new() };
        fs::write(to.join(name), prologue + &code)?;
    }
    Ok(())
}
