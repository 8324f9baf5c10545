//! Definitions as a cluster serves them: from the first request to the last object.

use apiserver::Cluster;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Config, Event};
use kube::{Client, ResourceExt as _};
use rules::job::Settings;
use serde_json::{Value, json};
use store::{Options, Store};

use crate::admission::webhooks::Hook;
use crate::both::Both;
use crate::{ask, cluster};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Widgets with a status and a scale, in two versions of which `v1` is stored.
fn widgets() -> Value {
    let schema = |default: &str| {
        json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "minimum": 0}, "color": {"type": "string", "default": default},
                "replicas": {"type": "integer"},
            }},
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}, "replicas": {"type": "integer"}}},
        }}})
    };
    let version = |name: &str, storage: bool, default: &str| {
        json!({"name": name, "served": true, "storage": storage, "schema": schema(default),
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [version("v1", true, "red"), version("v1beta1", false, "blue")]},
    })
}

fn widget(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

async fn expect(cluster: &Cluster, method: Method, path: &str, body: Option<&Value>, code: u16) -> Value {
    let (got, answer, _) = ask(cluster, method.clone(), path, body).await;
    assert_eq!(got, code, "{method} {path}: {answer}");
    answer
}

async fn with_widgets() -> Cluster {
    let cluster = cluster().await;
    expect(&cluster, Method::POST, DEFINITIONS, Some(&widgets()), 201).await;
    cluster
}

/// `NamesAccepted=True Established=True`
fn conditions(definition: &Value) -> String {
    let all = definition["status"]["conditions"].as_array().into_iter().flatten();
    let shown =
        all.map(|condition| format!("{}={}", condition["type"], condition["status"]).replace('"', ""));
    shown.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn rule_3_21_a_kind_is_there_when_its_definition_is_answered() {
    let cluster = with_widgets().await;
    let made =
        expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "a", json!({"size": 1}))), 201).await;
    assert_eq!(made["spec"], json!({"size": 1, "color": "red"}));
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let definition = expect(&cluster, Method::GET, &path, None, 200).await;
    assert_eq!(conditions(&definition), "NamesAccepted=True Established=True");
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(definition["status"]["acceptedNames"]["listKind"], "WidgetList");
    let resources = expect(&cluster, Method::GET, "/apis/example.com/v1", None, 200).await;
    let names: Vec<&Value> =
        resources["resources"].as_array().expect("a list").iter().map(|r| &r["name"]).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    let group = expect(&cluster, Method::GET, "/apis/example.com", None, 200).await;
    assert_eq!(group["preferredVersion"]["version"], "v1");
}

#[tokio::test]
async fn rule_3_24_objects_are_pruned_defaulted_and_judged() {
    let cluster = with_widgets().await;
    let (code, made, warnings) =
        ask(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "a", json!({"shape": "round"})))).await;
    assert_eq!(
        (code, &made["spec"], &made["metadata"]["generation"]),
        (201, &json!({"color": "red"}), &json!(1))
    );
    assert_eq!(warnings, [r#"299 - "unknown field \"spec.shape\"""#]);
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let refused =
        expect(&cluster, Method::POST, &strict, Some(&widget("v1", "b", json!({"shape": "round"}))), 400)
            .await;
    assert_eq!(
        refused["message"],
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.shape\""
    );
    let refused =
        expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "b", json!({"size": -1}))), 422).await;
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.size");
    // Outside of the status a change counts, in it it does not.
    let path = format!("{WIDGETS}/a");
    let mut changed = made.clone();
    changed["spec"]["size"] = json!(2);
    changed["status"] = json!({"ready": true});
    let changed = expect(&cluster, Method::PUT, &path, Some(&changed), 200).await;
    assert_eq!((&changed["metadata"]["generation"], &changed["status"]), (&json!(2), &Value::Null));
    let mut ready = changed.clone();
    ready["status"] = json!({"ready": true});
    ready["spec"]["size"] = json!(9);
    let ready = expect(&cluster, Method::PUT, &format!("{path}/status"), Some(&ready), 200).await;
    assert_eq!((&ready["metadata"]["generation"], &ready["spec"]["size"]), (&json!(2), &json!(2)));
    assert_eq!(ready["status"], json!({"ready": true}));
}

#[tokio::test]
async fn rule_3_30_one_object_in_two_versions() {
    let cluster = with_widgets().await;
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let made = expect(&cluster, Method::POST, beta, Some(&widget("v1beta1", "a", json!({}))), 201).await;
    assert_eq!(
        (&made["apiVersion"], &made["spec"]["color"]),
        (&json!("example.com/v1beta1"), &json!("blue"))
    );
    let stored = expect(&cluster, Method::GET, &format!("{WIDGETS}/a"), None, 200).await;
    assert_eq!((&stored["apiVersion"], &stored["spec"]["color"]), (&json!("example.com/v1"), &json!("blue")));
    let list = expect(&cluster, Method::GET, beta, None, 200).await;
    assert_eq!((&list["kind"], &list["items"][0]), (&json!("WidgetList"), &made));
}

#[tokio::test]
async fn rule_3_31_selectable_fields() {
    let cluster = with_widgets().await;
    for (name, color) in [("a", "red"), ("b", "green")] {
        expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", name, json!({"color": color}))), 201)
            .await;
    }
    for version in ["v1", "v1beta1"] {
        let path = format!("/apis/example.com/{version}/widgets?fieldSelector=spec.color%3Dgreen");
        let list = expect(&cluster, Method::GET, &path, None, 200).await;
        let names: Vec<&Value> =
            list["items"].as_array().expect("a list").iter().map(|w| &w["metadata"]["name"]).collect();
        assert_eq!(names, ["b"], "{version}");
    }
    let refused =
        expect(&cluster, Method::GET, &format!("{WIDGETS}?fieldSelector=spec.size%3D1"), None, 400).await;
    assert_eq!(refused["message"], "field label not supported: spec.size");
}

#[tokio::test]
async fn rule_3_22_a_name_is_given_once() {
    let cluster = with_widgets().await;
    let mut gadgets = widgets();
    gadgets["metadata"]["name"] = json!("gadgets.example.com");
    gadgets["spec"]["names"] = json!({"plural": "gadgets", "kind": "Widget"});
    expect(&cluster, Method::POST, DEFINITIONS, Some(&gadgets), 201).await;
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let refused = expect(&cluster, Method::GET, &path, None, 200).await;
    assert_eq!(conditions(&refused), "NamesAccepted=False Established=False");
    expect(&cluster, Method::GET, "/apis/example.com/v1/gadgets", None, 404).await;
    // Once the name is free, the other definition gets it.
    expect(&cluster, Method::DELETE, &format!("{DEFINITIONS}/widgets.example.com"), None, 200).await;
    gone(&cluster, "widgets.example.com").await;
    let established = async {
        loop {
            let definition = expect(&cluster, Method::GET, &path, None, 200).await;
            if conditions(&definition) == "NamesAccepted=True Established=True" {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), established).await.expect("it gets its names");
    expect(&cluster, Method::GET, "/apis/example.com/v1/gadgets", None, 200).await;
}

/// Waits until a definition is gone.
async fn gone(cluster: &Cluster, name: &str) {
    let definitions: Api<DynamicObject> = Api::all_with(
        Client::new(cluster.clone(), "default"),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let config = Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watcher::watcher(definitions, config).boxed();
    let mut seen = true;
    let wait = async {
        while let Some(event) = events.try_next().await.expect("a watch") {
            match event {
                Event::Init => seen = false,
                Event::InitApply(_) | Event::Apply(_) => seen = true,
                Event::InitDone if !seen => return,
                Event::InitDone => {}
                Event::Delete(_) => return,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), wait).await.expect("it goes in time");
}

#[tokio::test]
async fn rule_3_23_objects_go_before_their_definition() {
    let cluster = with_widgets().await;
    let mut held = widget("v1", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    expect(&cluster, Method::POST, WIDGETS, Some(&held), 201).await;
    expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "free", json!({}))), 201).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let leaving = expect(&cluster, Method::DELETE, &path, None, 200).await;
    assert_eq!(leaving["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert!(conditions(&leaving).ends_with("Terminating=True"), "{leaving}");
    let refused = expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "late", json!({}))), 403).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("create not allowed while custom resource definition is terminating"),
        "{message}"
    );
    // What has a finalizer is waited for.
    let widgets = Api::<DynamicObject>::default_namespaced_with(
        Client::new(cluster.clone(), "default"),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget")),
    );
    let is_leaving =
        |held: Option<&DynamicObject>| held.is_some_and(|held| held.metadata.deletion_timestamp.is_some());
    let leaves = kube::runtime::wait::await_condition(widgets.clone(), "held", is_leaving);
    let left = tokio::time::timeout(std::time::Duration::from_secs(30), leaves).await.expect("in time");
    assert!(left.expect("a watch").is_some(), "still there");
    let release = json!({"metadata": {"finalizers": null}});
    widgets.patch("held", &PatchParams::default(), &Patch::Merge(release)).await.expect("released");
    gone(&cluster, "widgets.example.com").await;
    let (code, body, _) = ask(&cluster, Method::GET, WIDGETS, None).await;
    assert_eq!((code, body), (404, Value::Null), "not even the group is known");
    expect(&cluster, Method::GET, "/apis/example.com", None, 404).await;
}

#[tokio::test]
async fn definitions_and_their_objects_are_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || async {
        let store = Store::open(Options::disk(directory.path())).expect("a store");
        (store.clone(), Cluster::open(store, Settings::default()).await.expect("a cluster"))
    };
    let (store, cluster) = open().await;
    expect(&cluster, Method::POST, DEFINITIONS, Some(&widgets()), 201).await;
    let made = expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "a", json!({}))), 201).await;
    drop(cluster);
    store.close().await;
    drop(store);
    let (_store, cluster) = open().await;
    let again = expect(&cluster, Method::GET, &format!("{WIDGETS}/a"), None, 200).await;
    assert_eq!(again, made);
}

#[tokio::test]
async fn rule_3_24_what_a_definition_comes_to_say_holds_for_old_objects() {
    let cluster = with_widgets().await;
    expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "a", json!({"size": 3}))), 201).await;
    // A watch of the old definition ends, so that its watcher learns of the new one.
    let request = Request::get(format!("{WIDGETS}?watch=1&resourceVersion=1&timeoutSeconds=60"));
    let watch = cluster.answer(request.body(bytes::Bytes::new()).expect("a request")).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut definition = expect(&cluster, Method::GET, &path, None, 200).await;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let properties = definition.pointer_mut(spec).and_then(Value::as_object_mut).expect("properties");
    properties.remove("size");
    properties.insert("weight".to_owned(), json!({"type": "integer", "default": 7}));
    let changed = expect(&cluster, Method::PUT, &path, Some(&definition), 200).await;
    assert_eq!(changed["metadata"]["generation"], 2);
    tokio::time::timeout(std::time::Duration::from_secs(10), watch.into_body().collect())
        .await
        .expect("the watch ends")
        .expect("bodies do not fail");
    let found = expect(&cluster, Method::GET, &format!("{WIDGETS}/a"), None, 200).await;
    assert_eq!(found["spec"], json!({"color": "red", "weight": 7}));
    let list = expect(&cluster, Method::GET, WIDGETS, None, 200).await;
    assert_eq!(list["items"][0], found);
}

#[tokio::test]
async fn rule_2_72_scale() {
    let cluster = with_widgets().await;
    expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", "a", json!({"replicas": 2}))), 201).await;
    let path = format!("{WIDGETS}/a/scale");
    let mut scale = expect(&cluster, Method::GET, &path, None, 200).await;
    assert_eq!((&scale["kind"], &scale["spec"]), (&json!("Scale"), &json!({"replicas": 2})));
    scale["spec"]["replicas"] = json!(5);
    let scaled =
        expect(&cluster, Method::PUT, &format!("{path}?fieldManager=scaler"), Some(&scale), 200).await;
    assert_eq!(scaled["spec"], json!({"replicas": 5}));
    let found = expect(&cluster, Method::GET, &format!("{WIDGETS}/a"), None, 200).await;
    assert_eq!((&found["spec"]["replicas"], &found["metadata"]["generation"]), (&json!(5), &json!(2)));
    let managers = found["metadata"]["managedFields"].as_array().expect("managers");
    let scaler =
        managers.iter().find(|entry| entry["manager"] == "scaler").expect("the scaler is one of them");
    assert_eq!(
        (&scaler["subresource"], &scaler["fieldsV1"]),
        (&json!("scale"), &json!({"f:spec": {"f:replicas": {}}}))
    );
}

#[tokio::test]
async fn kube_rs_works_with_custom_resources() {
    let cluster = with_widgets().await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    for config in [Config::default(), Config::default().streaming_lists()] {
        let widgets: Api<DynamicObject> =
            Api::default_namespaced_with(Client::new(cluster.clone(), "default"), &resource);
        let mut events = watcher::watcher(widgets.clone(), config).boxed();
        let mut next = async || {
            let next = tokio::time::timeout(std::time::Duration::from_secs(10), events.try_next()).await;
            match next.expect("in time").expect("a good event").expect("not the end") {
                Event::Init => "init".to_owned(),
                Event::InitDone => "done".to_owned(),
                Event::InitApply(object) | Event::Apply(object) => {
                    format!("apply {}", object.data["spec"]["color"])
                }
                Event::Delete(object) => format!("delete {}", object.name_any()),
            }
        };
        assert_eq!((next().await.as_str(), next().await.as_str()), ("init", "done"));
        let apply = Patch::Apply(widget("v1", "a", json!({"color": "pink"})));
        widgets.patch("a", &PatchParams::apply("me"), &apply).await.expect("applied");
        assert_eq!(next().await, "apply \"pink\"");
        let merge = Patch::Merge(json!({"spec": {"color": "gray"}}));
        widgets.patch("a", &PatchParams::default(), &merge).await.expect("merged");
        assert_eq!(next().await, "apply \"gray\"");
        let strategic = Patch::Strategic(json!({"spec": {"color": "gray"}}));
        let refused = widgets.patch("a", &PatchParams::default(), &strategic).await;
        assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 415), "rule 2.36");
        let status = Patch::Merge(json!({"status": {"ready": true}}));
        let status = widgets.patch_status("a", &PatchParams::default(), &status).await.expect("patched");
        assert_eq!(status.data["status"]["ready"], true);
        assert_eq!(next().await, "apply \"gray\"");
        widgets.delete("a", &kube::api::DeleteParams::default()).await.expect("deleted");
        assert_eq!(next().await, "delete a");
        let created: DynamicObject = serde_json::from_value(widget("v1", "b", json!({}))).expect("a widget");
        widgets.create(&PostParams::default(), &created).await.expect("created");
        assert_eq!(next().await, "apply \"red\"");
        let all = widgets
            .delete_collection(&kube::api::DeleteParams::default(), &kube::api::ListParams::default())
            .await;
        all.expect("deleted");
        assert_eq!(next().await, "delete b");
    }
}

#[tokio::test]
async fn applied_metadata_of_another_type_makes_nothing_fail() {
    let cluster = with_widgets().await;
    let client = Client::new(cluster.clone(), "default");
    for metadata in [
        json!({"name": "a", "creationTimestamp": "yesterday"}),
        json!({"name": "a", "managedFields": "x"}),
        json!({"name": "a", "ownerReferences": [{"uid": "u", "name": "n", "kind": "k", "apiVersion": "v1", "controller": "maybe"}]}),
        json!("x"),
        json!(null),
    ] {
        let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata});
        let request = Request::patch(format!("{WIDGETS}/a?fieldManager=me"))
            .header("Content-Type", "application/apply-patch+yaml");
        let bytes = serde_json::to_vec(&config).expect("JSON prints");
        let answer = client
            .send(request.body(kube::client::Body::from(bytes)).expect("a request"))
            .await
            .expect("an answer");
        assert!(matches!(answer.status().as_u16(), 200 | 201 | 400 | 500), "{config} {}", answer.status());
    }
}

#[tokio::test]
async fn rule_3_30_webhooks_convert() {
    let hook = Hook::start().await;
    let cluster = cluster().await;
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}})
    };
    let mut definition = widgets();
    definition["spec"]["versions"] = json!([version("v1", "color"), version("v1beta1", "hue")]);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": hook.config("/convert")}});
    expect(&cluster, Method::POST, DEFINITIONS, Some(&definition), 201).await;
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let made =
        expect(&cluster, Method::POST, beta, Some(&widget("v1beta1", "a", json!({"hue": "red"}))), 201).await;
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("example.com/v1beta1"), &json!({"hue": "red"})));
    let read = expect(&cluster, Method::GET, &format!("{WIDGETS}/a"), None, 200).await;
    assert_eq!((&read["apiVersion"], &read["spec"]), (&json!("example.com/v1"), &json!({"color": "red"})));
    let mut changed = read.clone();
    changed["spec"]["color"] = json!("blue");
    expect(&cluster, Method::PUT, &format!("{WIDGETS}/a"), Some(&changed), 200).await;
    let list = expect(&cluster, Method::GET, beta, None, 200).await;
    assert_eq!(list["items"][0]["spec"], json!({"hue": "blue"}));
    let request = Request::get(format!("{beta}?watch=1&timeoutSeconds=1")).body(bytes::Bytes::new());
    let watch =
        cluster.answer(request.expect("a request")).await.into_body().collect().await.expect("a stream");
    let first = String::from_utf8_lossy(&watch.to_bytes()).lines().next().unwrap_or_default().to_owned();
    let event: Value = serde_json::from_str(&first).expect("an event");
    assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("ADDED"), &json!({"hue": "blue"})));
    // Who cannot be asked is said.
    definition["metadata"]["name"] = json!("gizmos.example.com");
    definition["spec"]["names"] = json!({"plural": "gizmos", "kind": "Gizmo"});
    definition["spec"]["conversion"]["webhook"]["clientConfig"] =
        json!({"url": "https://127.0.0.1:1/convert"});
    expect(&cluster, Method::POST, DEFINITIONS, Some(&definition), 201).await;
    let gizmo = json!({"apiVersion": "example.com/v1beta1", "kind": "Gizmo", "metadata": {"name": "a"}});
    let refused = expect(
        &cluster,
        Method::POST,
        "/apis/example.com/v1beta1/namespaces/default/gizmos",
        Some(&gizmo),
        500,
    )
    .await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(
        message.starts_with("conversion webhook for example.com/v1beta1, Kind=Gizmo failed: Post"),
        "{message}"
    );
}

/// Widgets whose color `v1beta1` calls hue, both selectable, and somebody who converts them.
fn converted_widgets(hook: &Hook) -> Value {
    let version = |name: &str, field: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}})
    };
    let mut definition = widgets();
    definition["spec"]["versions"] = json!([version("v1", "color"), version("v1beta1", "hue")]);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": hook.config("/convert")}});
    definition
}

#[tokio::test]
async fn rule_3_31_fields_of_a_version_that_a_webhook_converts_to() {
    let Some(both) = Both::start().await else { return };
    let hook = Hook::start().await;
    let made = both.codes(&Method::POST, DEFINITIONS, &converted_widgets(&hook)).await;
    assert_eq!(made, (201, 201));
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let served = async {
        while both.codes(&Method::GET, beta, &json!({})).await != (200, 200) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), served).await.expect("both serve it");
    for (name, color) in [("a", "red"), ("b", "green"), ("c", "red")] {
        both.make(WIDGETS, &widget("v1", name, json!({"color": color}))).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().into_iter().flatten();
        items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    for (path, field, color, expected) in [
        (WIDGETS, "spec.color", "red", &["a", "c"][..]),
        (beta, "spec.hue", "red", &["a", "c"]),
        (beta, "spec.hue", "green", &["b"]),
        (beta, "spec.hue!", "red", &["b"]),
        (beta, "metadata.name%3Da,spec.hue", "red", &["a"]),
        (beta, "spec.hue", "blue", &[]),
    ] {
        let path = format!("{path}?fieldSelector={field}%3D{color}");
        let (code, list) = both.ask(&[], &Method::GET, &path, None).await;
        assert_eq!(
            (code, names(&list)),
            (200, expected.iter().map(|name| (*name).to_owned()).collect()),
            "{path}"
        );
    }
    // A page is as long as it may be, whatever was not selected in between.
    let (_, page) =
        both.ask(&[], &Method::GET, &format!("{beta}?fieldSelector=spec.hue%3Dred&limit=2"), None).await;
    assert_eq!(names(&page), ["a", "c"]);
    for (path, field) in [(WIDGETS, "spec.hue"), (beta, "spec.color")] {
        let path = format!("{path}?fieldSelector={field}%3Dred");
        assert_eq!(both.ask(&[], &Method::GET, &path, None).await.0, 400);
    }
    let path = format!("{beta}?fieldSelector=spec.hue%3Dred");
    assert_eq!(both.ask(&[], &Method::DELETE, &path, None).await.0, 200);
    assert_eq!(names(&both.ask(&[], &Method::GET, WIDGETS, None).await.1), ["b"]);
}

#[tokio::test]
async fn rule_3_31_watches_by_fields_of_a_version_that_a_webhook_converts_to() {
    let hook = Hook::start().await;
    let cluster = cluster().await;
    expect(&cluster, Method::POST, DEFINITIONS, Some(&converted_widgets(&hook)), 201).await;
    for (name, color) in [("a", "red"), ("b", "green")] {
        expect(&cluster, Method::POST, WIDGETS, Some(&widget("v1", name, json!({"color": color}))), 201)
            .await;
    }
    let path = "/apis/example.com/v1beta1/widgets?watch=1&fieldSelector=spec.hue%3Dred";
    let answer = cluster.answer(Request::get(path).body(bytes::Bytes::new()).expect("a request")).await;
    let mut lines = answer.into_body().into_data_stream();
    let mut next = async || {
        let line = tokio::time::timeout(std::time::Duration::from_secs(60), lines.next()).await;
        let line = line.expect("an event").expect("the watch goes on").expect("bodies do not fail");
        let event: Value = serde_json::from_slice(&line).expect("an event");
        let object = &event["object"];
        assert_eq!(object["apiVersion"], "example.com/v1beta1");
        [&event["type"], &object["metadata"]["name"], &object["spec"]["hue"]]
            .map(|text| text.as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(next().await, ["ADDED", "a", "red"]);
    let paint = async |name: &str, color: &str| {
        let path = format!("{WIDGETS}/{name}");
        let mut object = expect(&cluster, Method::GET, &path, None, 200).await;
        object["spec"]["color"] = json!(color);
        expect(&cluster, Method::PUT, &path, Some(&object), 200).await;
    };
    paint("b", "red").await;
    assert_eq!(next().await, ["ADDED", "b", "red"]);
    paint("a", "green").await;
    // It left as what it was.
    assert_eq!(next().await, ["DELETED", "a", "red"]);
    paint("a", "blue").await;
    expect(&cluster, Method::DELETE, &format!("{WIDGETS}/b"), None, 200).await;
    assert_eq!(next().await, ["DELETED", "b", "red"]);
}
