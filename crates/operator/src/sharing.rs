//! What Workloads have in common, kept once: the operator holds every Workload there is, those that have ended included.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use types::kueue::{Admission, Workload};
use types::shared::Pool;

/// What the Workloads of one cache have in common.
#[derive(Default)]
pub(crate) struct Sharing {
    templates: Pool<PodTemplateSpec>,
    admissions: Pool<Admission>,
}

impl Sharing {
    /// Makes a Workload as small as it can be without being another. Thousands are made of a few templates and hold
    /// equal amounts in the same queues, and a template takes more memory than all the rest of a Workload.
    pub(crate) fn trim(&self, workload: &mut Workload) {
        let pod_sets = &mut workload.spec.pod_sets;
        // What is read from the wire has room for more, which never comes.
        pod_sets.shrink_to_fit();
        for pod_set in pod_sets {
            self.templates.share(&mut pod_set.template);
        }
        let Some(status) = &mut workload.status else { return };
        status.conditions.shrink_to_fit();
        if let Some(admission) = &mut status.admission {
            self.admissions.share(admission);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use types::Shared;

    use super::*;

    fn workload(name: &str, cpu: &str) -> Value {
        let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } });
        let holds = json!({ "name": "main", "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": cpu } });
        let at = "2025-01-01T00:00:00Z";
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": name },
            "spec": { "podSets": [
                { "name": "main", "count": 1, "template": { "spec": { "containers": [container] } } },
            ] },
            "status": {
                "admission": { "clusterQueue": "q", "podSetAssignments": [holds] },
                "conditions": [{
                    "type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": at,
                }],
            },
        })
    }

    fn template(workload: &Workload) -> &Shared<PodTemplateSpec> {
        &workload.spec.pod_sets[0].template
    }

    fn admission(workload: &Workload) -> &Shared<Admission> {
        workload.status.as_ref().and_then(|status| status.admission.as_ref()).expect("an admission")
    }

    #[test]
    fn workloads_share_what_is_equal_and_stay_what_they_are() {
        let sharing = Sharing::default();
        let written = [workload("a", "1"), workload("b", "1"), workload("c", "2")];
        let kept = written.clone().map(|written| {
            let mut read: Workload = serde_json::from_value(written).expect("a Workload");
            sharing.trim(&mut read);
            read
        });
        let [one, like_it, other] = &kept;
        assert!(Shared::is_same(template(one), template(like_it)));
        assert!(!Shared::is_same(template(one), template(other)));
        assert!(Shared::is_same(admission(one), admission(like_it)));
        assert!(!Shared::is_same(admission(one), admission(other)));
        let again = kept.clone().map(|kept| serde_json::to_value(kept).expect("a Workload"));
        for (again, written) in again.iter().zip(&written) {
            assert_eq!(
                again["spec"]["podSets"][0]["template"]["spec"],
                written["spec"]["podSets"][0]["template"]["spec"]
            );
            assert_eq!(again["status"], written["status"]);
            assert_eq!(again["metadata"]["name"], written["metadata"]["name"]);
        }
        let status = one.status.as_ref().expect("a status");
        assert_eq!((one.spec.pod_sets.capacity(), status.conditions.capacity()), (1, 1));
    }
}
