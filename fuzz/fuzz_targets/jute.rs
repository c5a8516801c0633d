//! Fuzzes [`testkit::properties::jute::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::jute::hold(input));
