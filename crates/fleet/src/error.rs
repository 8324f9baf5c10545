//! What keeps a cluster or a fleet from starting.

use std::net::SocketAddr;

/// Why the data of a cluster could not be opened.
pub use store::error::Open;

/// Why a cluster or a fleet did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its data could not be opened.
    #[error("failed to open the store of cluster {cluster}")]
    Store {
        /// Which cluster.
        cluster: String,
        /// What the store said.
        source: Open,
    },
    /// Its certificates or its token could not be made or read.
    #[error("failed to make the credentials of cluster {cluster}")]
    Credentials {
        /// Which cluster.
        cluster: String,
        /// What went wrong.
        source: apiserver::credentials::Error,
    },
    /// Its key for tokens cannot be used.
    #[error("failed to read the signing key of cluster {cluster}")]
    Signer {
        /// Which cluster.
        cluster: String,
        /// What is wrong with it.
        source: apiserver::auth::signer::Unusable,
    },
    /// Its first objects could not be written.
    #[error("failed to prepare cluster {cluster}")]
    Prepare {
        /// Which cluster.
        cluster: String,
        /// What the API server said.
        source: Box<apiserver::status::Refusal>,
    },
    /// Its address could not be listened on.
    #[error("failed to serve cluster {cluster} on {address}")]
    Serve {
        /// Which cluster.
        cluster: String,
        /// Where.
        address: SocketAddr,
        /// What went wrong.
        source: apiserver::serve::Error,
    },
    /// Its nodes could not be started.
    #[error("failed to start the nodes of cluster {cluster}")]
    Nodes {
        /// Which cluster.
        cluster: String,
        /// What went wrong.
        source: runner::Error,
    },
    /// The definitions that queues need could not be installed.
    #[error("failed to prepare the queues of cluster {cluster}")]
    Definitions {
        /// Which cluster.
        cluster: String,
        /// What went wrong.
        source: operator::definitions::Error,
    },
    /// An object of the fleet's queues could not be written.
    #[error("failed to lay out {kind} {name} on cluster {cluster}")]
    LayOut {
        /// Which cluster.
        cluster: String,
        /// The kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// What the cluster said.
        source: Box<kube::Error>,
    },
    /// A name that no worker can have.
    #[error("{name:?} cannot be the name of a worker: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A fleet needs somebody to do the work.
    #[error("a fleet needs at least one worker")]
    NoWorkers,
}
