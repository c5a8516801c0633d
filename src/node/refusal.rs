//! A node that refuses us, in words for people: what follows from it, and what to do.

use super::Fault;

impl Fault {
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

#[cfg(test)]
mod tests {
    use super::super::FaultKind;
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
