//! Jobs of kinds that others define, each by its [`Shape`].

use std::sync::Arc;

use kube::{Api, Client, core::DynamicObject};
use reconcile::{Cache, Key};
use rules::framework::{
    self, Kind, Observed,
    custom::{Pods, Shape, runtime_reference},
};
use serde_json::Value;

use super::Framework;
use crate::{Context, kinds};

/// The framework of one of them.
pub(crate) struct Custom(pub(crate) &'static Shape);

impl Framework for Custom {
    type Object = DynamicObject;

    fn kind(&self) -> Kind {
        self.0.kind
    }

    fn objects(&self, context: &Context) -> Option<Cache<DynamicObject>> {
        context.caches.kinds.seen(&self.0.kind)
    }

    fn api(&self, client: Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client, namespace, &kinds::resource(&self.0.kind))
    }

    fn observe<'a>(&'a self, object: &'a DynamicObject, context: &Context) -> Box<dyn Observed + 'a> {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let runtime = runtime(self.0, namespace, &object.data, context);
        Box::new(framework::custom::Custom::new(self.0, object, runtime))
    }
}

/// The runtime that a Job in a namespace refers to.
pub(crate) fn runtime(
    shape: &Shape,
    namespace: &str,
    object: &Value,
    context: &Context,
) -> Option<Arc<DynamicObject>> {
    if shape.pods != Pods::Runtime {
        return None;
    }
    let (kind, name) = runtime_reference(object);
    let of_cluster = kind == kinds::CLUSTER_TRAINING_RUNTIME.kind;
    let (kind, namespace) = if of_cluster {
        (&kinds::CLUSTER_TRAINING_RUNTIME, "")
    } else {
        (&kinds::TRAINING_RUNTIME, namespace)
    };
    context.caches.kinds.seen(kind)?.get(&Key::new(namespace, name))
}
