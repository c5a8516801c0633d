//! Fuzzes [`testkit::properties::packets::hold`].

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| testkit::properties::packets::hold(input));
