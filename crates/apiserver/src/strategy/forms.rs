//! Resources whose objects are kept in another form than their clients see, because two resources keep the same objects.

use bytes::Bytes;
use rules::kind::autoscaling::{from_v2, to_v2};
use rules::kind::core::{from_core, to_core};
use serde_json::Value;

use crate::registry::{Registry, Resource};

/// The two ways between the forms.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    to_kept: fn(&Value) -> Value,
    from_kept: fn(&Value) -> Value,
    /// Group, version and plural name of the resource in whose form they are kept.
    kept_as: (&'static str, &'static str, &'static str),
    /// The type that clients see.
    seen: schema::Type,
}

/// The form of a resource, if it is not the one in which its objects are kept.
pub(crate) fn of(resource: &Resource) -> Option<Form> {
    match (resource.group.as_str(), resource.version.as_str(), resource.plural.as_str()) {
        ("events.k8s.io", _, "events") => Some(Form {
            to_kept: to_core,
            from_kept: from_core,
            kept_as: ("", "v1", "events"),
            seen: resource.of_type(),
        }),
        ("autoscaling", "v1", "horizontalpodautoscalers") => Some(Form {
            to_kept: to_v2,
            from_kept: from_v2,
            kept_as: ("autoscaling", "v2", "horizontalpodautoscalers"),
            seen: resource.of_type(),
        }),
        _ => None,
    }
}

impl Form {
    /// An object as it is kept.
    pub(crate) fn kept(&self, object: &Value) -> Value {
        schema::encode(self.kept_as().of_type(), &(self.to_kept)(object))
    }

    /// An object as clients see it.
    pub(crate) fn seen(&self, kept: &Value) -> Value {
        schema::encode(self.seen, &(self.from_kept)(kept))
    }

    /// The stored bytes of an object as clients see them.
    pub(crate) fn seen_bytes(&self, bytes: &[u8]) -> Bytes {
        let kept: Value = serde_json::from_slice(bytes).expect("what was stored is JSON");
        serde_json::to_vec(&self.seen(&kept)).expect("JSON prints").into()
    }

    /// What a client sent, in the form in which it is judged and kept. Nothing is added to it.
    pub(crate) fn sent(&self, body: &Value) -> Value {
        (self.to_kept)(body)
    }

    /// The resource in whose form objects are kept.
    pub(crate) fn kept_as(&self) -> &'static Resource {
        let (group, version, plural) = self.kept_as;
        Registry::built_in().get(group, version, plural).expect("the resource is built in")
    }
}
