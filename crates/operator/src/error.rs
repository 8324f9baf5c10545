//! What can go wrong between the operator and its cluster.

use reconcile::Key;

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A write to a Workload.
    #[error("failed to {doing} workload {workload}")]
    Workload {
        /// What was being done.
        doing: &'static str,
        /// Which.
        workload: Key,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A write to a Job.
    #[error("failed to {doing} {kind} {job}")]
    Job {
        /// What was being done.
        doing: &'static str,
        /// Of which kind.
        kind: &'static str,
        /// Which.
        job: Key,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A write to something that an administrator set up.
    #[error("failed to {doing} {kind} {name}")]
    Object {
        /// What was being done.
        doing: &'static str,
        /// Of which kind.
        kind: &'static str,
        /// Which.
        name: Key,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// Something that a Job refers to is not there.
    #[error("{kind} {job} waits for what is not there: {why}")]
    Missing {
        /// Of which kind.
        kind: &'static str,
        /// Which.
        job: Key,
        /// What.
        why: String,
    },
    /// A Job is part of another, which is part of another, and so on.
    #[error("{kind} {job} is part of more than {limit} others")]
    TooDeep {
        /// Of which kind.
        kind: &'static str,
        /// Which.
        job: Key,
        /// How many there may be.
        limit: usize,
    },
    /// The Lease that says who acts.
    #[error("failed to {doing} the lease {name}")]
    Lease {
        /// What was being done.
        doing: &'static str,
        /// Which.
        name: Key,
        /// Why it failed.
        source: Box<kube::Error>,
    },
}

/// Whether a write failed only because the object changed since it was read, or is gone. Either comes back as an
/// event, and the next decision sees it.
pub(crate) fn is_outdated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// Whether an object is not there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
