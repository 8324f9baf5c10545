//! Watches: plain ones, and those of kube-rs's watcher in both of its ways.

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::Cluster;
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use http::Method;
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Config, Event};
use rules::job::Settings;
use serde_json::{Value, json};
use store::{Options, Store, Window};

use crate::{ask, client, cluster};

fn config_map(name: &str, label: &str) -> ConfigMap {
    let labels = Some([("l".to_owned(), label.to_owned())].into());
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

/// What an event says, in short.
fn shown(event: &WatchEvent<ConfigMap>) -> String {
    let named =
        |word: &str, map: &ConfigMap| format!("{word} {}", map.metadata.name.as_deref().unwrap_or("?"));
    match event {
        WatchEvent::Added(map) => named("added", map),
        WatchEvent::Modified(map) => named("modified", map),
        WatchEvent::Deleted(map) => named("deleted", map),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

async fn next(
    stream: &mut (impl futures::Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
) -> String {
    let next =
        tokio::time::timeout(Duration::from_secs(10), stream.try_next()).await.expect("an event in time");
    shown(&next.expect("a good event").expect("not the end"))
}

#[tokio::test]
async fn rule_2_20_selectors_look_at_both_sides_of_a_change() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let start = maps
        .list(&ListParams::default())
        .await
        .expect("a list")
        .metadata
        .resource_version
        .expect("a revision");
    let params = WatchParams::default().labels("l=yes").disable_bookmarks();
    let mut stream = maps.watch(&params, &start).await.expect("a watch").boxed();
    let write = PostParams::default();
    maps.create(&write, &config_map("a", "no")).await.expect("created");
    maps.create(&write, &config_map("b", "yes")).await.expect("created");
    assert_eq!(next(&mut stream).await, "added b");
    maps.replace("a", &write, &config_map("a", "yes")).await.expect("changed");
    assert_eq!(next(&mut stream).await, "added a");
    let mut more = config_map("a", "yes");
    more.data = Some([("k".to_owned(), "v".to_owned())].into());
    maps.replace("a", &write, &more).await.expect("changed");
    assert_eq!(next(&mut stream).await, "modified a");
    maps.replace("a", &write, &config_map("a", "no")).await.expect("changed");
    assert_eq!(next(&mut stream).await, "deleted a");
    maps.delete("b", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(next(&mut stream).await, "deleted b");
}

#[tokio::test]
async fn rule_2_13_what_was_missed_is_delivered() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.expect("created");
    maps.create(&PostParams::default(), &config_map("b", "1")).await.expect("created");
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    let after = made.metadata.resource_version.expect("a revision");
    let mut stream =
        maps.watch(&WatchParams::default().disable_bookmarks(), &after).await.expect("a watch").boxed();
    assert_eq!(next(&mut stream).await, "added b");
    assert_eq!(next(&mut stream).await, "deleted a");
}

/// A cluster that knows nothing but its last state.
async fn forgetful() -> Cluster {
    let mut options = Options::ephemeral();
    options.window = Window { events: 1, age: Duration::ZERO, bytes: 0 };
    options.history.age = Duration::ZERO;
    options.history.bytes = 0;
    let cluster = Cluster::open(Store::open(options).expect("a store"), Settings::default());
    cluster.await.expect("a cluster")
}

/// As kube-apiserver does it: its stream just ends, and going on from where it was is refused.
#[tokio::test]
async fn rule_2_13_a_client_that_is_too_slow_finds_out_when_it_wants_to_go_on() {
    let cluster = forgetful().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let (_, list, _) = ask(&cluster, Method::GET, maps, None).await;
    let start = list["metadata"]["resourceVersion"].as_str().expect("a revision");
    let path = format!("{maps}?watch=1&resourceVersion={start}&timeoutSeconds=20");
    let request = http::Request::get(&path).body(bytes::Bytes::new()).expect("a request");
    let slow = cluster.answer(request).await;
    for name in ["a", "b", "c"] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(ask(&cluster, Method::POST, maps, Some(&map)).await.0, 201);
    }
    let rest = tokio::time::timeout(Duration::from_secs(10), slow.into_body().collect());
    let rest = rest.await.expect("it ends before its time").expect("bodies do not fail").to_bytes();
    assert!(!String::from_utf8_lossy(&rest).contains("ERROR"), "{rest:?}");
    let (code, event, _) = ask(&cluster, Method::GET, &path, None).await;
    assert_eq!((code, &event["type"], &event["object"]["code"]), (200, &json!("ERROR"), &json!(410)));
}

/// As recorded from kube-apiserver v1.35.8, whose events are not cached and told of by the storage.
#[tokio::test]
async fn rules_2_13_and_2_9_what_is_no_longer_known_is_told_so() {
    let cluster = forgetful().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let events = "/api/v1/namespaces/default/events";
    for name in ["a", "b", "c"] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(ask(&cluster, Method::POST, maps, Some(&map)).await.0, 201);
        let involved = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        let event = json!({"metadata": {"name": name}, "involvedObject": involved});
        assert_eq!(ask(&cluster, Method::POST, events, Some(&event)).await.0, 201);
    }
    let of_cache = r"^too old resource version: 1 \(\d+\)$";
    let of_storage = "^The resourceVersion for the provided watch is too old.$";
    for (path, said) in [(maps, of_cache), (events, of_storage)] {
        for more in
            ["", "&allowWatchBookmarks=true", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"]
        {
            let path = format!("{path}?watch=1&resourceVersion=1&timeoutSeconds=5{more}");
            let (code, event, _) = ask(&cluster, Method::GET, &path, None).await;
            assert_eq!((code, &event["type"]), (200, &json!("ERROR")), "{path}");
            let status = &event["object"];
            assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{path}");
            let message = status["message"].as_str().expect("a message");
            assert!(regex::Regex::new(said).expect("a pattern").is_match(message), "{path}: {message}");
        }
    }
    for how in ["resourceVersionMatch=Exact", "limit=1"] {
        let path = format!("{maps}?resourceVersion=1&{how}");
        let (code, status, _) = ask(&cluster, Method::GET, &path, None).await;
        assert_eq!((code, &status["reason"]), (410, &json!("Expired")), "{path}");
        assert_eq!(status["message"], "The resourceVersion for the provided list is too old.");
    }
    let (code, list, _) = ask(&cluster, Method::GET, &format!("{maps}?resourceVersion=1"), None).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(3)));
}

#[tokio::test]
async fn rule_2_19_a_watch_ends_when_its_time_is_up() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let stream =
        maps.watch(&WatchParams::default().timeout(1).disable_bookmarks(), "0").await.expect("a watch");
    assert_eq!(stream.count().await, 0);
}

/// Follows changes with kube-rs until it has seen the state that is wanted.
async fn follows(config: Config) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    for i in 0..5 {
        maps.create(&PostParams::default(), &config_map(&format!("m{i}"), "1")).await.expect("created");
    }
    let mut stream = watcher::watcher(maps.clone(), config).boxed();
    let mut seen: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut changed = false;
    let all_seen = async {
        loop {
            let map = |map: ConfigMap| {
                (map.metadata.name.expect("a name"), map.metadata.labels.and_then(|mut l| l.remove("l")))
            };
            match stream.next().await.expect("watchers go on").expect("no error") {
                Event::InitApply(object) | Event::Apply(object) => {
                    let (name, label) = map(object);
                    seen.insert(name, label);
                }
                Event::Delete(object) => drop(seen.remove(&map(object).0)),
                Event::Init => seen.clear(),
                Event::InitDone => {
                    assert_eq!(seen.len(), 5);
                    maps.delete("m0", &DeleteParams::default()).await.expect("deleted");
                    maps.replace("m1", &PostParams::default(), &config_map("m1", "2"))
                        .await
                        .expect("changed");
                    changed = true;
                }
            }
            if changed && !seen.contains_key("m0") && seen.get("m1").and_then(Option::as_deref) == Some("2") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all_seen).await.expect("every change is seen");
}

#[tokio::test]
async fn kube_rs_lists_and_watches() {
    follows(Config::default()).await;
}

#[tokio::test]
async fn rule_2_15_kube_rs_streams_lists() {
    follows(Config::default().streaming_lists()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_2_18_the_end_of_the_initial_events_is_told_however_much_happens_meanwhile() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let write = PostParams::default();
    for number in 0..200 {
        maps.create(&write, &config_map(&format!("m{number}"), "1")).await.expect("created");
    }
    let busy = maps.clone();
    let writer = tokio::spawn(async move {
        for label in 0.. {
            busy.replace("m0", &PostParams::default(), &config_map("m0", &label.to_string()))
                .await
                .expect("changed");
        }
    });
    for attempt in 0..100 {
        let params = WatchParams::default().initial_events();
        let mut stream = maps.watch(&params, "0").await.expect("a watch").boxed();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(10), stream.try_next()).await;
            let next = next.unwrap_or_else(|_| panic!("watch {attempt} did not tell the end"));
            let WatchEvent::Bookmark(bookmark) = next.expect("a good event").expect("not the end") else {
                continue;
            };
            if bookmark.metadata.annotations.contains_key("k8s.io/initial-events-end") {
                break;
            }
        }
    }
    writer.abort();
}

/// Reads the events of a watch, each as JSON, until as many as are wanted have come.
async fn events(client: &kube::Client, path: &str, accept: &str, wanted: usize) -> Vec<Value> {
    let request = http::Request::get(path).header("Accept", accept).body(Vec::new()).expect("a request");
    let mut lines = client.request_stream(request).await.expect("a watch").lines().boxed_local();
    let mut events = Vec::new();
    while events.len() < wanted {
        let line = tokio::time::timeout(Duration::from_secs(60), lines.try_next()).await;
        let line = line.expect("an event in time").expect("a good event").expect("not the end");
        events.push(serde_json::from_str(&line).expect("an event is JSON"));
    }
    events
}

/// Makes, changes and deletes an object, and returns what a watch tells of it.
async fn life(
    cluster: &apiserver::Cluster,
    watching: &kube::Client,
    accept: &str,
    daemon_set: bool,
) -> Vec<Value> {
    let (path, object) = if daemon_set {
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod});
        ("/apis/apps/v1/namespaces/default/daemonsets", json!({"metadata": {"name": "x"}, "spec": spec}))
    } else {
        let annotations = json!({"note": r#","managedFields":[1]"#});
        let object =
            json!({"metadata": {"name": "x", "annotations": annotations}, "data": {"metadata": "{}"}});
        ("/api/v1/namespaces/default/configmaps", object)
    };
    let before = ask(cluster, Method::GET, path, None).await.1["metadata"]["resourceVersion"].clone();
    let version = before.as_str().expect("a version");
    assert_eq!(ask(cluster, Method::POST, path, Some(&object)).await.0, 201);
    let one = format!("{path}/x");
    let mut changed = object.clone();
    changed["metadata"]["labels"] = json!({"l": "1"});
    assert_eq!(ask(cluster, Method::PUT, &one, Some(&changed)).await.0, 200);
    assert_eq!(ask(cluster, Method::DELETE, &one, None).await.0, 200);
    events(watching, &format!("{path}?watch=true&resourceVersion={version}"), accept, 3).await
}

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[tokio::test]
async fn rule_1_35_a_watch_of_metadata_tells_the_metadata_of_the_whole_and_nothing_else() {
    for daemon_set in [false, true] {
        let cluster = cluster().await;
        let client = kube::Client::new(cluster.clone(), "default");
        let whole = life(&cluster, &client, "application/json", daemon_set).await;
        let version = whole[0]["object"]["metadata"]["resourceVersion"].as_str().expect("a version");
        let after = version.parse::<u64>().expect("a number") - 1;
        let kind = if daemon_set { "apis/apps/v1/daemonsets" } else { "api/v1/configmaps" };
        let path = format!("/{kind}?watch=true&resourceVersion={after}");
        let metadata = events(&client, &path, METADATA_ONLY, 3).await;
        for (whole, shown) in whole.iter().zip(&metadata) {
            let mut expected = whole["object"]["metadata"].clone();
            assert!(expected["managedFields"].is_array(), "{whole}");
            if daemon_set {
                expected.as_object_mut().expect("metadata").remove("annotations");
            }
            assert_eq!(shown["type"], whole["type"]);
            let expected = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": expected,
            });
            assert_eq!(shown["object"], expected);
        }
    }
}

#[tokio::test]
async fn clients_that_do_not_ask_who_manages_fields_are_told_everything_else() {
    for (accept, daemon_set) in [("application/json", false), (METADATA_ONLY, false), (METADATA_ONLY, true)] {
        let cluster = cluster().await;
        let plain = kube::Client::new(cluster.clone(), "default");
        let lean = kube::Client::new(apiserver::WithoutManagers(cluster.clone()), "default");
        let told = life(&cluster, &lean, accept, daemon_set).await;
        let version = told[0]["object"]["metadata"]["resourceVersion"].as_str().expect("a version");
        let after = version.parse::<u64>().expect("a number") - 1;
        let kind = if daemon_set { "apis/apps/v1/daemonsets" } else { "api/v1/configmaps" };
        let all = events(&plain, &format!("/{kind}?watch=true&resourceVersion={after}"), accept, 3).await;
        for (told, mut whole) in told.into_iter().zip(all) {
            if !daemon_set {
                let meta = whole["object"]["metadata"].as_object_mut().expect("metadata");
                assert!(meta.remove("managedFields").is_some_and(|fields| fields.is_array()));
            }
            assert_eq!(told, whole);
        }
    }
}

/// A watch that is not read while others are written must not lose its place among theirs.
#[tokio::test]
async fn rule_8_20_what_is_not_selected_does_not_concern_a_watch() {
    let mut options = Options::ephemeral();
    options.window = Window { events: 4, age: Duration::ZERO, bytes: 0 };
    let cluster = Cluster::open(Store::open(options).expect("a store"), Settings::default());
    let cluster = cluster.await.expect("a cluster");
    let (nodes, pods) = ("/api/v1/nodes", "/api/v1/namespaces/default/pods");
    let pod = |name: String, node: &str| {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    for (path, selector, mine, other) in [
        (nodes, "metadata.name=mine", json!({"metadata": {"name": "mine"}}), nodes),
        ("/api/v1/pods", "spec.nodeName=a", pod("mine".to_owned(), "a"), pods),
    ] {
        let version = ask(&cluster, Method::GET, path, None).await.1["metadata"]["resourceVersion"].clone();
        let version = version.as_str().expect("a version");
        let watch = format!("{path}?watch=1&fieldSelector={selector}&resourceVersion={version}");
        let request = http::Request::get(&watch).body(bytes::Bytes::new()).expect("a request");
        let mut stream = cluster.answer(request).await.into_body().into_data_stream();
        for number in 0..20 {
            let name = format!("other-{number}");
            let body = if path == nodes { json!({"metadata": {"name": name}}) } else { pod(name, "b") };
            assert_eq!(ask(&cluster, Method::POST, other, Some(&body)).await.0, 201);
        }
        assert_eq!(ask(&cluster, Method::POST, other, Some(&mine)).await.0, 201);
        let first = tokio::time::timeout(Duration::from_secs(60), stream.next()).await.expect("an event");
        let first: Value =
            serde_json::from_slice(&first.expect("not the end").expect("bytes")).expect("JSON");
        assert_eq!((&first["type"], &first["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("mine")));
    }
}

#[tokio::test]
async fn rule_2_10_a_state_is_held_for_the_rest_of_a_list() {
    let mut options = Options::ephemeral();
    options.history.bytes = 0;
    let cluster = Cluster::open(Store::open(options).expect("a store"), Settings::default());
    let cluster = cluster.await.expect("a cluster");
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c"] {
        let map = json!({"metadata": {"name": name}});
        assert_eq!(ask(&cluster, Method::POST, maps, Some(&map)).await.0, 201);
    }
    let (_, first, _) = ask(&cluster, Method::GET, &format!("{maps}?limit=1"), None).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    let token = first["metadata"]["continue"].as_str().expect("a token");
    assert_eq!(ask(&cluster, Method::DELETE, &format!("{maps}/c"), None).await.0, 200);
    let (code, rest, _) = ask(&cluster, Method::GET, &format!("{maps}?continue={token}"), None).await;
    let names: Vec<_> =
        rest["items"].as_array().into_iter().flatten().map(|map| &map["metadata"]["name"]).collect();
    assert_eq!((code, names), (200, vec![&json!("b"), &json!("c")]), "{rest}");
}

/// Without a bookmark, a client whose watch breaks after a while of others' events begins too far back.
#[tokio::test(start_paused = true)]
async fn rule_2_18_bookmarks_come_though_others_are_written() {
    // Time passes only when it is told to.
    let busy = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let cluster = cluster().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let version = ask(&cluster, Method::GET, maps, None).await.1["metadata"]["resourceVersion"].clone();
    let version = version.as_str().expect("a version");
    let watch = format!("{maps}?watch=1&labelSelector=l&allowWatchBookmarks=true&resourceVersion={version}");
    let request = http::Request::get(&watch).body(bytes::Bytes::new()).expect("a request");
    let mut stream = cluster.answer(request).await.into_body().into_data_stream();
    let reader = tokio::spawn(async move { stream.next().await });
    for number in 0..9 {
        let map = json!({"metadata": {"name": format!("m{number}")}});
        assert_eq!(ask(&cluster, Method::POST, maps, Some(&map)).await.0, 201);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(20)).await;
    }
    let since = std::time::Instant::now();
    while !reader.is_finished() {
        assert!(since.elapsed() < Duration::from_secs(60), "no bookmark has come");
        tokio::task::yield_now().await;
    }
    let first = reader.await.expect("it reads").expect("not the end").expect("bytes");
    assert_eq!(serde_json::from_slice::<Value>(&first).expect("JSON")["type"], "BOOKMARK");
    busy.abort();
}

#[tokio::test]
async fn rule_2_12_what_is_there_is_told_piece_by_piece_as_the_client_takes_it() {
    const MANY: usize = 200;
    let cluster = cluster().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for number in 0..MANY {
        let map = json!({"metadata": {"name": format!("m-{number:03}")}, "data": {"a": "x".repeat(10_000)}});
        assert_eq!(ask(&cluster, Method::POST, maps, Some(&map)).await.0, 201);
    }
    let (_, list, _) = ask(&cluster, Method::GET, maps, None).await;
    let start = list["metadata"]["resourceVersion"].as_str().expect("a revision");
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for accept in ["application/json", table, "application/vnd.kubernetes.protobuf;stream=watch"] {
        let query =
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let request = http::Request::get(format!("{maps}?{query}")).header("Accept", accept);
        let answer = cluster.answer(request.body(bytes::Bytes::new()).expect("a request")).await;
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let mut piece = async || {
            let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await.expect("in time");
            frame.expect("not the end").expect("bodies do not fail").into_data().expect("data")
        };
        let (mut all, mut pieces) = (Vec::new(), 0);
        let is_last = |all: &[u8]| memchr::memmem::find(all, b"initial-events-end").is_some();
        while !is_last(&all) {
            let piece = piece().await;
            assert!(piece.len() < 128 * 1024, "{accept}: {} bytes at once", piece.len());
            all.extend_from_slice(&piece);
            pieces += 1;
        }
        assert!(pieces > MANY * 10_000 / (128 * 1024) || accept == table, "{accept}: {pieces} pieces");
        // Whatever happened meanwhile comes after it.
        let label = json!({"metadata": {"name": "later", "labels": {"of": accept.len().to_string()}}});
        assert!(
            [200, 201].contains(&ask(&cluster, Method::PUT, &format!("{maps}/later"), Some(&label)).await.0)
                || ask(&cluster, Method::POST, maps, Some(&label)).await.0 == 201
        );
        assert!(memchr::memmem::find(&piece().await, b"later").is_some());
        if accept == "application/json" {
            let events: Vec<Value> = all
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_slice(line).expect("an event"))
                .collect();
            assert_eq!(events.len(), MANY + 1);
            for (number, event) in events[..MANY].iter().enumerate() {
                assert_eq!(
                    (&event["type"], &event["object"]["metadata"]["name"]),
                    (&json!("ADDED"), &json!(format!("m-{number:03}")))
                );
            }
            assert_eq!(
                (&events[MANY]["type"], &events[MANY]["object"]["metadata"]["resourceVersion"]),
                (&json!("BOOKMARK"), &json!(start))
            );
        }
        ask(&cluster, Method::DELETE, &format!("{maps}/later"), None).await;
    }
}

/// A change that comes while what was there is still being told is told after it, once.
#[tokio::test]
async fn rule_2_12_changes_come_after_what_was_there() {
    let cluster = cluster().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "x".repeat(50_000)}});
    for name in ["a", "b", "c", "d"] {
        assert_eq!(ask(&cluster, Method::POST, maps, Some(&map(name))).await.0, 201);
    }
    let request = http::Request::get(format!("{maps}?watch=1&timeoutSeconds=3")).body(bytes::Bytes::new());
    let answer = cluster.answer(request.expect("a request")).await;
    assert_eq!(ask(&cluster, Method::POST, maps, Some(&map("e"))).await.0, 201);
    assert_eq!(ask(&cluster, Method::DELETE, &format!("{maps}/d"), None).await.0, 200);
    let all = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    let events = all.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| {
        let event: Value = serde_json::from_slice(line).expect("an event");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    });
    let events: Vec<(String, String)> = events.collect();
    let expected = ["ADDED a", "ADDED b", "ADDED c", "ADDED d", "ADDED e", "DELETED d"];
    assert_eq!(events.iter().map(|(word, name)| format!("{word} {name}")).collect::<Vec<_>>(), expected);
}
