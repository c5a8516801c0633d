//! `--replace`: the holders that must make room for a run, as a look at all nodes shows them.

use super::census::Census;
use super::details::Details;
use super::mode::Mode;
use super::occupant::Occupant;
use super::outer::OuterLocks;
use super::token::Token;

/// The holders that keep a run of the other kind, or of an exclusive lock, from starting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacing<'a> {
    /// Those that a live `run` keeps: it stops its command when it is told to.
    pub told: Vec<(Token, &'a Details, &'a Occupant)>,
    /// Another one, which must be waited for: a lock of `acquire`, a parked lock, or a foreign value.
    pub spared: Option<&'a Occupant>,
    /// Whether these are all of them.
    pub is_complete: bool,
}

impl<'a> Replacing<'a> {
    /// Returns the holders that `census` shows, for a run that wants the lock as `mode`. `outer`: the locks of outer rlocks, which
    /// run this client. A holder that was told already is left out.
    pub fn of(census: &Census<'a>, mode: Mode, outer: &OuterLocks) -> Self {
        let excludes = |holder: &Occupant| mode != Mode::Shared || holder.mode() != Some(Mode::Shared);
        let (mut told, mut spared) = (Vec::new(), None);
        let holders = census.holders().into_iter().filter(|(_, votes)| *votes >= census.quorum().needed());
        for (occupant, _) in holders.filter(|(occupant, _)| excludes(occupant)) {
            match occupant.holder() {
                Some((token, _)) if outer.claim(token) => {}
                Some((_, details)) if details.broken.is_some() => {}
                Some((token, details)) if details.kept && !details.parked => told.push((token, details, occupant)),
                _ => spared = spared.or(Some(occupant)),
            }
        }
        Self { told, spared, is_complete: census.is_answered() && census.unlisted() == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::group::Seat;
    use crate::lock::instant::Instant;
    use crate::lock::observation::Observation;
    use crate::lock::occupant::OccupantKind;

    fn holder(mode: Mode, kept: bool) -> Occupant {
        let details = Details { mode, kept, ..Details::default() };
        Occupant::new(OccupantKind::Holder(Token::fresh(), details), None)
    }

    fn token(occupant: &Occupant) -> Token {
        occupant.holder().unwrap().0
    }

    #[expect(clippy::unnecessary_wraps, reason = "what a census counts is optional")]
    fn node(holders: &[&Occupant]) -> Option<Observation> {
        let holders: Vec<Occupant> = holders.iter().map(|holder| (*holder).clone()).collect();
        Some(Observation { members: holders.len() as u64, holders, ..Observation::of_nothing(Instant::from_nanos(0)) })
    }

    fn told(of_nodes: &[Option<Observation>], mode: Mode) -> (Vec<Token>, bool, bool) {
        let census = Census::of(of_nodes);
        let replacing = Replacing::of(&census, mode, &OuterLocks::default());
        let mut told: Vec<Token> = replacing.told.iter().map(|(token, ..)| *token).collect();
        told.sort_by_key(|token| token.as_uuid());
        (told, replacing.spared.is_some(), replacing.is_complete)
    }

    #[test]
    fn a_run_that_a_majority_has_is_told_and_a_minority_is_not() {
        let (run, other) = (holder(Mode::Exclusive, true), holder(Mode::Exclusive, true));
        let nodes = [node(&[&run]), node(&[&run]), node(&[&other])];
        assert_eq!(told(&nodes, Mode::Exclusive), (vec![token(&run)], false, true));
        assert_eq!(told(&nodes, Mode::Shared), (vec![token(&run)], false, true));
        assert_eq!(told(&[node(&[&run]), None, node(&[&other])], Mode::Exclusive).0, []);
    }

    #[test]
    fn all_readers_are_told_by_a_writer_and_none_by_a_reader() {
        let seat = |index| Seat { index, fence: None };
        let mut readers: Vec<Occupant> = (0..3).map(|_| holder(Mode::Shared, true)).collect();
        readers.sort_by_key(|reader| token(reader).as_uuid());
        let all: Vec<&Occupant> = readers.iter().collect();
        let tokens: Vec<Token> = readers.iter().map(token).collect();
        assert_eq!(told(&[node(&all)], Mode::Exclusive), (tokens, false, true));
        assert_eq!(told(&[node(&all)], Mode::Shared), (vec![], false, true));
        let mut more = node(&all);
        more.as_mut().unwrap().members = 4;
        assert!(!told(&[more], Mode::Exclusive).2, "one was not listed");
        let slot = Occupant { seat: seat(2), ..holder(Mode::Slots(2), true) };
        assert_eq!(told(&[node(&[&slot])], Mode::Shared).0, [token(&slot)]);
    }

    #[test]
    fn what_no_run_keeps_is_spared_and_a_tombstone_is_left_alone() {
        let acquired = holder(Mode::Exclusive, false);
        let foreign = Occupant::new(OccupantKind::Foreign("x".to_owned()), None);
        assert_eq!(told(&[node(&[&acquired])], Mode::Exclusive), (vec![], true, true));
        assert_eq!(told(&[node(&[&foreign])], Mode::Exclusive), (vec![], true, true));
        let details = Details { parked: true, ..Details::default() };
        let parked = Occupant::new(OccupantKind::Holder(Token::fresh(), details), None);
        assert_eq!(told(&[node(&[&parked])], Mode::Exclusive), (vec![], true, true));
        let details = Details { broken: Some("me".to_owned()), ..Details::default() };
        let broken = Occupant::new(OccupantKind::Holder(Token::fresh(), details), None);
        assert_eq!(told(&[node(&[&broken])], Mode::Exclusive), (vec![], false, true));
    }

    #[test]
    fn the_rlock_that_runs_this_client_is_never_told() {
        let run = holder(Mode::Exclusive, true);
        let of_nodes = [node(&[&run])];
        let outer = OuterLocks::read(&format!("{}:7", token(&run)), "");
        assert!(Replacing::of(&Census::of(&of_nodes), Mode::Exclusive, &outer).told.is_empty());
    }
}
