//! The revisions of templates, as StatefulSets and DaemonSets keep them.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch};
use reconcile::Key;
use rules::meta::controller_of;
use rules::revisions::{self, Step};
use serde_json::json;

use crate::api;
use crate::context::Context;

/// Index of revisions by the uid of their owner.
const BY_OWNER: &str = "owner";

/// Says that revisions are needed, by owner.
pub(crate) fn wanted(context: &Context) -> crate::kinds::Kind<ControllerRevision> {
    let revisions = context.kinds.controller_revisions.wanted();
    revisions.index(BY_OWNER, |revision| {
        controller_of(&revision.metadata).map(|owner| owner.uid.clone()).into_iter().collect()
    });
    revisions
}

/// The revisions of an owner.
pub(crate) fn of(context: &Context, uid: &str) -> Vec<Arc<ControllerRevision>> {
    context.kinds.controller_revisions.by(BY_OWNER, uid)
}

/// Writes a step of history. Returns whether another template has the name already: then the next name is made from a
/// higher count of collisions.
pub(crate) async fn write(context: &Context, owner: &Key, step: &Step) -> Result<bool, Error> {
    let all: Api<ControllerRevision> = Api::namespaced(context.client.clone(), &owner.namespace);
    let failed = |source| Error { owner: owner.clone(), source };
    match step {
        Step::Renumber { name, revision } => {
            let patch = Patch::Merge(json!({"revision": revision}));
            let written = all.patch(name, &api::patch(), &patch).await.map_err(failed)?;
            context.kinds.controller_revisions.put(written);
        }
        // What others made a moment ago counts, too, and a cache may not know it yet.
        Step::Create(revision) if is_outnumbered(context, &all, revision).await.map_err(failed)? => {}
        Step::Create(revision) => match all.create(&api::post(), revision).await {
            Ok(written) => context.kinds.controller_revisions.put(written),
            Err(error) if api::is_already_exists(&error) => {
                let existing = all.get(&revision.name_any()).await.map_err(failed)?;
                if revisions::template(&existing) != revisions::template(revision) {
                    return Ok(true);
                }
                context.kinds.controller_revisions.put(existing);
            }
            Err(error) => return Err(failed(error)),
        },
    }
    Ok(false)
}

/// Whether a revision of the same owner is there that is not older than a new one would be. Those are known from now on.
async fn is_outnumbered(
    context: &Context,
    all: &Api<ControllerRevision>,
    new: &ControllerRevision,
) -> kube::Result<bool> {
    let owner = controller_of(&new.metadata).map(|owner| &owner.uid);
    let mut found = false;
    for there in all.list(&ListParams::default()).await?.items {
        let is_its = controller_of(&there.metadata).map(|owner| &owner.uid) == owner;
        if is_its && there.revision >= new.revision {
            context.kinds.controller_revisions.put(there);
            found = true;
        }
    }
    Ok(found)
}

/// Deletes revisions.
pub(crate) async fn forget(context: &Context, owner: &Key, names: &[String]) -> Result<(), Error> {
    let all: Api<ControllerRevision> = Api::namespaced(context.client.clone(), &owner.namespace);
    for name in names {
        match all.delete(name, &api::delete(None, None)).await {
            Ok(_) => {}
            Err(error) if api::is_not_found(&error) => {}
            Err(source) => return Err(Error { owner: owner.clone(), source }),
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write the history of {owner}")]
pub(crate) struct Error {
    owner: Key,
    source: kube::Error,
}
