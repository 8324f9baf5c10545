//! How pods are brought to their end.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::json;

use crate::bed::{Bed, container, phase};

#[tokio::test]
async fn a_deleted_pod_is_told_and_its_final_status_is_written_before_it_goes() {
    let Some(bed) = Bed::new("stop").await else { return };
    let local = bed.local(|_| {}).await;
    let script = "trap 'exit 7' TERM; echo listening; while :; do sleep 0.05; done";
    let mut pod = bed.script("polite", script, json!({}), json!({}));
    pod["metadata"]["finalizers"] = json!(["example.com/held"]);
    bed.create(pod).await;
    bed.until_phase("polite", "Running").await;
    crate::bed::found(async || {
        let log = bed.log(&local, "polite", "main", runner::LogOptions::default()).await;
        log.contains("listening").then_some(())
    })
    .await;
    bed.delete("polite").await;
    let pod = bed.until_phase("polite", "Failed").await;
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 7);
    bed.release("polite").await;
    bed.until_gone("polite").await;
}

#[tokio::test]
async fn what_does_not_listen_is_killed_with_all_that_it_has_started() {
    let Some(bed) = Bed::new("kill").await else { return };
    let _local = bed.local(|_| {}).await;
    let mark = format!("{}.25", 1000 + std::process::id());
    let script = format!(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep {mark}; :' & while :; do sleep 0.05; done"
    );
    let grace = json!({ "terminationGracePeriodSeconds": 1 });
    let mut pod = bed.script("stubborn", &script, json!({}), grace);
    pod["metadata"]["finalizers"] = json!(["example.com/held"]);
    bed.create(pod).await;
    bed.until_phase("stubborn", "Running").await;
    crate::bed::eventually(|| count_processes(&mark) > 0).await;
    let began = Instant::now();
    bed.delete("stubborn").await;
    let pod = bed.until_phase("stubborn", "Failed").await;
    assert!(began.elapsed() >= Duration::from_millis(900), "it had its grace");
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 137);
    assert_eq!(count_processes(&mark), 0, "nothing of it is left");
    bed.release("stubborn").await;
}

#[tokio::test]
async fn a_pod_deleted_without_grace_is_gone_with_its_processes() {
    let Some(bed) = Bed::new("force").await else { return };
    let local = bed.local(|_| {}).await;
    let mark = format!("{}.5", 2000 + std::process::id());
    bed.create(bed.script("forced", &format!("trap '' TERM; sleep {mark}; :"), json!({}), json!({}))).await;
    bed.until_phase("forced", "Running").await;
    crate::bed::eventually(|| count_processes(&mark) > 0).await;
    bed.pods().delete("forced", &DeleteParams::default().grace_period(0)).await.expect("deletion");
    bed.until_gone("forced").await;
    crate::bed::eventually(|| count_processes(&mark) == 0).await;
    let pods = local.directory.path().join("pods");
    crate::bed::eventually(|| std::fs::read_dir(&pods).is_ok_and(|mut left| left.next().is_none())).await;
}

/// A pod that went at once takes a while to end here, and there may be another one of its name by then.
#[tokio::test]
async fn a_pod_that_ends_late_takes_nothing_from_the_next_one_of_its_name() {
    let Some(bed) = Bed::new("twice").await else { return };
    let local = bed.local(|_| {}).await;
    let mark = format!("{}.5", 8000 + std::process::id());
    let first = bed.create(bed.script("twice", &format!("exec sleep {mark}"), json!({}), json!({}))).await;
    bed.until_phase("twice", "Running").await;
    crate::bed::eventually(|| count_processes(&mark) > 0).await;
    // Its end is told when its output ends, and somebody still has that.
    let output = processes(&mark)[0].join("fd/1");
    let output = std::fs::File::options().write(true).open(output).expect("its output");
    bed.pods().delete("twice", &DeleteParams::default().grace_period(0)).await.expect("deletion");
    bed.create(bed.script("twice", "echo second; exec sleep 1000", json!({}), json!({}))).await;
    bed.until_phase("twice", "Running").await;
    let uid = first.metadata.uid.expect("a uid");
    let directory = local.directory.path().join("pods").join(uid);
    assert!(directory.exists(), "the first one has not ended so soon");
    crate::bed::eventually(|| !directory.exists()).await;
    drop(output);
    assert_eq!(bed.log(&local, "twice", "main", runner::LogOptions::default()).await, "second\n");
    assert_eq!(bed.exec(&local, "twice", "echo here").await, (0, "here\n".to_owned()));
}

#[tokio::test]
async fn a_second_deletion_may_have_less_patience() {
    let Some(bed) = Bed::new("sooner").await else { return };
    let _local = bed.local(|_| {}).await;
    let grace = json!({ "terminationGracePeriodSeconds": 3600 });
    bed.create(bed.script("sooner", "trap '' TERM; while :; do sleep 0.05; done", json!({}), grace)).await;
    bed.until_phase("sooner", "Running").await;
    bed.delete("sooner").await;
    bed.until("sooner", |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()))
        .await;
    bed.pods().delete("sooner", &DeleteParams::default().grace_period(1)).await.expect("deletion");
    bed.until_gone("sooner").await;
}

#[tokio::test]
async fn hooks_run_after_the_start_and_before_the_stop() {
    let Some(bed) = Bed::new("hooks").await else { return };
    let _local = bed.local(|_| {}).await;
    let host = tempfile::tempdir().expect("a directory");
    let write =
        |word: &str| json!({ "exec": { "command": ["sh", "-c", format!("echo {word} >> /shared/log")] } });
    let own = json!({
        "lifecycle": { "postStart": write("started"), "preStop": write("stopping") },
        "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
    });
    let more = json!({ "volumes": [{ "name": "shared", "hostPath": { "path": host.path() } }] });
    let script = "trap 'echo told >> /shared/log; exit 0' TERM; while :; do sleep 0.05; done";
    bed.create(bed.script("hooks", script, own, more)).await;
    let ready = |pod: Option<&Pod>| pod.is_some_and(|pod| container(pod, "main")["ready"] == true);
    bed.until("hooks", ready).await;
    bed.delete("hooks").await;
    bed.until_gone("hooks").await;
    let log = std::fs::read_to_string(host.path().join("log")).expect("a log");
    assert_eq!(log, "started\nstopping\ntold\n");
}

/// Those that stop before it may leave it no time.
#[tokio::test]
async fn a_sidecar_is_told_to_stop_although_others_took_all_the_time() {
    let Some(bed) = Bed::new("sidecar").await else { return };
    let _local = bed.local(|_| {}).await;
    let host = tempfile::tempdir().expect("a directory");
    let hook = json!({ "exec": { "command": ["sh", "-c", "echo stopping >> /shared/log"] } });
    let mounts = json!([{ "name": "shared", "mountPath": "/shared" }]);
    let script = "trap 'echo told >> /shared/log; exit 0' TERM; while :; do sleep 0.05; done";
    let side = json!({
        "name": "side", "image": "any", "restartPolicy": "Always", "command": ["sh", "-c", script],
        "lifecycle": { "preStop": hook }, "volumeMounts": mounts,
    });
    let own = json!({ "volumeMounts": mounts });
    let more = json!({
        "initContainers": [side], "terminationGracePeriodSeconds": 1,
        "volumes": [{ "name": "shared", "hostPath": { "path": host.path() } }],
    });
    let script = "trap 'sleep 0.5; echo first >> /shared/log' TERM; while :; do sleep 0.05; done";
    let mut pod = bed.script("sidecar", script, own, more);
    pod["metadata"]["finalizers"] = json!(["example.com/held"]);
    bed.create(pod).await;
    let ready = |pod: Option<&Pod>| pod.is_some_and(|pod| container(pod, "main")["ready"] == true);
    bed.until("sidecar", ready).await;
    bed.delete("sidecar").await;
    let pod = bed.until_phase("sidecar", "Failed").await;
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 137);
    assert_eq!(container(&pod, "side")["state"]["terminated"]["exitCode"], 0);
    let log = std::fs::read_to_string(host.path().join("log")).expect("a log");
    assert_eq!(log, "stopping\nfirst\ntold\n");
    bed.release("sidecar").await;
}

#[tokio::test]
async fn a_hook_that_fails_after_the_start_ends_the_container() {
    let Some(bed) = Bed::new("badhook").await else { return };
    let _local = bed.local(|_| {}).await;
    let own = json!({ "lifecycle": { "postStart": { "exec": { "command": ["false"] } } } });
    let script = "trap 'exit 9' TERM; while :; do sleep 0.05; done";
    bed.create(bed.script("badhook", script, own, json!({}))).await;
    let pod = bed.until_phase("badhook", "Failed").await;
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 9);
}

#[tokio::test]
async fn the_deadline_of_a_pod_is_kept() {
    let Some(bed) = Bed::new("deadline").await else { return };
    let _local = bed.local(|_| {}).await;
    let script = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
    bed.create(bed.script("late", script, json!({}), json!({ "activeDeadlineSeconds": 1 }))).await;
    let ended =
        |pod: Option<&Pod>| pod.is_some_and(|pod| container(pod, "main")["state"]["terminated"].is_object());
    let pod = bed.until("late", ended).await.expect("the pod");
    let status = pod.status.as_ref().expect("a status");
    assert_eq!((phase(&pod), status.reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was active on the node longer than the specified deadline")
    );
}

/// Processes whose command line holds `mark`.
pub(crate) fn count_processes(mark: &str) -> usize {
    processes(mark).len()
}

/// The directories of processes whose command line has this in it.
fn processes(mark: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").expect("processes");
    let has = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline"));
        line.is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    };
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(has).collect()
}
