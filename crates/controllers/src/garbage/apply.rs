//! Asks the cluster about owners, and carries out what was decided.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, Preconditions, PropagationPolicy};
use reconcile::Next;
use rules::garbage::{FOREGROUND, ORPHAN, Object, Owner, Policy, Step};
use serde_json::json;

use super::{Collector, Error, SOURCE};
use crate::api;

/// Requests about the dependents of one object that are under way at once. An owner of many does not keep others waiting.
const AT_ONCE: usize = 32;
/// An object was written to between our look and our write: it is looked at again as soon as the watch has told.
const AGAIN: Next = Next::After(Duration::from_millis(50));

impl Collector {
    /// What became of the owners that the graph does not know; `None` if the object can not be judged at all.
    pub(super) async fn ask_for_owners(&self, uid: &str) -> Result<Option<BTreeMap<String, Owner>>, Error> {
        let (object, unknown) = {
            let graph = self.graph();
            let Some(object) = graph.get(uid).cloned() else { return Ok(None) };
            (object, graph.unknown_owners(uid))
        };
        let mut found = BTreeMap::new();
        for reference in unknown {
            let Some(served) = self.kind_of(&reference.api_version, &reference.kind) else {
                return Err(Error::UnknownKind {
                    object: print(&object),
                    kind: reference.kind,
                    api_version: reference.api_version,
                });
            };
            // An object of no namespace cannot have an owner that is in one. It stays; nobody can say what was meant.
            if served.namespaced && object.namespace.is_empty() {
                return Ok(None);
            }
            let owners = self.objects(&served.resource, served.namespaced.then_some(&object.namespace));
            let owner = owners.get_metadata_opt(&reference.name).await.map_err(|source| {
                Error::ReadOwner { object: print(&object), owner: reference.name.clone(), source }
            })?;
            let owner = owner.filter(|owner| owner.metadata.uid.as_ref() == Some(&reference.uid));
            let state = owner.map_or(Owner::Absent, |owner| {
                let finalizers = owner.metadata.finalizers.unwrap_or_default();
                let waits = owner.metadata.deletion_timestamp.is_some();
                let waits = waits && finalizers.iter().any(|finalizer| finalizer == FOREGROUND);
                if waits { Owner::Waiting } else { Owner::Solid }
            });
            found.insert(reference.uid.clone(), state);
        }
        Ok(Some(found))
    }

    /// Tells whoever can mend it that a reference means nothing.
    pub(super) fn report_owners_elsewhere(&self, uid: &str) {
        let (object, elsewhere) = {
            let graph = self.graph();
            (graph.get(uid).cloned(), graph.owners_elsewhere(uid))
        };
        let Some(object) = object else { return };
        for OwnerReference { api_version, kind, name, uid, .. } in elsewhere {
            let owner =
                format!("[{api_version}/{kind}, namespace: {}, name: {name}, uid: {uid}]", object.namespace);
            let message = format!("ownerRef {owner} does not exist in namespace {:?}", object.namespace);
            self.context.events.tell_of(
                SOURCE,
                reference(&object),
                "Warning",
                "OwnerRefInvalidNamespace",
                message,
            );
        }
    }

    pub(super) async fn apply(&self, object: &Object, step: Step) -> Result<Next, Error> {
        match step {
            Step::Nothing => Ok(Next::Done),
            Step::DropOwners(owners) => self.drop_owners(object, &owners).await,
            Step::WaitFor(dependents) => {
                for uid in dependents {
                    self.queue.add(uid);
                }
                Ok(Next::Done)
            }
            Step::FinishForeground => self.drop_finalizer(object, FOREGROUND).await,
            Step::Orphan(dependents) => {
                let dependents: Vec<Object> = {
                    let graph = self.graph();
                    dependents.iter().filter_map(|uid| graph.get(uid).cloned()).collect()
                };
                let owner = [object.uid.clone()];
                let drops = dependents.iter().map(|dependent| self.drop_owners(dependent, &owner).boxed());
                for result in api::together(AT_ONCE, drops.collect()).await {
                    if result? != Next::Done {
                        return Ok(AGAIN);
                    }
                }
                self.drop_finalizer(object, ORPHAN).await
            }
            Step::Delete { policy, unblock } => {
                if unblock {
                    let mut owners = object.owners.clone();
                    for owner in &mut owners {
                        owner.block_owner_deletion = Some(false);
                    }
                    let next = self.change(object, json!({"ownerReferences": owners})).await?;
                    // The deletion is conditional on the version, which has just changed.
                    return Ok(if next == Next::Done { AGAIN } else { next });
                }
                self.delete(object, policy).await
            }
        }
    }

    async fn drop_owners(&self, object: &Object, uids: &[String]) -> Result<Next, Error> {
        let owners: Vec<&OwnerReference> =
            object.owners.iter().filter(|owner| !uids.contains(&owner.uid)).collect();
        self.change(object, json!({"ownerReferences": owners})).await
    }

    async fn drop_finalizer(&self, object: &Object, name: &str) -> Result<Next, Error> {
        let finalizers: Vec<&String> =
            object.finalizers.iter().filter(|finalizer| *finalizer != name).collect();
        self.change(object, json!({"finalizers": finalizers})).await
    }

    /// Changes the metadata of an object, if it is still as it was seen: lists are written whole, because not every
    /// kind knows how to change a part of one.
    async fn change(&self, object: &Object, mut metadata: serde_json::Value) -> Result<Next, Error> {
        metadata["uid"] = json!(object.uid);
        metadata["resourceVersion"] = json!(object.resource_version);
        let Some(resource) = self.resource(object) else { return Ok(Next::Done) };
        let objects = self.objects(&resource, Some(&object.namespace));
        let change = Patch::Merge(json!({"metadata": metadata}));
        match objects.patch_metadata(&object.name, &api::patch(), &change).await {
            Ok(changed) => {
                let going = changed.metadata.deletion_timestamp.is_some();
                let changed = Object::read(&object.group, &object.version, &object.kind, &changed.metadata);
                // The last answer about an object that is gone with this change looks like any other: the watch tells.
                if let Some(changed) = changed.filter(|_| !going) {
                    self.seen(changed);
                }
                Ok(Next::Done)
            }
            Err(error) if api::is_not_found(&error) => Ok(Next::Done),
            Err(error) if api::is_conflict(&error) => Ok(AGAIN),
            Err(source) => Err(Error::Change { object: print(object), source }),
        }
    }

    async fn delete(&self, object: &Object, policy: Policy) -> Result<Next, Error> {
        let policy = match policy {
            Policy::Background => PropagationPolicy::Background,
            Policy::Foreground => PropagationPolicy::Foreground,
            Policy::Orphan => PropagationPolicy::Orphan,
        };
        let preconditions = Preconditions {
            uid: Some(object.uid.clone()),
            resource_version: Some(object.resource_version.clone()),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        let Some(resource) = self.resource(object) else { return Ok(Next::Done) };
        let objects = self.objects(&resource, Some(&object.namespace));
        match objects.delete(&object.name, &params).await {
            Ok(_) => Ok(Next::Done),
            Err(error) if api::is_not_found(&error) => Ok(Next::Done),
            Err(error) if api::is_conflict(&error) => Ok(AGAIN),
            Err(source) => Err(Error::Delete { object: print(object), source }),
        }
    }

    fn objects(&self, resource: &ApiResource, namespace: Option<&String>) -> Api<DynamicObject> {
        let client = self.context.client.clone();
        match namespace.filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
            None => Api::all_with(client, resource),
        }
    }

    /// How its kind is asked for; `None` if it is not served any more.
    fn resource(&self, object: &Object) -> Option<ApiResource> {
        Some(self.kind_of(&api_version(object), &object.kind)?.resource)
    }
}

fn api_version(object: &Object) -> String {
    if object.group.is_empty() {
        object.version.clone()
    } else {
        format!("{}/{}", object.group, object.version)
    }
}

fn reference(object: &Object) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version(object)),
        kind: Some(object.kind.clone()),
        namespace: Some(object.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        name: Some(object.name.clone()),
        uid: Some(object.uid.clone()),
        ..ObjectReference::default()
    }
}

fn print(object: &Object) -> String {
    let Object { kind, namespace, name, .. } = object;
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}
