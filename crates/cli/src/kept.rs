//! Pods of a Job that are gone, whose logs a node of an embedded fleet has kept on this machine.

use std::path::PathBuf;

use rules::job;
use runner::kept::{self, Kept};

use crate::connect::Manager;
use crate::events::{HERE, SKEW};
use crate::view::View;

/// Those of a Job, the oldest first. None if the clusters are not embedded ones of this machine.
pub(crate) fn of(manager: &Manager, view: &View) -> Vec<Kept> {
    // What cannot be read is as good as gone.
    let kept = nodes(manager, view).flat_map(|node| kept::all(&node).unwrap_or_default());
    kept.filter(|kept| is_of(view, kept)).collect()
}

/// Whether the node that ran a Job is one of this machine.
pub(crate) fn is_possible(manager: &Manager, view: &View) -> bool {
    nodes(manager, view).any(|node| node.exists())
}

fn nodes(manager: &Manager, view: &View) -> impl Iterator<Item = PathBuf> {
    let node = fleet::node_of(view.cluster.as_deref().unwrap_or(HERE));
    manager.nodes().into_iter().map(move |nodes| nodes.join(&node))
}

fn is_of(view: &View, kept: &Kept) -> bool {
    let metadata = &kept.metadata;
    let name = metadata.labels.as_ref().and_then(|labels| labels.get(job::JOB_NAME_LABEL));
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    // An earlier Job of the same name had pods before this one was created.
    let is_later =
        created.zip(view.created).is_none_or(|(pod, job)| pod >= job.saturating_sub(SKEW).unwrap_or(job));
    view.kind == "Job"
        && name == Some(&view.name)
        && metadata.namespace.as_ref() == Some(&view.namespace)
        && is_later
}
