//! The same requests to a real API server and to ours, about real definitions and objects of them: the same answers.

use std::collections::BTreeMap;

use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::differential::CLUSTER;
use super::generate::{self, Random};
use super::modules::manifests;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Two servers that are asked the same.
struct Twins {
    real: Client,
    ours: Client,
    asked: usize,
    refused: usize,
    differences: Vec<String>,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Twins {
    async fn new(namespace: &str) -> Option<Twins> {
        let real = CLUSTER.for_test().await?.client();
        let ours = Client::new(crate::cluster().await, "default");
        let mut twins = Twins { real, ours, asked: 0, refused: 0, differences: Vec::new() };
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        twins.ask("POST", "/api/v1/namespaces", JSON, &made).await;
        twins.differences.clear();
        Some(twins)
    }

    /// Asks both, and returns what ours says.
    async fn ask(&mut self, method: &str, path: &str, content: &str, body: &Value) -> Answer {
        self.ask_each(method, path, content, [body, body]).await
    }

    async fn ask_each(&mut self, method: &str, path: &str, content: &str, bodies: [&Value; 2]) -> Answer {
        let [body, real_body] = bodies;
        let ours = send(&self.ours, method, path, content, body).await;
        let real = send(&self.real, method, path, content, real_body).await;
        self.asked += 1;
        self.refused += usize::from(real.code >= 400);
        if normal(&ours) != normal(&real) {
            let sent = if body.is_null() { String::new() } else { cut(&body.to_string(), 600) };
            let (ours, real) = (normal(&ours), normal(&real));
            let mut different = Vec::new();
            compare(
                "",
                &json!([ours.code, ours.body, ours.warnings]),
                &json!([real.code, real.body, real.warnings]),
                &mut different,
            );
            self.differences
                .push(format!("{method} {path} {content} {sent}\n    {}", different.join("\n    ")));
        }
        ours
    }

    /// Installs a definition, and returns when both serve it in these versions.
    async fn install(&mut self, definition: &Value) {
        let made = self.ask("POST", &format!("{DEFINITIONS}?fieldManager=twins"), JSON, definition).await;
        assert_eq!(made.code, 201, "{}", made.body);
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            if version["served"] != true {
                continue;
            }
            let path = format!("/apis/{}/{}/{}", text(group), text(&version["name"]), text(plural));
            while send(&self.real, "GET", &path, JSON, &Value::Null).await.code != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }

    fn judge(self) {
        let Twins { asked, refused, differences, .. } = self;
        let shown: Vec<String> =
            differences.iter().take(60).map(|difference| cut(difference, 3000)).collect();
        assert!(
            differences.is_empty(),
            "{} of {asked} answers differ:\n{}",
            differences.len(),
            shown.join("\n")
        );
        println!("{asked} answers alike, {refused} of them refusals");
    }
}

async fn send(client: &Client, method: &str, path: &str, content: &str, body: &Value) -> Answer {
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", content);
    let bytes = match body {
        Value::Null => Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        body => serde_json::to_vec(body).expect("JSON prints"),
    };
    let request = request.body(Body::from(bytes)).expect("a request");
    let (head, body) = client.send(request).await.expect("an answer").into_parts();
    let bytes = body.collect_bytes().await.expect("a body");
    let warnings = head.headers.get_all("Warning").iter().filter_map(|value| value.to_str().ok());
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    Answer { code: head.status.as_u16(), body, warnings: warnings.map(str::to_owned).collect() }
}

/// An answer without what no two servers have in common.
fn normal(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    mask(&mut answer.body);
    // Causes come in the order of Go's maps, and values of structures in Go's words.
    let causes = answer.body.pointer_mut("/details/causes").and_then(Value::as_array_mut);
    if let Some(causes) = causes {
        for cause in causes.iter_mut() {
            cause["message"] = json!(super::differential::masked(text(&cause["message"])));
        }
        causes.sort_by_key(ToString::to_string);
        answer.body["message"] = Value::Null;
    }
    // Managers are ordered by time, which passes differently for each.
    if let Some(managers) = answer.body.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) {
        managers.sort_by_key(ToString::to_string);
    }
    if answer.body.pointer("/metadata/continue") == Some(&json!("")) {
        answer.body["metadata"].as_object_mut().map(|metadata| metadata.remove("continue"));
    }
    answer.warnings.sort();
    answer
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_own = value != ""
                    && matches!(
                        name.as_str(),
                        "uid"
                            | "continue"
                            | "resourceVersion"
                            | "creationTimestamp"
                            | "deletionTimestamp"
                            | "time"
                            | "lastTransitionTime"
                    );
                match value {
                    Value::String(text) if is_own => "MASKED".clone_into(text),
                    value => mask(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text)
            if text.contains("resourceVersion") || text.contains("the UID in the precondition") =>
        {
            "MASKED".clone_into(text);
        }
        _ => {}
    }
}

fn compare(path: &str, ours: &Value, real: &Value, into: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let none = json!("<absent>");
                let (a, b) = (a.get(name).unwrap_or(&none), b.get(name).unwrap_or(&none));
                compare(&format!("{path}.{name}"), a, b, into);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{i}]"), a, b, into);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            into.push(format!("{path}: ours {} real {}", cut(&a.to_string(), 500), cut(&b.to_string(), 500)));
        }
    }
}

fn cut(text: &str, at: usize) -> String {
    text.chars().take(at).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The definitions of the ecosystem, as they are shipped but for webhooks, which nobody answers here.
fn definitions() -> Option<BTreeMap<String, Value>> {
    let mut all = manifests()?.clone();
    for definition in all.values_mut() {
        if let Some(spec) = definition["spec"].as_object_mut() {
            spec.remove("conversion");
        }
    }
    Some(all)
}

/// An object of a definition with little more in it than it needs.
fn object(definition: &Value, version: &Value, name: &str, random: &mut Random) -> Value {
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut object = generate::sparse(schema, random, 4);
    if !object.is_object() {
        object = json!({});
    }
    object["apiVersion"] =
        json!(format!("{}/{}", text(&definition["spec"]["group"]), text(&version["name"])));
    object["kind"] = definition["spec"]["names"]["kind"].clone();
    object["metadata"] = json!({"name": name});
    object
}

fn collection(definition: &Value, version: &Value, namespace: &str) -> String {
    let spec = &definition["spec"];
    let (group, version, plural) =
        (text(&spec["group"]), text(&version["name"]), text(&spec["names"]["plural"]));
    match text(&spec["scope"]) {
        "Namespaced" => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"),
        _ => format!("/apis/{group}/{version}/{plural}"),
    }
}

/// Objects per version; set `FERRY_DIFFERENTIAL_CASES` for a longer run.
fn cases() -> u64 {
    let asked = std::env::var("FERRY_DIFFERENTIAL_CASES").ok().and_then(|text| text.parse::<u64>().ok());
    asked.map_or(1, |cases| cases / 10)
}

#[tokio::test]
async fn the_ecosystem_is_served_alike_3_30() {
    let Some(definitions) = definitions() else { return };
    let Some(mut twins) = Twins::new("ecosystem").await else { return };
    for definition in definitions.values() {
        twins.install(definition).await;
    }
    // A real server keeps its clients waiting for two seconds after a kind is new; afterwards it does not.
    for (name, definition) in &definitions {
        let path = format!("{DEFINITIONS}/{name}");
        twins.ask("GET", &path, JSON, &Value::Null).await;
        let group = text(&definition["spec"]["group"]);
        twins.ask("GET", &format!("/apis/{group}"), JSON, &Value::Null).await;
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            if version["served"] == true {
                life(&mut twins, definition, version).await;
            }
        }
    }
    twins.judge();
}

/// What is done to objects of one version: made, changed in every way, shown in another version, removed.
async fn life(twins: &mut Twins, definition: &Value, version: &Value) {
    let path = collection(definition, version, "ecosystem");
    let writes = "fieldManager=twins";
    let mut random = Random::new(7);
    for seed in 0..cases() {
        let name = format!("{}-{seed}", text(&version["name"]));
        let sent = object(definition, version, &name, &mut Random::new(seed * 2));
        let made = twins.ask("POST", &format!("{path}?{writes}"), JSON, &sent).await;
        if made.code != 201 {
            continue;
        }
        let item = format!("{path}/{name}");
        twins.ask("GET", &item, JSON, &Value::Null).await;
        for other in definition["spec"]["versions"].as_array().into_iter().flatten() {
            if other["served"] == true {
                let elsewhere = format!("{}/{name}", collection(definition, other, "ecosystem"));
                twins.ask("GET", &elsewhere, JSON, &Value::Null).await;
            }
        }
        let label = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
        twins.ask("PATCH", &format!("{item}?{writes}"), MERGE, &label).await;
        let finalizer = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]}]);
        twins.ask("PATCH", &format!("{item}?{writes}"), PATCH, &finalizer).await;
        let mut config = object(definition, version, &name, &mut Random::new(seed * 2 + 100));
        twins.ask("PATCH", &format!("{item}?fieldManager=applier"), APPLY, &config).await;
        twins.ask("PATCH", &format!("{item}?fieldManager=applier&force=true"), APPLY, &config).await;
        if let Some(fields) = config.as_object_mut() {
            fields.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
        }
        twins.ask("PATCH", &format!("{item}?fieldManager=applier&force=true"), APPLY, &config).await;
        let spec =
            generate::sparse(&version["schema"]["openAPIV3Schema"]["properties"]["spec"], &mut random, 4);
        twins.ask("PATCH", &format!("{item}?{writes}"), MERGE, &json!({"spec": spec})).await;
        let status =
            generate::sparse(&version["schema"]["openAPIV3Schema"]["properties"]["status"], &mut random, 4);
        if version["subresources"]["status"].is_object() {
            let change = json!({"metadata": {"labels": {"not": "taken"}}, "status": status});
            twins.ask("PATCH", &format!("{item}/status?{writes}"), MERGE, &change).await;
            twins.ask("GET", &format!("{item}/status"), JSON, &Value::Null).await;
        }
        if version["subresources"]["scale"].is_object() {
            twins.ask("GET", &format!("{item}/scale"), JSON, &Value::Null).await;
            let three = json!({"spec": {"replicas": 3}});
            twins.ask("PATCH", &format!("{item}/scale?fieldManager=scaler"), MERGE, &three).await;
            twins.ask("GET", &item, JSON, &Value::Null).await;
        }
        twins.ask("DELETE", &item, JSON, &Value::Null).await;
        let release = json!({"metadata": {"finalizers": null}});
        twins.ask("PATCH", &format!("{item}?{writes}"), MERGE, &release).await;
        twins.ask("GET", &item, JSON, &Value::Null).await;
    }
}

/// A kind with something of everything, whose requests are asked in right and wrong ways.
fn widgets() -> Value {
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "maximum": 9}, "name": {"type": "string", "default": "x"},
        "replicas": {"type": "integer"}, "when": {"type": "string", "format": "date-time"},
        "odd": {"type": "string", "format": "unheard-of"},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "port": {"x-kubernetes-int-or-string": true},
    }, "x-kubernetes-validations": [{"rule": "!has(self.size) || !has(oldSelf.size) || self.size >= oldSelf.size", "message": "may only grow"}]});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec,
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": schema, "deprecated": name == "v1beta1",
            "selectableFields": [{"jsonPath": ".spec.name"}],
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.twins.example.com"},
        "spec": {"group": "twins.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [version("v1", true), version("v1beta1", false)]},
    })
}

#[tokio::test]
async fn right_and_wrong_requests_are_answered_alike() {
    let Some(mut twins) = Twins::new("requests").await else { return };
    twins.install(&widgets()).await;
    let all = "/apis/twins.example.com/v1/namespaces/requests/widgets";
    let a = &format!("{all}/a");
    let widget = |name: &str, spec: Value| json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    let managed = |path: &str| format!("{path}?fieldManager=twins");
    let none = &Value::Null;

    // Bodies.
    for body in [
        json!(""),
        json!("{"),
        json!("[]"),
        json!("x"),
        json!("null"),
        json!({}),
        json!({"kind": "Widget"}),
        json!({"apiVersion": "twins.example.com/v1"}),
        json!({"apiVersion": 1, "kind": "Widget"}),
        json!({"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a"}}),
        json!({"apiVersion": "twins.example.com/v1beta1", "kind": "Widget", "metadata": {"name": "a"}}),
        json!({"apiVersion": "twins.example.com/v7", "kind": "Widget", "metadata": {"name": "a"}}),
        json!({"apiVersion": "other.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget"}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": 5}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": "x"}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"a": 1}}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "a", "creationTimestamp": "yesterday"}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "A_b"}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "elsewhere"}}),
        json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["bad finalizer"]}}),
        widget("a", json!("text")),
        widget("a", json!({"size": "big"})),
        widget("a", json!({"size": 10})),
        widget("a", json!({"size": 1.5})),
        widget("a", json!({"when": "soon"})),
        widget("a", json!({"set": ["x", "x"]})),
        widget("a", json!({"map": [{"k": "a"}, {"k": "a"}]})),
        widget("a", json!({"map": [{"v": 1}]})),
        widget("a", json!({"pod": {"kind": "Pod"}})),
        widget("a", json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 7}}})),
        widget("a", json!({"port": true})),
        widget("a", json!({"replicas": -1})),
        widget("a", json!({"replicas": 3_000_000_000_i64})),
    ] {
        twins.ask("POST", &managed(all), JSON, &body).await;
    }
    for directive in ["Strict", "Warn", "Ignore", "Loud"] {
        let path = format!("{all}?dryRun=All&fieldManager=twins&fieldValidation={directive}");
        twins
            .ask("POST", &path, JSON, &widget("a", json!({"unknown": 1, "any": {"kept": 1}, "size": 1})))
            .await;
        let twice = json!(
            "{\"apiVersion\":\"twins.example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"size\":1,\"size\":2,\"x\":1}}"
        );
        twins.ask("POST", &path, JSON, &twice).await;
    }
    let yaml =
        json!("apiVersion: twins.example.com/v1\nkind: Widget\nmetadata:\n  name: yaml\nspec:\n  size: 1\n");
    twins.ask("POST", &managed(all), "application/yaml", &yaml).await;
    twins.ask("POST", &managed(all), "text/plain", &widget("a", json!({}))).await;

    // Creation.
    let full = json!({"size": 2, "set": ["x", "y"], "map": [{"k": "a", "v": 1}], "any": {"kept": [1, {"a": null}]}, "port": "80",
        "replicas": 1, "when": "2026-01-02T03:04:05Z", "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "odd": 1}, "spec": {}}});
    twins.ask("POST", &managed(all), JSON, &widget("a", full)).await;
    twins.ask("POST", &managed(all), JSON, &widget("a", json!({}))).await;
    let mut versioned = widget("v", json!({}));
    versioned["metadata"]["resourceVersion"] = json!("5");
    twins.ask("POST", &managed(all), JSON, &versioned).await;
    twins
        .ask("POST", "/apis/twins.example.com/v1/namespaces/missing/widgets", JSON, &widget("a", json!({})))
        .await;
    twins.ask("POST", "/apis/twins.example.com/v1/widgets", JSON, &widget("a", json!({}))).await;

    // Reading.
    for path in [
        "",
        "/a",
        "/missing",
        "/a/status",
        "/a/scale",
        "/a/nothing",
        "?labelSelector=a%3Db",
        "?fieldSelector=spec.name%3Dx",
        "?fieldSelector=spec.size%3D2",
        "?fieldSelector=metadata.name%3Da",
        "?limit=1",
        "?labelSelector=%3D%3D",
    ] {
        twins.ask("GET", &format!("{all}{path}"), JSON, none).await;
    }
    for path in [
        "/apis/twins.example.com",
        "/apis/twins.example.com/v1",
        "/apis/twins.example.com/v1beta1",
        "/apis/twins.example.com/v2",
        "/apis/twins.example.com/v1/gadgets",
        "/apis/twins.example.com/v2/widgets",
        "/apis/twins.example.com/v1beta1/namespaces/requests/widgets/a",
        "/apis/twins.example.com/v1/widgets/a",
        "/apis/nothing.example.com/v1/widgets",
    ] {
        twins.ask("GET", path, JSON, none).await;
    }

    // Replacing.
    let read = twins.ask("GET", a, JSON, none).await.body;
    let change = |field: &str, value: Value| {
        let mut object = read.clone();
        if let Some(place) = object.pointer_mut(field) {
            *place = value;
        }
        object
    };
    for body in [
        change("/metadata/name", json!("b")),
        change("/metadata/resourceVersion", json!("1")),
        change("/metadata/resourceVersion", json!("")),
        change("/spec/size", json!(1)),
        change("/spec/size", json!(10)),
        change("/kind", json!("Gadget")),
        change("/apiVersion", json!("twins.example.com/v1beta1")),
        change("/metadata/namespace", json!("other")),
        change("/metadata/generation", json!(9)),
        change("/metadata/creationTimestamp", Value::Null),
    ] {
        // Versions and uids are each server's own.
        let own = |server: &Value| {
            let mut body = body.clone();
            for field in ["resourceVersion", "uid", "creationTimestamp"] {
                if body["metadata"][field] == read["metadata"][field] {
                    body["metadata"][field] = server["metadata"][field].clone();
                }
            }
            body
        };
        let (ours, real) = (
            send(&twins.ours, "GET", a, JSON, none).await.body,
            send(&twins.real, "GET", a, JSON, none).await.body,
        );
        twins.ask_each("PUT", &managed(a), JSON, [&own(&ours), &own(&real)]).await;
    }
    twins.ask("PUT", &managed(&format!("{all}/missing")), JSON, &widget("missing", json!({}))).await;

    // Patching.
    for (content, body) in [
        (MERGE, json!({"spec": {"size": 3, "map": null}})),
        (MERGE, json!({"spec": {"unknown": 1}})),
        (MERGE, json!({"spec": {"size": "x"}})),
        (MERGE, json!({"kind": "Gadget"})),
        (MERGE, json!({"metadata": {"name": "b"}})),
        (MERGE, json!({"status": {"replicas": 2}})),
        (MERGE, json!({"metadata": {"labels": {"l": "1"}}})),
        (PATCH, json!([{"op": "add", "path": "/spec/map", "value": [{"k": "z"}]}])),
        (PATCH, json!({})),
        ("application/strategic-merge-patch+json", json!({"spec": {"size": 4}})),
        (JSON, json!({"spec": {"size": 4}})),
    ] {
        twins.ask("PATCH", &managed(a), content, &body).await;
        twins
            .ask(
                "PATCH",
                &format!("{a}?fieldManager=twins&fieldValidation=Strict&dryRun=All"),
                content,
                &body,
            )
            .await;
    }
    twins.ask("PATCH", &managed(&format!("{all}/missing")), MERGE, &json!({})).await;

    // Applying.
    let mine = |spec: Value| widget("a", spec);
    for (manager, body) in [
        ("one", mine(json!({"size": 5, "set": ["z"], "map": [{"k": "one", "v": 1}]}))),
        ("two", mine(json!({"size": 6}))),
        ("two&force=true", mine(json!({"size": 6, "map": [{"k": "two"}]}))),
        ("one&force=true", mine(json!({"set": ["w"]}))),
        ("one", mine(json!({"unknown": 1}))),
        ("one", mine(json!({"size": "x"}))),
        ("one", json!({"kind": "Widget"})),
        ("", mine(json!({}))),
        ("two", mine(json!({}))),
        (
            "one",
            json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "b"}, "spec": {}}),
        ),
        (
            "one",
            json!({"apiVersion": "twins.example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {}}),
        ),
        (
            "one",
            json!({"apiVersion": "twins.example.com/v1beta1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {}}),
        ),
        ("one", mine(json!({"map": [{"k": "one"}, {"k": "one"}]}))),
    ] {
        twins.ask("PATCH", &format!("{a}?fieldManager={manager}"), APPLY, &body).await;
    }
    twins
        .ask("PATCH", &format!("{all}/new?fieldManager=one"), APPLY, &widget("new", json!({"size": 1})))
        .await;
    twins.ask("PATCH", &format!("{all}/new/status?fieldManager=one"), APPLY, &json!({"apiVersion": "twins.example.com/v1", "kind": "Widget", "metadata": {"name": "new"}, "status": {"replicas": 2}, "spec": {"size": 9}})).await;
    let beta = "/apis/twins.example.com/v1beta1/namespaces/requests/widgets/new";
    let mut config = widget("new", json!({"size": 2}));
    config["apiVersion"] = json!("twins.example.com/v1beta1");
    twins.ask("PATCH", &format!("{beta}?fieldManager=one"), APPLY, &config).await;
    twins
        .ask("PATCH", &format!("{beta}?fieldManager=three"), MERGE, &json!({"spec": {"name": "three"}}))
        .await;
    twins.ask("GET", &format!("{all}/new"), JSON, none).await;

    for spec in [json!({"size": 1}), json!(null)] {
        let mut config = widget("emptied", spec.clone());
        if spec.is_null() {
            config.as_object_mut().map(|fields| fields.remove("spec"));
        }
        twins.ask("PATCH", &format!("{all}/emptied?fieldManager=one"), APPLY, &config).await;
    }

    // Status and scale.
    for (path, content, body) in [
        (
            "status",
            MERGE,
            json!({"status": {"replicas": 3, "selector": "a=b"}, "spec": {"size": 9}, "metadata": {"labels": {"no": "no"}}}),
        ),
        ("status", MERGE, json!({"status": {"replicas": "x"}})),
        ("status", MERGE, json!({"status": {"unknown": 1}})),
        ("scale", MERGE, json!({"spec": {"replicas": 4}})),
        ("scale", MERGE, json!({"spec": {"replicas": -4}})),
        ("scale", PATCH, json!([{"op": "replace", "path": "/spec/replicas", "value": 7}])),
        ("scale", "application/strategic-merge-patch+json", json!({"spec": {"replicas": 4}})),
        (
            "scale",
            APPLY,
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 8}}),
        ),
        ("scale", MERGE, json!({"metadata": {"name": "other"}})),
        ("scale", MERGE, json!({"spec": null})),
        ("status", "application/strategic-merge-patch+json", json!({})),
    ] {
        twins.ask("PATCH", &managed(&format!("{a}/{path}")), content, &body).await;
        twins.ask("GET", a, JSON, none).await;
    }
    twins
        .ask("PATCH", &managed(&format!("{all}/yaml/scale")), MERGE, &json!({"spec": {"replicas": 4}}))
        .await;
    twins
        .ask(
            "PATCH",
            &managed(&format!("{all}/new/scale")),
            MERGE,
            &json!({"metadata": {"labels": {"a": "b"}}}),
        )
        .await;
    twins.ask("PUT", &managed(&format!("{a}/scale")), JSON, &json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": "requests"}, "spec": {"replicas": 2}})).await;
    twins.ask("PUT", &managed(&format!("{a}/scale")), JSON, &json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "b"}, "spec": {"replicas": 2}})).await;
    twins.ask("DELETE", &format!("{a}/status"), JSON, none).await;
    twins.ask("POST", &format!("{a}/scale"), JSON, none).await;

    // Deleting.
    twins.ask("DELETE", &format!("{all}/missing"), JSON, none).await;
    twins.ask("DELETE", a, JSON, &json!({"propagationPolicy": "Foreground"})).await;
    twins.ask("DELETE", &format!("{all}?labelSelector=none%3Dsuch"), JSON, none).await;
    twins.ask("DELETE", all, JSON, none).await;
    twins.ask("GET", all, JSON, none).await;
    twins.judge();
}
