//! Fuzzes [`testkit::properties::replies::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::replies::hold(input));
