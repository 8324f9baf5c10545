//! What a pod is called: by others, in its file of hosts, and by its own kernel.

use k8s_openapi::api::core::v1::Pod;

use crate::dns::DOMAIN;

/// The longest name of a host.
const LONGEST: usize = 63;
/// And the longest with its domain.
const LONGEST_WITH_DOMAIN: usize = 64;

/// The name of a pod without its domain.
pub fn short(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let chosen = spec.and_then(|spec| spec.hostname_override.as_ref().or(spec.hostname.as_ref()));
    let own = chosen.filter(|name| !name.is_empty()).or(pod.metadata.name.as_ref());
    cut(own.map_or("", String::as_str))
}

/// The domain of a pod that has a name in its cluster.
pub fn domain(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref().filter(|spec| spec.hostname_override.is_none())?;
    let subdomain = spec.subdomain.as_ref().filter(|name| !name.is_empty())?;
    Some(format!("{subdomain}.{}.svc.{DOMAIN}", pod.metadata.namespace.as_deref()?))
}

/// What `hostname` says in its containers: the name of their node if they are in its network, with the domain if the pod
/// asks for that; or why it cannot be called so.
pub fn of_kernel(pod: &Pod, node: &str) -> Result<String, String> {
    let is = |asked: Option<bool>| asked == Some(true);
    let spec = pod.spec.as_ref();
    if is(spec.and_then(|spec| spec.host_network)) {
        return Ok(cut(node));
    }
    let short = short(pod);
    let domain = domain(pod).filter(|_| is(spec.and_then(|spec| spec.set_hostname_as_fqdn)));
    let Some(domain) = domain else { return Ok(short) };
    let whole = format!("{short}.{domain}");
    if whole.len() > LONGEST_WITH_DOMAIN {
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {whole} is too long \
             ({LONGEST_WITH_DOMAIN} characters is the max, {} characters requested)",
            whole.len()
        ));
    }
    Ok(whole)
}

fn cut(name: &str) -> String {
    let name: String = name.chars().take(LONGEST).collect();
    name.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names() {
        let check = |spec: Value, expected: (&str, Option<&str>, &str)| {
            let pod = json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": spec });
            let mut pod: Pod = serde_json::from_value(pod).expect("a pod");
            pod.spec.get_or_insert_default();
            let kernel = of_kernel(&pod, "node").expect("a name");
            assert_eq!((short(&pod).as_str(), domain(&pod).as_deref(), kernel.as_str()), expected, "{spec}");
        };
        let spec = |mut own: Value| {
            own["containers"] = json!([]);
            own
        };
        let whole = Some("s.n.svc.cluster.local");
        check(spec(json!({})), ("p", None, "p"));
        check(spec(json!({ "hostname": "h" })), ("h", None, "h"));
        check(spec(json!({ "hostname": "h", "setHostnameAsFQDN": true })), ("h", None, "h"));
        check(spec(json!({ "hostname": "h", "subdomain": "s" })), ("h", whole, "h"));
        let all = json!({ "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true });
        check(spec(all), ("h", whole, "h.s.n.svc.cluster.local"));
        let own = json!({ "hostnameOverride": "db.example", "hostname": "h", "subdomain": "s" });
        check(spec(own), ("db.example", None, "db.example"));
        check(spec(json!({ "hostNetwork": true, "hostname": "h" })), ("h", None, "node"));
        check(spec(json!({ "hostname": "" })), ("p", None, "p"));
    }

    #[test]
    fn long_names_are_cut_but_for_those_with_a_domain() {
        let pod = |name: &str, subdomain: &str| -> Pod {
            let spec = json!({ "containers": [], "subdomain": subdomain, "setHostnameAsFQDN": true });
            let metadata = json!({ "name": name, "namespace": "n" });
            serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a pod")
        };
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(10));
        assert_eq!(of_kernel(&pod(&long, ""), ""), Ok("a".repeat(62)));
        let name = "a".repeat(42);
        assert_eq!(of_kernel(&pod(&name, "s"), "").map(|name| name.len()), Ok(64));
        let why = of_kernel(&pod(&format!("{name}a"), "s"), "").expect_err("it is too long");
        assert!(why.ends_with("is too long (64 characters is the max, 65 characters requested)"), "{why}");
    }
}
