//! `${VAR}` in a setting's text.

use std::ffi::{OsStr, OsString};

/// Returns `text` with each `${NAME}` replaced by the variable's value, or by nothing if `variable` does not know it.
pub fn expand(text: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<OsString, String> {
    let mut whole = OsString::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let name = after.split_once('}').filter(|(name, _)| is_name(name));
        let Some((name, behind)) = name else { return Err("write ${NAME}, of letters, digits and _".to_owned()) };
        whole.push(before);
        whole.push(variable(name).unwrap_or_default());
        rest = behind;
    }
    whole.push(OsStr::new(rest));
    Ok(whole)
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_replaced_once_and_an_unset_one_by_nothing() {
        let known = |name: &str| (name == "A").then(|| OsString::from("${B}"));
        for (text, wanted) in [("x", "x"), ("${A}-${C}.", "${B}-."), ("$A $ {A} }", "$A $ {A} }"), ("", "")] {
            assert_eq!(expand(text, known), Ok(wanted.into()), "{text}");
        }
        for text in ["${", "${}", "${A", "${1A}", "${A:-x}", "${A B}"] {
            assert!(expand(text, known).is_err(), "{text}");
        }
    }
}
