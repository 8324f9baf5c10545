//! The values that Kubernetes' own libraries bring along: CIDRs, URLs, semantic versions and named formats.

use std::{cmp::Ordering, fmt, net::IpAddr};

use rules::names;

use crate::crd::formats;

/// Reads an address as Kubernetes' strict parser does: no zone, no leading zeros, no IPv4 in IPv6.
pub(super) fn ip(text: &str) -> Option<IpAddr> {
    match text.parse().ok()? {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => None,
        address => Some(address),
    }
}

/// A block of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
}

impl Cidr {
    /// Reads `10.0.0.0/8`.
    pub(super) fn parse(text: &str) -> Option<Cidr> {
        let (address, digits) = text.split_once('/')?;
        let address = ip(address)?;
        let canonical = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let canonical = canonical && (digits == "0" || !digits.starts_with('0'));
        let prefix: u8 = if canonical { digits.parse().ok()? } else { return None };
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some(Cidr { address, prefix })
    }

    fn bits(address: IpAddr, prefix: u8) -> u128 {
        let (bits, width) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        bits.checked_shr(width - u32::from(prefix)).unwrap_or(0)
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Cidr::bits(self.address, self.prefix) == Cidr::bits(address, self.prefix)
    }

    pub(super) fn contains_block(self, other: Cidr) -> bool {
        other.prefix >= self.prefix && self.contains(other.address)
    }

    pub(super) fn masked(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Cidr { address, ..self }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// An absolute URL, or an absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub(super) scheme: String,
    pub(super) host: String,
    pub(super) path: String,
    query: String,
}

impl Url {
    /// Reads a URL as Go's `url.ParseRequestURI` does.
    pub(super) fn parse(text: &str) -> Option<Url> {
        if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return None;
        }
        let (scheme, rest) = match text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))) {
            Some(0) | None => ("", text),
            Some(colon)
                if text[colon..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) =>
            {
                (&text[..colon], &text[colon + 1..])
            }
            Some(_) => ("", text),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A request URI has a scheme or begins with a slash.
        if !rest.starts_with('/') {
            return None;
        }
        let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
            None => ("", rest),
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let port = host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map(|(_, port)| port);
        let good_port = port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()));
        if !good_port
            || host.contains([' ', '<', '>', '"'])
            || !percent_encoded(path)
            || !percent_encoded(host)
        {
            return None;
        }
        let path = path.replace(' ', "%20").replace('"', "%22");
        Some(Url {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path,
            query: query.to_owned(),
        })
    }

    pub(super) fn hostname(&self) -> &str {
        match self.host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    pub(super) fn port(&self) -> &str {
        let after = self.host.rsplit(']').next().unwrap_or_default();
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// The query's keys with all their values, in the order in which they first stand.
    pub(super) fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(key), Some(value)) = (decoded(key), decoded(value)) else { continue };
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => found.push((key, vec![value])),
            }
        }
        found
    }
}

fn percent_encoded(text: &str) -> bool {
    let hex = |part: &str| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    text.split('%').skip(1).all(hex)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let code = std::str::from_utf8(tail.get(..2)?).ok()?;
                rest = &tail[2..];
                u8::from_str_radix(code, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A version as semver.org has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    pub(super) numbers: [u64; 3],
    pre: Vec<String>,
    build: Vec<String>,
}

impl Semver {
    /// Reads a version; with `normalize` a leading `v`, missing parts and leading zeros are forgiven.
    pub(super) fn parse(text: &str, normalize: bool) -> Option<Semver> {
        let text = if normalize { text.strip_prefix('v').unwrap_or(text) } else { text };
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let mut parts: Vec<&str> = core.split('.').collect();
        if normalize && pre.is_none() && build.is_none() {
            parts.resize(parts.len().max(3), "0");
        }
        let mut numbers = [0; 3];
        if parts.len() != 3 {
            return None;
        }
        for (number, part) in numbers.iter_mut().zip(parts) {
            let stripped = if normalize { part.trim_start_matches('0') } else { part };
            let part = if stripped.is_empty() && !part.is_empty() { "0" } else { stripped };
            let canonical =
                part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
            *number = if canonical { part.parse().ok()? } else { return None };
        }
        let (pre, build) = (identifiers(pre)?, identifiers(build)?);
        let zeros =
            |id: &String| id.len() > 1 && id.starts_with('0') && id.bytes().all(|b| b.is_ascii_digit());
        (!pre.iter().any(zeros)).then_some(Semver { numbers, pre, build })
    }

    /// The order of versions; builds take no part.
    pub(super) fn compare(&self, other: &Semver) -> Ordering {
        let pre = || match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let differing = self.pre.iter().zip(&other.pre).map(|(a, b)| compare_identifiers(a, b));
                differing.fold(Ordering::Equal, Ordering::then).then(self.pre.len().cmp(&other.pre.len()))
            }
        };
        self.numbers.cmp(&other.numbers).then_with(pre)
    }
}

fn identifiers(text: Option<&str>) -> Option<Vec<String>> {
    let Some(text) = text else { return Some(Vec::new()) };
    let good = |id: &str| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    text.split('.').map(|id| good(id).then(|| id.to_owned())).collect()
}

fn compare_identifiers(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

/// A format of the `format` library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format(&'static str);

const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

impl Format {
    pub(super) fn named(name: &str) -> Option<Format> {
        FORMATS.iter().find(|known| **known == name).map(|known| Format(known))
    }

    /// What is wrong with `text`; nothing if it has the format.
    pub(super) fn validate(self, text: &str) -> Vec<String> {
        let unless = |good: bool, message: &str| if good { Vec::new() } else { vec![message.to_owned()] };
        match self.0 {
            "dns1123Label" => names::dns_label(text),
            "dns1123Subdomain" => names::dns_subdomain(text),
            "dns1035Label" => names::dns_1035_label(text),
            "qualifiedName" => names::qualified_name(text),
            "dns1123LabelPrefix" => names::as_prefix(text, names::dns_label),
            "dns1123SubdomainPrefix" => names::as_prefix(text, names::dns_subdomain),
            "dns1035LabelPrefix" => names::as_prefix(text, names::dns_1035_label),
            "labelValue" => names::label_value(text),
            "uri" => unless(Url::parse(text).is_some(), "invalid URI for request"),
            "uuid" => unless(formats::matches("uuid", text), "does not match the UUID format"),
            "byte" => unless(formats::matches("byte", text), "invalid base64"),
            "date" => unless(formats::matches("date", text), "invalid date"),
            _ => unless(formats::matches("datetime", text), "invalid datetime"),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_blocks() {
        assert!(ip("10.0.0.1").is_some() && ip("::1").is_some());
        assert!(ip("010.0.0.1").is_none() && ip("::ffff:1.2.3.4").is_none() && ip("fe80::1%eth0").is_none());
        let block = Cidr::parse("10.1.2.3/16").expect("a block");
        assert_eq!(block.masked().to_string(), "10.1.0.0/16");
        assert!(block.contains(ip("10.1.9.9").expect("an address")));
        assert!(!block.contains_block(Cidr::parse("10.0.0.0/8").expect("a block")));
        assert!(Cidr::parse("::/0").expect("all").contains_block(Cidr::parse("1::/128").expect("one")));
        assert!(Cidr::parse("10.0.0.0/33").is_none() && Cidr::parse("10.0.0.0/08").is_none());
    }

    #[test]
    fn urls_as_go_reads_them() {
        let url = Url::parse("https://u@x.example.com:80/a%20b?q=1&q=2&r=%2F").expect("a URL");
        assert_eq!(
            (url.scheme.as_str(), url.host.as_str(), url.hostname()),
            ("https", "x.example.com:80", "x.example.com")
        );
        assert_eq!((url.port(), url.path.as_str()), ("80", "/a%20b"));
        assert_eq!(url.query()[0].1, ["1", "2"]);
        assert_eq!(Url::parse("https://[::1]:8/").expect("a URL").hostname(), "::1");
        assert!(Url::parse("/path").is_some());
        for wrong in ["nope", "", "../x", "https://x:port/", "https://x/%zz"] {
            assert!(Url::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn versions_in_their_order() {
        let ordered =
            ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-rc.1", "1.0.0", "1.0.1", "2.0.0"];
        for pair in ordered.windows(2) {
            let [a, b] = [pair[0], pair[1]].map(|text| Semver::parse(text, false).expect("a version"));
            assert_eq!(a.compare(&b), Ordering::Less, "{pair:?}");
        }
        assert!(Semver::parse("v1.2", false).is_none() && Semver::parse("v1.2", true).is_some());
        assert!(Semver::parse("01.2.3", false).is_none() && Semver::parse("1.2.3.4", true).is_none());
    }
}
