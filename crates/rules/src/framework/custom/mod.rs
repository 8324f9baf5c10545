//! Jobs of kinds that Kubernetes does not bring along, each a short declaration over objects as they are on the wire.
//!
//! - [`Shape`]: where an object of a kind says what there is to know; [`ALL`] are the kinds.
//! - `places`: where the pod templates are; `ray`, `app_wrapper` and `train_job` for kinds that keep them elsewhere.
//! - [`Custom`]: one such object, as the framework sees it.

mod app_wrapper;
mod json;
mod places;
mod ray;
mod shapes;
mod train_job;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::DynamicObject;
use serde_json::{Value, json};
use types::kueue::{PodSet, ReclaimablePod};

use super::{Finished, Kind, Observed, PodSetInfo, Write, annotation, pod_set::Conflict, topology};
use crate::workload::ELASTIC_JOB;
use json::{condition, condition_message, number, text};

pub use json::set;
pub(crate) use places::Place;
pub use shapes::{ALL, Active, End, Pods, Ready, Shape};
pub use train_job::{PATCH_MANAGER, runtime_reference};

/// The label of the pods of a RayCluster, with its name.
const RAY_CLUSTER_LABEL: &str = "ray.io/cluster";

/// A Job of such a kind, as it was read.
#[derive(Debug, Clone)]
pub struct Custom<'a> {
    shape: &'static Shape,
    metadata: &'a ObjectMeta,
    /// All of it but for its metadata.
    data: &'a Value,
    /// The runtime that a TrainJob refers to.
    runtime: Option<Arc<DynamicObject>>,
}

impl<'a> Custom<'a> {
    /// An object, and the runtime that it refers to, if it is of a kind that does.
    pub fn new(
        shape: &'static Shape,
        object: &'a DynamicObject,
        runtime: Option<Arc<DynamicObject>>,
    ) -> Self {
        Custom { shape, metadata: &object.metadata, data: &object.data, runtime }
    }

    /// An object as it is on the wire, with its metadata.
    pub(crate) fn of(
        shape: &'static Shape,
        object: &'a Value,
        metadata: &'a ObjectMeta,
        runtime: Option<Arc<DynamicObject>>,
    ) -> Self {
        Custom { shape, metadata, data: object, runtime }
    }

    /// Its pod templates.
    pub(crate) fn places(&self) -> Result<Vec<Place>, String> {
        match self.shape.pods {
            Pods::ReplicatedJobs => places::replicated_jobs(&self.data["spec"]["replicatedJobs"], "/spec"),
            Pods::Roles { at, roles } => places::roles(self.data, at, roles),
            Pods::Ray { at } => ray::places(self.data, at, self.metadata),
            Pods::Components => app_wrapper::places(self.data, self.metadata),
            Pods::Runtime => train_job::places(self.data, self.runtime.as_deref()),
        }
    }

    /// The whole object, in which something is about to change.
    fn object(&self) -> Value {
        let mut object = self.data.clone();
        object["apiVersion"] = json!(self.shape.kind.api_version());
        object["kind"] = json!(self.shape.kind.kind);
        object["metadata"] = serde_json::to_value(self.metadata).expect("metadata has string keys");
        object
    }

    /// The entries of a status that is kept by replicated Job.
    fn jobs_status(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let at = match self.shape.active {
            Active::Sum(at) => at,
            _ => "",
        };
        json::entries(self.data.pointer(at))
    }
}

/// The status of an object of which no cluster has pods any more; `None` if it shows none, or has ended.
pub fn settled(shape: &'static Shape, object: &DynamicObject, now: Timestamp) -> Option<Value> {
    let shown = Custom::new(shape, object, None);
    if !shown.is_active() || shown.finished().is_some() {
        return None;
    }
    let mut data = object.data.clone();
    match shape.active {
        Active::Sum(at) => {
            for entry in json::entries_mut(data.pointer_mut(at)) {
                let counts = entry.as_object_mut().into_iter().flatten();
                counts
                    .filter(|(name, _)| ["active", "ready"].contains(&name.as_str()))
                    .for_each(|(_, count)| *count = json!(0));
            }
        }
        Active::Unless(at, idle) => set(&mut data, at, json!(idle.last())),
        Active::Is { at, idle, .. } => set(&mut data, at, json!(idle)),
        Active::Condition(name) => json::clear_condition(&mut data, name, now),
    }
    data.get("status").cloned()
}

impl Observed for Custom<'_> {
    fn kind(&self) -> Kind {
        self.shape.kind
    }

    fn metadata(&self) -> &ObjectMeta {
        self.metadata
    }

    fn is_suspended(&self) -> bool {
        self.shape.is_suspended(self.data)
    }

    fn is_active(&self) -> bool {
        match self.shape.active {
            Active::Sum(_) => self.jobs_status().any(|entry| number(entry, "/active").unwrap_or(0) > 0),
            Active::Unless(at, values) => !values.contains(&text(self.data, at)),
            Active::Is { at, value, .. } => text(self.data, at) == value,
            Active::Condition(name) => condition(self.data, name) == Some("True"),
        }
    }

    fn finished(&self) -> Option<Finished> {
        match self.shape.end {
            End::Conditions { good, bad } => [good, bad].into_iter().find_map(|name| {
                let is = condition(self.data, name) == Some("True");
                is.then(|| Finished { success: name == good, message: condition_message(self.data, name) })
            }),
            End::RayJob => ray::finished(self.data),
            End::AppWrapper => app_wrapper::finished(self.data),
            End::Never => None,
        }
    }

    fn pod_sets(&self) -> Result<Vec<PodSet>, String> {
        let places = self.places()?;
        let pod_set = |place: Place| {
            let topology_request = topology::request(&place.template, &place.numbered())?;
            Ok(PodSet {
                name: Some(place.name),
                template: place.template.into(),
                count: place.count,
                min_count: None,
                topology_request,
            })
        };
        places.into_iter().map(pod_set).collect()
    }

    fn pods_ready(&self) -> bool {
        match self.shape.ready {
            Ready::Replicas => {
                let Ok(places) = self.places() else { return false };
                let wanted: i64 = places.iter().map(|place| i64::from(place.replicas)).sum();
                let of = |entry: &Value, at: &str| number(entry, at).unwrap_or(0);
                let ready = |entry: &Value| of(entry, "/ready") + of(entry, "/succeeded");
                wanted == self.jobs_status().map(ready).sum::<i64>()
            }
            Ready::Condition(name) => condition(self.data, name) == Some("True"),
            Ready::Is(at, value) => text(self.data, at) == value,
        }
    }

    /// Only kinds that are made of replicated Jobs say which of their pods are done (JF-61).
    fn reclaimable(&self) -> Vec<ReclaimablePod> {
        if self.shape.ready != Ready::Replicas || self.jobs_status().next().is_none() {
            return Vec::new();
        }
        let places = self.places().unwrap_or_default();
        let reclaimed = places.iter().filter_map(|place| {
            let mut entries = self.jobs_status();
            let entry = entries.find(|entry| text(entry, "/name").eq_ignore_ascii_case(&place.name))?;
            let succeeded = i32::try_from(number(entry, "/succeeded")?).ok()?;
            let within = succeeded > 0 && succeeded <= place.replicas;
            let count = succeeded.saturating_mul(place.count / place.replicas.max(1));
            within.then(|| ReclaimablePod { name: place.name.clone(), count })
        });
        reclaimed.collect()
    }

    fn priority_class(&self) -> Option<String> {
        let Pods::Roles { .. } = self.shape.pods else { return None };
        let class = text(self.data, "/spec/runPolicy/schedulingPolicy/priorityClass");
        (!class.is_empty()).then(|| class.to_owned())
    }

    /// Of the kinds that can grow and shrink, one does so by its own spec. Ray's others do it by themselves, which is not here.
    fn is_elastic(&self) -> bool {
        self.shape.is_resized() && annotation(self.metadata, ELASTIC_JOB) == Some("true")
    }

    fn may_be_gated(&self) -> bool {
        let here = text(self.data, self.shape.managed_by);
        let is_here = here.is_empty() || here == self.shape.controller;
        self.is_elastic() && !self.is_suspended() && is_here
    }

    fn pod_label(&self) -> (&'static str, String) {
        (RAY_CLUSTER_LABEL, self.metadata.name.clone().unwrap_or_default())
    }

    fn is_elsewhere(&self) -> bool {
        let chosen = self.data.pointer("/spec/clusterSelector").and_then(Value::as_object);
        self.shape.end == End::RayJob && chosen.is_some_and(|labels| !labels.is_empty())
    }

    fn started(&self, given: &[PodSetInfo]) -> Result<Vec<Write>, Conflict> {
        let mut object = self.object();
        match self.shape.pods {
            Pods::Components => app_wrapper::give(&mut object, given)?,
            Pods::Runtime => {
                let expected = self.places().map_err(Conflict)?.len();
                if expected != given.len() {
                    return Err(Conflict::of_lengths(expected, given.len()));
                }
                train_job::give(&mut object, given);
                // Trainer lets patches change only while the TrainJob waits.
                let before = Write::Object(object.clone());
                set(&mut object, self.shape.suspend, json!(false));
                return Ok(vec![before, Write::Object(object)]);
            }
            _ => places::give(&mut object, &self.places().map_err(Conflict)?, given)?,
        }
        set(&mut object, self.shape.suspend, json!(false));
        Ok(vec![Write::Object(object)])
    }

    fn stopped(&self, restored: Option<&[PodSetInfo]>) -> Vec<Write> {
        let mut object = self.object();
        let before = object.clone();
        if self.shape.pods == Pods::Runtime && self.is_suspended() {
            // What its pods were given goes when they are gone.
            if !self.is_active() {
                train_job::take(&mut object);
            }
        } else if !self.is_suspended() {
            set(&mut object, self.shape.suspend, json!(true));
            match (self.shape.pods, restored) {
                (Pods::Components, _) => app_wrapper::take(&mut object),
                (Pods::Runtime, _) | (_, None) => {}
                (_, Some(infos)) => places::take(&mut object, &self.places().unwrap_or_default(), infos),
            }
        }
        if object == before { Vec::new() } else { vec![Write::Object(object)] }
    }
}

#[cfg(test)]
mod tests;
