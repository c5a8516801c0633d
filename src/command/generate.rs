//! `rlock completions` and `rlock man`: what stands in `completions/` and `man/`, made from `cli`.

use std::io::{self, Write};

use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli;
use crate::exit::{Failure, Outcome};

/// Prints the completions for `shell`.
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), "rlock", &mut text);
    print(&text)
}

/// Prints rlock(1), or the page of a subcommand.
pub fn man(subcommand: Option<&str>) -> anyhow::Result<Outcome> {
    let mut whole = cli::definition();
    whole.build();
    let page = match subcommand {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(found) if !found.is_hide_set() => found.clone(),
            _ => {
                return Err(
                    Failure::new(Outcome::Usage, format!("no man page for {}", crate::escape::text(name))).into()
                );
            }
        },
    };
    let mut text = Vec::new();
    Man::new(page).manual("rlock").source(concat!("rlock ", env!("CARGO_PKG_VERSION"))).render(&mut text)?;
    print(&text)
}

/// A reader that has gone away (`| head`) has seen enough.
fn print(text: &[u8]) -> anyhow::Result<Outcome> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(Outcome::Done),
    }
}
