//! Text that users type or read, with no rule of locks in it: durations, patterns, similar names,
//! file names, tables, escaping, terminals.

pub mod duration;
pub mod escape;
pub mod table;

use std::os::fd::AsFd;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

/// Similarity from which on a name is suggested, as clap does.
const LIKELY: f64 = 0.7;

/// Characters that must be encoded in a file name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Encoded names longer than this are cut and given a hash. `NAME_MAX` is 255.
const LONGEST_NAME: usize = 180;

/// Whether `text` is a pattern of the crate `glob` rather than a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns the name that is most like `typed`, if one is alike at all.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known
        .into_iter()
        .map(|name| (strsim::jaro(typed, name), name));
    let best = rated
        .filter(|(likeness, _)| *likeness > LIKELY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| name)
}

/// Returns the file name of `key`, less its end. Two keys share a name only if the hashes of
/// over-long ones collide.
pub fn file_stem(key: &str) -> String {
    let mut name = utf8_percent_encode(key, ENCODED).to_string();
    if let Some(rest) = name.strip_prefix('.') {
        name = format!("%2E{rest}");
    }
    if name.len() > LONGEST_NAME {
        let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_bytes()).simple();
        name = format!("{}~{hash}", &name[..LONGEST_NAME]);
    }
    name
}

/// Returns the number of columns; `None` if it is no terminal.
pub fn columns(of: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(of).map(|(width, _)| width.0.into())
}

/// Returns the number of rows; `None` if it is no terminal.
pub fn rows(of: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(of).map(|(_, height)| height.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nearest_name_is_found_and_a_strange_one_has_none() {
        let known = ["node", "note", "node-timeout"];
        assert_eq!(nearest("nodes", known), Some("node"));
        assert_eq!(nearest("node_timeout", known), Some("node-timeout"));
        assert_eq!(nearest("xyz", known), None);
    }

    proptest! {
        #[test]
        fn any_key_is_a_safe_file_name_and_no_other_keys(a in ".{1,300}", b in ".{1,300}") {
            let name = file_stem(&a) + ".members";
            prop_assert!(name.len() <= 255 && !name.contains('/') && !name.starts_with('.'));
            prop_assert_eq!(file_stem(&a) == file_stem(&b), a == b);
        }
    }

    #[test]
    fn dots_and_slashes_do_not_leave_the_directory() {
        assert_eq!(file_stem(".."), "%2E.");
        assert_eq!(file_stem("../x"), "%2E.%2Fx");
        assert_eq!(file_stem(".fence"), "%2Efence");
    }
}
