//! What the CronJob controller does: which Jobs to delete, when to start one, and what the status says.
//!
//! Deciding takes two looks, as a Job that is listed as active and not seen has to be asked for: [`clean_up`] first,
//! with what was found, then [`start`].

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use crate::cron::{Schedule, time_zone};
use crate::job::conditions::finished;
use crate::job::{COMPLETE, is_finished};

#[cfg(test)]
mod tests;

/// Jobs carry the time that they were scheduled for in this annotation.
pub const SCHEDULED_KEY: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More starts than this were missed: something is wrong with a clock, or with the schedule.
const MANY: i64 = 100;
/// So long after its time a Job is started, lest a clock that is a little behind misses it.
const DELTA: SignedDuration = SignedDuration::from_millis(100);

/// A schedule without times fires at the zero time, in Kubernetes' eyes, again and again.
const NEVER: &str = "time difference between two schedules is less than 1 second";

/// Something to tell about a CronJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// What people read.
    pub message: String,
}

fn normal(reason: &'static str, message: String) -> Event {
    Event { kind: "Normal", reason, message }
}

fn warning(reason: &'static str, message: String) -> Event {
    Event { kind: "Warning", reason, message }
}

impl Event {
    /// A Job was created.
    pub fn created(name: &str) -> Event {
        normal("SuccessfulCreate", format!("Created job {name}"))
    }

    /// A Job was not created.
    pub fn not_created(error: &str) -> Event {
        warning("FailedCreate", format!("Error creating job: {error}"))
    }

    /// A Job was deleted.
    pub fn deleted(name: &str) -> Event {
        normal("SuccessfulDelete", format!("Deleted job {name}"))
    }

    /// A Job was not deleted.
    pub fn not_deleted(error: &str) -> Event {
        warning("FailedDelete", format!("Deleted job: {error}"))
    }

    /// The time zone is none.
    pub fn unknown_zone(zone: &str, error: &str) -> Event {
        warning("UnknownTimeZone", format!("invalid timeZone: {zone:?}: {error}"))
    }

    /// The schedule is none.
    pub fn unparseable(schedule: &str, error: &str) -> Event {
        warning("UnparseableSchedule", format!("unparseable schedule: {schedule:?} : {error}"))
    }

    /// The schedule brings its own time zone.
    pub fn unsupported(schedule: &str) -> Event {
        let more =
            "see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details";
        let message =
            format!("CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, {more}");
        warning("UnsupportedSchedule", message)
    }
}

/// Jobs that ended and are too many, the oldest first.
pub fn history<'a>(cron_job: &CronJob, jobs: &[&'a Job]) -> Vec<&'a Job> {
    let Some(spec) = &cron_job.spec else { return Vec::new() };
    let mut superfluous = Vec::new();
    for (succeeded, limit) in
        [(true, spec.successful_jobs_history_limit), (false, spec.failed_jobs_history_limit)]
    {
        let Some(limit) = limit else { continue };
        let ended =
            |job: &&&Job| finished(job).is_some_and(|condition| (condition.type_ == COMPLETE) == succeeded);
        let mut ended: Vec<&Job> = jobs.iter().filter(ended).copied().collect();
        let started =
            |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        // One that never started counts as the youngest.
        ended.sort_by_key(|job| (started(job).is_none(), started(job), job.metadata.name.clone()));
        let keep = usize::try_from(limit).unwrap_or(0);
        superfluous.extend(ended.iter().take(ended.len().saturating_sub(keep)));
    }
    superfluous
}

/// Jobs that are listed as active and were not seen: to be asked for.
pub fn unseen<'a>(status: &'a CronJobStatus, jobs: &[&Job]) -> Vec<&'a ObjectReference> {
    let seen = |uid: &Option<String>| jobs.iter().any(|job| job.metadata.uid == *uid);
    status.active.iter().flatten().filter(|active| !seen(&active.uid)).collect()
}

/// Brings the status up to date with the Jobs there are. `missing` are those of [`unseen`] that do not exist.
pub fn clean_up(status: &mut CronJobStatus, jobs: &[&Job], missing: &[String]) -> Vec<Event> {
    let mut events = Vec::new();
    for job in jobs {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let active = status.active.iter().flatten().any(|active| active.uid == job.metadata.uid);
        if !active && !is_finished(job) {
            let message = format!("Saw a job that the controller did not create or forgot: {name}");
            events.push(warning("UnexpectedJob", message));
            continue;
        }
        let Some(condition) = finished(job) else { continue };
        if active {
            forget(status, job.metadata.uid.as_deref().unwrap_or_default());
            let message = format!("Saw completed job: {name}, condition: {}", condition.type_);
            events.push(normal("SawCompletedJob", message));
        }
        if condition.type_ == COMPLETE {
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            let later = |last: &Time| completed.as_ref().is_some_and(|time| time.0 > last.0);
            if status.last_successful_time.as_ref().is_none_or(later) {
                status.last_successful_time = completed;
            }
        }
    }
    for uid in missing {
        let gone = status.active.iter().flatten().find(|active| active.uid.as_ref() == Some(uid));
        if let Some(name) = gone.map(|gone| gone.name.clone().unwrap_or_default()) {
            events.push(normal("MissingJob", format!("Active job went missing: {name}")));
        }
        forget(status, uid);
    }
    events
}

/// Takes a Job off the list of active ones.
pub fn forget(status: &mut CronJobStatus, uid: &str) {
    if let Some(active) = &mut status.active {
        active.retain(|active| active.uid.as_deref() != Some(uid));
        if active.is_empty() {
            status.active = None;
        }
    }
}

/// Puts a Job on the list of active ones, as started at its time.
pub fn started(status: &mut CronJobStatus, job: &Job, scheduled: Timestamp) {
    let reference = ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    };
    status.active.get_or_insert_default().push(reference);
    status.last_schedule_time = Some(Time(scheduled));
}

/// What to do about the next start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Whether to start a Job now, and how.
    pub now: Option<Now>,
    /// What to tell.
    pub events: Vec<Event>,
    /// When to look again, counted from now; `None` if not before something changes.
    pub look_again: Option<SignedDuration>,
}

/// A Job to start.
#[derive(Debug, Clone, PartialEq)]
pub struct Now {
    /// The time that it was scheduled for.
    pub scheduled: Timestamp,
    /// The Job.
    pub job: Box<Job>,
    /// Whether the active ones have to go first.
    pub replace: bool,
}

/// Decides whether it is time to start a Job. The status is up to date ([`clean_up`]).
pub fn start(
    cron_job: &CronJob,
    status: &CronJobStatus,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
) -> Start {
    let nothing = Start { now: None, events: Vec::new(), look_again: None };
    let Some(spec) = &cron_job.spec else { return nothing };
    if cron_job.metadata.deletion_timestamp.is_some() || spec.suspend == Some(true) {
        return nothing;
    }
    let due = match most_recent(cron_job, status, schedule, zone, now, true) {
        Ok(due) => due,
        Err(error) => {
            let message = format!("invalid schedule: {} : {error}", spec.schedule);
            return Start { events: vec![warning("InvalidSchedule", message)], ..nothing };
        }
    };
    let wait = |status: &CronJobStatus, events| Start {
        events,
        look_again: until_next(cron_job, status, schedule, zone, now),
        now: None,
    };
    let Some(scheduled) = due.time.filter(|time| *time <= now) else { return wait(status, Vec::new()) };
    let mut events = Vec::new();
    if due.missed > MANY {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        events.push(warning("TooManyMissedTimes", message.to_owned()));
    }
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let too_late = deadline.is_some_and(|wait| scheduled.checked_add(wait).is_ok_and(|until| until < now));
    if too_late {
        let time = scheduled.strftime("%a, %d %b %Y %H:%M:%S +0000");
        events.push(warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")));
        return wait(status, events);
    }
    let active = status.active.as_deref().unwrap_or_default();
    let job = new_job(cron_job, scheduled, zone);
    let listed = active.iter().any(|active| active.name == job.metadata.name);
    let done =
        status.last_schedule_time.as_ref().is_some_and(|last| last.0.as_second() == scheduled.as_second());
    if listed || done {
        return wait(status, events);
    }
    let policy = spec.concurrency_policy.as_deref();
    if policy == Some("Forbid") && !active.is_empty() {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        events.push(normal("JobAlreadyActive", message.to_owned()));
        return wait(status, events);
    }
    let mut after = status.clone();
    started(&mut after, &job, scheduled);
    let next = wait(&after, events);
    Start { now: Some(Now { scheduled, job: Box::new(job), replace: policy == Some("Replace") }), ..next }
}

/// How long to wait before a CronJob that came or changed is looked at. One that has got another schedule waits for the
/// next start by that: the starts that it would have had before are nobody's to make up for.
pub fn wait_after_change(old: Option<&CronJob>, new: &CronJob, now: Timestamp) -> SignedDuration {
    let when = |of: &CronJob| of.spec.as_ref().map(|spec| (spec.schedule.clone(), spec.time_zone.clone()));
    let (Some(old), Some((schedule, zone))) = (old, when(new)) else { return SignedDuration::ZERO };
    if when(old).as_ref() == Some(&(schedule.clone(), zone.clone())) {
        return SignedDuration::ZERO;
    }
    // What nobody can read is told when it is looked at.
    let (Ok(schedule), Ok(zone)) = (Schedule::parse(&schedule), time_zone(zone.as_deref().unwrap_or("UTC")))
    else {
        return SignedDuration::ZERO;
    };
    let status = new.status.clone().unwrap_or_default();
    until_next(new, &status, &schedule, &zone, now).unwrap_or_default()
}

/// How long until the next start, from now on.
fn until_next(
    cron_job: &CronJob,
    status: &CronJobStatus,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
) -> Option<SignedDuration> {
    let from = match most_recent(cron_job, status, schedule, zone, now, false) {
        Ok(Due { time: Some(time), .. }) => time,
        Ok(Due { earliest, missed: 0, .. }) => earliest,
        Ok(_) | Err(_) => now,
    };
    let next = schedule.next(from, zone)?;
    Some((next.duration_since(now) + DELTA).max(SignedDuration::ZERO))
}

struct Due {
    earliest: Timestamp,
    time: Option<Timestamp>,
    missed: i64,
}

/// The last time at which a Job should have been started, since the last one was.
fn most_recent(
    cron_job: &CronJob,
    status: &CronJobStatus,
    schedule: &Schedule,
    zone: &TimeZone,
    now: Timestamp,
    with_deadline: bool,
) -> Result<Due, &'static str> {
    let created = cron_job.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let mut earliest = status.last_schedule_time.as_ref().map_or(created, |time| time.0);
    let deadline = cron_job.spec.as_ref().and_then(|spec| spec.starting_deadline_seconds);
    if let Some(seconds) = deadline.filter(|_| with_deadline) {
        let bound = now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        earliest = earliest.max(bound);
    }
    let first = schedule.next(earliest, zone).ok_or(NEVER)?;
    if now < first {
        return Ok(Due { earliest, time: None, missed: 0 });
    }
    let second = schedule.next(first, zone).ok_or(NEVER)?;
    if now < second {
        return Ok(Due { earliest, time: Some(first), missed: 0 });
    }
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return Err(NEVER);
    }
    let missed = now.duration_since(first).as_secs() / between + 1;
    // A rough guess at how many were missed; from a little before it, the schedule itself says the time.
    let guess = SignedDuration::from_secs((missed - 2).saturating_mul(between));
    let mut at = first.checked_add(guess).unwrap_or(first);
    let mut time = None;
    while let Some(next) = schedule.next(at, zone).filter(|next| *next <= now) {
        time = Some(next);
        at = next;
    }
    Ok(Due { earliest, time, missed })
}

/// The Job for a time. Its name makes sure that there is only one.
fn new_job(cron_job: &CronJob, scheduled: Timestamp, zone: &TimeZone) -> Job {
    let name = cron_job.metadata.name.clone().unwrap_or_default();
    let template = cron_job.spec.as_ref().map(|spec| spec.job_template.clone()).unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations: BTreeMap<String, String> = meta.annotations.unwrap_or_default();
    let local = scheduled.to_zoned(zone.clone());
    let offset = if local.offset().is_zero() { "Z".to_owned() } else { local.strftime("%:z").to_string() };
    let written = format!("{}{offset}", local.strftime("%Y-%m-%dT%H:%M:%S"));
    annotations.insert(SCHEDULED_KEY.to_owned(), written);
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", scheduled.as_second().div_euclid(60))),
            namespace: cron_job.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "CronJob".to_owned(),
                name,
                uid: cron_job.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}
