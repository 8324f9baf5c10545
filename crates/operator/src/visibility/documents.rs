//! What is told about the API itself: whether it is well, what is served, and what that looks like.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use rules::visibility::{GROUP, KIND, VERSIONS};
use serde_json::{Value, json};

use super::request::{expect_json, expect_read};
use super::status::Refusal;
use super::{Answer, json as answered, value};
use crate::Operator;

const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// Answers what is no resource.
pub(super) fn answer(
    operator: &Operator,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<Answer, Refusal> {
    expect_read(method)?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        ["healthz" | "livez"] => Ok(text(StatusCode::OK, "ok")),
        ["readyz"] if operator.is_ready() => Ok(text(StatusCode::OK, "ok")),
        ["readyz"] => Ok(text(StatusCode::INTERNAL_SERVER_ERROR, "not everything was seen yet")),
        ["apis"] => {
            if let Some(version) = aggregated_version(headers) {
                return Ok(aggregated(version));
            }
            expect_json(headers)?;
            Ok(value(&json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group()] })))
        }
        ["apis", GROUP] => {
            expect_json(headers)?;
            let mut group = group();
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            Ok(value(&group))
        }
        ["apis", GROUP, version] if VERSIONS.contains(version) => {
            expect_json(headers)?;
            Ok(value(&json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
                "resources": resources(),
            })))
        }
        ["openapi", "v2"] => tagged(headers, &swagger()),
        ["openapi", "v3"] => {
            let entry = |version: &str| (format!("apis/{GROUP}/{version}"), entry(version));
            let paths: serde_json::Map<String, Value> = VERSIONS.into_iter().map(entry).collect();
            Ok(value(&json!({ "paths": paths })))
        }
        ["openapi", "v3", "apis", GROUP, version] if VERSIONS.contains(version) => {
            tagged(headers, &document(version))
        }
        _ => Err(Refusal::NoSuchResource),
    }
}

fn text(code: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(text.into());
    *answer.status_mut() = code;
    let media = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, media);
    answer
}

fn group() -> Value {
    let version = |version| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version });
    let versions: Vec<Value> = VERSIONS.into_iter().map(version).collect();
    json!({ "name": GROUP, "versions": versions, "preferredVersion": versions[0] })
}

/// The entries of an `APIResourceList`, the same in both versions. The queues themselves are only where their parts are.
pub fn resources() -> Vec<Value> {
    let queues = [("clusterqueues", "clusterqueue", false), ("localqueues", "localqueue", true)];
    let entry = |name: String, singular: &str, namespaced: bool, verbs: &[&str]| {
        json!({
            "name": name, "singularName": singular, "namespaced": namespaced, "kind": KIND, "verbs": verbs,
        })
    };
    let both = queues.into_iter().flat_map(|(plural, singular, namespaced)| {
        [
            entry(plural.to_owned(), singular, namespaced, &[]),
            entry(format!("{plural}/pendingworkloads"), "", namespaced, &["get"]),
        ]
    });
    both.collect()
}

/// The version in which a client wants to be told everything in one document, if it does.
fn aggregated_version(headers: &HeaderMap) -> Option<&'static str> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let wants = |version: &str| {
        accept.split(',').any(|clause| {
            let parts: Vec<&str> = clause.split(';').map(str::trim).collect();
            let version = format!("v={version}");
            ["g=apidiscovery.k8s.io", "as=APIGroupDiscoveryList", &version]
                .iter()
                .all(|part| parts.contains(part))
        })
    };
    AGGREGATED.into_iter().find(|version| wants(version))
}

fn aggregated(version: &str) -> Answer {
    let kind = json!({ "group": "", "version": "", "kind": KIND });
    let queue = |plural: &str, singular: &str, scope: &str| {
        json!({
            "resource": plural, "responseKind": kind, "scope": scope, "singularResource": singular, "verbs": [],
            "subresources": [{ "subresource": "pendingworkloads", "responseKind": kind, "verbs": ["get"] }],
        })
    };
    let queues =
        [queue("clusterqueues", "clusterqueue", "Cluster"), queue("localqueues", "localqueue", "Namespaced")];
    let of_version = |version| json!({ "version": version, "resources": queues, "freshness": "Current" });
    let versions: Vec<Value> = VERSIONS.into_iter().map(of_version).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {},
        "items": [{ "metadata": { "name": GROUP }, "versions": versions }],
    });
    let mut answer = value(&list);
    let media = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    let media = HeaderValue::try_from(media).expect("a version is a header");
    answer.headers_mut().insert(header::CONTENT_TYPE, media);
    answer
}

/// A document of OpenAPI, for clients that may know it already.
fn tagged(headers: &HeaderMap, document: &Value) -> Result<Answer, Refusal> {
    expect_json(headers)?;
    let tag = HeaderValue::try_from(format!("\"{}\"", hash(document))).expect("a hash is a header");
    let mut answer = if headers.get(header::IF_NONE_MATCH) == Some(&tag) {
        answered(StatusCode::NOT_MODIFIED, "")
    } else {
        value(document)
    };
    answer.headers_mut().insert(header::ETAG, tag);
    Ok(answer)
}

/// What tells a document from another one.
fn hash(document: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

/// The entry of a version in the index of OpenAPI documents.
pub fn entry(version: &str) -> Value {
    let hash = hash(&document(version));
    json!({ "serverRelativeURL": format!("/openapi/v3/apis/{GROUP}/{version}?hash={hash}") })
}

/// What is served in a version, as OpenAPI v3 tells it.
fn document(version: &str) -> Value {
    let schemas: serde_json::Map<String, Value> =
        schemas(version, "#/components/schemas/").into_iter().collect();
    let reference = json!({ "$ref": format!("#/components/schemas/{}", type_name(version, KIND)) });
    let answer = json!({ "description": "OK", "content": { "application/json": { "schema": reference } } });
    let parameter = |(name, place, kind, about): Parameter| {
        json!({
            "name": name, "in": place, "required": place == "path", "description": about,
            "schema": { "type": kind, "uniqueItems": true },
        })
    };
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Ferry", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths(version, &parameter, &answer),
        "components": { "schemas": schemas },
    })
}

/// Everything, as OpenAPI v2 tells it.
fn swagger() -> Value {
    let mut all = serde_json::Map::new();
    let mut definitions = serde_json::Map::new();
    for version in VERSIONS {
        let reference = json!({ "$ref": format!("#/definitions/{}", type_name(version, KIND)) });
        let answer = json!({ "description": "OK", "schema": reference });
        let parameter = |(name, place, kind, about): Parameter| {
            json!({
                "name": name, "in": place, "required": place == "path", "description": about, "type": kind,
                "uniqueItems": true,
            })
        };
        all.extend(paths(version, &parameter, &answer));
        definitions.extend(schemas(version, "#/definitions/"));
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Ferry", "version": env!("CARGO_PKG_VERSION") },
        "paths": all,
        "definitions": definitions,
    })
}

/// Name, place, type, and what it is for.
type Parameter = (&'static str, &'static str, &'static str, &'static str);

fn paths(
    version: &str,
    parameter: &dyn Fn(Parameter) -> Value,
    answer: &Value,
) -> serde_json::Map<String, Value> {
    let page = [
        ("offset", "query", "integer", "How many Workloads are passed over."),
        ("limit", "query", "integer", "How many Workloads are shown, 1000 if nothing is said."),
    ];
    let queues: [(&str, &str, &[Parameter]); 2] = [
        (
            "clusterqueues/{name}",
            "ClusterQueue",
            &[("name", "path", "string", "The name of the ClusterQueue.")],
        ),
        (
            "namespaces/{namespace}/localqueues/{name}",
            "NamespacedLocalQueue",
            &[
                ("name", "path", "string", "The name of the LocalQueue."),
                ("namespace", "path", "string", "Its namespace."),
            ],
        ),
    ];
    let path = |(path, title, names): (&str, &str, &[Parameter])| {
        let capital = version.replacen('v', "V", 1);
        let operation = json!({
            "description": "Who waits in the queue, in its order.",
            "operationId": format!("readVisibilityKueueXK8sIo{capital}{title}Pendingworkloads"),
            "parameters": page.map(parameter),
            "responses": { "200": answer },
            "tags": [format!("visibilityKueueXK8sIo_{version}")],
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": { "group": GROUP, "version": version, "kind": KIND },
        });
        let names: Vec<Value> = names.iter().copied().map(parameter).collect();
        let operations = json!({ "get": operation, "parameters": names });
        (format!("/apis/{GROUP}/{version}/{path}/pendingworkloads"), operations)
    };
    queues.into_iter().map(path).collect()
}

fn type_name(version: &str, kind: &str) -> String {
    format!("io.x-k8s.kueue.visibility.{version}.{kind}")
}

fn schemas(version: &str, place: &str) -> [(String, Value); 2] {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "integer", "format": "int32", "description": about });
    let owner = json!({
        "type": "object",
        "properties": {
            "apiVersion": text("Its API version."), "kind": text("Its kind."), "name": text("Its name."),
            "uid": text("Its uid."),
        },
    });
    let metadata = json!({
        "type": "object",
        "properties": {
            "name": text("The name of the Workload."),
            "namespace": text("Its namespace."),
            "creationTimestamp": { "type": "string", "format": "date-time", "description": "Since when it is there." },
            "ownerReferences": { "type": "array", "items": owner, "description": "Whose Workload it is." },
        },
    });
    let item = json!({
        "type": "object",
        "description": "A Workload that waits.",
        "properties": {
            "metadata": metadata,
            "priority": number("Its own priority."),
            "localQueueName": text("The LocalQueue that it is in."),
            "positionInClusterQueue": number("How many are before it in the ClusterQueue."),
            "positionInLocalQueue": number("How many of those are of the same LocalQueue."),
        },
        "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
    });
    let reference = json!({ "$ref": format!("{place}{}", type_name(version, "PendingWorkload")) });
    let summary = json!({
        "type": "object",
        "description": "Who waits in a queue, in its order.",
        "properties": {
            "apiVersion": text("The version of this answer."),
            "kind": text("The kind of this answer."),
            "metadata": { "type": "object" },
            "items": { "type": "array", "items": reference, "description": "Those who wait." },
        },
        "required": ["items"],
        "x-kubernetes-group-version-kind": [{ "group": GROUP, "version": version, "kind": KIND }],
    });
    [(type_name(version, "PendingWorkload"), item), (type_name(version, KIND), summary)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vi_1_every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|field| references(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        for document in [swagger(), document("v1beta1"), document("v1beta2")] {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(found.len() >= 3, "{document}");
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
    }

    #[test]
    fn vi_1_which_form_of_discovery_is_wanted() {
        let wanted = |accept: &str| {
            aggregated_version(&HeaderMap::from_iter([(header::ACCEPT, accept.parse().expect("a value"))]))
        };
        let clause =
            |version| format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        let both = format!("{}, {},application/json", clause("v2beta1"), clause("v2"));
        assert_eq!(wanted(&both), Some("v2"));
        assert_eq!(wanted(&clause("v2beta1")), Some("v2beta1"));
        assert_eq!(wanted("application/json"), None);
    }
}
