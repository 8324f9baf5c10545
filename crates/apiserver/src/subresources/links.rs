//! Links in pages that come through the proxy: those that begin at the root of their server lead through the proxy, too.

/// Attributes that hold a link.
const ATTRIBUTES: [&str; 11] = [
    "action",
    "background",
    "cite",
    "data",
    "formaction",
    "href",
    "icon",
    "longdesc",
    "manifest",
    "poster",
    "src",
];

/// A page whose links begin with `prefix`, which has no slash at its end.
pub(super) fn rewritten(page: &[u8], prefix: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len());
    let mut rest = page;
    while let Some(start) = rest.iter().position(|byte| *byte == b'<') {
        let (text, tag) = rest.split_at(start);
        out.extend_from_slice(text);
        let end = end_of_tag(tag);
        rewrite_tag(&tag[..end], prefix, &mut out);
        rest = &tag[end..];
    }
    out.extend_from_slice(rest);
    out
}

/// A link as it is seen from outside. Others lead elsewhere, or through the proxy already.
pub(super) fn through(link: &str, prefix: &str) -> String {
    let is_ours =
        link.starts_with('/') && !link.starts_with("//") && !link.starts_with(&format!("{prefix}/"));
    if is_ours { format!("{prefix}{link}") } else { link.to_owned() }
}

/// Where a tag ends: after its `>` that is in no quotes, or with the page.
fn end_of_tag(tag: &[u8]) -> usize {
    let mut quote = None;
    for (place, byte) in tag.iter().enumerate() {
        match (quote, *byte) {
            (None, b'>') => return place + 1,
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if byte == open => quote = None,
            _ => {}
        }
    }
    tag.len()
}

/// Writes a tag, with links in quotes that lead through the proxy.
fn rewrite_tag(tag: &[u8], prefix: &str, out: &mut Vec<u8>) {
    let mut rest = tag;
    while let Some(place) = rest.iter().position(|byte| matches!(byte, b'"' | b'\'')) {
        let quote = rest[place];
        let (before, value) = rest.split_at(place + 1);
        out.extend_from_slice(before);
        let end = value.iter().position(|byte| *byte == quote).unwrap_or(value.len());
        match std::str::from_utf8(&value[..end]) {
            Ok(link) if is_link(&before[..place]) => out.extend_from_slice(through(link, prefix).as_bytes()),
            _ => out.extend_from_slice(&value[..end]),
        }
        rest = &value[end..];
        if let Some((quote, after)) = rest.split_first() {
            out.push(*quote);
            rest = after;
        }
    }
    out.extend_from_slice(rest);
}

/// Whether what stands before a quote is the name of an attribute that holds a link, and an equals sign.
fn is_link(before: &[u8]) -> bool {
    let Some(name) = before.trim_ascii_end().strip_suffix(b"=") else { return false };
    let name = name.trim_ascii_end();
    let start =
        name.iter().rposition(|byte| byte.is_ascii_whitespace() || *byte == b'/').map_or(0, |at| at + 1);
    ATTRIBUTES.iter().any(|attribute| name[start..].eq_ignore_ascii_case(attribute.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&rewritten(page.as_bytes(), "/p/proxy")), expected);
    }

    #[test]
    fn links_from_the_root_lead_through_the_proxy() {
        check("<a href=\"/rewriteme\">test</a>", "<a href=\"/p/proxy/rewriteme\">test</a>");
        check("<IMG alt='a > b' SRC = '/i.png'>", "<IMG alt='a > b' SRC = '/p/proxy/i.png'>");
        for same in [
            "<a href=\"there\">",
            "<a href=\"//elsewhere/\">",
            "<a href=\"https://example.com/\">",
            "<a href=\"/p/proxy/there\">",
            "<p title=\"/not/a/link\">href=\"/text\"</p>",
            "a < b",
        ] {
            check(same, same);
        }
        check("<a href=\"/", "<a href=\"/p/proxy/");
    }
}
