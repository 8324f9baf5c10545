//! The kinds, each a declaration of where an object of it says what there is to know.

use serde_json::Value;

use super::super::Kind;

/// A kind of Job.
#[derive(Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its names.
    pub kind: Kind,
    /// Where an object says that it has to wait.
    pub suspend: &'static str,
    /// Where an object says who reconciles it.
    pub managed_by: &'static str,
    /// What that says if it is the kind's own controller.
    pub controller: &'static str,
    /// Where its pod templates are.
    pub pods: Pods,
    /// When it has pods that use something.
    pub active: Active,
    /// When it has ended.
    pub end: End,
    /// When all its pods are ready.
    pub ready: Ready,
}

/// Where pod templates are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    /// In replicated Jobs.
    ReplicatedJobs,
    /// By role.
    Roles {
        /// Where the roles are.
        at: &'static str,
        /// What they are called, in order.
        roles: &'static [&'static str],
    },
    /// In a Ray cluster.
    Ray {
        /// Where its spec is.
        at: &'static str,
    },
    /// In whole objects of other kinds.
    Components,
    /// In a runtime that the Job refers to.
    Runtime,
}

/// When a Job has pods that use something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Active {
    /// One of the entries here has active ones.
    Sum(&'static str),
    /// A field has none of these values, the last of which says that it was stopped.
    Unless(&'static str, &'static [&'static str]),
    /// A field has a value.
    Is {
        /// Where it is.
        at: &'static str,
        /// This one.
        value: &'static str,
        /// And this one when it was stopped.
        idle: &'static str,
    },
    /// A condition is true.
    Condition(&'static str),
}

/// When a Job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A condition is true.
    Conditions {
        /// This one, if it did what it was for.
        good: &'static str,
        /// This one, if not.
        bad: &'static str,
    },
    /// As a RayJob says it.
    RayJob,
    /// As an AppWrapper says it.
    AppWrapper,
    /// It does not end by itself.
    Never,
}

/// When all pods of a Job are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// As many replicas are ready or done as there should be.
    Replicas,
    /// A condition is true.
    Condition(&'static str),
    /// A field has this value.
    Is(&'static str, &'static str),
}

impl Shape {
    /// The shape of a kind.
    pub fn of(group: &str, kind: &str) -> Option<&'static Shape> {
        ALL.iter().find(|shape| (shape.kind.group, shape.kind.kind) == (group, kind))
    }

    /// Whether an object has to wait.
    pub fn is_suspended(&self, object: &Value) -> bool {
        object.pointer(self.suspend) == Some(&Value::Bool(true))
    }

    /// Whether an object can grow and shrink while it runs, by its own spec (MK-ELA-07).
    pub fn is_resized(&self) -> bool {
        matches!(self.pods, Pods::Ray { .. }) && self.kind.kind == "RayCluster"
    }

    /// The name of the definition that the kind comes with.
    pub fn definition(&self) -> String {
        format!("{}.{}", self.kind.plural, self.kind.group)
    }
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    framework: &'static str,
) -> Kind {
    Kind { group, version, kind, plural, framework }
}

/// A kind of the training operator.
const fn kubeflow(kind: Kind, at: &'static str, roles: &'static [&'static str]) -> Shape {
    Shape {
        kind,
        suspend: "/spec/runPolicy/suspend",
        managed_by: "/spec/runPolicy/managedBy",
        controller: "kubeflow.org/training-operator",
        pods: Pods::Roles { at, roles },
        active: Active::Sum("/status/replicaStatuses"),
        end: End::Conditions { good: "Succeeded", bad: "Failed" },
        ready: Ready::Condition("Running"),
    }
}

/// A kind of KubeRay.
const fn ray(kind: Kind, suspend: &'static str, at: &'static str) -> Shape {
    Shape {
        kind,
        suspend,
        managed_by: "/spec/managedBy",
        controller: "ray.io/kuberay-operator",
        pods: Pods::Ray { at },
        active: Active::Is { at: "/status/state", value: "ready", idle: "suspended" },
        end: End::Never,
        ready: Ready::Is("/status/state", "ready"),
    }
}

const MASTER_AND_WORKERS: &[&str] = &["Master", "Worker"];

/// All of them.
pub static ALL: [Shape; 12] = [
    Shape {
        kind: kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", "jobset.x-k8s.io/jobset"),
        suspend: "/spec/suspend",
        managed_by: "/spec/managedBy",
        controller: "jobset.sigs.k8s.io/jobset-controller",
        pods: Pods::ReplicatedJobs,
        active: Active::Sum("/status/replicatedJobsStatus"),
        end: End::Conditions { good: "Completed", bad: "Failed" },
        ready: Ready::Replicas,
    },
    Shape {
        kind: kind(
            "trainer.kubeflow.org",
            "v1alpha1",
            "TrainJob",
            "trainjobs",
            "trainer.kubeflow.org/trainjob",
        ),
        suspend: "/spec/suspend",
        managed_by: "/spec/managedBy",
        controller: "trainer.kubeflow.org/trainjob-controller",
        pods: Pods::Runtime,
        active: Active::Sum("/status/jobsStatus"),
        end: End::Conditions { good: "Complete", bad: "Failed" },
        ready: Ready::Replicas,
    },
    Shape {
        controller: "kubeflow.org/mpi-operator",
        ..kubeflow(
            kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", "kubeflow.org/mpijob"),
            "/spec/mpiReplicaSpecs",
            &["Launcher", "Worker"],
        )
    },
    kubeflow(
        kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", "kubeflow.org/pytorchjob"),
        "/spec/pytorchReplicaSpecs",
        MASTER_AND_WORKERS,
    ),
    kubeflow(
        kind("kubeflow.org", "v1", "TFJob", "tfjobs", "kubeflow.org/tfjob"),
        "/spec/tfReplicaSpecs",
        &["Chief", "Master", "PS", "Worker", "Evaluator"],
    ),
    kubeflow(
        kind("kubeflow.org", "v1", "XGBoostJob", "xgboostjobs", "kubeflow.org/xgboostjob"),
        "/spec/xgbReplicaSpecs",
        MASTER_AND_WORKERS,
    ),
    kubeflow(
        kind("kubeflow.org", "v1", "PaddleJob", "paddlejobs", "kubeflow.org/paddlejob"),
        "/spec/paddleReplicaSpecs",
        MASTER_AND_WORKERS,
    ),
    kubeflow(
        kind("kubeflow.org", "v1", "JAXJob", "jaxjobs", "kubeflow.org/jaxjob"),
        "/spec/jaxReplicaSpecs",
        &["Worker"],
    ),
    Shape {
        active: Active::Unless("/status/jobDeploymentStatus", &["", "Suspended"]),
        end: End::RayJob,
        ready: Ready::Is("/status/rayClusterStatus/state", "ready"),
        ..ray(
            kind("ray.io", "v1", "RayJob", "rayjobs", "ray.io/rayjob"),
            "/spec/suspend",
            "/spec/rayClusterSpec",
        )
    },
    ray(kind("ray.io", "v1", "RayCluster", "rayclusters", "ray.io/raycluster"), "/spec/suspend", "/spec"),
    Shape {
        active: Active::Condition("Ready"),
        ready: Ready::Condition("Ready"),
        ..ray(
            kind("ray.io", "v1", "RayService", "rayservices", "ray.io/rayservice"),
            "/spec/rayClusterConfig/suspend",
            "/spec/rayClusterConfig",
        )
    },
    Shape {
        kind: kind(
            "workload.codeflare.dev",
            "v1beta2",
            "AppWrapper",
            "appwrappers",
            "workload.codeflare.dev/appwrapper",
        ),
        suspend: "/spec/suspend",
        managed_by: "/spec/managedBy",
        controller: "workload.codeflare.dev/appwrapper-controller",
        pods: Pods::Components,
        active: Active::Condition("QuotaReserved"),
        end: End::AppWrapper,
        ready: Ready::Condition("PodsReady"),
    },
];
