//! `rlock completions` and `rlock man`: print the files of `completions/` and `man/`, made from `cli`.

mod bash;
mod fish;
mod words;

use clap::ValueHint;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::output::print;
use crate::cli;
use crate::exit::{self, Outcome};
use crate::report::Problem;

/// Prints the completions for `shell`.
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    let mut definition = described();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut definition, "rlock", &mut text);
    let text = String::from_utf8_lossy(&text);
    let text = match shell {
        Shell::Bash => bash::script(&definition),
        Shell::Fish => fish::script(&text, &definition),
        // Options behind the command are the command's.
        Shell::Zsh => text.replace("'*::argv -- ", "'(-)*::argv -- "),
        _ => text.into_owned(),
    };
    print(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// Returns the definition with the kinds of values. A value of no known kind is text, for which no file is offered.
fn described() -> clap::Command {
    let mut definition = cli::definition();
    definition.build();
    definition.mut_subcommands(|subcommand| {
        subcommand.mut_args(|arg| match arg.get_value_hint() {
            ValueHint::Unknown => arg.value_hint(ValueHint::Other),
            _ => arg,
        })
    })
}

/// Prints rlock(1), or the page of a subcommand.
pub fn man(subcommand: Option<&str>) -> anyhow::Result<Outcome> {
    let mut whole = cli::definition();
    whole.build();
    let page = match subcommand {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(found) => found.clone(),
            None => {
                return Err(Problem::NoManPage { name: &crate::text::escape::text(name) }.failure().into());
            }
        },
    };
    let man = Man::new(page);
    let man = man.manual("rlock").source(concat!("rlock ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if subcommand.is_none() {
        man.render_subcommands_section(&mut text)?;
    }
    table("EXIT STATUS", exit::TABLE).to_writer(&mut text)?;
    table("ENVIRONMENT", cli::VARIABLES).to_writer(&mut text)?;
    table("EXAMPLES", cli::examples(subcommand)).to_writer(&mut text)?;
    see_also().to_writer(&mut text)?;
    print(&text)?;
    Ok(Outcome::Done)
}

fn table(title: &str, rows: &[(&str, &str)]) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    for (name, what) in rows {
        roff.control("TP", []).text([bold(*name)]).text([roman(*what)]);
    }
    roff
}

fn see_also() -> Roff {
    let mut roff = Roff::new();
    let definition = cli::definition();
    let pages = definition.get_subcommands().map(|subcommand| format!("rlock-{}(1)", subcommand.get_name()));
    let pages = pages.collect::<Vec<_>>().join(", ");
    roff.control("SH", ["SEE ALSO"]).text([roman(format!("rlock(1), {pages}, flock(1), timeout(1), redis-cli(1)"))]);
    roff
}
