//! The moment at which a key expires, to the millisecond.

use simulation::server::WallMicros;

use super::frame::Frame;
use super::pair::{Pair, Real};

/// Reads the real server's clock, in µs.
fn clock(pair: &mut Pair) -> i64 {
    let number = |frame: &Frame| match frame {
        Frame::Bulk(_, Some(digits)) => String::from_utf8_lossy(digits)
            .parse::<i64>()
            .expect("a number"),
        other => panic!("no time: {other:?}"),
    };
    match pair.ask_real("TIME").as_slice() {
        [Frame::List(_, parts)] => number(&parts[0]) * 1_000_000 + number(&parts[1]),
        other => panic!("no time: {other:?}"),
    }
}

/// Both are asked in each millisecond around an expiry. Samples in which the real clock moved on
/// count for none.
#[test]
fn a_key_expires_in_the_same_millisecond() {
    let mut real = Real::start();
    let mut pair = Pair::new(&mut real, 1, "2");
    let (mut samples, mut last_moments, mut gone) = (0, 0, 0);
    while samples < 1000 || last_moments < 3 || gone < 30 {
        let begin = clock(&mut pair);
        let expires = begin / 1000 + 2 + samples % 7;
        for request in ["SET k v".to_owned(), format!("PEXPIREAT k {expires}")] {
            pair.ask_real(&request);
            pair.ask_simulated(&request, WallMicros(begin));
        }
        // An expiry that is no longer ahead deletes the key at once.
        if clock(&mut pair) / 1000 >= expires {
            continue;
        }
        loop {
            let before = clock(&mut pair);
            let replies = [
                "EXISTS k",
                "PTTL k",
                "EVAL return{redis.call('GET','k'),redis.call('PTTL','k')} 0",
            ]
            .map(|request| (request, pair.ask_real(request)));
            let after = clock(&mut pair);
            if before / 1000 == after / 1000 {
                for (request, reply) in replies {
                    let simulated = pair.ask_simulated(request, WallMicros(before));
                    assert_eq!(
                        simulated,
                        reply,
                        "{request} {} ms before the expiry",
                        expires - before / 1000
                    );
                }
                samples += 1;
                last_moments += i64::from(before / 1000 == expires);
                gone += i64::from(before / 1000 > expires);
            }
            if after / 1000 > expires + 1 {
                break;
            }
        }
    }
}
