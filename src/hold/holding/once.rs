//! `--once`: whether a run has succeeded under a lock already, asked while it is held.
//!
//! A success is written on each node that its release reaches. If those are a majority, one of them
//! is among any majority that grants the lock afterwards. So one node that knows it is enough to
//! skip the command, and a majority without one to run it.

use std::io;
use std::time::Duration;

use super::Holding;
use crate::clock::{self, Alarm};
use crate::hold::observe::observe;
use crate::lock::census::Success;
use crate::lock::fault::Faults;
use crate::lock::last::Entry;
use crate::lock::messages::Look;

impl Holding {
    /// Asks the nodes for a success under the lock no older than `within`. Asks until so little of
    /// the lease is left that it must be renewed.
    ///
    /// Returns the run that has succeeded, if one has; or the nodes that failed, if too few have
    /// told. *Unknown is not no.*
    pub async fn run_before(
        &self,
        within: Duration,
    ) -> io::Result<Result<Option<Box<Entry>>, Faults>> {
        let (token, schedule) = (self.claim.token, self.schedule);
        let mut alarm = Alarm::new()?;
        loop {
            let wanted = Look::of(token);
            let looks = observe(&self.nodes, schedule.node_timeout(), wanted, |census| {
                matches!(census.success_before(token, within), Success::Known(_))
            });
            let looks = looks.await;
            match looks.census().success_before(token, within) {
                Success::Known(run) => return Ok(Ok(Some(Box::new(run.clone())))),
                Success::None => return Ok(Ok(None)),
                Success::Unknown => {}
            }
            let next = clock::now() + schedule.retry();
            if next >= schedule.renew_at(self.deadline()) {
                return Ok(Err(looks.faults));
            }
            alarm.reached(next).await;
        }
    }
}
