//! The words for what fails in TLS. Those of the library name its types, and none of them reaches a message.

use rustls::{CertificateError, Error};

use crate::node::{Fault, FaultKind};
use crate::text::escape;

/// The fault of a server without TLS.
pub(in crate::node::redis) const NO_TLS: &str = "it does not speak TLS; write redis:// if that is meant";

/// Alerts by which a server refuses the certificate that it was shown (RFC 8446 §6.2), by rustls' names.
const OF_CERTIFICATE: [&str; 7] = [
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
    "AccessDenied",
];

/// Precedes an alert's name in an error that has become text.
const ALERT: &str = "received fatal alert: ";

/// Part of rustls' error of a connection that ended without a farewell.
const CUT_OFF: &str = "without sending TLS close_notify";

/// Returns the fault of a handshake that failed with `error`.
pub(super) fn of_handshake(error: &Error) -> Fault {
    match error {
        Error::InvalidCertificate(why) => {
            Fault::new(FaultKind::Refused, format!("its certificate is not trusted: {}", of_certificate(why)))
        }
        Error::InvalidMessage(_) => Fault::new(FaultKind::Unfit, NO_TLS),
        Error::AlertReceived(alert) => Fault::new(FaultKind::Refused, of_alert(&format!("{alert:?}"))),
        Error::PeerIncompatible(why) => {
            Fault::new(FaultKind::Refused, format!("TLS: it is incompatible: {}", spelled(&format!("{why:?}"))))
        }
        Error::PeerMisbehaved(why) => {
            Fault::new(FaultKind::Refused, format!("TLS: it breaks the protocol: {}", spelled(&format!("{why:?}"))))
        }
        other => Fault::new(FaultKind::Refused, format!("TLS: {}", without_names(other))),
    }
}

/// Returns what is wrong with a file that was to be used: a key, a certificate, or both.
pub(super) fn of_file(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(_) => "the key is not the certificate's".to_owned(),
        Error::InvalidCertificate(why) => of_certificate(why),
        other => without_names(other),
    }
}

/// Returns the text of an error behind the handshake in plain words, and its kind if it is a refusal. `None` if `text` is not of
/// TLS. With TLS 1.3 a client hears only then that its certificate is missing, or not accepted.
pub(in crate::node::redis) fn of_text(text: &str) -> Option<(Option<FaultKind>, String)> {
    if text.contains(CUT_OFF) {
        return Some((None, "it closed the connection".to_owned()));
    }
    let (_, rest) = text.split_once(ALERT)?;
    let name = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    let is_refusal = name == "CertificateRequired" || OF_CERTIFICATE.contains(&name);
    Some((is_refusal.then_some(FaultKind::Refused), of_alert(name)))
}

fn of_alert(name: &str) -> String {
    match name {
        "CertificateRequired" => "it asks for a client certificate".to_owned(),
        _ if OF_CERTIFICATE.contains(&name) => {
            format!("it does not accept the certificate of --cert: {}", spelled(name))
        }
        _ => format!("it ended the TLS connection: {}", spelled(name)),
    }
}

/// Tells why a certificate is refused.
fn of_certificate(why: &CertificateError) -> String {
    let told = match why {
        CertificateError::UnknownIssuer => "its issuer is unknown",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for servers (extendedKeyUsage)"
        }
        CertificateError::BadEncoding => "it is damaged",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = escape::text(&expected.to_str());
            let names = presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ");
            return match names.as_str() {
                "" => format!("it names no host (subjectAltName), and {expected} is asked for"),
                names => format!("it is for {}, not for {expected}", escape::short(names)),
            };
        }
        CertificateError::Other(other) => return of_library(&format!("{:?}", other.0)),
        other => return spelled(&format!("{other:?}")),
    };
    told.to_owned()
}

/// Tells why the library that checks certificates refuses one, by the name of its error.
fn of_library(name: &str) -> String {
    match name {
        "CaUsedAsEndEntity" => "it is a CA's own, with which others are issued".to_owned(),
        "UnsupportedCertVersion" => "it is X.509 v1, without a subjectAltName".to_owned(),
        other => spelled(other),
    }
}

/// Returns the host of a name in a certificate, which the library shows as `DnsName("h")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"')
}

/// Returns the words of an error before the names of types and values in it.
fn without_names(error: &Error) -> String {
    let text = error.to_string();
    let words = match error {
        Error::General(why) => why.as_str(),
        _ => text.split(':').next().unwrap_or_default(),
    };
    escape::short(words)
}

/// Returns the words of a name like `UnknownCA`: `unknown CA`. What stands behind the name is left out.
fn spelled(name: &str) -> String {
    let name: Vec<char> = name.chars().take_while(char::is_ascii_alphanumeric).collect();
    let begins = |at: usize| {
        let (is_upper, was_upper) = (name[at].is_ascii_uppercase(), at > 0 && name[at - 1].is_ascii_uppercase());
        is_upper && (!was_upper || name.get(at + 1).is_some_and(char::is_ascii_lowercase))
    };
    let mut words: Vec<String> = Vec::new();
    for (at, letter) in name.iter().enumerate() {
        match words.last_mut().filter(|_| !begins(at)) {
            Some(word) => word.push(*letter),
            None => words.push(letter.to_string()),
        }
    }
    let lower = |word: String| if word.len() > 1 && word == word.to_uppercase() { word } else { word.to_lowercase() };
    words.into_iter().map(lower).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;

    use rustls::pki_types::ServerName;
    use rustls::{AlertDescription, OtherError, PeerIncompatible};

    use super::*;

    /// An error of the library that checks certificates.
    #[derive(Debug)]
    enum Library {
        CaUsedAsEndEntity,
        UnsupportedCertVersion,
        MaximumPathDepthExceeded,
    }

    impl fmt::Display for Library {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl std::error::Error for Library {}

    fn library(error: Library) -> CertificateError {
        CertificateError::Other(OtherError(Arc::new(error)))
    }

    fn named(presented: &[&str]) -> CertificateError {
        let expected = ServerName::try_from("10.0.0.5").unwrap();
        CertificateError::NotValidForNameContext {
            expected,
            presented: presented.iter().map(ToString::to_string).collect(),
        }
    }

    /// Whether a text has a name of a type: two words written as one.
    fn has_name(text: &str) -> bool {
        let letters: Vec<char> = text.replace("subjectAltName", "").replace("extendedKeyUsage", "").chars().collect();
        letters.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase())
    }

    #[test]
    fn each_certificate_that_is_refused_has_its_words_and_its_cure() {
        for (error, told, cure) in [
            (CertificateError::UnknownIssuer, "its issuer is unknown", "give its issuer with --ca"),
            (CertificateError::Expired, "it has expired", "this machine's clock"),
            (CertificateError::NotValidYet, "it is not valid yet", "this machine's clock"),
            (
                CertificateError::UnhandledCriticalExtension,
                "unhandled critical extension",
                "see the server's certificate",
            ),
            (
                named(&["DnsName(\"a\")", "IpAddress(10.0.0.1)"]),
                "it is for a, 10.0.0.1, not for 10.0.0.5",
                "--tls-server-name",
            ),
            (named(&[]), "it names no host (subjectAltName), and 10.0.0.5 is asked for", "with a subjectAltName"),
            (library(Library::CaUsedAsEndEntity), "it is a CA's own", "that this CA has issued"),
            (library(Library::UnsupportedCertVersion), "it is X.509 v1", "with a subjectAltName"),
            (library(Library::MaximumPathDepthExceeded), "maximum path depth exceeded", "see the server's certificate"),
        ] {
            let fault = of_handshake(&Error::InvalidCertificate(error));
            assert_eq!(fault.kind, FaultKind::Refused);
            assert!(fault.why.starts_with(&format!("its certificate is not trusted: {told}")), "{fault}");
            assert!(
                fault.cure_of_refusal().contains(cure) && !has_name(&fault.why),
                "{fault}; {}",
                fault.cure_of_refusal()
            );
        }
    }

    #[test]
    fn each_alert_has_its_words_and_its_cure() {
        for (alert, told, cure) in [
            (AlertDescription::CertificateRequired, "it asks for a client certificate", "--cert-key"),
            (AlertDescription::UnknownCA, "the certificate of --cert: unknown CA", "its issuer, its dates"),
            (AlertDescription::HandshakeFailure, "handshake failure", "if the server asks"),
            (AlertDescription::ProtocolVersion, "it ended the TLS connection: protocol version", "TLS settings"),
        ] {
            let fault = of_handshake(&Error::AlertReceived(alert));
            assert!(
                fault.why.contains(told) && fault.cure_of_refusal().contains(cure),
                "{fault}; {}",
                fault.cure_of_refusal()
            );
            // The same, heard behind the handshake.
            let (kind, why) = of_text(&format!("{}: it", Error::AlertReceived(alert))).unwrap();
            assert_eq!(why, fault.why);
            let is_refusal = why.contains("certificate");
            assert_eq!(kind, is_refusal.then_some(FaultKind::Refused), "{why}");
        }
        assert_eq!(of_text("Connection reset by peer"), None);
    }

    #[test]
    fn no_name_of_a_type_is_shown() {
        for error in [
            Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13),
            Error::General("failed to parse private key".to_owned()),
            Error::InappropriateMessage {
                expect_types: vec![rustls::ContentType::Handshake],
                got_type: rustls::ContentType::ApplicationData,
            },
            Error::NoCertificatesPresented,
        ] {
            let fault = of_handshake(&error);
            assert!(!has_name(&fault.why) && !has_name(&of_file(&error)), "{fault}");
        }
        assert_eq!(spelled("UnknownPSKIdentity { x: 1 }"), "unknown PSK identity");
        let cut_off = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls";
        assert_eq!(of_text(cut_off), Some((None, "it closed the connection".to_owned())));
    }
}
