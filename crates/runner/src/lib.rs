//! The node: a pod becomes processes of this machine, or a simulation of them, and what happens to them becomes the pod's
//! status.
//!
//! [`start`] registers nodes with a cluster, keeps their leases, and runs the pods that are bound to them until its tasks
//! end. All nodes of one cluster that live in this process share what they watch.
//!
//! - [`Settings`]: what a node is.
//! - `registration`: the Node object and its lease.
//! - `admission`: which pods a node takes.
//! - `simulated`: pods that only pretend to run.
//! - `process`: pods that are processes; [`init`] is what those are started by, and `logs` what becomes of what they write.
//! - `network`: a network that pods have to themselves.
//! - [`kept`]: logs of pods that are gone.
//! - [`private`]: directories that no other user may enter, or has made.
//! - `threads`: where work is done that takes a while.
//! - `writes`: what is written about pods.
//!
//! What to do next with a pod, and what its status says, is decided in [`rules::node`].

mod admission;
pub mod init;
pub mod kept;
mod logs;
mod network;
pub mod private;
mod process;
mod registration;
mod settings;
mod simulated;
mod threads;
mod writes;

use std::{
    collections::BTreeMap,
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{self as core, Pod};
use kube::{Api, Client, ResourceExt as _};
use reconcile::{Cache, Clock, Key, Queue, Tasks};
use rules::pod::logs::unavailable;
use tokio::{net::TcpStream, sync::Notify};

pub use logs::Options as LogOptions;
pub use process::{Streams, Unreachable};
pub use settings::{PodNetwork, Process, Resolve, Runtime, Settings};

use admission::{Admission, Shares};
use network::{Network, Services};
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
    /// This machine does not have what a node needs.
    #[error("failed to prepare this machine for node {node}")]
    Prepare {
        /// Which.
        node: String,
        /// Why.
        source: io::Error,
    },
    /// Pods cannot have a network of their own.
    #[error("failed to give pods a network of their own")]
    Network {
        /// Why.
        source: io::Error,
    },
    /// Two nodes have the same name.
    #[error("there are two nodes called {node}")]
    Twice {
        /// What both are called.
        node: String,
    },
}

/// A node of a cluster.
#[derive(Clone)]
pub struct Node {
    name: String,
    pods: Cache<Pod>,
    /// Simulated pods have no processes.
    processes: Option<Arc<process::Shared>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
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

    /// Its address in the network of pods, if it has one.
    pub fn address(&self) -> Option<Ipv4Addr> {
        self.processes.as_ref()?.address()
    }

    /// What a container has written, as a stream; what it will write too, if that is asked for. One that has not begun
    /// has no log, and simulated ones write nothing.
    pub fn logs(
        &self,
        pod: &Key,
        container: &str,
        options: LogOptions,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + 'static, Unreachable> {
        let shared = self.processes.as_ref();
        if let Some(log) = shared.and_then(|shared| shared.log(pod, container, options.previous)) {
            return Ok(logs::read(log, options).left_stream());
        }
        let unknown = || Unreachable::Unknown { pod: pod.clone(), container: container.to_owned() };
        let known = self.pods.get(pod).ok_or_else(unknown)?;
        let said = shared.and_then(|shared| shared.status(known.metadata.uid.as_deref()?));
        let status = said.or_else(|| known.status.clone().map(Arc::new)).unwrap_or_default();
        match unavailable(&known.name_any(), &status, container, options.previous) {
            Some(why) => Err(Unreachable::NoLog { why }),
            None => Ok(stream::empty().right_stream()),
        }
    }

    /// Connects these streams to a container itself, until it ends.
    pub async fn attach(&self, pod: &Key, container: &str, streams: Streams) -> Result<(), Unreachable> {
        match &self.processes {
            Some(shared) => shared.attach(pod, container, streams).await,
            None => Err(Unreachable::NotRunning { pod: pod.clone(), container: container.to_owned() }),
        }
    }

    /// Connects to a port of a pod as one of its own processes would.
    pub async fn connect(&self, pod: &Key, uid: &str, port: u16) -> Result<TcpStream, Unreachable> {
        match &self.processes {
            Some(shared) => shared.connect(pod, uid, port).await,
            None => Err(Unreachable::Nothing { pod: pod.clone() }),
        }
    }

    /// Runs a command in a container, connected to these streams, and returns its exit code.
    pub async fn exec(
        &self,
        pod: &Key,
        container: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<i32, Unreachable> {
        match &self.processes {
            Some(shared) => shared.exec(pod, container, command, streams).await,
            None => Err(Unreachable::NotRunning { pod: pod.clone(), container: container.to_owned() }),
        }
    }
}

/// Starts nodes of one cluster, which run for as long as `tasks` live. They are registered, and ready, when this returns.
/// When the tasks end, so do all processes of their pods.
pub async fn start(
    client: Client,
    settings: Vec<Settings>,
    clock: Clock,
    tasks: &mut Tasks,
) -> Result<Vec<Node>, Error> {
    let network = make_network(&settings).await?;
    let (mut hosts, mut machines) = (BTreeMap::new(), BTreeMap::new());
    for (number, mut settings) in settings.into_iter().enumerate() {
        let name = settings.name.clone();
        if let Some(network) = &network {
            settings.address = network.address(number).into();
        }
        let mut conditions = Vec::new();
        if let Runtime::Process(process) = &settings.runtime {
            let mut machine = prepare(&name, process).await?;
            if let Some(network) = network.as_ref().filter(|_| process.network == PodNetwork::Pods) {
                machine.join(Arc::clone(network), number).map_err(|source| Error::Network { source })?;
            }
            conditions.clone_from(&machine.conditions);
            machines.insert(name.clone(), (machine, process.as_ref().clone()));
        }
        let pod_range = network.as_ref().map(|network| network.range(number));
        if hosts.insert(name.clone(), Arc::new(Host { settings, conditions, pod_range })).is_some() {
            return Err(Error::Twice { node: name });
        }
    }
    for host in hosts.values() {
        registration::register(&client, host, &clock).await?;
    }
    let queues = Queues { simulated: Queue::new(), processes: Queue::new() };
    let ports = Arc::new(Notify::new());
    let shares = Shares::of(hosts.keys().cloned());
    let pods = watch(&client, &hosts, &queues, &ports, &shares, tasks);
    let nodes = watch_nodes(&client, &hosts, tasks);
    let admission = Admission { client: client.clone(), nodes, pods: pods.clone(), shares };
    let admission = Arc::new(admission);
    if network.is_some() {
        serve(&client, &hosts, pods.clone(), ports, tasks);
    }
    let mut processes = BTreeMap::new();
    if !machines.is_empty() {
        let objects = process::Objects::watch(&client, tasks);
        for (name, (machine, settings)) in machines {
            let events = process::Events::start(client.clone(), clock.clone(), &name, tasks);
            let host = Arc::clone(&hosts[&name]);
            let (client, clock, pods, objects) =
                (client.clone(), clock.clone(), pods.clone(), objects.clone());
            let admission = Arc::clone(&admission);
            let shared = process::Shared::new(
                client, clock, pods, objects, admission, host, machine, settings, events,
            );
            processes.insert(name, Arc::new(shared));
        }
        tasks.spawn("pods", process::run(processes.clone(), pods.clone(), queues.processes));
    }
    let simulated =
        simulated::Simulated::new(client.clone(), pods.clone(), admission, clock.clone(), hosts.clone());
    tasks.spawn("simulated pods", async move { simulated.run(&queues.simulated).await });
    let node = |name: &String| Node {
        name: name.clone(),
        pods: pods.clone(),
        processes: processes.get(name).cloned(),
    };
    let nodes = hosts.keys().map(node).collect();
    tasks.spawn("node leases", registration::keep(client, hosts.into_values().collect(), clock));
    Ok(nodes)
}

/// Removes everything that a node in this directory, which runs no more, has left on this machine, and the directory.
/// Blocks.
pub fn remove(directory: &Path) -> io::Result<()> {
    process::remove(directory)
}

/// Makes the network of pods, if there is a node that wants it.
async fn make_network(settings: &[Settings]) -> Result<Option<Arc<Network>>, Error> {
    let wants = |settings: &Settings| matches!(&settings.runtime, Runtime::Process(process) if process.network == PodNetwork::Pods);
    if !settings.iter().any(wants) {
        return Ok(None);
    }
    let nodes = settings.len();
    let made = threads::blocking(move || Network::make(nodes)).await;
    Ok(Some(Arc::new(made.map_err(|source| Error::Network { source })?)))
}

/// Trying what the machine permits takes a moment, and blocks.
async fn prepare(node: &str, process: &Process) -> Result<process::Machine, Error> {
    let process = process.clone();
    let prepared = threads::blocking(move || process::Machine::prepare(&process)).await;
    prepared.map_err(|source| Error::Prepare { node: node.to_owned(), source })
}

/// Pods to be looked at, by what becomes of them.
struct Queues {
    simulated: Queue<Key>,
    processes: Queue<Key>,
}

/// Lets services be reached in the network of pods.
fn serve(
    client: &Client,
    hosts: &BTreeMap<String, Arc<Host>>,
    pods: Cache<Pod>,
    changed: Arc<Notify>,
    tasks: &mut Tasks,
) {
    let address = |host: &Host| match host.settings.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    let nodes = hosts.iter().filter_map(|(name, host)| Some((name.clone(), address(host)?))).collect();
    let server = hosts.values().find_map(|host| match &host.settings.runtime {
        Runtime::Process(process) => process.server.clone(),
        Runtime::Simulated => None,
    });
    let server = server.and_then(|(host, port)| Some(SocketAddrV4::new(host.parse().ok()?, port)));
    Services { nodes, server, pods, changed }.start(client, tasks);
}

/// Watches these nodes: the only one, or all that there are.
fn watch_nodes(client: &Client, hosts: &BTreeMap<String, Arc<Host>>, tasks: &mut Tasks) -> Cache<core::Node> {
    let mut names = hosts.keys();
    let all = Cache::new(Api::<core::Node>::all(client.clone()));
    match (names.next(), names.next()) {
        (Some(only), None) => all.fields(&format!("metadata.name={only}")).start(tasks),
        _ => all.start(tasks),
    }
}

/// Watches the pods of all these nodes at once: the only one's, or those that have any node.
fn watch(
    client: &Client,
    hosts: &BTreeMap<String, Arc<Host>>,
    queues: &Queues,
    ports: &Arc<Notify>,
    shares: &Shares,
    tasks: &mut Tasks,
) -> Cache<Pod> {
    let mut names = hosts.keys();
    let selector = match (names.next(), names.next()) {
        (Some(only), None) => format!("spec.nodeName={only}"),
        _ => "spec.nodeName!=".to_owned(),
    };
    let queue = |host: &Arc<Host>| match host.settings.runtime {
        Runtime::Simulated => queues.simulated.clone(),
        Runtime::Process(_) => queues.processes.clone(),
    };
    let ours: BTreeMap<String, Queue<Key>> =
        hosts.iter().map(|(name, host)| (name.clone(), queue(host))).collect();
    let (ports, shares) = (Arc::clone(ports), shares.clone());
    Cache::new(Api::<Pod>::all(client.clone()))
        .fields(&selector)
        .on_change(move |change| {
            shares.see(change);
            if change.latest().is_some_and(|pod| network::has_host_port(pod)) {
                ports.notify_one();
            }
            let node =
                change.latest().and_then(|pod| pod.spec.as_ref()).and_then(|spec| spec.node_name.as_ref());
            if let Some(queue) = node.and_then(|node| ours.get(node)) {
                queue.add(change.key.clone());
            }
        })
        .start(tasks)
}
