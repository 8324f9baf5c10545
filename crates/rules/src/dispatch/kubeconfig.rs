//! Which kubeconfigs of worker clusters are refused: those that point outside themselves, and those that do not check
//! whom they talk to.

use serde_json::Value;

use crate::names;

/// Why a kubeconfig is refused (MK-CONN-03…05), in the order in which Kueue checks; the first thing that is wrong counts.
/// Besides what Kueue refuses, certificates and keys in files are refused too, for the reason that authorities in files
/// are, and so are servers that are not asked for a certificate at all (MK-CONN-06).
pub fn refuse(config: &Value) -> Result<(), String> {
    let entries = |list: &str, entry: &str| -> Vec<(String, Value)> {
        let items = config[list].as_array().into_iter().flatten();
        items.map(|item| (item["name"].as_str().unwrap_or("").to_owned(), item[entry].clone())).collect()
    };
    let (users, clusters) = (entries("users", "user"), entries("clusters", "cluster"));
    if users.iter().any(|(_, user)| is_set(&user["tokenFile"])) {
        return Err("tokenFile is not allowed".to_owned());
    }
    let mut clusters_by_name = clusters.iter().collect::<Vec<_>>();
    clusters_by_name.sort_by(|left, right| left.0.cmp(&right.0));
    for (name, cluster) in clusters_by_name {
        if cluster["insecure-skip-tls-verify"] == true {
            return Err(format!("insecure TLS verification is not allowed for cluster {name}"));
        }
        if is_set(&cluster["certificate-authority"]) {
            return Err(format!(
                "certificate-authority file paths are not allowed, use certificate-authority-data for cluster {name}"
            ));
        }
        if !is_set(&cluster["server"]) {
            return Err(format!("server URL is required for cluster {name}"));
        }
    }
    let (cluster, user) = effective(config, &clusters, &users)?;
    refuse_effective(&cluster, &user)
}

/// The cluster and the user of the current context.
fn effective(
    config: &Value,
    clusters: &[(String, Value)],
    users: &[(String, Value)],
) -> Result<(Value, Value), String> {
    let current = config["current-context"].as_str().unwrap_or("");
    let contexts = config["contexts"].as_array().into_iter().flatten();
    let context = contexts.into_iter().find(|context| context["name"] == *current);
    let Some(context) = context else {
        return Err(match current {
            "" => "invalid configuration: no configuration has been provided".to_owned(),
            name => format!("context {name:?} does not exist"),
        });
    };
    let find = |list: &[(String, Value)], name: &Value| {
        list.iter().find(|(other, _)| *name == **other).map(|(_, value)| value.clone())
    };
    let cluster = find(clusters, &context["context"]["cluster"]);
    let cluster =
        cluster.ok_or_else(|| format!("cluster {} does not exist", context["context"]["cluster"]))?;
    let user = find(users, &context["context"]["user"]).unwrap_or(Value::Null);
    Ok((cluster, user))
}

fn refuse_effective(cluster: &Value, user: &Value) -> Result<(), String> {
    if !is_trusted(cluster["server"].as_str().unwrap_or("")) {
        return Err("untrusted server endpoint".to_owned());
    }
    if is_set(&user["username"]) || is_set(&user["password"]) {
        return Err("basic auth is not allowed".to_owned());
    }
    if user["exec"].is_object() {
        return Err("exec plugins are not allowed".to_owned());
    }
    if user["auth-provider"].is_object() {
        return Err("auth providers are not allowed".to_owned());
    }
    if is_set(&user["client-certificate"]) || is_set(&user["client-key"]) {
        return Err("client certificate and key file paths are not allowed".to_owned());
    }
    Ok(())
}

/// A server is an https URL whose host is an address or a DNS name.
fn is_trusted(server: &str) -> bool {
    let server = server.to_lowercase();
    let Some(rest) = server.strip_prefix("https://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if authority.contains('@') {
        return false;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or(port)),
            None => return false,
        },
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let is_port = port.bytes().all(|digit| digit.is_ascii_digit());
    let is_host = host.parse::<std::net::IpAddr>().is_ok() || names::dns_subdomain(host).is_empty();
    is_port && is_host
}

fn is_set(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}
