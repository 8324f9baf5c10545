//! What the operator says to writes before they are stored: in the process of an embedded cluster by being called, on
//! real clusters over HTTP ([`server`]).
//!
//! What is said is decided by [`rules::webhook`]; here it is gathered what that depends on.

mod configurations;
pub mod server;

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::Key;
use rules::field;
use rules::framework::{
    self, annotation,
    apps::{DEPLOYMENT, LEADER_WORKER_SET, STATEFUL_SET, stateful_set},
    batch::JOB,
    custom::ALL,
    pod::{POD, SUSPENDING_PARENT},
    queue_name,
};
use rules::meta::selector;
use rules::webhook::job::{self, Surroundings};
use rules::webhook::{self, Kind, Review};
use rules::workload::state;
use serde_json::Value;
use types::kueue::StopPolicy;

use crate::jobs::{has_managed_owner, runtime};
use crate::{Context, Operator};
pub(crate) use configurations::unasked;

/// A kind that the operator has a say in, and the names of the webhooks that ask it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Its API group.
    pub group: &'static str,
    /// Its version there.
    pub version: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
    /// What it is to the rules.
    pub kind: Kind,
    /// What Kueue calls it in its configuration, for kinds of Jobs.
    pub framework: Option<&'static str>,
    /// Whether it gets defaults.
    pub defaulted: bool,
    /// Whether writes of its status are asked about too.
    pub status: bool,
}

/// All of them (WH-1).
pub static ASKED: LazyLock<Vec<Asked>> = LazyLock::new(|| {
    let mut asked = vec![
        of_kueue("clusterqueues", Kind::ClusterQueue, true, false),
        of_kueue("cohorts", Kind::Cohort, false, false),
        of_kueue("resourceflavors", Kind::ResourceFlavor, true, false),
        of_kueue("workloads", Kind::Workload, true, true),
        of_job(&JOB, Kind::Job),
    ];
    asked.extend(ALL.iter().map(|shape| of_job(&shape.kind, Kind::Custom(shape))));
    asked.extend([
        of_job(&POD, Kind::Pod),
        of_job(&DEPLOYMENT, Kind::Deployment),
        of_job(&STATEFUL_SET, Kind::StatefulSet),
        of_job(&LEADER_WORKER_SET, Kind::LeaderWorkerSet),
    ]);
    asked.sort_by_key(|asked| asked.plural);
    asked
});

const fn of_job(names: &framework::Kind, kind: Kind) -> Asked {
    let framework::Kind { group, version, plural, framework, .. } = *names;
    Asked { group, version, plural, kind, framework: Some(framework), defaulted: true, status: false }
}

const fn of_kueue(plural: &'static str, kind: Kind, defaulted: bool, status: bool) -> Asked {
    Asked { group: "kueue.x-k8s.io", version: "v1beta2", plural, kind, framework: None, defaulted, status }
}

impl Asked {
    /// The name in the singular and small letters, of which the names of webhooks are made.
    pub fn singular(&self) -> &'static str {
        self.plural.strip_suffix('s').unwrap_or(self.plural)
    }
}

/// Why a write cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object is not of its kind.
    #[error(transparent)]
    Unreadable(#[from] webhook::Unreadable),
    /// What it depends on could not be read.
    #[error(transparent)]
    Unknown(#[from] crate::Error),
}

impl Operator {
    /// The kinds that it has a say in.
    pub fn asked(&self) -> Vec<&'static Asked> {
        ASKED.iter().filter(|asked| self.is_asked(asked)).collect()
    }

    /// Whether it has a say in a kind.
    pub fn is_asked(&self, asked: &Asked) -> bool {
        let settings = &self.context.settings;
        // Parts of what is queued are asked about, also where pods are not queued by themselves.
        asked.kind == Kind::Pod && settings.queues_pods()
            || asked.framework.is_none_or(|framework| settings.frameworks.contains(framework))
    }

    /// What a new object becomes.
    pub async fn default(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Value, Error> {
        let around = self.context.around_new(kind, namespace, object).await?;
        Ok(webhook::default(&Review { kind, object, old: None, around, runtime: None })?)
    }

    /// What is wrong with a write, and what it is warned about.
    pub fn validate(
        &self,
        kind: Kind,
        namespace: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(Vec<field::Error>, Vec<String>), Error> {
        let around = self.context.around(kind, namespace, object)?;
        let runtime = match kind {
            Kind::Custom(shape) => runtime(shape, namespace, object, &self.context),
            _ => None,
        };
        Ok(webhook::validate(&Review { kind, object, old, around, runtime: runtime.as_ref() })?)
    }
}

impl Context {
    /// What around a new object decides about it, the Jobs included that it may be part of. Only of Jobs it is asked (JF-6).
    async fn around_new(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Surroundings, Error> {
        let mut around = self.around(kind, namespace, object)?;
        if kind.is_queued() {
            let metadata = metadata_of(object, namespace)?;
            // Pods are not asked of whose kind their owner is.
            let queue = if kind == Kind::Pod {
                queue_name(&metadata).is_some() || around.has_default_queue
            } else {
                job::queue_name(&metadata, &around).is_some()
            };
            let may_wait = queue || around.manages_without_queue_name;
            // What is leaving is not asked where it belongs (JF-7).
            if metadata.deletion_timestamp.is_none() && may_wait && !around.has_managed_parent {
                around.has_managed_ancestor = self.ancestor(&metadata).await?.is_some();
            }
        }
        Ok(around)
    }

    /// What is at hand of it.
    fn around(&self, kind: Kind, namespace: &str, object: &Value) -> Result<Surroundings, Error> {
        if !kind.is_queued() {
            return Ok(Surroundings::default());
        }
        let metadata = metadata_of(object, namespace)?;
        let labels = self.caches.namespaces.get(&Key::new("", namespace));
        let labels = labels.and_then(|namespace| namespace.metadata.labels.clone()).unwrap_or_default();
        let by_default = self.caches.local_queues.get(&Key::new(namespace, "default"));
        let mut around = Surroundings {
            manages_without_queue_name: self.settings.manage_jobs_without_queue_name,
            in_managed_namespace: selector::matches(Some(&self.settings.managed_namespaces), &labels)
                == Some(true),
            has_default_queue: by_default
                .is_some_and(|queue| queue.spec.stop_policy.unwrap_or_default() == StopPolicy::None),
            has_managed_owner: has_managed_owner(&metadata, &self.settings),
            only_parts: !self.settings.manages(&POD),
            ..Surroundings::default()
        };
        match kind {
            Kind::Pod => {
                let parent = annotation(&metadata, SUSPENDING_PARENT);
                let parts = [DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET];
                let parent = parts.iter().find(|kind| Some(kind.framework) == parent);
                around.has_managed_parent = parent.is_some_and(|kind| self.settings.manages(kind));
                // Where it runs is not said by a pod.
                return Ok(around);
            }
            Kind::StatefulSet => {
                let workload = Key::new(namespace, stateful_set::name(&metadata));
                let workload = self.caches.workloads.get(&workload);
                around.has_lingering_workload =
                    workload.is_some_and(|workload| !state::is_on_hold(&workload));
            }
            _ => {}
        }
        let queue = job::queue_name(&metadata, &around);
        let queue = queue.and_then(|queue| self.caches.local_queues.get(&Key::new(namespace, queue)));
        let queue = queue.and_then(|queue| self.caches.cluster_queue(&queue.spec.cluster_queue));
        around.is_dispatched = queue.is_some_and(|queue| self.caches.sends_elsewhere(&queue));
        Ok(around)
    }
}

/// The metadata of an object. The namespace of the request counts: the object need not name it.
fn metadata_of(object: &Value, namespace: &str) -> Result<ObjectMeta, webhook::Unreadable> {
    Ok(ObjectMeta { namespace: Some(namespace.to_owned()), ..webhook::metadata(object)? })
}
