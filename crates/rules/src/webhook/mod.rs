//! What is said about an object before it is stored, by Kueue's webhooks and by ours: defaults, and refusals beyond
//! what a kind's own API or definition says.
//!
//! The same functions answer over HTTP on real clusters and in the process of an embedded one. Order does not matter
//! to clients, messages do: they are Kueue's.

mod apps;
mod custom;
mod gates;
pub mod job;
mod leader_worker_set;
mod pod;
pub mod queues;
mod sparse;
mod topology;
pub mod workload;

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::kueue::{ClusterQueue, Cohort, ResourceFlavor, Workload};

use crate::field::{self, Errors};
use crate::framework::{
    apps::{DEPLOYMENT, STATEFUL_SET},
    custom::Shape,
};
use crate::workload::ELASTIC_JOB;

/// Who dispatches Jobs to other clusters: the value of `managedBy`, and the controller of admission checks.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// Keeps objects from vanishing that others rely on.
pub const IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

/// Who manages which fields, at which no rule looks.
const MANAGERS: &[&str] = &["metadata", "managedFields"];
/// A Job but for what its pods are and how it fares.
const BESIDE_PODS: &[&[&str]] = &[MANAGERS, &["spec", "template", "spec"], &["status"]];

/// A kind that webhooks have a say in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `batch/v1`.
    Job,
    /// A Job of somebody else's kind.
    Custom(&'static Shape),
    /// A pod that may be queued itself.
    Pod,
    /// `apps/v1`, whose pods are queued one by one.
    Deployment,
    /// `apps/v1`, whose pods are queued together.
    StatefulSet,
    /// Groups of pods, each of which is queued.
    LeaderWorkerSet,
    /// Kueue's, as are all that follow.
    ClusterQueue,
    /// A node in the tree of queues.
    Cohort,
    /// A kind of node.
    ResourceFlavor,
    /// A unit of work.
    Workload,
}

impl Kind {
    /// Whether new objects may get something that they do not say. A Workload is asked about and stays as it is.
    pub fn has_defaults(self) -> bool {
        match self {
            Kind::Job
            | Kind::Custom(_)
            | Kind::Pod
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::LeaderWorkerSet
            | Kind::ClusterQueue
            | Kind::ResourceFlavor => true,
            Kind::Cohort | Kind::Workload => false,
        }
    }

    /// Whether objects that change may get something, too: what is passed on to pods is passed on whenever it is said.
    pub fn has_later_defaults(self) -> bool {
        matches!(self, Kind::Deployment | Kind::StatefulSet | Kind::LeaderWorkerSet)
    }

    /// Whether objects of it are queued, or are made of what is.
    pub fn is_queued(self) -> bool {
        match self {
            Kind::Job
            | Kind::Custom(_)
            | Kind::Pod
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::LeaderWorkerSet => true,
            Kind::ClusterQueue | Kind::Cohort | Kind::ResourceFlavor | Kind::Workload => false,
        }
    }
}

/// A write that is being asked about.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// What kind of object is written.
    pub kind: Kind,
    /// What it is to become.
    pub object: &'a Value,
    /// What it was, unless it is new.
    pub old: Option<&'a Value>,
    /// What around it matters, for Jobs.
    pub around: job::Surroundings,
    /// The runtime that a TrainJob refers to, if it is there.
    pub runtime: Option<&'a Arc<DynamicObject>>,
}

/// Why an object cannot be judged.
#[derive(Debug, thiserror::Error)]
#[error("failed to read the object: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

/// The metadata of an object, but for its managers.
pub fn metadata(object: &Value) -> Result<ObjectMeta, Unreadable> {
    Ok(sparse::read(&object["metadata"], &[&["managedFields"]])?)
}

/// What the webhooks make of a new object.
pub fn default(review: &Review<'_>) -> Result<Value, Unreadable> {
    match review.kind {
        Kind::Job => default_job(review),
        Kind::Custom(shape) => custom::default(shape, review),
        Kind::Pod => pod::default(review),
        Kind::Deployment => apps::default(&DEPLOYMENT, review),
        Kind::StatefulSet => apps::default(&STATEFUL_SET, review),
        Kind::LeaderWorkerSet => leader_worker_set::default(review),
        Kind::ClusterQueue | Kind::ResourceFlavor => {
            let mut object = review.object.clone();
            let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                let finalizers = metadata.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(finalizers) = finalizers
                    && !finalizers.iter().any(|name| name == IN_USE)
                {
                    finalizers.push(Value::from(IN_USE));
                }
            }
            Ok(object)
        }
        Kind::Cohort | Kind::Workload => Ok(review.object.clone()),
    }
}

/// What is wrong with a write, and what should not be done and is accepted.
pub fn validate(review: &Review<'_>) -> Result<(Errors, Vec<String>), Unreadable> {
    let errors = match review.kind {
        Kind::Job => {
            let new: Job = sparse::read(review.object, BESIDE_PODS)?;
            match review.old {
                None => job::create(&new),
                Some(old) => {
                    let old = sparse::read(old, BESIDE_PODS)?;
                    job::update(&new, &old, review.around.has_default_queue)
                }
            }
        }
        Kind::Custom(shape) => custom::validate(shape, review)?,
        Kind::Pod => return pod::validate(review),
        Kind::Deployment => apps::validate(&DEPLOYMENT, review)?,
        Kind::StatefulSet => apps::validate(&STATEFUL_SET, review)?,
        Kind::LeaderWorkerSet => leader_worker_set::validate(review)?,
        Kind::ClusterQueue => {
            let old: Option<ClusterQueue> = review.old.map(read).transpose()?;
            queues::cluster_queue(&read(review.object)?, old.as_ref())
        }
        Kind::Cohort => queues::cohort(&read::<Cohort>(review.object)?),
        Kind::ResourceFlavor => queues::resource_flavor(&read::<ResourceFlavor>(review.object)?),
        Kind::Workload => {
            let new: Workload = sparse::read(review.object, &[MANAGERS])?;
            let errors = match review.old {
                None => workload::create(&new),
                // Nearly all writes are of the status, and most of a Workload is its pod templates.
                Some(old) if old.get("spec") == review.object.get("spec") => {
                    workload::update_beside_spec(&new, &sparse::read(old, &[MANAGERS, &["spec"]])?)
                }
                Some(old) => workload::update(&new, &sparse::read(old, &[MANAGERS])?),
            };
            return Ok((errors, workload::warnings(&new)));
        }
    };
    Ok((errors, Vec::new()))
}

/// All errors as one message, as Kueue's webhooks say them.
pub fn message(errors: &[field::Error]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, Unreadable> {
    Ok(T::deserialize(object)?)
}

/// Changes only what the rule changes: what this version of a type does not know stays.
fn default_job(review: &Review<'_>) -> Result<Value, Unreadable> {
    let annotations = review.object.pointer("/metadata/annotations");
    let may_be_elastic = annotations.is_some_and(|all| all.get(ELASTIC_JOB).is_some());
    // Only the pods of elastic Jobs get something.
    let without: &[&[&str]] = if may_be_elastic { &[MANAGERS] } else { BESIDE_PODS };
    let before: Job = sparse::read(review.object, without)?;
    let mut after = before.clone();
    job::default(&mut after, &review.around);
    let mut object = review.object.clone();
    if before != after {
        let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
        overlay(&mut object, &before, &after);
    }
    Ok(object)
}

/// Carries over to `object` what differs between `before` and `after`. The rules add fields and items at the end of
/// lists; they take nothing away.
fn overlay(object: &mut Value, before: &Value, after: &Value) {
    if before == after {
        return;
    }
    match (object, after) {
        (Value::Object(fields), Value::Object(after)) => {
            for (name, after) in after {
                let before = before.get(name).unwrap_or(&Value::Null);
                overlay(fields.entry(name.clone()).or_insert(Value::Null), before, after);
            }
        }
        (object, after) => *object = after.clone(),
    }
}

#[cfg(test)]
mod dispatched;
#[cfg(test)]
mod placed;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod tests;
