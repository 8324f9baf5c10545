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
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::client::Body;
use reconcile::Tasks;
use serde_json::json;
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
