//! Addresses of networks, read as Kubernetes always did.

use std::net::IpAddr;

use super::dns::parse_ip;
use crate::field::Path;

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
    let size: u32 = text.rsplit_once('/')?.1.parse().ok()?;
    let mapped = match ip {
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
        IpAddr::V4(ip) => Some(ip),
    };
    Some(match mapped {
        Some(ip) if size > 32 => format!("{ip}/{}", size - 96),
        Some(ip) => format!("{ip}/{size}"),
        None => format!("{}/{size}", super::dns::Canonical(ip)),
    })
}

/// An address.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    parse_ip(text)
}

/// What is unusual about an address that is accepted for now.
pub(crate) fn ip_warning(text: &str, path: &Path) -> Option<String> {
    super::dns::ip_warning(text, path)
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
}
