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

/// An address.
pub(crate) fn ip(text: &str) -> Option<IpAddr> {
    parse_ip(text)
}

/// What is unusual about an address that is accepted for now.
pub(crate) fn ip_warning(text: &str, path: &Path) -> Option<String> {
    super::dns::ip_warning(text, path)
}
