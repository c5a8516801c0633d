//! Every message that a user can see is explained in `docs/troubleshooting.md`, which finds it by its
//! words.
//!
//! A message is a string of at least three words in the source. It is explained where a row has
//! words of it; … stands for words of which the message is made. A remedy says itself what to do, and begins with a verb of [`REMEDIES`]. All else is
//! of one of the [`FAMILIES`], so that a new message fails this test until someone decides.

use std::path::Path;

use super::{citing, read, root};

/// Where rows stand, with the messages that they explain in their first column.
const PAGE: &str = "docs/troubleshooting.md";

/// Verbs with which a remedy begins.
const REMEDIES: [&str; 36] = [
    "allow", "ask", "check", "config", "correct", "delete", "give", "grant", "install", "let",
    "list", "lower", "make", "mend", "name", "put", "raise", "release", "restart", "run", "see",
    "set", "start", "try", "use", "wait", "write", "stop", "move", "look", "leave", "keep", "cut",
    "end", "add", "create",
];

/// Strings that need no row: a part of the path below `src/`, the functions or constants (all if none
/// is named), and why.
const FAMILIES: &[(&str, &[&str], &str)] = &[
    // No messages.
    ("cli/help.rs", &[], "help"),
    ("cli/args.rs", &[], "help"),
    ("cli/subcommands.rs", &[], "help"),
    ("command/generate.rs", &[], "completions and man pages"),
    ("exit.rs", &["TABLE"], "help"),
    ("command/inspect/programs.rs", &[], "help of metrics"),
    (
        "metrics.rs",
        &[
            "HELD",
            "LAST_START",
            "LAST_WAIT",
            "LAST_HELD",
            "LAST_CODE",
            "LAST_END",
        ],
        "help of metrics",
    ),
    ("command/config.rs", &["config"], "an answer"),
    ("command/inspect/mod.rs", &["screen", "watch"], "an answer"),
    ("command/inspect/table.rs", &["of"], "an answer"),
    ("command/break_lock.rs", &["ask"], "a question"),
    // A server's words, which are recognised.
    (
        "store/redis/error.rs",
        &[
            "REFUSED",
            "KEYS_DENIED",
            "SUBSCRIBED_ONLY",
            "NOT_ON_REPLICAS",
            "shuts_out",
            "is_refused_right",
            "of_server",
        ],
        "of a server",
    ),
    (
        "store/redis/stranger.rs",
        &["is_of_scripts", "of_only_line"],
        "of a server",
    ),
    (
        "store/redis/locator/naming.rs",
        &["NO_SUCH_SERVICE"],
        "of a server",
    ),
    (
        "store/redis/locator/cluster.rs",
        &["explained"],
        "of a server",
    ),
    ("store/redis/replicas.rs", &["unfit"], "of a server"),
    (
        "store/etcd/status.rs",
        &["is_lease_known", "is_token_over", "is_without_users"],
        "of a server",
    ),
    // They name the word, its place, and what to write.
    ("cli/parse.rs", &[], "usage"),
    ("cli/values.rs", &[], "usage"),
    ("text/duration.rs", &[], "usage"),
    ("lock/mode.rs", &["from_str"], "usage"),
    ("lock/token.rs", &["from_str"], "usage"),
    (
        "lock/queue.rs",
        &["from_str"],
        "a waiter's entry that is not read",
    ),
    ("address", &[], "usage"),
    ("net/hosts", &[], "usage"),
    ("settings/files/", &[], "configuration files"),
    ("settings/defaults.rs", &[], "configuration files"),
    ("settings/sources.rs", &[], "the place of a setting"),
    // Each finding has its remedy.
    ("command/doctor/", &[], "doctor"),
    ("store/examine.rs", &[], "doctor"),
    ("store/local/examine.rs", &[], "doctor"),
    ("store/redis/examine.rs", &[], "doctor"),
    ("store/redis/acl.rs", &[], "doctor"),
    ("store/etcd/examine.rs", &[], "doctor"),
    ("store/zookeeper/examine.rs", &[], "doctor"),
    ("store/sql/examine.rs", &[], "doctor"),
    ("store/etcd/mod.rs", &["rights"], "doctor"),
    // Parts of a message that is explained, or of a holder's description.
    (
        "command/break_lock.rs",
        &["break_lock", "break_all", "success", "wait"],
        "a part",
    ),
    ("command/held.rs", &["ttl", "unmet"], "a part"),
    (
        "command/run/mod.rs",
        &["run", "run_async", "cannot_start"],
        "a part",
    ),
    ("store/redis/reply.rs", &["identity", "described"], "a part"),
    (
        "lock/occupant.rs",
        &["brief", "end", "named", "fmt"],
        "a holder",
    ),
    ("store/redis/reply.rs", &["described"], "a holder"),
    ("store/etcd/names.rs", &["described"], "a holder"),
    ("store/sql/row.rs", &[], "a holder"),
    ("store/sql/statements.rs", &[], "a request"),
    ("store/sql/mysql/mod.rs", &[], "a request, or doctor"),
    ("store/sql/postgres/mod.rs", &[], "a request, or doctor"),
    (
        "store/zookeeper/visit.rs",
        &["occupant", "breaker"],
        "a holder",
    ),
    ("report/failures.rs", &["partly_covered", "whose"], "a part"),
    ("report/status_text.rs", &["asked_for", "line"], "a part"),
    ("settings/store.rs", &["no_node"], "a part"),
    ("store/local/directory.rs", &["own", "given"], "a part"),
    (
        "store/local/file.rs",
        &["IRREGULAR", "misconfiguration"],
        "a part",
    ),
    ("store/redis/error.rs", &["wrong_login"], "a part"),
    ("store/redis/replicas.rs", &["judged"], "a part"),
    (
        "store/net/tls.rs",
        &["untrusted", "refused_certificate"],
        "a part",
    ),
    // Steps of `-v`, answers of `break`, and how a loss goes on. `every_warning_of_a_run_is_explained`
    // looks at the rows that warn.
    ("report/event.rs", &[], "events"),
];

/// A string of the source.
struct Text {
    /// Its file, below `src/`.
    path: String,
    /// The function or constant in which it stands.
    item: String,
    words: String,
}

impl Text {
    fn is_of(&self, (path, items, _): &(&str, &[&str], &str)) -> bool {
        let is_there = self.path.contains(path);
        is_there && (items.is_empty() || items.contains(&self.item.as_str()))
    }

    /// Whether it has these words; … in them stands for any others.
    fn says(&self, words: &str) -> bool {
        let mut rest = Some(self.words.as_str());
        for part in words.split('…') {
            rest = rest.and_then(|rest| rest.split_once(part.trim()).map(|(_, after)| after));
        }
        rest.is_some()
    }

    fn is_remedy(&self) -> bool {
        let words = self.words.trim_start_matches([';', ':', ',', ' ']);
        let words = words.strip_prefix("and ").unwrap_or(words);
        let first = words.split(' ').next().unwrap_or_default().to_lowercase();
        REMEDIES.contains(&first.as_str())
    }
}

/// The strings of three words and more, those of tests and of bugs (`expect`) left out.
fn texts() -> Vec<Text> {
    let mut texts = Vec::new();
    for file in citing(&root().join("src")) {
        let name = file.strip_prefix(root().join("src")).expect("a source");
        let path = name.display().to_string();
        let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
        if is_test || file.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        let source = std::fs::read_to_string(&file).expect("a file");
        texts.extend(strings(&source).into_iter().map(|(item, words)| Text {
            path: path.clone(),
            item,
            words,
        }));
    }
    let is_word = |word: &&str| !word.starts_with('{') && word.contains(|c: char| c.is_lowercase());
    texts.retain(|text| text.words.split_whitespace().filter(is_word).count() >= 3);
    texts
}

/// The strings of a file with their items. The file ends at its module of tests.
fn strings(source: &str) -> Vec<(String, String)> {
    // `mod tests {`, of whatever visibility.
    let is_module = |at: usize| {
        let line = source[at..].lines().nth(1).unwrap_or_default();
        line.contains("mod ") && line.ends_with('{')
    };
    let mut marks = source.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    let mut rest = &source[..marks.find(|at| is_module(*at)).unwrap_or(source.len())];
    let (mut found, mut item) = (Vec::new(), String::new());
    while let Some(at) = rest.find(|c: char| "/\"'fc".contains(c)) {
        let after_word = rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let before = rest[..at].trim_end();
        rest = &rest[at..];
        let name = |rest: &str| -> String {
            rest.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        };
        let named = ["fn ", "const "]
            .iter()
            .find_map(|word| rest.strip_prefix(word));
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let (words, left) = quoted.split_at(end_of_string(quoted));
            let is_bug = before.ends_with("expect(") || before.ends_with("reason =");
            if !is_bug {
                found.push((item.clone(), one_line(words)));
            }
            rest = left.strip_prefix('"').unwrap_or(left);
        } else if let Some(quote) = ["'\"'", "'\\''", "'\\\\'"]
            .iter()
            .find(|q| rest.starts_with(**q))
        {
            rest = &rest[quote.len()..];
        } else if let Some(named) = named.filter(|_| !after_word) {
            item = name(named);
            rest = named;
        } else {
            rest = &rest[1..];
        }
    }
    found
}

/// Returns the place of the quote that ends the string.
fn end_of_string(quoted: &str) -> usize {
    let mut is_escaped = false;
    let end = quoted.char_indices().find(|(_, c)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    end.map_or(quoted.len(), |(at, _)| at)
}

/// A message over two lines of source is one line.
fn one_line(words: &str) -> String {
    words.split("\\\n").map(str::trim_start).collect()
}

/// The messages in the first column of the page.
fn explained(page: &str) -> Vec<&str> {
    let first = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let rows = first.filter(|cell| cell.starts_with('`'));
    rows.flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn every_message_of_the_source_is_explained() {
    let page = read(Path::new(PAGE));
    let explained = explained(&page);
    let texts = texts();
    assert!(texts.len() > 400, "{}", texts.len());
    let new = texts.iter().filter(|text| {
        !(explained.iter().any(|words| text.says(words))
            || text.is_remedy()
            || FAMILIES.iter().any(|family| text.is_of(family)))
    });
    let new: Vec<String> = new
        .map(|text| format!("src/{}, {}: {:?}", text.path, text.item, text.words))
        .collect();
    assert!(
        new.is_empty(),
        "{PAGE} does not explain these messages. Write a row, or name their family:\n{}",
        new.join("\n")
    );
}

#[test]
fn every_family_has_messages() {
    let texts = texts();
    for family @ (path, items, why) in FAMILIES {
        let is_there = |item: &&str| {
            texts
                .iter()
                .any(|text| text.is_of(&(path, std::slice::from_ref(item), why)))
        };
        let missing: Vec<_> = items.iter().filter(|item| !is_there(item)).collect();
        assert!(missing.is_empty(), "{path}: no message in {missing:?}");
        assert!(
            texts.iter().any(|text| text.is_of(family)),
            "{path} has no message"
        );
    }
}

/// The words that a holder's or a loss's description puts together exist, too, but in no one string.
#[test]
fn every_message_that_is_explained_exists() {
    let source = super::source("src");
    let (source, texts) = (one_line(&source), texts());
    let page = read(Path::new(PAGE));
    let explained = explained(&page);
    assert!(explained.len() > 150, "{}", explained.len());
    let missing: Vec<_> = explained
        .iter()
        .filter(|words| !source.contains(**words) && !texts.iter().any(|text| text.says(words)))
        .collect();
    assert!(
        missing.is_empty(),
        "in {PAGE}, but in no message: {missing:#?}"
    );
}
