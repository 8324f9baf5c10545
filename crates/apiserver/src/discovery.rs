//! What a cluster tells about itself: health, version, and what it serves (1.8–1.16).

use http::{HeaderValue, Method, StatusCode, header, request};
use serde_json::{Map, Value, json};

use crate::aggregator::Groups;
use crate::answer::{self, Answer};
use crate::cluster::Cluster;
use crate::health;
use crate::registry::{Registry, Resource, preference};
use crate::status::Refusal;
use crate::{metrics, openapi};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The order of groups, which decides what `kubectl get` means by a name that stands in several (1.15).
const GROUPS: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

pub(crate) fn answer(cluster: &Cluster, path: &str, head: &request::Parts) -> Result<Answer, Refusal> {
    let registry = &*cluster.registry();
    let others = &Groups::of(cluster);
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = wants_aggregated(head);
    let is_read = head.method == Method::GET;
    if !is_exact(path) {
        return Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
    }
    match parts.as_slice() {
        [] | ["index.html"] => Ok(index(registry, others)),
        ["api", version] if !is_read && is_served(registry, "", version) => {
            Err(Refusal::method_not_allowed())
        }
        ["apis", group, version] if !is_read && is_served(registry, group, version) => {
            Err(Refusal::method_not_allowed())
        }
        ["api", _, "watch"] | ["apis", _, _, "watch"] => {
            let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
            let text = format!("Internal Server Error: {}: {why}, {path}\n", types::go::quote(path));
            Ok(answer::text(StatusCode::INTERNAL_SERVER_ERROR, text))
        }
        [place @ ("healthz" | "livez" | "readyz"), rest @ ..] => {
            Ok(health::answer(cluster, place, rest, head))
        }
        ["metrics"] if is_read => Ok(metrics::answer(cluster, head)),
        ["openapi", path @ ..] => openapi::answer(cluster, path, head),
        ["version"] => Ok(answer::value(StatusCode::OK, &version())),
        ["apis", group] if !registry.has_group(group) && others.get(group).is_none() => {
            Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"))
        }
        ["api" | "apis"] | ["apis", _] if !aggregated && !takes_lists(head) => {
            Err(Refusal::not_acceptable(&[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ]))
        }
        ["api"] if aggregated => Ok(aggregated_answer(registry, others, &[""], head)),
        ["apis"] if aggregated => Ok(aggregated_answer(registry, others, &groups(registry, others), head)),
        ["api"] => Ok(answer::value(
            StatusCode::OK,
            &json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address(head)}],
            }),
        )),
        ["apis"] => {
            let list: Vec<Value> =
                groups(registry, others).iter().map(|group| api_group(registry, others, group)).collect();
            Ok(answer::value(
                StatusCode::OK,
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}),
            ))
        }
        ["api", version] => resource_list(registry, "", version),
        ["apis", group] => {
            let mut found = api_group(registry, others, group);
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            Ok(answer::value(StatusCode::OK, &found))
        }
        ["apis", group, version] => resource_list(registry, group, version),
        _ => Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// Whether a path is one as far as its slashes go: what tells of groups and versions does not mind some more at its end.
fn is_exact(path: &str) -> bool {
    let minds = |place: &str| path.trim_start_matches('/').split('/').next() == Some(place);
    let is_strict = ["healthz", "livez", "readyz", "metrics", "openapi", "index.html"].into_iter().any(minds);
    let begins_with = |start: &str| path.starts_with(start);
    !(begins_with("//") || begins_with("/apis//") || is_strict && path.ends_with('/'))
}

/// All paths by which something is told (1.9).
fn index(registry: &Registry, others: &Groups) -> Answer {
    let fixed = ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/", "/metrics"];
    let more = ["/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/version"];
    let mut paths: Vec<String> = fixed.into_iter().chain(more).map(str::to_owned).collect();
    for group in groups(registry, others) {
        paths.push(format!("/apis/{group}"));
        paths.extend(
            versions(registry, others, group).iter().map(|version| format!("/apis/{group}/{version}")),
        );
    }
    for place in ["healthz", "livez", "readyz"] {
        paths.push(format!("/{place}"));
        paths.extend(health::parts(place).map(|part| format!("/{place}/{part}")));
    }
    paths.sort_unstable();
    answer::json(StatusCode::OK, serde_json::to_vec_pretty(&json!({"paths": paths})).expect("JSON prints"))
}

fn is_served(registry: &Registry, group: &str, version: &str) -> bool {
    registry.iter().any(|resource| resource.group == group && resource.version == version)
}

/// Where the server is, as whoever asks has found it.
fn server_address(head: &request::Parts) -> &str {
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    head.uri.authority().map(http::uri::Authority::as_str).or(host).unwrap_or("127.0.0.1")
}

fn version() -> Value {
    let pack = schema::Pack::v1_35().version();
    json!({
        "major": "1", "minor": "35", "gitVersion": format!("{pack}+ferry"), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
        "emulationMajor": "1", "emulationMinor": "35", "minCompatibilityMajor": "1", "minCompatibilityMinor": "34",
    })
}

fn wants_aggregated(head: &request::Parts) -> bool {
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    accept.split(',').any(|clause| {
        let parts: Vec<&str> = clause.split(';').map(str::trim).collect();
        ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"].iter().all(|part| parts.contains(part))
    })
}

/// Whether a client takes the plain lists: one that wants them as something else, which is not served, does not.
fn takes_lists(head: &request::Parts) -> bool {
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    accept.split(',').any(|clause| !clause.split(';').any(|part| part.trim().starts_with("as=")))
}

/// The groups that are served, here or by others, in the order that clients look through them.
fn groups<'a>(registry: &'a Registry, others: &'a Groups) -> Vec<&'a str> {
    let own = registry.iter().map(|resource| resource.group.as_str()).filter(|group| !group.is_empty());
    let mut found: Vec<&str> = own.chain(others.names()).collect();
    let place = |group: &str| GROUPS.iter().position(|known| *known == group).unwrap_or(GROUPS.len());
    found.sort_by_key(|group| (place(group), others.place(group), *group));
    found.dedup();
    found
}

/// The versions of a group, the preferred one first: stable ones before others, higher ones before lower, unless others
/// serve some of them, who say what comes first.
fn versions<'a>(registry: &'a Registry, others: &'a Groups, group: &str) -> Vec<&'a str> {
    let mut found: Vec<&str> =
        registry.iter().filter(|r| r.group == group).map(|r| r.version.as_str()).collect();
    found.sort_by_key(|version| std::cmp::Reverse(preference(version)));
    found.dedup();
    if others.get(group).is_none() { found } else { others.versions(group, &found) }
}

fn api_group(registry: &Registry, others: &Groups, group: &str) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let versions: Vec<Value> = versions(registry, others, group).iter().map(version).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn resources<'a>(registry: &'a Registry, group: &str, version: &str) -> Vec<&'a Resource> {
    let of = |resource: &&Resource| resource.group == group && resource.version == version;
    registry.iter().map(AsRef::as_ref).filter(of).collect()
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Result<Answer, Refusal> {
    let resources = resources(registry, group, version);
    let Some(first) = resources.first() else {
        if Registry::built_in().has_group(group) {
            return Err(Refusal::unknown_resource());
        }
        return Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
    };
    let list: Vec<Value> = resources.iter().flat_map(|resource| legacy_entries(resource)).collect();
    let mut body = json!({"kind": "APIResourceList", "groupVersion": first.api_version(), "resources": list});
    if !group.is_empty() {
        body["apiVersion"] = json!("v1");
    }
    Ok(answer::value(StatusCode::OK, &body))
}

/// A resource and its subresources, as one request per group version shows them.
fn legacy_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    for (key, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !list.is_empty() {
            entry[key] = json!(list);
        }
    }
    if !resource.storage_version_hash.is_empty() {
        entry["storageVersionHash"] = json!(resource.storage_version_hash);
    }
    let subresources = resource.subresources.iter().map(|subresource| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
        });
        if let Some((group, version)) = &subresource.of {
            if !group.is_empty() {
                entry["group"] = json!(group);
            }
            entry["version"] = json!(version);
        }
        entry
    });
    std::iter::once(entry).chain(subresources).collect()
}

/// Everything about some groups in one document.
fn aggregated_answer(registry: &Registry, others: &Groups, groups: &[&str], head: &request::Parts) -> Answer {
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> = versions(registry, others, group)
                .iter()
                .map(|version| {
                    if let Some(described) = others.get(group).and_then(|group| group.described(version)) {
                        return described;
                    }
                    let resources: Vec<Value> =
                        resources(registry, group, version).into_iter().map(aggregated_entry).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let body = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    let bytes = serde_json::to_vec(&body).expect("JSON prints");
    let tag = etag(&bytes);
    let is_known =
        head.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = if is_known {
        let mut answer = answer::json(StatusCode::NOT_MODIFIED, Vec::new());
        answer.headers_mut().remove(header::CONTENT_TYPE);
        answer
    } else {
        answer::json(StatusCode::OK, bytes)
    };
    let headers = answer.headers_mut();
    if !is_known {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).expect("a hash is a header"));
    answer
}

/// A name for the content of a document: another content has another one.
pub(crate) fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", hash(bytes))
}

/// The hash of a document, in capital hexadecimal digits.
pub(crate) fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let hash = ring::digest::digest(&ring::digest::SHA512, bytes);
    hash.as_ref().iter().fold(String::with_capacity(128), |mut text, byte| {
        write!(text, "{byte:02X}").expect("memory");
        text
    })
}

fn aggregated_entry(resource: &Resource) -> Value {
    // Built-in kinds leave it to the place where they stand which group and version they are of (§9, 1.13).
    let own = match resource.custom {
        Some(_) => (resource.group.as_str(), resource.version.as_str()),
        None => ("", ""),
    };
    let kind = |kind: &str, of: Option<&(String, String)>| {
        let (group, version) = of.map_or(own, |(group, version)| (group, version));
        json!({"group": group, "version": version, "kind": kind})
    };
    let mut entry = Map::new();
    entry.insert("resource".to_owned(), json!(resource.plural));
    entry.insert("responseKind".to_owned(), kind(&resource.kind, None));
    entry.insert("scope".to_owned(), json!(if resource.namespaced { "Namespaced" } else { "Cluster" }));
    entry.insert("singularResource".to_owned(), json!(resource.singular));
    entry.insert("verbs".to_owned(), json!(resource.verbs));
    for (key, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !list.is_empty() {
            entry.insert(key.to_owned(), json!(list));
        }
    }
    if !resource.subresources.is_empty() {
        let subresources: Vec<Value> = resource.subresources.iter().map(|subresource| json!({
            "subresource": subresource.name, "responseKind": kind(&subresource.kind, subresource.of.as_ref()), "verbs": subresource.verbs,
        })).collect();
        entry.insert("subresources".to_owned(), json!(subresources));
    }
    Value::Object(entry)
}
