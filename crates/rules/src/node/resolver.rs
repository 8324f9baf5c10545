//! How a pod finds addresses for names: its `resolv.conf`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

use crate::dns::DOMAIN;

/// So many servers, and domains to search, are used at most.
const MOST_SERVERS: usize = 3;
const MOST_SEARCHED: usize = 32;

/// The file of a pod: `host` is that of its machine, `server` the DNS server of its cluster.
pub fn configuration(pod: &Pod, host: &str, server: Ipv4Addr) -> String {
    let spec = pod.spec.as_ref();
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    let in_hosts_network = spec.and_then(|spec| spec.host_network) == Some(true);
    let asks_cluster = match policy {
        "ClusterFirst" => !in_hosts_network,
        "ClusterFirstWithHostNet" => true,
        _ => false,
    };
    let mut found = match policy {
        "None" => Configuration::default(),
        _ => Configuration::read(host),
    };
    if asks_cluster {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let own = [format!("{namespace}.svc.{DOMAIN}"), format!("svc.{DOMAIN}"), DOMAIN.to_owned()];
        found.servers = vec![server.to_string()];
        found.search = own.into_iter().chain(found.search).collect();
        found.options = BTreeMap::from([("ndots".to_owned(), Some("5".to_owned()))]);
    }
    if let Some(wanted) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        found.servers.extend(wanted.nameservers.iter().flatten().cloned());
        found.search.extend(wanted.searches.iter().flatten().cloned());
        for option in wanted.options.iter().flatten() {
            found.options.insert(option.name.clone().unwrap_or_default(), option.value.clone());
        }
    }
    found.write()
}

#[derive(Default)]
struct Configuration {
    servers: Vec<String>,
    search: Vec<String>,
    options: BTreeMap<String, Option<String>>,
}

impl Configuration {
    fn read(text: &str) -> Configuration {
        let mut found = Configuration::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => found.servers.extend(words.next().map(str::to_owned)),
                // The last one counts.
                Some("search" | "domain") => found.search = words.map(str::to_owned).collect(),
                Some("options") => {
                    let options = words.map(|word| match word.split_once(':') {
                        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                        None => (word.to_owned(), None),
                    });
                    found.options.extend(options);
                }
                _ => {}
            }
        }
        found
    }

    fn write(self) -> String {
        let mut lines = Vec::new();
        let once = |all: Vec<String>, most: usize| {
            let mut kept: Vec<String> = Vec::new();
            for one in all {
                if !kept.contains(&one) && kept.len() < most {
                    kept.push(one);
                }
            }
            kept
        };
        let search = once(self.search, MOST_SEARCHED);
        if !search.is_empty() {
            lines.push(format!("search {}", search.join(" ")));
        }
        for server in once(self.servers, MOST_SERVERS) {
            lines.push(format!("nameserver {server}"));
        }
        let options = self.options.into_iter().map(|(name, value)| match value.filter(|it| !it.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name,
        });
        let options: Vec<String> = options.collect();
        if !options.is_empty() {
            lines.push(format!("options {}", options.join(" ")));
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOST: &str =
        "# mine\ndomain old.example\nsearch example.com\nnameserver 192.0.2.1\noptions edns0\n";

    fn check(spec: Value, expected: &str) {
        let pod = json!({ "metadata": { "namespace": "ns" }, "spec": spec });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(configuration(&pod, HOST, Ipv4Addr::new(10, 96, 0, 10)), expected);
    }

    #[test]
    fn policies() {
        let cluster = "search ns.svc.cluster.local svc.cluster.local cluster.local example.com\n\
                       nameserver 10.96.0.10\noptions ndots:5\n";
        let host = "search example.com\nnameserver 192.0.2.1\noptions edns0\n";
        check(json!({ "containers": [] }), cluster);
        check(json!({ "containers": [], "dnsPolicy": "ClusterFirst", "hostNetwork": true }), host);
        check(
            json!({ "containers": [], "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }),
            cluster,
        );
        check(json!({ "containers": [], "dnsPolicy": "Default" }), host);
        let config = json!({
            "nameservers": ["1.1.1.1"], "searches": ["resolv.conf.local"],
            "options": [{ "name": "ndots", "value": "2" }, { "name": "rotate" }],
        });
        check(
            json!({ "containers": [], "dnsPolicy": "None", "dnsConfig": config }),
            "search resolv.conf.local\nnameserver 1.1.1.1\noptions ndots:2 rotate\n",
        );
        check(
            json!({ "containers": [], "dnsConfig": config }),
            "search ns.svc.cluster.local svc.cluster.local cluster.local example.com resolv.conf.local\n\
             nameserver 10.96.0.10\nnameserver 1.1.1.1\noptions ndots:2 rotate\n",
        );
    }
}
