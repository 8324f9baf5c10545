//! Lets storage go that was deleted, once nobody uses it any more: claims, volumes and classes of attributes are held by
//! a finalizer each from the beginning.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::api::{Api, Patch};
use kube::{Resource, ResourceExt as _};
use reconcile::{Key, Next, Queue};
use rules::protection::{claims_of, is_claim_in_use, is_class_in_use, is_volume_in_use};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::context::Context;
use crate::{Run, api};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";
const CLASS: &str = "kubernetes.io/vac-protection";

/// Objects that are worked on at once.
const AT_ONCE: usize = 8;

#[derive(Debug, thiserror::Error)]
#[error("failed to let go of {key}")]
struct Error {
    key: Key,
    source: kube::Error,
}

/// Says what the controller of claims watches, and returns its work.
pub(crate) fn prepare_claims(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let (claims, pods) = (context.kinds.volume_claims.wanted(), context.kinds.pods.wanted());
    let line = queue.clone();
    claims.on_change(move |change| {
        if change.new.is_some_and(|claim| is_held(&**claim, CLAIM)) {
            line.add(change.key.clone());
        }
    });
    let line = queue.clone();
    pods.on_change(move |change| {
        for pod in change.old.iter().chain(change.new.iter()) {
            for claim in claims_of(pod) {
                line.add(Key::new(&change.key.namespace, &claim));
            }
        }
    });
    let context = context.clone();
    Box::pin(async move {
        claims.ready().await;
        pods.ready().await;
        let work = |key: Key| {
            let (context, claims, pods) = (context.clone(), claims.clone(), pods.clone());
            async move {
                let Some(claim) = claims.get(&key).filter(|claim| is_held(&**claim, CLAIM)) else {
                    return Ok(Next::Done);
                };
                let pods = pods.all();
                if is_claim_in_use(&claim, pods.iter().map(|pod| &**pod)) {
                    return Ok(Next::Done);
                }
                let api: Api<PersistentVolumeClaim> = Api::namespaced(context.client.clone(), &key.namespace);
                let_go(&api, &*claim, CLAIM).await.map_err(|source| Error { key, source })
            }
        };
        queue.run(AT_ONCE, work).await;
    })
}

/// Says what the controller of volumes watches, and returns its work.
pub(crate) fn prepare_volumes(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let volumes = context.kinds.volumes.wanted();
    let line = queue.clone();
    volumes.on_change(move |change| {
        if change.new.is_some_and(|volume| is_held(&**volume, VOLUME)) {
            line.add(change.key.clone());
        }
    });
    let context = context.clone();
    Box::pin(async move {
        volumes.ready().await;
        let work = |key: Key| {
            let (context, volumes) = (context.clone(), volumes.clone());
            async move {
                let held = volumes.get(&key).filter(|volume| is_held(&**volume, VOLUME));
                let Some(volume) = held.filter(|volume| !is_volume_in_use(volume)) else {
                    return Ok(Next::Done);
                };
                let api: Api<PersistentVolume> = Api::all(context.client.clone());
                let_go(&api, &*volume, VOLUME).await.map_err(|source| Error { key, source })
            }
        };
        queue.run(AT_ONCE, work).await;
    })
}

/// Says what the controller of classes watches, and returns its work.
pub(crate) fn prepare_classes(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (classes, claims, volumes) =
        (kinds.attributes_classes.wanted(), kinds.volume_claims.wanted(), kinds.volumes.wanted());
    let line = queue.clone();
    classes.on_change(move |change| {
        if change.new.is_some_and(|class| is_held(&**class, CLASS)) {
            line.add(change.key.clone());
        }
    });
    let (line, known) = (queue.clone(), classes.clone());
    let look = move || {
        for class in known.all().iter().filter(|class| is_held(&***class, CLASS)) {
            line.add(Key::of(&**class));
        }
    };
    let again = look.clone();
    let (users, others) = (claims.clone(), volumes.clone());
    let ready = classes.clone();
    users.on_change(move |change| {
        if change.old.is_some() && ready.is_ready() {
            look();
        }
    });
    let ready = classes.clone();
    others.on_change(move |change| {
        if change.old.is_some() && ready.is_ready() {
            again();
        }
    });
    let context = context.clone();
    Box::pin(async move {
        classes.ready().await;
        claims.ready().await;
        volumes.ready().await;
        let work = |key: Key| {
            let context = context.clone();
            let (classes, claims, volumes) = (classes.clone(), claims.clone(), volumes.clone());
            async move {
                let Some(class) = classes.get(&key).filter(|class| is_held(&**class, CLASS)) else {
                    return Ok(Next::Done);
                };
                let (claims, volumes) = (claims.all(), volumes.all());
                let (claims, volumes) =
                    (claims.iter().map(|claim| &**claim), volumes.iter().map(|volume| &**volume));
                if is_class_in_use(&class.name_any(), claims, volumes) {
                    return Ok(Next::Done);
                }
                let api: Api<VolumeAttributesClass> = Api::all(context.client.clone());
                let_go(&api, &*class, CLASS).await.map_err(|source| Error { key, source })
            }
        };
        queue.run(AT_ONCE, work).await;
    })
}

/// Whether an object was deleted and is held by this finalizer.
fn is_held(object: &impl Resource, finalizer: &str) -> bool {
    object.meta().deletion_timestamp.is_some() && object.finalizers().iter().any(|known| known == finalizer)
}

/// Takes the finalizer away, if the object is still the one that was looked at.
async fn let_go<K>(api: &Api<K>, object: &K, finalizer: &str) -> kube::Result<Next>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let others: Vec<&String> = object.finalizers().iter().filter(|known| *known != finalizer).collect();
    let meta =
        json!({"uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": others});
    match api.patch(&object.name_any(), &api::patch(), &Patch::Merge(json!({"metadata": meta}))).await {
        Ok(_) => Ok(Next::Done),
        // Whoever changed it meanwhile brings it up again.
        Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => Ok(Next::Done),
        Err(error) => Err(error),
    }
}
