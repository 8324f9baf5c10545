//! The syntax of names: what may stand in a label, a DNS name, a port name, and how Kubernetes says it may not.
//!
//! Every function returns the problems found, none if the name is right. Who owns the name, and where it stands, is
//! the caller's business.

use crate::field;
use crate::pod::addresses;

/// What is wrong with a name, in Kubernetes' words.
pub type Problems = Vec<String>;

const DNS_LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// A lower-case RFC 1123 label, the name of a namespace or a container.
pub fn dns_label(name: &str) -> Problems {
    let mut problems = no_longer_than(name, 63, "characters");
    if is_dns_label(name) {
        return problems;
    }
    problems.push(if is_dns_subdomain(name) {
        "must not contain dots".to_owned()
    } else {
        pattern(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character",
            DNS_LABEL,
            &["my-name", "123-abc"],
        )
    });
    problems
}

/// A lower-case RFC 1123 subdomain, the name of most objects.
pub fn dns_subdomain(name: &str) -> Problems {
    subdomain_no_longer_than(name, "characters")
}

/// [`dns_subdomain`] where Kubernetes' newer validation code judges it: the limit is then said in bytes.
fn dns_subdomain_in_bytes(name: &str) -> Problems {
    subdomain_no_longer_than(name, "bytes")
}

fn subdomain_no_longer_than(name: &str, unit: &str) -> Problems {
    let mut problems = no_longer_than(name, 253, unit);
    if !is_dns_subdomain(name) {
        problems.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            DNS_SUBDOMAIN,
            &["example.com"],
        ));
    }
    problems
}

/// An address, written in the one way that is usual.
pub fn ip_address(name: &str) -> Problems {
    addresses::strict_ip(name)
}

/// What is wrong with a name whose first label is `*`.
pub fn wildcard_dns_subdomain(name: &str) -> Problems {
    const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let is_good = name.strip_prefix("*.").is_some_and(|rest| dns_subdomain(rest).is_empty());
    if is_good {
        return Problems::new();
    }
    let says = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
                of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
    vec![pattern(says, &format!("\\*\\.{LABEL}(\\.{LABEL})*"), &["*.example.com"])]
}

/// A subdomain whose labels may also hold underscores, as some DNS search paths do.
pub fn dns_subdomain_with_underscore(name: &str) -> Problems {
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_bounded(label, is_lower_alphanumeric, |c| is_lower_alphanumeric(c) || c == b'-' || c == b'_')
    };
    let mut problems = no_longer_than(name, 253, "characters");
    if !name.split('.').all(is_label) {
        problems.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    problems
}

/// A DNS-1035 label, the name of a service.
pub fn dns_1035_label(name: &str) -> Problems {
    let mut problems = no_longer_than(name, 63, "characters");
    if !(is_dns_label(name) && name.as_bytes()[0].is_ascii_lowercase()) {
        problems.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    problems
}

/// What a name must be before a generated suffix is appended: a trailing dash is then fine.
pub fn as_prefix(name: &str, check: fn(&str) -> Problems) -> Problems {
    match name.strip_suffix('-') {
        // Upstream masks the last two characters, not one; so `a.-` is as good as `aa`.
        Some(stem) if !stem.is_empty() => {
            let kept: String = stem.chars().take(stem.chars().count() - 1).collect();
            check(&format!("{kept}a"))
        }
        _ => check(name),
    }
}

/// A label key, annotation key, finalizer or condition type: a name with an optional DNS prefix and `/`.
pub fn qualified_name(name: &str) -> Problems {
    const SAYS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";
    let says = || pattern(SAYS, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut problems = Problems::new();
    let parts: Vec<&str> = name.split('/').collect();
    let name = match *parts.as_slice() {
        [name] => name,
        ["", name] => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            problems.extend(
                dns_subdomain_in_bytes(prefix).into_iter().map(|problem| format!("prefix part {problem}")),
            );
            name
        }
        _ => {
            let example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {} {example}", says())];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else {
        problems.extend(
            no_longer_than(name, 63, "bytes").into_iter().map(|problem| format!("name part {problem}")),
        );
    }
    if !is_qualified_part(name) {
        problems.push(format!("name part {}", says()));
    }
    problems
}

/// The value of a label; it may be empty.
pub fn label_value(value: &str) -> Problems {
    let mut problems = no_longer_than(value, 63, "bytes");
    if !value.is_empty() && !is_qualified_part(value) {
        problems.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    problems
}

/// A C identifier.
pub fn c_identifier(name: &str) -> Problems {
    let is_start = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    if name.bytes().next().is_some_and(is_start) && name.bytes().all(|c| is_start(c) || c.is_ascii_digit()) {
        return Problems::new();
    }
    vec![pattern(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
         characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The name of an environment variable as Kubernetes has judged it since 1.30: any printable ASCII but `=`.
pub fn env_var_name(name: &str) -> Problems {
    let mut problems = Problems::new();
    if name.is_empty() {
        problems.push("environment variable name must be non-empty".to_owned());
    }
    if !name.bytes().all(|c| (b' '..=b'~').contains(&c) && c != b'=') {
        problems.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    problems
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(key: &str) -> Problems {
    let mut problems = no_longer_than(key, 253, "characters");
    if key.is_empty() || !key.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)) {
        problems.push(pattern(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match key {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}

/// The name of a port (IANA service name).
pub fn port_name(name: &str) -> Problems {
    let mut problems = no_longer_than(name, 15, "characters");
    if name.is_empty() || !name.bytes().all(|c| is_lower_alphanumeric(c) || c == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|c| c.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen".to_owned());
    }
    problems
}

/// The number of a port.
pub fn port_number(port: i32) -> Problems {
    in_range(port.into(), 1, 65535)
}

/// The id of a user or a group.
pub fn user_or_group_id(id: i64) -> Problems {
    in_range(id, 0, i32::MAX.into())
}

/// A number between two bounds, which belong to the range.
pub fn in_range(value: i64, low: i64, high: i64) -> Problems {
    if (low..=high).contains(&value) {
        return Problems::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// The name of an HTTP header.
pub fn http_header_name(name: &str) -> Problems {
    if !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Problems::new();
    }
    vec![pattern(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// A name that can stand in a URL path.
pub fn path_segment(name: &str) -> Problems {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].into_iter().filter(|c| name.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// A path under a domain that somebody owns, such as `acme.io/foo` (M-02…M-06).
pub fn domain_prefixed_path(path: &field::Path, value: &str) -> field::Errors {
    const HTTP_PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    if value.is_empty() {
        return vec![path.required("")];
    }
    let (host, http_path) = match value.split_once('/') {
        Some((host, http_path)) if !host.is_empty() && !http_path.is_empty() => (host, http_path),
        _ => return vec![path.invalid(value, r#"must be a domain-prefixed path (such as "acme.io/foo")"#)],
    };
    let mut errors: field::Errors =
        dns_subdomain(host).into_iter().map(|problem| path.invalid(host, problem)).collect();
    let is_path_char = |c: u8| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c);
    if !http_path.bytes().all(is_path_char) {
        errors.push(path.invalid(http_path, pattern("Invalid path", HTTP_PATH, &[])));
    }
    errors
}

fn no_longer_than(name: &str, max: usize, unit: &str) -> Problems {
    if name.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Problems::new() }
}

/// A problem that names the pattern which the name does not match.
pub(crate) fn pattern(says: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{says} (regex used for validation is '{regex}')");
    }
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{says} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn is_lower_alphanumeric(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Not empty, `edge` at both ends and `inner` between them.
fn is_bounded(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&c| edge(c))
        && bytes.last().is_some_and(|&c| edge(c))
        && bytes.iter().all(|&c| inner(c))
}

fn is_dns_label(name: &str) -> bool {
    is_bounded(name, is_lower_alphanumeric, |c| is_lower_alphanumeric(c) || c == b'-')
}

fn is_dns_subdomain(name: &str) -> bool {
    name.split('.').all(is_dns_label)
}

fn is_qualified_part(name: &str) -> bool {
    is_bounded(name, |c| c.is_ascii_alphanumeric(), |c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(problems: &[String], starts: &[&str]) {
        assert_eq!(problems.len(), starts.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem:?} does not start with {start:?}");
        }
    }

    #[test]
    fn dns_names() {
        check(&dns_label("a-1"), &[]);
        check(&dns_label("a.b"), &["must not contain dots"]);
        check(&dns_label(""), &["a lowercase RFC 1123 label must"]);
        check(&dns_label(&"a".repeat(63)), &[]);
        check(
            &dns_label(&"A".repeat(64)),
            &["must be no more than 63 characters", "a lowercase RFC 1123 label"],
        );
        check(&dns_subdomain("a.b-c.d"), &[]);
        for name in ["", "a..b", ".a", "a.", "-a", "a-", "a_b", "é"] {
            check(&dns_subdomain(name), &["a lowercase RFC 1123 subdomain must"]);
        }
        for name in ["10.96.0.1", "fe80::1", "::"] {
            check(&ip_address(name), &[]);
        }
        check(&ip_address("fe80:0::1"), &["must be in canonical form (\"fe80::1\")"]);
        check(&ip_address("web"), &["must be a valid IP address"]);
        check(&dns_1035_label("1a"), &["a DNS-1035 label must"]);
        check(&dns_1035_label("a1"), &[]);
        check(&dns_subdomain_with_underscore("_tcp.a_b"), &[]);
        check(&dns_subdomain_with_underscore("a_.b"), &["a lowercase RFC 1123 subdomain must"]);
    }

    #[test]
    fn the_whole_text_of_a_pattern() {
        assert_eq!(
            dns_label("-")[0],
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
             end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        );
    }

    #[test]
    fn a_prefix_may_end_with_a_dash() {
        check(&as_prefix("a-", dns_label), &[]);
        check(&as_prefix("a.-", dns_subdomain), &[]);
        check(&as_prefix("-", dns_label), &["a lowercase RFC 1123 label"]);
        check(&as_prefix("A-b", dns_label), &["a lowercase RFC 1123 label"]);
    }

    #[test]
    fn qualified_names() {
        for name in ["a", "A.b_c-d", "example.com/a", "1"] {
            check(&qualified_name(name), &[]);
        }
        check(&qualified_name(""), &["name part must be non-empty", "name part must consist"]);
        check(&qualified_name("/a"), &["prefix part must be non-empty"]);
        check(&qualified_name("A/a"), &["prefix part a lowercase RFC 1123 subdomain"]);
        check(&qualified_name("a/b/c"), &["a valid label key must consist"]);
        check(&qualified_name(&"a".repeat(64)), &["name part must be no more than 63 bytes"]);
        check(&qualified_name("a b"), &["name part must consist"]);
        let long = format!("{}/a", "a".repeat(254));
        check(&qualified_name(&long), &["prefix part must be no more than 253 bytes"]);
    }

    #[test]
    fn values_and_keys() {
        check(&label_value(""), &[]);
        check(&label_value("-a"), &["a valid label must"]);
        check(&label_value(&"a".repeat(64)), &["must be no more than 63 bytes"]);
        check(&env_var_name("a b?"), &[]);
        check(&env_var_name(""), &["environment variable name must be non-empty"]);
        check(&env_var_name("a=b"), &["a valid environment variable name must"]);
        check(&config_map_key("..a"), &["must not start with '..'"]);
        check(&config_map_key(""), &["a valid config key must"]);
        check(&c_identifier("1a"), &["a valid C identifier"]);
        check(&http_header_name("X_Y"), &["a valid HTTP header"]);
        check(&path_segment("a/b%"), &["may not contain '/'", "may not contain '%'"]);
        check(&path_segment(".."), &["may not be '..'"]);
    }

    #[test]
    fn ports_and_ids() {
        check(&port_name("http"), &[]);
        check(
            &port_name("-8--0-"),
            &["must contain at least one letter", "must not contain consecutive", "must not begin or end"],
        );
        check(&port_name(&"a".repeat(16)), &["must be no more than 15 characters"]);
        check(&port_name(""), &["must contain only alpha-numeric", "must contain at least one letter"]);
        check(&port_number(0), &["must be between 1 and 65535, inclusive"]);
        check(&user_or_group_id(i64::from(i32::MAX) + 1), &["must be between 0 and 2147483647, inclusive"]);
    }
}
