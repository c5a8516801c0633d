//! What must hold of every input, whoever wrote it: for the fuzzers, which look for one of which it does not, and for the
//! suite, which tries what they began with and what came of it.
//!
//! One file and one function `hold` for each kind of input.

pub(crate) mod addresses;
pub(crate) mod config;
pub(crate) mod durations;
pub(crate) mod replies;
pub(crate) mod values;

/// `text` may be shown: it is one line, a terminal acts on nothing in it, and it ends.
#[track_caller]
pub(crate) fn is_fit_to_be_shown(text: &str, longest: usize) {
    assert_eq!(rlock::text::escape::text(text), text, "a terminal would act on it");
    assert!(text.len() <= longest, "{} bytes, more than {longest}", text.len());
}

/// The most that `bytes` of somebody else's become when they are shown: each as `\u{e0000}`, with some words about it.
pub(crate) fn shown(bytes: usize) -> usize {
    bytes * 9 + 500
}
