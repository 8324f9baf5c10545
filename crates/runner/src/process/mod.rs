//! Pods as processes of this machine.
//!
//! One task leads one pod (`actor`): it asks [`rules::node`] what comes next, has it done, and writes what became of it.
//! What it takes to start a container is put together in `launch`; `instance` is a container that runs, and `sandbox` what
//! those of a pod have in common before.

mod actor;
pub(crate) mod cgroups;
mod events;
mod identity;
mod instance;
mod ipc;
mod launch;
mod loopback;
mod machine;
mod objects;
mod probes;
mod sandbox;
mod sessions;
mod streams;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    io,
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use reconcile::{Cache, Clock, Key, Next, Queue};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
};
use tracing::warn;

pub(crate) use events::Events;
pub(crate) use machine::{Machine, remove};
pub(crate) use objects::Objects;
pub use sessions::Streams;

use crate::{
    admission::Admission,
    logs::{self, Log, Options},
    network,
    registration::Host,
    settings::Process,
    threads,
};
use actor::Actor;
use sessions::Place;
use streams::Input;

/// What all pods of a node share.
pub(crate) struct Shared {
    client: Client,
    clock: Clock,
    pods: Cache<Pod>,
    objects: Objects,
    admission: Arc<Admission>,
    host: Arc<Host>,
    machine: Machine,
    settings: Process,
    events: Events,
    /// What can be read and done of containers, by pod and name.
    containers: Mutex<HashMap<(Key, String), Reachable>>,
    /// What we say of pods, by the pod's uid: known here before anybody can have read it.
    said: Mutex<HashMap<String, Arc<PodStatus>>>,
}

/// What can be read and done of a container.
#[derive(Clone, Debug, Default)]
struct Reachable {
    /// Of the pod.
    uid: Option<String>,
    log: Option<Log>,
    previous: Option<Log>,
    /// While it runs.
    place: Option<Place>,
    /// If it reads any.
    input: Option<Input>,
}

/// Why something of a container cannot be read or done.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// There is no such container on this node.
    #[error("container {container} of pod {pod} is not known to this node")]
    Unknown {
        /// The pod.
        pod: Key,
        /// The container.
        container: String,
    },
    /// It does not run.
    #[error("container {container} of pod {pod} is not running")]
    NotRunning {
        /// The pod.
        pod: Key,
        /// The container.
        container: String,
    },
    /// It has not begun, or there was none before it.
    #[error("{why}")]
    NoLog {
        /// What a kubelet says then.
        why: String,
    },
    /// Nothing of the pod runs.
    #[error("nothing of pod {pod} is running")]
    Nothing {
        /// The pod.
        pod: Key,
    },
    /// Nobody in the pod takes a connection.
    #[error("failed to connect to port {port} of pod {pod}")]
    Connect {
        /// The pod.
        pod: Key,
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The command could not be started.
    #[error("failed to start a command in container {container} of pod {pod}")]
    Start {
        /// The pod.
        pod: Key,
        /// The container.
        container: String,
        /// Why.
        source: io::Error,
    },
}

impl Drop for Shared {
    /// Removes the node's own cgroups if nothing is in them; or else the last guard does.
    fn drop(&mut self) {
        for base in self.machine.cgroups.iter().flat_map(cgroups::Cgroups::bases) {
            let _ = std::fs::remove_dir(base);
        }
    }
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "what all pods of a node share, once")]
    pub(crate) fn new(
        client: Client,
        clock: Clock,
        pods: Cache<Pod>,
        objects: Objects,
        admission: Arc<Admission>,
        host: Arc<Host>,
        machine: Machine,
        settings: Process,
        events: Events,
    ) -> Shared {
        let (containers, said) = (Mutex::default(), Mutex::default());
        Shared { client, clock, pods, objects, admission, host, machine, settings, events, containers, said }
    }

    /// The node's address in the network of pods, if it has one.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        self.machine.network.as_ref().map(|(network, number)| network.address(*number))
    }

    fn containers(&self) -> MutexGuard<'_, HashMap<(Key, String), Reachable>> {
        // Every change is one insertion or removal; a panic elsewhere leaves the table whole.
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> MutexGuard<'_, HashMap<String, Arc<PodStatus>>> {
        // As above.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What pods do not see of the host.
    fn hidden(&self) -> Vec<PathBuf> {
        let settings = &self.settings;
        std::iter::once(&settings.directory).chain(&settings.hidden).cloned().collect()
    }

    /// What this node says of a pod, whether or not the API server has it yet.
    pub(crate) fn status(&self, uid: &str) -> Option<Arc<PodStatus>> {
        self.said().get(uid).cloned()
    }

    fn reachable(&self, pod: &Key, container: &str) -> Result<Reachable, Unreachable> {
        let key = (pod.clone(), container.to_owned());
        let unknown = || Unreachable::Unknown { pod: pod.clone(), container: container.to_owned() };
        self.containers().get(&key).cloned().ok_or_else(unknown)
    }

    /// The log of a container, or of the instance before, if there is one.
    pub(crate) fn log(&self, pod: &Key, container: &str, previous: bool) -> Option<Log> {
        let reachable = self.reachable(pod, container).ok()?;
        if previous { reachable.previous } else { reachable.log }
    }

    /// Runs a command in a container; returns its exit code.
    pub(crate) async fn exec(
        &self,
        pod: &Key,
        container: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<i32, Unreachable> {
        let (owned_pod, owned) = (pod.clone(), container.to_owned());
        let Some(place) = self.reachable(pod, container)?.place else {
            return Err(Unreachable::NotRunning { pod: owned_pod, container: owned });
        };
        let started = place.attach(command, streams).await;
        started.map_err(|source| Unreachable::Start { pod: owned_pod, container: owned, source })
    }
}

impl Shared {
    /// Connects to a port of a pod, in the network that its processes see.
    pub(crate) async fn connect(&self, pod: &Key, uid: &str, port: u16) -> Result<TcpStream, Unreachable> {
        let runs = |reachable: &Reachable| {
            let place = reachable.place.as_ref().filter(|_| reachable.uid.as_deref() == Some(uid))?;
            Some(place.process)
        };
        let process = {
            let containers = self.containers();
            let mut of_pod = containers.iter().filter(|((of, _), _)| of == pod);
            of_pod.find_map(|(_, reachable)| runs(reachable))
        };
        let Some(process) = process else { return Err(Unreachable::Nothing { pod: pod.clone() }) };
        let connected = network::connect_beside(process, port).await;
        connected.map_err(|source| Unreachable::Connect { pod: pod.clone(), port, source })
    }

    /// Connects these streams to a container: what it reads from now on, and what it writes, until it ends. One that was
    /// made to be talked to waits for nobody: who comes first also hears what it has said until then.
    pub(crate) async fn attach(
        &self,
        pod: &Key,
        container: &str,
        streams: Streams,
    ) -> Result<(), Unreachable> {
        let reachable = self.reachable(pod, container)?;
        let (Some(log), Some(_)) = (reachable.log, reachable.place) else {
            return Err(Unreachable::NotRunning { pod: pod.clone(), container: container.to_owned() });
        };
        let is_first = reachable.input.as_ref().is_some_and(Input::attach_first);
        let tail = (!is_first).then_some(0);
        let follow = |stream: &str| {
            let stream = Some(stream.to_owned());
            logs::read(log.clone(), Options { follow: true, tail, stream, ..Options::default() })
        };
        let outputs = futures::future::join(
            forward(follow("stdout"), streams.output),
            forward(follow("stderr"), streams.errors),
        );
        let feeding = async {
            if let (Some(input), Some(from)) = (&reachable.input, streams.input) {
                // A container that has ended reads nothing, of which the outputs tell.
                let _ = input.feed(from).await;
            }
            futures::future::pending::<()>().await;
        };
        let resizing = async {
            if let (Some(input), Some(mut sizes)) = (&reachable.input, streams.sizes) {
                while let Some((columns, rows)) = sizes.recv().await {
                    input.resize(columns, rows);
                }
            }
            futures::future::pending::<()>().await;
        };
        tokio::select! {
            _ = outputs => {}
            () = feeding => {}
            () = resizing => {}
        }
        Ok(())
    }
}

/// Writes a log to somebody, until one of them ends.
async fn forward(log: impl Stream<Item = io::Result<Bytes>>, to: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    let mut log = std::pin::pin!(log);
    let Some(mut to) = to else {
        while log.next().await.is_some() {} // its end is what matters
        return;
    };
    while let Some(Ok(bytes)) = log.next().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}

/// Leads the pods of all process nodes of a cluster until it is dropped, and then ends them.
pub(crate) async fn run(nodes: BTreeMap<String, Arc<Shared>>, pods: Cache<Pod>, queue: Queue<Key>) {
    let _forgotten = Forgotten(nodes.values().map(|node| node.settings.directory.clone()).collect());
    pods.ready().await;
    forget_others(&nodes, &pods).await;
    if let Some(shared) = nodes.values().next() {
        shared.admission.ready().await;
        shared.objects.ready().await;
    }
    // Pods that were here before keep their addresses, whoever of them comes first.
    let _kept: Vec<loopback::Address> = pods
        .all()
        .iter()
        .filter_map(|pod| loopback::Address::known(pod.status.as_ref()?.pod_ip.as_deref()?))
        .collect();
    let leads: Mutex<Leads> = Mutex::default();
    queue
        .run(1, async |key| {
            let pod = pods.get(&key);
            let mut leads = leads.lock().unwrap_or_else(PoisonError::into_inner);
            leads.see(&nodes, key, pod);
            Ok::<_, Infallible>(Next::Done)
        })
        .await;
}

/// Removes what is left of pods that went while their node was away. All that are there have to be known.
async fn forget_others(nodes: &BTreeMap<String, Arc<Shared>>, pods: &Cache<Pod>) {
    let uids: Arc<BTreeSet<String>> =
        Arc::new(pods.all().iter().filter_map(|pod| pod.metadata.uid.clone()).collect());
    for (node, shared) in nodes {
        let (directory, uids) = (shared.settings.directory.clone(), Arc::clone(&uids));
        let forgotten = threads::blocking(move || machine::forget_others(&directory, &uids)).await;
        if let Err(error) = forgotten {
            warn!(node, %error, "failed to look for what is left of pods that are gone");
        }
    }
}

/// What pods have in memory is worth more than what they have on disk: it goes with their nodes, in these directories.
struct Forgotten(Vec<PathBuf>);

impl Drop for Forgotten {
    fn drop(&mut self) {
        for directory in &self.0 {
            if let Err(error) = machine::forget_memory(directory) {
                warn!(directory = %directory.display(), %error, "failed to remove what pods have in memory");
            }
        }
    }
}

/// The tasks that lead pods.
#[derive(Default)]
struct Leads {
    by_key: HashMap<Key, Lead>,
    tasks: JoinSet<()>,
}

struct Lead {
    uid: Option<String>,
    latest: watch::Sender<Option<Arc<Pod>>>,
}

impl Leads {
    fn see(&mut self, nodes: &BTreeMap<String, Arc<Shared>>, key: Key, pod: Option<Arc<Pod>>) {
        while self.tasks.try_join_next().is_some() {} // those that are done
        let known = self.by_key.get(&key);
        match (known, pod) {
            (Some(lead), Some(pod)) if lead.uid == pod.metadata.uid => {
                lead.latest.send_replace(Some(pod));
            }
            (known, pod) => {
                if let Some(lead) = known {
                    lead.latest.send_replace(None);
                    self.by_key.remove(&key);
                }
                let Some(pod) = pod else { return };
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
                if let Some(shared) = nodes.get(node) {
                    let (latest, receiver) = watch::channel(Some(Arc::clone(&pod)));
                    self.by_key.insert(key.clone(), Lead { uid: pod.metadata.uid.clone(), latest });
                    self.tasks.spawn(Actor::new(Arc::clone(shared), key, pod, receiver).run());
                }
            }
        }
    }
}
