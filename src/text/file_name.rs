//! Names of files that are made of locks' names.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

/// Characters that must be encoded in a file name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Encoded names longer than this are cut and given a hash. `NAME_MAX` is 255.
const LONGEST_NAME: usize = 180;

/// Returns the file name of `key`, less its end. Two keys share a name only if the hashes of over-long ones collide.
pub fn stem(key: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_key_is_a_safe_file_name_and_no_other_keys(a in ".{1,300}", b in ".{1,300}") {
            let name = stem(&a) + ".members";
            prop_assert!(name.len() <= 255 && !name.contains('/') && !name.starts_with('.'));
            prop_assert_eq!(stem(&a) == stem(&b), a == b);
        }
    }

    #[test]
    fn dots_and_slashes_do_not_leave_the_directory() {
        assert_eq!(stem(".."), "%2E.");
        assert_eq!(stem("../x"), "%2E.%2Fx");
        assert_eq!(stem(".fence"), "%2Efence");
    }
}
