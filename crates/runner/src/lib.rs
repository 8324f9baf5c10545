//! The node: a pod becomes processes of this machine, or a simulation of them, and what happens to them becomes the pod's
//! status.
//!
//! [`start`] registers nodes with a cluster, keeps their leases, and runs the pods that are bound to them until its tasks
//! end. All nodes of one cluster that live in this process share what they watch.
//!
//! - [`Settings`]: what a node is.
//! - `registration`: the Node object and its lease.
//! - `simulated`: pods that only pretend to run.
//! - `writes`: what is written about pods.
//!
//! What to do next with a pod, and what its status says, is decided in [`rules::node`].

mod registration;
mod settings;
mod simulated;
mod writes;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use reconcile::{Cache, Clock, Key, Queue, Tasks};

pub use settings::{Runtime, Settings};

use registration::Host;

/// Why nodes cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster did not take a node.
    #[error("failed to register node {node}")]
    Register {
        /// Which.
        node: String,
        /// The cluster's answer.
        source: kube::Error,
    },
    /// Two nodes have the same name.
    #[error("there are two nodes called {node}")]
    Twice {
        /// What both are called.
        node: String,
    },
}

/// A node of a cluster.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
}

impl Node {
    /// Starts one node. Several of one cluster are better started together, by [`start`].
    pub async fn start(
        client: Client,
        settings: Settings,
        clock: Clock,
        tasks: &mut Tasks,
    ) -> Result<Node, Error> {
        let mut nodes = start(client, vec![settings], clock, tasks).await?;
        Ok(nodes.pop().expect("one was asked for"))
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Starts nodes of one cluster, which run for as long as `tasks` live. They are registered, and ready, when this returns.
pub async fn start(
    client: Client,
    settings: Vec<Settings>,
    clock: Clock,
    tasks: &mut Tasks,
) -> Result<Vec<Node>, Error> {
    let mut hosts = BTreeMap::new();
    for settings in settings {
        let name = settings.name.clone();
        if hosts.insert(name.clone(), Arc::new(Host::new(settings))).is_some() {
            return Err(Error::Twice { node: name });
        }
    }
    for host in hosts.values() {
        registration::register(&client, host, &clock).await?;
    }
    let queue: Queue<Key> = Queue::new();
    let pods = watch(&client, &hosts, &queue, tasks);
    let simulated = simulated::Simulated::new(client.clone(), pods, clock.clone(), hosts.clone());
    tasks.spawn("simulated pods", async move { simulated.run(&queue).await });
    let nodes = hosts.keys().map(|name| Node { name: name.clone() }).collect();
    tasks.spawn("node leases", registration::keep(client, hosts.into_values().collect(), clock));
    Ok(nodes)
}

/// Watches the pods of all these nodes at once: the only one's, or those that have any node.
fn watch(
    client: &Client,
    hosts: &BTreeMap<String, Arc<Host>>,
    queue: &Queue<Key>,
    tasks: &mut Tasks,
) -> Cache<Pod> {
    let mut names = hosts.keys();
    let selector = match (names.next(), names.next()) {
        (Some(only), None) => format!("spec.nodeName={only}"),
        _ => "spec.nodeName!=".to_owned(),
    };
    let (ours, queue): (Vec<String>, _) = (hosts.keys().cloned().collect(), queue.clone());
    Cache::new(Api::<Pod>::all(client.clone()))
        .fields(&selector)
        .on_change(move |change| {
            let node =
                change.latest().and_then(|pod| pod.spec.as_ref()).and_then(|spec| spec.node_name.as_ref());
            if node.is_some_and(|node| ours.contains(node)) {
                queue.add(change.key.clone());
            }
        })
        .start(tasks)
}
