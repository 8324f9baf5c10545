//! What controllers do to the pods that they own: claim, create, delete, and tell of it.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch};
use kube::{Resource, ResourceExt as _};
use reconcile::Key;
use rules::replicas::{Claim, PodRef};
use serde::de::DeserializeOwned;

use crate::api;
use crate::context::Context;

/// Adopts pods and lets go of others. Before one is adopted its new owner is looked at again, past the cache: one that is
/// being deleted adopts nothing.
pub(crate) async fn claim<K>(context: &Context, owner: &K, key: &Key, claims: &[Claim]) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    if claims.iter().any(|claim| claim.adopts) {
        let owners: Api<K> = Api::namespaced(context.client.clone(), &key.namespace);
        let fresh = owners.get_opt(&key.name).await;
        let fresh = fresh.map_err(|source| Error::Read { owner: key.clone(), source })?;
        let same =
            |fresh: &K| fresh.meta().uid == owner.meta().uid && fresh.meta().deletion_timestamp.is_none();
        if !fresh.is_some_and(|fresh| same(&fresh)) {
            return Err(Error::Changed { owner: key.clone() });
        }
    }
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    for claim in claims {
        match pods.patch(&claim.pod.name, &api::patch(), &Patch::Strategic(&claim.patch)).await {
            Ok(pod) => context.kinds.pods.put(pod),
            Err(error) if api::is_not_found(&error) => {}
            Err(error) if api::is_invalid(&error) && !claim.adopts => {}
            Err(source) => return Err(Error::Claim { pod: claim.pod.name.clone(), source }),
        }
    }
    Ok(())
}

/// Creates a pod of an owner, and tells of it. Returns what kept it from being created.
pub(crate) async fn create<K>(
    context: &Context,
    source: &'static str,
    owner: &K,
    pod: &Pod,
) -> Result<(), String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync,
{
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &owner.namespace().unwrap_or_default());
    match pods.create(&api::post(), pod).await {
        Ok(created) => {
            let message = format!("Created pod: {}", created.name_any());
            context.events.tell(source, owner, "Normal", "SuccessfulCreate", message);
            context.kinds.pods.put(created);
            Ok(())
        }
        Err(error) if api::is_namespace_terminating(&error) => Ok(()),
        Err(error) => {
            let error = api::message(&error);
            let message = format!("Error creating: {error}");
            context.events.tell(source, owner, "Warning", "FailedCreate", message);
            Err(error)
        }
    }
}

/// Deletes a pod of an owner, and tells of it. Returns what kept it from being deleted.
pub(crate) async fn delete<K>(
    context: &Context,
    source: &'static str,
    owner: &K,
    pod: &PodRef,
) -> Result<(), String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Sync,
{
    match remove(context, &owner.namespace().unwrap_or_default(), pod).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            let message = format!("Deleted pod: {}", pod.name);
            context.events.tell(source, owner, "Normal", "SuccessfulDelete", message);
            Ok(())
        }
        Err(error) => {
            let error = api::message(&error);
            let message = format!("Error deleting: {error}");
            context.events.tell(source, owner, "Warning", "FailedDelete", message);
            Err(error)
        }
    }
}

/// Deletes a pod, and nobody else of its name. Returns whether there was one.
pub(crate) async fn remove(context: &Context, namespace: &str, pod: &PodRef) -> kube::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), namespace);
    match pods.delete(&pod.name, &api::delete(Some(&pod.uid), None)).await {
        Ok(answer) => {
            if let Some(deleted) = answer.left() {
                context.kinds.pods.put(deleted);
            }
            Ok(true)
        }
        Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("failed to read {owner}")]
    Read { owner: Key, source: kube::Error },
    #[error("{owner} is another by now")]
    Changed { owner: Key },
    #[error("failed to change the owner of pod {pod}")]
    Claim { pod: String, source: kube::Error },
}
