#![no_main]
//! See `hold`, which is what is fuzzed.

#[path = "../../tests/properties/mod.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|input: &[u8]| properties::durations::hold(input));
