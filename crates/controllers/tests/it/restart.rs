//! Controllers that die between any two writes: whoever comes after them goes on where they stopped.
//!
//! Each story is told once to the end, to count its writes; then again and again, and each time the controllers die at
//! another write, which has or has not reached the API server. Others take over, and the end has to be the same.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use apiserver::Cluster;
use apiserver::answer::Answer;
use futures::future::BoxFuture;
use http::{Method, Request};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use reconcile::Tasks;
use serde_json::{Value, json};
use tower_service::Service;

use crate::cluster::{api, api_server, create, eventually, set_phase, start};
use crate::job::job;

/// A way to a cluster that breaks at some write.
#[derive(Clone)]
struct Mortal {
    cluster: Cluster,
    /// Writes that are still answered.
    left: Arc<AtomicI64>,
    /// Whether the write at which it breaks arrives.
    arrives: bool,
}

impl Service<Request<Body>> for Mortal {
    type Response = Answer;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Events are told on the side, in no order that matters.
        let write = request.method() != Method::GET && !request.uri().path().contains("/events");
        let left =
            if write { self.left.fetch_sub(1, Ordering::SeqCst) } else { self.left.load(Ordering::SeqCst) };
        let broken = || std::io::Error::other("the way is broken");
        let dead = left <= 0 && !(write && left == 0 && self.arrives);
        if dead {
            return Box::pin(async move { Err(broken()) });
        }
        let answer = self.cluster.call(request);
        Box::pin(async move {
            match answer.await {
                Ok(_) if write && left <= 0 => Err(broken()),
                Ok(answer) => Ok(answer),
                Err(never) => match never {},
            }
        })
    }
}

type Story = for<'a> fn(&'a Client) -> Pin<Box<dyn Future<Output = String> + Send + 'a>>;

/// Tells a story with controllers that die at a write. Returns its end, and how many writes were left.
async fn tell(names: &str, story: Story, writes: i64, arrives: bool) -> (String, i64) {
    let cluster = api_server().await;
    let client = Client::new(cluster.clone(), "default");
    let left = Arc::new(AtomicI64::new(writes));
    let mortal = Mortal { cluster, left: Arc::clone(&left), arrives };
    let mut first = Tasks::new();
    start(&Client::new(mortal, "default"), names, &mut first);
    let replacement = async {
        while left.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        first.stop().await;
        let mut second = Tasks::new();
        start(&client, names, &mut second);
        std::future::pending::<()>().await;
        drop(second);
    };
    let end = tokio::select! {
        end = story(&client) => end,
        () = replacement => unreachable!("it waits for ever"),
    };
    (end, left.load(Ordering::SeqCst))
}

async fn survives(names: &str, story: Story) {
    const MANY: i64 = 10_000;
    let (expected, left) = tell(names, story, MANY, true).await;
    let writes = MANY - left;
    assert!(writes > 3, "the controllers have something to do");
    for death in 0..writes {
        for arrives in [true, false] {
            let (end, _) = tell(names, story, death, arrives).await;
            assert_eq!(end, expected, "died at write {death} of {writes}, which arrived: {arrives}");
        }
    }
}

fn a_job(client: &Client) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
    Box::pin(async move {
        create::<Job>(client, job("a", json!({"completions": 3, "parallelism": 2, "backoffLimit": 5}))).await;
        let jobs: Api<Job> = api(client);
        let pods: Api<Pod> = api(client);
        // The second pod to be seen fails, long ago; all others succeed.
        let job = eventually("the Job finishes", || async {
            for (place, pod) in
                pods.list(&ListParams::default()).await.expect("a list").items.iter().enumerate()
            {
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if matches!(phase, None | Some("Pending")) && pod.metadata.deletion_timestamp.is_none() {
                    let failed = place == 1
                        && jobs.get("a").await.expect("a Job").status.unwrap_or_default().failed.is_none();
                    set_phase(client, pod, if failed { "Failed" } else { "Succeeded" }).await;
                }
            }
            let job = jobs.get("a").await.expect("a Job");
            rules::job::is_finished(&job).then_some(job)
        })
        .await;
        let status = job.status.expect("a status");
        let conditions: Vec<String> =
            status.conditions.unwrap_or_default().into_iter().map(|condition| condition.type_).collect();
        let held = eventually("no pod is held", || async {
            let pods = pods.list(&ListParams::default()).await.expect("a list").items;
            pods.iter().all(|pod| pod.metadata.finalizers.is_none()).then_some(pods.len())
        })
        .await;
        // Each pod was counted once, whatever died when.
        let counted = status.succeeded.unwrap_or(0) + status.failed.unwrap_or(0);
        assert_eq!(usize::try_from(counted).expect("a count"), held, "every pod is counted, and none twice");
        format!("{conditions:?} succeeded {:?} {:?}", status.succeeded, status.uncounted_terminated_pods)
    })
}

fn garbage(client: &Client) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
    Box::pin(async move {
        let maps: Api<ConfigMap> = api(client);
        let map = async |name: &str, owner: Option<&ConfigMap>| -> ConfigMap {
            let owners = owner.map(|owner| {
                let (name, uid) = (&owner.metadata.name, &owner.metadata.uid);
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true}])
            });
            create(client, json!({"metadata": {"name": name, "ownerReferences": owners}})).await
        };
        let (fore, back, keep) = (map("fore", None).await, map("back", None).await, map("keep", None).await);
        let child = map("fore-child", Some(&fore)).await;
        map("fore-grandchild", Some(&child)).await;
        map("back-child", Some(&back)).await;
        map("kept", Some(&keep)).await;
        maps.delete("fore", &DeleteParams::foreground()).await.expect("deleted");
        maps.delete("back", &DeleteParams::background()).await.expect("deleted");
        let orphan = DeleteParams {
            propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        maps.delete("keep", &orphan).await.expect("deleted");
        eventually("only what is kept is left", || async {
            let maps = maps.list(&ListParams::default()).await.expect("a list").items;
            let left: Vec<String> = maps.iter().filter_map(|map| map.metadata.name.clone()).collect();
            let free = maps.iter().all(|map| map.metadata.owner_references.is_none());
            (left == ["kept"] && free).then_some(format!("{left:?}"))
        })
        .await
    })
}

fn a_namespace(client: &Client) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
    Box::pin(async move {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "going"}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "going");
        for name in ["a", "b"] {
            let map = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a map");
            maps.create(&PostParams::default(), &map).await.expect("created");
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), "going");
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}});
        let pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&PostParams::default(), &pod).await.expect("created");
        namespaces.delete("going", &DeleteParams::default()).await.expect("deleted");
        eventually("it is gone", || async {
            let gone = namespaces.get_opt("going").await.expect("an answer").is_none();
            gone.then_some("gone".to_owned())
        })
        .await
    })
}

/// A node with room for everything.
async fn a_node(client: &Client, spec: Value) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "n"}, "spec": spec});
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node).expect("a node"))
        .await
        .expect("created");
    let allocatable = json!({"cpu": "8", "memory": "8Gi", "pods": "100"});
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let patch = json!({"spec": spec, "status": {"allocatable": allocatable, "conditions": conditions}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    nodes.patch("n", &params, &patch).await.expect("without taints");
    nodes.patch_status("n", &params, &patch).await.expect("with room");
}

/// Has all pods that have a node run and be ready, and those go that are deleted.
async fn run_all(client: &Client) {
    let pods: Api<Pod> = api(client);
    let all = pods.list(&ListParams::default()).await.expect("a list").items;
    for pod in &all {
        if pod.metadata.deletion_timestamp.is_some() {
            let name = pod.metadata.name.as_deref().expect("a name");
            // It may be gone by now.
            pods.delete(name, &DeleteParams::default().grace_period(0)).await.ok();
            continue;
        }
        let has_node = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if has_node && phase != Some("Running") {
            let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            let patch = Patch::Strategic(json!({"status": ready}));
            let name = pod.metadata.name.as_deref().expect("a name");
            // It may have been deleted meanwhile.
            pods.patch_status(name, &PatchParams::default(), &patch).await.ok();
        }
    }
}

fn a_schedule(client: &Client) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
    Box::pin(async move {
        let template = job("template", json!({"ttlSecondsAfterFinished": 0}))["spec"].clone();
        // Once a year, and it was missed: so exactly one Job is due, whatever the time is.
        let spec = json!({"schedule": "0 0 1 1 *", "timeZone": "Etc/UTC", "suspend": true, "jobTemplate": {"spec": template}});
        create::<CronJob>(client, json!({"metadata": {"name": "cron"}, "spec": spec})).await;
        let crons: Api<CronJob> = api(client);
        let params = PatchParams::default();
        let missed = Patch::Merge(json!({"status": {"lastScheduleTime": "2024-06-01T00:00:00Z"}}));
        crons.patch_status("cron", &params, &missed).await.expect("a status");
        crons
            .patch("cron", &params, &Patch::Merge(json!({"spec": {"suspend": false}})))
            .await
            .expect("resumed");
        let pods: Api<Pod> = api(client);
        eventually("its Job has come and gone", || async {
            for pod in pods.list(&ListParams::default()).await.expect("a list").items {
                if pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending")) {
                    set_phase(client, &pod, "Succeeded").await;
                }
            }
            let status = crons.get("cron").await.expect("it is there").status?;
            let last = status.last_schedule_time?.0.to_string();
            let jobs = api::<Job>(client).list(&ListParams::default()).await.expect("a list").items.len();
            let idle = status.active.is_none_or(|active| active.is_empty());
            (last != "2024-06-01T00:00:00Z" && jobs == 0 && idle).then_some(last)
        })
        .await
    })
}

fn guards(client: &Client) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
    Box::pin(async move {
        a_node(client, json!({"taints": null})).await;
        create::<ResourceQuota>(
            client,
            json!({"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "5"}}}),
        )
        .await;
        let selector = json!({"matchLabels": {"app": "x"}});
        let budget =
            json!({"metadata": {"name": "budget"}, "spec": {"minAvailable": 1, "selector": selector}});
        create::<PodDisruptionBudget>(client, budget).await;
        let quotas: Api<ResourceQuota> = api(client);
        eventually("the quota is counted", || async {
            let status = quotas.get("quota").await.expect("it is there").status?;
            status.used.is_some_and(|used| used.contains_key("pods")).then_some(())
        })
        .await;
        for name in ["a", "b"] {
            let spec = json!({
                "nodeName": "n", "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "x"}],
            });
            create::<Pod>(client, json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}))
                .await;
        }
        let budgets: Api<PodDisruptionBudget> = api(client);
        let allowed = async |wanted: i32| {
            eventually("so many may go", || async {
                run_all(client).await;
                let status = budgets.get("budget").await.expect("it is there").status?;
                (status.disruptions_allowed == wanted).then_some(())
            })
            .await;
        };
        allowed(1).await;
        let taint = Patch::Merge(json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}));
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.patch("n", &PatchParams::default(), &taint).await.expect("tainted");
        allowed(0).await;
        eventually("all are gone, and not counted", || async {
            // One whose deletion was broken off is for its node to remove, and there is none here.
            let mut pods = api::<Pod>(client).list(&ListParams::default()).await.expect("a list").items;
            pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
            let used = quotas.get("quota").await.expect("it is there").status?.used?;
            (pods.is_empty() && used["pods"].0 == "0").then(|| "none".to_owned())
        })
        .await
    })
}

fn sets(client: &Client) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
    Box::pin(async move {
        a_node(client, json!({"taints": null})).await;
        let template = |image: &str| {
            json!({
                "metadata": {"labels": {"app": "x"}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": image}]},
            })
        };
        let spec = |name: &str| {
            let selector = json!({"matchLabels": {"app": name}});
            let mut template = template("one");
            template["metadata"]["labels"]["app"] = json!(name);
            json!({"metadata": {"name": name}, "spec": {
                "replicas": 1, "serviceName": name, "selector": selector, "template": template,
            }})
        };
        let mut deployment = spec("d");
        deployment["spec"].as_object_mut().expect("a spec").remove("serviceName");
        create::<Deployment>(client, deployment).await;
        create::<StatefulSet>(client, spec("s")).await;
        let (deployments, stateful_sets): (Api<Deployment>, Api<StatefulSet>) = (api(client), api(client));
        let ready = async |image: &str| {
            eventually("all are ready", || async {
                run_all(client).await;
                let deployment = deployments.get("d").await.expect("it is there");
                let set = stateful_sets.get("s").await.expect("it is there");
                let (of, status) = (deployment.metadata.generation, deployment.status?);
                let deployed = status.observed_generation == of
                    && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(1); 3];
                let (of, status) = (set.metadata.generation, set.status?);
                let set_up = status.observed_generation == of
                    && [status.ready_replicas, status.updated_replicas] == [Some(1); 2];
                let pods = api::<Pod>(client).list(&ListParams::default()).await.expect("a list").items;
                let images =
                    pods.iter().filter_map(|pod| pod.spec.as_ref()?.containers.first()?.image.clone());
                let is_new = images.collect::<Vec<_>>() == [image; 2];
                (deployed && set_up && is_new).then_some(())
            })
            .await;
        };
        ready("one").await;
        let edit = Patch::Strategic(json!({"spec": {"template": {"spec": template("two")["spec"]}}}));
        deployments.patch("d", &PatchParams::default(), &edit).await.expect("an edit");
        stateful_sets.patch("s", &PatchParams::default(), &edit).await.expect("an edit");
        ready("two").await;
        let sets = api::<ReplicaSet>(client).list(&ListParams::default()).await.expect("a list").items;
        format!("{} replica sets", sets.len())
    })
}

#[tokio::test]
async fn sets_of_pods_are_made_and_rolled_whoever_does_it() {
    survives("deployment-controller,replicaset-controller,statefulset-controller,scheduler", sets).await;
}

#[tokio::test]
async fn what_is_due_is_started_and_removed_once_whoever_does_it() {
    // What a Job leaves goes before it.
    let names =
        "cronjob-controller,job-controller,ttl-after-finished-controller,garbage-collector-controller";
    survives(names, a_schedule).await;
}

#[tokio::test]
async fn quotas_budgets_and_evictions_survive_their_controllers() {
    survives("resourcequota-controller,disruption-controller,taint-eviction-controller", guards).await;
}

#[tokio::test]
async fn a_job_survives_its_controller() {
    survives("job-controller", a_job).await;
}

#[tokio::test]
async fn garbage_is_collected_by_whoever_comes_next() {
    survives("garbage-collector-controller", garbage).await;
}

#[tokio::test]
async fn a_namespace_goes_whoever_takes_it_down() {
    survives("namespace-controller", a_namespace).await;
}
