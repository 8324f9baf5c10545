//! What can go wrong between asking for a control plane and having one.

use std::{io, path::PathBuf};

use super::BinaryError;

/// Why there is no control plane, or why it does not do as told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program is missing.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// A program ended where it should run.
    #[error("{program} ended with {status}, its log {} says:\n{tail}", log.display())]
    Ended {
        /// Which one.
        program: &'static str,
        /// How.
        status: String,
        /// Where all of its output is.
        log: PathBuf,
        /// The last of it.
        tail: String,
    },
    /// A program runs and is not ready.
    #[error("{what} not ready after {seconds} s: {last}; logs in {}", logs.display())]
    NotReady {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        seconds: u64,
        /// What it answered last.
        last: String,
        /// Where the logs are.
        logs: PathBuf,
    },
    /// No two free ports in many tries.
    #[error("found no free port on the loopback interface")]
    NoFreePort,
    /// Keys and certificates.
    #[error("failed to make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A kubeconfig that the client does not understand.
    #[error("failed to load the kubeconfig")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The API server refused or did not answer.
    #[error("failed to {what}")]
    Request {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: kube::Error,
    },
    /// Files, processes and sockets.
    #[error("failed to {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Somebody else listens where a program should have: another port will do.
    pub(crate) fn is_port_taken(&self) -> bool {
        matches!(self, Error::Ended { tail, .. } if tail.contains("address already in use"))
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }

    pub(crate) fn request(what: &'static str) -> impl FnOnce(kube::Error) -> Error {
        move |source| Error::Request { what, source }
    }
}
