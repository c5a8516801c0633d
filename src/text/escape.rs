//! Escapes text for a terminal: all that came from a server, an argument or the environment.
//!
//! No control character (ESC sequences can retitle a window or answer back), no bidirectional
//! override (CVE-2021-42574) and no line break gets through: one message stays one line.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

/// Escapes the characters that a terminal acts on: `\x1b`, `\n` or `\u{202e}`.
pub fn text(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    for c in raw.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() || acts_on_the_line(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Escapes the first 200 characters, of text without a limit on its length.
pub fn short(raw: &str) -> String {
    let shown: String = raw.chars().take(200).collect();
    let more = if shown.len() < raw.len() { "…" } else { "" };
    text(&shown) + more
}

/// Returns what is printed behind a name: a note in brackets, if there is one.
pub fn note(raw: Option<&str>) -> String {
    raw.map_or_else(String::new, |note| format!(" ({})", text(note)))
}

/// Cuts text to `room` cells of a terminal, with an ellipsis if anything is missing.
pub fn cut(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    // The width of the whole, not the sum of its characters: some of them change the width of the
    // one before.
    let end = ends
        .take_while(|end| text[..*end].width() < room)
        .last()
        .unwrap_or_default();
    let ellipsis = if room > 0 { "…" } else { "" };
    format!("{}{ellipsis}", &text[..end])
}

/// Escapes bytes; those that are not UTF-8 become `\xff`.
pub fn bytes(raw: &[u8]) -> String {
    raw.utf8_chunks().fold(String::new(), |mut out, chunk| {
        out.push_str(&text(chunk.valid()));
        chunk.invalid().iter().for_each(|byte| {
            let _ = write!(out, "\\x{byte:02x}");
        });
        out
    })
}

/// Escapes JSON without changing its value: characters that a terminal acts on become `\u202e`.
pub fn json(written: &str) -> String {
    let mut units = [0; 2];
    written
        .chars()
        .fold(String::with_capacity(written.len()), |mut out, c| {
            if c.is_control() || acts_on_the_line(c) {
                c.encode_utf16(&mut units).iter().for_each(|unit| {
                    let _ = write!(out, "\\u{unit:04x}");
                });
            } else {
                out.push(c);
            }
            out
        })
}

/// Whether it directs, breaks or joins a line, or is invisible: a name could look like another one
/// (Unicode, `Default_Ignorable_Code_Point`, and the separators and annotations).
fn acts_on_the_line(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_and_bidi_overrides_are_shown_not_obeyed() {
        assert_eq!(
            text("a\x1b[2Jb\u{202e}c\u{9b}d\n"),
            "a\\x1b[2Jb\\u{202e}c\\u{9b}d\\n"
        );
        assert_eq!(bytes(b"ok\xff\x00"), "ok\\xff\\x00");
        assert_eq!(text("größe 漢字"), "größe 漢字");
    }

    #[test]
    fn no_name_looks_like_another_one_by_what_is_invisible() {
        for c in "\u{ad}\u{115f}\u{3164}\u{17b5}\u{180e}\u{fe0f}\u{200b}\u{e0100}".chars() {
            assert_eq!(
                text(&format!("job{c}")),
                format!("job\\u{{{:x}}}", u32::from(c))
            );
        }
    }

    #[test]
    fn text_is_cut_by_the_cells_that_it_takes() {
        assert_eq!(cut("漢字漢字", 8), "漢字漢字");
        assert_eq!(cut("漢字漢字", 7), "漢字漢…");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        assert_eq!(cut("abc", 2), "a…");
        assert_eq!(cut("abc", 0), "");
    }

    proptest! {
        #[test]
        fn what_is_cut_takes_no_more_cells_than_there_are(raw in "[a漢❤\u{fe0f}\u{301}🇩🇪]{0,40}", room in 0usize..30) {
            prop_assert!(cut(&raw, room).width() <= room);
        }

        #[test]
        fn json_keeps_its_value_and_loses_what_a_terminal_acts_on(raw in any::<String>(), tag in proptest::char::range('\u{e0000}', '\u{e007f}')) {
            let value = serde_json::json!({ "a": format!("{raw}{tag}\u{202e}\x7f") });
            let shown = json(&value.to_string());
            prop_assert!(!shown.chars().any(|c| c.is_control() || acts_on_the_line(c)));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }

        #[test]
        fn nothing_raw_reaches_the_terminal(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
            let shown = bytes(&raw);
            prop_assert!(!shown.chars().any(|c| c.is_control() || acts_on_the_line(c)));
        }
    }
}
