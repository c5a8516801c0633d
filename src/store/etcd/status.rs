//! The status by which etcd refuses a request, and its consequence for a lock.

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::link::header;
use crate::secret::{self, Secret};
use crate::store::{Denied, Fault, FaultKind};
use crate::text::escape;

/// A status that is not "OK".
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Status {
    /// gRPC's number.
    code: Code,
    /// etcd's words.
    words: String,
    /// The same without the password.
    told: String,
}

/// gRPC's codes that rlock tells apart (grpc/doc/statuscodes.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Code {
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Unavailable,
    Unauthenticated,
    Other,
}

/// Words of etcd that repeat nothing of what was sent, and ours for a member without a leader. A short
/// password may stand in them by chance: hiding it would show it.
const OWN_WORDS: [&str; 6] = [
    "authentication failed, invalid user ID or password",
    "user name is empty",
    "permission denied",
    "invalid auth token",
    "request timed out",
    NO_LEADER,
];

const NO_LEADER: &str = "it knows no leader";

impl Status {
    /// Reads the status that headers or trailers tell; `None` if they tell none. A member that
    /// repeats `password` is quoted without it.
    pub(super) fn of(headers: &HeaderMap, password: Option<&Secret>) -> Option<Result<(), Self>> {
        let code = match header(headers, "grpc-status")?.trim() {
            "0" => return Some(Ok(())),
            "5" => Code::NotFound,
            "7" => Code::PermissionDenied,
            "8" => Code::ResourceExhausted,
            "9" => Code::FailedPrecondition,
            "12" => Code::Unimplemented,
            "14" => Code::Unavailable,
            "16" => Code::Unauthenticated,
            _ => Code::Other,
        };
        let words = header(headers, "grpc-message").unwrap_or_default();
        let words = percent_decode_str(words).decode_utf8_lossy();
        let words = words.trim_start_matches("etcdserver: ");
        let told = match password.filter(|_| !OWN_WORDS.contains(&words)) {
            Some(password) => &secret::without(words, password.reveal()),
            None => words,
        };
        Some(Err(Self {
            code,
            words: escape::short(words),
            told: escape::short(told),
        }))
    }

    /// Whether the lease that was named does not exist.
    pub(super) fn is_no_lease(&self) -> bool {
        self.code == Code::NotFound
    }

    /// Whether the lease that was to be made exists already.
    pub(super) fn is_lease_known(&self) -> bool {
        self.code == Code::FailedPrecondition && self.words.contains("lease already exists")
    }

    /// Whether the token is over by which the member knew us.
    pub(super) fn is_token_over(&self) -> bool {
        self.code == Code::Unauthenticated || self.words.contains("auth store is old")
    }

    /// Whether no user is known there, so that none is needed.
    pub(super) fn is_without_users(&self) -> bool {
        self.words.contains("authentication is not enabled")
    }

    /// Whether another member may do what this one cannot.
    pub(super) fn is_of_member(&self) -> bool {
        self.code == Code::Unavailable
    }

    /// Whether the request was not carried out, and never will be.
    pub(super) fn is_undone(&self) -> bool {
        self.is_token_over() || self.is_of_member() && self.fault().kind != FaultKind::Unknown
    }

    /// Returns what the refusal of a login means for a lock. A hostile member's words could show the
    /// password, so only etcd's own are told.
    pub(super) fn fault_of_login(&self) -> Fault {
        let fault = self.fault();
        if OWN_WORDS.contains(&fault.why.as_str()) {
            return fault;
        }
        Fault {
            why: "it refuses the login".to_owned(),
            ..fault
        }
    }

    /// Returns what it means for a lock.
    pub(super) fn fault(&self) -> Fault {
        let (words, told) = (self.words.as_str(), self.told.as_str());
        let login = words.contains("authentication failed") || words.contains("user name is empty");
        match self.code {
            _ if login => Fault::denied(
                Denied::Login,
                told,
                "give the right user and password, as in etcd://user@host and --password-file",
            ),
            Code::PermissionDenied => Fault::denied(
                Denied::Key,
                told,
                "give the user's role readwrite on the lock's keys; rlock doctor --acl shows how",
            ),
            Code::Unauthenticated => Fault::denied(
                Denied::Login,
                told,
                "see the members' --auth-token, which all must share",
            ),
            Code::ResourceExhausted if words.contains("space") => {
                Fault::new(FaultKind::Unavailable, told)
                    .with_remedy("compact and defragment it, then etcdctl alarm disarm")
            }
            Code::Unimplemented => Fault::unfit(
                format!("it does not know rlock's requests: {told}"),
                "name an etcd of version 3.4 or later",
            ),
            Code::Unavailable if words.contains("no leader") => {
                Fault::new(FaultKind::Unavailable, NO_LEADER)
                    .with_remedy("see whether a majority of the members is up")
            }
            // It may be carried out yet.
            Code::Unavailable => Fault::new(FaultKind::Unknown, told)
                .with_remedy("see the members' log, their disks and the network"),
            _ => Fault::new(FaultKind::Unknown, told),
        }
    }
}

/// Returns the fault of a server whose first byte is not etcd's. An HTTP/2 server begins with a
/// frame of less than 64 KiB, so that its first byte is zero (RFC 9113 §3.4).
pub(super) fn stranger(first: Option<u8>) -> Option<Fault> {
    match first? {
        0 => None,
        21 => Some(Fault::unfit(
            "it speaks TLS",
            "write etcds in place of etcd",
        )),
        b'H' => Some(Fault::unfit(
            "it speaks HTTP/1",
            "write the client port of an etcd",
        )),
        _ => Some(Fault::unfit(
            "it does not speak etcd's protocol",
            "write the client port of an etcd",
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn status(code: &'static str, words: &'static str) -> Status {
        shown(code, words, None)
    }

    fn shown(code: &'static str, words: &'static str, password: Option<&Secret>) -> Status {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-status", HeaderValue::from_static(code));
        headers.insert("grpc-message", HeaderValue::from_static(words));
        Status::of(&headers, password).unwrap().unwrap_err()
    }

    #[test]
    fn a_status_is_told_in_etcds_words_and_its_consequence() {
        for (code, words, kind, told) in [
            (
                "3",
                "etcdserver: authentication failed, invalid user ID or password",
                FaultKind::Refused,
                "authentication failed",
            ),
            (
                "3",
                "etcdserver: user name is empty",
                FaultKind::Refused,
                "user name is empty",
            ),
            (
                "7",
                "etcdserver: permission denied",
                FaultKind::Refused,
                "permission denied",
            ),
            (
                "8",
                "etcdserver: mvcc: database space exceeded",
                FaultKind::Unavailable,
                "space exceeded",
            ),
            (
                "14",
                "etcdserver: no leader",
                FaultKind::Unavailable,
                "knows no leader",
            ),
            (
                "14",
                "etcdserver: request timed out",
                FaultKind::Unknown,
                "timed out",
            ),
            (
                "12",
                "unknown%20service",
                FaultKind::Unfit,
                "unknown service",
            ),
            ("99", "x", FaultKind::Unknown, "x"),
        ] {
            let fault = status(code, words).fault();
            assert_eq!(fault.kind, kind, "{words}");
            assert!(fault.why.contains(told), "{fault}");
            assert!(!fault.why.contains("etcdserver"), "{fault}");
        }
        assert!(status("9", "etcdserver: lease already exists").is_lease_known());
        assert!(status("5", "etcdserver: requested lease not found").is_no_lease());
        assert!(status("16", "etcdserver: invalid auth token").is_token_over());
        assert!(status("9", "etcdserver: authentication is not enabled").is_without_users());
        assert!(Status::of(&HeaderMap::new(), None).is_none());
    }

    #[test]
    fn the_refusal_of_a_login_is_told_in_words_that_hold_no_password() {
        let echoed = status("7", "no user with the password hunter2");
        assert_eq!(echoed.fault_of_login().why, "it refuses the login");
        let known = status(
            "3",
            "etcdserver: authentication failed, invalid user ID or password",
        );
        assert!(known.fault_of_login().why.contains("invalid user ID"));
    }

    #[test]
    fn a_password_is_hidden_where_a_member_repeats_it_and_nowhere_else() {
        let told = |code, words, password| shown(code, words, Some(&Secret::new(password))).fault();
        for code in ["2", "5", "7", "8", "9", "12", "14", "16"] {
            let fault = told(code, "no space for hunter2%2e", "hunter2.");
            assert!(fault.why.contains("no space for ***"), "{fault}");
        }
        let denied = told("7", "etcdserver: permission denied", "denied");
        assert_eq!(denied.why, "permission denied");
        // It may have words that mean something.
        let known = Some(&Secret::new("lease already"));
        assert!(shown("9", "etcdserver: lease already exists", known).is_lease_known());
    }

    #[test]
    fn a_stranger_is_known_by_its_first_byte() {
        assert_eq!((stranger(None), stranger(Some(0))), (None, None));
        let why = |first| stranger(Some(first)).unwrap().why;
        assert!(why(21).contains("write etcds") && why(b'H').contains("HTTP/1"));
        assert!(why(b'-').contains("does not speak"));
    }
}
