//! Where the files of embedded clusters are: beside their data, or where temporary files go.

mod scratch;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::failure::Hint as _;
use scratch::Scratch;

/// Where the files of embedded clusters are.
pub(crate) enum Place {
    /// Where they stay.
    Data(PathBuf),
    /// Where they go with this process.
    Scratch(Scratch),
}

impl Place {
    /// Here, or among temporary files.
    pub(crate) fn of(data: Option<&Path>) -> anyhow::Result<Place> {
        match data {
            Some(dir) => Ok(Place::Data(std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()))),
            None => Place::scratch(),
        }
    }

    /// Among temporary files. Those of processes that were killed go first.
    pub(crate) fn scratch() -> anyhow::Result<Place> {
        let made = Scratch::make().context("failed to make a temporary directory");
        Ok(Place::Scratch(
            made.hint("TMPDIR says where temporary files go: it has to be there, and writable")?,
        ))
    }

    /// The directory of all of them.
    pub(crate) fn directory(&self) -> &Path {
        match self {
            Place::Data(dir) => dir,
            Place::Scratch(scratch) => scratch.directory(),
        }
    }

    /// Where nodes have the files of their pods.
    pub(crate) fn nodes(&self) -> PathBuf {
        nodes_in(self.directory())
    }

    /// Where it is said how the clusters are reached.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig_in(self.directory())
    }

    /// Removes what nobody will need any more, once the clusters have stopped. Blocks.
    pub(crate) fn leave(self) -> anyhow::Result<()> {
        match self {
            Place::Data(_) => Ok(()),
            Place::Scratch(scratch) => {
                let directory = scratch.directory().display().to_string();
                let removed = scratch.remove().with_context(|| format!("failed to remove {directory}"));
                removed.hint(format!("nobody needs it any more: rm -r {directory}"))
            }
        }
    }
}

/// The kubeconfig of embedded clusters, beside their data.
pub(crate) fn kubeconfig_in(data: &Path) -> PathBuf {
    data.join("kubeconfig")
}

/// The files of the nodes of embedded clusters, beside their data.
pub(crate) fn nodes_in(data: &Path) -> PathBuf {
    data.join("nodes")
}
