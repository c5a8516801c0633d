//! Fuzzes [`testkit::properties::config::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::config::hold(input));
