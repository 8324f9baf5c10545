use serde_json::{Value, json};

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Created at 10:00 on 19 May 2016; every hour on the hour.
fn cron_job(spec: &Value, status: &Value) -> CronJob {
    let mut whole = json!({"schedule": "0 * * * *", "concurrencyPolicy": "Allow", "jobTemplate": {
        "metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}},
        "spec": {"template": {"spec": {"containers": []}}},
    }});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let metadata =
        json!({"name": "mycron", "namespace": "ns", "uid": "u", "creationTimestamp": "2016-05-19T10:00:00Z"});
    serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).unwrap()
}

fn decide(cron_job: &CronJob, now: &str) -> Start {
    let schedule = Schedule::parse(&cron_job.spec.as_ref().unwrap().schedule).unwrap();
    start(cron_job, &cron_job.status.clone().unwrap_or_default(), &schedule, &TimeZone::UTC, at(now))
}

#[track_caller]
fn check(spec: &Value, status: &Value, now: &str, started: Option<&str>, events: &[&str]) -> Start {
    let plan = decide(&cron_job(spec, status), now);
    assert_eq!(plan.now.as_ref().map(|now| now.scheduled), started.map(at), "{spec} {status} at {now}");
    assert_eq!(plan.events.iter().map(|event| event.reason).collect::<Vec<_>>(), events);
    plan
}

#[test]
fn p_4_8_when_a_job_starts() {
    let none = json!({});
    let ran = |last: &str| json!({"lastScheduleTime": last});
    let plan = check(&none, &none, "2016-05-19T10:30:00Z", None, &[]);
    assert_eq!(plan.look_again, Some(SignedDuration::from_mins(30) + DELTA));
    check(&none, &none, "2016-05-19T11:00:00Z", Some("2016-05-19T11:00:00Z"), &[]);
    check(&none, &ran("2016-05-19T11:00:00Z"), "2016-05-19T11:00:01Z", None, &[]);
    check(&none, &ran("2016-05-19T10:00:00Z"), "2016-05-19T13:20:00Z", Some("2016-05-19T13:00:00Z"), &[]);
    check(&json!({"suspend": true}), &none, "2016-05-19T11:00:00Z", None, &[]);
    let deadline = json!({"startingDeadlineSeconds": 60});
    check(&deadline, &none, "2016-05-19T11:00:30Z", Some("2016-05-19T11:00:00Z"), &[]);
    let late = check(&deadline, &none, "2016-05-19T11:02:00Z", None, &[]);
    assert_eq!(late.look_again, Some(SignedDuration::from_mins(58) + DELTA));
    let many = check(
        &json!({"schedule": "* * * * *"}),
        &none,
        "2016-05-20T10:00:10Z",
        Some("2016-05-20T10:00:00Z"),
        &["TooManyMissedTimes"],
    );
    assert!(many.look_again.is_some());
    check(&json!({"schedule": "59 23 31 2 *"}), &none, "2016-05-19T11:00:00Z", None, &["InvalidSchedule"]);
    check(
        &json!({"schedule": "@every 30m"}),
        &none,
        "2016-05-19T10:40:00Z",
        Some("2016-05-19T10:30:00Z"),
        &[],
    );
    // The guess is rough: where the times are uneven, it may be too late for any.
    check(&json!({"schedule": "30 6-16/4 * * 1-5"}), &none, "2016-05-23T00:00:00Z", None, &[]);
}

#[test]
fn p_4_8_another_schedule_makes_up_for_no_start() {
    let ran = json!({"lastScheduleTime": "2016-05-19T10:00:00Z"});
    let hourly = cron_job(&json!({}), &ran);
    let often = cron_job(&json!({"schedule": "*/10 * * * *"}), &ran);
    let elsewhere = cron_job(&json!({"timeZone": "Asia/Kolkata"}), &ran);
    let paused = cron_job(&json!({"suspend": true}), &ran);
    let now = at("2016-05-19T10:25:00Z");
    let check = |old: Option<&CronJob>, new: &CronJob, expected: SignedDuration| {
        assert_eq!(wait_after_change(old, new, now), expected);
    };
    check(None, &often, SignedDuration::ZERO);
    check(Some(&hourly), &paused, SignedDuration::ZERO);
    check(Some(&hourly), &often, SignedDuration::from_mins(5) + DELTA);
    check(Some(&often), &hourly, SignedDuration::from_mins(35) + DELTA);
    // The hour begins there at half past.
    check(Some(&hourly), &elsewhere, SignedDuration::from_mins(5) + DELTA);
    check(Some(&hourly), &cron_job(&json!({"schedule": "nonsense"}), &ran), SignedDuration::ZERO);
}

#[test]
fn p_4_8_concurrency() {
    let active =
        json!({"active": [{"name": "mycron-1", "uid": "j"}], "lastScheduleTime": "2016-05-19T10:00:00Z"});
    let policy = |policy: &str| json!({"concurrencyPolicy": policy});
    let due = Some("2016-05-19T11:00:00Z");
    let now = "2016-05-19T11:00:05Z";
    let plan = check(&policy("Allow"), &active, now, due, &[]);
    assert!(!plan.now.unwrap().replace);
    check(&policy("Forbid"), &active, now, None, &["JobAlreadyActive"]);
    check(&policy("Forbid"), &json!({}), now, due, &[]);
    let plan = check(&policy("Replace"), &active, now, due, &[]);
    assert!(plan.now.unwrap().replace);
    assert_eq!(plan.look_again, Some(SignedDuration::from_secs(3595) + DELTA));
    let listed = json!({"active": [{"name": format!("mycron-{}", at("2016-05-19T11:00:00Z").as_second() / 60), "uid": "j"}]});
    check(&policy("Allow"), &listed, now, None, &[]);
}

#[test]
fn p_4_8_the_job_of_a_time() {
    let zone = time_zone("Asia/Tokyo").unwrap();
    let job = new_job(&cron_job(&json!({}), &json!({})), at("2016-05-19T11:00:00Z"), &zone);
    assert_eq!(
        serde_json::to_value(&job.metadata).unwrap(),
        json!({
            "name": "mycron-24394260",
            "namespace": "ns",
            "labels": {"a": "b"},
            "annotations": {"x": "y", SCHEDULED_KEY: "2016-05-19T20:00:00+09:00"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "CronJob", "name": "mycron", "uid": "u",
                "controller": true, "blockOwnerDeletion": true,
            }],
        })
    );
    let job = new_job(&cron_job(&json!({}), &json!({})), at("2016-05-19T11:00:00Z"), &TimeZone::UTC);
    assert_eq!(job.metadata.annotations.unwrap()[SCHEDULED_KEY], "2016-05-19T11:00:00Z");
}

fn job(name: &str, condition: Option<&str>, started: &str, completed: Option<&str>) -> Job {
    let conditions: Vec<Value> =
        condition.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name},
        "status": {"conditions": conditions, "startTime": started, "completionTime": completed},
    }))
    .unwrap()
}

#[test]
fn p_4_8_the_status_follows_the_jobs() {
    let status = json!({"active": [
        {"name": "done", "uid": "done"}, {"name": "failed", "uid": "failed"}, {"name": "runs", "uid": "runs"},
        {"name": "gone", "uid": "gone"}, {"name": "late", "uid": "late"},
    ]});
    let mut status: CronJobStatus = serde_json::from_value(status).unwrap();
    let time = "2016-05-19T11:00:00Z";
    let jobs = [
        job("done", Some("Complete"), time, Some("2016-05-19T11:05:00Z")),
        job("done-before", Some("Complete"), time, Some("2016-05-19T11:04:00Z")),
        job("failed", Some("Failed"), time, None),
        job("runs", None, time, None),
        job("strange", None, time, None),
    ];
    let jobs: Vec<&Job> = jobs.iter().collect();
    let asked: Vec<String> = unseen(&status, &jobs).into_iter().filter_map(|it| it.name.clone()).collect();
    assert_eq!(asked, ["gone", "late"]);
    let events = clean_up(&mut status, &jobs, &["gone".to_owned()]);
    let events: Vec<String> =
        events.into_iter().map(|event| format!("{}: {}", event.reason, event.message)).collect();
    assert_eq!(
        events,
        [
            "SawCompletedJob: Saw completed job: done, condition: Complete",
            "SawCompletedJob: Saw completed job: failed, condition: Failed",
            "UnexpectedJob: Saw a job that the controller did not create or forgot: strange",
            "MissingJob: Active job went missing: gone",
        ]
    );
    let left: Vec<String> = status.active.unwrap().into_iter().filter_map(|it| it.name).collect();
    assert_eq!(left, ["runs", "late"]);
    assert_eq!(status.last_successful_time.unwrap().0, at("2016-05-19T11:05:00Z"));
}

#[test]
fn p_4_8_history() {
    let jobs = [
        job("s1", Some("Complete"), "2016-05-19T01:00:00Z", None),
        job("s3", Some("Complete"), "2016-05-19T03:00:00Z", None),
        job("s2", Some("Complete"), "2016-05-19T02:00:00Z", None),
        job("f1", Some("Failed"), "2016-05-19T01:00:00Z", None),
        job("f2", Some("Failed"), "2016-05-19T02:00:00Z", None),
        job("runs", None, "2016-05-19T00:00:00Z", None),
    ];
    let jobs: Vec<&Job> = jobs.iter().collect();
    let names = |spec: Value| {
        let superfluous = history(&cron_job(&spec, &json!({})), &jobs);
        superfluous.into_iter().filter_map(|job| job.metadata.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        names(json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1})),
        ["s1", "s2", "f1"]
    );
    assert_eq!(names(json!({"successfulJobsHistoryLimit": 0})), ["s1", "s2", "s3"]);
    assert_eq!(names(json!({})), Vec::<String>::new());
}
