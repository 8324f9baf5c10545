//! Jobs that start at their time, on a real API server.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use reconcile::Tasks;
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::cluster::{api, create, eventually, start};

fn cron_job(name: &str, policy: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]});
    json!({"metadata": {"name": name}, "spec": {
        "schedule": "@every 1s",
        "timeZone": "Asia/Tokyo",
        "concurrencyPolicy": policy,
        "successfulJobsHistoryLimit": 1,
        "jobTemplate": {"spec": {"suspend": true, "template": {"spec": pod}}},
    }})
}

async fn jobs_of(client: &Client, name: &str) -> Vec<Job> {
    let jobs: Api<Job> = api(client);
    let mut jobs = jobs.list(&ListParams::default()).await.expect("a list").items;
    jobs.retain(|job| job.metadata.name.as_deref().is_some_and(|job| job.starts_with(name)));
    jobs
}

async fn complete(client: &Client, job: &Job) {
    let now = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).expect("a time");
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "reason": "x"});
    let status = json!({
        "startTime": now,
        "completionTime": now,
        "succeeded": 1,
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    });
    let name = job.metadata.name.as_deref().expect("a name");
    let patch = Patch::Merge(json!({"status": status}));
    api::<Job>(client).patch_status(name, &PatchParams::default(), &patch).await.expect("completed");
}

#[tokio::test]
async fn p_4_8_jobs_start_at_their_time() {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return };
    let client = &cluster.client();
    let mut tasks = Tasks::new();
    start(client, "cronjob-controller", &mut tasks);
    let cron_jobs: Api<CronJob> = api(client);

    // Names have minutes in them: two Jobs of one minute are one Job.
    create::<CronJob>(client, cron_job("forbid", "Forbid")).await;
    let first = eventually("a Job", || async { jobs_of(client, "forbid").await.into_iter().next() }).await;
    let annotations = first.metadata.annotations.clone().expect("annotations");
    assert!(annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"].ends_with("+09:00"));
    let status = eventually("an active Job", || async {
        cron_jobs.get("forbid").await.expect("a CronJob").status.filter(|status| status.active.is_some())
    })
    .await;
    assert_eq!(status.active.expect("one")[0].uid, first.metadata.uid);
    complete(client, &first).await;
    eventually("its end is seen", || async {
        let status = cron_jobs.get("forbid").await.expect("a CronJob").status?;
        (status.last_successful_time.is_some() && status.last_schedule_time.is_some()).then_some(())
    })
    .await;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    cron_jobs.patch("forbid", &PatchParams::default(), &suspend).await.expect("suspended");

    create::<CronJob>(client, cron_job("replace", "Replace")).await;
    let first = eventually("a Job", || async { jobs_of(client, "replace").await.into_iter().next() }).await;
    // Its replacement has to have another name: the Job is there as long as the minute is.
    let active = eventually("one active Job", || async {
        cron_jobs.get("replace").await.expect("a CronJob").status?.active
    })
    .await;
    assert_eq!(active.len(), 1);
    assert_eq!(active[0].name, first.metadata.name);

    // History: of two that are done, one is kept.
    let owner = json!([{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "forbid", "controller": true,
        "uid": cron_jobs.get("forbid").await.expect("a CronJob").metadata.uid,
    }]);
    let mut older = json!({"metadata": {"name": "forbid-older", "ownerReferences": owner}});
    older["spec"] = cron_job("x", "Allow")["spec"]["jobTemplate"]["spec"].clone();
    let older: Job = create(client, older).await;
    complete(client, &older).await;
    eventually("one Job is left", || async { (jobs_of(client, "forbid").await.len() == 1).then_some(()) })
        .await;
}
