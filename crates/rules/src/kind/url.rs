//! URLs as Go's `url.Parse` reads them, with what it says of those that it does not.

use types::go::quote;

/// The parts that somebody asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) scheme: String,
    pub(super) user: Option<String>,
    pub(super) host: String,
    pub(super) query: String,
    pub(super) fragment: String,
}

/// Whether a text has a scheme and a host where Go's `url.ParseRequestURI` reads it: nothing in it is a fragment.
pub fn is_absolute(text: &str) -> bool {
    read(text).is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty())
}

/// Reads a URL, or says why it is none.
pub(super) fn parse(text: &str) -> Result<Url, String> {
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let told = |text: &str, why: String| format!("parse {}: {why}", quote(text));
    let mut url = read(before).map_err(|why| told(before, why))?;
    url.fragment = unescaped(fragment, false).map_err(|why| told(text, why))?;
    Ok(url)
}

fn read(text: &str) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text == "*" {
        return Ok(Url::default());
    }
    let (scheme, rest) = scheme(text)?;
    let mut url = Url { scheme: scheme.to_ascii_lowercase(), ..Url::default() };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    query.clone_into(&mut url.query);
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            return Ok(url);
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let mut path = rest;
    if let Some(rest) = rest.strip_prefix("//")
        && (!url.scheme.is_empty() || !rest.starts_with('/'))
    {
        let (authority, after) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        path = after;
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        url.host = self::host(host)?;
        if let Some(user) = user {
            url.user = Some(user_info(user)?);
        }
    }
    unescaped(path, false)?;
    Ok(url)
}

/// What stands before the first colon, if it can be a scheme; and the rest.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn host(host: &str) -> Result<String, String> {
    let port = match host.rfind('[') {
        Some(_) => {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            &host[end + 1..]
        }
        None => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    unescaped(host, true)
}

fn user_info(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !text.chars().all(is_good) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescaped(text, false)?;
    Ok(text.to_owned())
}

/// The text without escapes. In a host only few characters may stand, and few be escaped.
fn unescaped(text: &str, in_host: bool) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let byte = bytes[i];
        if byte == b'%' {
            let code = text.get(i + 1..i + 3).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
            let wrong = || {
                let shown = String::from_utf8_lossy(&bytes[i..bytes.len().min(i + 3)]);
                format!("invalid URL escape {}", quote(&shown))
            };
            let value = code.and_then(|code| u8::from_str_radix(code, 16).ok()).ok_or_else(wrong)?;
            if in_host && value < 0x80 && value != b'%' {
                return Err(wrong());
            }
            out.push(value);
            i += 3;
            continue;
        }
        let is_named = byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte);
        if in_host && byte < 0x80 && !is_named {
            return Err(format!("invalid character {} in host name", quote(&char::from(byte).to_string())));
        }
        out.push(byte);
        i += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_says_of_urls() {
        for (text, why) in [
            ("a b", None),
            ("https://h/p?q#f", None),
            ("//h", None),
            ("https://[::1]:80/", None),
            (":x", Some(r#"parse ":x": missing protocol scheme"#)),
            ("1:x", Some(r#"parse "1:x": first path segment in URL cannot contain colon"#)),
            ("https://h:x/", Some(r#"parse "https://h:x/": invalid port ":x" after host"#)),
            ("https://[::1/", Some(r#"parse "https://[::1/": missing ']' in host"#)),
            ("https://a b/", Some(r#"parse "https://a b/": invalid character " " in host name"#)),
            ("https://h/%zz", Some(r#"parse "https://h/%zz": invalid URL escape "%zz""#)),
            ("a\n", Some(r#"parse "a\n": net/url: invalid control character in URL"#)),
        ] {
            assert_eq!(parse(text).err().as_deref(), why, "{text}");
        }
        let url = parse("HTTPS://u:p@h:1/x?q=1#f").expect("a URL");
        assert_eq!(
            (url.scheme.as_str(), url.host.as_str(), url.user.as_deref()),
            ("https", "h:1", Some("u:p"))
        );
        assert_eq!((url.query.as_str(), url.fragment.as_str()), ("q=1", "f"));
    }
}
