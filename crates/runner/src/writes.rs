//! What is written about pods: their status, and that they are gone.

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use rules::node::status::is_owned;
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

/// What is part of a pod's status and not for a node to say.
const OTHERS: [&str; 5] =
    ["extendedResourceClaimStatus", "nominatedNodeName", "qosClass", "resize", "resourceClaimStatuses"];

/// Writes the status of a pod: all of it that is a node's, so that nothing depends on how old our copy is, and nothing
/// that others may have written since.
pub(crate) async fn status(client: &Client, pod: &Pod, status: &PodStatus) -> kube::Result<Written> {
    let patch = change(pod, status).map_err(kube::Error::SerdeError)?;
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    answer(api(client, pod).patch_status(name(pod), &params, &Patch::Strategic(patch)).await)
}

fn change(pod: &Pod, status: &PodStatus) -> serde_json::Result<Value> {
    let known = || pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    // What we only repeat of others may be old.
    let is_theirs = |one: &PodCondition| !is_owned(&one.type_) && known().any(|known| known == one);
    let ours = status.conditions.iter().flatten().filter(|one| !is_theirs(one));
    let mut conditions = ours.map(serde_json::to_value).collect::<serde_json::Result<Vec<Value>>>()?;
    conditions.iter_mut().for_each(without_others);
    // Conditions are merged by their type: what one does not say any more has to be taken out of the old one.
    let says = |kind: &str| status.conditions.iter().flatten().any(|one| one.type_ == kind);
    let gone = known().filter(|one| !says(&one.type_));
    conditions.extend(gone.map(|one| json!({ "$patch": "delete", "type": one.type_ })));
    let mut value = serde_json::to_value(PodStatus { conditions: None, ..status.clone() })?;
    if let Value::Object(fields) = &mut value {
        fields.retain(|field, _| !OTHERS.contains(&field.as_str()));
        fields.insert("conditions".to_owned(), Value::Array(conditions));
    }
    without_others(&mut value);
    Ok(json!({ "metadata": { "uid": pod.metadata.uid }, "status": value }))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Between our look and our write others may have written: what is theirs stays theirs.
    #[test]
    fn what_others_say_of_a_pod_is_not_repeated() {
        let known = json!({
            "phase": "Running", "nominatedNodeName": "n", "qosClass": "BestEffort", "podIP": "10.0.0.1",
            "conditions": [
                { "type": "Theirs", "status": "False" },
                { "type": "Ready", "status": "False", "reason": "x" },
                { "type": "PodResizePending", "status": "True" },
            ],
        });
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "uid": "u" }, "status": known })).expect("a pod");
        let mut status = pod.status.clone().expect("a status");
        let condition = |value: Value| serde_json::from_value::<PodCondition>(value).expect("a condition");
        status.conditions = Some(vec![
            condition(json!({ "type": "Theirs", "status": "False" })),
            condition(json!({ "type": "Ready", "status": "False", "reason": "x" })),
            condition(json!({ "type": "DisruptionTarget", "status": "True" })),
        ]);
        let change = change(&pod, &status).expect("a change");
        let expected = json!({
            "phase": "Running", "podIP": "10.0.0.1", "reason": null, "message": null,
            "conditions": [
                { "type": "Ready", "status": "False", "reason": "x", "message": null },
                { "type": "DisruptionTarget", "status": "True", "reason": null, "message": null },
                { "$patch": "delete", "type": "PodResizePending" },
            ],
        });
        assert_eq!(change, json!({ "metadata": { "uid": "u" }, "status": expected }));
    }
}
