//! The file of MySQL's clients: `~/.my.cnf`, of which rlock reads the user and the password of the
//! group `[client]` (MySQL, Using Option Files). No file that it includes is read.

use super::client_text;
use crate::exit::Failure;
use crate::secret::Secret;

/// A user and a password.
#[derive(Default, PartialEq, Debug)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
}

/// Returns what `~/.my.cnf` has, if it is there.
pub(super) fn read() -> Result<Option<Login>, Failure> {
    let Some(home) = std::env::home_dir() else {
        return Ok(None);
    };
    let text = client_text(&home.join(".my.cnf"))?;
    Ok(text.map(|(name, text)| find(&name, &text)))
}

/// Returns what the group `[client]` of a file says. The last word counts.
fn find(file: &str, text: &str) -> Login {
    let mut login = Login::default();
    let mut is_ours = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_ours = line == "[client]";
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_ours) else {
            continue;
        };
        let value = value_of(value.trim());
        match name.trim() {
            "user" => login.user = Some(value).filter(|user| !user.is_empty()),
            "password" => {
                let password = Some(value).filter(|password| !password.is_empty());
                login.password = password.map(|password| Secret::of(file, password));
            }
            _ => {}
        }
    }
    login
}

/// Returns a value without its quotes, with the escapes that it has, and without a comment.
fn value_of(written: &str) -> String {
    let quote = written.chars().next().filter(|c| ['"', '\''].contains(c));
    let inner = match quote {
        Some(quote) => {
            let inner = &written[1..];
            inner.rsplit_once(quote).map_or(inner, |(inner, _)| inner)
        }
        None => written.split(" #").next().unwrap_or_default().trim_end(),
    };
    let mut value = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        match characters.next() {
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('s') => value.push(' '),
            Some('\\') | None => value.push('\\'),
            Some(other) => value.extend(['\\', other]),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_clients_has_the_login() {
        let found = |text: &str| {
            let login = find("file", text);
            let password = login.password.map(|password| password.reveal().to_owned());
            (login.user, password)
        };
        let some = |user: &str, password: &str| (Some(user.to_owned()), Some(password.to_owned()));
        assert_eq!(
            found(
                "# x\n[mysql]\npassword=no\n[client]\nuser = rlock\npassword = \"a#b\" # c\n[mysqldump]\nuser=no"
            ),
            some("rlock", "a#b")
        );
        assert_eq!(
            found("[client]\nuser=a\nuser='b'\npassword=x\\sy\\\\z\\q"),
            some("b", "x y\\z\\q")
        );
        assert_eq!(found("[client]\npassword=\nsocket=/s\nuser"), (None, None));
        assert_eq!(found("user=a\npassword=b"), (None, None));
    }
}
