//! Properties that hold of every input, whatever its source. The fuzzers search for an input that
//! breaks one; the suite checks the inputs in `fuzz/corpus` and random changes of them.
//!
//! Each kind of input has a file with one function `hold`, which panics where a property does not
//! hold. Those of stores share a conversation.

pub mod addresses;
pub mod config;
mod conversation;
pub mod durations;
pub mod jute;
pub mod packets;
pub mod replies;
pub mod values;

/// Checks that `text` may be shown: it is one line of at most `longest` bytes, and a terminal acts
/// on nothing in it.
#[track_caller]
pub fn is_fit_to_be_shown(text: &str, longest: usize) {
    assert_eq!(
        rlock::text::escape::text(text),
        text,
        "a terminal would act on it"
    );
    assert!(
        text.len() <= longest,
        "{} bytes, more than {longest}",
        text.len()
    );
}

/// Returns the most bytes that `bytes` of foreign text take when they are shown: each as
/// `\u{e0000}`, and some words around.
pub fn shown(bytes: usize) -> usize {
    bytes * 9 + 500
}
