//! The properties of the fuzzers, checked with the files of `fuzz/corpus` and with random changes
//! of them.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use testkit::properties::{addresses, config, durations, jute, packets, replies, values};

/// Returns the corpus of the fuzzer `target`.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let corpus = testkit::repository().join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&corpus)
        .expect("its corpus")
        .map(|file| file.expect("a file of it").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert!(files.len() > 10, "{} is nearly empty", corpus.display());
    files
        .iter()
        .map(|file| std::fs::read(file).expect("a seed"))
        .collect()
}

/// Makes seeds in which some stretches are replaced, by bytes of other seeds or by none.
fn changed(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let piece = select(seeds(target)).prop_flat_map(|seed| {
        let all = seed.len();
        (Just(seed), 0..=all, 0..=all)
            .prop_map(|(seed, from, to)| seed[from.min(to)..from.max(to)].to_vec())
    });
    let bytes = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>(), 1..4),
        piece
    ];
    let changes = proptest::collection::vec((any::<Index>(), 0usize..6, bytes), 0..4);
    (select(seeds(target)), changes).prop_map(|(mut seed, changes)| {
        for (at, length, bytes) in changes {
            let from = at.index(seed.len() + 1);
            let to = seed.len().min(from + length);
            seed.splice(from..to, bytes);
        }
        seed
    })
}

#[test]
fn the_properties_hold_for_the_corpus() {
    for seed in seeds("addresses") {
        addresses::hold(&seed);
    }
    for seed in seeds("config") {
        config::hold(&seed);
    }
    for seed in seeds("durations") {
        durations::hold(&seed);
    }
    for seed in seeds("jute") {
        jute::hold(&seed);
    }
    for seed in seeds("packets") {
        packets::hold(&seed);
    }
    for seed in seeds("replies") {
        replies::hold(&seed);
    }
    for seed in seeds("values") {
        values::hold(&seed);
    }
}

proptest! {
    // A case that fails becomes a file of the corpus.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_shows_its_password_or_leads_elsewhere_when_read_again(input in changed("addresses")) {
        addresses::hold(&input);
    }

    #[test]
    fn no_configuration_is_understood_by_halves(input in changed("config")) {
        config::hold(&input);
    }

    #[test]
    fn no_duration_is_misread_or_makes_a_schedule_that_does_not_fit(input in changed("durations")) {
        durations::hold(&input);
    }

    #[test]
    fn no_zookeeper_says_anything_that_rlock_cannot_stand(input in changed("jute")) {
        jute::hold(&input);
    }

    #[test]
    fn no_mysql_says_anything_that_rlock_cannot_stand(input in changed("packets")) {
        packets::hold(&input);
    }

    #[test]
    fn no_server_says_anything_that_rlock_cannot_stand(input in changed("replies")) {
        replies::hold(&input);
    }

    #[test]
    fn no_stored_value_reaches_a_terminal_raw_or_is_taken_for_what_it_is_not(input in changed("values")) {
        values::hold(&input);
    }
}
