//! Who waits in a queue, and where, as users are shown it (VI-1, VI-2). The order is that of [`Queue`], by which quota is
//! given; nothing here knows another one.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Serialize;
use types::go;
use types::kueue::Workload;

use crate::quota::{
    names::WorkloadKey,
    queue::Queue,
    wire::{self, RequeuingTimestamp},
};
use crate::workload::state::queue_name;

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first. They differ in nothing but the name.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The kind of the answers.
pub const KIND: &str = "PendingWorkloadsSummary";

/// How many are shown if nobody says how many.
const USUAL_LIMIT: i64 = 1000;
/// How many are shown at most.
const MAX_LIMIT: i64 = 100_000;

/// Which part of a queue is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// How many are passed over.
    pub offset: usize,
    /// How many are shown.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Page::of(0, 0)
    }
}

impl Page {
    /// Reads the two parameters of a query, or says as Go does which of them is no number. What is less than nothing is
    /// nothing, a limit of nothing is the usual one, and one beyond the largest is that.
    pub fn read(offset: Option<&str>, limit: Option<&str>) -> Result<Page, String> {
        let number = |text: Option<&str>| text.map_or(Ok(0), integer);
        Ok(Page::of(number(offset)?, number(limit)?))
    }

    fn of(offset: i64, limit: i64) -> Page {
        let limit = if limit == 0 { USUAL_LIMIT } else { limit.clamp(0, MAX_LIMIT) };
        let count = |number: i64| usize::try_from(number.max(0)).unwrap_or(usize::MAX);
        Page { offset: count(offset), limit: count(limit) }
    }

    fn of_all<T>(self, all: impl Iterator<Item = T>) -> Vec<T> {
        all.skip(self.offset).take(self.limit).collect()
    }
}

/// A whole number as Go reads it, which knows a sign.
fn integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        format!("strconv.ParseInt: parsing {}: {why}", go::quote(text))
    })
}

/// What is answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    kind: &'static str,
    api_version: String,
    metadata: ObjectMeta,
    items: Vec<Pending>,
}

impl Summary {
    /// Those who wait, in a version of the API.
    pub fn new(version: &str, items: Vec<Pending>) -> Summary {
        let api_version = format!("{GROUP}/{version}");
        Summary { kind: KIND, api_version, metadata: ObjectMeta::default(), items }
    }
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    metadata: ObjectMeta,
    priority: i32,
    local_queue_name: String,
    position_in_cluster_queue: usize,
    position_in_local_queue: usize,
}

impl Pending {
    /// What is shown of a Workload: its own priority, and of its owners who they are.
    fn of(workload: &Workload, in_cluster_queue: usize, in_local_queue: usize) -> Pending {
        let metadata = &workload.metadata;
        let owners = metadata.owner_references.iter().flatten().map(|owner| OwnerReference {
            controller: None,
            block_owner_deletion: None,
            ..owner.clone()
        });
        let owners: Vec<OwnerReference> = owners.collect();
        Pending {
            metadata: ObjectMeta {
                name: metadata.name.clone(),
                namespace: metadata.namespace.clone(),
                owner_references: (!owners.is_empty()).then_some(owners),
                creation_timestamp: metadata.creation_timestamp.clone(),
                ..ObjectMeta::default()
            },
            priority: workload.spec.priority.unwrap_or_default(),
            local_queue_name: queue_name(workload).to_owned(),
            position_in_cluster_queue: in_cluster_queue,
            position_in_local_queue: in_local_queue,
        }
    }
}

/// Who waits for a ClusterQueue, in the order of its queue (QU-2), as far as objects tell: for whom others are on their way
/// out is known only to who made them go. Given is the queue while nobody is in it.
pub fn in_order<'a>(
    mut queue: Queue,
    waiting: impl IntoIterator<Item = &'a Workload>,
    from: RequeuingTimestamp,
    now: Timestamp,
) -> Vec<&'a Workload> {
    let mut known: HashMap<WorkloadKey, &Workload> = HashMap::new();
    for workload in waiting {
        let waiting = wire::waiting(workload, Vec::new(), from);
        known.insert(waiting.workload.key.clone(), workload);
        queue.push(waiting, now);
    }
    let order = queue.in_order().into_iter();
    order.filter_map(|waiting| known.get(&waiting.workload.key).copied()).collect()
}

/// A part of those who wait for a ClusterQueue, who are given in its order.
pub fn of_cluster_queue<'a>(order: impl IntoIterator<Item = &'a Workload>, page: Page) -> Vec<Pending> {
    let mut before: HashMap<(&str, &str), usize> = HashMap::new();
    let places = order.into_iter().enumerate().map(|(place, workload)| {
        let in_local_queue = before.entry(local_queue(workload)).or_default();
        *in_local_queue += 1;
        (workload, place, *in_local_queue - 1)
    });
    let shown = page.of_all(places);
    shown.into_iter().map(|(workload, all, own)| Pending::of(workload, all, own)).collect()
}

/// A part of those who wait in a LocalQueue. Given are those who wait for its ClusterQueue, in its order.
pub fn of_local_queue<'a>(
    order: impl IntoIterator<Item = &'a Workload>,
    namespace: &str,
    name: &str,
    page: Page,
) -> Vec<Pending> {
    let all = order.into_iter().enumerate();
    let own = all.filter(|(_, workload)| local_queue(workload) == (namespace, name)).enumerate();
    let shown = page.of_all(own);
    shown.into_iter().map(|(own, (place, workload))| Pending::of(workload, place, own)).collect()
}

fn local_queue(workload: &Workload) -> (&str, &str) {
    (workload.metadata.namespace.as_deref().unwrap_or_default(), queue_name(workload))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::quota::config::QueueingStrategy;

    /// A Workload, made so many seconds after the first.
    fn workload(namespace: &str, name: &str, queue: &str, priority: Option<i32>, age: i64) -> Workload {
        let created = Timestamp::from_second(1_700_000_000 + age).expect("a time").to_string();
        let owner = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": true,
            "blockOwnerDeletion": true,
        });
        let metadata = json!({
            "namespace": namespace, "name": name, "uid": name, "creationTimestamp": created,
            "labels": { "not": "shown" }, "ownerReferences": [owner],
        });
        let object = json!({
            "metadata": metadata, "spec": { "queueName": queue, "priority": priority, "podSets": [] },
        });
        serde_json::from_value(object).expect("a Workload")
    }

    /// Two LocalQueues of one namespace and one of another, all in one ClusterQueue.
    fn waiting() -> Vec<Workload> {
        vec![
            workload("a", "late", "one", None, 30),
            workload("a", "early", "one", None, 10),
            workload("b", "urgent", "one", Some(7), 40),
            workload("a", "other", "two", None, 20),
            workload("b", "least", "one", Some(-1), 0),
        ]
    }

    fn ordered(waiting: &[Workload]) -> Vec<&Workload> {
        let queue = Queue::new(QueueingStrategy::StrictFifo);
        in_order(queue, waiting, RequeuingTimestamp::default(), Timestamp::UNIX_EPOCH)
    }

    /// `name priority place/place in its LocalQueue`, one after the other.
    fn shown(items: &[Pending]) -> String {
        let line = |it: &Pending| {
            let name = it.metadata.name.as_deref().unwrap_or_default();
            let (all, own) = (it.position_in_cluster_queue, it.position_in_local_queue);
            format!("{name} {} {all}/{own}", it.priority)
        };
        items.iter().map(line).collect::<Vec<_>>().join(", ")
    }

    fn page(offset: usize, limit: usize) -> Page {
        Page { offset, limit }
    }

    #[test]
    fn vi_2_positions_are_those_of_the_queue() {
        let waiting = waiting();
        let order = ordered(&waiting);
        let all = |page| shown(&of_cluster_queue(order.iter().copied(), page));
        let whole = "urgent 7 0/0, early 0 1/0, other 0 2/0, late 0 3/1, least -1 4/1";
        assert_eq!(all(Page::default()), whole);
        let own =
            |namespace, name, page| shown(&of_local_queue(order.iter().copied(), namespace, name, page));
        assert_eq!(own("a", "one", Page::default()), "early 0 1/0, late 0 3/1");
        assert_eq!(own("b", "one", Page::default()), "urgent 7 0/0, least -1 4/1");
        assert_eq!(own("a", "two", Page::default()), "other 0 2/0");
        assert_eq!(own("b", "two", Page::default()), "", "a queue of that name is in another namespace");
    }

    /// VI-1: those that are passed over keep their places.
    #[test]
    fn vi_1_a_part_is_shown_with_the_places_in_the_whole() {
        let waiting = waiting();
        let order = ordered(&waiting);
        let all = |page| shown(&of_cluster_queue(order.iter().copied(), page));
        assert_eq!(all(page(3, 1)), "late 0 3/1");
        assert_eq!(all(page(4, 10)), "least -1 4/1");
        assert_eq!(all(page(5, 10)), "");
        assert_eq!(all(page(usize::MAX, usize::MAX)), "");
        assert_eq!(all(page(0, 0)), "");
        let own = |page| shown(&of_local_queue(order.iter().copied(), "a", "one", page));
        assert_eq!(own(page(0, 1)), "early 0 1/0");
        assert_eq!(own(page(1, 1)), "late 0 3/1");
        assert_eq!(own(page(2, 1)), "");
    }

    #[test]
    fn vi_1_what_is_asked_for() {
        assert_eq!(Page::read(None, None), Ok(page(0, 1000)));
        assert_eq!(Page::read(Some("3"), Some("7")), Ok(page(3, 7)));
        assert_eq!(Page::read(Some("+3"), Some("0")), Ok(page(3, 1000)), "no limit is the usual one");
        assert_eq!(Page::read(Some("-3"), Some("-7")), Ok(page(0, 0)));
        assert_eq!(Page::read(None, Some("100001")), Ok(page(0, 100_000)));
        let wrong = |text: &str, why: &str| {
            let expected = format!("strconv.ParseInt: parsing \"{text}\": {why}");
            assert_eq!(Page::read(None, Some(text)), Err(expected.clone()));
            assert_eq!(Page::read(Some(text), None), Err(expected));
        };
        for text in ["", "x", "1.5", "1 ", "0x10", "-", "+-1"] {
            wrong(text, "invalid syntax");
        }
        for text in ["9223372036854775808", "-9223372036854775809", "+99999999999999999999"] {
            wrong(text, "value out of range");
        }
    }

    #[test]
    fn vi_2_what_is_shown_of_a_workload() {
        let one = workload("a", "job-one", "queue", Some(3), 0);
        let items = of_cluster_queue([&one], Page::default());
        let summary = serde_json::to_value(Summary::new("v1beta1", items)).expect("JSON");
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "job-one", "uid": "u" });
        assert_eq!(
            summary,
            json!({
                "kind": "PendingWorkloadsSummary", "apiVersion": "visibility.kueue.x-k8s.io/v1beta1", "metadata": {},
                "items": [{
                    "metadata": {
                        "name": "job-one", "namespace": "a", "creationTimestamp": "2023-11-14T22:13:20Z",
                        "ownerReferences": [owner],
                    },
                    "priority": 3, "localQueueName": "queue", "positionInClusterQueue": 0, "positionInLocalQueue": 0,
                }],
            })
        );
        let none = serde_json::to_value(Summary::new("v1beta2", Vec::new())).expect("JSON");
        assert_eq!((&none["items"], &none["metadata"]), (&json!([]), &Value::Object(serde_json::Map::new())));
    }
}
