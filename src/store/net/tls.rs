//! TLS: rustls with the system's issuers, or with the one that `--ca` names, and
//! the certificate of `--cert`.

use std::fmt::Display;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, Error, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::store::{Fault, FaultKind};
use crate::text::escape;

/// Number of days before its end from which on a certificate is told of.
const SOON: u64 = 30;

/// The issuers that may vouch for a node, and what rlock shows to it.
#[derive(Clone)]
pub struct Trust {
    config: Arc<ClientConfig>,
    verifier: Arc<WebPkiServerVerifier>,
    /// The certificate that is shown, with its chain; empty if none is.
    shown: Vec<CertificateDer<'static>>,
    server_name: Option<ServerName<'static>>,
}

/// The certificate that rlock shows, with its chain and its private key.
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// A PEM file.
pub struct Pem {
    /// The option that names it.
    pub option: &'static str,
    /// Its path, escaped for messages.
    pub path: String,
    pub text: Vec<u8>,
}

impl Pem {
    /// Returns the certificates, at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let all = all.map_err(|error| self.fail(&of_pem(&error)))?;
        if all.is_empty() {
            return Err(self.fail(&"there is no PEM certificate in it"));
        }
        Ok(all)
    }

    fn fail(&self, why: &dyn Display) -> String {
        format!("{} {}: {why}", self.option, self.path)
    }
}

impl ClientCertificate {
    /// Takes the certificates of `cert`, and the first private key of `key`.
    pub fn new(cert: &Pem, key: &Pem) -> Result<Self, String> {
        Ok(Self {
            chain: cert.certificates()?,
            key: PrivateKeyDer::from_pem_slice(&key.text).map_err(|_| {
                key.fail(&"there is no PEM private key in it, or only one with a passphrase")
            })?,
        })
    }
}

impl Trust {
    /// Trusts the issuers in `ca`, or the system's, and shows `identity`. The server's
    /// certificate must be valid for `server_name`, if there is one.
    pub fn new(
        ca: Option<&Pem>,
        identity: Option<ClientCertificate>,
        server_name: Option<ServerName<'static>>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = ca {
            for certificate in pem.certificates()? {
                roots
                    .add(certificate)
                    .map_err(|error| pem.fail(&wrong_file(&error)))?;
            }
        } else {
            // An unreadable certificate in the system's store does not spoil the others.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this machine has no trusted issuers for TLS; install ca-certificates or give --ca"
                    .to_owned());
            }
        }
        // ring is named: the crate panics if two providers are compiled in and none is chosen.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| error.to_string())?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_webpki_verifier(Arc::clone(&verifier));
        let mut shown = Vec::new();
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(ClientCertificate { chain, key }) => {
                let fail = |error| format!("--cert and --cert-key: {}", wrong_file(&error));
                shown.clone_from(&chain);
                config.with_client_auth_cert(chain, key).map_err(fail)?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            verifier,
            shown,
            server_name,
        })
    }

    /// Whether servers are shown a certificate.
    pub fn shows_certificate(&self) -> bool {
        !self.shown.is_empty()
    }

    /// Returns the days until the certificate of the server at `stream` ends, and those until ours
    /// does, each only where they are few.
    pub fn days_left<S>(&self, stream: &TlsStream<S>) -> [Option<u64>; 2] {
        let theirs = stream.get_ref().1.peer_certificates().unwrap_or_default();
        [theirs, &self.shown].map(|chain| (1..=SOON).find(|days| self.is_over_in(*days, chain)))
    }

    fn is_over_in(&self, days: u64, chain: &[CertificateDer]) -> bool {
        let [certificate, between @ ..] = chain else {
            return false;
        };
        // Its dates are looked at before its name and its issuer.
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let then = UnixTime::now().as_secs() + days * 24 * 60 * 60;
        let then = UnixTime::since_unix_epoch(Duration::from_secs(then));
        let verified = self
            .verifier
            .verify_server_cert(certificate, between, &name, &[], then);
        matches!(
            verified,
            Err(Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. }
            ))
        )
    }

    /// Returns the same trust for a protocol that the handshake names (ALPN).
    #[must_use]
    pub fn speaking(&self, protocol: &str) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.into()];
        Self {
            config: Arc::new(config),
            ..self.clone()
        }
    }

    /// Shakes hands with `host` over `stream`. No request is sent before its certificate is
    /// verified. `plain`: the remedy if the server does not speak TLS.
    pub async fn handshake<S>(
        &self,
        host: &str,
        stream: S,
        plain: &'static str,
    ) -> Result<TlsStream<S>, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self
            .server_name
            .clone()
            .map_or_else(|| ServerName::try_from(host.to_owned()), Ok)
            .map_err(|_| {
                Fault::new(
                    FaultKind::Unfit,
                    format!(
                        "{} is no name that a certificate could have",
                        escape::text(host)
                    ),
                )
            })?;
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, stream)
            .await
            .map_err(|error| failed(&error, plain))
    }
}

/// Returns the error of TLS behind that of a stream.
fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Returns what is wrong with a PEM file.
fn of_pem(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        _ => "a section of its PEM text is damaged".to_owned(),
    }
}

/// Returns what is wrong with a file that was to be used: a key, a certificate, or both.
fn wrong_file(error: &Error) -> String {
    match error {
        Error::InconsistentKeys(_) => "the key is not the certificate's".to_owned(),
        other => escape::short(&other.to_string()),
    }
}

/// The fault of a server without TLS.
pub(in crate::store) fn no_tls(plain: &'static str) -> Fault {
    Fault::unfit("it does not speak TLS", plain)
}

/// The fault of a handshake that failed.
fn failed(error: &io::Error, plain: &'static str) -> Fault {
    let Some(error) = of_tls(error) else {
        return Fault::new(
            FaultKind::Unavailable,
            format!("TLS handshake: {}", escape::text(&error.to_string())),
        );
    };
    match error {
        Error::InvalidMessage(_) => no_tls(plain),
        Error::InvalidCertificate(why) => untrusted(why),
        other => refused_certificate(other).unwrap_or_else(|| {
            Fault::new(FaultKind::Refused, format!("TLS: {}", escape::short(&other.to_string())))
                .with_remedy("see the server's TLS settings; if it asks for a certificate, give --cert and --cert-key")
        }),
    }
}

/// The fault of a server whose certificate is refused.
fn untrusted(why: &CertificateError) -> Fault {
    let (why, remedy) = match why {
        CertificateError::UnknownIssuer => (
            "its issuer is unknown".to_owned(),
            "give its issuer with --ca",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => (
            "it has expired".to_owned(),
            "see its dates, and this machine's clock",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "it is not valid yet".to_owned(),
            "see its dates, and this machine's clock",
        ),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            // The library shows a name as DnsName("h").
            let names = presented
                .iter()
                .map(|name| name.split('"').nth(1).unwrap_or(name))
                .collect::<Vec<_>>();
            let names = if names.is_empty() {
                "no name".to_owned()
            } else {
                escape::short(&names.join(", "))
            };
            (
                format!(
                    "it is for {names}, not for {}",
                    escape::text(&expected.to_str())
                ),
                "give the name that it has, in the address or with --tls-server-name",
            )
        }
        other => (
            escape::short(&other.to_string()),
            "give the server one of X.509 version 3, with a subjectAltName, that is no CA's own",
        ),
    };
    Fault::new(
        FaultKind::Refused,
        format!("its certificate is not trusted: {why}"),
    )
    .with_remedy(remedy)
}

/// Returns the fault of a server that refuses the certificate it was shown, or asks for one. With
/// TLS 1.3 a client hears of that only after the handshake, from a read or a write that fails.
pub(in crate::store) fn refusal(error: &io::Error) -> Option<Fault> {
    refused_certificate(of_tls(error)?)
}

fn refused_certificate(error: &Error) -> Option<Fault> {
    use AlertDescription as Alert;
    let Error::AlertReceived(alert) = error else {
        return None;
    };
    match alert {
        Alert::CertificateRequired => Some(
            Fault::new(FaultKind::Refused, "it asks for a client certificate")
                .with_remedy("give --cert and --cert-key"),
        ),
        // Older servers say this of no certificate, too.
        Alert::BadCertificate => Some(
            Fault::new(
                FaultKind::Refused,
                "it asks for a client certificate, or does not accept that of --cert",
            )
            .with_remedy("give --cert and --cert-key; see its issuer, its dates and its use"),
        ),
        Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied => Some(
            Fault::new(
                FaultKind::Refused,
                format!("it does not accept the certificate of --cert: {alert:?}"),
            )
            .with_remedy("see its issuer, its dates and its use"),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::server::WebPkiClientVerifier;
    use testkit::Certificates;
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsAcceptor;

    use super::super::last_words::LastWords;
    use super::*;

    const PLAIN: &str = "write redis:// if that is meant";

    fn of(error: Error) -> Fault {
        failed(&io::Error::other(error), PLAIN)
    }

    #[test]
    fn each_cause_has_its_remedy() {
        for (error, told, remedy) in [
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "its issuer is unknown",
                "--ca",
            ),
            (
                Error::InvalidCertificate(CertificateError::Expired),
                "it has expired",
                "clock",
            ),
            (
                Error::InvalidCertificate(CertificateError::NotValidYet),
                "it is not valid yet",
                "clock",
            ),
            (
                Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                    expected: ServerName::try_from("10.0.0.5").unwrap(),
                    presented: vec![
                        "DnsName(\"a\")".to_owned(),
                        "IpAddress(10.0.0.1)".to_owned(),
                    ],
                }),
                "it is for a, IpAddress(10.0.0.1), not for 10.0.0.5",
                "--tls-server-name",
            ),
            (
                Error::InvalidCertificate(CertificateError::BadSignature),
                "BadSignature",
                "subjectAltName",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "asks for a client certificate",
                "--cert-key",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "--cert: UnknownCA",
                "its issuer",
            ),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "HandshakeFailure",
                "TLS settings",
            ),
        ] {
            let fault = of(error);
            assert!(
                fault.kind == FaultKind::Refused && fault.why.contains(told),
                "{fault}"
            );
            assert!(
                fault.remedy.is_some_and(|cure| cure.contains(remedy)),
                "{fault:?}"
            );
        }
        assert_eq!(
            of(Error::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType
            )),
            no_tls(PLAIN)
        );
        assert_eq!(
            failed(&io::ErrorKind::UnexpectedEof.into(), PLAIN).kind,
            FaultKind::Unavailable
        );
    }

    /// A server that takes clients with a certificate only.
    fn strict(certificates: &Certificates) -> TlsAcceptor {
        let pem = |name: &str| std::fs::read(certificates.file(name)).unwrap();
        let certificate = |name: &str| CertificateDer::from_pem_slice(&pem(name)).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![certificate("server.pem")], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    #[tokio::test]
    async fn a_write_that_fails_tells_what_the_server_said_before_it_closed() {
        let certificates = Certificates::for_name("127.0.0.1");
        let ca = Pem {
            option: "--ca",
            path: "ca.pem".to_owned(),
            text: std::fs::read(certificates.file("ca.pem")).unwrap(),
        };
        let trust = Trust::new(Some(&ca), None, None).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (theirs, _) = listener.accept().await.unwrap();
        let server = strict(&certificates);
        let (shaken, taken) = tokio::join!(trust.handshake("127.0.0.1", ours, PLAIN), async {
            server.accept(theirs).await.map(drop)
        });
        taken.unwrap_err();
        // With TLS 1.3, the handshake ends before the server looks for a certificate.
        let mut stream = LastWords::of(shaken.ok().unwrap());
        let error = loop {
            if let Err(error) = stream.write_all(b"request").await {
                break error;
            }
        };
        let fault = refusal(&error).unwrap();
        assert_eq!(fault.why, "it asks for a client certificate");
    }
}
