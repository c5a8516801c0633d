//! Fuzzes [`testkit::properties::addresses::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::addresses::hold(input));
