//! A member of a cluster that sends a request to another one: what it says. Pure.
//!
//! 1. A request that was sent away changed nothing, so it may be sent on whatever it does.
//! 2. After `MOVED` it goes where the map says, which is fetched anew for that.
//! 3. After `ASK` none of its keys is at this member any more, and after `TRYAGAIN` some are not.
//!    `redis::exchange` tells what is served then. The key moves to the member that is named:
//!    "absent" counts behind such a word only, since it may still be where it was.

use super::Location;
use crate::store::{Fault, FaultKind};

/// The word of a member that does not serve a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redirect {
    /// Another one serves the slot.
    Moved,
    /// The key may be at this member already; `None` if that is no address.
    Ask(Option<Location>),
    /// Some of the keys are at another one.
    TryAgain,
}

impl Redirect {
    /// Reads what a member has answered; `None` if the request was served there, or refused for
    /// another cause.
    pub fn of(fault: &Fault) -> Option<Self> {
        let mut words = fault.why.split(' ');
        match words.next()? {
            "MOVED" => Some(Self::Moved),
            "ASK" => Some(Self::Ask(words.nth(1).and_then(address))),
            "TRYAGAIN" => Some(Self::TryAgain),
            _ => None,
        }
    }

    /// Whether a member of a cluster alone says so.
    pub fn is_of_cluster(&self) -> bool {
        !matches!(self, Self::TryAgain)
    }

    /// Returns this word of the member `asked`, which names itself by no host.
    #[must_use]
    pub fn from(self, asked: Option<&Location>) -> Self {
        match (self, asked) {
            (Self::Ask(Some(there)), Some(asked)) if there.host.is_empty() => {
                Self::Ask(Some(Location {
                    host: asked.host.clone(),
                    port: there.port,
                }))
            }
            (redirect, _) => redirect,
        }
    }
}

/// Reads `HOST:PORT`. The host may be an IPv6 address without brackets, or missing.
fn address(word: &str) -> Option<Location> {
    let (host, port) = word.rsplit_once(':')?;
    if host.is_empty() {
        let port = port.parse().ok().filter(|port| *port > 0)?;
        return Some(Location {
            host: String::new(),
            port,
        });
    }
    Location::new(host.as_bytes(), port.as_bytes())
}

/// The fault of a request that was sent away to the end: it was executed nowhere.
pub fn lost(last: &Fault) -> Fault {
    Fault::new(
        FaultKind::Unavailable,
        format!("the cluster is moving the lock's slot ({})", last.why),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(why: &str) -> Option<Redirect> {
        Redirect::of(&Fault::new(FaultKind::Unfit, why))
    }

    fn at(host: &str, port: u16) -> Location {
        Location {
            host: host.to_owned(),
            port,
        }
    }

    #[test]
    fn the_words_of_a_member_are_read() {
        assert_eq!(read("MOVED 7629 10.0.0.5:6379"), Some(Redirect::Moved));
        assert_eq!(
            read("ASK 7629 10.0.0.5:6379"),
            Some(Redirect::Ask(Some(at("10.0.0.5", 6379))))
        );
        assert_eq!(
            read("ASK 7629 ::1:6379"),
            Some(Redirect::Ask(Some(at("::1", 6379))))
        );
        assert_eq!(
            read("TRYAGAIN Multiple keys request"),
            Some(Redirect::TryAgain)
        );
        for odd in [
            "ASK",
            "ASK 7629",
            "ASK 7629 x",
            "ASK 7629 h:0",
            "ASK 7629 :0",
            "ASK 7629 a@b:1",
        ] {
            assert_eq!(read(odd), Some(Redirect::Ask(None)), "{odd}");
        }
        for other in [
            "",
            "ERR MOVED",
            "MOVEDX 1",
            "CLUSTERDOWN The cluster is down",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn a_member_without_a_host_is_where_the_other_was_asked() {
        let unnamed = read("ASK 7629 :6380").unwrap();
        assert_eq!(
            unnamed.clone().from(Some(&at("h", 1))),
            Redirect::Ask(Some(at("h", 6380)))
        );
        let named = read("ASK 7629 g:6380").unwrap();
        assert_eq!(named.clone().from(Some(&at("h", 1))), named);
    }
}
