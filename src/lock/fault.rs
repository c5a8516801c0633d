//! Why a node gave no vote, what follows from it, and what to do about it.

use std::fmt;
use std::time::Duration;

/// Why a node's vote is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What to do about it.
    pub kind: FaultKind,
    /// For people; escaped.
    pub why: String,
}

/// What a fault means for the one who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The node refuses us, and will again: password, ACL, certificate.
    Refused,
    /// The node cannot be used as configured.
    Unfit,
    /// The request certainly changed nothing; later it may succeed.
    Unavailable,
    /// No answer: the request may have been executed, or may be yet.
    Unknown,
}

impl Fault {
    /// A fault of `kind`, explained by `why`.
    pub fn new(kind: FaultKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    /// No answer within `limit`.
    pub fn timeout(limit: Duration) -> Self {
        Self::new(FaultKind::Unknown, format!("no answer within {}", crate::text::duration::show_rounded(limit)))
    }

    /// The remedy for a refusal, by the server's words.
    pub fn cure(&self) -> &'static str {
        let says = |words: &[&str]| words.iter().any(|word| self.why.contains(word));
        if says(&["CertificateRequired"]) {
            "set tls-auth-clients to no or optional on the server: rlock shows no certificate"
        } else if says(&["certificate", "TLS"]) {
            "see the server's certificate, and --ca"
        } else if says(&["NOPERM", "permission", "can't run this command", "can't access"]) {
            "grant the ACL line that rlock doctor prints"
        } else {
            "give the user and password that the server knows"
        }
    }

    /// The warning for a node that refuses us while a majority of the others answers.
    pub fn as_missing_vote(&self) -> String {
        format!("{}; its vote is missing: {}", self.why.trim_end_matches('.'), self.cure())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_refusal_has_its_own_cure() {
        for (why, cure) in [
            ("the user or the password is wrong", "password"),
            ("NOAUTH Authentication required.", "password"),
            ("NOPERM this user has no permissions to run the 'eval' command", "ACL line"),
            ("ERR The user executing the script can't run this command or subcommand", "ACL line"),
            ("its certificate is not trusted (certificate expired)", "--ca"),
            ("it does not speak TLS; write redis:// if that is meant", "--ca"),
            ("received fatal alert: CertificateRequired", "tls-auth-clients"),
        ] {
            let fault = Fault::new(FaultKind::Refused, why);
            assert!(fault.cure().contains(cure), "{why}: {}", fault.cure());
            let told = fault.as_missing_vote();
            assert!(told.starts_with(why.trim_end_matches('.')) && !told.contains(".;"), "{told}");
        }
    }
}
