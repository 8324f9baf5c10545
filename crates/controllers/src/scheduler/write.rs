//! What the scheduler writes: bindings, why a pod waits, and whom it makes go.

use k8s_openapi::api::core::v1::{self as core, Binding, ObjectReference, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use reconcile::Key;
use rules::schedule::{DEFAULT_SCHEDULER, Pod};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{Nomination, Written};
use crate::api;
use crate::context::Context;

/// Who the scheduler is in `metadata.managedFields`.
const MANAGER: &str = "kube-scheduler";
/// Messages are cut after so many bytes.
const LONGEST: usize = 1024;

/// Gives a pod to a node.
pub(super) async fn bind(context: Context, key: Key, uid: String, node: String) -> Written {
    let pods: Api<core::Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let target = ObjectReference {
        kind: Some("Node".to_owned()),
        name: Some(node.clone()),
        ..ObjectReference::default()
    };
    let metadata =
        ObjectMeta { name: Some(key.name.clone()), uid: Some(uid.clone()), ..ObjectMeta::default() };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let binding = Binding { metadata, target };
    match pods.create_subresource::<_, Value>("binding", &key.name, &params, &binding).await {
        Ok(_) => {
            if let Some(pod) = context.kinds.pods.get(&key).filter(|pod| pod.uid().as_ref() == Some(&uid)) {
                let message = format!("Successfully assigned {key} to {node}");
                context.events.tell(DEFAULT_SCHEDULER, &*pod, "Normal", "Scheduled", message);
            }
            Written::Done
        }
        Err(error) => {
            let error = api::message(&error);
            warn!(pod = %key, node, error, "failed to bind");
            if let Some(pod) = context.kinds.pods.get(&key).filter(|pod| pod.uid().as_ref() == Some(&uid)) {
                context.events.tell(DEFAULT_SCHEDULER, &*pod, "Warning", "FailedScheduling", error);
            }
            Written::NotBound(key, uid)
        }
    }
}

/// Says why a pod waits, unless it says so already.
pub(super) async fn tell_why(context: Context, key: Key, why: String, nomination: Nomination) -> Written {
    let Some(pod) = context.kinds.pods.get(&key) else { return Written::Done };
    let mut message = why;
    if message.len() > LONGEST {
        let mut end = LONGEST - 3;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    let status = pod.status.clone().unwrap_or_default();
    let known = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    let said = known.is_some_and(|known| {
        known.status == "False"
            && known.observed_generation == pod.metadata.generation
            && known.reason.as_deref() == Some("Unschedulable")
            && known.message.as_deref() == Some(&message)
    });
    let nominated = match nomination {
        Nomination::Kept => status.nominated_node_name.clone(),
        Nomination::Made(node) => Some(node),
        Nomination::Off => None,
    };
    let promised = nominated == status.nominated_node_name;
    if !said {
        context.events.tell(DEFAULT_SCHEDULER, &*pod, "Warning", "FailedScheduling", message.clone());
    }
    if said && promised {
        return Written::Done;
    }
    let since =
        known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
    let condition = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("Unschedulable".to_owned()),
        message: Some(message),
        observed_generation: pod.metadata.generation,
        last_transition_time: Some(since.unwrap_or_else(|| Time(context.clock.now()))),
        ..PodCondition::default()
    };
    let mut change = json!({"conditions": [condition]});
    if !promised {
        change["nominatedNodeName"] = json!(nominated);
    }
    let pods: Api<core::Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let change = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": change}));
    match pods.patch_status(&key.name, &patch(), &change).await {
        Ok(changed) => context.kinds.pods.put(changed),
        Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {}
        Err(error) => {
            warn!(pod = %key, error = reconcile::chain(&error), "failed to say why it waits");
            return Written::NotTold(key, pod.uid().unwrap_or_default());
        }
    }
    Written::Done
}

/// Makes pods go.
pub(super) async fn preempt(context: Context, preemptor: Pod, node: String, victims: Vec<Pod>) -> Written {
    for victim in victims {
        let key = Key::new(&victim.namespace, &victim.name);
        let pods: Api<core::Pod> = Api::namespaced(context.client.clone(), &victim.namespace);
        if victim.deleting {
            continue;
        }
        let known = context.kinds.pods.get(&key).filter(|pod| pod.uid().as_ref() == Some(&victim.uid));
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("PreemptionByScheduler".to_owned()),
            message: Some(format!("{DEFAULT_SCHEDULER}: preempting to accommodate a higher priority pod")),
            observed_generation: known.and_then(|pod| pod.metadata.generation),
            last_transition_time: Some(Time(context.clock.now())),
            ..PodCondition::default()
        };
        let change = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}});
        let marked = pods.patch_status(&key.name, &patch(), &Patch::Strategic(change)).await;
        let deleted = match marked {
            Ok(_) => pods.delete(&key.name, &api::delete(Some(&victim.uid), None)).await.map(drop),
            Err(error) => Err(error),
        };
        match deleted {
            Ok(()) => {
                info!(pod = %key, node, by = preemptor.name, "preempted");
                // It may be gone by now, and the cache with it.
                let about = ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    namespace: Some(key.namespace.clone()),
                    name: Some(key.name.clone()),
                    uid: Some(victim.uid.clone()),
                    ..ObjectReference::default()
                };
                let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
                context.events.tell_of(DEFAULT_SCHEDULER, about, "Normal", "Preempted", message);
            }
            Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {}
            Err(error) => {
                warn!(pod = %key, error = reconcile::chain(&error), "failed to preempt");
                return Written::NotPreempted(Key::new(&preemptor.namespace, &preemptor.name), preemptor.uid);
            }
        }
    }
    Written::Done
}

fn patch() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}
