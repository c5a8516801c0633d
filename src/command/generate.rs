//! `rlock completions` and `rlock man`: print the files of `completions/` and `man/`, made from
//! `cli`.

use clap::ValueHint;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::print;
use crate::cli::{self, Shell};
use crate::exit::{self, Failure, Outcome};
use crate::text::escape;

/// Hands what follows `--` to the package bash-completion. Debian 12 calls the function
/// `_command_offset`. `inspect` and `break` are offered the locks that are held, where the nodes
/// tell them within 0.3 s.
const BASH: &str = "
_rlock_or_command() {
    local i offset name
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        offset=$(compgen -A function _comp_command_offset || compgen -A function _command_offset) && $offset $((i + 1))
        return
    done
    _rlock \"$@\"
    # Not compgen -W: it would expand what a name contains.
    if [[ ${COMP_WORDS[1]-} == @(inspect|break) && $2 != -* && $3 != -[!-ky]* && $3 != --[!ky]* ]]; then
        local names=()
        while IFS= read -r name; do
            [[ $name == \"$2\"* ]] && names+=(\"$(printf %q \"$name\")\")
        done < <(timeout 0.3 rlock inspect -o name 2>/dev/null)
        ((${#names[@]} == 0)) || COMPREPLY=(\"${names[@]}\")
    fi
}
complete -F _rlock_or_command -o bashdefault -o default rlock
";

/// The same for fish.
const FISH: &str = "
complete -c rlock -f
complete -c rlock -n '__fish_rlock_using_subcommand inspect; or __fish_rlock_using_subcommand break' -a '(timeout 0.3 rlock inspect -o name 2>/dev/null)'
complete -c rlock -n '__fish_rlock_using_subcommand run; and contains -- -- (commandline -opc)' -a '(
    set -l words (commandline -opc) (commandline -ct)
    set words $words[(math 1 + (contains -i -- -- $words))..]
    complete -C \"$words\"
)'
";

/// The same for zsh, with the function that completes the name of a lock.
const ZSH: &str = "
_rlock_names() { compadd -- ${(f)\"$(timeout 0.3 rlock inspect -o name 2>/dev/null)\"} }

_rlock() {";

/// Prints the completions for `shell`.
pub fn completions(shell: Shell) -> anyhow::Result<Outcome> {
    let mut definition = with_value_kinds();
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(generator, &mut definition, "rlock", &mut text);
    let text = String::from_utf8_lossy(&text);
    let text = match shell {
        Shell::Bash => text.into_owned() + BASH,
        Shell::Fish => text.into_owned() + FISH,
        // Options behind the command are the command's.
        Shell::Zsh => {
            let text = text.replace("'*::argv -- ", "'(-)*::argv -- ");
            let lines = text.split_inclusive('\n').map(|line| {
                let (words, end) = ("'*::words -- ", ":' \\\n");
                match line
                    .strip_suffix(end)
                    .filter(|line| line.starts_with(words))
                {
                    Some(line) => format!("{line}:_rlock_names' \\\n"),
                    None => line.to_owned(),
                }
            });
            lines.collect::<String>().replacen("\n_rlock() {", ZSH, 1)
        }
    };
    print(text.as_bytes())?;
    Ok(Outcome::Done)
}

/// Returns the definition with the kinds of values. A value of no known kind is text, for which no
/// file is offered.
fn with_value_kinds() -> clap::Command {
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
    // `rlock help` has no page.
    let mut whole = cli::definition().disable_help_subcommand(true);
    whole.build();
    let page = subcommand.map_or(Some(&whole), |name| whole.find_subcommand(name));
    let Some(page) = page else {
        let why = format!(
            "no man page for {}",
            escape::text(subcommand.unwrap_or_default())
        );
        return Err(Failure::new(Outcome::Usage, why).into());
    };
    let man = Man::new(page.clone());
    let man = man
        .manual("rlock")
        .source(concat!("rlock ", env!("CARGO_PKG_VERSION")));
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
        roff.control("TP", [])
            .text([bold(*name)])
            .text([roman(*what)]);
    }
    roff
}

fn see_also() -> Roff {
    let mut roff = Roff::new();
    let definition = cli::definition();
    let pages = definition
        .get_subcommands()
        .map(|subcommand| format!("rlock-{}(1)", subcommand.get_name()));
    let pages = pages.collect::<Vec<_>>().join(", ");
    roff.control("SH", ["SEE ALSO"]).text([roman(format!(
        "rlock(1), {pages}, flock(1), timeout(1), redis-cli(1)"
    ))]);
    roff
}
