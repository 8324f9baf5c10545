//! What an endpoint takes from the client, what it keeps from the stored Job, and what it generates.
//!
//! The order around it is the API server's: system fields of the metadata are set before, validation comes after.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobStatus};

use super::{
    CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL, spec, status,
};
use crate::{semantic, wire};

/// A new Job: it gets its selector and labels, an empty status and its first generation (G-02…G-05). Name and uid are
/// set already.
///
/// `shares_labels`: where a Job comes without labels, defaulting gives it those of its template, and upstream both are
/// then one map in memory, so that what is generated for the one shows up in the other. It is two maps again once the
/// object was copied, as it is for a generated name (G-07).
pub fn for_create(job: &mut Job, shares_labels: bool) {
    if spec(job).manual_selector != Some(true) {
        generate_selector(job, shares_labels);
    }
    job.status = Some(JobStatus::default());
    job.metadata.generation = Some(1);
    crate::pod::gates::drop_disabled(&mut job.spec.get_or_insert_default().template, None);
}

/// A changed Job: its status is not the client's to write, and its generation counts changes of the spec (U-01, U-02).
pub fn for_update(new: &mut Job, old: &Job) {
    new.status = Some(status(old).clone());
    crate::pod::gates::drop_disabled(
        &mut new.spec.get_or_insert_default().template,
        Some(&spec(old).template),
    );
    let changed = spec(new) != spec(old) && !semantic::equal(wire::JOB_SPEC, spec(new), spec(old));
    let generation = old.metadata.generation.unwrap_or(0);
    new.metadata.generation = Some(if changed { generation + 1 } else { generation });
}

/// A changed status: the spec is not the controller's to write (S-01). Metadata is taken as it comes (S-02).
pub fn for_status_update(new: &mut Job, old: &Job) {
    new.spec = Some(spec(old).clone());
    new.metadata.generation = old.metadata.generation;
}

/// Labels the pods and selects them, so that no other Job's pods are taken for this one's.
fn generate_selector(job: &mut Job, shares_labels: bool) {
    let name = job.metadata.name.clone().unwrap_or_default();
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let spec = job.spec.get_or_insert_default();
    let generated = [
        (LEGACY_JOB_NAME_LABEL, &name),
        (JOB_NAME_LABEL, &name),
        (LEGACY_CONTROLLER_UID_LABEL, &uid),
        (CONTROLLER_UID_LABEL, &uid),
    ];

    let labels = spec.template.metadata.get_or_insert_default().labels.get_or_insert_default();
    add_missing(labels, &generated);
    if shares_labels {
        job.metadata.labels = Some(labels.clone());
    }

    let selected = spec.selector.get_or_insert_default().match_labels.get_or_insert_default();
    add_missing(selected, &[(CONTROLLER_UID_LABEL, &uid)]);
}

/// What the user said stands, even if wrong: validation says so then.
fn add_missing(labels: &mut BTreeMap<String, String>, wanted: &[(&str, &String)]) {
    for (key, value) in wanted {
        labels.entry((*key).to_owned()).or_insert_with(|| (*value).clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::job::defaults::apply_defaults;

    fn job(value: Value) -> Job {
        let mut job: Job = serde_json::from_value(value).expect("a test's Job");
        job.metadata.name = Some("n".to_owned());
        job.metadata.uid = Some("u".to_owned());
        apply_defaults(&mut job);
        job
    }

    fn created(value: Value) -> Value {
        let mut job = job(value);
        for_create(&mut job, false);
        serde_json::to_value(job).expect("a Job is JSON")
    }

    fn generated() -> Value {
        json!({
            "job-name": "n", "batch.kubernetes.io/job-name": "n",
            "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u",
        })
    }

    #[test]
    fn g_02_g_03_labels_and_selector() {
        let job = created(json!({"spec": {}}));
        assert_eq!(job["spec"]["template"]["metadata"]["labels"], generated());
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );

        let job = created(json!({"spec": {
            "template": {"metadata": {"labels": {"job-name": "mine"}}},
            "selector": {"matchLabels": {"a": "b"}},
        }}));
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "mine");
        assert_eq!(job["spec"]["selector"]["matchLabels"]["a"], "b");
        assert_eq!(job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], "u");
    }

    #[test]
    fn g_04_manual_selector_generates_nothing() {
        let job = created(json!({"spec": {"manualSelector": true}}));
        assert_eq!(job["spec"]["selector"], Value::Null);
        assert_eq!(job["spec"]["template"].get("metadata"), None);
    }

    #[test]
    fn g_05_status_and_generation() {
        let job = created(json!({"metadata": {"generation": 7}, "spec": {}, "status": {"succeeded": 3}}));
        assert_eq!(job["status"], json!({}));
        assert_eq!(job["metadata"]["generation"], 1);
    }

    #[test]
    fn g_07_the_jobs_own_labels() {
        let labels = |shares| {
            let mut job = job(json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}));
            for_create(&mut job, shares);
            serde_json::to_value(job.metadata.labels).expect("labels are JSON")
        };
        let mut both = generated();
        both["a"] = json!("b");
        assert_eq!(labels(true), both);
        assert_eq!(labels(false), json!({"a": "b"}));
    }

    #[test]
    fn u_01_u_02_status_and_generation() {
        let mut old = job(json!({"metadata": {"generation": 3}, "spec": {}, "status": {"failed": 1}}));
        old.metadata.generation = Some(3);
        let mut new = job(
            json!({"metadata": {"generation": 9, "labels": {"x": "y"}}, "spec": {}, "status": {"failed": 5}}),
        );
        for_update(&mut new, &old);
        assert_eq!((new.metadata.generation, status(&new).failed), (Some(3), Some(1)));
        let mut new = job(json!({"spec": {"parallelism": 2, "completions": 1}}));
        for_update(&mut new, &old);
        assert_eq!(new.metadata.generation, Some(4));
    }

    #[test]
    fn s_01_s_02_a_status_write_keeps_the_spec() {
        let old = job(json!({"metadata": {"generation": 3}, "spec": {"parallelism": 2}}));
        let mut new = job(
            json!({"metadata": {"labels": {"x": "y"}}, "spec": {"parallelism": 5}, "status": {"active": 1}}),
        );
        for_status_update(&mut new, &old);
        assert_eq!(spec(&new), spec(&old));
        assert_eq!(new.metadata.generation, Some(3));
        assert!(new.metadata.labels.is_some());
        assert_eq!(status(&new).active, Some(1));
    }
}
