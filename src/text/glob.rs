//! Patterns for names, with the meaning of Redis' own: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal character.
//!
//! Libraries mean something else: wildmatch has no classes, globset and fast-glob have braces, which stand in keys with a
//! hash tag. SCAN's MATCH sees the derived key, with prefix and tag, and takes bytes for characters.

/// A pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob(Vec<Part>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    /// Any text.
    Star,
    /// One character: any.
    Any,
    /// One character: this.
    One(char),
    /// One character: in one of the ranges, or in none of them.
    Of { ranges: Vec<(char, char)>, negated: bool },
}

impl Glob {
    /// Whether `text` is a pattern rather than a name.
    pub fn is_one(text: &str) -> bool {
        text.contains(['*', '?', '['])
    }

    /// Whether each `[` that opens a class is followed by its `]`.
    pub fn is_closed(text: &str) -> bool {
        let mut rest = text.chars();
        let mut in_class = false;
        while let Some(c) = rest.next() {
            match c {
                '\\' => drop(rest.next()),
                '[' => in_class = true,
                ']' => in_class = false,
                _ => {}
            }
        }
        !in_class
    }

    /// Reads a pattern. Every text is one.
    pub fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' => Part::Star,
                '?' => Part::Any,
                '[' => class(&mut rest),
                '\\' => Part::One(rest.next().unwrap_or('\\')),
                c => Part::One(c),
            });
        }
        Self(parts)
    }

    /// Whether the whole of `name` matches. Backtracks to the last `*` only, which suffices and bounds the time.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut part, mut at) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match self.0.get(part) {
                Some(Part::Star) => {
                    star = Some((part, at));
                    part += 1;
                }
                Some(one) if one.is(name[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => {
                    let Some((star_part, taken)) = star else { return false };
                    star = Some((star_part, taken + 1));
                    (part, at) = (star_part + 1, taken + 1);
                }
            }
        }
        self.0[part..].iter().all(|part| *part == Part::Star)
    }
}

impl Part {
    fn is(&self, c: char) -> bool {
        match self {
            Self::Star => false,
            Self::Any => true,
            Self::One(own) => *own == c,
            Self::Of { ranges, negated } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&c)) != *negated
            }
        }
    }
}

/// Reads a class after its `[`, up to `]` or the end.
fn class(rest: &mut std::iter::Peekable<std::str::Chars>) -> Part {
    let negated = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    while let Some(c) = rest.next().filter(|c| *c != ']') {
        let first = if c == '\\' { rest.next().unwrap_or(c) } else { c };
        if rest.next_if_eq(&'-').is_none() {
            ranges.push((first, first));
            continue;
        }
        let last = rest.next().unwrap_or('-');
        ranges.push((first.min(last), first.max(last)));
    }
    Part::Of { ranges, negated }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_class_without_an_end_is_found() {
        for closed in ["", "a", "[a]", "[^a-z]*[b]", "\\[a", "a]", "[[]", "[\\]]"] {
            assert!(Glob::is_closed(closed), "{closed}");
        }
        for open in ["[", "a[b-", "[a]["] {
            assert!(!Glob::is_closed(open), "{open}");
        }
        assert!(!Glob::is_closed("[a\\]"));
    }

    #[test]
    fn patterns_mean_what_they_mean_to_redis() {
        for (pattern, yes, no) in [
            ("deploy-*", &["deploy-", "deploy-a*"][..], &["deploy", "xdeploy-a"][..]),
            ("*a*b", &["ab", "aab", "xaxbab"], &["aba", "b"]),
            ("d?ploy", &["deploy", "d?ploy"], &["dploy", "deeploy"]),
            ("[a-c^]x", &["ax", "cx", "^x"], &["dx", "x"]),
            ("[^a-c]x", &["dx"], &["ax", "x"]),
            ("\\*[\\]]", &["*]"], &["a]"]),
            ("größe?", &["größe1"], &["größe"]),
        ] {
            let glob = Glob::new(pattern);
            for name in yes {
                assert!(glob.matches(name), "{pattern} {name}");
            }
            for name in no {
                assert!(!glob.matches(name), "{pattern} {name}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_itself_and_no_pattern_panics(name in "[a-z{}:^-]{0,12}", pattern in ".{0,12}") {
            prop_assert!(Glob::new(&name).matches(&name));
            prop_assert!(Glob::new("*").matches(&name));
            let _ = Glob::new(&pattern).matches(&name);
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!Glob::new(&"*a".repeat(200)).matches(&"a".repeat(199)));
    }
}
