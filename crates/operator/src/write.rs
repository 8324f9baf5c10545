//! Writing: server-side apply under Kueue's names, and patches with no more than what changes.

use kube::{
    Api, Resource,
    api::{Patch, PatchParams},
};
use rules::{
    framework::{self, pod},
    workload::{
        ORIGIN_LABEL, change,
        patch::{self, ADMISSION_MANAGER, Manner},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use types::kueue::{Workload, WorkloadStatus};

use crate::Context;

/// Under this name everything else is written.
const MANAGER: &str = "kueue";

impl Context {
    fn workloads_of(&self, workload: &Workload) -> Api<Workload> {
        Api::namespaced(self.client.clone(), workload.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Writes what belongs to admission. The caches know the answer at once.
    pub(crate) async fn apply_admission(
        &self,
        of: &Workload,
        status: &WorkloadStatus,
        manner: Manner,
    ) -> Result<Workload, kube::Error> {
        let started =
            self.is_of_job(of).then(|| change::not_started(status, of.metadata.generation, self.clock.now()));
        let status = started.as_ref().and_then(Option::as_ref).unwrap_or(status);
        let body = patch::admission(of, status, manner);
        let answer = self.apply_workload_status(of, body, ADMISSION_MANAGER).await?;
        // Others had written what is to go, too: what only one owner takes back stays (G-19).
        let Some(status) = patch::left_over(of, status, &answer) else { return Ok(answer) };
        let body =
            json!({ "metadata": { "resourceVersion": answer.metadata.resource_version }, "status": status });
        self.patch_workload_status(of, body).await
    }

    /// Whether a Job has a Workload, or will have it, of whose pods it is said whether they are ready.
    fn is_of_job(&self, workload: &Workload) -> bool {
        if !self.settings.jobs.pods_ready {
            return false;
        }
        let metadata = &workload.metadata;
        let is_group = framework::annotation(metadata, pod::IS_GROUP_WORKLOAD) == Some("true");
        let mut owners = metadata.owner_references.iter().flatten();
        let is_managed =
            owners.find(|owner| is_group || owner.controller == Some(true)).is_some_and(|owner| {
                let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
                self.settings.managed(group, &owner.kind).is_some()
            });
        is_managed || metadata.labels.iter().flatten().any(|(key, _)| key == ORIGIN_LABEL)
    }

    /// Writes a part of a Workload's status by server-side apply.
    pub(crate) async fn apply_workload_status(
        &self,
        of: &Workload,
        body: Value,
        manager: &str,
    ) -> Result<Workload, kube::Error> {
        let name = of.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams::apply(manager).force();
        let answer = self.workloads_of(of).patch_status(name, &params, &Patch::Apply(body)).await?;
        self.caches.workloads.put(answer.clone());
        Ok(answer)
    }

    /// Changes a Workload's status by a merge patch.
    pub(crate) async fn patch_workload_status(
        &self,
        of: &Workload,
        body: Value,
    ) -> Result<Workload, kube::Error> {
        let name = of.metadata.name.as_deref().unwrap_or_default();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let answer = self.workloads_of(of).patch_status(name, &params, &Patch::Merge(body)).await?;
        self.caches.workloads.put(answer.clone());
        Ok(answer)
    }

    /// Changes a Workload, but for its status. Refused if it changed since it was read.
    pub(crate) async fn patch_workload(
        &self,
        of: &Workload,
        next: &Workload,
    ) -> Result<Workload, kube::Error> {
        let Some(body) = difference(of, next, of.metadata.resource_version.as_deref()) else {
            return Ok(of.clone());
        };
        let answer = patch_object(&self.workloads_of(of), of, body).await?;
        self.caches.workloads.put(answer.clone());
        Ok(answer)
    }

    /// Lets go of a Workload. Refused if it changed since it was read.
    pub(crate) async fn finalize_workload(&self, of: &Workload) -> Result<Workload, kube::Error> {
        let mut next = of.clone();
        if let Some(finalizers) = &mut next.metadata.finalizers {
            finalizers.retain(|it| it != types::kueue::RESOURCE_IN_USE);
        }
        if next.metadata.finalizers == of.metadata.finalizers {
            return Ok(next);
        }
        let last = next.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        let body = difference(of, &next, of.metadata.resource_version.as_deref()).unwrap_or_default();
        let answer = patch_object(&self.workloads_of(of), of, body).await?;
        if last && of.metadata.deletion_timestamp.is_some() {
            self.caches.workloads.removed(of);
        } else {
            self.caches.workloads.put(answer.clone());
        }
        Ok(answer)
    }
}

/// Patches an object with a body that says what changes.
pub(crate) async fn patch_object<K>(api: &Api<K>, of: &K, body: Value) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = of.meta().name.as_deref().unwrap_or_default();
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(body)).await
}

/// Patches the status of an object with a body that says what changes.
pub(crate) async fn patch_status<K>(api: &Api<K>, of: &K, body: Value) -> Result<K, kube::Error>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = of.meta().name.as_deref().unwrap_or_default();
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch_status(name, &params, &Patch::Merge(body)).await
}

/// The merge patch from one object to another; `None` if they are the same. With a version it is refused if the object
/// has another one by then.
pub(crate) fn difference<T: Serialize>(from: &T, to: &T, version: Option<&str>) -> Option<Value> {
    let value = |it: &T| serde_json::to_value(it).expect("objects have string keys and finite numbers");
    difference_of(&value(from), &value(to), version)
}

/// The same for objects that are values already.
pub(crate) fn difference_of(from: &Value, to: &Value, version: Option<&str>) -> Option<Value> {
    let mut patch = merge(from, to)?;
    if let Some(version) = version {
        patch["metadata"]["resourceVersion"] = version.into();
    }
    Some(patch)
}

fn merge(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in after {
        let changed = match before.get(key) {
            Some(there) => merge(there, value),
            None => Some(value.clone()),
        };
        if let Some(changed) = changed {
            patch.insert(key.clone(), changed);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_say_what_changes_and_no_more() {
        let from =
            json!({ "metadata": { "name": "x" }, "spec": { "a": 1, "b": { "c": [1, 2] }, "gone": 1 } });
        let to = json!({ "metadata": { "name": "x" }, "spec": { "a": 1, "b": { "c": [2] }, "new": {} } });
        assert_eq!(
            difference_of(&from, &to, Some("7")),
            Some(json!({
                "metadata": { "resourceVersion": "7" },
                "spec": { "b": { "c": [2] }, "gone": null, "new": {} },
            }))
        );
        assert_eq!(difference_of(&from, &from, Some("7")), None);
    }
}
