//! The token: the proof that a lock is ours.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A uuid v4, made anew for every attempt.
///
/// Never used twice: with one token over several attempts a late release of the first would delete
/// the lock that the second took.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Token(Uuid);

impl Token {
    /// Returns a token that no other client has.
    pub fn fresh() -> Self {
        Self(Uuid::new_v4())
    }

    /// Returns the token whose bare number this is.
    pub fn of_uuid(number: Uuid) -> Self {
        Self(number)
    }

    /// Returns the bare number.
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for Token {
    type Err = String;

    /// Reads only the spelling that [`fmt::Display`] writes: the servers compare bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let token = Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| "not a token of rlock".to_owned())?;
        if token.to_string() == text {
            Ok(token)
        } else {
            Err("not a token of rlock".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_only_in_its_own_spelling() {
        let token = Token::fresh();
        assert_eq!(token.to_string().parse(), Ok(token));
        assert!(
            "6B29FC40-CA47-4067-B31D-00DD010662DA"
                .parse::<Token>()
                .is_err()
        );
        assert!("0123456789abcdef0123456789abcdef".parse::<Token>().is_err());
    }
}
