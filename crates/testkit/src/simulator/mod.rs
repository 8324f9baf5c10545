//! Pods that only pretend to run: the scheduler's and the kubelet's part of a cluster, over its API.
//!
//! Pods are bound to one node and walk through the statuses that a kubelet would write, as a [`Behaviour`] says: chosen
//! for each pod by a function, or set for one pod by the test. A deleted pod ends within its grace period, final status
//! first, and is then removed.
//!
//! There are no containers, images, probes, volumes or networks here, and the node takes every pod: resources, selectors
//! and taints are not looked at.

mod behaviour;
mod driver;
mod life;
mod node;
mod requests;
mod status;

use std::{
    fmt,
    sync::Arc,
    thread::{self, JoinHandle},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Config};
use tokio::{
    runtime,
    sync::{mpsc, oneshot},
};

pub use behaviour::Behaviour;
pub use node::NODE;

use driver::{Cluster, Order};
use requests::Requests;

/// Why pods are not simulated, or not as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No thread or runtime for it.
    #[error("failed to start the simulator")]
    Start(#[source] std::io::Error),
    /// The cluster did not take the node.
    #[error("failed to register the simulated node")]
    Register(#[source] kube::Error),
    /// The configuration makes no client.
    #[error("failed to make a client")]
    Client(#[source] kube::Error),
    /// The pod, or the simulator, has ended before it could do what it was told.
    #[error("pod {namespace}/{name} has ended or is gone")]
    Gone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Running pods of a cluster, or of one namespace. Dropping it leaves them as they are.
///
/// ```no_run
/// # async fn example(cluster: testkit::ControlPlane) -> anyhow::Result<()> {
/// use testkit::Behaviour;
///
/// let pods = cluster.simulator().decide(|pod| Behaviour::exits(0)).start().await?;
/// pods.set("default", "pod-of-mine", Behaviour::exits(1)).await?; // Failed when this returns
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Simulator {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What to simulate. Made by [`Simulator::builder`].
pub struct Builder {
    config: Config,
    namespace: Option<String>,
    decide: Arc<Decide>,
}

type Decide = dyn Fn(&Pod) -> Behaviour + Send + Sync;

impl Simulator {
    /// A simulator for the cluster that `config` leads to: every pod runs until it is deleted, unless more is said.
    pub fn builder(config: Config) -> Builder {
        Builder { config, namespace: None, decide: Arc::new(|_: &Pod| Behaviour::runs()) }
    }

    /// Makes one pod behave so from now on, and returns when it has done all that (`exits`: when it has ended).
    ///
    /// The pod need not be known yet: a test that has just created it, or is about to, waits for it here.
    pub async fn set(&self, namespace: &str, name: &str, behaviour: Behaviour) -> Result<(), Error> {
        let (done, outcome) = oneshot::channel();
        let pod = (namespace.to_owned(), name.to_owned());
        let gone = || Error::Gone { namespace: namespace.to_owned(), name: name.to_owned() };
        let orders = self.orders.as_ref().ok_or_else(gone)?;
        orders.send(Order { pod, behaviour, done }).await.map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())
    }
}

impl Builder {
    /// Only the pods of this namespace, so that tests which share a cluster can each have a simulator.
    pub fn namespace(mut self, namespace: &str) -> Builder {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Decides what a pod does: asked when the pod is first seen, and again whenever its containers start anew
    /// (`status.containerStatuses[].restartCount` says how often they did).
    pub fn decide(mut self, decide: impl Fn(&Pod) -> Behaviour + Send + Sync + 'static) -> Builder {
        self.decide = Arc::new(decide);
        self
    }

    /// Starts it, on a thread of its own; returns when its node is ready.
    pub async fn start(self) -> Result<Simulator, Error> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
        let (orders, receiver) = mpsc::channel(64);
        let (ready, started) = oneshot::channel();
        let thread = thread::Builder::new().name("simulator".to_owned());
        let run = move || {
            runtime.block_on(async move {
                match self.connect().await {
                    Ok(cluster) => {
                        let _ = ready.send(Ok(())); // nobody waits any more: then the orders have ended, too
                        cluster.run(receiver).await;
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            });
        };
        let thread = thread.spawn(run).map_err(Error::Start)?;
        started.await.expect("the simulator says how it started")?;
        Ok(Simulator { orders: Some(orders), thread: Some(thread) })
    }

    /// On the simulator's own runtime, to which the connections of its client belong.
    async fn connect(self) -> Result<Cluster, Error> {
        let client = Client::try_from(self.config).map_err(Error::Client)?;
        node::register(&client).await.map_err(Error::Register)?;
        let pods = match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        Ok(Cluster::new(Requests::new(client), pods, self.decide))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.orders = None; // ends the thread's work
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
