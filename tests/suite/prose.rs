//! The language rules of CONTRIBUTING.md, as far as a program can check them.
//!
//! 1. A doc comment starts with the thing or a verb.
//! 2. Comments and documentation name the actor.
//! 3. A sentence of a doc comment or of the documentation has at most 30 words.

use std::fmt;
use std::path::{Path, PathBuf};

/// Openings that hide the thing.
const OPENINGS: [&str; 11] = [
    "So many",
    "So much",
    "So long",
    "So often",
    "Who",
    "Whom",
    "Whose",
    "Whoever",
    "What",
    "Comes true",
    "Has somebody",
];

/// Words in place of an actor.
const ACTORS: [&[&str]; 5] = [
    &["nobody"],
    &["somebody"],
    &["anybody"],
    &["whoever"],
    &["one", "who"],
];

/// Number of words that a sentence may have.
const LONGEST_SENTENCE: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    Rust,
    Lua,
    Markdown,
}

impl Language {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "rs" => Some(Self::Rust),
            "lua" => Some(Self::Lua),
            "md" => Some(Self::Markdown),
            _ => None,
        }
    }
}

/// A text that is judged as one: a comment's paragraph, a list's item, a table's row.
#[derive(Debug)]
struct Block {
    /// Number of its first line.
    line: usize,
    text: String,
    /// Whether a doc comment begins with it.
    opens: bool,
    /// Whether its sentences are counted.
    counts: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Returns what breaks a rule in a file's text.
fn findings(language: Language, text: &str) -> Vec<Finding> {
    blocks(language, text).iter().flat_map(judged).collect()
}

fn judged(block: &Block) -> Vec<Finding> {
    let prose = without_code(&block.text);
    let mut found = Vec::new();
    if let Some(opening) = OPENINGS
        .iter()
        .find(|opening| block.opens && opens_with(&prose, opening))
    {
        found.push(format!("starts with {opening:?}"));
    }
    let words = words(&prose);
    for actor in ACTORS
        .iter()
        .filter(|actor| words.windows(actor.len()).any(|some| some == **actor))
    {
        found.push(format!("says {:?}", actor.join(" ")));
    }
    for sentence in sentences(&prose).filter(|_| block.counts) {
        let count = sentence
            .split_whitespace()
            .filter(|word| word.contains(char::is_alphanumeric))
            .count();
        if count > LONGEST_SENTENCE {
            let begin: Vec<&str> = sentence.split_whitespace().take(5).collect();
            found.push(format!("a sentence of {count} words: {}…", begin.join(" ")));
        }
    }
    found
        .into_iter()
        .map(|what| Finding {
            line: block.line,
            what,
        })
        .collect()
}

fn opens_with(prose: &str, opening: &str) -> bool {
    prose
        .strip_prefix(opening)
        .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// The text with one word in the place of each code span.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 0 { part } else { "code" })
        .collect()
}

fn words(prose: &str) -> Vec<String> {
    prose
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Ends at `.`, `!` or `?` before white space, brackets and emphasis not regarded.
fn sentences(prose: &str) -> impl Iterator<Item = &str> {
    let mut rest = prose;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let ends = rest.char_indices().find_map(|(at, c)| {
            let after = rest[at..].trim_start_matches(['.', '!', '?', ')', '*', '"']);
            (".!?".contains(c) && after.starts_with(char::is_whitespace))
                .then(|| rest.len() - after.len())
        });
        let (sentence, after) = rest.split_at(ends.unwrap_or(rest.len()));
        rest = after.trim_start();
        Some(sentence)
    })
}

/// Collects lines into blocks.
#[derive(Default)]
struct Blocks {
    done: Vec<Block>,
    open: bool,
    /// Whether the next block begins a doc comment.
    first: bool,
    fenced: bool,
}

impl Blocks {
    /// Adds a line of prose. `counts`: its sentences may be too long.
    fn line(&mut self, number: usize, text: &str, counts: bool) {
        let text = text.trim();
        if text.starts_with("```") {
            self.fenced = !self.fenced;
            return self.end();
        }
        if text.is_empty() || self.fenced {
            return self.end();
        }
        if is_item(text) || text.starts_with(['|', '#']) {
            self.end();
        }
        let counts = counts && !text.starts_with(['|', '#']);
        if let Some(block) = self.done.last_mut().filter(|_| self.open) {
            block.text.push(' ');
            block.text.push_str(text);
            return;
        }
        let opens = std::mem::take(&mut self.first);
        self.done.push(Block {
            line: number,
            text: without_marker(text).to_owned(),
            opens,
            counts,
        });
        self.open = true;
    }

    fn end(&mut self) {
        self.open = false;
    }

    /// Ends a comment: the next one is another.
    fn end_comment(&mut self) {
        self.end();
        (self.fenced, self.first) = (false, false);
    }
}

fn is_item(text: &str) -> bool {
    without_marker(text).len() < text.len()
}

/// The text of a list's item.
fn without_marker(text: &str) -> &str {
    let bullet = text.strip_prefix("* ").or_else(|| text.strip_prefix("- "));
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = text[digits..].strip_prefix(". ").filter(|_| digits > 0);
    bullet.or(number).unwrap_or(text)
}

fn blocks(language: Language, text: &str) -> Vec<Block> {
    let mut blocks = Blocks::default();
    let mut last = "";
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        if language == Language::Markdown {
            if line.starts_with("<!--") {
                blocks.end();
            } else {
                blocks.line(number, line, true);
            }
            continue;
        }
        let markers: &[&str] = if language == Language::Rust {
            &["///", "//!", "//"]
        } else {
            &["--"]
        };
        let marker = markers
            .iter()
            .find(|marker| line.starts_with(**marker))
            .copied()
            .unwrap_or("");
        if marker != last {
            blocks.end_comment();
            blocks.first = marker.len() == 3;
        }
        last = marker;
        if !marker.is_empty() {
            blocks.line(number, &line[marker.len()..], marker.len() == 3);
        }
    }
    blocks.done
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files that the rules are for, by their paths in the repository.
fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(PathBuf::from)
        .to_vec();
    let mut folders: Vec<PathBuf> = ["src", "docs", "simulation/src", "testkit/src", "tests"]
        .map(PathBuf::from)
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder))
            .expect("a folder")
            .map(|entry| entry.expect("an entry"))
        {
            let path = folder.join(entry.file_name());
            // Installed clients and servers are not ours.
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if entry.file_type().expect("its type").is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.retain(|path| Language::of(path).is_some());
    files.sort();
    files
}

#[test]
fn comments_and_documentation_keep_to_the_language_rules() {
    let mut faults = Vec::new();
    for path in files() {
        let language = Language::of(&path).expect("a language");
        let text = std::fs::read_to_string(root().join(&path)).expect("a file");
        faults.extend(
            findings(language, &text)
                .iter()
                .map(|finding| format!("{}:{finding}", path.display())),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(language: Language, text: &str) -> Vec<String> {
        findings(language, text)
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn a_doc_comment_that_hides_the_thing_is_found() {
        for opening in OPENINGS {
            let text = format!("\n    /// {opening} it is.\nfn f() {{}}\n");
            let found = found(Language::Rust, &text);
            assert!(
                found.contains(&format!("2: starts with {opening:?}")),
                "{text}: {found:?}"
            );
        }
        for fine in [
            "/// Whether it is.\n",
            "/// `What` it is.\n",
            "// What it is.\n",
            "/// A thing.\n///\n/// What it is.\n",
        ] {
            assert_eq!(found(Language::Rust, fine), [""; 0], "{fine}");
        }
        assert_eq!(
            found(Language::Rust, "//! A file.\n\n/// Who\nfn f() {}\n"),
            ["3: starts with \"Who\""]
        );
    }

    #[test]
    fn a_word_in_the_place_of_an_actor_is_found_in_every_kind_of_text() {
        assert_eq!(
            found(Language::Rust, "// Nobody waits.\n"),
            ["1: says \"nobody\""]
        );
        assert_eq!(
            found(Language::Lua, "local a\n-- Tells one\n-- who waits.\n"),
            ["2: says \"one who\""]
        );
        assert_eq!(
            found(Language::Markdown, "| a | somebody's |\n"),
            ["1: says \"somebody\""]
        );
        for fine in [
            "`nobody` is a user.\n",
            "```\nsomebody\n```\n",
            "<!-- whoever -->\n",
            "It is one whole.\n",
        ] {
            assert_eq!(found(Language::Markdown, fine), [""; 0], "{fine}");
        }
        assert_eq!(found(Language::Rust, "let name = \"anybody\";\n"), [""; 0]);
    }

    #[test]
    fn a_long_sentence_is_found_in_doc_comments_and_documentation() {
        let words = |number: usize| vec!["word"; number].join(" ");
        let long = format!("/// A short one. {}.\n", words(31));
        assert_eq!(
            found(Language::Rust, &long),
            ["1: a sentence of 31 words: word word word word word…"]
        );
        assert_eq!(
            found(Language::Rust, &format!("/// {}.\n", words(30))),
            [""; 0]
        );
        assert_eq!(
            found(Language::Rust, &format!("// {}\n", words(31))),
            [""; 0]
        );
        let two_lines = format!("//! {}\n//! {}\n", words(20), words(20));
        assert_eq!(found(Language::Rust, &two_lines).len(), 1);
        for apart in ["//!\n//!", "//! * item\n//!", "//! 1. item\n//!"] {
            let text = format!("//! {}\n{apart} {}\n", words(20), words(20));
            assert_eq!(found(Language::Rust, &text), [""; 0], "{text}");
        }
        assert_eq!(
            found(Language::Markdown, &format!("{}\n", words(31))).len(),
            1
        );
        assert_eq!(
            found(Language::Markdown, &format!("| {} |\n", words(31))),
            [""; 0]
        );
        assert_eq!(
            found(
                Language::Markdown,
                &format!("{} `a. b`. {}\n", words(20), words(20))
            ),
            [""; 0]
        );
    }

    #[test]
    fn brackets_and_emphasis_do_not_hide_the_end_of_a_sentence() {
        let ends = |text: &str| sentences(text).count();
        assert_eq!(ends("One. **Two.** Three (and 0.5 of it.) Four"), 4);
        assert_eq!(ends("Version 1.2 of 3.4"), 1);
    }
}
