//! What a user sees of a Job that runs elsewhere, whatever fails. The same on embedded clusters and on real ones.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    connections::{
        a_cluster_has_two_names, a_cluster_is_forgotten_and_known_again, a_kubeconfig_is_in_a_file,
        a_name_is_given_to_another_cluster, a_secret_goes_and_comes_back, nobody_gets_quota_without_a_worker,
    },
    elastic::{elastic_jobs_grow_and_shrink_where_they_run, other_jobs_are_started_anew},
    evictions::{another_check_has_a_say, drained_on_the_manager, drained_on_the_worker},
    faults::Fault,
    fleet::{Fleet, NAMESPACE, WORKERS, delete_job, eventually, job},
    refusals::a_namespace_is_missing,
    sharing::{jobs_that_stay_where_they_are, somebody_elses_workload_is_in_the_way},
    wire::what_workers_hold,
    written::{Moment, Of},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded() -> anyhow::Result<()> {
    Box::pin(all(Box::pin(Fleet::embedded()).await?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real() -> anyhow::Result<()> {
    match Box::pin(Fleet::real()).await? {
        Some(fleet) => Box::pin(all(fleet)).await,
        None => Ok(()),
    }
}

/// One after the other on the same clusters; each leaves them as it found them.
async fn all(mut fleet: Fleet) -> anyhow::Result<()> {
    macro_rules! play {
        ($($scenario:ident),* $(,)?) => {$(
            let began = std::time::Instant::now();
            $scenario(&mut fleet).await.map_err(|error| error.context(stringify!($scenario)))?;
            println!("{} ok in {:?}", stringify!($scenario), began.elapsed());
        )*};
    }
    play!(
        clusters_and_checks_say_how_they_are,
        a_secret_goes_and_comes_back,
        a_kubeconfig_is_in_a_file,
        a_cluster_is_forgotten_and_known_again,
        a_name_is_given_to_another_cluster,
        a_cluster_has_two_names,
        nobody_gets_quota_without_a_worker,
        what_workers_hold,
        completes,
        fails,
        deleted,
        deactivated,
        evicted_on_the_worker,
        drained_on_the_manager,
        drained_on_the_worker,
        another_check_has_a_say,
        elastic_jobs_grow_and_shrink_where_they_run,
        other_jobs_are_started_anew,
        out_of_sync,
        somebody_elses_job_is_in_the_way,
        somebody_elses_workload_is_in_the_way,
        a_namespace_is_missing,
        jobs_that_stay_where_they_are,
        answers_are_lost,
        away_for_a_moment,
        deleted_while_its_worker_was_away,
        the_operator_dies_at_every_step,
        one_worker_hangs,
        lost_for_good,
    );
    fleet.check();
    Ok(())
}

/// "Should properly manage the active condition of AdmissionChecks and MultiKueueClusters" and
/// "Should properly detect insecure kubeconfig of MultiKueueClusters".
async fn clusters_and_checks_say_how_they_are(fleet: &mut Fleet) -> anyhow::Result<()> {
    let says = async |kind: &str, name: &str, expected: &str| {
        eventually(&format!("{kind} {name} says {expected}"), async || {
            let condition = fleet.active(kind, name).await?;
            Ok((condition == expected).then_some(()))
        })
        .await
    };
    for worker in WORKERS {
        says("MultiKueueCluster", worker, "True Active: Connected").await?;
    }
    says("AdmissionCheck", "mk", "True Active: The admission check is active").await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east", "namespace": "kueue-system"}});
    let good = fleet.kubeconfig("east");
    let mut insecure: Value = serde_json::from_str(&good).or_else(|_| serde_saphyr::from_str(&good))?;
    insecure["users"][0]["user"]["tokenFile"] = json!("/var/run/token");
    fleet.manager.patch(secret.clone(), json!({"stringData": {"kubeconfig": insecure.to_string()}})).await?;
    let refused = "False InsecureKubeConfig: load client config failed: tokenFile is not allowed";
    says("MultiKueueCluster", "east", refused).await?;
    says("AdmissionCheck", "mk", "True SomeActiveClusters: Inactive clusters: [east]").await?;
    fleet.manager.patch(secret.clone(), json!({"data": {"kubeconfig": null}})).await?;
    let missing =
        "False BadKubeConfig: load client config failed: key \"kubeconfig\" not found in secret \"east\"";
    says("MultiKueueCluster", "east", missing).await?;
    fleet.manager.patch(secret, json!({"stringData": {"kubeconfig": good}})).await?;
    says("MultiKueueCluster", "east", "True Active: Connected").await?;
    says("AdmissionCheck", "mk", "True Active: The admission check is active").await
}

/// "Should run a job on worker if admitted (ManagedBy)".
pub(super) async fn completes(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("completes", json!({})).await?;
    let job = fleet.condition("completes", "Complete").await?;
    let status = job.status.expect("a status");
    assert_eq!((status.succeeded, status.active.unwrap_or(0)), (Some(1), 0));
    assert!(status.completion_time.is_some());
    assert_eq!(
        job.spec.and_then(|spec| spec.ttl_seconds_after_finished),
        Some(3600),
        "it is the manager's to keep"
    );
    fleet.workload_condition("completes", "Finished", "Succeeded").await?;
    fleet.clean().await
}

pub(super) async fn fails(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("fails", json!({"fails": "yes"})).await?;
    let job = fleet.condition("fails", "Failed").await?;
    assert_eq!(job.status.and_then(|status| status.failed), Some(1));
    fleet.workload_condition("fails", "Finished", "Failed").await?;
    fleet.clean().await
}

/// "Should remove the worker's workload and job when managers job is deleted".
pub(super) async fn deleted(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("deleted", json!({"seconds": "forever"})).await?;
    fleet.running("deleted").await?;
    delete_job(&fleet.manager.client, "deleted").await?;
    fleet.clean().await
}

/// MK-EVI-03: taken back by its user, and started again.
pub(super) async fn deactivated(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("deactivated", json!({"seconds": "forever"})).await?;
    fleet.running("deactivated").await?;
    fleet.set_active("deactivated", false).await?;
    fleet.clean().await?;
    eventually("no pods are shown", async || {
        let job = fleet.manager.job("deactivated").await?.expect("a Job");
        let suspended = job.spec.is_some_and(|spec| spec.suspend == Some(true));
        Ok((suspended && job.status.is_some_and(|status| status.active.unwrap_or(0) == 0)).then_some(()))
    })
    .await?;
    fleet.set_active("deactivated", true).await?;
    fleet.running("deactivated").await?;
    delete_job(&fleet.manager.client, "deactivated").await?;
    fleet.clean().await
}

/// "Should redo the admission process once the workload loses Admission in the worker cluster".
pub(super) async fn evicted_on_the_worker(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("evicted", json!({"seconds": "forever"})).await?;
    let first = fleet.running("evicted").await?;
    let mirror = fleet.workers[first.as_str()].job("evicted").await?.expect("a mirror");
    let object = fleet.workload_object("evicted").await?;
    fleet.workers[first.as_str()].patch(object, json!({"spec": {"active": false}})).await?;
    eventually("it runs again", async || {
        for worker in fleet.workers.values() {
            let again = worker.job("evicted").await?.filter(|job| job.metadata.uid != mirror.metadata.uid);
            if again.and_then(|job| job.status?.active) > Some(0) {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })
    .await?;
    fleet.running("evicted").await?;
    delete_job(&fleet.manager.client, "evicted").await?;
    fleet.clean().await
}

/// "Should retry a Job whose remote workload finishes OutOfSync instead of finishing the manager workload".
async fn out_of_sync(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("sync", json!({"seconds": "forever"})).await?;
    let first = fleet.running("sync").await?;
    let mirror = async |fleet: &Fleet, cluster: &str| -> anyhow::Result<Option<String>> {
        Ok(fleet.workers[cluster].job("sync").await?.and_then(|job| job.metadata.uid))
    };
    let old = mirror(fleet, &first).await?;
    let object = fleet.workload_object("sync").await?;
    let condition = json!({
        "type": "Finished", "status": "True", "reason": "OutOfSync", "lastTransitionTime": "2026-01-02T03:04:05Z",
        "message": "The prebuilt workload is out of sync with its user job",
    });
    fleet.workers[first.as_str()]
        .patch_status(object, json!({"status": {"conditions": [condition]}}))
        .await?;
    // Which worker is the first to admit it this time is chance; that it is another mirror is not.
    eventually("it runs again", async || {
        let Some(now) = fleet.cluster_of("sync").await? else { return Ok(None) };
        let uid = mirror(fleet, &now).await?;
        Ok(uid.filter(|uid| Some(uid) != old.as_ref()))
    })
    .await?;
    fleet.running("sync").await?;
    delete_job(&fleet.manager.client, "sync").await?;
    fleet.clean().await
}

/// "Should not delete a pre-existing worker-local Job with the same NamespacedName", and it is no reason to wait.
async fn somebody_elses_job_is_in_the_way(fleet: &mut Fleet) -> anyhow::Result<()> {
    let mut theirs = job("clash", json!({}));
    theirs["metadata"].as_object_mut().expect("metadata").remove("labels");
    theirs["spec"]["managedBy"] = json!(null);
    for worker in ["east"] {
        fleet.workers[worker].create(theirs.clone()).await?;
    }
    fleet.submit("clash", json!({})).await?;
    fleet.condition("clash", "Complete").await?;
    let there = fleet.workers["east"].job("clash").await?.expect("it is still there");
    assert_eq!(there.metadata.labels.unwrap_or_default().get("kueue.x-k8s.io/multikueue-origin"), None);
    delete_job(&fleet.workers["east"].client, "clash").await?;
    fleet.clean().await
}

/// Requests are carried out and nobody hears of it.
async fn answers_are_lost(fleet: &mut Fleet) -> anyhow::Result<()> {
    for worker in WORKERS {
        fleet.fault(worker, Fault::LosesAnswers);
    }
    fleet.submit("unheard", json!({})).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    for worker in WORKERS {
        fleet.fault(worker, Fault::None);
    }
    fleet.condition("unheard", "Complete").await?;
    fleet.clean().await
}

/// "Should not evict admitted workloads when the connection to the admitting worker is briefly lost".
async fn away_for_a_moment(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("away", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("away").await?;
    let mirror = fleet.workers[cluster.as_str()].job("away").await?.expect("a mirror");
    fleet.fault(&cluster, Fault::Hangs);
    fleet.until_active(&cluster, false).await?;
    assert_eq!(fleet.cluster_of("away").await?.as_deref(), Some(cluster.as_str()));
    fleet.fault(&cluster, Fault::None);
    fleet.until_active(&cluster, true).await?;
    let after = fleet.workers[cluster.as_str()].job("away").await?.expect("a mirror");
    assert_eq!(mirror.metadata.uid, after.metadata.uid, "it was left alone");
    delete_job(&fleet.manager.client, "away").await?;
    fleet.clean().await
}

/// "Should remove the worker's workload and job after reconnect when the managers job and workload are deleted".
async fn deleted_while_its_worker_was_away(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("orphan", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("orphan").await?;
    fleet.fault(&cluster, Fault::Refuses);
    fleet.until_active(&cluster, false).await?;
    delete_job(&fleet.manager.client, "orphan").await?;
    eventually("it is gone", async || Ok(fleet.manager.workload("orphan").await?.is_none().then_some(())))
        .await?;
    assert!(fleet.workers[cluster.as_str()].job("orphan").await?.is_some());
    fleet.fault(&cluster, Fault::None);
    fleet.until_active(&cluster, true).await?;
    fleet.clean().await
}

/// MK-LOST-08, MK-HA-01: at whichever write for a Job it is killed, the next one carries on.
async fn the_operator_dies_at_every_step(fleet: &mut Fleet) -> anyhow::Result<()> {
    // What an operator that died did not send does not arrive later.
    let usual = std::mem::replace(&mut fleet.settings.dispatch.doubt, Duration::from_millis(100));
    for (moment, name) in [(Moment::Before, "before"), (Moment::After, "after")] {
        let mut steps = 0;
        loop {
            let job = format!("dies-{name}-{steps}");
            let death = fleet.written.death(Of::Job(job.clone()), steps, moment);
            fleet.submit(&job, json!({})).await?;
            let died = tokio::select! {
                () = death => true,
                done = fleet.done(&job) => done.map(|()| false)?,
            };
            fleet.kill().await;
            fleet.written.life();
            fleet.start().await;
            fleet.condition(&job, "Complete").await?;
            if !died {
                break;
            }
            steps += 1;
        }
        println!("died at {steps} writes, {name} each");
        assert!(steps > 8, "a Job that runs elsewhere takes more than {steps} writes");
    }
    fleet.settings.dispatch.doubt = usual;
    fleet.kill().await;
    fleet.start().await;
    fleet.clean().await
}

/// MK-CONN-16, MK-CONN-17, MK-CFG-02: one silent worker delays nobody who is not on it, as every call has its deadline.
async fn one_worker_hangs(fleet: &mut Fleet) -> anyhow::Result<()> {
    // Whoever waits for a call to that worker waits for longer than any Job takes, on however busy a machine.
    const DEADLINE: Duration = Duration::from_secs(90);
    let usual = std::mem::replace(&mut fleet.settings.dispatch.deadline, DEADLINE);
    fleet.kill().await;
    fleet.start().await;
    fleet.until_active("east", true).await?;
    fleet.fault("east", Fault::Hangs);
    let mut slowest = Duration::ZERO;
    for i in 0..5 {
        let (name, began) = (format!("hangs-{i}"), std::time::Instant::now());
        fleet.submit(&name, json!({})).await?;
        fleet.condition(&name, "Complete").await?;
        slowest = slowest.max(began.elapsed());
    }
    fleet.fault("east", Fault::None);
    assert!(slowest < DEADLINE, "a Job took {slowest:?}");
    fleet.settings.dispatch.deadline = usual;
    fleet.kill().await;
    fleet.start().await;
    fleet.until_active("east", true).await?;
    fleet.clean().await
}

/// "Should requeue the workload with a delay when the connection to the admitting worker is lost", where that is asked
/// for: pods may run twice then, so this is the last scenario that the witness is not asked about.
async fn lost_for_good(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.check();
    fleet.submit("lost", json!({"seconds": "forever"})).await?;
    let first = fleet.running("lost").await?;
    fleet.fault(&first, Fault::Hangs);
    fleet.until_active(&first, false).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        fleet.cluster_of("lost").await?.as_deref(),
        Some(first.as_str()),
        "without a timeout it waits"
    );
    // The time goes on across a restart, and with a timeout it is over.
    fleet.kill().await;
    fleet.settings.dispatch.policy.worker_lost_timeout = Some(SignedDuration::from_secs(4));
    fleet.start().await;
    eventually("it runs elsewhere", async || {
        let active = fleet.manager.job("lost").await?.and_then(|job| job.status?.active);
        Ok(fleet.cluster_of("lost").await?.filter(|now| *now != first && active > Some(0)))
    })
    .await?;
    fleet.fault(&first, Fault::None);
    eventually("what was left there is gone", async || {
        Ok(fleet.workers[first.as_str()].job("lost").await?.is_none().then_some(()))
    })
    .await?;
    delete_job(&fleet.manager.client, "lost").await?;
    fleet.clean().await?;
    fleet.witness.forgive(&format!("{NAMESPACE}/lost"));
    Ok(())
}
