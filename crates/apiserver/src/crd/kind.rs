//! A definition as a cluster serves it: all its versions, which of them is stored, and how an object gets from one to
//! another.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresourceScale,
};
use serde_json::Value;
use store::{Object, Revision, Store};
use tokio::sync::watch;

use super::conversion::{Conversion, Converter};
use super::version::{Version, schema};
use crate::apply::scale::ReplicasPaths;
use crate::apply::{self, Entries, PathElement, Tracked, TypeId};
use crate::object;
use crate::status::Refusal;

/// A defined kind in all its versions.
#[derive(Debug)]
pub struct Kind {
    versions: Vec<Served>,
    storage: usize,
    conversion: Conversion,
    fingerprint: String,
    is_leaving: AtomicBool,
    is_gone: AtomicBool,
    ended: watch::Sender<bool>,
    store: Store,
    /// What was served before this, until nobody works with it any more.
    before: Mutex<Option<Weak<Kind>>>,
    /// Objects that were written later are in the form that this definition gives them.
    since: OnceLock<Revision>,
}

/// A version, and its fields as server-side apply sees them.
#[derive(Debug)]
struct Served {
    version: Version,
    types: apply::Schema,
    root: TypeId,
}

/// A defined kind in one of its versions.
#[derive(Debug, Clone)]
pub struct Custom {
    kind: Arc<Kind>,
    at: usize,
}

impl Kind {
    /// Compiles an accepted definition. `before` is what it replaces.
    pub fn new(
        definition: &CustomResourceDefinition,
        store: &Store,
        converters: &[Arc<dyn Converter>],
        before: Option<&Arc<Kind>>,
    ) -> Arc<Kind> {
        let versions: Vec<Served> = Version::all(definition)
            .into_iter()
            .zip(&definition.spec.versions)
            .map(|(version, written)| {
                let props = schema(written).and_then(|props| serde_json::to_value(props).ok());
                let (types, root) = apply::custom_resource(&props.unwrap_or_default());
                Served { version, types, root }
            })
            .collect();
        Arc::new(Kind {
            storage: versions.iter().position(|served| served.version.storage).unwrap_or(0),
            versions,
            conversion: Conversion::of(definition, store, converters),
            fingerprint: format!(
                "{}/{}",
                definition.metadata.uid.as_deref().unwrap_or(""),
                definition.metadata.generation.unwrap_or(0)
            ),
            is_leaving: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            store: store.clone(),
            before: Mutex::new(before.map(Arc::downgrade)),
            since: OnceLock::new(),
        })
    }

    /// Every version, in the order of the definition.
    pub(crate) fn versions(self: &Arc<Self>) -> impl Iterator<Item = Custom> {
        (0..self.versions.len()).map(|at| Custom { kind: self.clone(), at })
    }

    /// Every version that is served.
    pub fn served(self: &Arc<Self>) -> impl Iterator<Item = Custom> {
        self.versions().filter(|custom| custom.version().served)
    }

    /// The version that objects are stored in.
    pub fn storage(&self) -> &Version {
        &self.versions[self.storage].version
    }

    /// Differs from that of every other definition, and of every other state of this one's spec.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Ends the watches of whoever still uses this.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Whether the definition is on its way out, so that no objects are made any more (3.23).
    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Says that it is.
    pub fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Whether its last object is gone and it is not served any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Says that it is.
    pub fn go(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }

    /// Whether what was written at a revision is in the form that this definition gives its objects. A write that began
    /// under the definition before may still arrive, so nothing is sure until all of those are done.
    fn is_current(&self, revision: Revision) -> bool {
        if let Some(since) = self.since.get() {
            return revision > *since;
        }
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        if before.as_ref().is_none_or(|before| before.strong_count() == 0) {
            drop(before);
            self.since.get_or_init(|| self.store.revision());
        }
        false
    }

    /// The version that an object says it is in; one that is gone was stored before it went, as the others are now.
    fn version_of(&self, object: &Value) -> usize {
        let said = object::text(object, &["apiVersion"]);
        let found = self.versions.iter().position(|served| served.version.said_as == said);
        found.unwrap_or(self.storage)
    }

    /// Objects in another version.
    async fn convert(&self, objects: Vec<Value>, to: usize) -> Result<Vec<Value>, Refusal> {
        let to = &self.versions[to].version;
        let wanted = to.said_as.as_str();
        let others: Vec<usize> =
            (0..objects.len()).filter(|i| object::text(&objects[*i], &["apiVersion"]) != wanted).collect();
        if others.is_empty() {
            return Ok(objects);
        }
        let sent = others.iter().map(|i| objects[*i].clone()).collect();
        let converted = self.conversion.convert(sent, to).await?;
        let mut objects = objects;
        for (i, mut object) in others.into_iter().zip(converted) {
            to.conform(&mut object);
            objects[i] = object;
        }
        Ok(objects)
    }
}

impl Custom {
    /// A kind in the version that its objects are stored in.
    pub(crate) fn stored_version(kind: &Arc<Kind>) -> Custom {
        Custom { kind: kind.clone(), at: kind.storage }
    }

    /// The version.
    pub fn version(&self) -> &Version {
        &self.kind.versions[self.at].version
    }

    /// The kind in all its versions.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// Returns when the definition was replaced by another one.
    pub async fn ended(&self) {
        let mut ended = self.kind.ended.subscribe();
        // The sender lives as long as this.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Where replicas stand in each version, if they have a place.
    pub fn replicas_paths(&self) -> ReplicasPaths {
        let path = |scale: &CustomResourceSubresourceScale| {
            let steps = scale.spec_replicas_path.trim_start_matches('.').split('.');
            steps.map(PathElement::field).collect()
        };
        let paths = self
            .kind
            .versions
            .iter()
            .map(|served| (served.version.api_version(), served.version.scale.as_ref().map(path)));
        paths.collect()
    }

    /// Whether a field selector may name a field.
    pub fn selects(&self, field: &str) -> bool {
        self.version().selectable_fields.iter().any(|known| known == field)
    }

    /// Whether labels of an object may differ from version to version.
    pub(crate) fn may_relabel(&self) -> bool {
        self.kind.conversion.asks()
    }

    /// Stored objects as clients of this version see them.
    pub(crate) async fn seen(&self, stored: &[&Arc<Object>]) -> Result<Vec<Value>, Refusal> {
        self.read_all(stored.iter().map(|object| object::read(object)).collect()).await
    }

    /// Stored bytes, each with the revision it was written at, as clients of this version see them.
    pub async fn shown(&self, stored: Vec<(Revision, Bytes)>) -> Result<Vec<Bytes>, Refusal> {
        let prefix = object::prefix(&self.version().said_as);
        let mut shown: Vec<Bytes> = Vec::with_capacity(stored.len());
        let mut others = Vec::new();
        for (i, (revision, bytes)) in stored.into_iter().enumerate() {
            if !self.is_in_form(&prefix, revision, &bytes) {
                others.push(i);
            }
            shown.push(bytes);
        }
        let parsed = others.iter().map(|i| parse(&shown[*i])).collect();
        for (i, object) in others.into_iter().zip(self.read_all(parsed).await?) {
            shown[i] = serde_json::to_vec(&object).expect("JSON prints").into();
        }
        Ok(shown)
    }

    /// Whether stored bytes, written at a revision, are what clients of this version see. They begin with `prefix` then.
    fn is_in_form(&self, prefix: &str, revision: Revision, bytes: &[u8]) -> bool {
        bytes.starts_with(prefix.as_bytes()) && self.kind.is_current(revision)
    }

    /// A stored object as clients of this version see it, and who manages its fields.
    pub(crate) async fn read_tracked(&self, stored: &Object) -> Result<Tracked, Refusal> {
        let prefix = object::prefix(&self.version().said_as);
        if self.is_in_form(&prefix, stored.revision, &stored.value) {
            return Ok(object::read_tracked(stored));
        }
        Ok(Tracked::of(self.read(object::read(stored)).await?))
    }

    /// An object, in any version, in this one.
    pub async fn read(&self, stored: Value) -> Result<Value, Refusal> {
        Ok(self.read_all(vec![stored]).await?.pop().unwrap_or_default())
    }

    /// What the definition has come to say since they were written holds for old objects too.
    async fn read_all(&self, mut stored: Vec<Value>) -> Result<Vec<Value>, Refusal> {
        for object in &mut stored {
            self.kind.versions[self.kind.version_of(object)].version.read(object);
        }
        self.kind.convert(stored, self.at).await
    }

    /// An object in the version it is stored in, and the fields that the store is told. Defaults of that version are
    /// filled in now, so that its readers get the stored bytes.
    pub async fn stored<'a>(
        &self,
        object: &'a Value,
        managers: &'a Entries,
    ) -> Result<(Cow<'a, Value>, Cow<'a, Entries>, Vec<(String, String)>), Refusal> {
        let storage = self.kind.storage();
        let (object, managers) = if object::text(object, &["apiVersion"]) == storage.said_as {
            (Cow::Borrowed(object), Cow::Borrowed(managers))
        } else {
            // Whoever converts sees all of it.
            let whole = Tracked { object: object.clone(), managers: managers.clone() }.into_whole();
            let mut converted = self.kind.convert(vec![whole], self.kind.storage).await?;
            let mut object = converted.pop().unwrap_or_default();
            storage.read(&mut object);
            let Tracked { object, managers } = Tracked::of(object);
            (Cow::Owned(object), Cow::Owned(managers))
        };
        let text = |part: &str| object::text(&object, &["metadata", part]).to_owned();
        let mut fields: Vec<(String, String)> =
            ["name", "namespace"].into_iter().map(|part| (format!("metadata.{part}"), text(part))).collect();
        fields.extend(storage.selectable_values(&object));
        Ok((object, managers, fields))
    }
}

impl apply::Versions for Custom {
    fn type_in(&self, version: &str) -> Option<(&apply::Schema, TypeId)> {
        let found = self.kind.versions.iter().find(|served| served.version.said_as == version)?;
        Some((&found.types, found.root))
    }

    fn convert(&self, object: &Value, version: &str) -> Result<Value, String> {
        self.kind.conversion.convert_here(object, version)
    }
}

fn parse(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).expect("what was stored is JSON")
}
