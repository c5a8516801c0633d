//! Certificates of an issuer that is made for the test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// Begins of years, as times since 1970.
const IN_2020: Duration = Duration::from_secs(1_577_836_800);
const IN_2100: Duration = Duration::from_secs(4_102_444_800);

/// PEM files of a server, of a client and of their issuer.
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    /// Makes valid certificates for `name`.
    pub fn for_name(name: &str) -> Self {
        Self::make(name, IN_2100)
    }

    /// Makes certificates for 127.0.0.1 that end after `span`.
    pub fn ending_in(span: Duration) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::make("127.0.0.1", now.expect("a time since 1970") + span)
    }

    /// Makes certificates for 127.0.0.1, of which the issuer's own is the server's too.
    pub fn of_issuer() -> Self {
        let made = Self::make("127.0.0.1", IN_2100);
        std::fs::copy(made.file("ca.pem"), made.file("server.pem")).expect("a copy");
        std::fs::copy(made.file("ca.key"), made.file("server.key")).expect("a copy");
        made
    }

    /// Makes certificates for 127.0.0.1 that expired years ago.
    pub fn expired() -> Self {
        Self::make("127.0.0.1", IN_2020)
    }

    /// `end`: time since 1970.
    fn make(name: &str, end: Duration) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let write =
            |file: &str, text: String| std::fs::write(dir.path().join(file), text).expect("a file");

        let mut ca = CertificateParams::new(Vec::new()).expect("parameters");
        // Issuers are looked up by name: of two with one name, the second would count as one with a
        // bad signature.
        ca.distinguished_name.push(
            DnType::CommonName,
            format!("issuer in {}", dir.path().display()),
        );
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        write(
            "ca.pem",
            ca.self_signed(&ca_key).expect("a certificate").pem(),
        );
        write("ca.key", ca_key.serialize_pem());
        let issuer = Issuer::new(ca, ca_key);

        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        let key = KeyPair::generate().expect("a key");
        write(
            "server.pem",
            params
                .signed_by(&key, &issuer)
                .expect("a certificate")
                .pem(),
        );
        write("server.key", key.serialize_pem());

        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params
            .distinguished_name
            .push(DnType::CommonName, "a client");
        params.not_after = date_time_ymd(1970, 1, 1) + end;
        let key = KeyPair::generate().expect("a key");
        write(
            "client.pem",
            params
                .signed_by(&key, &issuer)
                .expect("a certificate")
                .pem(),
        );
        write("client.key", key.serialize_pem());
        let private = PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(dir.path().join("client.key"), private).expect("its mode");
        Self { dir }
    }

    /// Returns the path of a file: `ca.pem`, `server.pem`, `server.key`, `client.pem` or
    /// `client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns redis-server's options for TLS on `port`, without plain TCP.
    pub fn options(&self, port: u16) -> Vec<String> {
        let show = |path: &Path| path.display().to_string();
        [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", show(&self.file("server.pem"))),
            ("--tls-key-file", show(&self.file("server.key"))),
            ("--tls-ca-cert-file", show(&self.file("ca.pem"))),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }
}
