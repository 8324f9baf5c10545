//! What is decided counts at once, and no longer when it cannot be written (SC-10).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use http::{Request, Response, StatusCode};
use kube::{Client, client::Body};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    way::{Passed, through},
    world::{World, message},
};

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];
const WAITS: [&str; 1] = ["QuotaReserved=False/Pending"];

/// A way to a cluster on which the next write to the status of some Workloads waits for word.
#[derive(Clone, Default)]
struct Gate {
    held: Arc<Mutex<BTreeMap<String, Held>>>,
}

/// A write that waits: whom to tell that it is there, and who says what becomes of it.
struct Held {
    arrived: oneshot::Sender<()>,
    word: oneshot::Receiver<Word>,
}

/// What becomes of a write.
enum Word {
    Goes,
    Fails,
}

impl Gate {
    /// Holds the next write to the status of a Workload. Returns what says that it is there, and what lets it go on.
    fn hold(&self, workload: &str) -> (oneshot::Receiver<()>, oneshot::Sender<Word>) {
        let ((arrived, is_there), (say, word)) = (oneshot::channel(), oneshot::channel());
        let end = format!("/workloads/{workload}/status");
        self.held.lock().expect("nobody panics here").insert(end, Held { arrived, word });
        (is_there, say)
    }
}

/// Passes a request on, when the gate lets it.
fn pass(gate: &Gate, client: &Client, request: Request<Body>) -> Passed {
    let client = client.clone();
    let mut all = gate.held.lock().expect("nobody panics here");
    let end = all.keys().find(|end| request.uri().path().ends_with(end.as_str())).cloned();
    let held = end.filter(|_| request.method() == http::Method::PATCH).and_then(|end| all.remove(&end));
    drop(all);
    Box::pin(async move {
        if let Some(Held { arrived, word }) = held {
            arrived.send(()).expect("the test waits for it");
            if let Ok(Word::Fails) = word.await {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                    "reason": "InternalError", "message": "refused by the test",
                });
                let answer = Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR);
                let answer = answer.header("content-type", "application/json");
                return answer
                    .body(Body::from(status.to_string().into_bytes()))
                    .map_err(std::io::Error::other);
            }
        }
        client.send(request).await.map_err(std::io::Error::other)
    })
}

/// A queue for one, and a gate before it.
async fn gated(namespace: &str) -> anyhow::Result<(World, Gate)> {
    let gate = Gate::default();
    let (held, client) = (gate.clone(), World::embedded_cluster().await?);
    let mut world = World::on(through(move |request| pass(&held, &client, request))).await?;
    world.begin(namespace).await?;
    world.queue("a", "1", json!({})).await?;
    // Else the first write about a Workload may be that there is no such queue.
    world.is("LocalQueue", "a", "Active=True/Ready").await?;
    Ok((world, gate))
}

async fn submit(world: &World, name: &str) -> anyhow::Result<()> {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": name },
            "spec": { "queueName": "a", "podSets": [{ "name": "main", "count": 1, "template": template }] },
        }))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_10_quota_counts_before_it_is_written() -> anyhow::Result<()> {
    let (world, gate) = gated("before").await?;
    let (is_there, say) = gate.hold("first");
    submit(&world, "first").await?;
    is_there.await?;
    submit(&world, "second").await?;
    let waiting = world.shows("second", &WAITS).await?;
    let why = message(&waiting, "QuotaReserved");
    assert!(why.ends_with("insufficient unused quota for cpu in flavor default, 1 more needed"), "{why}");
    world.shows("first", &[]).await?;
    let _ = say.send(Word::Goes);
    world.shows("first", &ADMITTED).await?;
    world.shows("second", &WAITS).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_10_a_write_that_fails_is_tried_again() -> anyhow::Result<()> {
    let (world, gate) = gated("fails").await?;
    let (is_there, say) = gate.hold("first");
    submit(&world, "first").await?;
    is_there.await?;
    let _ = say.send(Word::Fails);
    world.shows("first", &ADMITTED).await?;
    submit(&world, "second").await?;
    world.shows("second", &WAITS).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sc_10_who_is_gone_when_it_is_written_leaves_its_place() -> anyhow::Result<()> {
    let (world, gate) = gated("gone").await?;
    let (is_there, say) = gate.hold("first");
    submit(&world, "first").await?;
    is_there.await?;
    submit(&world, "second").await?;
    world.shows("second", &WAITS).await?;
    world.delete("Workload", "first").await?;
    let _ = say.send(Word::Goes);
    world.shows("second", &ADMITTED).await?;
    assert!(world.no_workload("first").await?);
    Ok(())
}
