//! What a pod that runs may use, when it says something else than it did.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use rules::node::{
    ending,
    resize::{self, Unsettled},
};

use super::{Actor, RETRY, later};
use crate::threads;

impl Actor {
    /// Gives containers that run the resources that the pod says, if it can have them. Returns when to look again.
    pub(super) async fn resize(&mut self, now: Timestamp) -> Option<Timestamp> {
        let node = &self.shared.host.settings;
        let others = || {
            let is_other = |pod: &&Arc<Pod>| {
                let spec = pod.spec.as_ref();
                pod.metadata.uid != self.pod.metadata.uid
                    && !ending::is_final(pod)
                    && spec.is_some_and(|spec| spec.node_name.as_ref() == Some(&node.name))
            };
            let pods = self.shared.pods.all();
            let specs = pods.iter().filter(is_other).filter_map(|pod| pod.spec.as_ref());
            specs.map(resize::Requests::of).fold(resize::Requests::default(), resize::Requests::and)
        };
        let decision = resize::decide(&self.pod, &self.containers, &node.capacity, others);
        self.unsettled = None;
        let changes = match decision {
            resize::Decision::Settled => return None,
            resize::Decision::Pending(unsettled) => {
                self.unsettled = Some(unsettled);
                return later(now, RETRY);
            }
            resize::Decision::Change(changes) => changes,
        };
        let mut again = None;
        for resize::Change { container: index, resources, restart } in changes {
            let Some(instance) = self.instances.get(&index) else { continue };
            if restart {
                if !instance.is_stopping() {
                    self.containers[index].unhealthy = true;
                    self.stop(index, None);
                }
                continue;
            }
            let (cgroup, wanted) = (instance.cgroup.clone(), resources.clone());
            // The kernel may have to find other places for much of what is in memory first.
            let resize = move || cgroup.map_or(Ok(()), |cgroup| cgroup.resize(&wanted));
            match threads::blocking(resize).await {
                Ok(()) => self.containers[index].resources = Some(resources),
                Err(error) => {
                    let message = format!("{}: {error}", self.containers[index].name);
                    let condition = resize::IN_PROGRESS;
                    self.unsettled = Some(Unsettled { condition, reason: "Error", message });
                    again = later(now, RETRY);
                }
            }
        }
        again
    }
}
