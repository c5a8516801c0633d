//! The members of a cluster, and the map by which each slot leads to a primary.
//!
//! 1. The map is fetched from a seed, or from a member of the last map. Nothing else leads to a
//!    server: `MOVED` only says that the map is old.
//! 2. It is fetched anew when a member sends a request away, and before a server is connected to
//!    that was silent.
//! 3. A reply that matters counts only if another member's new map still names that server. One
//!    that was stopped runs what it was sent when it resumes, and takes requests until it hears
//!    that another has taken over. Its replica is asked first: the one that takes over knows it
//!    before all others.
//! 4. Callers that need a map at the same time share one. The connection to a member that told it
//!    is kept for the next question.
//!
//! The rules are those of `slots`. Here questions go out, and answers come in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tokio::sync::watch;

use super::Questions;
use super::slots::{self, Map};
use super::{Confirmation, HashSlot, Location, Primary, ServerAt, Site, Source};
use crate::clock;
use crate::store::redis::connect::Client;
use crate::store::{Fault, FaultKind, Pending};

/// Largest map that is read, in bytes.
const MAP_LIMIT: usize = 4 << 20;

/// Longest time that a member has for itself before the next one is asked too.
const HEAD_START: Duration = Duration::from_millis(50);

/// Number of members that are asked for one map.
const MOST_ASKED: usize = 16;

/// Number of connections that are kept for the next question: the locks of one run may have several
/// primaries, and a primary does not confirm itself.
const MOST_KEPT: usize = 4;

/// A cluster, and the map that was fetched last.
pub struct Cluster {
    seeds: Vec<Location>,
    server_at: ServerAt,
    /// Bounds each question.
    limit: Duration,
    map: watch::Sender<Arc<Map>>,
    /// The servers that were named so far. A connection is labelled with one of these.
    sites: Mutex<BTreeMap<Location, Arc<Site>>>,
    /// For a map. An answer serves each caller that came before the question was sent.
    questions: Questions<Result<ToldMap, Fault>>,
    /// Connections to members that answered their last question, newest last.
    kept: Mutex<Vec<(Location, Client)>>,
}

/// A map, and the member that told it.
#[derive(Clone)]
struct ToldMap {
    teller: Location,
    map: Arc<Map>,
}

impl ToldMap {
    /// Whether another server than `primary` told it. A seed that the map does not name may be
    /// `primary` by another name.
    fn may_confirm(&self, primary: &Location) -> bool {
        self.teller != *primary && self.map.has(&self.teller)
    }
}

impl Cluster {
    /// The cluster of these members. `limit` bounds each question.
    pub(super) fn new(seeds: Vec<Location>, server_at: ServerAt, limit: Duration) -> Self {
        Self {
            seeds,
            server_at,
            limit,
            map: watch::Sender::default(),
            sites: Mutex::default(),
            questions: Questions::default(),
            kept: Mutex::default(),
        }
    }

    /// Returns the primary that serves `slot`. The map is fetched if there is none, or if that
    /// primary was silent.
    pub(super) async fn find(self: &Arc<Self>, slot: HashSlot) -> Result<Arc<Site>, Fault> {
        if let Some(site) = self.site_of(slot).filter(|site| !site.is_suspect()) {
            return Ok(site);
        }
        self.asked_from_now(self.all(None), |_| true).await?;
        self.site_of(slot).ok_or_else(|| {
            let why = if self.map().is_served(slot) {
                format!("the address of the primary of slot {slot} is not known; set cluster-announce-ip there")
            } else {
                format!("no server of the cluster serves slot {slot}")
            };
            Fault::new(FaultKind::Unavailable, why)
        })
    }

    /// Returns all primaries that serve slots.
    pub(super) async fn primaries(self: &Arc<Self>) -> Result<Vec<Arc<Site>>, Fault> {
        self.asked_from_now(self.all(None), |_| true).await?;
        Ok(self
            .map()
            .primaries()
            .into_iter()
            .map(|location| self.site(location))
            .collect())
    }

    /// Whether `site` serves `slot` by the map that was fetched last.
    pub(super) fn is_current(&self, site: &Site, slot: HashSlot) -> bool {
        site.location()
            .is_some_and(|location| self.map.borrow().primary(slot) == Some(location))
    }

    /// Whether `site` is a server of the map that was fetched last.
    pub(in crate::store) fn is_member(&self, site: &Site) -> bool {
        site.location()
            .is_some_and(|location| self.map.borrow().has(location))
    }

    /// Returns the primary that serves `slot` by the map that was fetched last.
    pub(super) fn site_of(&self, slot: HashSlot) -> Option<Arc<Site>> {
        let map = self.map();
        map.primary(slot).map(|location| self.site(location))
    }

    /// Returns when the map leads `slot` to another primary than now.
    pub(super) fn moved(&self, slot: HashSlot) -> Pending<()> {
        let mut map = self.map.subscribe();
        let known = map.borrow().primary(slot).cloned();
        Box::pin(async move {
            let _ = map
                .wait_for(|map| map.primary(slot) != known.as_ref())
                .await;
        })
    }

    /// Says whether the server of `source`, which has answered by now, still served its slot then.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        source: &Source,
        primary: &Primary,
    ) -> Confirmation {
        let (site, Some(slot)) = (&source.site, source.slot) else {
            return Confirmation::Present;
        };
        if source.is_detour && source.is_late {
            // The map names neither the member to which the slot goes nor its replica.
            let why =
                format!("the answer came late, and slot {slot} is on its way to another server");
            return Confirmation::Unknown(Fault::new(FaultKind::Unavailable, why));
        }
        let replicas = self.map().replicas(slot).to_vec();
        let others = self.others(primary, &replicas);
        if others.is_empty() {
            // A cluster of one server, which no other replaces.
            return Confirmation::Present;
        }
        let location = primary.location.clone();
        let fits = move |told: &ToldMap| {
            told.may_confirm(&location) && (replicas.is_empty() || replicas.contains(&told.teller))
        };
        match self.asked_from_now(others, fits).await {
            Err(fault) => Confirmation::Unknown(fault),
            Ok(ToldMap { teller, map }) => {
                let present = map.primary(slot);
                if present == Some(&primary.location) {
                    site.clear();
                    return Confirmation::Present;
                }
                // Another member has the next word, if this one is the one that is wrong.
                self.kept().retain(|(member, _)| *member != teller);
                let by = present.map_or_else(|| "no server".to_owned(), Location::to_string);
                let why = format!("{primary} was replaced by {by} for slot {slot}");
                Confirmation::Replaced(Fault::new(FaultKind::Unknown, why))
            }
        }
    }

    /// Fetches a map that leads `slot` on from `site`, which has sent a request away.
    pub(in crate::store) async fn leave(&self, slot: HashSlot, site: &Site) -> Result<(), Fault> {
        let Some(accused) = site.location() else {
            return Ok(());
        };
        let _turn = self.questions.turn().await;
        let last = self.map();
        if last.primary(slot).is_some_and(|primary| primary != accused) {
            return Ok(());
        }
        // It is the first to know. Its word alone leads to members only.
        let all = [accused.clone()]
            .into_iter()
            .chain(self.all(Some(accused)))
            .collect();
        self.fetch(all, |teller, map| {
            map.leads_on(slot, accused, teller, &last)
        })
        .await
        .map(drop)
    }

    /// Returns the member `there`, to which `site` has sent a request, if another member knows it
    /// too.
    pub(in crate::store) async fn member(
        &self,
        there: &Location,
        site: &Site,
    ) -> Result<Arc<Site>, Fault> {
        if self.map().has(there) || self.seeds.contains(there) {
            return Ok(self.site(there));
        }
        let mut fault = Fault::new(
            FaultKind::Unavailable,
            format!("{there} is no member of the cluster"),
        );
        for other in self.all(site.location()) {
            match self.listed(&other, there).await {
                Ok(true) => return Ok(self.site(there)),
                Ok(false) => {}
                Err(why) => {
                    fault = Fault {
                        kind: FaultKind::Unavailable,
                        ..why
                    }
                }
            }
        }
        Err(fault)
    }

    async fn listed(&self, member: &Location, there: &Location) -> Result<bool, Fault> {
        let client = Client::open(&self.site(member).connector, self.limit, MAP_LIMIT).await?;
        match client.command(&["CLUSTER", "NODES"]).await? {
            Value::BulkString(text) => Ok(slots::lists(&String::from_utf8_lossy(&text), there)),
            _ => Ok(false),
        }
    }

    /// Returns the answer to a question that is sent after this call, to `members` one after
    /// another. Callers that come at the same time share one, if it `fits` them.
    async fn asked_from_now(
        self: &Arc<Self>,
        members: Vec<Location>,
        fits: impl Fn(&ToldMap) -> bool + Send + 'static,
    ) -> Result<ToldMap, Fault> {
        let cluster = Arc::clone(self);
        let ask = async move { cluster.fetch(members, |_, _| true).await };
        self.questions
            .answer(move |told| told.as_ref().map_or(true, &fits), ask)
            .await
    }

    /// Asks `members` one after another, and adopts the first map that is wanted. Ends a quarter
    /// before the limit, so that the caller says who was silent, not just that time is over.
    async fn fetch(
        &self,
        members: Vec<Location>,
        is_wanted: impl Fn(&Location, &Map) -> bool,
    ) -> Result<ToldMap, Fault> {
        let ends = clock::now() + self.limit / 4 * 3;
        let pause = HEAD_START.min(self.limit / 8);
        let (mut asked, mut faults) = (FuturesUnordered::new(), Vec::new());
        let mut rest = members.into_iter().take(MOST_ASKED);
        loop {
            asked.extend(rest.next().map(|member| self.ask(member)));
            let is_last = rest.len() == 0;
            let until = if is_last {
                ends
            } else {
                ends.min(clock::now() + pause)
            };
            match clock::until(until, asked.next()).await {
                Some(Some((teller, Ok((client, map))))) if is_wanted(&teller, &map) => {
                    self.keep(teller.clone(), client);
                    return Ok(ToldMap {
                        teller,
                        map: self.adopt(map),
                    });
                }
                Some(Some((teller, Err(fault)))) => faults.push((teller, fault)),
                Some(None) if is_last => break,
                None if clock::now() >= ends => break,
                Some(_) | None => {}
            }
        }
        Err(no_map(&faults))
    }

    async fn ask(&self, member: Location) -> (Location, Result<(Client, Map), Fault>) {
        let site = self.site(&member);
        // Taken out, so that the connection to a member that does not answer is not kept.
        let kept = self.taken(&member);
        let told = async {
            let client = match kept {
                Some(client) => client,
                None => Client::open(&site.connector, self.limit, MAP_LIMIT).await?,
            };
            let told = client.command(&["CLUSTER", "SLOTS"]).await?;
            Ok((client, told))
        };
        let map = told.await.map_err(explained).and_then(|(client, told)| {
            let unread = || Fault::new(FaultKind::Unknown, "unexpected reply to CLUSTER SLOTS");
            Map::read(&told, &member)
                .map(|map| (client, map))
                .ok_or_else(unread)
        });
        (member, map)
    }

    fn taken(&self, member: &Location) -> Option<Client> {
        let mut kept = self.kept();
        let place = kept.iter().position(|(of, _)| of == member)?;
        Some(kept.remove(place).1).filter(|client| client.state().works())
    }

    fn keep(&self, member: Location, client: Client) {
        let mut kept = self.kept();
        kept.push((member, client));
        let surplus = kept.len().saturating_sub(MOST_KEPT);
        kept.drain(..surplus);
    }

    fn kept(&self) -> MutexGuard<'_, Vec<(Location, Client)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adopt(&self, map: Map) -> Arc<Map> {
        let map = Arc::new(map);
        self.map.send_if_modified(|known| {
            let is_news = *known != map;
            known.clone_from(&map);
            is_news
        });
        map
    }

    /// Returns the members and the seeds, without `left_out`. Each time they begin with another
    /// one, and those that were silent come last.
    fn all(&self, left_out: Option<&Location>) -> Vec<Location> {
        let map = self.map();
        let new = self.seeds.iter().filter(|seed| !map.has(seed));
        self.in_turn(
            map.members()
                .chain(new)
                .filter(|one| Some(*one) != left_out)
                .cloned()
                .collect(),
        )
    }

    /// Returns the members that may confirm `primary`: those of the map, since a seed may be that
    /// server by another name. Its `replicas` come first, and then those to which a connection is
    /// kept.
    fn others(&self, primary: &Primary, replicas: &[Location]) -> Vec<Location> {
        let map = self.map();
        let mut others = self.in_turn(
            map.members()
                .filter(|member| **member != primary.location)
                .cloned()
                .collect(),
        );
        let kept = self.kept();
        let is_kept = |member: &Location| kept.iter().any(|(of, _)| of == member);
        others.sort_by_key(|member| {
            (
                self.site(member).is_suspect(),
                !replicas.contains(member),
                !is_kept(member),
            )
        });
        others
    }

    fn in_turn(&self, mut members: Vec<Location>) -> Vec<Location> {
        let asked = usize::try_from(self.questions.asked()).unwrap_or_default();
        let begin = asked % members.len().max(1);
        members.rotate_left(begin);
        members.sort_by_key(|member| self.site(member).is_suspect());
        members
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.borrow())
    }

    fn site(&self, location: &Location) -> Arc<Site> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let primary = Primary {
                location: location.clone(),
                epoch: None,
                since: None,
            };
            Arc::new(Site::new((self.server_at)(location), Some(primary)))
        };
        Arc::clone(sites.entry(location.clone()).or_insert_with(new))
    }
}

/// The fault of a server that is asked for the map and is in no cluster.
fn explained(fault: Fault) -> Fault {
    if fault.kind == FaultKind::Unfit && fault.why.contains("cluster support disabled") {
        return Fault::unfit("it is in no cluster", "write redis:// for a server");
    }
    fault
}

/// The fault of members of which none told a map that is wanted. One that may answer later makes it
/// a passing one.
fn no_map(faults: &[(Location, Fault)]) -> Fault {
    let lasts = |kind| matches!(kind, FaultKind::Refused | FaultKind::Unfit);
    let kind = match faults.first() {
        Some((_, first)) if faults.iter().all(|(_, fault)| lasts(fault.kind)) => first.kind,
        _ => FaultKind::Unavailable,
    };
    let whys: Vec<String> = faults
        .iter()
        .map(|(member, fault)| format!("{member}: {fault}"))
        .collect();
    let why = if whys.is_empty() {
        "the members of the cluster do not answer, or disagree".to_owned()
    } else {
        whys.join(", ")
    };
    // An unfit member is no matter as long as another one may answer.
    let is_first = |fault: &Fault| match kind {
        FaultKind::Unfit => fault.remedy.is_some(),
        _ => fault.separate_remedy().is_some(),
    };
    let mut all = faults.iter().map(|(_, fault)| fault);
    let first = all.find(|fault| is_first(fault));
    let (remedy, denied) = first.map_or((None, None), |fault| (fault.remedy, fault.denied));
    Fault {
        remedy,
        denied,
        ..Fault::new(kind, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FaultKind::{Refused, Unavailable, Unfit, Unknown};

    #[test]
    fn a_server_does_not_confirm_itself() {
        let at = |port: u16| Location {
            host: "h".to_owned(),
            port,
        };
        let server = |port: u16| {
            Value::Array(vec![
                Value::BulkString(b"h".to_vec()),
                Value::Int(port.into()),
            ])
        };
        let range = Value::Array(vec![
            Value::Int(0),
            Value::Int(16_383),
            server(1),
            server(2),
        ]);
        let map = Arc::new(Map::read(&Value::Array(vec![range]), &at(1)).unwrap());
        let told = |teller| ToldMap {
            teller: at(teller),
            map: Arc::clone(&map),
        };
        assert!(told(2).may_confirm(&at(1)));
        assert!(!told(1).may_confirm(&at(1)), "it is that server");
        assert!(
            !told(3).may_confirm(&at(1)),
            "it may be that server by another name"
        );
    }

    #[test]
    fn only_members_that_all_refuse_us_for_good_make_the_address_unfit() {
        let kind = |kinds: &[FaultKind]| {
            let location = Location {
                host: "h".to_owned(),
                port: 1,
            };
            let faults: Vec<_> = kinds
                .iter()
                .map(|kind| (location.clone(), Fault::new(*kind, "why")))
                .collect();
            no_map(&faults).kind
        };
        assert_eq!(kind(&[Unfit, Refused]), Unfit);
        assert_eq!(kind(&[Refused]), Refused);
        assert_eq!(kind(&[Unfit, Unavailable]), Unavailable);
        assert_eq!(kind(&[Unknown]), Unavailable);
        assert_eq!(kind(&[]), Unavailable);
    }
}
