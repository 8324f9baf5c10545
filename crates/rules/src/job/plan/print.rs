//! A plan as one line: the log entry, the test's expectation, and what is shown to those who ask why.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::claims::Claim;
use super::super::indexes::IndexSet;
use super::super::pods::{INDEX_KEY, PodRef};
use super::{Because, Fate, Plan, PodStep};

/// Longer lists of pods are counted instead of told.
const MOST_NAMES: usize = 5;

/// Prints what will be done, provided that all of it succeeds, and why:
/// `create 2 pods, status active=2 ready=0, because 2 of 2 wanted pods are missing`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut steps: Vec<String> = self.claims.iter().map(ToString::to_string).collect();
        steps.extend(print_pods(&self.pods));
        if let Some(rest) = &self.rest {
            let (view, now) = (&rest.view, rest.view.now);
            let record = self.record(&vec![Fate::Done; self.pods.len()]);
            let settled = record.settle(&vec![Fate::Done; record.release.len()]);
            let recorded = record.status.as_ref().unwrap_or(&view.stored);
            steps.extend(record.status.as_ref().map(|status| print_status(&view.stored, status, now)));
            steps.extend((!record.release.is_empty()).then(|| format!("free {}", names(&record.release))));
            steps.extend(settled.status.as_ref().map(|status| print_status(recorded, status, now)));
            steps.extend(self.look_again.map(|at| format!("look again in {}", until(at, now))));
        }
        if steps.is_empty() {
            steps.push("nothing".to_owned());
        }
        write!(f, "{}, because {}", steps.join(", "), self.because)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Adopt(pod) => write!(f, "adopt {}", pod.name),
            Claim::Release(pod) => write!(f, "release {}", pod.name),
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::ManagedBy(manager) => write!(f, "not ours: managed by {manager}"),
            Because::Finished => f.write_str("the Job is finished"),
            Because::FinishUnseen => f.write_str("the Job was just finished"),
            Because::UnknownCompletionMode => f.write_str("the completion mode is unknown"),
            Because::Ended(reason) => f.write_str(reason),
            Because::Deleting => f.write_str("the Job is being deleted"),
            Because::WritesUnseen => f.write_str("earlier writes are not seen yet"),
            Because::Suspended => f.write_str("the Job is suspended"),
            Because::TooMany { active, wanted } => write!(f, "{active} pods are active and {wanted} wanted"),
            Because::TooFew { active, wanted } => {
                write!(f, "{} of {wanted} wanted pods are missing", wanted - active)
            }
            Because::BackingOff(_) => f.write_str("pods failed and the next one waits"),
            Because::NoFreeIndex => f.write_str("no index is free"),
            Because::Enough { active, wanted } => write!(f, "{active} of {wanted} wanted pods are active"),
        }
    }
}

fn print_pods(step: &PodStep) -> Option<String> {
    match step {
        PodStep::Create(pods) if !pods.is_empty() => Some(format!("create {}", print_new(pods))),
        PodStep::End(pods) if !pods.is_empty() => Some(format!("delete {}", names(pods))),
        PodStep::Remove(pods) if !pods.is_empty() => Some(format!("free and delete {}", names(pods))),
        PodStep::Refuse(why) => Some((*why).to_owned()),
        PodStep::Nothing | PodStep::Create(_) | PodStep::End(_) | PodStep::Remove(_) => None,
    }
}

fn print_new(pods: &[Pod]) -> String {
    let index = |pod: &Pod| pod.metadata.annotations.as_ref()?.get(INDEX_KEY)?.parse().ok();
    let indexes: IndexSet = pods.iter().filter_map(index).collect();
    match pods.len() {
        1 if indexes.is_empty() => "1 pod".to_owned(),
        count if indexes.is_empty() => format!("{count} pods"),
        _ => format!("index {indexes}"),
    }
}

fn names(pods: &[PodRef]) -> String {
    if pods.len() > MOST_NAMES {
        return format!("{} pods", pods.len());
    }
    pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(" ")
}

/// What changes in the status.
fn print_status(old: &JobStatus, new: &JobStatus, now: Timestamp) -> String {
    let mut changes: Vec<String> = vec!["status".to_owned()];
    let mut number = |name: &str, old: Option<i32>, new: Option<i32>| {
        if old != new {
            changes.push(format!("{name}={}", new.unwrap_or(0)));
        }
    };
    number("active", old.active, new.active);
    number("ready", old.ready, new.ready);
    number("terminating", old.terminating, new.terminating);
    number("succeeded", old.succeeded, new.succeeded);
    number("failed", old.failed, new.failed);
    let mut text = |name: &str, old: &Option<String>, new: &Option<String>| {
        if old != new {
            changes.push(format!("{name}={}", new.as_deref().unwrap_or_default()));
        }
    };
    text("completedIndexes", &old.completed_indexes, &new.completed_indexes);
    text("failedIndexes", &old.failed_indexes, &new.failed_indexes);
    let uncounted = |status: &JobStatus| status.uncounted_terminated_pods.clone().unwrap_or_default();
    let (old_uncounted, new_uncounted) = (uncounted(old), uncounted(new));
    let mut uids = |name: &str, old: Option<Vec<String>>, new: Option<Vec<String>>| {
        if old.unwrap_or_default() != new.clone().unwrap_or_default() {
            changes.push(format!("uncounted.{name}=[{}]", new.unwrap_or_default().join(" ")));
        }
    };
    uids("succeeded", old_uncounted.succeeded, new_uncounted.succeeded);
    uids("failed", old_uncounted.failed, new_uncounted.failed);
    let mut time = |name: &str, old: &Option<Time>, new: &Option<Time>| {
        if old != new {
            let at = new.as_ref().map_or("none".to_owned(), |time| match time.0.as_second() {
                second if second == now.as_second() => "now".to_owned(),
                _ => time.0.to_string(),
            });
            changes.push(format!("{name}={at}"));
        }
    };
    time("startTime", &old.start_time, &new.start_time);
    time("completionTime", &old.completion_time, &new.completion_time);
    let old_conditions = old.conditions.as_deref().unwrap_or_default();
    for condition in new.conditions.iter().flatten().filter(|condition| !old_conditions.contains(condition)) {
        let reason = condition.reason.as_deref().unwrap_or_default();
        changes.push(format!("{}={}/{reason}", condition.type_, condition.status));
    }
    changes.join(" ")
}

fn until(at: Timestamp, now: Timestamp) -> String {
    let wait = at.duration_since(now).max(SignedDuration::ZERO);
    format!("{wait:#}")
}
