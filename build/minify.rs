//! Shortens a Lua script without changing what it does: comments and needless spaces go, and local names become short.
//!
//! It reads tokens and no grammar. One name has one short form wherever it is declared, so scopes stay as they are. Two rules
//! for the scripts make that safe, and a script that breaks one is refused: no local has the name of a global, and no table
//! constructor names its fields.
//! Globals that are used often get a short name too.

use std::collections::{BTreeMap, BTreeSet};

/// Lua's keywords, and the globals that a script of a server may use. None is a short name.
const TAKEN: &[&str] = &[
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
    "repeat", "return", "then", "true", "until", "while", "redis", "KEYS", "ARGV", "string", "table", "math", "ipairs",
    "pairs", "tonumber", "tostring", "type", "unpack", "error", "pcall", "select", "next",
];

/// Globals that the scripts use often. They get short names too, which [`Names::prologue`] declares.
const ALIASED: &[&str] = &["KEYS", "ARGV", "string", "tonumber", "type", "ipairs", "math"];

/// A token and whether a line ended before it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Token {
    text: String,
    begins_line: bool,
}

impl Token {
    fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

/// The short form of each local name.
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// Finds the names that `scripts` declare as locals, and gives the shortest form to the one that is used most.
    pub(crate) fn of<'a>(scripts: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        let mut locals = BTreeSet::new();
        for script in scripts {
            let tokens = tokens(script)?;
            locals.extend(declared(&tokens));
            for token in tokens.into_iter().filter(Token::is_name) {
                *uses.entry(token.text).or_default() += 1;
            }
        }
        if let Some(name) = locals.iter().find(|name| TAKEN.contains(&name.as_str())) {
            return Err(format!("the local {name} has the name of a global"));
        }
        locals.extend(ALIASED.iter().map(ToString::to_string));
        let globals: BTreeSet<&String> = uses.keys().filter(|name| !locals.contains(*name)).collect();
        let mut ranked: Vec<&String> = locals.iter().collect();
        ranked.sort_by_key(|name| std::cmp::Reverse(uses.get(*name)));
        let is_free = |short: &String| !TAKEN.contains(&short.as_str()) && !globals.contains(short);
        let shorts = (0..).map(short).filter(is_free);
        Ok(Self(ranked.into_iter().cloned().zip(shorts).collect()))
    }

    /// Returns the line that declares the short names of globals. It stands before the first file of each script.
    pub(crate) fn prologue(&self) -> String {
        let shorts: Vec<&str> = ALIASED.iter().map(|name| self.0[*name].as_str()).collect();
        format!("local {}={}\n", shorts.join(","), ALIASED.join(","))
    }
}

/// Returns short name number `number`: `a` to `Z`, then two letters.
fn short(mut number: usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut name = String::new();
    loop {
        name.push(char::from(LETTERS[number % LETTERS.len()]));
        match (number / LETTERS.len()).checked_sub(1) {
            Some(rest) => number = rest,
            None => return name,
        }
    }
}

/// Returns `script`, shortened, with a line end behind it.
pub(crate) fn minified(script: &str, names: &Names) -> Result<String, String> {
    let tokens = tokens(script)?;
    let mut open = Vec::new();
    let mut code = String::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" | "(" | "[" => open.push(token.text.clone()),
            "}" | ")" | "]" => drop(open.pop()),
            _ => {}
        }
        let before = index.checked_sub(1).map_or("", |before| tokens[before].text.as_str());
        let is_field = before == "." || before == ":";
        let is_assigned = tokens.get(index + 1).is_some_and(|next| next.text == "=");
        if token.is_name() && is_assigned && open.last().is_some_and(|bracket| bracket == "{") {
            return Err(format!("the field {} is named in a table constructor", token.text));
        }
        let shorter = names.0.get(&token.text).filter(|_| !is_field);
        let text = shorter.unwrap_or(&token.text);
        if must_be_apart(&code, text) {
            code.push(if token.begins_line { '\n' } else { ' ' });
        }
        code.push_str(text);
    }
    code.push('\n');
    Ok(code)
}

/// Whether `next` would become part of another token if it stood right behind `code`.
fn must_be_apart(code: &str, next: &str) -> bool {
    let (Some(last), Some(first)) = (code.chars().next_back(), next.chars().next()) else { return false };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_number_end = |c: char| c.is_ascii_digit();
    (is_word(last) && is_word(first))
        || (is_number_end(last) && first == '.')
        || (last == '.' && is_number_end(first))
        || matches!((last, first), ('-', '-') | ('[', '[' | '=') | ('.', '.') | ('<' | '>' | '=' | '~', '='))
}

/// Returns the names that a script declares as locals: variables, functions, parameters and those of loops.
fn declared(tokens: &[Token]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    for index in 0..tokens.len() {
        let mut at = match text(index) {
            "local" if text(index + 1) == "function" => {
                names.insert(text(index + 2).to_owned());
                continue;
            }
            "local" | "for" => index + 1,
            "function" if text(index + 1) == "(" => index + 2,
            "function" if text(index + 2) == "(" => index + 3,
            _ => continue,
        };
        while tokens.get(at).is_some_and(Token::is_name) {
            names.insert(text(at).to_owned());
            if text(at + 1) != "," {
                break;
            }
            at += 2;
        }
    }
    names
}

/// Splits a script into its tokens; comments and spaces are left out.
fn tokens(script: &str) -> Result<Vec<Token>, String> {
    let (mut rest, mut begins_line, mut tokens) = (script, true, Vec::new());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("--[[") || rest.starts_with("[[") => return Err("long brackets".to_owned()),
            _ if rest.starts_with("--") => {
                rest = rest.split_once('\n').map_or("", |_| &rest[rest.find('\n').unwrap_or(rest.len())..]);
                continue;
            }
            _ if first.is_whitespace() => {
                begins_line |= first == '\n';
                rest = &rest[first.len_utf8()..];
                continue;
            }
            '\'' | '"' => text_length(rest, first)?,
            _ if first.is_ascii_alphanumeric() || first == '_' => {
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            _ => ["...", "..", "==", "~=", "<=", ">="]
                .iter()
                .find(|symbol| rest.starts_with(**symbol))
                .map_or(1, |s| s.len()),
        };
        let (text, behind) = rest.split_at(length);
        tokens.push(Token { text: text.to_owned(), begins_line });
        (rest, begins_line) = (behind, false);
    }
    Ok(tokens)
}

/// Returns the length of the string literal at the beginning of `rest`, its quotes included.
fn text_length(rest: &str, quote: char) -> Result<usize, String> {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '\n' => break,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if c == quote => return Ok(at + 1),
            _ => {}
        }
    }
    Err(format!("a string without an end: {}", rest.lines().next().unwrap_or_default()))
}
