//! Small words about requests that all controllers use.

use futures::future::BoxFuture;
use futures::{StreamExt as _, stream};
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions, PropagationPolicy};

/// Who the controllers are in `metadata.managedFields`, as on a cluster of Kubernetes' own.
pub(crate) const MANAGER: &str = "kube-controller-manager";

/// The parameters of a create or an update.
pub(crate) fn post() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// The parameters of a patch.
pub(crate) fn patch() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// The parameters of a delete that hits no other object of the same name.
pub(crate) fn delete(uid: Option<&str>, policy: Option<PropagationPolicy>) -> DeleteParams {
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
    DeleteParams { preconditions, propagation_policy: policy, ..DeleteParams::default() }
}

/// The object is not there.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The object is another one by now, or another version.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason != "AlreadyExists")
}

/// The change is not allowed, by the rules of the kind or by somebody who has a say in it.
pub(crate) fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// There is an object of that name.
pub(crate) fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Nothing new is let into the namespace, because it is being deleted.
pub(crate) fn is_namespace_terminating(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// What the API server said, or what kept it from saying anything.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => reconcile::chain(error),
    }
}

/// Does things, some at once, and returns their results in the order of the things.
pub(crate) async fn together<T: Send>(at_once: usize, things: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    stream::iter(things).buffered(at_once).collect().await
}
