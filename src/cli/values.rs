//! The values of options: text in, a checked value out.

use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueEnum};
use nix::sys::signal::Signal;
use rustls::pki_types::ServerName;

use crate::lock::fence::Fence;
use crate::lock::key::SEPARATOR;
use crate::lock::mode::{MOST_SLOTS, Mode};
use crate::lock::restart::RestartGuard;
use crate::lock::token::Token;
use crate::store::address;
use crate::text::duration;

/// Reads the token of one lock.
pub(super) fn token(text: &str) -> Result<Token, String> {
    if text.contains(SEPARATOR) {
        return Err("tokens of several locks: give that of one".to_owned());
    }
    text.parse()
}

/// Reads the fence of one lock.
pub(super) fn fence(text: &str) -> Result<Fence, String> {
    if text.contains(SEPARATOR) {
        return Err("fences of several locks: give that of one".to_owned());
    }
    let fence = text.parse().ok().and_then(Fence::new);
    fence.ok_or_else(|| format!("write a number from 1 to {}", Fence::LIMIT - 1))
}

/// A shell that rlock has completions for.
#[derive(Clone, Copy, ValueEnum, Debug)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err("write 1 or 0, true or false, yes or no".to_owned()),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=0.5).contains(&rate) => Ok(rate),
        _ => Err("write a fraction from 0 to 0.5, like 0.01".to_owned()),
    }
}

/// Reads a duration above zero.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    let span = duration::parse(text)?;
    if span.is_zero() {
        Err("write a time above 0, like 500ms".to_owned())
    } else {
        Ok(span)
    }
}

/// Reads the number of slots.
pub(super) fn slots(text: &str) -> Result<Mode, String> {
    let mode = text.parse().ok().and_then(Mode::slots);
    mode.ok_or_else(|| format!("write a number from 1 to {MOST_SLOTS}"))
}

/// Reads the number of a slot.
pub(super) fn slot(text: &str) -> Result<u16, String> {
    let slot = text
        .parse()
        .ok()
        .filter(|slot| (1..=MOST_SLOTS).contains(slot));
    slot.ok_or_else(|| format!("write a number from 1 to {MOST_SLOTS}"))
}

/// Reads a signal, and tells completions the names.
#[derive(Clone)]
pub(super) struct SignalName;

impl TypedValueParser for SignalName {
    type Value = Signal;

    fn parse_ref(
        &self,
        command: &Command,
        option: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Signal, clap::Error> {
        TypedValueParser::parse_ref(&signal, command, option, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let name = |signal: Signal| signal.as_str().trim_start_matches("SIG");
        Some(Box::new(
            Signal::iterator().map(move |signal| PossibleValue::new(name(signal))),
        ))
    }
}

/// Reads a signal's name, with or without SIG, or its number.
fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let named = if upper.starts_with("SIG") {
        upper.clone()
    } else {
        format!("SIG{upper}")
    };
    named
        .parse()
        .ok()
        .or_else(|| {
            upper
                .parse::<i32>()
                .ok()
                .and_then(|number| Signal::try_from(number).ok())
        })
        .ok_or_else(|| "write a signal's name or number, like TERM or 15".to_owned())
}

/// Reads `auto`, `off` or a duration with its unit.
pub fn restart_guard(text: &str) -> Result<RestartGuard, String> {
    match text {
        "auto" => Ok(RestartGuard::Auto),
        "off" => Ok(RestartGuard::Off),
        _ => duration::parse(text)
            .map(RestartGuard::For)
            .map_err(|why| format!("auto, off or a duration: {why}")),
    }
}

/// Reads a host name or an IP address that a certificate may have.
pub(super) fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| "write a host name or an IP address, without a port".to_owned())
}

/// Refuses a node's address, which may hold a password: a lock's name is shown and sent.
pub(super) fn lock_name(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some((scheme, _)) if address::is_scheme(scheme) => {
            Err("a node's address is given with --node".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tokens_or_fences_is_refused_as_one() {
        let both = format!("{},{}", Token::fresh(), Token::fresh());
        assert!(token(&both).unwrap_err().contains("several locks"));
        assert!(fence("7,8").unwrap_err().contains("several locks"));
        assert_eq!(fence("7"), Ok(Fence::new(7).unwrap()));
        for text in ["", "0", "x", "9223372036854775808"] {
            assert!(
                fence(text)
                    .unwrap_err()
                    .contains("from 1 to 9223372036854775807"),
                "{text}"
            );
        }
    }

    #[test]
    fn signals_are_read_by_name_and_number() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(signal(text), Ok(Signal::SIGTERM));
        }
    }
}
