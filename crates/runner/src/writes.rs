//! What is written about pods: their status, and that they are gone.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};

/// Who we are among those who manage fields: what a kubelet would be.
pub(crate) const MANAGER: &str = "kubelet";

/// What became of a write.
pub(crate) enum Written {
    /// It was taken, and this is the pod now.
    Pod(Box<Pod>),
    /// The pod is gone, or is another one now.
    Gone,
}

/// Writes the status of a pod: all of it, so that nothing depends on how old our copy is.
pub(crate) async fn status(client: &Client, pod: &Pod, status: &PodStatus) -> kube::Result<Written> {
    let mut value = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    // Conditions are merged by their type: what one does not say any more has to be taken out of the old one.
    if let Some(conditions) = value.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.iter_mut().for_each(without_others);
        let known = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let says = |kind: &str| status.conditions.iter().flatten().any(|one| one.type_ == kind);
        let gone = known.filter(|one| !says(&one.type_));
        conditions.extend(gone.map(|one| json!({ "$patch": "delete", "type": one.type_ })));
    }
    without_others(&mut value);
    let patch = Patch::Strategic(json!({ "metadata": { "uid": pod.metadata.uid }, "status": value }));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    answer(api(client, pod).patch_status(name(pod), &params, &patch).await)
}

/// Says of reason and message, if they are not there, that they are not.
fn without_others(value: &mut Value) {
    if let Value::Object(fields) = value {
        for name in ["reason", "message"] {
            fields.entry(name).or_insert(Value::Null);
        }
    }
}

/// Deletes a pod of which nothing is left, at once.
pub(crate) async fn delete(client: &Client, pod: &Pod) -> kube::Result<Written> {
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let deleted = api(client, pod).delete(name(pod), &params).await;
    // Finalizers may hold the pod: then it is still there, and whoever set them removes it.
    answer(deleted.map(|answer| answer.left().unwrap_or_else(|| pod.clone())))
}

fn answer(answer: kube::Result<Pod>) -> kube::Result<Written> {
    match answer {
        Ok(pod) => Ok(Written::Pod(Box::new(pod))),
        // The only conflict there can be is one of uids.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(Written::Gone),
        Err(error) => Err(error),
    }
}

fn api(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}
