//! Watches: plain ones, and those of kube-rs's watcher in both of its ways.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Config, Event};

use crate::client;

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
