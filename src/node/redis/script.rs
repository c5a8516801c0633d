//! Lua without what only people read: a script is sent whole with each request, and hashed by the server.
//!
//! Known are comments that have a line for themselves. A line that begins with `--` is one, so no script may have a string
//! of several lines in which one does.

/// How long the code in `text` is.
pub(super) const fn length(text: &str) -> usize {
    strip(text.as_bytes(), &mut [])
}

/// The code in `text`, which is `N` long.
pub(super) const fn code<const N: usize>(text: &str) -> [u8; N] {
    let mut code = [0; N];
    strip(text.as_bytes(), &mut code);
    code
}

/// `code` as what it was cut from.
pub(super) const fn text(code: &'static [u8]) -> &'static str {
    match str::from_utf8(code) {
        Ok(text) => text,
        Err(_) => panic!("whole lines were cut"),
    }
}

/// Copies the lines that are code to `to`, without their indentation, as far as there is room; how much room they want.
const fn strip(from: &[u8], to: &mut [u8]) -> usize {
    let (mut at, mut length) = (0, 0);
    while at < from.len() {
        while at < from.len() && from[at] == b' ' {
            at += 1;
        }
        let comment = at + 1 < from.len() && from[at] == b'-' && from[at + 1] == b'-';
        let empty = at < from.len() && from[at] == b'\n';
        let mut last = false;
        while at < from.len() && !last {
            last = from[at] == b'\n';
            if !comment && !empty {
                if length < to.len() {
                    to[length] = from[at];
                }
                length += 1;
            }
            at += 1;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_empty_lines_and_indentation_are_left_out() {
        const FILE: &str = "-- What it does.\nlocal a = 'ä' -- kept\n\n  -- why\n  if a then\n    return '--'\n  end";
        const CODE: [u8; length(FILE)] = code(FILE);
        assert_eq!(text(&CODE), "local a = 'ä' -- kept\nif a then\nreturn '--'\nend");
    }
}
