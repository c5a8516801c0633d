//! `rlock acquire`: takes the lock, prints its token, and exits.

use serde_json::json;

use super::acquisition;
use super::cover::Cover;
use super::{block_on, write_all};
use crate::cli::subcommands::{AcquireArgs, Format};
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::hold::holdings::Holdings;
use crate::job::signals::Signals;
use crate::job::spawn::Inherited;
use crate::lock::key::Key;
use crate::settings::{LockSettings, Sources, StoreConfig};
use crate::store::Feature;
use crate::text::duration::millis;

pub fn acquire(
    args: &AcquireArgs,
    sources: &Sources,
    inherited: &Inherited,
) -> anyhow::Result<Outcome> {
    let format = args.format;
    let settings = LockSettings::new(&args.lock, &args.output, None, sources, StoreConfig::new)?;
    settings.store.needs(Feature::Parking, "acquire")?;
    let [key] = &settings.keys[..] else {
        let why = "acquire takes one lock; rlock run takes several at once";
        return Err(Failure::about(&settings.keys, Outcome::Usage, why).into());
    };
    if format == Format::Env && !is_plain(key.typed()) {
        let why = "a shell could read this key as something else; use --format json";
        return Err(Failure::about(key, Outcome::Usage, why).into());
    }
    block_on(take(&settings, key, inherited, format))
}

async fn take(
    settings: &LockSettings,
    key: &Key,
    inherited: &Inherited,
    format: Format,
) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch(inherited)?;
    let mut alarm = Alarm::new()?;
    let cover = match acquisition::take(settings, None, &mut signals, &mut alarm).await? {
        Ok(cover) => cover,
        Err(outcome) => return Ok(outcome),
    };
    // Only a command can run under an outer lock.
    let Cover::Own(holdings) = &cover else {
        return Ok(Outcome::Bug);
    };
    holdings.leave_queues().await;
    // A signal that arrived before the token was printed: do not keep the lock.
    if let Some(caught) = signals.interruption() {
        cover.give_up(&settings.report).await;
        return Ok(acquisition::end_by(caught));
    }
    let shown = show(format, key, holdings).unwrap_or_default();
    if let Err(error) = write_all(shown.as_bytes()) {
        cover.give_up(&settings.report).await;
        let why = format!("cannot print the token: {error}; the lock is released");
        return Err(Failure::about(key, Outcome::Output, why).into());
    }
    Ok(Outcome::Done)
}

fn show(format: Format, key: &Key, holdings: &Holdings) -> Option<String> {
    let ((token, fence), slot) = (holdings.grants().next()?, holdings.slots().next()?);
    Some(match format {
        Format::Token => format!("{token}\n"),
        Format::Env => {
            let slot = slot.map_or_else(String::new, |slot| format!("RLOCK_SLOT={slot}\n"));
            format!(
                "RLOCK_KEY={}\nRLOCK_TOKEN={token}\nRLOCK_FENCE={fence}\n{slot}",
                key.typed()
            )
        }
        Format::Json => {
            let (token, fence, left) = (
                token.to_string(),
                fence.get(),
                holdings.deadline().since(clock::now()),
            );
            let object = json!({ "key": key.typed(), "token": token, "fence": fence, "slot": slot, "ttl_ms": millis(left) });
            format!("{object}\n")
        }
    })
}

/// Whether a shell's `eval` and `$GITHUB_ENV` both read the text unchanged. They have no quotes in
/// common, and to zsh `=ls` is the path of ls.
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
