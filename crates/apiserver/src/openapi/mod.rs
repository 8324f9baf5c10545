//! OpenAPI v3 (1.17–1.20): an index, and a document for every group and version, built in or defined; and all of it once
//! more as v2 (1.21).
//!
//! - `components`: types; `descriptions`: what they are for; `paths`: what can be asked.
//!
//! A document is made when it is first asked for and kept until what it is made of changes.

mod components;
mod descriptions;
mod paths;
mod v2;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header, request};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rules::wire;
use serde_json::{Map, Value, json};

use crate::aggregator::Groups;
use crate::answer::{self, Answer};
use crate::cluster::Cluster;
use crate::crd::openapi as custom;
use crate::discovery::hash;
use crate::object;
use crate::registry::{Registry, Resource};
use crate::request::Query;
use crate::status::Refusal;
use components::{components, meta};
use descriptions::Descriptions;
use paths::Described;

/// Documents that were made, by their paths and the hashes they were made for.
#[derive(Default)]
pub(crate) struct Documents(Mutex<HashMap<String, (String, Bytes)>>);

/// Answers what stands after `/openapi`.
pub(crate) fn answer(cluster: &Cluster, parts: &[&str], head: &request::Parts) -> Result<Answer, Refusal> {
    match parts {
        ["v2"] => all_in_one(cluster, head),
        ["v3"] => Ok(index(cluster)),
        ["v3", path @ ..] => document(cluster, &path.join("/"), head),
        _ => Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n")),
    }
}

/// All documents there are, and under which address one can be kept for ever.
fn index(cluster: &Cluster) -> Answer {
    let mut paths: Map<String, Value> = sources(&cluster.registry())
        .into_iter()
        .map(|(path, source)| {
            let url = format!("/openapi/v3/{path}?hash={}", source.hash());
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    paths.extend(Groups::of(cluster).documents());
    answer::text(StatusCode::OK, json!({"paths": paths}).to_string())
}

/// The older form. Clients that ask for it in protobuf alone take nothing else for it, and can do without (8.13).
fn all_in_one(cluster: &Cluster, head: &request::Parts) -> Result<Answer, Refusal> {
    expect_json(head)?;
    let registry = cluster.registry();
    let sources = sources(&registry);
    let hashes: Vec<String> = sources.values().map(Source::hash).collect();
    let current = hash(hashes.concat().as_bytes());
    let tag = format!("\"{current}\"");
    let is_known =
        head.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = if is_known {
        answer::json(StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        let make = || v2::document(&sources.values().map(|source| source.make(cluster)).collect::<Vec<_>>());
        answer::json(StatusCode::OK, cluster.documents().get("v2", &current, make))
    };
    answer.headers_mut().insert(header::ETAG, HeaderValue::from_str(&tag).map_err(Refusal::internal)?);
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(answer)
}

/// The version as `/version` says it.
fn git_version() -> String {
    format!("{}+ferry", schema::Pack::v1_35().version())
}

fn expect_json(head: &request::Parts) -> Result<(), Refusal> {
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let takes = |clause: &str| {
        matches!(
            clause.split(';').next().unwrap_or("").trim(),
            "" | "*/*" | "application/*" | "application/json"
        )
    };
    if !accept.split(',').any(takes) {
        return Err(Refusal::not_acceptable(&["application/json"]));
    }
    Ok(())
}

fn document(cluster: &Cluster, path: &str, head: &request::Parts) -> Result<Answer, Refusal> {
    expect_json(head)?;
    let registry = cluster.registry();
    let Some(source) = sources(&registry).remove(path) else {
        let mut answer = answer::json(StatusCode::NOT_FOUND, Bytes::new());
        answer.headers_mut().remove(header::CONTENT_TYPE);
        return Ok(answer);
    };
    let current = source.hash();
    let query = Query::read(head.uri.query().unwrap_or(""));
    let asked = query.get("hash").filter(|asked| !asked.is_empty());
    if asked.is_some_and(|asked| asked != current) {
        let mut answer = answer::json(StatusCode::MOVED_PERMANENTLY, Bytes::new());
        let to = format!("/openapi/v3/{path}?hash={current}");
        let to = HeaderValue::from_str(&to).map_err(Refusal::internal)?;
        answer.headers_mut().insert(header::LOCATION, to);
        return Ok(answer);
    }
    let tag = format!("\"{current}\"");
    let is_known =
        head.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = if is_known {
        answer::json(StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        answer::json(StatusCode::OK, cluster.documents().get(path, &current, || source.make(cluster)))
    };
    let headers = answer.headers_mut();
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).map_err(Refusal::internal)?);
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if asked.is_some() {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        // As far away as HTTP allows: what has a hash in its address does not change.
        let year = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * 365);
        let expires = year.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        headers.insert(header::EXPIRES, HeaderValue::from_str(&expires).map_err(Refusal::internal)?);
    }
    Ok(answer)
}

impl Documents {
    fn get(&self, path: &str, hash: &str, make: impl FnOnce() -> Value) -> Bytes {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some((_, bytes)) = known.filter(|(of, _)| of == hash) {
            return bytes;
        }
        let made = Bytes::from(serde_json::to_vec(&make()).expect("JSON prints"));
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        documents.insert(path.to_owned(), (hash.to_owned(), made.clone()));
        made
    }
}

/// What a document is made of.
enum Source {
    /// The resources of a group and version.
    Version { group: String, version: String, resources: Vec<Arc<Resource>> },
    /// The list of a group's versions, of all groups, or of versions without a group.
    Discovery { path: String, id: String, tag: String, kind: &'static str, what: &'static str },
}

fn sources(registry: &Registry) -> BTreeMap<String, Source> {
    let mut sources = BTreeMap::new();
    for resource in registry.iter() {
        let Resource { group, version, .. } = &**resource;
        let path = paths::root(group, version)[1..].to_owned();
        let source = sources.entry(path).or_insert_with(|| Source::Version {
            group: group.clone(),
            version: version.clone(),
            resources: Vec::new(),
        });
        if let Source::Version { resources, .. } = source {
            resources.push(resource.clone());
        }
        let is_built_in = resource.custom.is_none();
        if is_built_in && !group.is_empty() {
            let tag = paths::tag(group);
            let id = format!("get{}APIGroup", capital(&tag));
            let (path, what) = (format!("/apis/{group}/"), "tells about the group");
            let source = Source::Discovery { path, id, tag, kind: "APIGroup", what };
            sources.insert(format!("apis/{group}"), source);
        }
    }
    for (key, id, tag, kind, what) in [
        ("api", "getCoreAPIVersions", "core", "APIVersions", "tells the versions of the core group"),
        ("apis", "getAPIVersions", "apis", "APIGroupList", "tells all groups"),
    ] {
        let path = format!("/{key}/");
        let source = Source::Discovery { path, id: id.to_owned(), tag: tag.to_owned(), kind, what };
        sources.insert(key.to_owned(), source);
    }
    sources
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

impl Source {
    /// Changes when the document would: with this program, and with the definitions.
    fn hash(&self) -> String {
        let mut made_of = format!("{} {}", schema::Pack::v1_35().version(), env!("CARGO_PKG_VERSION"));
        if let Source::Version { resources, .. } = self {
            for custom in resources.iter().filter_map(|resource| resource.custom.as_ref()) {
                made_of.push_str(custom.kind().fingerprint());
                made_of.push_str(if custom.kind().is_leaving() { " leaves" } else { " stays" });
            }
        }
        hash(made_of.as_bytes())
    }

    fn make(&self, cluster: &Cluster) -> Value {
        let descriptions = Descriptions::built_in();
        let mut paths = Map::new();
        let mut given = Map::new();
        match self {
            Source::Discovery { path, id, tag, kind, what } => {
                paths.insert(path.clone(), paths::discovery(id, tag, kind, what));
            }
            Source::Version { group, version, resources } => {
                let tag = paths::tag(group);
                if resources.iter().any(|resource| resource.custom.is_none()) {
                    let id = format!("get{}{}APIResources", capital(&tag), capital(version));
                    let operation = paths::discovery(
                        &id,
                        &format!("{tag}_{version}"),
                        "APIResourceList",
                        "tells the resources",
                    );
                    paths.insert(format!("{}/", paths::root(group, version)), operation);
                }
                for resource in resources {
                    let (one, list) = match &resource.custom {
                        None => built_in_components(resource),
                        Some(_) => custom_components(cluster, resource, descriptions, &mut given),
                    };
                    let of_kind = |group: &str, version: &str, kind: &str| component_of(group, version, kind);
                    Described { resource, one, list, of_kind: &of_kind }.paths(&mut paths);
                }
            }
        }
        let paths = Value::Object(paths);
        let schemas = components(&[&paths], given, descriptions);
        let is_defined = matches!(self, Source::Version { resources, .. } if resources.iter().all(|it| it.custom.is_some()));
        if is_defined {
            return json!({
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
                "paths": paths,
                "components": {"schemas": schemas},
            });
        }
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "1.35"},
            "paths": paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": {"BearerToken": {"type": "apiKey", "description": "a bearer token", "name": "authorization", "in": "header"}},
            },
        })
    }
}

fn component_of(group: &str, version: &str, kind: &str) -> Option<String> {
    Some(schema::Pack::v1_35().of_kind(group, version, kind)?.name().to_owned())
}

fn built_in_components(resource: &Resource) -> (String, String) {
    let Resource { group, version, kind, .. } = resource;
    let of = |kind: &str| component_of(group, version, kind).unwrap_or_else(|| meta("Status"));
    (of(kind), of(&resource.list_kind()))
}

/// The components of a custom resource, which stand in its definition.
fn custom_components(
    cluster: &Cluster,
    resource: &Resource,
    descriptions: &Descriptions,
    given: &mut Map<String, Value>,
) -> (String, String) {
    let words = custom::Descriptions {
        api_version: descriptions.of_field("io.k8s.api.core.v1.Pod", "apiVersion").unwrap_or("").to_owned(),
        kind: descriptions.of_field("io.k8s.api.core.v1.Pod", "kind").unwrap_or("").to_owned(),
        metadata: descriptions.of_field("io.k8s.api.core.v1.Pod", "metadata").unwrap_or("").to_owned(),
    };
    let Some(version) = resource.custom.as_ref().map(|custom| custom.version()) else {
        return built_in_components(resource);
    };
    let names = &version.names;
    let one = custom::component_name(names, &version.version, &names.kind);
    let list = custom::component_name(names, &version.version, &names.list_kind);
    let key = store::Key::new(
        "customresourcedefinitions.apiextensions.k8s.io",
        "",
        &format!("{}.{}", names.plural, names.group),
    );
    if let Some(stored) = cluster.store().get(&key) {
        let definition: CustomResourceDefinition = wire::typed(&object::read(&stored));
        if let Some(written) = definition.spec.versions.iter().find(|known| known.name == version.version) {
            given.insert(one.clone(), custom::component(names, written, &words));
            given.insert(list.clone(), custom::list_component(names, written, &words));
        }
    }
    (one, list)
}
