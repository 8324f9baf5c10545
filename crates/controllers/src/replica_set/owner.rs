//! The two kinds that own so many pods.

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition};
use k8s_openapi::api::core::v1::{ReplicationController, ReplicationControllerCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::Resource;
use rules::replicas::{Counts, Wanted};

use super::Failure;
use crate::kinds::{Kind, Kinds};

/// The condition of an owner whose pods cannot be created or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A kind that owns so many pods.
pub(crate) trait Owner:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Send + Sync + Sized
{
    /// Its name in owner references.
    const KIND: &'static str;
    /// Events are told under this name.
    const SOURCE: &'static str;

    /// Its cache.
    fn cache(kinds: &Kinds) -> &Kind<Self>;

    /// What it wants.
    fn wanted(&self) -> Wanted<'_>;

    /// The object with the status that it should have; `None` if it has that.
    fn with_status(&self, counts: &Counts, failure: Option<&Failure>, now: Timestamp) -> Option<Self>;
}

fn some(number: i32) -> Option<i32> {
    Some(number).filter(|number| *number != 0)
}

impl Owner for ReplicaSet {
    const KIND: &'static str = "ReplicaSet";
    const SOURCE: &'static str = "replicaset-controller";

    fn cache(kinds: &Kinds) -> &Kind<Self> {
        &kinds.replica_sets
    }

    fn wanted(&self) -> Wanted<'_> {
        let spec = self.spec.as_ref();
        Wanted {
            api_version: "apps/v1",
            kind: Self::KIND,
            owner: &self.metadata,
            replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
            selector: spec.map(|spec| spec.selector.clone()),
            template: spec.and_then(|spec| spec.template.as_ref()),
        }
    }

    fn with_status(&self, counts: &Counts, failure: Option<&Failure>, now: Timestamp) -> Option<Self> {
        let old = self.status.clone().unwrap_or_default();
        let mut new = old.clone();
        new.replicas = counts.replicas;
        new.fully_labeled_replicas = some(counts.fully_labeled);
        new.ready_replicas = some(counts.ready);
        new.available_replicas = some(counts.available);
        new.terminating_replicas = Some(counts.terminating);
        new.observed_generation = self.metadata.generation;
        let known = |condition: &ReplicaSetCondition| condition.type_ == REPLICA_FAILURE;
        let mut conditions = old.conditions.clone().unwrap_or_default();
        match failure {
            Some(failure) if !conditions.iter().any(known) => conditions.push(ReplicaSetCondition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(failure.reason.to_owned()),
                message: Some(failure.message.clone()),
                last_transition_time: Some(Time(now)),
            }),
            Some(_) => {}
            None => conditions.retain(|condition| !known(condition)),
        }
        new.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
        let changed = self.status.is_none() || new != old;
        changed.then(|| ReplicaSet { status: Some(new), ..self.clone() })
    }
}

impl Owner for ReplicationController {
    const KIND: &'static str = "ReplicationController";
    const SOURCE: &'static str = "replication-controller";

    fn cache(kinds: &Kinds) -> &Kind<Self> {
        &kinds.replication_controllers
    }

    fn wanted(&self) -> Wanted<'_> {
        let spec = self.spec.as_ref();
        let labels = spec.and_then(|spec| spec.selector.clone());
        let selector =
            labels.map(|labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
        Wanted {
            api_version: "v1",
            kind: Self::KIND,
            owner: &self.metadata,
            replicas: spec.and_then(|spec| spec.replicas).unwrap_or(1),
            min_ready_seconds: spec.and_then(|spec| spec.min_ready_seconds).unwrap_or(0),
            selector,
            template: spec.and_then(|spec| spec.template.as_ref()),
        }
    }

    fn with_status(&self, counts: &Counts, failure: Option<&Failure>, now: Timestamp) -> Option<Self> {
        let old = self.status.clone().unwrap_or_default();
        let mut new = old.clone();
        new.replicas = counts.replicas;
        new.fully_labeled_replicas = some(counts.fully_labeled);
        new.ready_replicas = some(counts.ready);
        new.available_replicas = some(counts.available);
        new.observed_generation = self.metadata.generation;
        let known = |condition: &ReplicationControllerCondition| condition.type_ == REPLICA_FAILURE;
        let mut conditions = old.conditions.clone().unwrap_or_default();
        match failure {
            Some(failure) if !conditions.iter().any(known) => {
                conditions.push(ReplicationControllerCondition {
                    type_: REPLICA_FAILURE.to_owned(),
                    status: "True".to_owned(),
                    reason: Some(failure.reason.to_owned()),
                    message: Some(failure.message.clone()),
                    last_transition_time: Some(Time(now)),
                });
            }
            Some(_) => {}
            None => conditions.retain(|condition| !known(condition)),
        }
        new.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
        let changed = self.status.is_none() || new != old;
        changed.then(|| ReplicationController { status: Some(new), ..self.clone() })
    }
}
