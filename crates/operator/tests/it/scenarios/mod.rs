//! Scenarios, each named by the rules that it is about. All of them run on an embedded cluster and on a real control
//! plane, with the same assertions, and cost no request that need not be.

mod around;
mod bad_input;
mod basic;
mod checks;
mod cohorts;
mod elastic;
mod fair;
mod flavors;
mod life;
mod managers;
mod nodes;
mod pods;
mod preemption;
mod restart;
mod sets;
mod settings;
mod starts;
mod stops;
mod told;
mod topology;
mod usage;

use std::{future::Future, pin::Pin};

use kube::Client;
use operator::Settings;

use crate::{steady, world::World};

type Scenario = for<'a> fn(&'a mut World) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// Every scenario by its name.
const ALL: &[(&str, Scenario)] = &[
    ("sm-t1-plain", |world| Box::pin(basic::sm_t1_plain(world))),
    ("sm-t3-no-room", |world| Box::pin(basic::sm_t3_no_room(world))),
    ("jf-31-changed-while-suspended", |world| Box::pin(basic::jf_31_changed_while_suspended(world))),
    ("jf-41-deleted", |world| Box::pin(basic::jf_41_deleted(world))),
    ("missing-queues", |world| Box::pin(basic::missing_queues(world))),
    ("jf-20-prebuilt", |world| Box::pin(basic::jf_20_prebuilt(world))),
    ("qu-10-more-quota", |world| Box::pin(basic::qu_10_more_quota(world))),
    ("cq-4-what-is-missing", |world| Box::pin(stops::cq_4_what_is_missing(world))),
    ("sm-t8-drain", |world| Box::pin(stops::sm_t8_drain(world))),
    ("sm-24-local-queue-hold", |world| Box::pin(stops::sm_24_local_queue_hold(world))),
    ("cq-7-deletion-waits", |world| Box::pin(stops::cq_7_deletion_waits(world))),
    ("sm-t4-preemption", |world| Box::pin(preemption::sm_t4_preemption(world))),
    ("pr-3-reclaim-in-cohort", |world| Box::pin(preemption::pr_3_reclaim_in_cohort(world))),
    ("wpc-2-class-changes", |world| Box::pin(preemption::wpc_2_class_changes(world))),
    ("sm-t2-checks", |world| Box::pin(checks::sm_t2_checks(world))),
    ("sm-t7-retry", |world| Box::pin(checks::sm_t7_retry(world))),
    ("sm-25-rejected", |world| Box::pin(checks::sm_25_rejected(world))),
    ("prc-2-nodes-first", |world| Box::pin(nodes::prc_2_nodes_first(world))),
    ("prc-4-no-nodes", |world| Box::pin(nodes::prc_4_no_nodes(world))),
    ("sm-t6-deactivated", |world| Box::pin(life::sm_t6_deactivated(world))),
    ("jf-66-runs-too-long", |world| Box::pin(life::jf_66_runs_too_long(world))),
    ("jf-60-reclaimable", |world| Box::pin(life::jf_60_reclaimable(world))),
    ("jf-83-elastic", |world| Box::pin(elastic::jf_83_elastic(world))),
    ("sm-27-gated", |world| Box::pin(life::sm_27_gated(world))),
    ("mk-3-copy-without-job", |world| Box::pin(life::mk_3_copy_without_job(world))),
    ("jf-63-pods-ready", |world| Box::pin(life::jf_63_pods_ready(world))),
    ("jf-70-a-pod", |world| Box::pin(pods::jf_70_a_pod(world))),
    ("jf-56-a-pod-has-to-go", |world| Box::pin(pods::jf_56_a_pod_has_to_go(world))),
    ("jf-70-a-group", |world| Box::pin(pods::jf_70_a_group(world))),
    ("jf-70-nobody-is-replaced", |world| Box::pin(pods::jf_70_nobody_is_replaced(world))),
    ("jf-70-a-group-goes", |world| Box::pin(pods::jf_70_a_group_goes_with_its_workload(world))),
    ("mk-sts-01-a-stateful-set", |world| Box::pin(pods::mk_sts_01_a_stateful_set(world))),
    ("mk-lws-01-a-leader-worker-set", |world| Box::pin(sets::mk_lws_01_a_leader_worker_set(world))),
    ("sm-14-names", |world| Box::pin(managers::sm_14_names_under_which_is_written(world))),
    ("rf-4-no-such-flavor", |world| Box::pin(bad_input::rf_4_no_such_flavor(world))),
    ("qm-8-quota-is-taken-away", |world| Box::pin(bad_input::qm_8_quota_is_taken_away(world))),
    ("co-4-cohorts-in-a-circle", |world| Box::pin(bad_input::co_4_cohorts_in_a_circle(world))),
    ("api-5-amounts-beyond-measure", |world| Box::pin(bad_input::api_5_amounts_beyond_measure(world))),
    ("rf-1-refused-when-written", |world| Box::pin(bad_input::rf_1_refused_when_written(world))),
    ("lq-5-a-deleted-local-queue", |world| Box::pin(bad_input::lq_5_a_deleted_local_queue(world))),
    ("sm-41-a-deleted-workload", |world| Box::pin(bad_input::sm_41_a_deleted_workload(world))),
    ("jf-3-jobs-without-queue", |world| Box::pin(bad_input::jf_3_jobs_without_queue(world))),
    ("ac-2-a-held-check", |world| Box::pin(around::ac_2_a_check_is_held_while_it_is_asked_for(world))),
    ("lq-3-what-is-used", |world| Box::pin(around::lq_3_a_local_queue_shows_what_is_used(world))),
    ("qu-5-every-queue", |world| Box::pin(around::qu_5_every_queue_has_its_turn(world))),
    ("qu-7-nobody-gets-past", |world| Box::pin(around::qu_7_nobody_gets_past_the_first(world))),
    ("qu-11-who-leaves", |world| Box::pin(around::qu_11_who_leaves_makes_room(world))),
    ("jf-5-a-part", |world| Box::pin(around::jf_5_a_part_runs_while_the_whole_may(world))),
    ("jf-1-left-alone", |world| Box::pin(around::jf_1_left_alone(world))),
    ("qm-26-limits-change", |world| Box::pin(around::qm_26_limits_change(world))),
    ("cq-10-written-together", |world| Box::pin(around::cq_10_statuses_are_written_together(world))),
    ("sc-11-several-go", |world| Box::pin(preemption::sc_11_several_go_for_one(world))),
    ("fa-3-taints", |world| Box::pin(flavors::fa_3_taints(world))),
    ("fa-4-affinity", |world| Box::pin(flavors::fa_4_affinity(world))),
    ("fa-7-first-that-will-do", |world| Box::pin(flavors::fa_7_the_first_that_will_do(world))),
    ("fa-9-where-it-stopped", |world| Box::pin(flavors::fa_9_where_the_search_stopped(world))),
    ("rf-3-a-flavor-goes", |world| Box::pin(flavors::rf_3_a_flavor_goes(world))),
    ("qm-25-a-resource-goes", |world| Box::pin(flavors::qm_25_a_resource_goes(world))),
    ("qm-v1-limits", |world| Box::pin(cohorts::qm_v1_limits(world))),
    ("qm-v2-parents", |world| Box::pin(cohorts::qm_v2_parents(world))),
    ("sc-9-what-is-left", |world| Box::pin(cohorts::sc_9_what_is_left_is_kept(world))),
    ("co-4-told-of-a-circle", |world| Box::pin(cohorts::co_4_told_of_a_circle(world))),
    ("ta-4-where-pods-go", |world| Box::pin(topology::ta_4_where_pods_go(world))),
    ("ta-6-pods-go-there", |world| Box::pin(topology::ta_6_pods_go_where_they_were_placed(world))),
    ("ta-3-what-others-take", |world| Box::pin(topology::ta_3_what_others_take(world))),
    ("ta-7-a-node-is-lost", |world| Box::pin(topology::ta_7_a_node_is_lost(world))),
    ("pr-6-a-place", |world| Box::pin(topology::pr_6_a_place_by_preemption(world))),
    ("sm-42-places-survive", |world| Box::pin(topology::sm_42_places_survive(world))),
    ("jf-50-started-and-stopped", |world| Box::pin(starts::jf_50_started_and_stopped(world))),
    ("jf-51-nowhere-to-start", |world| Box::pin(starts::jf_51_nowhere_to_start(world))),
    ("jf-52-fewer-pods", |world| Box::pin(starts::jf_52_fewer_pods(world))),
    ("ob-2-a-whole-life", |world| Box::pin(told::ob_2_a_whole_life(world))),
    ("sc-10-flavors-considered", |world| Box::pin(told::sc_10_which_flavors_were_considered(world))),
    ("ob-2-who-waits", |world| Box::pin(told::ob_2_who_waits(world))),
    ("ob-2-who-has-to-go", |world| Box::pin(told::ob_2_who_has_to_go(world))),
    ("jf-2-nested-too-deep", |world| Box::pin(told::jf_2_nested_too_deep(world))),
    ("sm-43-restart-tries-everyone", |world| Box::pin(restart::sm_43_restart_tries_everyone(world))),
    ("qu-6-nobody-is-held-up", |world| Box::pin(restart::qu_6_nobody_is_held_up(world))),
    ("sm-42-restart", |world| Box::pin(restart::sm_42_restart(world))),
    ("sm-42-restart-between-checks", |world| Box::pin(restart::sm_42_restart_between_checks(world))),
];

/// OB-1: how long pods that were admitted waited for a gate to be taken away is measured.
fn gate_is_measured(world: &World, gate: &str, queue: &str, is_group: bool) {
    let labels = format!(
        r#"name="kueue.x-k8s.io/{gate}",cluster_queue="{queue}",is_group="{is_group}",replica_role="#
    );
    let line = format!("kueue_pod_scheduling_gate_removal_seconds_count{{{labels}");
    assert!(world.counts(&line), "OB-1: {line}");
}

/// Runs the scenarios whose names contain `SCENARIO`, each in a namespace of its own, and reports all that fail.
/// Each has so many chances, in a new namespace every time.
async fn run_all(world: &mut World, chances: usize) -> anyhow::Result<()> {
    let wanted = std::env::var("SCENARIO").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, scenario) in ALL.iter().filter(|(name, _)| name.contains(&wanted)) {
        for chance in 1..=chances {
            let place = if chance == 1 { (*name).to_owned() } else { format!("{name}-{chance}") };
            world.begin(&place).await?;
            let started = std::time::Instant::now();
            let result = scenario(world).await;
            let outcome = if result.is_ok() { "passed" } else { "FAILED" };
            println!("{name}: {outcome} in {:?}", started.elapsed());
            world.end().await?;
            match result {
                Ok(()) => break,
                Err(error) if chance == chances => failed.push(format!("{name}: {error:?}")),
                Err(_) => {}
            }
        }
    }
    anyhow::ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

/// Runs the scenarios with us as those who act. Whatever happens there, we ask for nothing that a watch tells and write nothing
/// that is so already; and in the end there is rest.
async fn run_ours(client: Client) -> anyhow::Result<()> {
    let (way, steady) = steady::watched(client.clone());
    let mut world = World::by_way(client, way, Settings::default()).await?;
    run_all(&mut world, 1).await?;
    steady.settles().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_an_embedded_cluster() -> anyhow::Result<()> {
    run_ours(World::embedded_cluster().await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_real_control_plane() -> anyhow::Result<()> {
    let Some(control_plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    run_ours(control_plane.client()).await
}

/// The judge of all scenarios: real Kueue has to pass them, too. Only what it does by its webhooks, or what we do
/// differently on purpose, is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_real_kueue() -> anyhow::Result<()> {
    let Some(control_plane) = testkit::ControlPlane::builder().for_test().await else { return Ok(()) };
    // It looks for kinds that others define when it starts.
    let of_others = sets::define(&control_plane.client()).await?;
    let of_others = of_others.then_some("leaderworkerset.x-k8s.io/leaderworkerset");
    let frameworks: Vec<&str> =
        ["batch/job", "pod", "deployment", "statefulset"].into_iter().chain(of_others).collect();
    let settings = serde_json::json!({ "integrations": { "frameworks": frameworks } });
    let (mut world, _kueue) = World::of_kueue(&control_plane, &settings).await?;
    // It does not always see its own changes in the order in which they were made.
    run_all(&mut world, 3).await
}
