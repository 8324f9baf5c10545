//! Everything between a request and the stored `managedFields`: who writes, what they come to manage, and what an
//! applied configuration makes of the object.
//!
//! Objects go in and come out as JSON in the version of the request. Whoever calls decodes what comes out once more:
//! pruning leaves null where a struct's last field went, and defaults are not this module's.

mod object;
mod updaters;

use jiff::Timestamp;
use serde_json::Value;

use super::conflict::Conflicts;
use super::filter::Filters;
use super::go;
use super::managers::{self, Managed, Manager, Managers, Operation};
use super::path::PathElement;
use super::schema::{Schema, TypeId};
use super::set::Set;
use super::tracked::{Entries, Tracked};
use super::typed::{Duplicates, Typed};
use super::updater::{self, Updater, Versions};
use object::{ObjectKind, managed_fields_are_set, shown};

/// The manager of all fields that an object had when it was first applied to.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager whose client-side past is known from an annotation.
const KUBECTL: &str = "kubectl";
/// Where `kubectl apply` keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Names and values of an object's annotations together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

const NO_MANAGER: &str = "failed to create manager for existing fields";

/// The managers of one kind of object, as one endpoint changes them.
#[derive(Clone, Copy)]
pub struct FieldManager<'a> {
    /// The kind in all its versions.
    pub versions: &'a dyn Versions,
    /// The version of the request, for example `batch/v1`.
    pub version: &'a str,
    /// The kind, for example `Job`.
    pub kind: &'a str,
    /// The subresource of the request; empty for the object itself.
    pub subresource: &'a str,
    /// Fields that this endpoint resets, and that requests to it do not come to manage.
    pub reset: &'a Filters,
    /// A new object of the kind before anything is set: its zero value, as JSON shows that.
    pub empty: &'a Value,
}

/// Why a configuration cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The request is wrong: 400.
    #[error("{0}")]
    BadRequest(String),
    /// Others manage fields of it: 409.
    #[error(transparent)]
    Conflicts(Conflicts),
    /// It does not fit its type, or something failed on the way: 500, without a reason.
    #[error("{0}")]
    Failed(String),
}

/// Why managers could not be worked out for a write. The object was left without any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UpdateError(String);

impl FieldManager<'_> {
    /// The object that a configuration makes of the stored one, which is [`FieldManager::empty`] if there is none yet.
    pub fn apply(
        &self,
        stored: &Tracked,
        config: Value,
        manager: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<Tracked, ApplyError> {
        let managers = stored
            .managers
            .read()
            .map_err(|error| ApplyError::Failed(format!("failed to decode managed fields: {error}")))?;
        self.check_kind(&config)?;
        let shown_live = || shown(&stored.object);
        let live = self.typed_live(&stored.object);
        // An object that nobody applied to yet is looked at before the configuration, any other after it.
        if managers.is_empty()
            && let Err(why) = &live
        {
            let why = format!("failed to convert new object ({}) to smd typed: {why}", shown_live());
            return Err(ApplyError::Failed(format!("{NO_MANAGER}: {why}")));
        }
        if managed_fields_are_set(&config) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
        }
        let config = self.typed_config(config)?;
        let live = live.map_err(|why| {
            ApplyError::Failed(format!("failed to create typed live object ({}): {why}", shown_live()))
        })?;
        // Only kubectl is forgiven conflicts, and needs the managers a second time for that.
        let before = (manager == KUBECTL && !force).then(|| managers.clone());
        let result = match (self.apply_once(&live, &config, managers, manager, force, now), before) {
            (Err(updater::Error::Conflicts(conflicts)), Some(before)) => {
                self.forgive(&live, conflicts)?;
                self.apply_once(&live, &config, before, manager, true, now)
            }
            (result, _) => result,
        };
        let (mut object, managers) = result.map_err(|error| match error {
            updater::Error::Conflicts(conflicts) => ApplyError::Conflicts(conflicts),
            other => ApplyError::Failed(other.to_string()),
        })?;
        if manager == KUBECTL {
            refresh_last_applied(&mut object, config.value());
        }
        go::to_integers(&mut object);
        Ok(Tracked { object, managers: Entries::of(&managers) })
    }

    /// Who manages the fields of `new` after any other write that made it of `live`. `brought` are the managers that the
    /// write brings along.
    pub fn update(
        &self,
        live: &Tracked,
        new: &Value,
        brought: Option<&Value>,
        manager: &str,
        now: Timestamp,
    ) -> Result<Entries, UpdateError> {
        let mut managers = self.managers_before(live, brought);
        // An object whose managers nobody tracks stays so until it is applied to.
        let uid = live.object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        if managers.is_empty() && !uid.is_empty() {
            return Ok(Entries::default());
        }
        let (new, live) = self.typed_for_update(new, live)?;
        self.record(&live, &new, &mut managers, manager, now)
            .map_err(|error| UpdateError(error.to_string()))?;
        Ok(Entries::of(&managers))
    }

    /// The managers that a write starts from: those it brings, if it brings any that can be read; a client that does
    /// not know of managers cannot lose them by accident.
    fn managers_before(&self, live: &Tracked, brought: Option<&Value>) -> Managers {
        let of_live = || live.managers.read().unwrap_or_default();
        if !self.subresource.is_empty() {
            return of_live();
        }
        if managers::is_reset(brought) {
            return Managers::new();
        }
        match managers::decode(brought) {
            Ok(managers) if !managers.is_empty() => managers,
            _ => of_live(),
        }
    }

    /// Gives a writer what it changed, and keeps the number of writers within bounds.
    fn record<'t>(
        &'t self,
        live: &Typed<'t>,
        new: &Typed<'t>,
        managers: &mut Managers,
        manager: &str,
        now: Timestamp,
    ) -> Result<(), updater::Error> {
        let failed = |error: updater::Error| {
            let doing = format!("failed to update ManagedFields ({})", shown(new.value()));
            updater::Error::Failed(doing, error.to_string())
        };
        let own = self.updater().update(live, new, self.version, managers).map_err(failed)?;
        let own = own.difference(stripped());
        if !own.is_empty() {
            let operation = Operation::Update { version: self.version.to_owned() };
            let writer = Manager::new(manager, operation, self.subresource);
            let fields = match managers.remove(&writer) {
                Some(before) => own.union(&before.fields),
                None => own,
            };
            managers.insert(writer, Managed { fields, version: self.version.to_owned(), time: Some(now) });
        }
        updaters::cap(managers);
        Ok(())
    }

    fn apply_once<'t>(
        &'t self,
        live: &Typed<'t>,
        config: &Typed<'t>,
        mut managers: Managers,
        manager: &str,
        force: bool,
        now: Timestamp,
    ) -> Result<(Value, Managers), updater::Error> {
        if managers.is_empty() {
            let failed = |why: String| updater::Error::Failed(NO_MANAGER.into(), why);
            let nothing = Tracked { object: self.empty.clone(), managers: Entries::default() };
            let (empty, _) = self.typed_for_update(self.empty, &nothing).map_err(|error| failed(error.0))?;
            self.record(&empty, live, &mut managers, BEFORE_FIRST_APPLY, now)
                .map_err(|error| failed(error.to_string()))?;
        }
        let applier = Manager::new(manager, Operation::Apply, self.subresource);
        let new = self.updater().apply(live, config, self.version, &mut managers, &applier, force)?;
        if let Some(managed) = managers.get_mut(&applier) {
            managed.fields = managed.fields.difference(stripped());
            if new.is_some() {
                managed.time = Some(now);
            }
        }
        managers.retain(|_, managed| !managed.fields.is_empty());
        Ok((new.unwrap_or_else(|| live.clone()).into_value(), managers))
    }

    /// Whether all conflicts are with what `kubectl apply` itself set before it learned to apply on the server.
    fn forgive(&self, live: &Typed<'_>, conflicts: Conflicts) -> Result<(), ApplyError> {
        match self.client_side_applied(live) {
            Some(own) if conflicts.to_set().difference(&own).is_empty() => Ok(()),
            Some(own) => Err(ApplyError::Conflicts(conflicts.except(&own))),
            None => Err(ApplyError::Conflicts(conflicts)),
        }
    }

    /// The fields that the annotation of `kubectl apply` sets and that still have its values.
    fn client_side_applied(&self, live: &Typed<'_>) -> Option<Set> {
        let last = live.value().pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
        let mut last: Value = serde_json::from_str(last).ok()?;
        go::to_floats(&mut last);
        if last.get("apiVersion").and_then(Value::as_str) != Some(self.version) {
            return None;
        }
        let live = self.typed(live.value().clone(), Duplicates::Refused).ok()?;
        let last = self.typed(last, Duplicates::Refused).ok()?;
        let changes = last.compare(&live).ok()?;
        Some(
            last.field_set()
                .difference(&changes.modified)
                .difference(&changes.added)
                .difference(&changes.removed),
        )
    }

    fn updater(&self) -> Updater<'_> {
        Updater { versions: self.versions, filters: self.reset }
    }

    fn check_kind(&self, config: &Value) -> Result<(), ApplyError> {
        let given = ObjectKind::of(config);
        if given.version() != self.version || given.kind != self.kind {
            return Err(ApplyError::BadRequest(format!("invalid object type: {given}")));
        }
        Ok(())
    }

    fn typed(&self, value: Value, duplicates: Duplicates) -> Result<Typed<'_>, String> {
        let (schema, of) = self.type_of(&value)?;
        Typed::new(schema, of, value, duplicates).map_err(|errors| errors.to_string())
    }

    fn typed_live<'t>(&'t self, live: &'t Value) -> Result<Typed<'t>, String> {
        let (schema, of) = self.type_of(live)?;
        Typed::borrowed(schema, of, live).map_err(|errors| errors.to_string())
    }

    fn type_of(&self, value: &Value) -> Result<(&Schema, TypeId), String> {
        let found = self.versions.type_in(self.version);
        found.ok_or_else(|| format!("no corresponding type for {}", ObjectKind::of(value)))
    }

    fn typed_config(&self, mut config: Value) -> Result<Typed<'_>, ApplyError> {
        let shown = shown(&config);
        go::to_floats(&mut config);
        self.typed(config, Duplicates::Refused).map_err(|why| {
            ApplyError::Failed(format!("failed to create typed patch object ({shown}): {why}"))
        })
    }

    /// A changed object and the one that it was. Of the two, the changed one is told of first if it has not its type.
    fn typed_for_update<'t>(
        &'t self,
        new: &'t Value,
        live: &'t Tracked,
    ) -> Result<(Typed<'t>, Typed<'t>), UpdateError> {
        let failed = |which: &str, value: &Value, why: String| {
            UpdateError(format!("failed to convert {which} object ({}) to smd typed: {why}", shown(value)))
        };
        let (schema, of) = self.type_of(new).map_err(|why| failed("new", new, why))?;
        let Tracked { object: live, managers } = live;
        // An object whose type was not found to be right has no managers.
        let is_known = self.versions.are_fixed() && *managers != Entries::default();
        let typed =
            if is_known { Ok(Typed::trusted(schema, of, live)) } else { Typed::borrowed(schema, of, live) };
        let changed = match &typed {
            Ok(live) => live.changed(new),
            Err(_) => Typed::borrowed(schema, of, new),
        };
        let changed = changed.map_err(|why| failed("new", new, why.to_string()))?;
        Ok((changed, typed.map_err(|why| failed("live", live, why.to_string()))?))
    }
}

/// Fields that nobody manages.
fn stripped() -> &'static Set {
    static STRIPPED: std::sync::LazyLock<Set> = std::sync::LazyLock::new(|| {
        let mut set = Set::new();
        for name in ["apiVersion", "kind", "metadata"] {
            set.insert(&[PathElement::field(name)]);
        }
        for name in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ] {
            set.insert(&[PathElement::field("metadata"), PathElement::field(name)]);
        }
        set
    });
    &STRIPPED
}

/// Brings the annotation of `kubectl apply` up to date, if the object has it.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    if annotations.get(LAST_APPLIED).and_then(Value::as_str).unwrap_or_default().is_empty() {
        return;
    }
    let mut applied = config.clone();
    if let Some(Value::Object(annotations)) = applied.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    go::to_integers(&mut applied);
    annotations.insert(LAST_APPLIED.into(), Value::String(types::go::json(&applied) + "\n"));
    let size = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(size).sum::<usize>() > ANNOTATIONS_LIMIT {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests;
