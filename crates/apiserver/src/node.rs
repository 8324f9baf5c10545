//! The seam to the nodes: what a client may ask of a container while it runs, and who answers.
//!
//! A node that lives in this process is introduced to the cluster under the name of its Node object
//! ([`Cluster::introduce`]); requests for pods on that node then end up there, without a socket in between. The server
//! has looked already whether the pod is there, which container is meant and whether the options make sense; whether the
//! container has anything to show is the node's to say. Its status is fresher than the stored one:
//! [`rules::pod::logs::unavailable`] has the words.
//!
//! What the nodes do is not known here, nor how clients speak: WebSockets end in [`Streams`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rules::pod::logs::{LogOptions, StreamOptions};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::cluster::Cluster;

/// A container of a pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The uid of the pod: another pod of the same name is another pod.
    pub uid: String,
    /// The name of the container.
    pub name: String,
}

/// A pod on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: another pod of the same name is another pod.
    pub uid: String,
}

/// A connection to a port of a pod.
pub type Connection = Box<dyn Duplex>;

/// What bytes go through in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A node in this process.
pub trait Node: Send + Sync {
    /// The output of a container. A stream that follows ends with the container, or when the client goes and it is dropped.
    fn logs(
        &self,
        of: Container,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, Unserved>>;

    /// Runs a process in a container until it ends. If the future is dropped, the client is gone, and so is the process.
    fn exec(
        &self,
        of: Container,
        options: StreamOptions,
        streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>>;

    /// The same with the process that the container is. It goes on when the client does not.
    fn attach(
        &self,
        of: Container,
        options: StreamOptions,
        streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>>;

    /// Connects to a port of a pod, as a process in it would.
    fn forward(&self, to: Pod, port: u16) -> BoxFuture<'_, Result<Connection, Unserved>>;
}

/// The client's ends of a process. Those that were not asked for are closed.
#[derive(Debug)]
pub struct Streams {
    /// What the client types; ends when it ends its input.
    pub stdin: mpsc::Receiver<Bytes>,
    /// What the client reads.
    pub stdout: mpsc::Sender<Bytes>,
    /// What it reads of errors; with a terminal there is only output.
    pub stderr: mpsc::Sender<Bytes>,
    /// The size of the client's terminal, whenever it changes.
    pub resize: mpsc::Receiver<Size>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub exit_code: i32,
}

/// Why a node does not do what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unserved {
    /// 400: the container is in no state for it.
    #[error("{0}")]
    BadRequest(String),
    /// 404: the node does not have the pod.
    #[error("{0}")]
    NotFound(String),
    /// 500: it failed.
    #[error("{0}")]
    Failed(String),
}

/// The nodes that were introduced, by name.
#[derive(Default)]
pub(crate) struct Nodes(Mutex<HashMap<String, Arc<dyn Node>>>);

impl Nodes {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<dyn Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// A node is reachable as long as this lives.
pub struct Introduced {
    cluster: Cluster,
    name: String,
    node: Arc<dyn Node>,
}

impl Cluster {
    /// Makes a node reachable under the name of its Node object. A node of the same name that was there before is not any
    /// more.
    pub fn introduce(&self, name: &str, node: Arc<dyn Node>) -> Introduced {
        let mut nodes = self.nodes().0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(name.to_owned(), node.clone());
        Introduced { cluster: self.clone(), name: name.to_owned(), node }
    }
}

impl Drop for Introduced {
    fn drop(&mut self) {
        let mut nodes = self.cluster.nodes().0.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.get(&self.name).is_some_and(|node| Arc::ptr_eq(node, &self.node)) {
            nodes.remove(&self.name);
        }
    }
}
