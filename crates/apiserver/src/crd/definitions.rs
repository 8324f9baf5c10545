//! What becomes of definitions that are stored: they get their names, their kinds are served, and when they go, their
//! objects go first (3.21–3.23).
//!
//! One task follows the stored definitions. A kind is served before anybody can read that it is established, and a
//! client whose write of a definition is answered finds it carried out.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rules::wire;
use serde_json::Value;
use store::{Object, Revision, Scope, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::conversion::Converter;
use super::definition::{self, FINALIZER, is_established};
use super::kind::{Custom, Kind};
use crate::cluster::{Cluster, Handle};
use crate::object;
use crate::registry::{Registry, Resource, Subresource};

/// Where definitions are stored.
const STORED_AS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// All definitions, and the kinds that are served because of them.
pub(crate) struct Definitions {
    cluster: Handle,
    store: Store,
    registry: watch::Sender<Arc<Registry>>,
    handled: watch::Sender<Revision>,
    converters: Arc<[Arc<dyn Converter>]>,
    known: BTreeMap<String, Known>,
    /// Removals that are under way, by name and uid.
    removals: JoinSet<()>,
}

/// A definition as it was last seen.
struct Known {
    definition: CustomResourceDefinition,
    stored: Value,
    kind: Option<Arc<Kind>>,
    is_removed: bool,
}

impl Definitions {
    /// Serves what is established, and returns what follows the rest.
    pub(crate) fn load(
        cluster: Handle,
        store: &Store,
        registry: watch::Sender<Arc<Registry>>,
        handled: watch::Sender<Revision>,
        converters: Arc<[Arc<dyn Converter>]>,
    ) -> (Self, store::Watch) {
        let (view, watch) = store.view_and_watch(&Scope::resource(STORED_AS));
        let mut definitions = Definitions {
            cluster,
            store: store.clone(),
            registry,
            handled,
            converters,
            known: BTreeMap::new(),
            removals: JoinSet::new(),
        };
        for object in view.list(&Scope::resource(STORED_AS)) {
            definitions.see(object.key.name(), Some(object));
        }
        definitions.publish();
        (definitions, watch)
    }

    /// Follows definitions until the cluster is gone.
    pub(crate) async fn run(mut self, mut watch: store::Watch) {
        let names: Vec<String> = self.known.keys().cloned().collect();
        for name in names {
            self.carry_out(&name).await;
        }
        loop {
            let event = match watch.next().await {
                Some(Ok(event)) => event,
                // What was missed is seen again; definitions are few.
                Some(Err(why)) => {
                    tracing::warn!(%why, "definitions changed faster than they were followed");
                    let (again, rest) = Definitions::load(
                        self.cluster.clone(),
                        &self.store,
                        self.registry.clone(),
                        self.handled.clone(),
                        self.converters.clone(),
                    );
                    self = again;
                    watch = rest;
                    continue;
                }
                None => return,
            };
            let name = event.key().name().to_owned();
            let group = self.known.get(&name).map(|known| known.definition.spec.group.clone());
            self.see(&name, event.after());
            self.carry_out(&name).await;
            // Names that one gives up others may take.
            let group = self.known.get(&name).map(|known| known.definition.spec.group.clone()).or(group);
            let others = self.known.iter().filter(|(other, known)| {
                **other != name && Some(&known.definition.spec.group) == group.as_ref()
            });
            let others: Vec<String> = others.map(|(other, _)| other.clone()).collect();
            for other in others {
                self.carry_out(&other).await;
            }
            self.handled.send_replace(event.revision());
        }
    }

    /// Takes note of a definition, or of its end, and serves it as it now says.
    fn see(&mut self, name: &str, object: Option<&Arc<Object>>) {
        let Some(object) = object else {
            if let Some(kind) = self.known.remove(name).and_then(|known| known.kind) {
                kind.end();
                self.publish();
            }
            return;
        };
        let stored = object::read(object);
        let definition: CustomResourceDefinition = wire::typed(&stored);
        let before = self.known.remove(name);
        let same = before.as_ref().is_some_and(|before| {
            before.definition.spec == definition.spec
                && accepted_names(&before.definition) == accepted_names(&definition)
                && is_established(&before.definition) == is_established(&definition)
                && before.definition.metadata.uid == definition.metadata.uid
        });
        let kind = before.as_ref().and_then(|before| before.kind.clone());
        let is_removed = before.as_ref().is_some_and(|before| before.is_removed);
        let kind =
            if same || !is_established(&definition) { kind } else { Some(self.replaced(&definition, kind)) };
        if let Some(kind) = kind.as_ref().filter(|_| is_leaving(&definition)) {
            kind.leave();
        }
        self.known.insert(name.to_owned(), Known { definition, stored, kind, is_removed });
    }

    /// A definition that is to be served, in place of what was served.
    fn replaced(&self, definition: &CustomResourceDefinition, before: Option<Arc<Kind>>) -> Arc<Kind> {
        let kind = Kind::new(definition, &self.store, &self.converters, before.as_ref());
        if let Some(before) = before {
            before.end();
        }
        kind
    }

    /// Settles the names and conditions of a definition, or removes its objects and then itself.
    async fn carry_out(&mut self, name: &str) {
        let Some(known) = self.known.get(name) else { return };
        if is_leaving(&known.definition) {
            self.publish();
            self.remove(name);
            return;
        }
        let all = self.known.values().map(|known| &known.definition);
        let status = definition::settle(&known.definition, all, Timestamp::now());
        if known.definition.status.as_ref() == Some(&status) {
            self.publish();
            return;
        }
        let mut settled = known.definition.clone();
        settled.status = Some(status);
        let mut stored = known.stored.clone();
        stored["status"] = wire::untyped(&settled.status, &Value::Null);
        if is_established(&settled) {
            let before = known.kind.clone();
            let kind = self.replaced(&settled, before);
            if let Some(known) = self.known.get_mut(name) {
                known.kind = Some(kind);
                known.definition = settled;
            }
        }
        self.publish();
        // A write that comes too late is repeated when the change that was quicker is seen.
        put_status(&self.cluster, name, &stored).await;
    }

    /// Tells everybody what is served now.
    fn publish(&self) {
        let resources = self.known.values().flat_map(|known| {
            let served = known.kind.iter().filter(|kind| !kind.is_gone()).flat_map(Kind::served);
            served.map(|custom| resource(&known.definition, custom)).collect::<Vec<_>>()
        });
        self.registry.send_replace(Arc::new(Registry::with(resources)));
    }

    /// Starts to remove the objects of a definition, and then the definition.
    fn remove(&mut self, name: &str) {
        let Some(known) = self.known.get_mut(name) else { return };
        if std::mem::replace(&mut known.is_removed, true) {
            return;
        }
        let resource = known
            .kind
            .as_ref()
            .map(|kind| Arc::new(resource(&known.definition, Custom::stored_version(kind))));
        let (cluster, store, registry) = (self.cluster.clone(), self.store.clone(), self.registry.clone());
        let (name, stored) = (name.to_owned(), known.stored.clone());
        self.removals
            .spawn(async move { removal(&cluster, &store, &registry, &name, stored, resource).await });
        while self.removals.try_join_next().is_some() {}
    }
}

/// Deletes all objects of a definition, waits until the last of them is gone, and lets the definition go.
async fn removal(
    cluster: &Handle,
    store: &Store,
    registry: &watch::Sender<Arc<Registry>>,
    name: &str,
    mut stored: Value,
    resource: Option<Arc<Resource>>,
) {
    let (reason, message) = match &resource {
        None => ("NeverEstablished", "resource was never established"),
        Some(resource) => {
            condition(
                &mut stored,
                true,
                "InstanceDeletionInProgress",
                "CustomResource deletion is in progress",
            );
            put_status(cluster, name, &stored).await;
            let scope = Scope::resource(&object::storage_name(resource));
            let (view, mut watch) = store.view_and_watch(&scope);
            let Some(upgraded) = cluster.upgrade() else { return };
            for object in view.list(&scope) {
                upgraded.remove(resource, object.key.namespace(), object.key.name()).await;
            }
            drop(upgraded);
            while store.view().list(&scope).next().is_some() {
                // Whatever ends the watch, the next look at the store says whether anything is left.
                if !matches!(watch.next().await, Some(Ok(_))) {
                    return;
                }
            }
            ("InstanceDeletionCompleted", "removed all instances")
        }
    };
    // Others may write to the definition meanwhile; its finalizer is taken off whatever it has become.
    let key = store::Key::new(STORED_AS, "", name);
    while let Some(current) = store.get(&key) {
        let mut current = object::read(&current);
        if current["metadata"]["uid"] != stored["metadata"]["uid"] {
            return;
        }
        condition(&mut current, false, reason, message);
        if let Some(finalizers) = current["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            // Whoever hears that the definition is gone finds its kind gone.
            if let (true, Some(custom)) =
                (finalizers.is_empty(), resource.as_ref().and_then(|it| it.custom.as_ref()))
            {
                custom.kind().go();
                let is_gone =
                    |it: &Resource| it.custom.as_ref().is_some_and(|custom| custom.kind().is_gone());
                registry.send_modify(|served| *served = Arc::new(served.without(is_gone)));
            }
        }
        match put_status(cluster, name, &current).await {
            Some(StatusCode::CONFLICT) => {}
            _ => return,
        }
    }
}

fn condition(stored: &mut Value, holds: bool, reason: &str, message: &str) {
    let mut definition: CustomResourceDefinition = wire::typed(stored);
    let conditions = definition.status.get_or_insert_default().conditions.get_or_insert_default();
    definition::set_condition(conditions, "Terminating", holds, reason, message, Timestamp::now());
    stored["status"]["conditions"] = wire::untyped(conditions, &Value::Null);
}

/// Writes the status as any client would, so that it is followed who manages it.
async fn put_status(cluster: &Handle, name: &str, object: &Value) -> Option<StatusCode> {
    let cluster: Cluster = cluster.upgrade()?;
    let body = Bytes::from(serde_json::to_vec(object).expect("JSON prints"));
    let path = format!("{PATH}/{name}/status?fieldManager=kube-apiserver");
    let answer = cluster.answer(Request::put(path).body(body).expect("a request")).await;
    let code = answer.status();
    if !code.is_success() && code != StatusCode::CONFLICT && code != StatusCode::NOT_FOUND {
        tracing::warn!(definition = name, %code, "the status of a definition was not written");
    }
    Some(code)
}

fn is_leaving(definition: &CustomResourceDefinition) -> bool {
    let finalizers = definition.metadata.finalizers.iter().flatten();
    definition.metadata.deletion_timestamp.is_some() && finalizers.into_iter().any(|name| name == FINALIZER)
}

fn accepted_names(definition: &CustomResourceDefinition) -> Option<&impl PartialEq> {
    definition.status.as_ref().and_then(|status| status.accepted_names.as_ref())
}

/// A version of a definition as it is served and discovered.
fn resource(definition: &CustomResourceDefinition, custom: Custom) -> Resource {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let names = definition.status.as_ref().and_then(|status| status.accepted_names.clone());
    let names = names.unwrap_or_else(|| definition.spec.names.clone());
    let mut verbs =
        words(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    if is_leaving(definition) {
        verbs.retain(|verb| !matches!(verb.as_str(), "patch" | "create" | "update"));
    }
    let version = custom.version();
    let mut subresources = Vec::new();
    let changed = || words(&["get", "patch", "update"]);
    if version.has_status {
        let name = "status".to_owned();
        subresources.push(Subresource { name, kind: names.kind.clone(), of: None, verbs: changed() });
    }
    if version.scale.is_some() {
        let of = Some(("autoscaling".to_owned(), "v1".to_owned()));
        let (name, kind) = ("scale".to_owned(), "Scale".to_owned());
        subresources.push(Subresource { name, kind, of, verbs: changed() });
    }
    let storage = custom.kind().storage();
    let stored = format!("{}/{}/{}", version.names.group, storage.version, version.names.kind);
    let hash = ring::digest::digest(&ring::digest::SHA256, stored.as_bytes());
    Resource {
        group: version.names.group.clone(),
        version: version.version.clone(),
        kind: names.kind,
        plural: names.plural,
        singular: names.singular.unwrap_or_default(),
        namespaced: version.namespaced,
        verbs,
        short_names: names.short_names.unwrap_or_default(),
        categories: names.categories.unwrap_or_default(),
        storage_version_hash: STANDARD.encode(&hash.as_ref()[..8]),
        subresources,
        custom: Some(Arc::new(custom)),
        known_type: OnceLock::new(),
    }
}
