//! The Jobs of Workloads in the form that all kinds have. Making it costs more than most decisions, and a Job is looked at
//! more often than it changes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::batch::v1::Job;
use kube::core::DynamicObject;
use reconcile::Key;

/// The form of the Job of each Workload that is not over. All of it may be forgotten.
#[derive(Default)]
pub(super) struct Forms(Mutex<BTreeMap<Key, Form>>);

struct Form {
    of: Arc<Job>,
    form: Arc<DynamicObject>,
}

impl Forms {
    /// The form of a Workload's Job.
    pub(super) fn of(&self, workload: &Key, job: &Arc<Job>) -> Arc<DynamicObject> {
        if let Some(known) = self.lock().get(workload).filter(|known| Arc::ptr_eq(&known.of, job)) {
            return Arc::clone(&known.form);
        }
        let data = serde_json::json!({"spec": job.spec, "status": job.status});
        let form = Arc::new(DynamicObject { types: None, metadata: job.metadata.clone(), data });
        let known = Form { of: Arc::clone(job), form: Arc::clone(&form) };
        self.lock().insert(workload.clone(), known);
        form
    }

    /// A Workload is over.
    pub(super) fn forget(&self, workload: &Key) {
        self.lock().remove(workload);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Form>> {
        // Every holder makes one change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_made_once_for_what_a_job_is_now() {
        let (forms, key) = (Forms::default(), Key::new("ns", "w"));
        let job = |active| {
            let value = serde_json::json!({"metadata": {"name": "j"}, "status": {"active": active}});
            Arc::new(serde_json::from_value::<Job>(value).expect("a Job"))
        };
        let (before, after) = (job(1), job(2));
        let form = forms.of(&key, &before);
        assert_eq!((form.metadata.name.as_deref(), &form.data["status"]["active"]), (Some("j"), &1.into()));
        assert!(Arc::ptr_eq(&form, &forms.of(&key, &before)), "it has not changed");
        assert_eq!(forms.of(&key, &after).data["status"]["active"], 2);
        forms.forget(&key);
        assert_eq!(Arc::strong_count(&after), 1, "nothing is kept of what is over");
    }
}
