//! The login: the greeting of a server, and the answers to its questions. Pure.
//!
//! 1. A server that asks for the password itself gets it over TLS or a unix socket alone.
//! 2. A key that the server names is no proof of who it is. So the password is not encrypted with one
//!    either, which `caching_sha2_password` would allow.

use ring::digest::{SHA256, digest};
use sha1_smol::Sha1;
use zeroize::Zeroizing;

use super::packet::{Malformed, Reader};

/// Abilities of a client and a server (MySQL, Capabilities Flags).
mod capability {
    /// The count of an update is that of the rows that match.
    pub(super) const FOUND_ROWS: u32 = 1 << 1;
    pub(super) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(super) const PROTOCOL_41: u32 = 1 << 9;
    pub(super) const SSL: u32 = 1 << 11;
    pub(super) const TRANSACTIONS: u32 = 1 << 13;
    pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(super) const MULTI_STATEMENTS: u32 = 1 << 16;
    pub(super) const MULTI_RESULTS: u32 = 1 << 17;
    pub(super) const PLUGIN_AUTH: u32 = 1 << 19;
}

/// Needed of a server, which each one has since MySQL 5.5.
const NEEDED: u32 = capability::PROTOCOL_41
    | capability::SECURE_CONNECTION
    | capability::MULTI_STATEMENTS
    | capability::MULTI_RESULTS
    | capability::PLUGIN_AUTH;

/// `utf8mb4_general_ci`, which each server has.
const CHARSET: u8 = 45;

/// Longest packet that rlock sends. Servers take at least 1 MiB.
const LONGEST_PACKET: u32 = 1 << 20;

/// Length of a nonce.
const NONCE: usize = 20;

/// A server's first packet.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Greeting {
    pub(super) version: String,
    /// Number of the server's session.
    pub(super) process: u32,
    nonce: Vec<u8>,
    /// The login that it expects.
    plugin: Vec<u8>,
    pub(super) has_tls: bool,
}

impl Greeting {
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(body);
        if reader.number::<1>()? != 10 {
            return Err(Malformed);
        }
        let version = String::from_utf8_lossy(reader.text()).into_owned();
        let process = low(reader.number::<4>()?);
        let mut nonce = reader.bytes(8)?.to_vec();
        reader.bytes(1)?;
        let first = reader.number::<2>()?;
        reader.bytes(3)?;
        let can = low(first | reader.number::<2>()? << 16);
        reader.bytes(11)?;
        // What follows has a NUL behind it, which is no part of it.
        nonce.extend(reader.bytes(NONCE - 8)?);
        reader.bytes(1)?;
        if can & NEEDED != NEEDED {
            return Err(Malformed);
        }
        // MariaDB puts the version of a MySQL before its own.
        let own = version.strip_prefix("5.5.5-").unwrap_or(&version);
        Ok(Self {
            version: own.to_owned(),
            process,
            nonce,
            plugin: reader.text().to_vec(),
            has_tls: can & capability::SSL != 0,
        })
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

/// Returns the beginning of a response, which alone is the request for TLS.
pub(super) fn request_for_tls() -> Vec<u8> {
    beginning(true)
}

fn beginning(is_tls: bool) -> Vec<u8> {
    let tls = if is_tls { capability::SSL } else { 0 };
    let own = capability::FOUND_ROWS | capability::CONNECT_WITH_DB | capability::TRANSACTIONS;
    let mut body = Vec::new();
    body.extend((NEEDED | own | tls).to_le_bytes());
    body.extend(LONGEST_PACKET.to_le_bytes());
    body.push(CHARSET);
    body.extend([0; 23]);
    body
}

/// A user at a server.
pub(super) struct Login<'a> {
    pub(super) user: &'a str,
    pub(super) password: Option<&'a str>,
    pub(super) database: &'a str,
    /// Whether the connection is a unix socket, or has TLS.
    pub(super) is_private: bool,
    pub(super) is_tls: bool,
}

/// Why a login is not answered.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// It asks for the password itself, where others may hear it.
    Clear,
    /// It asks for a login that rlock does not know, of this name.
    Unknown(String),
    /// It says what no server says.
    Malformed,
}

impl From<Malformed> for Refused {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Login<'_> {
    /// Returns the answer to the greeting.
    pub(super) fn response(&self, greeting: &Greeting) -> Result<Vec<u8>, Refused> {
        let mut body = beginning(self.is_tls);
        let word = |body: &mut Vec<u8>, word: &[u8]| {
            body.extend(word.iter().filter(|byte| **byte != 0));
            body.push(0);
        };
        word(&mut body, self.user.as_bytes());
        // A server that wants another login asks for it. It is not shown the password before.
        let (plugin, answer) = match greeting.plugin.as_slice() {
            plugin @ (b"mysql_native_password" | b"caching_sha2_password") => {
                (plugin, self.answer(plugin, &greeting.nonce)?)
            }
            _ => (&b"mysql_native_password"[..], Zeroizing::default()),
        };
        body.push(u8::try_from(answer.len()).map_err(|_| Refused::Malformed)?);
        body.extend(answer.iter());
        word(&mut body, self.database.as_bytes());
        word(&mut body, plugin);
        Ok(body)
    }

    /// Returns the answer to what a server asks for after that. `None`: it asks for nothing, and says
    /// more.
    pub(super) fn reply(&self, body: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Refused> {
        let mut reader = Reader(body);
        match reader.number::<1>()? {
            0xfe => {
                let plugin = reader.text();
                let nonce = reader.0.strip_suffix(&[0]).unwrap_or(reader.0);
                self.answer(plugin, nonce).map(Some)
            }
            // `caching_sha2_password`: it knows the password, or has to see it.
            1 => match reader.0 {
                [3] => Ok(None),
                [4] => self.clear().map(Some),
                _ => Err(Refused::Malformed),
            },
            _ => Err(Refused::Malformed),
        }
    }

    fn answer(&self, plugin: &[u8], nonce: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refused> {
        let password = self.password.unwrap_or_default().as_bytes();
        let scramble = match plugin {
            b"mysql_native_password" => native,
            b"caching_sha2_password" => caching_sha2,
            // MySQL may ask a user that it does not know for the second one.
            b"mysql_clear_password" | b"sha256_password" => return self.clear(),
            _ => {
                let name = String::from_utf8_lossy(plugin).into_owned();
                return Err(Refused::Unknown(name));
            }
        };
        if nonce.len() != NONCE {
            return Err(Refused::Malformed);
        }
        Ok(Zeroizing::new(if password.is_empty() {
            Vec::new()
        } else {
            scramble(password, nonce)
        }))
    }

    /// Returns the password itself.
    fn clear(&self) -> Result<Zeroizing<Vec<u8>>, Refused> {
        let password = self.password.unwrap_or_default().as_bytes();
        if !self.is_private && !password.is_empty() {
            return Err(Refused::Clear);
        }
        let mut answer = Zeroizing::new(Vec::with_capacity(password.len() + 1));
        answer.extend(password);
        answer.push(0);
        Ok(answer)
    }
}

/// Returns `SHA1(p) ^ SHA1(nonce, SHA1(SHA1(p)))`.
fn native(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let hash = |parts: &[&[u8]]| {
        let mut hash = Sha1::new();
        for part in parts {
            hash.update(part);
        }
        hash.digest().bytes()
    };
    let once = hash(&[password]);
    either(&once, &hash(&[nonce, &hash(&[&once])]))
}

/// Returns `SHA256(p) ^ SHA256(SHA256(SHA256(p)), nonce)`.
fn caching_sha2(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let hash = |bytes: &[u8]| digest(&SHA256, bytes);
    let once = hash(password);
    let twice = hash(once.as_ref());
    either(
        once.as_ref(),
        hash(&[twice.as_ref(), nonce].concat()).as_ref(),
    )
}

fn either(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first packet of MariaDB 10.11, and one of MySQL 8.0 as its documentation has it.
    fn greetings() -> [Vec<u8>; 2] {
        let greeting = |version: &[u8], can: [u8; 4], plugin: &[u8]| {
            let mut body = vec![10];
            body.extend(version);
            body.extend(b"\0\x07\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0");
            body.extend(&can[..2]);
            body.extend(b"\x2d\x02\0");
            body.extend(&can[2..]);
            body.push(21);
            body.extend([0; 10]);
            body.extend(9..=20);
            body.push(0);
            body.extend(plugin);
            body.push(0);
            body
        };
        [
            greeting(
                b"5.5.5-10.11.6-MariaDB",
                [0xfe, 0xf7, 0xff, 0x81],
                b"mysql_native_password",
            ),
            greeting(
                b"8.0.36",
                [0xff, 0xff, 0xff, 0xdf],
                b"caching_sha2_password",
            ),
        ]
    }

    fn login(is_private: bool) -> Login<'static> {
        Login {
            user: "rlock",
            password: Some("hunter2"),
            database: "app",
            is_private,
            is_tls: false,
        }
    }

    fn nonce() -> Vec<u8> {
        (1..=20).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    #[test]
    fn a_greeting_is_read() {
        let [maria, mysql] = greetings();
        let (maria, mysql) = (
            Greeting::read(&maria).unwrap(),
            Greeting::read(&mysql).unwrap(),
        );
        assert_eq!(
            (maria.version.as_str(), maria.process),
            ("10.11.6-MariaDB", 7)
        );
        assert_eq!((mysql.version.as_str(), mysql.has_tls), ("8.0.36", true));
        assert!(!maria.has_tls && maria.nonce == nonce() && mysql.nonce == nonce());
    }

    #[test]
    fn a_greeting_that_is_cut_or_of_another_server_is_refused() {
        let [_, mysql] = greetings();
        for end in 0..mysql.len() - b"caching_sha2_password\0".len() {
            assert!(Greeting::read(&mysql[..end]).is_err(), "{end}");
        }
        assert!(Greeting::read(b"+OK Redis\r\n").is_err());
        let old = [&[9][..], &mysql[1..]].concat();
        assert!(Greeting::read(&old).is_err());
    }

    /// Known bytes: the hashes of another implementation (Python's hashlib).
    #[test]
    fn the_answers_are_those_that_servers_expect() {
        assert_eq!(
            hex(&native(b"hunter2", &nonce())),
            "be2cbec13fd268cf921774da8dde99447d699455"
        );
        assert_eq!(
            hex(&caching_sha2(b"hunter2", &nonce())),
            "04917479a40a673ae2388df86966d1b73768b4452df9a624881d93be865dc44c"
        );
    }

    #[test]
    fn a_response_has_the_user_the_answer_the_database_and_the_plugin() {
        let [maria, mysql] = greetings();
        for (greeting, plugin, length) in [
            (maria, &b"mysql_native_password\0"[..], 20),
            (mysql, &b"caching_sha2_password\0"[..], 32),
        ] {
            let greeting = Greeting::read(&greeting).unwrap();
            let response = login(false).response(&greeting).unwrap();
            let rest = &response[32..];
            assert_eq!(&rest[..7], &[&b"rlock\0"[..], &[length]].concat());
            let rest = &rest[7 + usize::from(length)..];
            assert_eq!(rest, [&b"app\0"[..], plugin].concat());
        }
    }

    #[test]
    fn a_user_without_a_password_answers_nothing() {
        let bare = Login {
            password: None,
            ..login(false)
        };
        let asked = [b"\xfemysql_native_password\0", &nonce()[..], &[0]].concat();
        assert_eq!(bare.reply(&asked).unwrap().unwrap().len(), 0);
        // There is nothing that others may hear.
        let asked = [b"\xfesha256_password\0", &nonce()[..], &[0]].concat();
        assert_eq!(bare.reply(&asked).unwrap().unwrap().as_slice(), b"\0");
    }

    #[test]
    fn a_server_may_ask_for_another_login() {
        let asks = |plugin: &str, nonce: &[u8]| {
            let asked = [&[0xfe][..], plugin.as_bytes(), &[0], nonce, &[0]].concat();
            login(false)
                .reply(&asked)
                .map(|answer| answer.unwrap().len())
        };
        assert_eq!(asks("mysql_native_password", &nonce()), Ok(20));
        assert_eq!(asks("caching_sha2_password", &nonce()), Ok(32));
        assert_eq!(
            asks("mysql_native_password", b"short"),
            Err(Refused::Malformed)
        );
        assert_eq!(
            asks("client_ed25519", &nonce()),
            Err(Refused::Unknown("client_ed25519".to_owned()))
        );
        for clear in ["mysql_clear_password", "sha256_password"] {
            assert_eq!(asks(clear, &nonce()), Err(Refused::Clear));
        }
    }

    #[test]
    fn the_password_itself_is_given_over_a_private_connection_alone() {
        let knows = [1, 3];
        let asks = [1, 4];
        for is_private in [false, true] {
            assert_eq!(login(is_private).reply(&knows), Ok(None));
        }
        assert_eq!(login(false).reply(&asks), Err(Refused::Clear));
        let answer = login(true).reply(&asks).unwrap().unwrap();
        assert_eq!(answer.as_slice(), b"hunter2\0");
        // A key that anyone could have made.
        assert_eq!(
            login(true).reply(b"\x01-----BEGIN"),
            Err(Refused::Malformed)
        );
    }
}
