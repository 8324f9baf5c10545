//! Writes whose answers nobody reads.

use kube::api::PostParams;
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource};
use serde::Serialize;

/// Creates an object, and does not read what the cluster made of it.
pub async fn create_unread<K>(
    client: &Client,
    namespace: &str,
    params: &PostParams,
    object: &K,
) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), Some(namespace))).create(params, body);
    client.request_text(request.map_err(kube::Error::BuildRequest)?).await.map(drop)
}
