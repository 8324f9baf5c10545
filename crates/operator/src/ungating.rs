//! Lets pods be scheduled that wait for their place: each gets the labels of its domain as a node selector, and loses its
//! gate in the same write (TA-6).

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use reconcile::{Key, Next, Tasks};
use rules::framework::{
    TOPOLOGY_GATE,
    ungate::{Ungated, is_placed, known_as, ungated},
};
use rules::workload::hosts;
use serde_json::json;
use tracing::info;
use types::kueue::Workload;

use crate::{Context, Error, caches::SLICES, error::is_outdated, places::OF_WORKLOAD};

/// How many Workloads are looked at at once.
const AT_ONCE: usize = 16;
/// How many pods of each are written at once.
const WRITES: usize = 8;

/// Starts the controller.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let context = Arc::clone(context);
    tasks.spawn("ungating", async move {
        context.caches.ready().await;
        let queue = context.work.placed.clone();
        queue.run(AT_ONCE, |key| Arc::clone(&context).ungate(key)).await;
    });
}

impl Context {
    /// Nodes that the pods of a Workload were placed on and cannot run on any more.
    pub(crate) fn lost_hosts(&self, workload: &Workload) -> Vec<String> {
        let placed = is_placed(workload).then(|| self.caches.places.seen()).flatten();
        let Some(seen) = placed else { return Vec::new() };
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let pods = seen.pods.by(OF_WORKLOAD, &Key::new(namespace, known_as(workload)).to_string());
        hosts::lost(workload, |host| seen.is_ready(host), &pods)
    }

    /// Looks at the pods that know a Workload by `key`.
    async fn ungate(self: Arc<Self>, key: Key) -> Result<Next, Error> {
        // Once everything was seen, every Workload with pods is looked at again.
        let Some(seen) = self.caches.places.seen() else { return Ok(Next::Done) };
        let pods = seen.pods.by(OF_WORKLOAD, &key.to_string());
        if pods.is_empty() {
            return Ok(Next::Done);
        }
        let slices = self.caches.workloads.by(SLICES, &key.to_string());
        let own = self.caches.workloads.get(&key).filter(|_| slices.is_empty());
        let Some(workload) = slices.into_iter().chain(own).find(|workload| is_placed(workload)) else {
            return Ok(Next::Done);
        };
        // What it was placed on is not there any more, so that it has to be placed anew.
        if !self.lost_hosts(&workload).is_empty() {
            self.work.workloads.add(Key::of(&*workload));
            return Ok(Next::Done);
        }
        let ungate = |ungated: Ungated| {
            info!(workload = %Key::of(&*workload), pod = ungated.name, place = ?ungated.node_selector, "may be scheduled");
            self.let_go(&key.namespace, ungated)
        };
        let all = futures::stream::iter(ungated(&workload, &pods).into_iter().map(ungate));
        let mut all = all.buffer_unordered(WRITES);
        while let Some(done) = all.next().await {
            match done {
                Ok(pod) => {
                    let now = self.clock.now();
                    self.metrics.ungated(TOPOLOGY_GATE, &workload, &pod.metadata, now);
                    seen.pods.put(pod);
                }
                // It is another one by now, or gone, and the watch tells of that.
                Err(error) if is_outdated(&error) => {}
                Err(source) => {
                    let (doing, source) = ("let pods be scheduled of", Box::new(source));
                    return Err(Error::Workload { doing, workload: Key::of(&*workload), source });
                }
            }
        }
        Ok(Next::Done)
    }

    /// Tells a pod its place, and takes its gate away.
    async fn let_go(&self, namespace: &str, ungated: Ungated) -> Result<Pod, kube::Error> {
        let Ungated { name, uid, node_selector } = ungated;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let gate = json!({ "name": TOPOLOGY_GATE, "$patch": "delete" });
        let place = Patch::Strategic(json!({
            "metadata": { "uid": uid },
            "spec": { "nodeSelector": node_selector, "schedulingGates": [gate] },
        }));
        api.patch(&name, &PatchParams::default(), &place).await
    }
}
