//! The kinds of jobs that can run on a worker cluster, each a short declaration.
//!
//! A declaration says where an object of the kind keeps what dispatch has to know; what is done with it is the same for
//! all kinds, except for what [`Back`] and [`Forward`] name.

use jiff::{SignedDuration, Timestamp};
use kube_core::DynamicObject;
use serde_json::Value;

use super::CONTROLLER;
use crate::framework;

/// A kind of job.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
    /// What Kueue calls it in its configuration.
    pub integration: &'static str,
    /// Where an object says who reconciles it; `None` if the kind has no such field and every object is ours.
    pub managed_by: Option<&'static str>,
    /// What that field is called when it is wrong.
    pub refusal: &'static str,
    /// Where an object says that it is not to start yet.
    pub suspend: Option<&'static str>,
    /// Fields of an object that its mirror does not have: who reconciles it, and after what time it is deleted, since
    /// a mirror must stay until its end was recorded (MK-ADP-09).
    pub strip: &'static [&'static str],
    /// Items of lists that its mirror does not have: the list, and a field of the item with its value.
    pub strip_items: &'static [(&'static str, &'static str, &'static str)],
    /// Fields that have another value in its mirror: the field, its value, and the other one.
    pub replace: &'static [(&'static str, &'static str, &'static str)],
    /// Annotations that its mirror does not have.
    pub strip_annotations: &'static [&'static str],
    /// What comes back of a mirror's status.
    pub back: Back,
    /// What is passed on of later changes.
    pub forward: Forward,
    /// How the end is told.
    pub end: End,
    /// Where an object says how many Workloads it has, one for each of its replicas; `None` if it has one.
    pub components: Option<&'static str>,
    /// The label of its pods that has its name, if they have one: by it those are found that outlive it.
    pub pods: Option<&'static str>,
    /// Whether its mirrors are deleted in the background by request, or as the API server likes.
    pub deletes_in_background: bool,
}

/// What comes back of a mirror's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// All of it, as far as the rules of a batch Job's status allow.
    Job,
    /// All of it, except that a pod that is held back stays so in the eyes of the manager's autoscaler.
    Pod,
    /// The same for each pod of a group.
    Group,
    /// Nothing: the manager has a controller that says for itself how it fares.
    Nothing,
    /// All of it.
    Whole,
}

/// What is passed on of later changes of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// Nothing.
    Nothing,
    /// The number of pods of an elastic Job.
    Parallelism,
    /// The numbers of pods of an elastic RayCluster.
    WorkerGroups,
    /// This field.
    Field(&'static str),
}

/// How an object tells that it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// One of these conditions is true.
    Conditions(&'static [&'static str]),
    /// A field has one of these values.
    Field(&'static str, &'static [&'static str]),
    /// The condition `Succeeded` is true or false, and no longer unknown.
    Succeeded,
    /// It does not end by itself.
    Never,
}

const COMPLETE_OR_FAILED: End = End::Conditions(&["Complete", "Failed"]);
const SUCCEEDED_OR_FAILED: End = End::Conditions(&["Succeeded", "Failed"]);

/// The label of pods with the name of their JobSet.
const JOB_SET: &str = "jobset.sigs.k8s.io/jobset-name";

/// A kind that is like most.
const PLAIN: Adapter = Adapter {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    integration: "",
    managed_by: Some("/spec/managedBy"),
    refusal: "spec.managedBy",
    suspend: Some("/spec/suspend"),
    strip: &["/spec/managedBy", "/spec/ttlSecondsAfterFinished"],
    strip_items: &[],
    replace: &[],
    strip_annotations: &[],
    back: Back::Whole,
    forward: Forward::Nothing,
    end: COMPLETE_OR_FAILED,
    components: None,
    pods: None,
    deletes_in_background: false,
};

/// A kind of the training operator.
const KUBEFLOW: Adapter = Adapter {
    group: "kubeflow.org",
    managed_by: Some("/spec/runPolicy/managedBy"),
    suspend: Some("/spec/runPolicy/suspend"),
    strip: &["/spec/runPolicy/managedBy", "/spec/runPolicy/ttlSecondsAfterFinished"],
    end: SUCCEEDED_OR_FAILED,
    pods: Some("training.kubeflow.org/job-name"),
    ..PLAIN
};

/// A kind of KubeRay.
const RAY: Adapter = Adapter { group: "ray.io", strip: &["/spec/managedBy"], end: End::Never, ..PLAIN };

/// Every kind that is known without being configured, batch Job first.
pub static ALL: [Adapter; 17] = [
    Adapter {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        integration: "batch/job",
        strip: &[
            "/spec/managedBy",
            "/spec/selector",
            "/spec/ttlSecondsAfterFinished",
            "/spec/template/metadata/labels/job-name",
            "/spec/template/metadata/labels/controller-uid",
            "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid",
        ],
        back: Back::Job,
        forward: Forward::Parallelism,
        pods: Some("batch.kubernetes.io/job-name"),
        deletes_in_background: true,
        ..PLAIN
    },
    Adapter {
        group: "jobset.x-k8s.io",
        version: "v1alpha2",
        kind: "JobSet",
        plural: "jobsets",
        integration: "jobset.x-k8s.io/jobset",
        end: End::Conditions(&["Completed", "Failed"]),
        pods: Some(JOB_SET),
        ..PLAIN
    },
    Adapter {
        group: "trainer.kubeflow.org",
        version: "v1alpha1",
        kind: "TrainJob",
        plural: "trainjobs",
        integration: "trainer.kubeflow.org/trainjob",
        strip: &["/spec/managedBy"],
        strip_items: &[("/spec/runtimePatches", "manager", "kueue.x-k8s.io/manager")],
        // It runs as a JobSet of its name.
        pods: Some(JOB_SET),
        ..PLAIN
    },
    Adapter {
        version: "v2beta1",
        kind: "MPIJob",
        plural: "mpijobs",
        integration: "kubeflow.org/mpijob",
        refusal: "spec.runPolicy.managedBy",
        ..KUBEFLOW
    },
    Adapter { kind: "PyTorchJob", plural: "pytorchjobs", integration: "kubeflow.org/pytorchjob", ..KUBEFLOW },
    Adapter { kind: "TFJob", plural: "tfjobs", integration: "kubeflow.org/tfjob", ..KUBEFLOW },
    Adapter { kind: "XGBoostJob", plural: "xgboostjobs", integration: "kubeflow.org/xgboostjob", ..KUBEFLOW },
    Adapter { kind: "PaddleJob", plural: "paddlejobs", integration: "kubeflow.org/paddlejob", ..KUBEFLOW },
    Adapter { kind: "JAXJob", plural: "jaxjobs", integration: "kubeflow.org/jaxjob", ..KUBEFLOW },
    Adapter {
        kind: "RayJob",
        plural: "rayjobs",
        integration: "ray.io/rayjob",
        strip: &["/spec/managedBy", "/spec/ttlSecondsAfterFinished"],
        // Nor may it delete itself when it has ended. The older fields are valid only together, so one of them cannot go alone.
        strip_items: &[("/spec/deletionStrategy/deletionRules", "policy", "DeleteSelf")],
        replace: &[
            ("/spec/deletionStrategy/onSuccess/policy", "DeleteSelf", "DeleteCluster"),
            ("/spec/deletionStrategy/onFailure/policy", "DeleteSelf", "DeleteCluster"),
        ],
        end: End::Field("/status/jobDeploymentStatus", &["Complete", "Failed"]),
        ..RAY
    },
    Adapter {
        kind: "RayCluster",
        plural: "rayclusters",
        integration: "ray.io/raycluster",
        forward: Forward::WorkerGroups,
        ..RAY
    },
    Adapter {
        kind: "RayService",
        plural: "rayservices",
        integration: "ray.io/rayservice",
        suspend: Some("/spec/rayClusterConfig/suspend"),
        forward: Forward::Field("/spec/serveConfigV2"),
        ..RAY
    },
    Adapter {
        group: "workload.codeflare.dev",
        version: "v1beta2",
        kind: "AppWrapper",
        plural: "appwrappers",
        integration: "workload.codeflare.dev/appwrapper",
        strip: &["/spec/managedBy"],
        strip_annotations: &["workload.codeflare.dev.appwrapper/successTTLDuration"],
        end: End::Field("/status/phase", &["Succeeded", "Failed"]),
        ..PLAIN
    },
    Adapter {
        group: "tekton.dev",
        kind: "PipelineRun",
        plural: "pipelineruns",
        integration: "PipelineRun.v1.tekton.dev",
        refusal: ".spec.managedBy",
        suspend: None,
        strip: &["/spec/managedBy"],
        end: End::Succeeded,
        deletes_in_background: true,
        ..PLAIN
    },
    Adapter {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        integration: "statefulset",
        managed_by: None,
        suspend: None,
        strip: &[],
        back: Back::Nothing,
        end: End::Never,
        ..PLAIN
    },
    Adapter {
        group: "leaderworkerset.x-k8s.io",
        kind: "LeaderWorkerSet",
        plural: "leaderworkersets",
        integration: "leaderworkerset.x-k8s.io/leaderworkerset",
        managed_by: None,
        suspend: None,
        strip: &[],
        back: Back::Nothing,
        forward: Forward::Field("/spec/replicas"),
        end: End::Never,
        components: Some("/spec/replicas"),
        ..PLAIN
    },
    Adapter { end: End::Field("/status/phase", &["Succeeded", "Failed"]), back: Back::Pod, ..POD },
];

/// Pods, which wait behind a gate on the manager for as long as they exist there (MK-POD-01).
const POD: Adapter = Adapter {
    kind: "Pod",
    plural: "pods",
    integration: "pod",
    managed_by: None,
    suspend: None,
    strip: &["/spec/nodeName"],
    ..PLAIN
};

/// Groups of pods. That one of them has ended is the worker's to say.
pub static GROUP: Adapter = Adapter { end: End::Never, back: Back::Group, ..POD };

/// Batch Job.
pub fn job() -> &'static Adapter {
    &ALL[0]
}

impl Adapter {
    /// The adapter of a kind.
    pub fn of(api_version: &str, kind: &str) -> Option<&'static Adapter> {
        ALL.iter().find(|adapter| adapter.kind == kind && adapter.api_version() == api_version)
    }

    /// Group and version as objects carry them.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the manager has a controller of its own for the kind, which makes Workloads and ends them (MK-RUN-04).
    pub fn is_queued_here(&self) -> bool {
        framework::kinds().any(|kind| kind.group == self.group && kind.kind == self.kind)
    }

    /// Group, version and kind as Kueue writes them in annotations and messages (MK-FLOW-03).
    pub fn gvk(&self) -> String {
        gvk(&self.api_version(), self.kind)
    }

    /// Why an object is not ours to run (MK-ADP-05); `None` if it is.
    pub fn refuses(&self, object: &Value) -> Option<String> {
        let said = object.pointer(self.managed_by?).and_then(Value::as_str).unwrap_or("");
        (said != CONTROLLER).then(|| format!("Expecting {} to be {CONTROLLER:?} not {said:?}", self.refusal))
    }

    /// Whether an object is held back.
    pub fn is_suspended(&self, object: &Value) -> bool {
        self.suspend.is_some_and(|path| object.pointer(path) == Some(&Value::Bool(true)))
    }

    /// Whether an object has ended.
    pub fn is_finished(&self, object: &Value) -> bool {
        match self.end {
            End::Conditions(kinds) => kinds.iter().any(|kind| condition(object, kind) == Some("True")),
            End::Field(path, values) => {
                object.pointer(path).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
            }
            End::Succeeded => matches!(condition(object, "Succeeded"), Some("True" | "False")),
            End::Never => false,
        }
    }

    /// Whether an object failed because it was deleted: its pods are, and that counts as their failure. It had not ended
    /// when that was asked for, and its job is to run again.
    pub fn is_killed(&self, object: &DynamicObject) -> bool {
        if self.back == Back::Pod {
            return is_killed_pod(object);
        }
        let (Some(deleted), End::Conditions(_)) = (&object.metadata.deletion_timestamp, self.end) else {
            return false;
        };
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let failed =
            conditions.into_iter().flatten().find(|it| it["type"] == "Failed" && it["status"] == "True");
        let since =
            failed.and_then(|failed| failed["lastTransitionTime"].as_str()?.parse::<Timestamp>().ok());
        since.is_some_and(|since| since >= deleted.0)
    }
}

/// Whether a pod failed because it was deleted. It was, unless everything in it had ended before that was asked for.
fn is_killed_pod(pod: &DynamicObject) -> bool {
    let Some(deleted) = &pod.metadata.deletion_timestamp else { return false };
    if pod.data.pointer("/status/phase").and_then(Value::as_str) != Some("Failed") {
        return false;
    }
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    let asked = deleted.0.saturating_sub(grace).unwrap_or(deleted.0);
    let containers = pod.data.pointer("/status/containerStatuses").and_then(Value::as_array);
    let ends = containers.into_iter().flatten().map(|it| {
        it.pointer("/state/terminated/finishedAt").and_then(Value::as_str)?.parse::<Timestamp>().ok()
    });
    let ends: Vec<Option<Timestamp>> = ends.collect();
    ends.is_empty() || ends.into_iter().any(|end| end.is_none_or(|end| end >= asked))
}

/// A group, version and kind as Kueue writes them.
pub fn gvk(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == *kind)?["status"].as_str()
}
