//! Replies as the protocol has them, cut from bytes, and when two of them mean the same.

/// A reply, or a message that answers no request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Frame {
    /// A status, an error, an integer, a double or a null, by its mark.
    Line(char, String),
    Bulk(char, Option<Vec<u8>>),
    List(char, Vec<Frame>),
}

/// Difference that two reads of one clock may show, in ms.
const LATER: i64 = 5000;

/// Shortest time that is taken for one read from a clock, in ms. Generated sizes and numbers are
/// not between it and a day.
const SHORTEST: i64 = 50_000;

impl Frame {
    /// Cuts the first frame from `bytes`, with its length; none if it is not complete.
    pub(super) fn cut(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let mark = char::from(*bytes.first()?);
        let text = String::from_utf8_lossy(&bytes[1..end]).into_owned();
        let mut used = end + 2;
        let count = || text.parse::<i64>().expect("a length");
        let frame = match mark {
            '$' | '=' => {
                let Ok(length) = usize::try_from(count()) else {
                    return Some((Self::Bulk(mark, None), used));
                };
                let content = bytes.get(used..used + length)?.to_vec();
                bytes.get(used + length..used + length + 2)?;
                used += length + 2;
                Self::Bulk(mark, Some(content))
            }
            '*' | '>' | '%' | '~' => {
                let mut items = Vec::new();
                for _ in 0..count() * if mark == '%' { 2 } else { 1 } {
                    let (item, length) = Self::cut(&bytes[used..])?;
                    used += length;
                    items.push(item);
                }
                Self::List(mark, items)
            }
            _ => Self::Line(mark, text),
        };
        Some((frame, used))
    }

    /// Cuts all frames from `bytes`.
    pub(super) fn all(mut bytes: &[u8]) -> Vec<Self> {
        let mut frames = Vec::new();
        while let Some((frame, used)) = Self::cut(bytes) {
            frames.push(frame);
            bytes = &bytes[used..];
        }
        assert!(
            bytes.is_empty(),
            "no frame: {}",
            String::from_utf8_lossy(bytes)
        );
        frames
    }

    /// Whether both say the same. Times that were read from a clock may be apart. `exactly`: in the
    /// same words; otherwise in the words of different versions.
    pub(super) fn means(&self, other: &Self, exactly: bool) -> bool {
        match (self, other) {
            (Self::List(mark, items), Self::List(other_mark, others)) => {
                let alike = |(one, two): (&Self, &Self)| one.means(two, exactly);
                mark == other_mark
                    && items.len() == others.len()
                    && items.iter().zip(others).all(alike)
            }
            (Self::Line('-', text), Self::Line('-', other)) => {
                text == other || !exactly && class(text) == class(other)
            }
            (Self::Line(mark, text), Self::Line(other_mark, other)) => {
                mark == other_mark && same_text(text, other, exactly)
            }
            (Self::Bulk(mark, Some(bytes)), Self::Bulk(other_mark, Some(others))) => {
                let texts = (std::str::from_utf8(bytes), std::str::from_utf8(others));
                mark == other_mark
                    && (bytes == others
                        || matches!(texts, (Ok(one), Ok(two)) if same_text(one, two, exactly)))
            }
            _ => self == other,
        }
    }
}

/// The meaning of an error for a client, whatever the version's words.
fn class(error: &str) -> &'static str {
    let codes = [
        "WRONGTYPE",
        "OOM",
        "READONLY",
        "NOPERM",
        "NOPROTO",
        "WRONGPASS",
        "MY",
    ];
    let rights = [
        "ACL failure in script",
        "can't run this command",
        "has no permissions",
        "can't publish to the channel",
    ];
    let is_code = |code: &&&str| {
        error.starts_with(**code)
            || error.contains(&format!("-{code} "))
            || error.contains(&format!(": {code} "))
    };
    match codes.iter().find(is_code) {
        Some(code) => code,
        None if rights.iter().any(|words| error.contains(words)) => "NOPERM",
        None => "ERR",
    }
}

fn same_text(one: &str, two: &str, exactly: bool) -> bool {
    // An error that a script returned as a text.
    if !exactly && class(one) == class(two) && class(one) != "ERR" {
        return true;
    }
    let words = |text: &str| {
        text.split([' ', '\n'])
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (ones, twos) = (words(one), words(two));
    ones.len() == twos.len()
        && ones
            .iter()
            .zip(&twos)
            .all(|(one, two)| same_word(one, two, exactly))
}

/// A time in ms or µs may have been read later on one side. From 7.2 on, servers write doubles in
/// their shortest form.
fn same_word(one: &str, two: &str, exactly: bool) -> bool {
    if one == two {
        return true;
    }
    if let (Ok(one), Ok(two)) = (one.parse::<i64>(), two.parse::<i64>()) {
        let unit = if one > 1_000_000_000_000_000 { 1000 } else { 1 };
        return one.min(two) > SHORTEST && (one - two).abs() <= LATER * unit;
    }
    let floats = (one.parse::<f64>(), two.parse::<f64>());
    !exactly && matches!(floats, (Ok(one), Ok(two)) if one.total_cmp(&two).is_eq())
}
