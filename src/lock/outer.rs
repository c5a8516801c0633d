//! The locks of outer rlocks, which run this process, as the environment tells them:
//! `RLOCK_HELD=TOKEN:FENCE[,TOKEN:FENCE…]`, outermost first.
//!
//! It is a claim and no proof: a token counts only where the nodes say that it holds the lock in
//! question.

use std::fmt;

use super::fence::Fence;
use super::key::{SEPARATOR, list};
use super::token::Token;

/// The variable's name.
pub const VARIABLE: &str = "RLOCK_HELD";

/// The locks of outer rlocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OuterLocks {
    held: Vec<(Token, Fence)>,
    /// `RLOCK_TOKEN`: perhaps locks that `acquire` took.
    named: Vec<Token>,
}

impl OuterLocks {
    /// Reads the values of `RLOCK_HELD` and `RLOCK_TOKEN`. Entries that are no token and fence are
    /// left out.
    pub fn read(held: &str, named: &str) -> Self {
        let entry = |text: &str| {
            let (token, fence) = text.split_once(':')?;
            Some((token.parse().ok()?, Fence::new(fence.parse().ok()?)?))
        };
        Self {
            held: held.split(SEPARATOR).filter_map(entry).collect(),
            named: named
                .split(SEPARATOR)
                .filter_map(|text| text.parse().ok())
                .collect(),
        }
    }

    /// Whether the environment claims the lock of `token`.
    pub fn claim(&self, token: Token) -> bool {
        self.named.contains(&token) || self.is_run(token)
    }

    /// Whether the environment says that a live, outer `rlock run` holds the lock of `token`.
    pub fn is_run(&self, token: Token) -> bool {
        self.fence(token).is_some()
    }

    /// Returns the fence of a lock that such a run holds.
    pub fn fence(&self, token: Token) -> Option<Fence> {
        self.held
            .iter()
            .find(|(held, _)| *held == token)
            .map(|(_, fence)| *fence)
    }

    /// Whether the environment claims no lock.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.named.is_empty()
    }

    /// Returns the tokens of all locks that the environment claims.
    pub fn tokens(&self) -> Vec<Token> {
        self.held
            .iter()
            .map(|(token, _)| *token)
            .chain(self.named.iter().copied())
            .collect()
    }

    /// Returns the locks of a command that runs under the lock of `token` too.
    #[must_use]
    pub fn with(mut self, token: Token, fence: Fence) -> Self {
        if !self.is_run(token) {
            self.held.push((token, fence));
        }
        self
    }
}

/// The value of `RLOCK_HELD`.
impl fmt::Display for OuterLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list(
            self.held
                .iter()
                .map(|(token, fence)| format!("{token}:{fence}")),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fence(number: u64) -> Fence {
        Fence::new(number).unwrap()
    }

    #[test]
    fn each_level_adds_its_lock_once_and_keeps_the_order() {
        let (a, b) = (Token::fresh(), Token::fresh());
        let both = OuterLocks::default()
            .with(a, fence(7))
            .with(b, fence(8))
            .with(a, fence(7));
        assert_eq!(both.to_string(), format!("{a}:7,{b}:8"));
        assert_eq!(OuterLocks::read(&both.to_string(), ""), both);
    }

    #[test]
    fn rlock_token_alone_is_a_claim_and_no_live_run() {
        let (token, other) = (Token::fresh(), Token::fresh());
        let outer = OuterLocks::read(&format!("{other}:7"), &token.to_string());
        assert_eq!((outer.claim(token), outer.is_run(token)), (true, false));
        assert_eq!((outer.claim(other), outer.is_run(other)), (true, true));
        assert!(!outer.claim(Token::fresh()) && !outer.is_empty());
        let both = OuterLocks::read("", &format!("{token},{other}"));
        assert!(both.claim(token) && both.claim(other) && !both.is_run(other));
        assert!(OuterLocks::read("garbage", "").is_empty());
    }

    proptest! {
        #[test]
        fn garbage_is_left_out(before in "[^,]{0,60}", after in ".{0,60}") {
            let token = Token::fresh();
            let outer = OuterLocks::read(&format!("{before},{token}:7,{token}:0,{token},{after}"), &after);
            prop_assert_eq!(outer.to_string(), format!("{token}:7"));
        }
    }
}
