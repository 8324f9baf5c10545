//! Events are told for an hour after they were last written, and then removed (3.12).
//!
//! All of them live equally long, so they go in the order in which they were written: a queue knows who is next, and nobody
//! searches. Only at the start are all of them looked at, for what they say of when they were written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use store::{Key, Object, Revision, Scope, View, Watch, Write};
use tokio::time::Instant;

use crate::cluster::Handle;
use crate::object;

/// How long an event lives after it was last written, as a real server has it.
const LIFE: Duration = Duration::from_secs(60 * 60);
/// When an event that could not be removed is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// How many are removed at once: they share what it takes to write that down.
const AT_ONCE: usize = 256;

/// An event as somebody wrote it, and when it goes if nobody writes it again.
struct Entry {
    at: Instant,
    key: Key,
    revision: Revision,
}

/// Removes events that have become old, until the cluster is gone.
pub(crate) async fn run(cluster: Handle) {
    let scope = Scope::resource("events");
    while let Some((view, watch)) = cluster.upgrade().map(|cluster| cluster.store().view_and_watch(&scope)) {
        let queue = found(&view, &scope, Timestamp::now(), Instant::now());
        drop(view);
        if follow(&cluster, watch, queue).await.is_none() {
            return;
        }
    }
}

/// Removes what is found and what is written from now on. `None` when that is over; whoever fell behind looks again.
async fn follow(cluster: &Handle, mut watch: Watch, mut queue: VecDeque<Entry>) -> Option<()> {
    loop {
        let next = queue.front().map(|entry| entry.at);
        tokio::select! {
            event = watch.next() => match event? {
                Ok(event) => if let Some(Object { key, revision, .. }) = event.after().map(|object| &**object) {
                    queue.push_back(Entry { at: Instant::now() + LIFE, key: key.clone(), revision: *revision });
                },
                Err(why) => {
                    tracing::debug!(%why, "events are looked through again for old ones");
                    return Some(());
                }
            },
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let now = Instant::now();
                let due = queue.partition_point(|entry| entry.at <= now).min(AT_ONCE);
                let due: Vec<Entry> = queue.drain(..due).collect();
                let left = futures::future::join_all(due.into_iter().map(|entry| remove(cluster, entry))).await;
                for entry in left.into_iter().flatten() {
                    let place = queue.partition_point(|other| other.at <= entry.at);
                    queue.insert(place, entry);
                }
            }
        }
    }
}

/// Removes an event unless it was written again: then another entry is for it. Gives back what has to be tried again.
async fn remove(cluster: &Handle, entry: Entry) -> Option<Entry> {
    let store = cluster.upgrade()?.store().clone();
    let write = Write::delete(entry.key.clone()).if_revision(entry.revision).relaxed();
    match store.commit(write).await {
        Ok(_) | Err(store::error::Commit::Conflict { .. } | store::error::Commit::Absent { .. }) => None,
        Err(why) => {
            tracing::warn!(%why, event = %entry.key, "an old event was not removed");
            Some(Entry { at: Instant::now() + RETRY, ..entry })
        }
    }
}

/// The events that are there, those that go first in front.
fn found(view: &View, scope: &Scope, now: Timestamp, clock: Instant) -> VecDeque<Entry> {
    let entry = |object: &Arc<Object>| Entry {
        at: clock + left(&object::read(object), now),
        key: object.key.clone(),
        revision: object.revision,
    };
    let mut entries: Vec<Entry> = view.list(scope).map(entry).collect();
    entries.sort_by_key(|entry| entry.at);
    entries.into()
}

/// How much longer an event lives. Who manages its fields tells when it was written; nobody makes it live longer by lying.
fn left(event: &Value, now: Timestamp) -> Duration {
    let meta = &event["metadata"];
    let managers = meta["managedFields"].as_array().into_iter().flatten();
    let times = managers.map(|manager| &manager["time"]).chain([&meta["creationTimestamp"]]);
    let written: Option<Timestamp> = times.filter_map(|time| time.as_str()?.parse().ok()).max();
    let age = written.map_or(Duration::ZERO, |written| {
        Duration::try_from(now.duration_since(written)).unwrap_or(Duration::ZERO)
    });
    LIFE.saturating_sub(age)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{Method, Request};
    use serde_json::json;
    use store::{Options, Store};

    use super::*;
    use crate::Cluster;
    use crate::apply::Entries;

    const STEP: Duration = Duration::from_secs(60);
    const EVENTS: &str = "/api/v1/namespaces/default/events";

    fn event(name: &str, reason: &str) -> Value {
        let involved = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        json!({"metadata": {"name": name, "namespace": "default"}, "involvedObject": involved, "reason": reason})
    }

    async fn ask(cluster: &Cluster, method: Method, path: &str, body: &Value) -> u16 {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).body(body).expect("a request");
        cluster.answer(request).await.status().as_u16()
    }

    async fn is_there(cluster: &Cluster, name: &str) -> bool {
        ask(cluster, Method::GET, &format!("{EVENTS}/{name}"), &Value::Null).await == 200
    }

    async fn until_gone(cluster: &Cluster, name: &str) {
        let gone = async {
            while is_there(cluster, name).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it goes");
    }

    #[test]
    fn rule_3_12_an_event_lives_for_an_hour_after_it_was_last_written() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a time");
        let check = |created: &str, written: &str, minutes: u64| {
            let meta = json!({"creationTimestamp": created, "managedFields": [{"time": written}]});
            assert_eq!(left(&json!({"metadata": meta}), now), Duration::from_secs(minutes * 60));
        };
        check("2026-01-01T11:50:00Z", "2026-01-01T11:50:00Z", 50);
        check("2026-01-01T11:00:00Z", "2026-01-01T11:59:00Z", 59);
        check("2026-01-01T10:00:00Z", "2026-01-01T10:30:00Z", 0);
        check("2026-01-01T10:00:00Z", "2027-01-01T00:00:00Z", 60);
        assert_eq!(left(&json!({}), now), LIFE);
    }

    #[tokio::test(start_paused = true)]
    async fn rule_3_12_events_go_unless_they_are_written_again() {
        // Time passes only when it is told to.
        let busy = tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        let store = Store::open(Options::ephemeral()).expect("a store");
        let cluster = Cluster::open(store, rules::job::Settings::default()).await.expect("a cluster");
        for name in ["once", "again"] {
            assert_eq!(ask(&cluster, Method::POST, EVENTS, &event(name, "R")).await, 201);
        }
        // In small steps, so that whoever has to notice something does.
        for _ in 0..50 {
            tokio::time::advance(STEP).await;
            assert!(is_there(&cluster, "once").await, "it is not old yet");
        }
        let again = format!("{EVENTS}/again");
        assert_eq!(ask(&cluster, Method::PUT, &again, &event("again", "S")).await, 200);
        let until_gone = async |name: &str| {
            for _ in 0..240 {
                if !is_there(&cluster, name).await {
                    return;
                }
                tokio::time::advance(STEP).await;
            }
            panic!("{name} has become old and did not go");
        };
        until_gone("once").await;
        assert!(is_there(&cluster, "again").await, "it was written again");
        until_gone("again").await;
        busy.abort();
    }

    #[tokio::test]
    async fn rule_3_12_what_became_old_while_nobody_ran_goes_at_the_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(Options::disk(dir.path())).expect("a store");
        let mut old = event("old", "R");
        old["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
        let draft = object::draft(&old, &Entries::default(), &[("metadata.name", "old".to_owned())]);
        store.commit(Write::put(Key::new("events", "default", "old"), draft)).await.expect("written");
        let cluster = Cluster::open(store.clone(), rules::job::Settings::default()).await.expect("a cluster");
        assert_eq!(ask(&cluster, Method::POST, EVENTS, &event("new", "R")).await, 201);
        drop(cluster);
        store.close().await;
        drop(store);
        let store = Store::open(Options::disk(dir.path())).expect("a store");
        let cluster = Cluster::open(store, rules::job::Settings::default()).await.expect("a cluster");
        until_gone(&cluster, "old").await;
        assert!(is_there(&cluster, "new").await);
    }
}
