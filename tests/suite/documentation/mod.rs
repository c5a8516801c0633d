//! README and `docs/`: their links lead somewhere, and their command lines are understood and run.
//!
//! 1. `commands` runs the blocks of scripts, and of files of other tools.
//! 2. `transcript` plays what terminals show.
//! 3. `help` runs the examples of help, which are those of the reference.
//! 4. `examples` looks closer at some of them.
//! 5. `told` runs the scripts that tell people, with a server of HTTP.
//! 6. `schema` checks outputs by docs/json.schema.json.
//! 7. `messages` finds what troubleshooting does not explain.

mod commands;
mod examples;
mod help;
mod messages;
mod schema;
mod told;
mod transcript;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Server, rlock, rlock_words};

/// Pages that are read from the begin to the end, and the number of lines that they may have.
const SHORT: [(&str, usize); 3] = [
    ("README.md", 150),
    ("docs/design.md", 250),
    ("docs/guarantees.md", 75),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The list of the pages of the book, with their titles.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The pages of the book, by their paths in the repository, and their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let summary = read(Path::new(SUMMARY));
    let pages = links(&summary).map(|path| match path.strip_prefix("../") {
        Some(outside) => PathBuf::from(outside),
        None => Path::new("docs").join(path),
    });
    pages.map(|page| (page.clone(), read(&page))).collect()
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(root().join(page))
        .unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .replace(' ', "-");
        words
            .chars()
            .filter(|c| c.is_alphanumeric() || "-_".contains(*c))
            .collect()
    };
    headings.map(anchor).collect()
}

/// The targets of a page's links: `](TARGET)`.
pub(crate) fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// A fenced block of a page.
struct Block<'a> {
    /// Number of its first line.
    line: usize,
    language: &'a str,
    /// The last line before it that is not empty: a comment may be about it.
    before: &'a str,
    lines: Vec<&'a str>,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let (mut is_open, mut before) = (false, "");
    for (line, text) in (1..).zip(text.lines()) {
        match text.trim_start().strip_prefix("```") {
            Some(language) => {
                is_open = !is_open;
                if is_open {
                    let lines = Vec::new();
                    blocks.push(Block {
                        line: line + 1,
                        language,
                        before,
                        lines,
                    });
                }
            }
            None if is_open => blocks.last_mut().expect("a block").lines.push(text),
            None if !text.is_empty() => before = text,
            None => {}
        }
    }
    blocks
}

/// The block of `page` that has `words` in it, as a script.
fn script(page: &str, words: &str) -> String {
    let text = read(Path::new(page));
    let mut found = blocks(&text)
        .into_iter()
        .map(|block| block.lines.join("\n"));
    found
        .find(|block| block.contains(words))
        .unwrap_or_else(|| panic!("{page} has no block with {words}"))
}

#[test]
fn pages_that_are_read_at_once_are_short() {
    for (page, most) in SHORT {
        let lines = read(Path::new(page)).lines().count();
        assert!(lines <= most, "{page}: {lines} lines");
    }
}

/// It is shown as an image, where no program runs and nothing is fetched.
#[test]
fn the_picture_of_readme_moves_by_itself_and_is_small() {
    let picture = read(Path::new("docs/demo/demo.svg"));
    assert!(picture.len() < 30_000, "{} bytes", picture.len());
    assert!(picture.contains("@keyframes") && picture.contains("prefers-color-scheme:dark"));
    assert!(
        !picture.contains("<script") && picture.matches("http").count() == 1,
        "the name of SVG alone"
    );
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for (page, text) in pages() {
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, anchor) = link
                .split_once('#')
                .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().expect("a folder").join(path)
            };
            assert!(root().join(&target).exists(), "{}: {link}", page.display());
            if let Some(anchor) = anchor {
                assert!(
                    anchors(&read(&target)).iter().any(|there| there == anchor),
                    "{}: {link}",
                    page.display()
                );
            }
        }
    }
}

#[test]
fn every_page_is_in_the_book_under_its_title() {
    let summary = read(Path::new(SUMMARY));
    let pages = pages();
    for folder in ["", "docs", "docs/recipes", "docs/reference"] {
        let entries = std::fs::read_dir(root().join(folder)).expect(folder);
        let paths =
            entries.map(|entry| Path::new(folder).join(entry.expect("an entry").file_name()));
        for path in paths.filter(|path| path.extension().is_some_and(|end| end == "md")) {
            let is_listed = pages.iter().any(|(page, _)| *page == path);
            assert!(
                is_listed || path == Path::new(SUMMARY),
                "{}",
                path.display()
            );
        }
    }
    for (page, text) in &pages {
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        let entry = format!("[{}](", title.expect("a title"));
        assert!(summary.contains(&entry), "{}: {entry}", page.display());
    }
}

/// Returns the files below `folder` that cite the contract: source, and the list of mutants.
fn citing(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry"))
    {
        let (path, name) = (
            entry.path(),
            entry.file_name().to_string_lossy().into_owned(),
        );
        if path.is_dir() {
            // Neither what was installed nor what was built.
            if !name.starts_with('.') && name != "target" {
                found.extend(citing(&path));
            }
        } else if path
            .extension()
            .is_some_and(|end| ["rs", "lua", "toml"].iter().any(|of| end == *of))
        {
            found.push(path);
        }
    }
    found
}

/// The contract is cited with the number of a section, and another page with a heading.
#[test]
fn every_citation_of_a_page_names_a_section_that_it_has() {
    let pages: Vec<(String, Vec<String>)> = pages()
        .into_iter()
        .filter(|(page, _)| page.starts_with("docs"))
        .map(|(page, text)| {
            let headings = text.lines().filter(|line| line.starts_with('#'));
            (
                page.display().to_string(),
                headings
                    .map(|line| line.trim_start_matches(['#', ' ']).to_owned())
                    .collect(),
            )
        })
        .collect();
    let mut cited = 0;
    for path in ["src", "tests", "benches", "fuzz/fuzz_targets", "simulation"]
        .iter()
        .flat_map(|name| citing(&root().join(name)))
    {
        let text = std::fs::read_to_string(&path).expect("a file");
        for (page, headings) in &pages {
            for rest in text.split(page.as_str()).skip(1) {
                let (number, heading) = (rest.strip_prefix(" §"), rest.strip_prefix(", "));
                // "docs/json.md, which …" is a sentence that goes on.
                let is_list = path.extension().is_some_and(|end| end == "toml");
                let heading =
                    heading.filter(|rest| is_list || rest.starts_with(char::is_uppercase));
                let Some(rest) = number.or(heading) else {
                    continue;
                };
                let by_number = number.is_some();
                let is_there =
                    |heading: &String| match heading.split_once(". ").filter(|_| by_number) {
                        Some((number, _)) => rest.starts_with(number),
                        None => !by_number && rest.starts_with(heading.as_str()),
                    };
                let begin: String = rest.chars().take(40).collect();
                assert!(
                    headings.iter().any(is_there),
                    "{}: {page}: {begin}",
                    path.display()
                );
                cited += 1;
            }
        }
    }
    assert!(cited > 250, "{cited}");
}

/// The text of all of these files.
fn source(folder: &str) -> String {
    let files = citing(&root().join(folder));
    files
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("a file"))
        .collect()
}

#[test]
fn every_guard_of_a_guarantee_is_a_test() {
    let pages = ["docs/guarantees.md", "docs/redlock.md"].map(|page| read(Path::new(page)));
    let page = pages.concat();
    let source = source("tests/suite") + &source("testkit/src");
    let guards: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.contains("::"))
        .collect();
    assert!(guards.len() >= 15, "{guards:?}");
    for guard in guards {
        let name = guard.rsplit("::").next().expect("a name");
        assert!(
            source.contains(&format!("fn {name}(")),
            "no test is {guard}"
        );
    }
}

/// Splits a line as a shell does, as far as the pages need it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => break,
            (';' | '&' | '|' | ')' | '>', None) => break,
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Words before a command in a line: a prompt, a crontab's path, another command.
const BEFORE: [&str; 10] = [
    "",
    "'",
    "$(",
    "$",
    "&&",
    "||",
    "exec",
    "-",
    "run:",
    "ExecStart=",
];

/// The command lines of rlock in a line of a block.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let lines = line.match_indices("rlock ").filter_map(|(at, _)| {
        let before = &line[..at];
        let is_scheduled = before.trim_end().ends_with('*');
        let is_command = BEFORE.contains(&before.trim())
            || BEFORE[1..]
                .iter()
                .any(|word| before.trim_end().ends_with(word));
        // A command in quotes ends with them.
        let rest = if before.ends_with('\'') {
            line[at..].split('\'').next()?
        } else {
            &line[at..]
        };
        (is_scheduled || is_command).then(|| words(rest))
    });
    lines.collect()
}

/// A flag that was renamed, or that never was, is found here. Words that a shell would replace are
/// taken as they are.
#[test]
fn every_command_line_is_understood() {
    let mut understood = 0;
    for (page, text) in pages() {
        for block in blocks(&text)
            .into_iter()
            .filter(|block| !matches!(block.language, "json" | "dockerfile" | ""))
        {
            for mut command in block.lines.into_iter().flat_map(command_lines) {
                // What a holder needs to know is in the environment there.
                let token = "2e21bcac-3b25-4678-9f07-0d7696bb22a5";
                if let Some(word) = command.iter_mut().find(|word| *word == "$token") {
                    token.clone_into(word);
                } else if matches!(command[1].as_str(), "renew" | "release" | "check") {
                    command.extend(["-k", "job", "--token", token].map(String::from));
                }
                let parsed = rlock::cli::parse(command.iter().map(OsString::from).collect());
                assert!(
                    parsed.is_ok(),
                    "{}: {command:?}: {:#}",
                    page.display(),
                    parsed.err().expect("an error")
                );
                understood += 1;
            }
        }
    }
    assert!(understood > 40, "{understood}");
}

/// Words that follow the program's name in stored values and in a message, and are no subcommands.
const NO_SUBCOMMANDS: [&str; 4] = ["KIND", "s", "k5", "was"];

/// A sentence names a subcommand and its options. A whole command is understood as in a block.
#[test]
fn every_command_in_a_sentence_is_understood() {
    let mut definition = rlock::cli::definition();
    // Subcommands get their options when they are built.
    definition.build();
    let mut understood = 0;
    // Elsewhere a bench's name may begin so.
    let is_of_users = |page: &Path| page.starts_with("docs") || page == Path::new("README.md");
    for (page, text) in pages().into_iter().filter(|(page, _)| is_of_users(page)) {
        // Blocks are no sentences.
        let outside = text.split("```").step_by(2).collect::<Vec<_>>().join("\n");
        let spans = outside.split('`').skip(1).step_by(2);
        for span in spans.filter(|span| span.starts_with("rlock ")) {
            let place = format!("{}: {span}", page.display());
            let command = words(&span.split_whitespace().collect::<Vec<_>>().join(" "));
            if NO_SUBCOMMANDS.contains(&command[1].as_str()) {
                continue;
            }
            let subcommand = definition.find_subcommand(&command[1]);
            let subcommand = subcommand.unwrap_or_else(|| panic!("{place}: no such subcommand"));
            let of_rlock = command.iter().take_while(|word| *word != "--");
            for flag in of_rlock.filter_map(|word| word.strip_prefix("--")) {
                let flag = flag.split('=').next().unwrap_or(flag);
                let is_known = subcommand
                    .get_arguments()
                    .any(|arg| arg.get_long() == Some(flag));
                assert!(is_known, "{place}: --{flag}");
            }
            if command.iter().any(|word| word == "--") {
                let parsed = rlock::cli::parse(command.iter().map(OsString::from).collect());
                assert!(
                    parsed.is_ok(),
                    "{place}: {:#}",
                    parsed.err().expect("an error")
                );
            }
            understood += 1;
        }
    }
    assert!(understood > 90, "{understood}");
}

/// Answers of `break --yes`, which explain themselves.
const ANSWERS: [&str; 5] = [
    "Holder",
    "KeyDeleted",
    "Success",
    "Forgotten",
    "HolderReleased",
];

/// An arm of `report/event.rs` has a warning or an error, and its sentence.
#[test]
fn every_warning_of_a_run_is_explained() {
    let source = read(Path::new("src/report/event.rs"));
    let rows = &source[source.find("fn told").expect("the rows")..];
    let page = read(Path::new("docs/troubleshooting.md"));
    let explained: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let rows = rows.replace("Notice::", "Self::");
    let arms = rows
        .split("Self::")
        .filter(|arm| arm.contains("warning(") || arm.contains("error("));
    let mut checked = 0;
    for arm in arms {
        let name = arm
            .split(|c: char| !c.is_alphanumeric())
            .next()
            .unwrap_or(arm);
        // Without words of its own, an arm tells a fault or a blocker.
        let says = arm
            .split('"')
            .skip(1)
            .step_by(2)
            .any(|words| words.split(' ').count() > 3);
        if ANSWERS.contains(&name) || !says {
            continue;
        }
        assert!(
            explained.iter().any(|words| arm.contains(words)),
            "docs/troubleshooting.md does not explain {name}: {arm}"
        );
        checked += 1;
    }
    assert!(checked >= 15, "{checked}");
}

/// Adds the names of all fields.
fn fields(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            names.push(name.clone());
            fields(value, names);
        }),
        Value::Array(all) => all.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

#[test]
fn every_field_of_json_is_documented() {
    let server = Server::start();
    let holder = rlock("backup")
        .on(&server)
        .args(["--note", "why"])
        .hold("echo ready; read line; true");
    let printed = |words: &[&str]| rlock_words(words).on(&server).finish().stdout.join("");
    let outputs = [
        printed(&["inspect", "--json", "backup"]),
        printed(&["doctor", "--json"]),
        printed(&["acquire", "-k", "deploy", "--format", "json"]),
        rlock_words(["config", "--json"]).finish().stdout.join(""),
        rlock("report")
            .on(&server)
            .args(["--log", "json"])
            .command(["true"])
            .code(0)
            .stderr
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned(),
    ];
    holder.finish().code(0);
    let page = read(Path::new("docs/json.md"));
    for output in outputs {
        let mut names = Vec::new();
        fields(&serde_json::from_str(&output).expect("JSON"), &mut names);
        assert!(names.len() > 3, "{output}");
        let missing: Vec<_> = names
            .iter()
            .filter(|name| !page.contains(&format!("\"{name}\"")))
            .collect();
        assert!(
            missing.is_empty(),
            "docs/json.md lacks {missing:?} of {output}"
        );
    }
}

/// Returns how often each type is defined in `text`.
fn types(text: &str) -> HashMap<&str, usize> {
    let mut found = HashMap::new();
    for line in text.lines() {
        let mut words = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .skip_while(|word| !matches!(*word, "struct" | "enum" | "trait"));
        let is_code = !line.trim_start().starts_with("//");
        if let (Some(_), Some(name), true) = (words.next(), words.next(), is_code) {
            *found.entry(name).or_default() += 1;
        }
    }
    found
}

#[test]
fn a_term_of_the_glossary_is_one_type_of_the_source() {
    let (source, glossary) = (source("src"), read(Path::new("docs/glossary.md")));
    let defined = types(&source);
    let named = glossary.lines().filter_map(|line| {
        let kind = line.split('|').nth(2)?.trim();
        kind.strip_prefix('`')?.strip_suffix('`')
    });
    let counts: Vec<_> = named
        .map(|name| (name, defined.get(name).copied().unwrap_or_default()))
        .collect();
    assert!(counts.len() > 15, "{counts:?}");
    for (name, count) in counts {
        assert_eq!(count, 1, "{name} is defined {count} times");
    }
}

/// By default systemd sends TERM to the command as well, which then gets a second one from rlock.
#[test]
fn each_unit_sends_its_signal_to_rlock_alone() {
    let in_pages = pages().into_iter().flat_map(|(_, text)| {
        let blocks = text.split("```").filter(|block| block.starts_with("ini\n"));
        blocks.map(str::to_owned).collect::<Vec<_>>()
    });
    let files = ["backup", "singleton"]
        .map(|name| read(Path::new(&format!("contrib/systemd/{name}.service"))));
    let units: Vec<String> = in_pages
        .chain(files)
        .filter(|text| text.contains("rlock run"))
        .collect();
    assert!(units.len() >= 4, "{units:?}");
    for unit in units {
        assert!(unit.contains("\nKillMode=mixed\n"), "{unit}");
    }
}
