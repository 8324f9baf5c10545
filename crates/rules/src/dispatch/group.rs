//! Pods of a group, taken together as one job: so that where a group runs is decided as for every other job, and none of its
//! pods runs where the others do not (MK-POD-02).
//!
//! What stands for a group has the status of each of its pods, by their names. On a worker it also says which of its pods are
//! there, and which are there that are none of the group's on the manager, or not any more, or that have ended already.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::{DynamicObject, ObjectMeta};
use serde_json::{Map, Value, json};

use super::{Adapter, PREBUILT_WORKLOAD, observed::is_of};

/// Where the pods of what stands for a group are.
const MEMBERS: &str = "members";

/// The group on the manager; `None` if it has no pods.
pub fn local(pods: &[DynamicObject]) -> Option<DynamicObject> {
    let first = pods.first()?;
    let (mut members, mut status) = (Map::new(), Map::new());
    for pod in pods {
        let ObjectMeta { name, uid, resource_version, deletion_timestamp, .. } = &pod.metadata;
        let name = name.clone().unwrap_or_default();
        let leaves = deletion_timestamp.is_some();
        members.insert(
            name.clone(),
            json!({ "uid": uid, "resourceVersion": resource_version, "leaves": leaves }),
        );
        status.insert(name, pod.data.get("status").cloned().unwrap_or_else(|| json!({})));
    }
    let all_leave = pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some());
    let deletion_timestamp = first.metadata.deletion_timestamp.clone().filter(|_| all_leave);
    let namespace = first.metadata.namespace.clone();
    let metadata = ObjectMeta { namespace, deletion_timestamp, ..ObjectMeta::default() };
    Some(DynamicObject {
        types: None,
        metadata,
        data: json!({ MEMBERS: members, "status": { MEMBERS: status } }),
    })
}

/// What a worker has of a group; `None` if that is nothing. `local` is the group on the manager, if it is there.
pub fn mirror<'a>(
    local: Option<&DynamicObject>,
    workload: &str,
    mirrors: impl IntoIterator<Item = &'a DynamicObject>,
) -> Option<DynamicObject> {
    let (mut there, mut surplus, mut status) = (Vec::new(), Vec::new(), Map::new());
    let mut leaves_since: Option<Time> = None;
    let adapter = Adapter::of("v1", "Pod")?;
    for mirror in mirrors {
        let name = mirror.metadata.name.clone().unwrap_or_default();
        let since = mirror.metadata.deletion_timestamp.clone();
        leaves_since = [leaves_since, since].into_iter().flatten().min_by_key(|since| since.0);
        let member = local.and_then(|local| local.data[MEMBERS].get(&name));
        let is_member = member.is_some_and(|member| {
            is_of(&mirror.metadata, member["uid"].as_str()) && member["leaves"] != Value::Bool(true)
        });
        // Created late, or twice: its end is recorded, and it does not run again.
        let shown = local.map(|local| &local.data["status"][MEMBERS][name.as_str()]);
        let runs_again = shown.is_some_and(is_over) && !is_over(&mirror.data["status"]);
        if !is_member || runs_again {
            surplus.push((name, mirror.metadata.deletion_timestamp.is_some()));
            continue;
        }
        if !adapter.is_killed(mirror) {
            status.insert(name.clone(), mirror.data.get("status").cloned().unwrap_or_else(|| json!({})));
        }
        there.push(name);
    }
    if there.is_empty() && surplus.is_empty() {
        return None;
    }
    let surplus: Vec<String> =
        surplus.into_iter().filter(|(_, leaves)| !leaves).map(|(name, _)| name).collect();
    let link = (PREBUILT_WORKLOAD.to_owned(), workload.to_owned());
    let metadata = ObjectMeta {
        annotations: Some([link].into()),
        deletion_timestamp: leaves_since,
        ..ObjectMeta::default()
    };
    let data = json!({ "there": there, "surplus": surplus, "status": { MEMBERS: status } });
    Some(DynamicObject { types: None, metadata, data })
}

/// Whether all pods of a group that a worker has have ended, and not because they were deleted.
pub(super) fn has_ended(mirror: &DynamicObject) -> bool {
    let there = mirror.data["there"].as_array();
    there
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .all(|name| reported(mirror, name).is_some_and(is_over))
}

/// Whether a pod of this status has ended.
pub(super) fn is_over(status: &Value) -> bool {
    status["phase"] == "Succeeded" || status["phase"] == "Failed"
}

/// The pods of a group on the manager that a worker should have and has not. What has ended is not started again.
pub fn missing(local: &DynamicObject, mirror: Option<&DynamicObject>) -> Vec<String> {
    let there: Vec<&str> = mirror
        .and_then(|mirror| mirror.data["there"].as_array())
        .map(|there| there.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let members = local.data[MEMBERS].as_object();
    let is_wanted = |(name, member): &(&String, &Value)| {
        let has_ended = is_over(&local.data["status"][MEMBERS][name.as_str()]);
        !there.contains(&name.as_str()) && member["leaves"] != Value::Bool(true) && !has_ended
    };
    members.into_iter().flatten().filter(is_wanted).map(|(name, _)| name.clone()).collect()
}

/// The pods that a worker has and that are none of the group's on the manager, or not any more (MK-POD-05).
pub fn surplus(mirror: &DynamicObject) -> Vec<String> {
    let surplus = mirror.data["surplus"].as_array();
    surplus.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The statuses of a group's pods on the manager, each by what `of` makes of it; `None` if none of them changes.
pub(super) fn statuses(local: &DynamicObject, of: impl Fn(&str, &Value) -> Option<Value>) -> Option<Value> {
    let shown = local.data["status"][MEMBERS].as_object()?;
    let mut next = shown.clone();
    let mut changed = false;
    for (name, shown) in shown {
        // One that is leaving is not written any more (MK-POD-03).
        if local.data[MEMBERS][name.as_str()]["leaves"] == Value::Bool(true) {
            continue;
        }
        if let Some(status) = of(name, shown) {
            next.insert(name.clone(), status);
            changed = true;
        }
    }
    changed.then(|| json!({ MEMBERS: next }))
}

/// What a worker reports of one pod.
pub(super) fn reported<'a>(mirror: &'a DynamicObject, name: &str) -> Option<&'a Value> {
    mirror.data["status"][MEMBERS].get(name)
}

/// Each pod whose status differs between what stands for a group and what it is to show: its name, uid, version, and status
/// before and after.
pub fn changes<'a>(
    local: &'a DynamicObject,
    status: &'a Value,
) -> impl Iterator<Item = (&'a str, &'a Value, Option<&'a Value>, &'a Value)> {
    let members = status[MEMBERS].as_object();
    members.into_iter().flatten().filter_map(|(name, next)| {
        let shown = local.data["status"][MEMBERS].get(name);
        (shown != Some(next)).then(|| (name.as_str(), &local.data[MEMBERS][name.as_str()], shown, next))
    })
}
