//! What a write makes of an object's managers, and what an applied configuration makes of the object.
//!
//! Each manager's fields are those of the version it wrote in. To compare, objects are converted to that version, so the
//! kind's conversion is asked for here; everything else is sets.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::conflict::Conflicts;
use super::filter::{Filter, Filters};
use super::go;
use super::managers::{Managed, Manager, Managers};
use super::schema::{Schema, TypeId};
use super::set::Set;
use super::typed::{Comparison, Duplicates, Errors, Typed};

/// A kind in all its versions.
pub trait Versions {
    /// The type of the kind in a version, for example `autoscaling/v2`; `None` if the version is not served any more.
    fn type_in(&self, version: &str) -> Option<(&Schema, TypeId)>;

    /// Whether the types stay what they are for as long as there are objects.
    fn are_fixed(&self) -> bool {
        false
    }

    /// An object in another version that has a type.
    fn convert(&self, object: &Value, version: &str) -> Result<Value, String>;
}

/// Why managers could not be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Conflicts(Conflicts),
    /// What was being done, and what was wrong.
    #[error("{0}: {1}")]
    Failed(String, String),
    #[error("{0}")]
    Convert(String),
}

/// Why an object is not to be had in a version.
enum Unconverted {
    /// Nobody can read it in that version any more.
    Missing,
    Failed(String),
}

pub(crate) struct Updater<'a> {
    pub(crate) versions: &'a dyn Versions,
    pub(crate) filters: &'a Filters,
}

impl<'a> Updater<'a> {
    /// Follows a write that made `new` of `live`. Returns the fields that the writer comes to manage by it; every other
    /// manager, the writer's own past included, loses what was changed or removed.
    pub(crate) fn update(
        &self,
        live: &Typed<'a>,
        new: &Typed<'a>,
        version: &str,
        managers: &mut Managers,
    ) -> Result<Set, Error> {
        self.reconcile(live, managers)?;
        let changes = self.take(live, new, version, managers, None, true)?;
        let own = changes.modified.union(&changes.added);
        Ok(self.filtered(version, own))
    }

    /// Applies a configuration. Returns the new object, or `None` if it is the old one.
    pub(crate) fn apply(
        &self,
        live: &Typed<'a>,
        config: &Typed<'a>,
        version: &str,
        managers: &mut Managers,
        manager: &Manager,
        force: bool,
    ) -> Result<Option<Typed<'a>>, Error> {
        self.reconcile(live, managers)?;
        let merged = live.merge(config).map_err(failed("failed to merge config"))?;
        let fields = self.filtered(version, config.field_set());
        let last = managers.remove(manager);
        let time = last.as_ref().and_then(|last| last.time);
        managers.insert(manager.clone(), Managed { fields, version: version.to_owned(), time });
        let new = match last {
            Some(last) => {
                self.prune(merged, managers, manager, &last).map_err(failed("failed to prune fields"))?
            }
            None => merged,
        };
        self.take(live, &new, version, managers, Some(manager), force)?;
        Ok((!go::equal(live.value(), new.value())).then_some(new))
    }

    fn filter(&self, version: &str) -> Option<&Filter> {
        self.filters.get(version)
    }

    fn filtered(&self, version: &str, set: Set) -> Set {
        match self.filter(version) {
            Some(filter) => filter.apply(&set),
            None => set,
        }
    }

    /// Takes changed and removed fields from all managers but one. Unless forced, a changed field of another is a
    /// conflict.
    fn take(
        &self,
        live: &Typed<'a>,
        new: &Typed<'a>,
        version: &str,
        managers: &mut Managers,
        except: Option<&Manager>,
        force: bool,
    ) -> Result<Comparison, Error> {
        let mut changes = BTreeMap::new();
        changes.insert(version.to_owned(), self.compare(live, new, version)?);
        let mut conflicts = Vec::new();
        let mut obsolete = Vec::new();
        let others = managers.iter().filter(|(manager, _)| Some(*manager) != except);
        for (manager, managed) in others {
            if !changes.contains_key(&managed.version) {
                let old = self.convert(live, &managed.version, "failed to convert old object")?;
                let new = self.convert(new, &managed.version, "failed to convert new object")?;
                let (Some(old), Some(new)) = (old, new) else {
                    obsolete.push(manager.clone());
                    continue;
                };
                changes.insert(managed.version.clone(), self.compare(&old, &new, &managed.version)?);
            }
            let changes = &changes[&managed.version];
            let both = managed
                .fields
                .intersection(&changes.modified)
                .union(&managed.fields.intersection(&changes.added));
            if !both.is_empty() {
                conflicts.push((manager.clone(), both));
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(Error::Conflicts(Conflicts::new(conflicts)));
        }
        for manager in obsolete {
            managers.remove(&manager);
        }
        for (manager, fields) in conflicts {
            if let Some(managed) = managers.get_mut(&manager) {
                managed.fields = managed.fields.difference(&fields);
            }
        }
        for (_, managed) in managers.iter_mut().filter(|(manager, _)| Some(*manager) != except) {
            let removed = &changes[&managed.version].removed;
            if !removed.is_empty() {
                managed.fields = managed.fields.difference(removed);
            }
        }
        managers.retain(|_, managed| !managed.fields.is_empty());
        Ok(changes.remove(version).unwrap_or_default())
    }

    fn compare(&self, old: &Typed<'a>, new: &Typed<'a>, version: &str) -> Result<Comparison, Error> {
        let changes = old.compare(new).map_err(failed("failed to compare objects"))?;
        Ok(match self.filter(version) {
            Some(filter) => filter.apply_to(changes),
            None => changes,
        })
    }

    /// Removes what the manager applied last time, does not apply now, and nobody else manages.
    fn prune(
        &self,
        merged: Typed<'a>,
        managers: &Managers,
        manager: &Manager,
        last: &Managed,
    ) -> Result<Typed<'a>, Error> {
        let now = &managers[manager];
        // Nothing to prune: whatever of last time pruning removed would come back, since it is applied again.
        let again = last.version == now.version && last.fields.difference(&now.fields).is_empty();
        if again || last.fields.is_empty() {
            return Ok(merged);
        }
        let doing = "failed to convert merged object to last applied version";
        let Some(at_last) = self.convert(&merged, &last.version, doing)? else { return Ok(merged) };
        let last_fields = at_last.with_named_fields(&last.fields);
        let pruned = at_last.remove(&last_fields);
        let pruned = self
            .add_back_managed(&at_last, pruned, managers, &last.version)
            .map_err(failed("failed add back owned items"))?;
        let pruned = self
            .add_back_dangling(&at_last, &pruned, &last_fields, &last.version)
            .map_err(failed("failed add back dangling items"))?;
        match self.converted(&pruned, &now.version) {
            Ok(pruned) => Ok(pruned.into_owned()),
            Err(Unconverted::Missing) => {
                Err(Error::Convert(format!("no corresponding type for {}", now.version)))
            }
            Err(Unconverted::Failed(why)) => Err(Error::Convert(why)),
        }
    }

    /// The pruned object with all that some manager has, the applied configuration included. Starts with the version
    /// that it was pruned in: what was pruned may be needed to convert it.
    fn add_back_managed(
        &self,
        merged: &Typed<'a>,
        pruned: Typed<'a>,
        managers: &Managers,
        version: &str,
    ) -> Result<Typed<'a>, Error> {
        let mut managed: BTreeMap<&str, Set> = BTreeMap::new();
        for one in managers.values() {
            let known = managed.entry(&one.version).or_default();
            *known = known.union(&one.fields);
        }
        let first = managed.remove_entry(version);
        let (mut merged, mut pruned) = (Cow::Borrowed(merged), pruned);
        for (version, managed) in first.into_iter().chain(managed) {
            let at = |what: &str| format!("failed to convert {what} object at version {version}");
            let Some(converted) = self.convert(&merged, version, &at("merged"))? else { continue };
            merged = Cow::Owned(converted.into_owned());
            let Some(converted) = self.convert(&pruned, version, &at("pruned"))? else { continue };
            let has = merged.with_named_fields(&merged.field_set());
            let kept = converted.with_named_fields(&converted.field_set());
            let managed = merged.with_named_fields(&managed);
            pruned = merged.remove(&has.difference(&kept.union(&managed)));
        }
        Ok(pruned)
    }

    /// The merged object without what is both gone from the pruned one and was applied last time: what nobody manages
    /// stays.
    fn add_back_dangling(
        &self,
        merged: &Typed<'a>,
        pruned: &Typed<'a>,
        last: &Set,
        version: &str,
    ) -> Result<Typed<'a>, Error> {
        let doing = "failed to convert pruned object to last applied version";
        let Some(pruned) = self.convert(pruned, version, doing)? else { return Ok(merged.clone()) };
        let kept = merged.with_named_fields(&pruned.field_set());
        let has = merged.with_named_fields(&merged.field_set());
        Ok(merged.remove(&has.difference(&kept).intersection(last)))
    }

    /// Fits managers' fields to types that became atomic since, and forgets managers of versions that are gone.
    fn reconcile(&self, live: &Typed<'a>, managers: &mut Managers) -> Result<(), Error> {
        let mut obsolete = Vec::new();
        for (manager, managed) in managers.iter_mut() {
            match self.converted(live, &managed.version) {
                Ok(live) => {
                    if let Some(fields) = live.reconcile(&managed.fields) {
                        managed.fields = fields;
                    }
                }
                Err(Unconverted::Missing) => obsolete.push(manager.clone()),
                Err(Unconverted::Failed(why)) => return Err(Error::Convert(why)),
            }
        }
        for manager in obsolete {
            managers.remove(&manager);
        }
        Ok(())
    }

    /// An object in a version, or `None` if that is not served any more.
    fn convert<'t>(
        &self,
        object: &'t Typed<'a>,
        version: &str,
        doing: &str,
    ) -> Result<Option<Cow<'t, Typed<'a>>>, Error> {
        match self.converted(object, version) {
            Ok(converted) => Ok(Some(converted)),
            Err(Unconverted::Missing) => Ok(None),
            Err(Unconverted::Failed(why)) => Err(Error::Failed(doing.to_owned(), why)),
        }
    }

    fn converted<'t>(&self, object: &'t Typed<'a>, version: &str) -> Result<Cow<'t, Typed<'a>>, Unconverted> {
        if object.value().get("apiVersion").and_then(Value::as_str) == Some(version) {
            return Ok(Cow::Borrowed(object));
        }
        let (schema, of) = self.versions.type_in(version).ok_or(Unconverted::Missing)?;
        let value = self.versions.convert(object.value(), version).map_err(Unconverted::Failed)?;
        let typed = Typed::new(schema, of, value, Duplicates::Refused);
        typed.map(Cow::Owned).map_err(|errors: Errors| Unconverted::Failed(errors.to_string()))
    }
}

fn failed<E: ToString>(doing: &str) -> impl Fn(E) -> Error {
    move |error| Error::Failed(doing.to_owned(), error.to_string())
}
