//! Numbers as Redis reads and writes them.

/// Reads an integer as strictly as Redis (`string2ll`): no plus sign, no leading zero, no white
/// space.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_canonical
        .then(|| std::str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

/// Reads a score (`strtod`). A number that is out of a double's range is refused, as is NaN.
pub(super) fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let is_overflow = number.is_infinite() && text.iter().any(u8::is_ascii_digit);
    let mantissa = text
        .split(|byte| matches!(byte, b'e' | b'E'))
        .next()
        .unwrap_or_default();
    let is_underflow = number == 0.0 && mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    (!number.is_nan() && !is_overflow && !is_underflow).then_some(number)
}

/// Writes a number as C's `%.17g`.
pub(super) fn written(number: f64) -> Vec<u8> {
    const DIGITS: i32 = 17;
    if number.is_infinite() {
        return if number > 0.0 {
            b"inf".to_vec()
        } else {
            b"-inf".to_vec()
        };
    }
    if number.is_nan() {
        return if number.is_sign_negative() {
            b"-nan".to_vec()
        } else {
            b"nan".to_vec()
        };
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trimmed = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    let text = if (-4..DIGITS).contains(&exponent) {
        let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or_default();
        trimmed(&format!("{number:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_strictly_as_by_redis() {
        for (text, number) in [
            ("0", 0),
            ("-1", -1),
            ("10", 10),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(integer(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "x",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_as_by_printf() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e20, "1.5e+20"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(String::from_utf8_lossy(&written(number)), text);
        }
    }

    #[test]
    fn scores_out_of_range_are_refused() {
        assert_eq!(float(b"-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(float(b"1e3"), Some(1000.0));
        for text in ["1e400", "1e-400", "nan", "", "x", " 1"] {
            assert_eq!(float(text.as_bytes()), None, "{text}");
        }
    }
}
