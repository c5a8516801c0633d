//! Fuzzes [`testkit::properties::durations::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::durations::hold(input));
