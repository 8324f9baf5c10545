//! Addresses of networks, read as Kubernetes always did.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;
use types::go::quote;

use super::dns::{Canonical, parse_ip};
use crate::field::{Errors, Path};
use crate::names::Problems;

/// What is said of what is no address.
pub(crate) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// What is said of what is no network.
pub(crate) const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// The address of a network in CIDR notation; leading zeros and bits beyond the prefix are let pass.
pub(crate) fn cidr(text: &str) -> Option<IpAddr> {
    let (address, prefix) = text.split_once('/')?;
    let ip = parse_ip(address)?;
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && prefix.parse::<u32>().is_ok_and(|prefix| prefix <= bits)).then_some(ip)
}

/// An address of an interface with the size of its network, as Go prints both.
pub(crate) fn interface(text: &str) -> Option<String> {
    let ip = cidr(text)?;
    Some(printed(ip, text.rsplit_once('/')?.1.parse().ok()?))
}

fn printed(ip: IpAddr, size: u32) -> String {
    match short(ip) {
        Some(ip) if size > 32 => format!("{ip}/{}", size - 96),
        Some(ip) => format!("{ip}/{size}"),
        None => format!("{}/{size}", Canonical(ip)),
    }
}

/// An address of the old kind, also where it is written as one of the new.
fn short(ip: IpAddr) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
        IpAddr::V4(ip) => Some(ip),
    }
}

/// An address.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    parse_ip(text)
}

/// What is unusual about an address that is accepted for now.
pub(crate) fn ip_warning(text: &str, path: &Path) -> Option<String> {
    super::dns::ip_warning(text, path)
}

/// What is wrong with an address where newer rules hold: it is written in the one usual way.
pub(crate) fn strict_ip(text: &str) -> Problems {
    let Some(ip) = ip(text) else { return vec![NOT_AN_IP.to_owned()] };
    if text.parse::<IpAddr>().is_err() {
        return vec!["must not have leading 0s".to_owned()];
    }
    if ip.is_ipv6() && short(ip).is_some() {
        return vec!["must not be an IPv4-mapped IPv6 address".to_owned()];
    }
    not_usual(text, &Canonical(ip).to_string())
}

/// The same of a network.
pub(crate) fn strict_cidr(text: &str, path: &Path) -> Errors {
    strict_cidr_problems(text).into_iter().map(|why| path.invalid(text, why)).collect()
}

fn strict_cidr_problems(text: &str) -> Problems {
    let Some(ip) = cidr(text) else { return vec![NOT_A_CIDR.to_owned()] };
    let (address, size) = text.split_once('/').unwrap_or((text, ""));
    let bits = size.parse().unwrap_or(0);
    if address.parse::<IpAddr>().is_err() || (size.len() > 1 && size.starts_with('0')) {
        return vec!["must not have leading 0s in IP or prefix length".to_owned()];
    }
    if ip.is_ipv6() && short(ip).is_some() {
        return vec!["must not have an IPv4-mapped IPv6 address".to_owned()];
    }
    if first_of(ip, bits) != ip {
        return vec!["must not have bits set beyond the prefix length".to_owned()];
    }
    not_usual(text, &printed(ip, bits))
}

fn not_usual(text: &str, usual: &str) -> Problems {
    if text == usual {
        return Problems::new();
    }
    vec![format!("must be in canonical form ({})", quote(usual))]
}

/// What is unusual about a network that is accepted for now.
pub(crate) fn cidr_warnings(text: &str, path: &Path) -> Vec<String> {
    let network = || {
        let (address, size) = text.split_once('/')?;
        Some((cidr(text)?, address, size, size.parse::<u32>().ok()?))
    };
    let Some((ip, address, size, bits)) = network() else { return Vec::new() };
    let first = first_of(ip, bits);
    let (shown, usual) = (quote(text), quote(&printed(first, bits)));
    let mut warnings = Vec::new();
    if ip != first {
        let all = if ip.is_ipv4() { 32 } else { 128 };
        let alone = short(ip).map_or_else(|| Canonical(ip).to_string(), |ip| ip.to_string());
        let alone = quote(&format!("{alone}/{all}"));
        warnings.push(format!(
            "{path}: CIDR value {shown} is ambiguous in this context (should be {usual} or {alone}?)"
        ));
    }
    let is_strict = address.parse::<IpAddr>().is_ok() && (size.len() == 1 || !size.starts_with('0'));
    if !is_strict || (ip.is_ipv6() && short(ip).is_some()) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {shown} will be considered invalid in a future Kubernetes release: use \
             {usual}"
        ));
    }
    let canonical = format!("{}/{bits}", Canonical(ip));
    if warnings.is_empty() && ip.is_ipv6() && canonical != text {
        let canonical = quote(&canonical);
        warnings.push(format!(
            "{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({canonical})"
        ));
    }
    warnings
}

/// The same of a list of networks, at its path in an object.
pub(crate) fn cidrs_warnings(object: &Value, [parent, field]: &[&str; 2]) -> Vec<String> {
    let path = Path::new(parent).child(field);
    let all = object[*parent][*field].as_array().into_iter().flatten().filter_map(Value::as_str).enumerate();
    all.flat_map(|(i, text)| cidr_warnings(text, &path.index(i))).collect()
}

/// The first address of the network that an address is in.
fn first_of(ip: IpAddr, bits: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            Ipv4Addr::from(u32::from(ip) & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            Ipv6Addr::from(u128::from(ip) & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_interfaces_are_printed_as_go_prints_them() {
        for (text, usual) in [
            ("10.9.8.7/24", Some("10.9.8.7/24")),
            ("010.9.8.7/24", Some("10.9.8.7/24")),
            ("2001:DB8::1/64", Some("2001:db8::1/64")),
            ("::ffff:192.168.0.1/120", Some("192.168.0.1/24")),
            ("10.9.8.7", None),
            ("10.9.8.7/33", None),
        ] {
            assert_eq!(interface(text).as_deref(), usual, "{text}");
        }
    }

    #[test]
    fn newer_rules_know_one_way_to_write_an_address() {
        let check = |found: Problems, expected: &str| assert_eq!(found.join("; "), expected);
        check(strict_ip("10.0.0.1"), "");
        check(strict_ip("2001:db8::1"), "");
        check(strict_ip("x"), NOT_AN_IP);
        check(strict_ip("010.0.0.1"), "must not have leading 0s");
        check(strict_ip("::ffff:1.2.3.4"), "must not be an IPv4-mapped IPv6 address");
        check(strict_ip("2001:DB8::1"), "must be in canonical form (\"2001:db8::1\")");
        check(strict_cidr_problems("10.0.0.0/24"), "");
        check(strict_cidr_problems("2001:db8::/64"), "");
        check(strict_cidr_problems("10.0.0.0"), NOT_A_CIDR);
        check(strict_cidr_problems("10.0.0.0/08"), "must not have leading 0s in IP or prefix length");
        check(strict_cidr_problems("010.0.0.0/8"), "must not have leading 0s in IP or prefix length");
        check(strict_cidr_problems("::ffff:1.2.3.0/120"), "must not have an IPv4-mapped IPv6 address");
        check(strict_cidr_problems("10.0.0.1/24"), "must not have bits set beyond the prefix length");
        check(strict_cidr_problems("2001:DB8::/64"), "must be in canonical form (\"2001:db8::/64\")");
    }

    #[test]
    fn networks_that_will_be_refused_some_day() {
        let later = "will be considered invalid in a future Kubernetes release: use";
        for (text, expected) in [
            ("10.0.0.0/8", vec![]),
            ("2001:db8::/32", vec![]),
            ("0.0.0.0/0", vec![]),
            ("::/0", vec![]),
            ("nothing", vec![]),
            (
                "10.0.0.1/8",
                vec![r#"CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#.to_owned()],
            ),
            ("010.0.0.0/8", vec![format!(r#"non-standard CIDR value "010.0.0.0/8" {later} "10.0.0.0/8""#)]),
            ("10.0.0.0/08", vec![format!(r#"non-standard CIDR value "10.0.0.0/08" {later} "10.0.0.0/8""#)]),
            (
                "::ffff:1.2.3.4/120",
                vec![
                    r#"CIDR value "::ffff:1.2.3.4/120" is ambiguous in this context (should be "1.2.3.0/24" or "1.2.3.4/128"?)"#.to_owned(),
                    format!(r#"non-standard CIDR value "::ffff:1.2.3.4/120" {later} "1.2.3.0/24""#),
                ],
            ),
            (
                "2001:DB8::/32",
                vec![r#"IPv6 CIDR value "2001:DB8::/32" should be in RFC 5952 canonical format ("2001:db8::/32")"#.to_owned()],
            ),
        ] {
            let expected: Vec<String> = expected.into_iter().map(|why| format!("p: {why}")).collect();
            assert_eq!(cidr_warnings(text, &Path::new("p")), expected, "{text}");
        }
    }
}
