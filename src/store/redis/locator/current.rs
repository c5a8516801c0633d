//! The primary that sentinels named last, and the switches that were heard of since.

use std::sync::Arc;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

use super::Site;
use super::answer::Location;
use crate::store::Pending;
use crate::store::redis::connection::Hearing;

/// Channel on which a sentinel announces a switch.
pub(super) const SWITCHES: &str = "+switch-master";

/// The primary that was named last.
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
    pub(super) fn new(service: String) -> Self {
        Self {
            service,
            state: watch::Sender::default(),
        }
    }

    /// Records that `site` was found. `switches`: their number when the question was asked. If one
    /// was announced since, the answers may be older than it, and the next request asks again.
    pub(super) fn set(&self, site: &Arc<Site>, switches: u64) {
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

    pub(super) fn switches(&self) -> u64 {
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
    pub(super) fn leave(&self, site: &Site) {
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

    pub(super) fn hearing(self: &Arc<Self>) -> Hearing {
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

    use super::super::Primary;
    use super::*;
    use crate::lock::instant::Instant;
    use crate::store::redis::address::Endpoint;
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
