//! Server-side apply, as kube-rs sends it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{client, cluster};

async fn maps() -> Api<ConfigMap> {
    Api::default_namespaced(client().await)
}

fn config(data: Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}))
}

async fn apply(maps: &Api<ConfigMap>, manager: &str, force: bool, data: Value) -> kube::Result<Value> {
    let params = PatchParams { force, ..PatchParams::apply(manager) };
    let applied = maps.patch("m", &params, &config(data)).await?;
    Ok(serde_json::to_value(applied.data).expect("data is JSON"))
}

/// Manager, operation and fields of each entry.
fn managers(map: &ConfigMap) -> Vec<(String, String, Value)> {
    let entries = map.metadata.managed_fields.clone().unwrap_or_default();
    let text = |text: Option<String>| text.unwrap_or_default();
    let entry = |entry: k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        (text(entry.manager), text(entry.operation), entry.fields_v1.map_or(Value::Null, |fields| fields.0))
    };
    entries.into_iter().map(entry).collect()
}

#[tokio::test]
async fn rule_2_43_what_a_manager_gives_up_is_gone() {
    let maps = maps().await;
    assert_eq!(
        apply(&maps, "one", false, json!({"a": "1", "b": "1"})).await.expect("made"),
        json!({"a": "1", "b": "1"})
    );
    assert_eq!(
        apply(&maps, "two", false, json!({"c": "2"})).await.expect("added"),
        json!({"a": "1", "b": "1", "c": "2"})
    );
    assert_eq!(
        apply(&maps, "one", false, json!({"a": "1"})).await.expect("given up"),
        json!({"a": "1", "c": "2"})
    );
    let map = maps.get("m").await.expect("the map");
    let fields = |key: &str| json!({"f:data": {key: {}}});
    let apply = "Apply".to_owned();
    assert_eq!(
        managers(&map),
        [("one".to_owned(), apply.clone(), fields("f:a")), ("two".to_owned(), apply, fields("f:c"))]
    );
}

#[tokio::test]
async fn rule_2_44_what_others_manage_is_a_conflict_unless_forced() {
    let maps = maps().await;
    apply(&maps, "one", false, json!({"a": "1"})).await.expect("made");
    match apply(&maps, "two", false, json!({"a": "2"})).await.expect_err("a conflict") {
        kube::Error::Api(status) => {
            assert_eq!(status.code, 409);
            assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.a");
            let causes = &status.details.as_ref().expect("details").causes;
            assert_eq!(
                (causes[0].reason.as_str(), causes[0].field.as_str()),
                ("FieldManagerConflict", ".data.a")
            );
        }
        other => panic!("{other}"),
    }
    assert_eq!(apply(&maps, "two", true, json!({"a": "2"})).await.expect("forced"), json!({"a": "2"}));
}

#[tokio::test]
async fn rule_2_45_other_writes_are_followed() {
    let maps = maps().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1"}});
    let params = PostParams { field_manager: Some("maker".to_owned()), ..PostParams::default() };
    let made = maps.create(&params, &serde_json::from_value(map).expect("a map")).await.expect("made");
    let update = "Update".to_owned();
    let of_maker = ("maker".to_owned(), update, json!({"f:data": {".": {}, "f:a": {}}}));
    assert_eq!(managers(&made), [of_maker]);
    let again = apply(&maps, "maker", false, json!({"a": "1"})).await.expect("the same value is no conflict");
    assert_eq!(again, json!({"a": "1"}));
}

#[tokio::test]
async fn rule_2_43_applying_the_same_again_changes_nothing() {
    let maps = maps().await;
    apply(&maps, "one", false, json!({"a": "1"})).await.expect("made");
    let before = maps.get("m").await.expect("the map");
    apply(&maps, "one", false, json!({"a": "1"})).await.expect("applied");
    assert_eq!(maps.get("m").await.expect("the map"), before);
}

/// A list that is one value gets its defaults anew with each apply, so that something seems to change until it is complete.
#[tokio::test]
async fn rule_2_43_applying_the_same_a_second_later_is_no_write() {
    let claims: Api<ResourceClaim> = Api::default_namespaced(client().await);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}},
    });
    let apply = || async {
        let applied = claims.patch("c", &PatchParams::apply("one"), &Patch::Apply(&claim)).await;
        applied.expect("a claim").metadata
    };
    let first = apply().await;
    let time =
        |meta: &ObjectMeta| meta.managed_fields.clone().expect("managers")[0].time.clone().expect("a time").0;
    // Times have no parts of a second.
    while Timestamp::now().as_second() == time(&first).as_second() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let second = apply().await;
    assert_eq!(second.resource_version, first.resource_version);
    assert_eq!(time(&second), time(&first));
}

#[tokio::test]
async fn rule_2_45_a_program_is_a_manager_by_all_letters_of_its_name() {
    let cluster = cluster().await;
    let long = "é".repeat(100);
    for (i, (agent, expected)) in [
        ("kubectl/v1.35", "kubectl"),
        ("größer/1", "größer"),
        ("日本/1", "日本"),
        ("a b\u{ad}c/1", "a bc"),
        ("/1", "unknown"),
        (&long, &"é".repeat(64)),
    ]
    .into_iter()
    .enumerate()
    {
        let body = json!({"metadata": {"name": format!("m{i}")}, "data": {"a": "b"}});
        let request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("User-Agent", HeaderValue::from_bytes(agent.as_bytes()).expect("a header"))
            .body(Bytes::from(body.to_string()));
        let answer = cluster.answer(request.expect("a request")).await;
        let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
        let made: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(made["metadata"]["managedFields"][0]["manager"], expected, "{agent}");
    }
}
