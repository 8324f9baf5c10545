//! A Job as its user sees it: the Job, its Workload and the cluster that it runs on, as one value.
//!
//! Pure: what the objects say is put together here and nowhere else, so that every verb says the same of a Job.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use rules::framework::{QUEUE_NAME_LABEL, annotation};
use rules::{dispatch, job, workload as life};
use serde::Serialize;
use types::kueue::{CheckState, Workload};

use crate::output::Tone;

/// Where a Job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
pub(crate) enum Status {
    /// It waits for quota.
    Queued,
    /// It has quota, and waits for a worker or for other checks.
    Dispatching,
    /// It may run, and no pod of it does yet.
    Starting,
    /// Pods of it are there.
    Running,
    /// It is being stopped, to wait again or for good.
    Stopping,
    /// Somebody keeps it from running.
    Held,
    /// It has done what it was to do.
    Complete,
    /// It has ended otherwise.
    Failed,
    /// It is being deleted.
    Deleting,
    /// It is gone, as only those see it who watched it.
    #[value(skip)]
    Deleted,
    /// Somebody who is not here is to run it, and has said nothing yet.
    External,
}

impl Status {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Status::Queued => "Queued",
            Status::Dispatching => "Dispatching",
            Status::Starting => "Starting",
            Status::Running => "Running",
            Status::Stopping => "Stopping",
            Status::Held => "Held",
            Status::Complete => "Complete",
            Status::Failed => "Failed",
            Status::Deleting => "Deleting",
            Status::Deleted => "Deleted",
            Status::External => "External",
        }
    }

    pub(crate) fn tone(self) -> Tone {
        match self {
            Status::Complete => Tone::Good,
            Status::Failed => Tone::Bad,
            Status::Running | Status::Starting | Status::Dispatching => Tone::Busy,
            Status::Queued | Status::Held | Status::Stopping => Tone::Waiting,
            Status::Deleting | Status::Deleted | Status::External => Tone::Dim,
        }
    }

    pub(crate) fn has_ended(self) -> bool {
        matches!(self, Status::Complete | Status::Failed)
    }
}

/// How far a Job has come, in pods.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    pub(crate) succeeded: i32,
    /// How many are to succeed; `None` if any success will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wanted: Option<i32>,
    pub(crate) active: i32,
    pub(crate) ready: i32,
    pub(crate) failed: i32,
    /// The indexes that are done, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completed_indexes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_indexes: Option<String>,
}

impl Progress {
    /// In a few words: `3/6, 2 running, 1 failed`.
    pub(crate) fn text(&self) -> String {
        let mut parts = vec![match self.wanted {
            Some(wanted) => format!("{}/{wanted}", self.succeeded),
            None => format!("{} done", self.succeeded),
        }];
        let counts = [(self.active, "running"), (self.failed, "failed")].into_iter();
        parts.extend(counts.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
        parts.join(", ")
    }
}

/// A Job as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct View {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) status: Status,
    /// Why it stands so, in one line; empty if there is nothing to say.
    pub(crate) reason: String,
    pub(crate) progress: Progress,
    /// The LocalQueue that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue: Option<String>,
    /// The worker that it runs or ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// The workers that were asked to take it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nominated: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) managed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<String>,
    pub(crate) priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Timestamp>,
}

impl View {
    /// A Job, and the Workload that stands for it if there is one.
    pub(crate) fn of_job(job: &Job, workload: Option<&Workload>) -> View {
        let (no_spec, no_status) = (JobSpec::default(), JobStatus::default());
        let spec = job.spec.as_ref().unwrap_or(&no_spec);
        let status = job.status.as_ref().unwrap_or(&no_status);
        let progress = progress(spec, status);
        let seen = Seen {
            metadata: &job.metadata,
            outcome: outcome(status),
            external: job::external_controller(job).filter(|by| *by != dispatch::CONTROLLER),
            is_suspended: spec.suspend == Some(true),
            has_status: *status != no_status,
            has_pods: status.active.unwrap_or(0) > 0,
            has_begun: has_begun(status),
            queue: label(&job.metadata, QUEUE_NAME_LABEL),
            workload,
        };
        let (stands, reason) = seen.status();
        let ended = status.completion_time.as_ref().or_else(|| failed_at(status)).map(|time| time.0);
        View {
            progress,
            managed_by: spec.managed_by.clone(),
            started: status.start_time.as_ref().map(|time| time.0),
            ended,
            ..seen.view("batch/v1", "Job", stands, reason)
        }
    }

    /// A job of another kind, as far as its Workload tells.
    pub(crate) fn of_workload(workload: &Workload) -> View {
        let owner = owner(workload);
        let finished = life::state::find(workload, life::FINISHED).filter(|it| it.status == "True");
        let metadata = ObjectMeta {
            name: owner.map(|owner| owner.name.clone()).or_else(|| workload.metadata.name.clone()),
            uid: owner.map(|owner| owner.uid.clone()).or_else(|| workload.metadata.uid.clone()),
            ..workload.metadata.clone()
        };
        let seen = Seen {
            metadata: &metadata,
            outcome: finished.map(|it| (ends_well(&it.reason), it.reason.clone(), it.message.clone())),
            external: None,
            is_suspended: false,
            has_status: true,
            has_pods: condition_is_true(workload, life::PODS_READY),
            has_begun: condition_is_true(workload, life::PODS_READY),
            queue: workload.spec.queue_name.clone(),
            workload: Some(workload),
        };
        let (stands, reason) = seen.status();
        let (version, kind) =
            owner.map_or(("kueue.x-k8s.io/v1beta2", "Workload"), |it| (&it.api_version, &it.kind));
        View {
            progress: progress_of(workload, stands),
            started: life::state::find(workload, life::ADMITTED).map(|it| it.last_transition_time.0),
            ended: finished.map(|it| it.last_transition_time.0),
            ..seen.view(version, kind, stands, reason)
        }
    }

    /// What it is called on the command line: the name of a Job, and kind and name of anything else.
    pub(crate) fn title(&self) -> String {
        if self.kind == "Job" {
            self.name.clone()
        } else {
            format!("{}/{}", self.kind.to_lowercase(), self.name)
        }
    }

    /// Where it runs or ran, in a word.
    pub(crate) fn place(&self) -> String {
        match &self.cluster {
            Some(cluster) => cluster.clone(),
            None if self.started.is_some() && self.status != Status::External => "local".to_owned(),
            None => String::new(),
        }
    }

    /// How long it ran, or runs, in seconds.
    pub(crate) fn seconds(&self, now: Timestamp) -> Option<i64> {
        let started = self.started?;
        Some(self.ended.unwrap_or(now).duration_since(started).as_secs().max(0))
    }
}

/// The name of the Workload that was made for an object beforehand.
pub(crate) fn prebuilt(metadata: &ObjectMeta) -> Option<&str> {
    let name = metadata.labels.as_ref()?.get(dispatch::PREBUILT_WORKLOAD)?;
    Some(name.as_str()).filter(|name| !name.is_empty())
}

/// The object that a Workload stands for. A group of pods is none of them, unless all of them are part of one.
pub(crate) fn owner(workload: &Workload) -> Option<&OwnerReference> {
    let owners = workload.metadata.owner_references.as_ref()?;
    let is_group = annotation(&workload.metadata, dispatch::IS_GROUP) == Some("true");
    let mut whole = owners.iter().filter(|owner| !is_group || owner.kind != "Pod");
    owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| whole.next())
}

/// What the status of a Job follows from.
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself")]
struct Seen<'a> {
    metadata: &'a ObjectMeta,
    /// Whether it ended well, with reason and message.
    outcome: Option<(bool, String, String)>,
    external: Option<&'a str>,
    is_suspended: bool,
    has_status: bool,
    has_pods: bool,
    /// Whether there are or were pods since it was started.
    has_begun: bool,
    queue: Option<String>,
    workload: Option<&'a Workload>,
}

impl Seen<'_> {
    fn status(&self) -> (Status, String) {
        let nothing = String::new;
        if let Some((well, reason, message)) = &self.outcome {
            let status = if *well { Status::Complete } else { Status::Failed };
            return (status, if *well { nothing() } else { sentence(reason, message) });
        }
        if self.metadata.deletion_timestamp.is_some() {
            return (Status::Deleting, nothing());
        }
        if let Some(workload) = self.workload {
            return self.of_workload(workload);
        }
        match (self.external, &self.queue) {
            (Some(by), _) if !self.has_status => (Status::External, format!("left to {by}")),
            (None, Some(queue)) if self.is_suspended => {
                (Status::Queued, format!("no Workload yet for queue {queue}"))
            }
            _ if self.is_suspended => (Status::Held, "suspended".to_owned()),
            _ if self.has_begun => (Status::Running, nothing()),
            _ => (Status::Starting, nothing()),
        }
    }

    fn of_workload(&self, workload: &Workload) -> (Status, String) {
        use life::state;
        if !state::is_active(workload) {
            let why = state::find(workload, life::EVICTED).map(|it| it.message.clone()).unwrap_or_default();
            let status = if self.has_pods { Status::Stopping } else { Status::Held };
            return (status, first_of([why, "held".to_owned()]));
        }
        if let Some(evicted) = state::evicted(workload)
            && state::has_quota(workload)
        {
            return (Status::Stopping, sentence(&evicted.reason, &evicted.message));
        }
        if state::is_admitted(workload) {
            let status = if self.has_begun { Status::Running } else { Status::Starting };
            return (status, String::new());
        }
        if let Some(held) = dispatch::observed::held(workload)
            && workload.status.as_ref().is_some_and(|status| status.cluster_name.is_none())
        {
            return (Status::Stopping, format!("its pods on {held} have not all ended"));
        }
        if state::has_quota(workload) {
            let checks = state::checks(workload).iter().filter(|check| check.state != CheckState::Ready);
            let said = checks.map(|check| match check.message.as_str() {
                "" => format!("waits for check {}", check.name),
                said => sentence(&check.name, said),
            });
            return (Status::Dispatching, said.collect::<Vec<_>>().join("; "));
        }
        let reserved = state::find(workload, life::QUOTA_RESERVED).map(|it| it.message.clone());
        let gates = state::admission_gates(workload).map(|by| format!("admission is gated by {by}"));
        (Status::Queued, first_of([gates.unwrap_or_default(), reserved.unwrap_or_default()]))
    }

    fn view(&self, api_version: &str, kind: &str, status: Status, reason: String) -> View {
        let of_workload = self.workload.and_then(|workload| workload.status.as_ref());
        View {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
            uid: self.metadata.uid.clone().unwrap_or_default(),
            status,
            reason,
            progress: Progress::default(),
            queue: self.queue.clone().or_else(|| self.workload?.spec.queue_name.clone()),
            cluster: of_workload.and_then(|status| status.cluster_name.clone()),
            nominated: of_workload.map(|status| status.nominated_cluster_names.clone()).unwrap_or_default(),
            managed_by: None,
            workload: self.workload.and_then(|workload| workload.metadata.name.clone()),
            priority: self.workload.and_then(|workload| workload.spec.priority).unwrap_or(0),
            created: self.metadata.creation_timestamp.as_ref().map(|time| time.0),
            started: None,
            ended: None,
        }
    }
}

/// Reason and message in one line.
fn sentence(reason: &str, message: &str) -> String {
    match (reason, message) {
        (_, "") => reason.to_owned(),
        ("", _) => message.to_owned(),
        _ => format!("{reason}: {message}"),
    }
}

fn first_of(texts: impl IntoIterator<Item = String>) -> String {
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn label(metadata: &ObjectMeta, key: &str) -> Option<String> {
    metadata.labels.as_ref()?.get(key).cloned().filter(|value| !value.is_empty())
}

fn outcome(status: &JobStatus) -> Option<(bool, String, String)> {
    let conditions = status.conditions.iter().flatten();
    let mut ends = conditions
        .filter(|it| it.status == "True" && [job::COMPLETE, job::FAILED].contains(&it.type_.as_str()));
    ends.next().map(|it| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (it.type_ == job::COMPLETE, text(&it.reason), text(&it.message))
    })
}

fn has_begun(status: &JobStatus) -> bool {
    let counts = [status.active, status.succeeded, status.failed, status.terminating];
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let uncounted = uncounted.is_some_and(|it| it.succeeded.is_some() || it.failed.is_some());
    uncounted || counts.iter().any(|count| count.unwrap_or(0) > 0)
}

fn failed_at(status: &JobStatus) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    let mut conditions = status.conditions.iter().flatten();
    let failed = conditions.find(|it| it.status == "True" && it.type_ == job::FAILED)?;
    failed.last_transition_time.as_ref()
}

/// How Kueue names a good end.
fn ends_well(reason: &str) -> bool {
    reason != "Failed"
}

fn condition_is_true(workload: &Workload, kind: &str) -> bool {
    life::condition::is_true(life::state::conditions(workload), kind)
}

fn progress(spec: &JobSpec, status: &JobStatus) -> Progress {
    let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
    let alone = spec.parallelism.unwrap_or(1) <= 1;
    let indexes = |text: &Option<String>| text.clone().filter(|text| is_indexed && !text.is_empty());
    Progress {
        succeeded: status.succeeded.unwrap_or(0),
        wanted: spec.completions.or(alone.then_some(1)),
        active: status.active.unwrap_or(0),
        ready: status.ready.unwrap_or(0),
        failed: status.failed.unwrap_or(0),
        completed_indexes: indexes(&status.completed_indexes),
        failed_indexes: indexes(&status.failed_indexes),
    }
}

/// What a Workload alone tells: how many pods there are to be, and how many need nothing any more.
fn progress_of(workload: &Workload, status: Status) -> Progress {
    let wanted: i32 = workload.spec.pod_sets.iter().map(|set| set.count).sum();
    let reclaimable = workload.status.iter().flat_map(|status| &status.reclaimable_pods);
    let reclaimed: i32 = reclaimable.map(|it| it.count).sum();
    let succeeded = if status == Status::Complete { wanted } else { reclaimed };
    let active = if status == Status::Running { wanted - reclaimed } else { 0 };
    Progress { succeeded, wanted: Some(wanted), active, ..Progress::default() }
}
