//! `rlock acquire`: takes the lock, prints its token, and exits.

use serde_json::json;

use super::acquisition::{self, Acquired};
use super::nodes::{open, warn_of_settings};
use super::output::write_all;
use super::purpose::Purpose;
use super::released::report_release;
use super::runtime::block_on;
use crate::cli::Sources;
use crate::cli::subcommands::{AcquireArgs, Format};
use crate::clock;
use crate::exit::Outcome;
use crate::job::inherited::Inherited;
use crate::job::signals::Signals;
use crate::lock::key::Key;
use crate::redlock::holding::Holding;
use crate::report::Problem;
use crate::settings::LockSettings;
use crate::text::duration::millis;

pub fn acquire(args: AcquireArgs, sources: &Sources, inherited: &Inherited) -> anyhow::Result<Outcome> {
    let format = args.format;
    let settings = LockSettings::new(args.lock, None, &args.output, sources)?;
    settings.place.needs_server("acquire")?;
    if format == Format::Env && !is_plain(settings.key.typed()) {
        return Err(Problem::UnsafeForShell.about(&settings.key).into());
    }
    warn_of_settings(&settings, &args.output);
    block_on(take(&settings, inherited, format))
}

async fn take(settings: &LockSettings, inherited: &Inherited, format: Format) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch(inherited)?;
    let nodes = open(&settings.place, settings.schedule.node_timeout())?;
    let holding = match acquisition::take(&nodes, settings, Purpose::Steps, &mut signals).await? {
        Acquired::Won(holding) => *holding,
        Acquired::Over(outcome) => return Ok(outcome),
        // Only a command can run under an outer lock.
        Acquired::Nested(..) => return Ok(Outcome::Bug),
    };
    holding.leave_queue().await;
    // A signal that arrived before the token was printed: do not keep the lock.
    if let Some(caught) = signals.interruption() {
        report_release(&settings.report, &holding.release().await);
        return Ok(acquisition::ended_by(caught));
    }
    if let Err(error) = write_all(shown(format, &settings.key, &holding).as_bytes()) {
        report_release(&settings.report, &holding.release().await);
        return Err(Problem::TokenNotPrinted { error: &error }.about(&settings.key).into());
    }
    Ok(Outcome::Done)
}

fn shown(format: Format, key: &Key, holding: &Holding) -> String {
    let (token, fence) = (holding.token(), holding.fence());
    match format {
        Format::Token => format!("{token}\n"),
        Format::Env => format!("RLOCK_KEY={}\nRLOCK_TOKEN={token}\nRLOCK_FENCE={fence}\n", key.typed()),
        Format::Json => {
            let left = millis(holding.deadline().since(clock::now()));
            let object =
                json!({ "key": key.typed(), "token": token.to_string(), "fence": fence.get(), "ttl_ms": left });
            format!("{object}\n")
        }
    }
}

/// Whether a shell's `eval` and `$GITHUB_ENV` both read the text unchanged. They have no quotes in common, and to zsh
/// `=ls` is the path of ls.
fn is_plain(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-./:@%+,{}".contains(c);
    text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn what_a_shell_would_act_on_is_not_plain() {
        for text in [
            "a b",
            "a\nb",
            "$(reboot)",
            "`reboot`",
            "a;b",
            "~",
            "a'b",
            "a\"b",
            "*",
            "a&b",
            "a#b",
            "a\\b",
            "<",
            "=ls",
            "x:=ls",
        ] {
            assert!(!is_plain(text), "{text:?}");
        }
        assert!(is_plain("deploy-production/eu_1:{x}.größe@%+,"));
    }
}
