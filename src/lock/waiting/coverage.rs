//! Whether the locks of one run can be held together, where outer rlocks hold some of them.
//!
//! A run under outer locks takes none itself, and a run that takes its locks itself relies on no outer rlock. A mixture is
//! refused: the outer rlock has its locks already, so the order in which locks are taken could not be kept.

use crate::lock::occupant::Occupant;

/// One lock of a run, as a majority of the nodes sees it.
#[derive(Clone, PartialEq, Debug)]
pub enum Standing {
    /// An outer rlock holds it.
    Outer(Box<Occupant>),
    /// We hold it, or another client does.
    NotOuter,
    /// No majority says.
    Unknown,
}

/// Returns the first lock that no outer rlock holds, and the holder of one that an outer rlock holds, if there are both.
pub fn partly_covered(standings: &[Standing]) -> Option<(usize, Box<Occupant>)> {
    let missing = standings.iter().position(|standing| *standing == Standing::NotOuter)?;
    let holder = standings.iter().find_map(|s| if let Standing::Outer(holder) = s { Some(holder) } else { None })?;
    Some((missing, holder.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::occupant::OccupantKind;

    #[test]
    fn a_mixture_is_refused_once_a_majority_has_said_so_of_both() {
        let outer = || Standing::Outer(Box::new(Occupant::new(OccupantKind::Unnamed, None)));
        let missing = |standings: &[Standing]| partly_covered(standings).map(|(lock, _)| lock);
        assert_eq!(missing(&[outer(), outer()]), None);
        assert_eq!(missing(&[Standing::NotOuter, Standing::NotOuter]), None);
        assert_eq!(missing(&[outer(), Standing::Unknown]), None);
        assert_eq!(missing(&[Standing::Unknown, Standing::NotOuter]), None);
        assert_eq!(missing(&[outer(), Standing::Unknown, Standing::NotOuter]), Some(2));
        assert_eq!(missing(&[Standing::NotOuter, outer()]), Some(0));
    }
}
