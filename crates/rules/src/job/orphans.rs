//! Pods that carry the tracking finalizer although no Job will ever count them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;

use super::claims::{controller_of, is_job};
use super::pods::has_tracking_finalizer;
use super::{conditions, external_controller};

/// Whether the tracking finalizer is to be taken off a pod.
///
/// `named` is the Job of the name that the pod's controller reference has, if there is one in the pod's namespace.
/// To be asked about a pod without controller, a deleted pod, and all pods that the selector of a deleted or finished
/// Job matches.
pub fn is_orphan(pod: &Pod, named: Option<&Job>) -> bool {
    if !has_tracking_finalizer(pod) {
        return false;
    }
    let Some(controller) = controller_of(pod) else { return true };
    if controller.kind != "Job" || controller.api_version != "batch/v1" {
        return false;
    }
    match named.filter(|job| is_job(controller, job)) {
        Some(job) => external_controller(job).is_none() && conditions::finished(job).is_some(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_10_a_11() {
        let reference = |api: &str, kind: &str, uid: &str, controller: bool| json!([{"apiVersion": api, "kind": kind, "name": "job", "uid": uid, "controller": controller}]);
        let by_job = reference("batch/v1", "Job", "u", true);
        let job = |managed_by: Value, finished: &str| {
            json!({
                "metadata": {"name": "job", "uid": "u"},
                "spec": {"managedBy": managed_by, "template": {}},
                "status": {"conditions": [{"type": "Complete", "status": finished}]},
            })
        };
        let (running, finished) = (job(json!(null), "False"), job(json!(null), "True"));
        for (rule, owners, named, expected) in [
            ("A-10 no controller", json!([]), None, true),
            ("A-10 only an owner", reference("batch/v1", "Job", "u", false), Some(running.clone()), true),
            ("A-10 the Job is gone", by_job.clone(), None, true),
            (
                "A-10 another Job of its name",
                reference("batch/v1", "Job", "old", true),
                Some(running.clone()),
                true,
            ),
            ("A-10 the Job is finished", by_job.clone(), Some(finished), true),
            ("A-11 the Job is not finished", by_job.clone(), Some(running), false),
            ("A-11 another kind", reference("batch/v1", "CronJob", "u", true), None, false),
            ("A-11 another Job kind", reference("example.com/v1", "Job", "u", true), None, false),
            ("E-05 managed by another", by_job.clone(), Some(job(json!("example.com/x"), "False")), false),
            ("E-05 and finished", by_job.clone(), Some(job(json!("example.com/x"), "True")), false),
            ("E-05 gone", by_job, None, true),
        ] {
            for finalizer in [true, false] {
                let finalizers = if finalizer { vec!["batch.kubernetes.io/job-tracking"] } else { vec![] };
                let pod =
                    json!({"metadata": {"name": "p", "ownerReferences": owners, "finalizers": finalizers}});
                let pod = serde_json::from_value(pod).unwrap();
                let named: Option<Job> = named.clone().map(|job| serde_json::from_value(job).unwrap());
                assert_eq!(is_orphan(&pod, named.as_ref()), expected && finalizer, "{rule}");
            }
        }
    }
}
