//! TLS for `rediss://`: rustls with the system's issuers, or with the one that `--ca` names.

use std::fmt::Display;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::input;
use crate::node::{Fault, FaultKind};
use crate::text::escape;

/// Largest file that `--ca` may name, in bytes.
const LARGEST_CA: u64 = 1 << 20;

/// The issuers that may vouch for a `rediss://` node.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// Trusts the issuers in the PEM file `ca`, or the system's.
    pub fn new(ca: Option<&Path>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if let Some(file) = ca {
            let shown = escape::text(&file.to_string_lossy());
            let fail = |why: &dyn Display| format!("--ca {shown}: {why}");
            let pem = read_limited(file).map_err(|error| fail(&error))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let added = certificate.map_err(|error| fail(&error)).map(|certificate| roots.add(certificate))?;
                added.map_err(|error| fail(&error))?;
            }
            if roots.is_empty() {
                return Err(fail(&"there is no PEM certificate in it"));
            }
        } else {
            // An unreadable certificate in the system's store does not spoil the others.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("this machine has no trusted issuers for rediss://; install ca-certificates or give --ca"
                    .to_owned());
            }
        }
        // ring is named: the crate panics if two providers are compiled in and none is chosen.
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }

    /// Shakes hands with `host` over `stream`. No request is sent before its certificate is verified.
    pub async fn handshake<S>(&self, host: &str, stream: S) -> Result<TlsStream<S>, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            Fault::new(FaultKind::Unfit, format!("{} is no name that a certificate could have", escape::text(host)))
        })?;
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await.map_err(|error| explain(&error))
    }
}

/// Reads `file`, unless it is larger than any list of issuers.
fn read_limited(file: &Path) -> io::Result<Vec<u8>> {
    let mut pem = Vec::new();
    input::open(file)?.0.take(LARGEST_CA + 1).read_to_end(&mut pem)?;
    if pem.len() as u64 > LARGEST_CA {
        return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST_CA >> 20)));
    }
    Ok(pem)
}

fn explain(error: &io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => Fault::new(
            FaultKind::Refused,
            format!("its certificate is not trusted ({}); see --ca", escape::text(&why.to_string())),
        ),
        Some(rustls::Error::InvalidMessage(_)) => {
            Fault::new(FaultKind::Refused, "it does not speak TLS; write redis:// if that is meant")
        }
        Some(other) => Fault::new(FaultKind::Refused, format!("TLS: {}", escape::text(&other.to_string()))),
        None => Fault::new(FaultKind::Unavailable, format!("TLS handshake: {}", escape::text(&error.to_string()))),
    }
}
