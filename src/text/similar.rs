//! Names that a misspelt one may stand for.

/// Similarity from which on a name is suggested, as clap does.
const LIKELY: f64 = 0.7;

/// Returns the name that is most like `typed`, if one is alike at all.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|name| (strsim::jaro(typed, name), name));
    let best = rated.filter(|(likeness, _)| *likeness > LIKELY).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_strange_one_has_none() {
        let known = ["node", "note", "node-timeout"];
        assert_eq!(nearest("nodes", known), Some("node"));
        assert_eq!(nearest("node_timeout", known), Some("node-timeout"));
        assert_eq!(nearest("xyz", known), None);
    }
}
