//! Calls to clusters: each ends in time, and says how it failed in a way that can be acted on.

use std::{future::Future, time::Duration};

/// What can go wrong with a step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A cluster said no, or could not be asked.
    #[error("failed to {doing} on {cluster}")]
    Call {
        /// What was being done.
        doing: &'static str,
        /// Where.
        cluster: String,
        /// What it said.
        source: kube::Error,
    },
    /// A cluster said nothing in time.
    #[error("failed to {doing} on {cluster}: no answer in {after:?}")]
    Silence {
        /// What was being done.
        doing: &'static str,
        /// Where.
        cluster: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// Another cluster answers under a name than the one that has jobs.
    #[error(
        "the cluster {now} answers, and jobs may still run on {before}, which had this name: give the name back to it, or say \
         that it is gone with `ferry drain --given-up {cluster}`"
    )]
    AnotherCluster {
        /// The name.
        cluster: String,
        /// Who had it.
        before: String,
        /// Who answers.
        now: String,
    },
}

/// The management cluster, in errors.
pub(super) const MANAGER: &str = "the management cluster";

/// Waits for an answer, but not forever.
pub(super) async fn within<T>(
    deadline: Duration,
    doing: &'static str,
    cluster: &str,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(deadline, call).await {
        Ok(answer) => answer.map_err(|source| Error::Call { doing, cluster: cluster.to_owned(), source }),
        Err(_) => Err(Error::Silence { doing, cluster: cluster.to_owned(), after: deadline }),
    }
}

impl Error {
    /// The status that a cluster answered with.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Error::Call { source: kube::Error::Api(status), .. } => Some(status.code),
            Error::Call { .. } | Error::Silence { .. } | Error::AnotherCluster { .. } => None,
        }
    }

    /// Whether the object was changed, or is another one, since it was read.
    pub(super) fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the object is not there.
    pub(super) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether an object of that name is there already.
    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Error::Call { source: kube::Error::Api(status), .. } if status.reason == "AlreadyExists")
    }

    /// Whether the cluster took a look at the request and will not have it: asking again will not help soon.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.code(), Some(400 | 403 | 404 | 405 | 422))
    }

    /// Whether the request may have been carried out nevertheless, now or later.
    pub(super) fn is_in_doubt(&self) -> bool {
        !matches!(self.code(), Some(400..500))
    }

    /// What the cluster said.
    pub(super) fn said(&self) -> String {
        match self {
            Error::Call { source: kube::Error::Api(status), .. } => status.message.clone(),
            other => reconcile::chain(other),
        }
    }
}
