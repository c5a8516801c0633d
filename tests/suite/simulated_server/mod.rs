//! The simulated server of `simulation/` against a real one: the same requests must get the same
//! replies.
//!
//! The model is Redis 7.0, whose words it has too. Other versions may put an error into other
//! words, and write a double with fewer digits. Times that each side reads from the clock may be
//! some seconds apart.

mod commands;
mod expiry;
mod frame;
mod members;
mod pair;
mod sentinels;
mod shipped;

use proptest::prelude::*;
use proptest::test_runner::{TestRng, TestRunner};

use commands::Step;
use frame::Frame;
use pair::{Pair, Real, words};

/// Least number of cases of each property, the same in each run. `PROPTEST_CASES` asks for more.
const CASES: u32 = 400;

/// Tries `property` on generated cases against one real server, and shows the smallest that fails.
fn compare<S: Strategy>(
    strategy: &S,
    property: impl Fn(&mut Real, S::Value) -> Result<(), String>,
) {
    let real = std::cell::RefCell::new(Real::start());
    let defaults = ProptestConfig::default();
    let config = ProptestConfig {
        failure_persistence: None,
        cases: defaults.cases.max(CASES),
        ..defaults
    };
    let random = TestRng::deterministic_rng(config.rng_algorithm);
    let run = |case| property(&mut real.borrow_mut(), case).map_err(TestCaseError::fail);
    if let Err(error) = TestRunner::new_with_rng(config, random).run(strategy, run) {
        panic!("{error}");
    }
}

/// A reply without what differs by nature: the number of a connection (HELLO), the µs of TIME, and
/// the order in which all channels are unsubscribed from.
fn without_own(frame: &Frame) -> Frame {
    let Frame::List(mark, parts) = frame else {
        return frame.clone();
    };
    let mut parts: Vec<Frame> = parts.iter().map(without_own).collect();
    let begins = |parts: &[Frame], word: &[u8]| matches!(parts.first(), Some(Frame::Bulk(_, Some(first))) if first == word);
    if begins(&parts, b"server") {
        parts[7] = Frame::Line(':', "its own".to_owned());
    } else if begins(&parts, b"unsubscribe") {
        parts.remove(1);
    } else if let [Frame::Bulk(_, Some(seconds)), Frame::Bulk(..)] = parts.as_slice()
        && seconds.len() == 10
    {
        parts.truncate(1);
    }
    Frame::List(*mark, parts)
}

/// Reads all of a small key, whatever its type.
fn read(pair: &mut Pair, key: &str) -> Result<(), String> {
    for request in ["TYPE", "GET", "HGETALL"] {
        pair.ask(0, &words(&format!("{request} {key}")))?;
    }
    // Some ms are over.
    let in_seconds = |reply: &Frame| match reply {
        Frame::Line(':', ms) => Frame::Line(
            ':',
            ms.parse()
                .map_or(0, |ms: i64| (ms + 999).div_euclid(1000))
                .to_string(),
        ),
        other => other.clone(),
    };
    pair.ask_as(0, &words(&format!("PTTL {key}")), in_seconds)?;
    pair.ask(0, &words(&format!("ZRANGE {key} 0 -1 WITHSCORES")))
        .map(drop)
}

#[test]
fn every_command_answers_as_a_real_server_does() {
    compare(&commands::case(), |real, (protocol, steps)| {
        let is_the_models = real.is_the_models;
        let mut pair = Pair::new(real, 2, protocol);
        for (client, step) in steps
            .iter()
            .filter(|(_, step)| is_the_models || !step.is_of_the_models_version())
        {
            match (step, step.request()) {
                (Step::Fault(fault), _) => pair.inflict(fault),
                (_, Some(request)) => drop(pair.ask_as(*client, &request, without_own)?),
                (_, None) => {}
            }
        }
        pair.inflict(&pair::Fault::AllowAll);
        ["a", "b", "c"]
            .iter()
            .try_for_each(|key| read(&mut pair, key))
    });
}
