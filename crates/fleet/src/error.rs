//! What keeps a cluster or a fleet from starting.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a cluster or a fleet did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its data could not be opened.
    #[error("failed to open the store of cluster {cluster}")]
    Store {
        /// Which cluster.
        cluster: String,
        /// What the store said.
        source: store::error::Open,
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
        source: apiserver::status::Refusal,
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
    /// A kubeconfig could not be written.
    #[error("failed to write the kubeconfig {path}")]
    Kubeconfig {
        /// Where.
        path: PathBuf,
        /// What went wrong.
        source: apiserver::credentials::Error,
    },
}
