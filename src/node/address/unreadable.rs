//! Why an address that is no URL cannot be read: the part that is wrong, never its text, which may be a password's.

use super::is_scheme;

/// Returns why `rest`, an address behind its scheme and `://`, or without them, cannot be read.
pub(super) fn why(rest: &str) -> String {
    let is_several = rest.split_whitespace().skip(1).any(|word| word.contains("://"));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    if is_several || rest.trim().contains(char::is_whitespace) {
        return "it has a blank; several addresses are separated by commas".to_owned();
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    // Behind the brackets of an IPv6 address.
    let (host, port) = match authority.rsplit_once(']') {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    match port {
        _ if host.is_empty() => "the host is missing".to_owned(),
        _ if host.starts_with('[') && !authority.contains(']') => "the host cannot be read".to_owned(),
        Some(port)
            if port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_err() && !port.is_empty() =>
        {
            "the port is above 65535".to_owned()
        }
        Some(port) if !port.bytes().all(|byte| byte.is_ascii_digit()) => {
            let advice = if is_scheme(host) {
                format!("; behind a scheme write ://, as in {host}://HOST")
            } else {
                String::new()
            };
            format!("the port is no number{advice}")
        }
        _ => "the host cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_is_wrong_is_named_and_not_shown() {
        for (rest, told) in [
            ("redis1:99999", "the port is above 65535"),
            ("redis1:abc", "the port is no number"),
            ("u:hunter2@redis1:abc/3", "the port is no number"),
            ("u:hunter2", "the port is no number"),
            ("redis:redis1", "the port is no number; behind a scheme write ://, as in redis://HOST"),
            (":abc", "the host is missing"),
            ("", "the host is missing"),
            ("u:hunter2@a redis://u:hunter2@b", "it has a blank; several addresses are separated by commas"),
            ("a redis://b", "it has a blank; several addresses are separated by commas"),
            ("[::1]:x", "the port is no number"),
            ("[::1", "the host cannot be read"),
            ("a<b", "the host cannot be read"),
        ] {
            assert_eq!(why(rest), told, "{rest}");
        }
    }
}
