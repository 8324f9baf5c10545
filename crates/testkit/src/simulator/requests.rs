//! What the simulator asks of an API server, until it gets an answer.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::Value;
use tokio::{sync::Semaphore, time::sleep};

use super::node::NODE;
use crate::say;

/// Requests in flight: enough to keep an API server busy, few enough for it to stay fair to the test.
const IN_FLIGHT: usize = 16;

/// Before a request that failed is made again.
const RETRY: Duration = Duration::from_millis(100);

/// A client for all pods of a simulator.
pub(super) struct Requests {
    client: Client,
    permits: Semaphore,
    addresses: AtomicU32,
}

/// Why a request is not made again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Refused {
    /// The pod has changed in a way that we have not seen yet.
    Conflict,
    /// The pod is no more, or the API server will not have it so, which was said aloud.
    Final,
}

impl Requests {
    pub(super) fn new(client: Client) -> Requests {
        Requests { client, permits: Semaphore::new(IN_FLIGHT), addresses: AtomicU32::new(0) }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// An address that no other pod has, in the range that many networks use for pods.
    pub(super) fn new_address(&self) -> String {
        let [_, high, middle, low] = (self.addresses.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
        format!("10.{}.{middle}.{low}", 244_u8.wrapping_sub(high))
    }

    pub(super) async fn bind(&self, pod: &Pod) -> Result<(), Refused> {
        let binding = Binding {
            metadata: ObjectMeta { uid: pod.metadata.uid.clone(), ..named(pod) },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(NODE.to_owned()),
                ..ObjectReference::default()
            },
        };
        let (pods, params) = (self.pods(pod), PostParams::default());
        self.insist(pod, || pods.create_subresource("binding", name(pod), &params, &binding))
            .await
            .map(|_: Value| ())
    }

    /// Patches the status, and returns the pod as it is then.
    pub(super) async fn patch_status(&self, pod: &Pod, patch: Value) -> Result<Pod, Refused> {
        let (pods, params, patch) = (self.pods(pod), PatchParams::default(), Patch::Strategic(patch));
        self.insist(pod, || pods.patch_status(name(pod), &params, &patch)).await
    }

    /// Deletes the pod without grace, as a kubelet does when everything of it has ended.
    pub(super) async fn delete(&self, pod: &Pod) -> Result<(), Refused> {
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        let pods = self.pods(pod);
        self.insist(pod, || pods.delete(name(pod), &params)).await.map(drop)
    }

    /// Makes a request until the API server has decided about it.
    async fn insist<T, F>(&self, pod: &Pod, request: impl Fn() -> F) -> Result<T, Refused>
    where
        F: Future<Output = kube::Result<T>>,
    {
        loop {
            let permit = self.permits.acquire().await.expect("the semaphore is never closed");
            let answer = request().await;
            drop(permit);
            match answer {
                Ok(answer) => return Ok(answer),
                Err(kube::Error::Api(status)) if status.is_not_found() => return Err(Refused::Final),
                Err(kube::Error::Api(status)) if status.is_conflict() => return Err(Refused::Conflict),
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                    say(&format!("simulated pod {namespace}/{}: {}", name(pod), status.message));
                    return Err(Refused::Final);
                }
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn named(pod: &Pod) -> ObjectMeta {
    ObjectMeta {
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        ..ObjectMeta::default()
    }
}
