//! Create, read, change and delete objects of kinds without rules of their own.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use serde_json::json;

use crate::{ask, client, cluster};

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("key".to_owned(), value.to_owned())].into()),
        ..ConfigMap::default()
    }
}

fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.expect_err("it is refused") {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_object_lives() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));

    let mut read = maps.get("a").await.expect("read");
    assert_eq!(read, made);
    read.data.get_or_insert_default().insert("key".to_owned(), "2".to_owned());
    let changed = maps.replace("a", &PostParams::default(), &read).await.expect("changed");
    assert_ne!(changed.metadata.resource_version, made.metadata.resource_version);

    let (code, message) = refused(maps.replace("a", &PostParams::default(), &read).await);
    assert_eq!(code, 409, "{message}");
    assert!(
        message
            .starts_with("Operation cannot be fulfilled on configmaps \"a\": the object has been modified")
    );

    let same = maps.replace("a", &PostParams::default(), &changed).await.expect("nothing changes");
    assert_eq!(
        same.metadata.resource_version, changed.metadata.resource_version,
        "2.3: no write, no revision"
    );

    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(refused(maps.get("a").await), (404, "configmaps \"a\" not found".to_owned()));
}

#[tokio::test]
async fn names_are_taken_once_and_generated_where_wanted() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    maps.create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    let again = maps.create(&PostParams::default(), &config_map("a", "1")).await;
    assert_eq!(refused(again), (409, "configmaps \"a\" already exists".to_owned()));
    let mut nameless = config_map("", "1");
    nameless.metadata.name = None;
    nameless.metadata.generate_name = Some("gen-".to_owned());
    let made = maps.create(&PostParams::default(), &nameless).await.expect("created");
    let name = made.metadata.name.expect("a name");
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
}

#[tokio::test]
async fn rule_2_28_namespaces_must_be_there() {
    let cluster = cluster().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (code, answer, _) =
        ask(&cluster, Method::POST, "/api/v1/namespaces/nowhere/configmaps", Some(&body)).await;
    assert_eq!((code, &answer["message"]), (404, &json!("namespaces \"nowhere\" not found")));
}

#[tokio::test]
async fn rule_2_60_a_namespace_leaves_when_it_is_told_to() {
    let namespaces: Api<Namespace> = Api::all(client().await);
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(
            namespaces.get(name).await.expect("a first namespace").metadata.labels.expect("labels")["kubernetes.io/metadata.name"],
            name
        );
    }
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("x".to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    namespaces.delete("x", &DeleteParams::default()).await.expect("deleted");
    let leaving = namespaces.get("x").await.expect("it waits for its finalizer");
    assert_eq!(leaving.status.and_then(|status| status.phase).as_deref(), Some("Terminating"));
}

#[tokio::test]
async fn rule_2_55_finalizers_hold_an_object() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let mut held = config_map("a", "1");
    held.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    maps.create(&PostParams::default(), &held).await.expect("created");
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let mut leaving = maps.get("a").await.expect("held");
    assert!(leaving.metadata.deletion_timestamp.is_some());
    leaving.metadata.finalizers = None;
    maps.replace("a", &PostParams::default(), &leaving).await.expect("let go");
    assert_eq!(refused(maps.get("a").await).0, 404);
}

#[tokio::test]
async fn lists_are_selected_and_paged() {
    let client = client().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for i in 0..7 {
        let mut map = config_map(&format!("m{i}"), "1");
        map.metadata.labels = Some([("even".to_owned(), (i % 2 == 0).to_string())].into());
        maps.create(&PostParams::default(), &map).await.expect("created");
    }
    let names = |list: &kube::core::ObjectList<ConfigMap>| -> Vec<String> {
        list.items.iter().filter_map(|map| map.metadata.name.clone()).collect()
    };
    let even = maps.list(&ListParams::default().labels("even=true")).await.expect("a list");
    assert_eq!(names(&even), ["m0", "m2", "m4", "m6"]);
    let one = maps.list(&ListParams::default().fields("metadata.name=m3")).await.expect("a list");
    assert_eq!(names(&one), ["m3"]);

    let first = maps.list(&ListParams::default().limit(3)).await.expect("a page");
    assert_eq!(
        (names(&first), first.metadata.remaining_item_count),
        (vec!["m0".into(), "m1".into(), "m2".into()], Some(4))
    );
    maps.delete("m5", &DeleteParams::default()).await.expect("deleted");
    let token = first.metadata.continue_.expect("more");
    let second = maps.list(&ListParams::default().limit(10).continue_token(&token)).await.expect("a page");
    assert_eq!(names(&second), ["m3", "m4", "m5", "m6"], "2.8: all pages are of one state");
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);

    let (code, message) = refused(maps.list(&ListParams::default().fields("data.key=1")).await);
    assert_eq!(code, 400);
    assert_eq!(
        message,
        "\"data.key\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );

    maps.delete_collection(&DeleteParams::default(), &ListParams::default().labels("even=true"))
        .await
        .expect("deleted");
    assert_eq!(names(&maps.list(&ListParams::default()).await.expect("a list")), ["m1", "m3"]);
}

#[tokio::test]
async fn rule_2_59_a_dry_run_stores_nothing() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("a", "1")).await.expect("would be created");
    assert_eq!(refused(maps.get("a").await).0, 404);
}

#[tokio::test]
async fn rule_2_65_unknown_fields_are_warned_of_or_refused() {
    let cluster = cluster().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "colour": "red"});
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, answer, _) =
        ask(&cluster, Method::POST, &format!("{path}?fieldValidation=Strict"), Some(&body)).await;
    let why = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"colour\"";
    assert_eq!((code, &answer["message"]), (400, &json!(why)));
    let (code, _, warnings) = ask(&cluster, Method::POST, path, Some(&body)).await;
    assert_eq!((code, warnings), (201, vec!["299 - \"unknown field \\\"colour\\\"\"".to_owned()]));
}

#[tokio::test]
async fn what_is_not_there_and_cannot_be_asked() {
    let cluster = cluster().await;
    for (method, path, code) in [
        (Method::GET, "/apis/nobody.example/v1/things", 404),
        (Method::GET, "/apis/batch/v2/jobs", 404),
        (Method::GET, "/api/v1/nothings", 404),
        (Method::POST, "/api/v1/pods", 405),
        (Method::DELETE, "/api/v1/namespaces", 405),
        (Method::GET, "/api/v1/namespaces/default/configmaps?limit=x", 400),
        (Method::GET, "/api/v1/namespaces/default/configmaps?continue=%21", 400),
        (Method::GET, "/api/v1/namespaces/default/configmaps?labelSelector=a+b", 400),
        (
            Method::GET,
            "/api/v1/namespaces/default/configmaps?resourceVersion=999999999999&resourceVersionMatch=NotOlderThan",
            504,
        ),
    ] {
        let (got, answer, _) = ask(&cluster, method, path, None).await;
        assert_eq!(got, code, "{path}: {answer}");
    }
    let huge = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "x".repeat(4 << 20)}});
    let (code, answer, _) =
        ask(&cluster, Method::POST, "/api/v1/namespaces/default/configmaps", Some(&huge)).await;
    assert_eq!((code, &answer["reason"]), (413, &json!("RequestEntityTooLarge")));
}

#[tokio::test]
async fn rule_3_12_secrets_keep_text_as_bytes() {
    let cluster = cluster().await;
    let path = "/api/v1/namespaces/default/secrets";
    let body =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let (code, secret, _) = ask(&cluster, Method::POST, path, Some(&body)).await;
    assert_eq!((code, &secret["type"], &secret["data"]), (201, &json!("Opaque"), &json!({"k": "dg=="})));
    assert_eq!(secret.get("stringData"), None);
    let (_, list, _) = ask(&cluster, Method::GET, &format!("{path}?fieldSelector=type%3DOpaque"), None).await;
    assert_eq!(list["items"][0]["metadata"]["name"], "s");
    assert_eq!((&list["kind"], list["items"][0].get("kind")), (&json!("SecretList"), None), "2.11");
}

#[tokio::test]
async fn rule_2_24_bodies_that_cannot_be_recognized() {
    let cluster = cluster().await;
    for (body, why) in
        [("", "unexpected end of JSON input (<empty>)"), ("   ", "unexpected end of JSON input (202020)")]
    {
        let request =
            http::Request::post("/api/v1/namespaces/default/configmaps").body(bytes::Bytes::from(body));
        let answer = cluster.answer(request.expect("a request")).await;
        assert_eq!(answer.status(), 400);
        let answer = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body").to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
        let start = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: ";
        assert_eq!(status["message"], format!("{start}{why}"));
    }
}

#[tokio::test]
async fn rule_1_4_1_38_every_answer_is_private_and_long_ones_are_zipped_for_those_who_take_it() {
    let cluster = cluster().await;
    for i in 0..4 {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")},
            "data": {"k": "x".repeat(50_000)},
        });
        assert_eq!(
            ask(&cluster, Method::POST, "/api/v1/namespaces/default/configmaps", Some(&map)).await.0,
            201
        );
    }
    for (path, accept, zipped) in [
        ("/api/v1/namespaces/default/configmaps", "gzip", true),
        ("/api/v1/namespaces/default/configmaps", "br, gzip;q=0.5", true),
        ("/api/v1/namespaces/default/configmaps", "gzip;q=0", false),
        ("/api/v1/namespaces/default/configmaps/m0", "gzip", false),
    ] {
        let request = Request::get(path).header("Accept-Encoding", accept).header("Audit-Id", "mine");
        let answer = cluster.answer(request.body(Bytes::new()).expect("a request")).await;
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("Content-Encoding"), zipped.then_some("gzip"), "{path} {accept}");
        assert_eq!((header("Audit-Id"), header("Cache-Control")), (Some("mine"), Some("no-cache, private")));
        let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
        if zipped {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
                .expect("gzip");
            let list: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(4));
        }
    }
}

/// What a service was given for a change that is refused after all goes back.
#[tokio::test]
async fn addresses_of_a_refused_change_are_given_back() {
    let cluster = cluster().await;
    let services = "/api/v1/namespaces/default/services";
    let external =
        json!({"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "example.com"}});
    assert_eq!(ask(&cluster, Method::POST, services, Some(&external)).await.0, 201);
    let registration = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["UPDATE"]});
    let policy = json!({"metadata": {"name": "no"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "false"}],
    }});
    let binding =
        json!({"metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}});
    for (plural, object) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let (code, said, _) =
            ask(&cluster, Method::POST, &format!("{registration}/{plural}"), Some(&object)).await;
        assert_eq!(code, 201, "{said}");
    }
    let taken = async || {
        let (_, list, _) = ask(&cluster, Method::GET, "/apis/networking.k8s.io/v1/ipaddresses", None).await;
        list["items"].as_array().map(Vec::len)
    };
    let before = taken().await;
    assert!(before.is_some());
    let inside = json!({"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}});
    for _ in 0..3 {
        let (code, said, _) = ask(&cluster, Method::PUT, &format!("{services}/s"), Some(&inside)).await;
        assert_eq!(code, 422, "{said}");
    }
    assert_eq!(taken().await, before);
}
