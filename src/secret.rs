//! Keeps passwords out of messages and stored values.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::text::escape;

/// Replaces a secret.
const HIDDEN: &str = "***";

/// Length in bytes from which on the beginning of a secret is hidden too: servers cut what they
/// repeat.
const TELLING: usize = 8;

/// Returns `text` without the user and password of an address in it. A password may have any
/// character, so everything between the first `://` and the last `@` is cut out.
pub fn without_userinfo(text: &str) -> String {
    let cut = |(scheme, rest): (&str, &str)| {
        let (_, host) = rest.rsplit_once('@')?;
        Some(format!("{scheme}://{HIDDEN}@{host}"))
    };
    text.split_once("://")
        .and_then(cut)
        .unwrap_or_else(|| text.to_owned())
}

/// Returns the first word of a command without what may be a secret: the value of an assignment,
/// the password of an address, and all behind a blank. A word with blanks is probably a whole
/// command line in quotes. env(1) takes any name, as `spring.password=…`, and a shell `NAME+=VALUE`
/// too.
pub fn without_secrets(word: &str) -> String {
    let word = without_userinfo(word.split_whitespace().next().unwrap_or_default());
    match word.split_once('=') {
        Some((name, _)) if !name.is_empty() && !name.contains('/') => format!("{name}=…"),
        _ => word,
    }
}

/// Whether the address, or one of a list, has a password. A part without a scheme is the rest of a
/// password with a comma.
pub fn has_password(addresses: &str) -> bool {
    addresses
        .split(',')
        .any(|address| match address.split_once("://") {
            Some((_, rest)) => rest
                .rsplit_once('@')
                .is_some_and(|(userinfo, _)| userinfo.contains(':')),
            None => address.contains('@'),
        })
}

/// Returns `text` without `secret`, and without its longer beginnings.
pub fn without(text: &str, secret: &str) -> String {
    let telling = secret.len().clamp(1, TELLING);
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let common: usize = rest
            .chars()
            .zip(secret.chars())
            .take_while(|(a, b)| a == b)
            .map(|(c, _)| c.len_utf8())
            .sum();
        if common >= telling {
            shown.push_str(HIDDEN);
            rest = &rest[common..];
        } else {
            shown.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    shown
}

/// Returns what a server said of itself without the password that it was sent, and escaped.
pub fn told(words: &str, password: Option<&Secret>) -> String {
    let hidden = password.map(|password| without(words, password.reveal()));
    escape::short(hidden.as_deref().unwrap_or(words))
}

/// A password. Shown by nothing, not even `{:?}`. Its clones share one copy, which is overwritten with
/// zeros when the last of them is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: Arc<Zeroizing<String>>,
    /// Its source, for people; `None` for the address.
    source: Option<String>,
}

impl Secret {
    /// Wraps the password `text` of an address.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: Arc::new(Zeroizing::new(text.into())),
            source: None,
        }
    }

    /// Wraps `text`, which came from `source`: a variable or a file, as messages show it.
    pub fn of(source: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            text: Arc::new(Zeroizing::new(text.into())),
            source: Some(source.into()),
        }
    }

    /// The password itself, for the server alone.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Where it came from, for people.
    pub fn source(&self) -> &str {
        self.source.as_deref().unwrap_or("the address")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_commands_first_word_is_shown_without_its_secret() {
        for (word, shown) in [
            (
                "/usr/bin/mysqldump -phunter2 a/hunter3",
                "/usr/bin/mysqldump",
            ),
            ("PASSWORD=a/hunter2", "PASSWORD=…"),
            ("PASSWORD+='a b' ./job", "PASSWORD+=…"),
            ("redis://u:pw@h", "redis://***@h"),
            ("./a=b/x", "./a=b/x"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(word), shown);
        }
    }

    #[test]
    fn an_address_is_shown_without_its_user_and_password() {
        for (text, shown) in [
            (
                "unexpected argument 'redis://:hunter2@h' found",
                "unexpected argument 'redis://***@h' found",
            ),
            ("redis://u:a b'/@c@h/1,rediss://:d@i", "redis://***@i"),
            ("redis://h:1", "redis://h:1"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(without_userinfo(text), shown);
        }
    }

    #[test]
    fn an_address_with_a_password_is_known() {
        for (text, has) in [
            ("redis://u:p@h", true),
            ("redis://:p@h:1/2", true),
            ("redis://h,redis://:p@i", true),
            ("redis://u:p,q@h", true),
            ("redis://u@h:6379", false),
            ("redis://h:6379,local", false),
            ("local:/a:b", false),
        ] {
            assert_eq!(has_password(text), has, "{text}");
        }
    }

    #[test]
    fn a_secret_that_a_server_repeats_is_hidden_also_where_it_is_cut_off() {
        let said = |end: &str| {
            format!("ERR unknown command 'HELLO', with args: '3' 'AUTH' 'default' '{end}")
        };
        assert_eq!(without(&said("hunter2'"), "hunter2"), said("***'"));
        assert_eq!(
            without(&said("correct horse"), "correct horse battery staple"),
            said("***")
        );
        assert_eq!(without(&said("hunt"), ""), said("hunt"));
    }

    #[test]
    fn a_servers_words_are_told_escaped_and_without_the_password() {
        let password = Secret::new("hunter2");
        assert_eq!(told("3.5\x1b[2Jhunter2", Some(&password)), "3.5\\x1b[2J***");
        assert_eq!(told("3.5\n", None), "3.5\\n");
    }

    #[test]
    fn the_clones_of_a_secret_share_one_copy() {
        let secret = Secret::of("a file", "hunter2");
        assert_eq!(secret.clone().reveal().as_ptr(), secret.reveal().as_ptr());
    }

    proptest! {
        #[test]
        fn no_password_of_an_address_is_shown(before in "[^Z]{0,20}", scheme in "[a-z+-]{1,9}", user in ".{0,9}", password in "Zq.{0,20}", host in "[^Z]{0,30}") {
            let shown = without_userinfo(&format!("{before}{scheme}://{user}:{password}@{host}"));
            prop_assert!(!shown.contains("Zq"), "{shown}");
        }

        #[test]
        fn no_secret_is_shown(before in "[^Z]{0,30}", secret in "Z[^Z]{0,30}", after in "[^Z]{0,30}") {
            let shown = without(&format!("{before}{secret}{after}"), &secret);
            prop_assert_eq!(shown, format!("{before}***{after}"));
        }

        #[test]
        fn no_telling_part_of_a_secret_is_shown(before in "[^Z]{0,30}", secret in "Z[^Z]{8,30}", kept in 8usize..30) {
            let end: String = secret.chars().take(kept).collect();
            let shown = without(&format!("{before}{end}"), &secret);
            prop_assert_eq!(shown, format!("{before}***"));
        }
    }
}
