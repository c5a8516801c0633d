//! A wait beside a record of what its actions have done at the nodes. [`Model::step`] states the
//! promise.

use super::*;

/// The present work of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Pausing,
    Trying,
    Undoing,
    Joining,
    Nothing,
}

/// A wait, and what is known of it from outside.
#[derive(Clone, Debug)]
pub(super) struct Model {
    waiting: Waiting,
    begin: Instant,
    now: Instant,
    doing: Doing,
    /// The ticket in the queues.
    queued: Option<u64>,
    answered: bool,
    /// The last attempt that was counted in full, or the first.
    last: Option<Tally>,
    longest_ttl: Duration,
    /// Attempts in a row that tied, and those of them that had a node.
    splits: u32,
    ties: u32,
    false_offers: u32,
    offers: Vec<usize>,
    /// Bounds of the next attempt.
    earliest: Instant,
    latest: Instant,
    /// Attempts since the last pause.
    in_a_row: u32,
    said: Vec<Notice>,
    outer_refused_since: Option<Instant>,
    /// When it came, as its tickets tell.
    came: Option<u64>,
}

impl Model {
    pub(super) fn new(waiting: Waiting, begin: Instant) -> Self {
        Self {
            waiting,
            begin,
            now: begin,
            doing: Doing::Pausing,
            queued: None,
            answered: false,
            last: None,
            longest_ttl: TTL,
            splits: 0,
            ties: 0,
            false_offers: 0,
            offers: vec![],
            earliest: begin,
            latest: begin,
            in_a_row: 0,
            said: vec![],
            outer_refused_since: None,
            came: None,
        }
    }

    /// Whether a driver could report `event` now.
    pub(super) fn expects(&self, event: &WaitEvent) -> bool {
        match event {
            WaitEvent::Tick => {
                matches!(self.doing, Doing::Pausing | Doing::Trying)
                    && self.waiting.wake_at() != Instant::NEVER
            }
            WaitEvent::Woken(..) => matches!(self.doing, Doing::Pausing | Doing::Trying),
            WaitEvent::Changed => self.doing == Doing::Pausing,
            WaitEvent::Tried(tried) => {
                let is_over_time = self.now >= self.waiting.wake_at();
                self.doing == Doing::Trying && (tried.is_complete || is_over_time)
            }
            WaitEvent::Undone { .. } => self.doing == Doing::Undoing,
            WaitEvent::NotJoined(_) => self.doing == Doing::Joining,
            WaitEvent::Interrupted => !matches!(self.doing, Doing::Nothing | Doing::Undoing),
        }
    }

    /// Returns when a driver that has waited until `now` would tick.
    pub(super) fn tick_at(&self, now: Instant) -> Instant {
        let at = self.waiting.wake_at();
        if at == Instant::NEVER {
            now
        } else {
            now.max(at)
        }
    }

    /// Returns the instants at which `event` is tried.
    pub(super) fn instants(&self, event: &WaitEvent) -> Vec<Instant> {
        match event {
            WaitEvent::Tick => vec![self.tick_at(self.now), self.now],
            WaitEvent::Undone { .. } | WaitEvent::Interrupted => vec![self.now + ms(1)],
            WaitEvent::Woken(..) => vec![self.now, self.now + ms(1200)],
            _ => vec![self.now],
        }
    }

    fn wait(&self) -> Option<Duration> {
        self.waiting.options.wait
    }

    fn gives_up(&self) -> Instant {
        self.wait().map_or(Instant::NEVER, |wait| self.begin + wait)
    }

    /// Returns when the wait is over by what the user asked for.
    fn patience(&self) -> Instant {
        let limit = self.gives_up();
        let limit = match self.wait() {
            None if !self.answered => self.begin + ms(10_000),
            _ => limit,
        };
        let may_win_a_tie = matches!(self.last, Some(Err(Reason::Blocked(Blocked::Split(..)))))
            && self.wait() == Some(Duration::ZERO);
        if may_win_a_tie {
            limit.max(self.begin + schedule().node_timeout())
        } else {
            limit
        }
    }

    fn nudged(&mut self, at: Instant) {
        (self.earliest, self.latest) = (self.earliest.min(at), self.latest.min(at));
    }

    /// Applies `event` and checks what must hold after any event in any state.
    pub(super) fn step(&mut self, event: &WaitEvent, now: Instant, random: f64) {
        let before = self.clone();
        self.now = now;
        let due = self.waiting.wake_at();
        let actions = self.waiting.on(event.clone(), now, random);
        let context = || {
            format!(
                "{event:?} at {now:?} in {before:#?} gave {actions:#?} and {:#?}",
                self.waiting
            )
        };
        if before.doing == Doing::Nothing {
            assert!(
                actions.is_empty(),
                "nothing is done after the end: {}",
                context()
            );
            assert_eq!(self.waiting.wake_at(), Instant::NEVER);
            return;
        }
        let gives_up = actions.iter().find_map(|action| {
            if let WaitAction::GiveUp(why) = action {
                Some(why)
            } else {
                None
            }
        });
        let ends = gives_up.is_some()
            || actions
                .iter()
                .any(|action| matches!(action, WaitAction::Hold(_)));
        let last_ends = matches!(
            actions.last(),
            Some(WaitAction::GiveUp(_) | WaitAction::Hold(_))
        );
        assert_eq!(
            ends,
            last_ends,
            "the end comes last, and once: {}",
            context()
        );
        let tries = actions
            .iter()
            .any(|action| matches!(action, WaitAction::Try { .. }));

        if let (WaitEvent::Tried(tried), Doing::Trying) = (event, before.doing) {
            self.tried(tried, &actions, ends, &before);
        } else {
            let counts = actions
                .iter()
                .any(|action| matches!(action, WaitAction::Undo(_) | WaitAction::Hold(_)));
            assert!(
                !counts || *event == WaitEvent::Interrupted,
                "an attempt is not cut off: {actions:?}"
            );
        }
        match event {
            WaitEvent::Woken(node, wake) => self.woken(*node, *wake),
            WaitEvent::Changed if self.doing == Doing::Pausing => {
                self.earliest = self.earliest.min(now);
                self.latest = self.latest.min(now + schedule().retry());
            }
            WaitEvent::Tick if self.doing == Doing::Pausing => {
                let over = before.last.is_some() && now >= self.patience();
                assert_eq!(
                    tries,
                    now >= due && !over,
                    "the next attempt is in time, and in the patience"
                );
                assert_eq!(
                    gives_up.is_some(),
                    now >= due && over,
                    "the end comes with the patience"
                );
            }
            WaitEvent::Tick if self.doing == Doing::Trying => {
                let limit = if self.wait() == Some(Duration::ZERO) {
                    schedule().node_timeout()
                } else {
                    Duration::ZERO
                };
                let cut = now >= self.gives_up().max(self.begin + limit);
                assert_eq!(
                    actions.contains(&WaitAction::CountNow),
                    cut,
                    "counted at the end of the patience"
                );
            }
            WaitEvent::NotJoined(why) if self.doing == Doing::Joining => {
                self.not_joined(*why, ends);
            }
            _ => {}
        }
        for action in &actions {
            self.act(action, event);
        }
        if *event == WaitEvent::Interrupted {
            assert!(actions.len() <= 1, "a signal ends the wait at once");
            self.ends();
        }
        if let (WaitEvent::Undone { subscribed }, Doing::Undoing, false) =
            (event, before.doing, tries)
            && self.doing == Doing::Undoing
        {
            self.pauses(*subscribed);
        }
        self.check();
    }

    fn tried(&mut self, tried: &Tried, actions: &[WaitAction], ends: bool, before: &Self) {
        let quorum = self.waiting.options.quorum;
        let is_final = !matches!(tried.tally, Err(Reason::Blocked(_)));
        let is_won = tried.tally.is_ok();
        assert_eq!(
            is_won,
            matches!(actions.last(), Some(WaitAction::Hold(_))),
            "a lock that is won is held"
        );
        let is_outer = tried.by_majority
            && matches!(&tried.tally, Err(Reason::Blocked(Blocked::Busy(blocker))) if **blocker == *holder(outer(), ms(7000)));
        if is_outer {
            assert_eq!(
                actions.last(),
                Some(&WaitAction::Undo(QueueEntry::Left)),
                "no place in a queue for oneself"
            );
            return;
        }
        self.outer_refused_since = None;
        self.longest_ttl = self.longest_ttl.max(tried.longest_ttl);
        self.answered |= tried.voted >= quorum.needed()
            || matches!(
                tried.tally,
                Err(Reason::Blocked(Blocked::Busy(_) | Blocked::Split(..)))
            );
        if tried.is_complete || self.last.is_none() {
            self.last = Some(tried.tally.clone());
        }
        let is_tie = matches!(&tried.tally, Err(Reason::Blocked(Blocked::Split(_, faults))) if faults.len() <= quorum.tolerated());
        (self.splits, self.ties) = if is_tie {
            (self.splits + 1, self.ties + u32::from(tried.has_taken_any))
        } else {
            (0, 0)
        };
        assert_eq!(
            ends,
            is_final || self.now >= self.patience(),
            "over with a last word or with the patience only"
        );
        let takes_ticket =
            before.queued.is_none() && tried.entered.is_some() && self.gives_up() > self.begin;
        let leaves = actions.contains(&WaitAction::Undo(QueueEntry::Left));
        let has_tied_enough = self.ties >= 3 && !takes_ticket;
        assert!(
            is_won || leaves == (ends || has_tied_enough),
            "the place is given up at the end and for ties: {actions:?}"
        );
        if has_tied_enough {
            (self.splits, self.ties) = (0, 0);
        }
    }

    fn woken(&mut self, node: usize, wake: Wake) {
        let pause = self
            .false_offers
            .checked_sub(5)
            .map_or(0, |more| 20 << more.min(10))
            .min(250);
        match wake {
            Wake::Recheck => self.nudged(self.now),
            Wake::StandBy => self.nudged(self.now + ms(500)),
            Wake::YourTurn => {
                if !self.offers.contains(&node) {
                    self.offers.push(node);
                }
                let is_enough = self.offers.len() >= self.waiting.options.quorum.needed();
                self.nudged(self.now + ms(if is_enough { pause } else { pause.max(10) }));
            }
        }
    }

    fn not_joined(&mut self, why: Unjoined, ends: bool) {
        let since = self.outer_refused_since.unwrap_or(self.now);
        self.outer_refused_since = (why == Unjoined::Refused).then_some(since);
        let is_over = why == Unjoined::Refused && self.now.since(since) >= ms(2000);
        assert_eq!(
            ends, is_over,
            "an outer rlock that cannot be reached ends the wait after two seconds"
        );
        if !ends {
            self.answered = true;
            self.last = Some(busy());
            let retry = schedule().retry();
            self.pauses_between(retry / 2, retry);
        }
    }

    /// The pause that the last attempt calls for, in bounds.
    fn pauses(&mut self, subscribed: usize) {
        let retry = schedule().retry();
        let is_heard = self.queued.is_some() && subscribed >= self.waiting.options.quorum.needed();
        let (least, most) = match self.last.as_ref().expect("an attempt before the pause") {
            Err(Reason::Blocked(Blocked::Split(..))) if self.splits > 0 => {
                (ms(5), ms(5) + ms(40 << self.splits.min(4)).min(ms(320)))
            }
            Err(Reason::Blocked(Blocked::Busy(blocker)))
                if **blocker == *holder(outer(), ms(7000)) =>
            {
                (retry / 2, retry)
            }
            // One that is not known to be the first pauses for up to a tenth of its wait.
            Err(Reason::Blocked(Blocked::Busy(_))) if !is_heard => {
                let waited = self.now.since(self.begin);
                (ms(100), ms(250).max((waited / 10).min(ms(10_000))))
            }
            // The first waiter looks for the others, whose ranks a later attempt may have told.
            Err(Reason::Blocked(Blocked::Busy(blocker))) if blocker.is_foreign() => {
                match self.waiting.rank {
                    Some(0) => (ms(100), ms(250)),
                    _ => (ms(10_000), ms(10_000)),
                }
            }
            Err(Reason::Blocked(Blocked::Busy(blocker))) if blocker.occupant().is_none() => {
                (ms(501), ms(701))
            }
            Err(Reason::Blocked(Blocked::Busy(_))) => (ms(7001), ms(7401)),
            _ => (retry / 2, ms(2400)),
        };
        self.pauses_between(least, most);
    }

    fn pauses_between(&mut self, least: Duration, most: Duration) {
        let (now, patience) = (self.now, self.patience());
        let last_look = patience.before(ms(50));
        let stop = if now < last_look { last_look } else { patience };
        self.earliest = self.earliest.min(stop.min(now + least));
        self.latest = self.latest.min(stop.min(now + most));
        self.doing = Doing::Pausing;
        self.in_a_row = 0;
    }

    fn act(&mut self, action: &WaitAction, event: &WaitEvent) {
        match action {
            WaitAction::Try { ticket, guarded } => {
                self.tries(ticket.as_ref(), *guarded, event);
            }
            WaitAction::CountNow => assert_eq!(self.doing, Doing::Trying),
            WaitAction::Undo(entry) => {
                assert_eq!(self.doing, Doing::Trying, "an attempt is undone once");
                self.doing = Doing::Undoing;
                if *entry == QueueEntry::Left {
                    self.queued = None;
                }
            }
            WaitAction::Leave => assert!(self.queued.take().is_some(), "a queue is left once"),
            WaitAction::Join(token, _) => {
                assert_eq!(
                    (self.doing, *token, self.queued),
                    (Doing::Undoing, outer(), None)
                );
                self.doing = Doing::Joining;
            }
            WaitAction::Announce(ticket) => {
                assert_eq!(
                    (self.doing, self.queued),
                    (Doing::Trying, None),
                    "told when the lock is won at once"
                );
                self.came_at(ticket);
            }
            WaitAction::Say(notice) => self.says(notice),
            WaitAction::Hold(_) => {
                assert_eq!(self.doing, Doing::Trying);
                self.doing = Doing::Nothing;
            }
            WaitAction::GiveUp(_) => self.ends(),
        }
    }

    /// Checks the time at which a waiter came that supersedes others: it has it from its first
    /// ticket on, and keeps it.
    fn came_at(&mut self, ticket: &Ticket) {
        assert_eq!(ticket.supersedes.is_some(), self.waiting.options.supersede);
        assert!(
            self.came.is_none() || self.came == ticket.supersedes,
            "it came once"
        );
        self.came = ticket.supersedes;
    }

    fn ends(&mut self) {
        assert_ne!(self.doing, Doing::Trying, "no attempt is left under way");
        assert_eq!(self.queued, None, "no place is left in a queue");
        self.doing = Doing::Nothing;
    }

    fn tries(&mut self, ticket: Option<&Ticket>, guarded: Option<Duration>, event: &WaitEvent) {
        assert!(
            matches!(self.doing, Doing::Pausing | Doing::Undoing),
            "one attempt at a time"
        );
        let number = ticket.map(|ticket| ticket.number);
        assert!(
            number.is_none() || self.wait() != Some(Duration::ZERO),
            "no place in a queue with --no-wait"
        );
        assert!(
            self.queued.is_none() || number == self.queued,
            "a ticket is kept"
        );
        assert!(
            self.came.is_none() || ticket.is_some(),
            "each attempt tells when it came"
        );
        if let Some(ticket) = ticket {
            self.came_at(ticket);
        }
        if *event == WaitEvent::Tick {
            assert!(
                self.now >= self.earliest,
                "not before its pause is over: {self:#?}"
            );
            self.false_offers = if self.offers.is_empty() {
                0
            } else {
                self.false_offers + 1
            };
        } else {
            assert!(
                number.is_some() && self.queued.is_none(),
                "at once only to enter the queue"
            );
        }
        assert_eq!(
            guarded,
            Some(self.longest_ttl),
            "restarts are seen for as long as the longest lease"
        );
        self.in_a_row += 1;
        assert!(self.in_a_row <= 2, "a pause after two attempts");
        self.queued = number;
        self.offers.clear();
        (self.earliest, self.latest) = (Instant::NEVER, Instant::NEVER);
        self.doing = Doing::Trying;
    }

    fn says(&mut self, notice: &Notice) {
        match notice {
            Notice::Waiting {
                blocked: Blocked::Busy(blocker),
                ..
            } => {
                let before = self.said.iter().rev().find_map(|said| match said {
                    Notice::Waiting {
                        blocked: Blocked::Busy(before),
                        ..
                    } => Some(before),
                    _ => None,
                });
                assert!(
                    !before.is_some_and(|before| before.is_same(blocker)),
                    "a holder is news once"
                );
            }
            Notice::Waiting { .. } | Notice::TryingAgain(_) => {}
            Notice::Refused(refusal) => {
                let is_same = |said: &Notice| matches!(said, Notice::Refused(before) if before.node == refusal.node);
                assert!(
                    !self.said.iter().any(is_same),
                    "a refusal is said once a node"
                );
            }
            _ => {
                let kind = std::mem::discriminant(notice);
                assert!(
                    !self
                        .said
                        .iter()
                        .any(|said| std::mem::discriminant(said) == kind),
                    "said once: {notice:?}"
                );
            }
        }
        self.said.push(notice.clone());
    }

    fn check(&self) {
        let at = self.waiting.wake_at();
        match self.doing {
            Doing::Pausing => {
                assert!(at >= self.earliest, "looks too early, {at:?}: {self:#?}");
                assert!(at <= self.latest, "looks too late, {at:?}: {self:#?}");
                assert!(
                    self.last.is_none() || at <= self.patience(),
                    "never waits beyond the patience: {self:#?}"
                );
            }
            Doing::Trying => {
                assert!(at <= self.gives_up().max(self.begin + schedule().node_timeout()));
            }
            Doing::Undoing | Doing::Joining | Doing::Nothing => assert_eq!(at, Instant::NEVER),
        }
        let is_paused = self.doing == Doing::Pausing && self.last.is_some();
        assert_eq!(
            self.waiting.pausing().is_some(),
            is_paused,
            "shown between two attempts"
        );
    }
}
