//! The Job that Kubernetes brings along.

use k8s_openapi::{
    api::batch::v1::{Job, JobSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;
use types::kueue::{PodSet, ReclaimablePod};

use super::{
    Finished, Kind, Observed, PodSetInfo, Write, annotation,
    pod_set::Conflict,
    topology::{self, Numbered},
};
use crate::job::{
    self, CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL,
    indexes::IndexSet,
};
use crate::workload::ELASTIC_JOB;

/// The kind.
pub const JOB: Kind =
    Kind { group: "batch", version: "v1", kind: "Job", plural: "jobs", framework: "batch/job" };

/// How few pods would do.
pub const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Whether completions follow parallelism.
pub const COMPLETIONS_EQUAL_PARALLELISM: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
/// Says that a Job is being stopped: not everything that was put into it is taken out again.
pub const STOPPING: &str = "kueue.x-k8s.io/stopping";

const POD_SET: &str = "main";
const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";
const MANAGED_LABELS: [&str; 4] =
    [LEGACY_JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, JOB_NAME_LABEL, CONTROLLER_UID_LABEL];

/// A Job as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a>(pub &'a Job);

impl Observed for Batch<'_> {
    fn kind(&self) -> Kind {
        JOB
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn is_suspended(&self) -> bool {
        job::is_suspended(job::spec(self.0)) && !is_stopping(self.0)
    }

    fn is_active(&self) -> bool {
        job::status(self.0).active.unwrap_or(0) != 0
    }

    fn finished(&self) -> Option<Finished> {
        let conditions = job::status(self.0).conditions.iter().flatten();
        let mut ends = conditions.filter(|condition| {
            condition.status == "True" && matches!(condition.type_.as_str(), job::COMPLETE | job::FAILED)
        });
        ends.next().map(|end| Finished {
            success: end.type_ == job::COMPLETE,
            message: end.message.clone().unwrap_or_default(),
        })
    }

    fn pod_sets(&self) -> Result<Vec<PodSet>, String> {
        let mut template = job::spec(self.0).template.clone();
        let numbered = Numbered { index_label: Some(INDEX_LABEL), ..Numbered::default() };
        let topology_request = topology::request(&template, &numbered)?;
        if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
            labels.retain(|key, _| key == JOB_NAME_LABEL || !MANAGED_LABELS.contains(&key.as_str()));
        }
        Ok(vec![PodSet {
            name: Some(POD_SET.to_owned()),
            template: template.into(),
            count: pods_count(job::spec(self.0)),
            min_count: min_count(self.0),
            topology_request,
        }])
    }

    fn pods_ready(&self) -> bool {
        let status = job::status(self.0);
        let uncounted = status.uncounted_terminated_pods.as_ref();
        let uncounted = uncounted.and_then(|pods| pods.succeeded.as_ref()).map_or(0, Vec::len);
        let done = status.succeeded.unwrap_or(0) + i32::try_from(uncounted).unwrap_or(i32::MAX);
        done.saturating_add(status.ready.unwrap_or(0)) >= pods_count(job::spec(self.0))
    }

    fn reclaimable(&self) -> Vec<ReclaimablePod> {
        let (spec, status) = (job::spec(self.0), job::status(self.0));
        let parallelism = spec.parallelism.unwrap_or(1);
        let completions = spec.completions.unwrap_or(parallelism);
        let done = if job::is_indexed(spec) {
            let read = |text: &Option<String>| IndexSet::read(text.as_deref().unwrap_or(""), completions);
            let ended = read(&status.completed_indexes).union(&read(&status.failed_indexes));
            let within = ended.iter().filter(|index| i64::from(*index) < i64::from(completions)).count();
            i32::try_from(within).unwrap_or(i32::MAX)
        } else {
            status.succeeded.unwrap_or(0)
        };
        let remaining = completions.saturating_sub(done).max(0);
        if parallelism <= 1 || done == 0 || remaining >= parallelism {
            return Vec::new();
        }
        vec![ReclaimablePod { name: POD_SET.to_owned(), count: parallelism - remaining }]
    }

    fn is_elastic(&self) -> bool {
        annotation(&self.0.metadata, ELASTIC_JOB) == Some("true")
    }

    /// A pod that waits is active and not ready, and it is shown as such as soon as it is there.
    fn may_be_gated(&self) -> bool {
        let status = job::status(self.0);
        let waits = status.active.unwrap_or(0) > status.ready.unwrap_or(0);
        waits && self.is_elastic() && !self.is_suspended() && job::external_controller(self.0).is_none()
    }

    fn started(&self, given: &[PodSetInfo]) -> Result<Vec<Write>, Conflict> {
        let [info] = given else {
            return Err(Conflict::of_lengths(1, given.len()));
        };
        let mut job = self.0.clone();
        let partial = min_count(&job).is_some();
        let both = completions_follow(&job);
        let spec = job.spec.get_or_insert_default();
        spec.suspend = Some(false);
        if partial {
            scale(spec, info.count, both);
        }
        info.merge_into(&mut spec.template)?;
        Ok(vec![Write::Object(value(&job))])
    }

    fn stopped(&self, restored: Option<&[PodSetInfo]>) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut job = self.0.clone();
        if !self.is_suspended() {
            job.spec.get_or_insert_default().suspend = Some(true);
            job.metadata.annotations.get_or_insert_default().insert(STOPPING.to_owned(), "true".to_owned());
            if job != *self.0 {
                writes.push(Write::Object(value(&job)));
            }
        }
        if job::status(&job).start_time.is_some() {
            job.status.get_or_insert_default().start_time = None;
            writes.push(Write::Status(value(&job)));
        }
        let before = job.clone();
        if let Some([info]) = restored {
            restore(&mut job, info);
        }
        if let Some(annotations) = &mut job.metadata.annotations {
            annotations.remove(STOPPING);
        }
        if job != before {
            writes.push(Write::Object(value(&job)));
        }
        writes
    }
}

/// Takes out again what was put into a Job when it started (JF-54). The labels of its controller stay.
fn restore(job: &mut Job, info: &PodSetInfo) {
    let (partial, both) = (min_count(job).is_some(), completions_follow(job));
    let spec = job.spec.get_or_insert_default();
    if partial && spec.parallelism != Some(info.count) {
        scale(spec, info.count, both);
    }
    let mut info = info.clone();
    let labels = spec.template.metadata.iter().flat_map(|metadata| &metadata.labels).flatten();
    let own = labels.filter(|(key, _)| MANAGED_LABELS.contains(&key.as_str()));
    info.labels.extend(own.map(|(key, value)| (key.clone(), value.clone())));
    info.restore(&mut spec.template);
}

fn scale(spec: &mut JobSpec, count: i32, both: bool) {
    spec.parallelism = Some(count);
    if both {
        spec.completions = Some(count);
    }
}

fn value(job: &Job) -> Value {
    serde_json::to_value(job).expect("a Job has string keys and finite numbers")
}

fn is_stopping(job: &Job) -> bool {
    annotation(&job.metadata, STOPPING) == Some("true")
}

/// How many pods run at once at most.
fn pods_count(spec: &JobSpec) -> i32 {
    let parallelism = spec.parallelism.unwrap_or(1);
    spec.completions.map_or(parallelism, |completions| parallelism.min(completions))
}

fn min_count(job: &Job) -> Option<i32> {
    min_parallelism(&job.metadata)
}

fn min_parallelism(metadata: &ObjectMeta) -> Option<i32> {
    annotation(metadata, MIN_PARALLELISM)?.parse().ok()
}

/// Whether a Job that is admitted in part has so many completions, too, as it has pods then.
pub(crate) fn scales_completions(metadata: &ObjectMeta) -> bool {
    min_parallelism(metadata).is_some() && follows(metadata)
}

fn completions_follow(job: &Job) -> bool {
    follows(&job.metadata)
}

fn follows(metadata: &ObjectMeta) -> bool {
    // As Go reads truth.
    matches!(
        annotation(metadata, COMPLETIONS_EQUAL_PARALLELISM),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True")
    )
}

#[cfg(test)]
mod tests;
