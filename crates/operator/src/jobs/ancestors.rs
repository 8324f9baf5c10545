//! Jobs that are part of another Job (JF-2): only the topmost that is managed has a Workload.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{
    Api,
    api::ApiResource,
    core::{DynamicObject, GroupVersionKind},
};
use reconcile::Key;
use rules::framework::{batch::JOB, custom::ALL, queue_name};

use crate::{Context, Error, Settings, caches::controller as index_of};

/// Deeper nesting is an error.
const DEEPEST: usize = 10;

/// Kinds that may be part of the way up, whether they are managed or not: API group, kind, and its name in paths.
pub(crate) const OWNERS: [(&str, &str, &str); 18] = [
    ("batch", "Job", "jobs"),
    ("jobset.x-k8s.io", "JobSet", "jobsets"),
    ("kubeflow.org", "MPIJob", "mpijobs"),
    ("kubeflow.org", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org", "TFJob", "tfjobs"),
    ("kubeflow.org", "XGBoostJob", "xgboostjobs"),
    ("kubeflow.org", "PaddleJob", "paddlejobs"),
    ("kubeflow.org", "JAXJob", "jaxjobs"),
    ("trainer.kubeflow.org", "TrainJob", "trainjobs"),
    ("ray.io", "RayJob", "rayjobs"),
    ("ray.io", "RayCluster", "rayclusters"),
    ("ray.io", "RayService", "rayservices"),
    ("workload.codeflare.dev", "AppWrapper", "appwrappers"),
    ("sparkoperator.k8s.io", "SparkApplication", "sparkapplications"),
    ("apps", "Deployment", "deployments"),
    ("apps", "StatefulSet", "statefulsets"),
    ("apps", "ReplicaSet", "replicasets"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets"),
];

impl Context {
    /// The topmost managed Job that an object is part of, as the index of its Workloads has it. Ends at owners of
    /// unknown kind, and at those that were replaced by another of the same name.
    pub(crate) async fn ancestor(&self, of: &ObjectMeta) -> Result<Option<String>, Error> {
        let namespace = of.namespace.clone().unwrap_or_default();
        let mut topmost = None;
        let mut seen = vec![of.uid.clone()];
        let mut current = of.clone();
        while let Some(owner) = controller(&current) {
            let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
            let Some(plural) = self.plural_of(group, &owner.kind) else { break };
            if seen.len() > DEEPEST {
                return Err(Error::TooDeep { kind: "Job", job: key_of(of), limit: DEEPEST });
            }
            let parent = if let Some(parent) = self.seen(group, &owner, &namespace) {
                parent
            } else {
                let kind = GroupVersionKind::gvk(group, version, &owner.kind);
                let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
                let api: Api<DynamicObject> =
                    Api::namespaced_with(self.client.clone(), &namespace, &resource);
                let found = api.get_metadata(&owner.name).await.map_err(|error| {
                    let why = reconcile::chain(&error);
                    missing(of, format!("its owner {} {}: {why}", owner.kind, owner.name))
                });
                found?.metadata
            };
            if parent.uid.as_deref() != Some(owner.uid.as_str()) {
                break;
            }
            if seen.contains(&parent.uid) {
                return Err(missing(of, "its owners own each other".to_owned()));
            }
            let managed = self.settings.is_queued(group, &owner.kind);
            let queued = queue_name(&parent).is_some() || self.settings.manage_jobs_without_queue_name;
            if managed && queued {
                topmost = Some(index_of(group, &owner.kind, &namespace, &owner.name));
            }
            seen.push(parent.uid.clone());
            current = parent;
        }
        Ok(topmost)
    }

    /// An owner that was seen. One that was not may be there all the same, and is asked for.
    fn seen(&self, group: &str, owner: &OwnerReference, namespace: &str) -> Option<ObjectMeta> {
        let key = Key::new(namespace, owner.name.as_str());
        let found = if (group, owner.kind.as_str()) == (JOB.group, JOB.kind) {
            self.caches.jobs.get(&key).map(|job| job.metadata.clone())
        } else {
            let kind =
                ALL.iter().map(|shape| shape.kind).find(|it| it.group == group && it.kind == owner.kind);
            let objects = kind.and_then(|kind| self.caches.kinds.seen(&kind));
            objects.and_then(|objects| objects.get(&key)).map(|object| object.metadata.clone())
        };
        found.filter(|found| found.uid.as_deref() == Some(owner.uid.as_str()))
    }

    /// The name in paths of a kind that may be part of the way up.
    fn plural_of(&self, group: &str, kind: &str) -> Option<String> {
        let known = OWNERS.iter().find(|(its_group, its_kind, _)| *its_group == group && *its_kind == kind);
        let external = || format!("{}s", kind.to_lowercase());
        known
            .map(|(_, _, plural)| plural.to_string())
            .or_else(|| self.settings.is_external(group, kind).then(external))
    }
}

/// Whether the direct owner of an object is of a kind that is managed itself, by whomever.
pub(crate) fn has_managed_owner(of: &ObjectMeta, settings: &Settings) -> bool {
    controller(of).is_some_and(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        settings.is_queued(group, &owner.kind)
    })
}

fn controller(metadata: &ObjectMeta) -> Option<OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)).cloned()
}

fn missing(of: &ObjectMeta, why: String) -> Error {
    Error::Missing { kind: "Job", job: key_of(of), why }
}

fn key_of(metadata: &ObjectMeta) -> Key {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    Key::new(part(&metadata.namespace), part(&metadata.name))
}
