//! Names and addresses of a pod and of what it talks to: DNS settings, host aliases, host names, host ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::{HostAlias, PodDNSConfig, PodSpec};

use super::{Options, named};
use crate::field::{Errors, Path, Value};
use crate::names;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

/// How a pod resolves names.
pub(super) fn validate_config(config: Option<&PodDNSConfig>, policy: &str, path: &Path) -> Errors {
    let servers = config.and_then(|config| config.nameservers.as_deref()).unwrap_or_default();
    if policy == "None" {
        if config.is_none() {
            return vec![path.required("must provide `dnsConfig` when `dnsPolicy` is None")];
        }
        if servers.is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return vec![path.child("nameservers").required(why)];
        }
    }
    let Some(config) = config else { return Errors::new() };
    let mut errors = Errors::new();
    if servers.len() > MAX_NAMESERVERS {
        let why = format!("must not have more than {MAX_NAMESERVERS} nameservers");
        errors.push(path.child("nameservers").invalid(Value::json(&servers), why));
    }
    for (i, server) in servers.iter().enumerate() {
        errors.extend(ip(server, &path.child("nameservers").index(i)));
    }
    errors.extend(searches(config.searches.as_deref().unwrap_or_default(), &path.child("searches")));
    for (i, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_ref().is_none_or(String::is_empty) {
            errors.push(path.child("options").index(i).required("must not be empty"));
        }
    }
    errors
}

fn searches(searches: &[String], path: &Path) -> Errors {
    let mut errors = Errors::new();
    if searches.len() > MAX_SEARCHES {
        let why = format!("must not have more than {MAX_SEARCHES} search paths");
        errors.push(path.invalid(Value::json(&searches), why));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let why = format!(
            "must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        );
        errors.push(path.invalid(Value::json(&searches), why));
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.extend(named(&path.index(i), search, names::dns_subdomain_with_underscore));
    }
    errors
}

/// Lines for a pod's `/etc/hosts`.
pub(super) fn validate_host_aliases(aliases: &[HostAlias], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, alias) in aliases.iter().enumerate() {
        errors.extend(ip(&alias.ip, &path.index(i).child("ip")));
        for (j, hostname) in alias.hostnames.iter().flatten().enumerate() {
            errors.extend(named(&path.index(i).child("hostnames").index(j), hostname, names::dns_subdomain));
        }
    }
    errors
}

pub(super) fn ip(address: &str, path: &Path) -> Errors {
    if parse_ip(address).is_some() {
        return Errors::new();
    }
    vec![path.invalid(address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
}

/// Reads an address as Kubernetes always did, leading zeros in dotted parts included.
pub(super) fn parse_ip(address: &str) -> Option<IpAddr> {
    let plain = |octets: &str| -> Option<Ipv4Addr> {
        let octets: Vec<u8> = octets.split('.').map(octet).collect::<Option<_>>()?;
        <[u8; 4]>::try_from(octets).ok().map(Ipv4Addr::from)
    };
    match address.find(['.', ':'])? {
        at if address[at..].starts_with('.') => plain(address).map(IpAddr::V4),
        _ => match address.rsplit_once(':') {
            Some((head, tail)) if tail.contains('.') => {
                let tail = plain(tail)?;
                format!("{head}:{tail}").parse::<Ipv6Addr>().ok().map(IpAddr::V6)
            }
            _ => address.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        },
    }
}

fn octet(digits: &str) -> Option<u8> {
    let significant = digits.trim_start_matches('0');
    match significant {
        "" if digits.is_empty() => None,
        "" => Some(0),
        _ if significant.bytes().all(|b| b.is_ascii_digit()) => significant.parse().ok(),
        _ => None,
    }
}

/// What is unusual about an address that is accepted for now.
pub(super) fn ip_warning(address: &str, path: &Path) -> Option<String> {
    let ip = parse_ip(address)?;
    let quoted = types::go::quote(address);
    let strict: Option<IpAddr> = address.parse().ok();
    let mapped = match ip {
        IpAddr::V6(ip) => ip.to_ipv4_mapped(),
        IpAddr::V4(_) => None,
    };
    if strict.is_none() || mapped.is_some() {
        let usual = mapped.map_or_else(|| Canonical(ip).to_string(), |ip| ip.to_string());
        return Some(format!(
            "{path}: non-standard IP address {quoted} will be considered invalid in a future Kubernetes release: use \
             \"{usual}\""
        ));
    }
    let usual = Canonical(ip).to_string();
    (ip.is_ipv6() && usual != address).then(|| {
        format!("{path}: IPv6 address {quoted} should be in RFC 5952 canonical format (\"{usual}\")")
    })
}

/// Prints an address as Go does, which never shows the dotted form for the last two parts of an IPv6 address.
pub(super) struct Canonical(pub(super) IpAddr);

impl fmt::Display for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IpAddr::V6(ip) = self.0 else { return self.0.fmt(f) };
        let parts = ip.segments();
        let (mut zeros, mut run) = (0..0, 0..0);
        for (i, part) in parts.iter().enumerate() {
            run = if *part == 0 { run.start..i + 1 } else { i + 1..i + 1 };
            if run.len() > zeros.len() && run.len() > 1 {
                zeros = run.clone();
            }
        }
        let hex = |parts: &[u16]| parts.iter().map(|part| format!("{part:x}")).collect::<Vec<_>>().join(":");
        if zeros.is_empty() {
            return f.write_str(&hex(&parts));
        }
        write!(f, "{}::{}", hex(&parts[..zeros.start]), hex(&parts[zeros.end..]))
    }
}

/// The ports of containers in the host's network are the host's ports.
pub(super) fn validate_host_network(spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if spec.host_network != Some(true) {
        return errors;
    }
    for (i, container) in spec.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let host_port = port.host_port.unwrap_or(0);
            // In a template it may be left open; the pod made from it gets it by default.
            if (options.is_pod || host_port != 0) && host_port != port.container_port {
                let path = path.child("containers").index(i).child("ports").index(j).child("hostPort");
                errors.push(path.invalid(host_port, "must match `containerPort` when `hostNetwork` is true"));
            }
        }
    }
    errors
}

/// A host name of the author's choice, instead of the pod's name.
pub(super) fn validate_hostname_override(spec: &PodSpec, path: &Path) -> Errors {
    let Some(hostname) = &spec.hostname_override else { return Errors::new() };
    let path = path.child("hostnameOverride");
    let mut errors = Errors::new();
    if spec.set_hostname_as_fqdn == Some(true) {
        errors.push(path.forbidden("may not be specified when setHostnameAsFQDN is true"));
    }
    if spec.host_network == Some(true) {
        errors.push(path.forbidden("may not be specified when hostNetwork is true"));
    }
    if hostname.len() > 64 {
        errors.push(path.too_long(64));
    }
    errors.extend(named(&path, hostname, names::dns_subdomain));
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{check_pod, check_spec};
    use super::*;

    #[test]
    fn c_63_resolvers() {
        check_pod(
            json!({"dnsPolicy": "None"}),
            &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
        );
        check_pod(
            json!({"dnsPolicy": "None", "dnsConfig": {}}),
            &["spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver"],
        );
        check_pod(
            json!({"dnsPolicy": "Mine", "dnsConfig": {"nameservers": ["1.1.1.1", "01.1.1.1", "::1", "x"],
                "searches": [".", "_tcp.a.", "A"], "options": [{"value": "1"}]}}),
            &[
                r#"spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None""#,
                r#"spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","01.1.1.1","::1","x"]: must not have more than 3"#,
                r#"spec.dnsConfig.nameservers[3]: Invalid value: "x": must be a valid IP address"#,
                r#"spec.dnsConfig.searches[2]: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                "spec.dnsConfig.options[0]: Required value: must not be empty",
            ],
        );
    }

    #[test]
    fn c_63_hosts() {
        check_pod(
            json!({"hostAliases": [{"ip": "1.2.3", "hostnames": ["A"]}]}),
            &[
                r#"spec.hostAliases[0].ip: Invalid value: "1.2.3": must be a valid IP address"#,
                r#"spec.hostAliases[0].hostnames[0]: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
            ],
        );
        check_pod(
            json!({"hostnameOverride": "A", "setHostnameAsFQDN": true, "hostNetwork": true}),
            &[
                "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
                "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
                r#"spec.hostnameOverride: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
            ],
        );
        check_spec(
            json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": [
                {"containerPort": 1}, {"containerPort": 2, "hostPort": 3}]}]}),
            &[
                "spec.containers[0].ports[1].hostPort: Invalid value: 3: must match `containerPort` when `hostNetwork` is true",
            ],
        );
    }

    #[test]
    fn c_63_addresses() {
        for (address, valid) in [
            ("1.2.3.4", true),
            ("001.02.3.4", true),
            ("1.2.3.256", false),
            ("1.2.3.4.5", false),
            ("1.2.3.", false),
            ("::", true),
            ("::ffff:1.2.3.04", true),
            ("1::2::3", false),
            ("fe80::1%eth0", false),
            ("", false),
            ("1", false),
        ] {
            assert_eq!(parse_ip(address).is_some(), valid, "{address}");
        }
        let warning = |address: &str| ip_warning(address, &Path::new("ip"));
        assert_eq!(warning("1.2.3.4"), None);
        assert_eq!(warning("2001:db8::1"), None);
        for (address, says) in [
            (
                "01.2.3.4",
                r#"ip: non-standard IP address "01.2.3.4" will be considered invalid in a future Kubernetes release: use "1.2.3.4""#,
            ),
            (
                "::ffff:1.2.3.4",
                r#"ip: non-standard IP address "::ffff:1.2.3.4" will be considered invalid in a future Kubernetes release: use "1.2.3.4""#,
            ),
            (
                "2001:DB8::1",
                r#"ip: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")"#,
            ),
            (
                "0:0::1.2.3.4",
                r#"ip: IPv6 address "0:0::1.2.3.4" should be in RFC 5952 canonical format ("::102:304")"#,
            ),
        ] {
            assert_eq!(warning(address).as_deref(), Some(says));
        }
    }
}
