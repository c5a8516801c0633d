//! `rlock acquire`: takes the locks, prints their tokens, and exits.

use serde_json::{Value, json};

use super::acquisition::{self, Acquired};
use super::nodes::{open_each, warn_of_settings};
use super::output::write_all;
use super::purpose::Purpose;
use super::released::report_releases;
use super::runtime::block_on;
use crate::cli::Sources;
use crate::cli::subcommands::{AcquireArgs, Format};
use crate::clock::{self, Alarm};
use crate::exit::Outcome;
use crate::job::inherited::Inherited;
use crate::job::signals::Signals;
use crate::lock::keys::{Keys, list};
use crate::lock::remains::RemainsOptions;
use crate::redlock::holdings::Holdings;
use crate::report::Problem;
use crate::settings::LockSettings;
use crate::text::duration::millis;

pub fn acquire(args: &AcquireArgs, sources: &Sources, inherited: &Inherited) -> anyhow::Result<Outcome> {
    let format = args.format;
    let settings = LockSettings::new(&args.lock, None, RemainsOptions::default(), &args.output, sources)?;
    settings.place.needs_server("acquire")?;
    if format == Format::Env
        && let Some(key) = settings.keys.iter().find(|key| !is_plain(key.typed()))
    {
        return Err(Problem::UnsafeForShell.about(key).into());
    }
    warn_of_settings(&settings, &args.output);
    block_on(take(&settings, inherited, format))
}

async fn take(settings: &LockSettings, inherited: &Inherited, format: Format) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch(inherited)?;
    let nodes = open_each(settings, false)?;
    let holdings = match acquisition::take(&nodes, settings, Purpose::Steps, &mut signals, &mut Alarm::new()?).await? {
        Acquired::Won(holdings) => holdings,
        Acquired::Over(outcome) => return Ok(outcome),
        // Only a command can run under an outer lock.
        Acquired::Nested(..) => return Ok(Outcome::Bug),
    };
    holdings.leave_queues().await;
    // A signal that arrived before the tokens were printed: do not keep the locks.
    if let Some(caught) = signals.interruption() {
        report_releases(&settings.report, &holdings.release().await);
        return Ok(acquisition::ended_by(caught));
    }
    if let Err(error) = write_all(shown(format, &settings.keys, &holdings).as_bytes()) {
        report_releases(&settings.report, &holdings.release().await);
        return Err(Problem::TokenNotPrinted { error: &error }.about(&settings.keys).into());
    }
    Ok(Outcome::Done)
}

fn shown(format: Format, keys: &Keys, holdings: &Holdings) -> String {
    let tokens = list(holdings.grants().map(|(token, _)| token));
    match format {
        Format::Token => format!("{tokens}\n"),
        Format::Env => {
            let fences = list(holdings.grants().map(|(_, fence)| fence));
            let slots = list(holdings.slots().flatten());
            let slots = if slots.is_empty() { slots } else { format!("RLOCK_SLOT={slots}\n") };
            format!("RLOCK_KEY={}\nRLOCK_TOKEN={tokens}\nRLOCK_FENCE={fences}\n{slots}", keys.typed())
        }
        Format::Json => {
            let now = clock::now();
            let held = keys.iter().zip(holdings.grants()).zip(holdings.slots()).zip(holdings.deadlines());
            let mut objects: Vec<Value> = held
                .map(|(((key, (token, fence)), slot), deadline)| {
                    let (key, token, fence) = (key.typed(), token.to_string(), fence.get());
                    let left = millis(deadline.since(now));
                    json!({ "key": key, "token": token, "fence": fence, "slot": slot, "ttl_ms": left })
                })
                .collect();
            // One lock is an object, several are an array.
            let shown = if objects.len() == 1 { objects.remove(0) } else { Value::Array(objects) };
            format!("{shown}\n")
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
