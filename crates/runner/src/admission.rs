//! Which pods the nodes of this process take, one after another.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use reconcile::{Cache, Change, Key};
use rules::node::{
    Ending,
    admission::{self, Taken},
    ending,
};

/// What pods have of each node. It is kept as pods change.
#[derive(Clone, Debug)]
pub(crate) struct Shares(Arc<Mutex<BTreeMap<String, Taken>>>);

impl Shares {
    /// Those of these nodes.
    pub(crate) fn of(nodes: impl IntoIterator<Item = String>) -> Shares {
        Shares(Arc::new(Mutex::new(nodes.into_iter().map(|name| (name, Taken::default())).collect())))
    }

    /// Takes in how a pod has changed.
    pub(crate) fn see(&self, change: &Change<'_, Pod>) {
        let Some(pod) = change.latest() else { return };
        if let Some(taken) = self.held().get_mut(node_of(pod)) {
            // Another one may have taken its name.
            if let Some(old) = change.old.filter(|old| change.new.is_none_or(|new| !is_same(old, new))) {
                taken.leave(old);
            }
            if let Some(new) = change.new {
                taken.see(new);
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Taken>> {
        // A panic in between leaves a sum that is wrong at most, and is counted anew before anybody is refused for it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decides which pods may begin.
pub(crate) struct Admission {
    pub(crate) client: Client,
    pub(crate) nodes: Cache<Node>,
    pub(crate) pods: Cache<Pod>,
    pub(crate) shares: Shares,
}

impl Admission {
    /// Waits until it is known who has what.
    pub(crate) async fn ready(&self) {
        self.nodes.ready().await;
        self.pods.ready().await;
    }

    /// Why a pod may not begin on its node; it gets its share there if it may. Those that have begun, are to go or have ended
    /// are not asked about.
    pub(crate) async fn refusal(&self, pod: &Pod) -> kube::Result<Option<Ending>> {
        let began = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        if began || pod.metadata.deletion_timestamp.is_some() || ending::is_final(pod) {
            return Ok(None);
        }
        let name = node_of(pod);
        // A node that was deleted goes on with what it has, and nobody knows what it may take.
        let Some(node) = self.nodes.get(&Key::new("", name)) else { return Ok(None) };
        if self.decide(&node, pod).is_none() {
            return Ok(None);
        }
        // Whoever has sent the pod may know more than we do: what we know of the node, or of who is there, may be old.
        let Some(node) = Api::<Node>::all(self.client.clone()).get_opt(name).await? else { return Ok(None) };
        let pods = self.pods.all();
        let here: Vec<&Arc<Pod>> = pods.iter().filter(|pod| node_of(pod) == name).collect();
        if let Some(taken) = self.shares.held().get_mut(name) {
            taken.recount(&here);
        }
        Ok(self.decide(&node, pod))
    }

    fn decide(&self, node: &Node, pod: &Pod) -> Option<Ending> {
        let mut shares = self.shares.held();
        let taken = shares.get_mut(node_of(pod))?;
        let refused = admission::refusal(node, pod, taken);
        if refused.is_none() {
            taken.take(pod);
        }
        refused
    }
}

fn is_same(one: &Pod, other: &Pod) -> bool {
    one.metadata.uid == other.metadata.uid
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}
