//! Fuzzes [`testkit::properties::values::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::values::hold(input));
