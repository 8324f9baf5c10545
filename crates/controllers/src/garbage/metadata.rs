//! Of an object no more than its garbage collection takes: there is one for everything in the cluster.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};

/// Which object it is, in which version, whose it is, and whether it is going. Nothing else of the metadata is read.
#[derive(Debug, Clone)]
pub(super) struct Metadata(pub(super) ObjectMeta);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object { metadata } = Object::deserialize(deserializer)?;
        Ok(Metadata(ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            owner_references: metadata.owner_references,
            finalizers: metadata.finalizers,
            deletion_timestamp: metadata.deletion_timestamp,
            ..ObjectMeta::default()
        }))
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Read,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<Time>,
}

impl Resource for Metadata {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use rules::garbage::Object;
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_decides_is_read() {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o", "controller": true});
        let metadata = json!({
            "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "ownerReferences": [owner],
            "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"},
        });
        let whole: ObjectMeta = serde_json::from_value(metadata.clone()).expect("metadata");
        let value =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        let read: Metadata = serde_json::from_value(value).expect("metadata");
        let of = |meta: &ObjectMeta| Object::read("", "v1", "Pod", meta);
        assert_eq!(of(&read.0), of(&whole));
        assert_eq!(read.0.labels, None);
    }
}
