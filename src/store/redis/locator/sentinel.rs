//! The sentinels that name a node's server: asked, and heard when they announce a switch; and the
//! server that they named last.
//!
//! 1. A new connection to the server begins with the question where it is, so a connection that
//!    broke leads to the present one.
//! 2. After a reply that matters the sentinels are asked again. A server that was replaced stays a
//!    writable primary for ten seconds, and what it says then counts for nothing.
//! 3. Each link to a sentinel listens for switches. It is opened again with the next question.
//!
//! The rules are those of `answers`. Here questions go out, and answers come in.

use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, watch};

use super::Questions;
use super::answers::Answers;
use super::naming::{self, Naming, SentinelAnswer};
use super::{Confirmation, Location, Primary, ServerAt, Site, Survey};
use crate::clock;
use crate::lock::instant::Instant;
use crate::lock::quorum::Quorum;
use crate::store::redis::connect::Connector;
use crate::store::redis::connection::{Connection, Hearing, REPLY_LIMIT};
use crate::store::redis::state::Effect;
use crate::store::{Fault, FaultKind, Pending};

/// Time for the other sentinels once a majority has named a primary. One of them may know of a
/// later failover.
const SETTLING: Duration = Duration::from_millis(15);

/// Channel on which a sentinel announces a switch.
const SWITCHES: &str = "+switch-master";

/// The sentinels of a service, and the primary that they named last.
pub struct Sentinels {
    service: String,
    all: Vec<Arc<Sentinel>>,
    server_at: ServerAt,
    limit: Duration,
    pub(super) current: Arc<Current>,
    /// To all sentinels at once. The answers serve each caller that came before the question was
    /// sent.
    questions: Questions<Round>,
}

/// The answers to one question, in the order of the sentinels.
#[derive(Clone)]
struct Round {
    begun: Instant,
    answers: Arc<[Option<SentinelAnswer>]>,
}

impl Sentinels {
    /// The sentinels of `service`, by name. `limit` bounds each question.
    pub(super) fn new(
        service: String,
        sentinels: impl IntoIterator<Item = (String, Connector)>,
        server_at: ServerAt,
        limit: Duration,
    ) -> Self {
        let current = Arc::new(Current::new(service.clone()));
        let sentinel = |(name, connector)| {
            let (hearing, link) = (current.hearing(), tokio::sync::Mutex::default());
            Arc::new(Sentinel {
                name,
                connector,
                hearing,
                link,
            })
        };
        Self {
            service,
            all: sentinels.into_iter().map(sentinel).collect(),
            server_at,
            limit,
            current,
            questions: Questions::default(),
        }
    }

    /// Asks where the server is, which takes the requests from now on.
    pub(super) async fn find(self: &Arc<Self>) -> Result<Arc<Site>, Fault> {
        let switches = self.current.switches();
        let round = self.asked_from_now().await;
        let named = self.answers(&round).primary()?;
        let site = Arc::new(self.site(named, round.begun));
        self.current.set(&site, switches);
        Ok(site)
    }

    /// Says whether the server of `primary`, which has answered by now, is the one that a majority
    /// of the sentinels names.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        site: &Arc<Site>,
        primary: &Primary,
    ) -> Confirmation {
        let round = self.asked_from_now().await;
        let confirmation = self.answers(&round).confirm(primary);
        if matches!(confirmation, Confirmation::Replaced(_)) {
            self.current.leave(site);
        }
        confirmation
    }

    /// Asks the sentinels what they know.
    pub(super) async fn survey(self: &Arc<Self>) -> Survey {
        let round = self.asked_from_now().await;
        let namings: Vec<Naming> = self
            .answers(&round)
            .namings()
            .map(|(_, naming)| naming.clone())
            .collect();
        Survey::Sentinels {
            listed: self.all.len(),
            namings,
        }
    }

    fn site(&self, named: Naming, asked: Instant) -> Site {
        let connector = (self.server_at)(&named.primary);
        let primary = Primary {
            location: named.primary,
            epoch: Some(named.epoch),
            since: Some(asked.before(named.age)),
        };
        Site::new(connector, Some(primary))
    }

    fn answers(&self, round: &Round) -> Answers<'_> {
        let names = self.all.iter().map(|sentinel| sentinel.name.as_str());
        Answers {
            service: &self.service,
            of: names.zip(round.answers.iter().cloned()).collect(),
        }
    }

    /// Returns answers to a question that is sent after this call. Callers that come at the same
    /// time share one.
    async fn asked_from_now(self: &Arc<Self>) -> Round {
        let sentinels = Arc::clone(self);
        let ask = async move {
            Round {
                begun: clock::now(),
                answers: sentinels.ask().await.into(),
            }
        };
        self.questions.answer(|_| true, ask).await
    }

    /// Asks all sentinels at once. Ends a quarter before the limit, so that the caller says who was
    /// silent, not just that time is over.
    async fn ask(&self) -> Vec<Option<SentinelAnswer>> {
        let (tell, mut told) = mpsc::unbounded_channel();
        for (number, sentinel) in self.all.iter().enumerate() {
            let (sentinel, tell, service, limit) = (
                Arc::clone(sentinel),
                tell.clone(),
                self.service.clone(),
                self.limit,
            );
            // A task of its own: a slow sentinel's link is set up, and its answer read, though a
            // majority has answered before.
            tokio::spawn(async move {
                let answer = clock::until(
                    clock::now() + limit,
                    Box::pin(sentinel.ask(&service, limit)),
                )
                .await;
                let answer =
                    answer.unwrap_or_else(|| SentinelAnswer::Failed(Fault::timeout(limit)));
                let _ = tell.send((number, answer));
            });
        }
        drop(tell);
        let needed = Quorum::of(self.all.len()).needed();
        let (mut answers, mut named) = (vec![None; self.all.len()], 0);
        let mut ends = clock::now() + self.limit / 4 * 3;
        while let Some(Some((number, answer))) = clock::until(ends, told.recv()).await {
            named += usize::from(matches!(answer, SentinelAnswer::Names(_)));
            answers[number] = Some(answer);
            if named >= needed {
                ends = ends.min(clock::now() + SETTLING);
            }
        }
        answers
    }
}

/// One sentinel, with the link to it.
struct Sentinel {
    name: String,
    connector: Connector,
    hearing: Hearing,
    link: tokio::sync::Mutex<Option<Connection>>,
}

impl Sentinel {
    async fn ask(&self, service: &str, limit: Duration) -> SentinelAnswer {
        let connection = match self.connection(limit).await {
            Ok(connection) => connection,
            Err(fault) => return SentinelAnswer::Failed(fault),
        };
        let question = |name: &str| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(name).arg(service);
            command
        };
        let (address, state) = (question("GET-MASTER-ADDR-BY-NAME"), question("MASTER"));
        let send = |command| connection.send(command, Effect::None);
        let (before, state, after) = tokio::join!(send(&address), send(&state), send(&address));
        naming::read(before, state, after)
    }

    /// Returns the link, which is opened if need be.
    async fn connection(&self, limit: Duration) -> Result<Connection, Fault> {
        let mut link = self.link.lock().await;
        if let Some(open) = link.as_ref().filter(|open| open.state().is_of_use(limit)) {
            return Ok(open.clone());
        }
        let connection = match self
            .connector
            .open(limit, REPLY_LIMIT, Some(Arc::clone(&self.hearing)))
            .await
        {
            // A sentinel without RESP3: it answers questions, and its announcements are not heard.
            Err(Fault {
                kind: FaultKind::Refused | FaultKind::Unfit,
                ..
            }) => self.connector.open(limit, REPLY_LIMIT, None).await?,
            opened => opened?,
        };
        connection.subscribe(SWITCHES).await;
        Ok(link.insert(connection).clone())
    }
}

/// The primary that sentinels named last, and the switches that were heard of since.
pub(super) struct Current {
    service: String,
    state: watch::Sender<State>,
}

#[derive(Default)]
struct State {
    /// `None` while no other is known than one that was replaced.
    site: Option<Arc<Site>>,
    /// Number of switches that were heard of or found.
    switches: u64,
}

impl Current {
    fn new(service: String) -> Self {
        Self {
            service,
            state: watch::Sender::default(),
        }
    }

    /// Records that `site` was found. `switches`: their number when the question was asked. If one
    /// was announced since, the answers may be older than it, and the next request asks again.
    fn set(&self, site: &Arc<Site>, switches: u64) {
        self.state.send_modify(|state| {
            if state.switches != switches {
                return;
            }
            let is_other = state
                .site
                .as_ref()
                .is_some_and(|known| !known.is_same(site));
            state.switches += u64::from(is_other);
            state.site = Some(Arc::clone(site));
        });
    }

    fn switches(&self) -> u64 {
        self.state.borrow().switches
    }

    /// Returns the server that was found last, if no switch was heard of since.
    pub(super) fn site(&self) -> Option<Arc<Site>> {
        self.state.borrow().site.clone()
    }

    /// Whether `site` is that server.
    pub(super) fn is(&self, site: &Site) -> bool {
        self.state
            .borrow()
            .site
            .as_ref()
            .is_some_and(|known| known.is_same(site))
    }

    /// Records that `site` was replaced.
    fn leave(&self, site: &Site) {
        self.state.send_if_modified(|state| {
            let is_news = state.site.as_ref().is_some_and(|known| known.is_same(site));
            if is_news {
                (state.site, state.switches) = (None, state.switches + 1);
            }
            is_news
        });
    }

    /// Records a switch to `primary` that a sentinel has announced. Each announcement is news: a
    /// later one may be that of the sentinel that makes a majority.
    fn announced(&self, primary: &Location) {
        self.state.send_modify(|state| {
            state.switches += 1;
            let is_it = |site: &Arc<Site>| {
                site.primary
                    .as_ref()
                    .is_some_and(|known| known.location == *primary)
            };
            state.site = state.site.take().filter(is_it);
        });
    }

    fn hearing(self: &Arc<Self>) -> Hearing {
        let current = Arc::clone(self);
        Arc::new(move |push| {
            if let Some(primary) = announced(push, &current.service) {
                current.announced(&primary);
            }
        })
    }

    /// Returns when a switch is heard of, or found, after this call.
    pub(super) fn moved(&self) -> Pending<()> {
        let mut state = self.state.subscribe();
        let known = state.borrow().switches;
        Box::pin(async move {
            let _ = state.wait_for(|state| state.switches != known).await;
        })
    }
}

/// Returns the new primary, if `push` announces a switch of `service`.
fn announced(push: &PushInfo, service: &str) -> Option<Location> {
    match (&push.kind, &push.data[..]) {
        (PushKind::Message, [Value::BulkString(channel), Value::BulkString(message)])
            if channel == SWITCHES.as_bytes() =>
        {
            Location::of_switch(message, service)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::lock::instant::Instant;
    use crate::store::net::hosts::Endpoint;
    use crate::store::redis::connect::Connector;

    fn site(port: u16, epoch: u64) -> Arc<Site> {
        let endpoint = Endpoint::Tcp {
            host: "h".to_owned(),
            port,
            tls: false,
        };
        let location = Location {
            host: "h".to_owned(),
            port,
        };
        let primary = Some(Primary {
            location,
            epoch: Some(epoch),
            since: Some(Instant::from_nanos(0)),
        });
        Arc::new(Site::new(Connector::new(endpoint.into()), primary))
    }

    fn says(current: &Arc<Current>, message: &str) {
        let data = [SWITCHES, message]
            .map(|text| Value::BulkString(text.as_bytes().to_vec()))
            .to_vec();
        current.hearing()(&PushInfo {
            kind: PushKind::Message,
            data,
        });
    }

    #[test]
    fn an_announcement_retires_the_old_primary_and_tells_each_that_waits() {
        let current = Arc::new(Current::new("svc".to_owned()));
        current.set(&site(1, 7), current.switches());
        let mut moved = current.moved();
        says(&current, "other h 1 h 2");
        assert!(
            current.is(&site(1, 7)) && (&mut moved).now_or_never().is_none(),
            "another service"
        );
        says(&current, "svc h 1 h 2");
        assert!(!current.is(&site(1, 7)) && current.site().is_none());
        assert!(moved.now_or_never().is_some());
        current.set(&site(2, 8), current.switches());
        let moved = current.moved();
        says(&current, "svc h 1 h 2");
        assert!(
            current.is(&site(2, 8)),
            "the next sentinel announces the same"
        );
        assert!(
            moved.now_or_never().is_some(),
            "with it there may be a majority"
        );
    }

    #[test]
    fn answers_that_are_older_than_an_announcement_name_nothing() {
        let current = Arc::new(Current::new("svc".to_owned()));
        let asked = current.switches();
        says(&current, "svc h 1 h 2");
        current.set(&site(1, 7), asked);
        assert!(current.site().is_none());
    }

    #[test]
    fn the_same_server_after_another_failover_is_another_one() {
        let current = Arc::new(Current::new("svc".to_owned()));
        current.set(&site(1, 7), current.switches());
        let moved = current.moved();
        current.set(&site(1, 7), current.switches());
        assert!(moved.now_or_never().is_none());
        let moved = current.moved();
        current.set(&site(1, 9), current.switches());
        assert!(
            moved.now_or_never().is_some() && !current.is(&site(1, 7)) && current.is(&site(1, 9))
        );
        current.leave(&site(1, 7));
        assert!(current.is(&site(1, 9)));
        current.leave(&site(1, 9));
        assert!(current.site().is_none());
    }
}
