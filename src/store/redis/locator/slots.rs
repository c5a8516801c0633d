//! Which primary serves which slot of a cluster, as one of its members tells it. Pure.

use std::collections::BTreeSet;
use std::fmt;

use redis::Value;

use super::Location;
use crate::lock::key::Key;
use crate::store::redis::names::slot;
use crate::store::redis::reply::array;

/// Number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// A slot of a cluster: the keys of one lock are in one slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct HashSlot(u16);

impl HashSlot {
    /// Returns the slot of a lock.
    pub fn of(key: &Key) -> Self {
        Self(slot(key.stored()))
    }
}

impl fmt::Display for HashSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The slots, with their primaries.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Map {
    /// In the order of the slots.
    ranges: Vec<Range>,
    /// All servers that have a slot, replicas included.
    members: BTreeSet<Location>,
}

/// Slots that follow one another and have one primary.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    first: u16,
    last: u16,
    /// `None` if the member that told it does not know the address.
    primary: Option<Location>,
    /// Those whose addresses it knows.
    replicas: Vec<Location>,
}

impl Map {
    /// Reads the reply of the member `asked` to `CLUSTER SLOTS`.
    pub(super) fn read(reply: &Value, asked: &Location) -> Option<Self> {
        // The address of a server, if the member knows it.
        let location = |told| {
            let (host, port) = server(told, asked)?;
            Some(Location::new(host, port.to_string().as_bytes()))
        };
        let mut map = Self::default();
        for entry in array(reply)? {
            let [Value::Int(first), Value::Int(last), primary, replicas @ ..] = array(entry)?
            else {
                return None;
            };
            let number = |slot: &i64| u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS);
            let (first, last) = (number(first)?, number(last)?);
            let primary = location(primary)?;
            let known = replicas.iter().map(location).collect::<Option<Vec<_>>>()?;
            let known: Vec<Location> = known.into_iter().flatten().collect();
            map.members.extend(primary.iter().chain(&known).cloned());
            map.ranges.push(Range {
                first,
                last,
                primary,
                replicas: known,
            });
        }
        map.ranges.sort_by_key(|range| range.first);
        // Two primaries of one slot: no member of a cluster says so.
        let is_ordered = map.ranges.is_sorted_by(|one, next| one.last < next.first);
        (is_ordered && map.ranges.iter().all(|range| range.first <= range.last)).then_some(map)
    }

    /// Returns the primary that serves `slot`, if there is one whose address is known.
    pub(super) fn primary(&self, slot: HashSlot) -> Option<&Location> {
        self.range(slot)?.primary.as_ref()
    }

    /// Whether a primary serves `slot`, known or not.
    pub(super) fn is_served(&self, slot: HashSlot) -> bool {
        self.range(slot).is_some()
    }

    fn range(&self, slot: HashSlot) -> Option<&Range> {
        let place = self.ranges.partition_point(|range| range.last < slot.0);
        self.ranges.get(place).filter(|range| range.first <= slot.0)
    }

    /// Returns all primaries that serve slots.
    pub(super) fn primaries(&self) -> BTreeSet<&Location> {
        self.ranges
            .iter()
            .filter_map(|range| range.primary.as_ref())
            .collect()
    }

    /// Returns the replicas of the primary that serves `slot`.
    pub(super) fn replicas(&self, slot: HashSlot) -> &[Location] {
        self.range(slot).map_or(&[], |range| &range.replicas)
    }

    /// Returns all servers that have a slot, replicas included.
    pub(super) fn members(&self) -> impl Iterator<Item = &Location> {
        self.members.iter()
    }

    /// Whether `server` has a slot, or is a replica of one that has.
    pub(super) fn has(&self, server: &Location) -> bool {
        self.members.contains(server)
    }

    /// Whether this map leads on from `accused`, which has sent a request for `slot` away. `last`
    /// is the map that led there. The word of `accused` itself counts only for a server that was
    /// known before: it does not lead out of the cluster.
    pub(super) fn leads_on(
        &self,
        slot: HashSlot,
        accused: &Location,
        teller: &Location,
        last: &Self,
    ) -> bool {
        let Some(primary) = self.primary(slot).filter(|primary| *primary != accused) else {
            return false;
        };
        teller != accused || last.has(primary)
    }
}

/// Reads the host and the port of a server of the map; `None` if it is none.
fn server<'a>(told: &'a Value, asked: &'a Location) -> Option<(&'a [u8], i64)> {
    let [host, Value::Int(port), ..] = array(told)? else {
        return None;
    };
    let host = match host {
        // The member does not know how it is reached: as it was just now.
        Value::Nil => asked.host.as_bytes(),
        Value::BulkString(host) if host.is_empty() => asked.host.as_bytes(),
        Value::BulkString(host) => host,
        _ => return None,
    };
    Some((host, *port))
}

/// Whether the reply to `CLUSTER NODES` lists `server`: `ID IP:PORT@BUS[,HOSTNAME] …` on a line. A
/// member without slots is listed there alone.
pub(super) fn lists(nodes: &str, server: &Location) -> bool {
    nodes.lines().any(|line| {
        let Some((address, names)) = line.split(' ').nth(1).and_then(|word| word.split_once('@'))
        else {
            return false;
        };
        let Some((ip, port)) = address.rsplit_once(':') else {
            return false;
        };
        let hostname = names.split(',').nth(1).unwrap_or_default();
        port == server.port.to_string() && (ip == server.host || hostname == server.host)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Location {
        Location {
            host: "10.0.0.1".to_owned(),
            port,
        }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![
            host,
            Value::Int(port),
            Value::BulkString(b"id".to_vec()),
            Value::Array(vec![]),
        ])
    }

    fn host(name: &str) -> Value {
        Value::BulkString(name.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array(
            [Value::Int(first), Value::Int(last)]
                .into_iter()
                .chain(nodes)
                .collect(),
        )
    }

    fn map(ranges: Vec<Value>) -> Option<Map> {
        Map::read(&Value::Array(ranges), &at(9))
    }

    /// A map in which the primaries on these ports have half of the slots each.
    fn halves(low: i64, high: i64) -> Map {
        let range = |first, last, port| range(first, last, vec![node(host("10.0.0.1"), port)]);
        map(vec![range(8192, 16_383, high), range(0, 8191, low)]).unwrap_or_else(|| panic!())
    }

    #[test]
    fn each_slot_has_the_primary_of_its_range_and_one_in_no_range_has_none() {
        let map = map(vec![
            range(5, 9, vec![node(host("a"), 1), node(host("b"), 2)]),
            range(0, 3, vec![node(host("c"), 3)]),
        ])
        .unwrap();
        let primary = |slot| map.primary(HashSlot(slot)).map(ToString::to_string);
        assert_eq!(
            [0, 3, 5, 9].map(|slot| primary(slot).unwrap()),
            ["c:3", "c:3", "a:1", "a:1"]
        );
        assert!(
            [4, 10, 16_383]
                .iter()
                .all(|slot| primary(*slot).is_none() && !map.is_served(HashSlot(*slot)))
        );
        let names = |all: Vec<&Location>| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(map.members().collect()), ["a:1", "b:2", "c:3"]);
        assert_eq!(names(map.primaries().into_iter().collect()), ["a:1", "c:3"]);
        assert_eq!(names(map.replicas(HashSlot(5)).iter().collect()), ["b:2"]);
        assert!(map.replicas(HashSlot(0)).is_empty() && map.replicas(HashSlot(4)).is_empty());
    }

    #[test]
    fn a_member_that_does_not_know_its_host_is_where_it_was_asked() {
        for unknown in [Value::Nil, host("")] {
            let map = map(vec![range(0, 3, vec![node(unknown, 1)])]).unwrap();
            assert_eq!(map.primary(HashSlot(0)), Some(&at(1)));
        }
        let unannounced = map(vec![range(0, 3, vec![node(host("?"), 1)])]).unwrap();
        assert!(unannounced.primary(HashSlot(0)).is_none() && unannounced.is_served(HashSlot(0)));
    }

    #[test]
    fn a_reply_that_no_member_sends_is_no_map() {
        let good = || node(host("a"), 1);
        for odd in [
            vec![Value::Int(1)],
            vec![range(0, 16_384, vec![good()])],
            vec![range(-1, 3, vec![good()])],
            vec![range(5, 3, vec![good()])],
            vec![range(0, 5, vec![good()]), range(5, 9, vec![good()])],
            vec![range(0, 3, vec![])],
            vec![range(0, 3, vec![Value::Int(3)])],
            vec![range(0, 3, vec![node(Value::Int(3), 1)])],
        ] {
            assert_eq!(map(odd.clone()), None, "{odd:?}");
        }
        assert_eq!(Map::read(&Value::Okay, &at(9)), None);
    }

    #[test]
    fn a_member_that_sends_requests_away_leads_to_no_stranger() {
        let (last, slot) = (halves(1, 2), HashSlot(7));
        assert!(
            !halves(1, 2).leads_on(slot, &at(1), &at(2), &last),
            "it leads back"
        );
        assert!(
            halves(2, 2).leads_on(slot, &at(1), &at(1), &last),
            "to a member"
        );
        assert!(
            !halves(3, 2).leads_on(slot, &at(1), &at(1), &last),
            "to a stranger"
        );
        assert!(
            halves(3, 2).leads_on(slot, &at(1), &at(2), &last),
            "another member knows it"
        );
        let unserved = map(vec![]).unwrap();
        assert!(!unserved.leads_on(slot, &at(1), &at(2), &last));
    }

    #[test]
    fn a_member_without_slots_is_listed_by_its_address_or_its_hostname() {
        let nodes = "07c3 10.0.0.1:7@17 master - 0 1426 2 connected 0-3\n6ec2 10.0.0.2:8@18,h8,shard-id=1 myself,master - 0 0 1 connected\n";
        let is_listed = |host: &str, port| {
            lists(
                nodes,
                &Location {
                    host: host.to_owned(),
                    port,
                },
            )
        };
        assert!(is_listed("10.0.0.1", 7) && is_listed("10.0.0.2", 8) && is_listed("h8", 8));
        assert!(
            !is_listed("10.0.0.1", 8)
                && !is_listed("10.0.0.3", 7)
                && !is_listed("h8", 7)
                && !is_listed("", 8)
        );
    }
}
