//! A value together with its type, and what the two together can answer: is it right, which fields does it have, what
//! do two of them make, where do they differ.

mod compare;
mod error;
mod field_set;
mod item;
mod merge;
mod reconcile;
mod remove;
mod validate;

use std::borrow::Cow;

use serde_json::Value;

pub use compare::Comparison;
pub use error::{Errors, Problem};

use super::schema::{Atom, Schema, TypeId};
use super::set::Set;

/// A value and its type.
#[derive(Debug, Clone)]
pub struct Typed<'s> {
    schema: &'s Schema,
    of: TypeId,
    value: Cow<'s, Value>,
}

/// Whether items of a set or keyed list may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// They may, as in objects that were stored before anyone looked.
    Allowed,
    /// They may not, as in what is applied.
    Refused,
}

impl<'s> Typed<'s> {
    /// A value that has a type, if it has it.
    pub fn new(
        schema: &'s Schema,
        of: TypeId,
        value: Value,
        duplicates: Duplicates,
    ) -> Result<Typed<'s>, Errors> {
        validate::validate(schema, of, &value, None, duplicates)?;
        Ok(Typed { schema, of, value: Cow::Owned(value) })
    }

    /// The same of an object that is only looked at. Items may repeat in it.
    pub fn borrowed(schema: &'s Schema, of: TypeId, value: &'s Value) -> Result<Typed<'s>, Errors> {
        validate::validate(schema, of, value, None, Duplicates::Allowed)?;
        Ok(Typed::trusted(schema, of, value))
    }

    /// The same of an object that was found to have its type before.
    pub fn trusted(schema: &'s Schema, of: TypeId, value: &'s Value) -> Typed<'s> {
        Typed { schema, of, value: Cow::Borrowed(value) }
    }

    /// What this value became, if it still has the type.
    pub fn changed(&self, value: &'s Value) -> Result<Typed<'s>, Errors> {
        let Typed { schema, of, value: known, .. } = self;
        validate::validate(schema, *of, value, Some(known), Duplicates::Allowed)?;
        Ok(Typed::trusted(schema, *of, value))
    }

    /// The value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value, without its type.
    pub fn into_value(self) -> Value {
        self.value.into_owned()
    }

    /// Every leaf, list item and map entry.
    pub fn field_set(&self) -> Set {
        field_set::of(self.schema, self.of, &self.value)
    }

    /// This value with all that `other` says written over it. Nothing is removed; items that both have keep the order
    /// of `other`.
    pub fn merge(&self, other: &Typed<'s>) -> Result<Typed<'s>, Errors> {
        let merged = merge::merge(self.schema, self.of, &self.value, &other.value)?;
        Ok(self.with(merged.unwrap_or(Value::Null)))
    }

    /// What changes from this value to `other`.
    pub fn compare(&self, other: &Typed<'s>) -> Result<Comparison, Errors> {
        compare::compare(self.schema, self.of, &self.value, &other.value)
    }

    /// This value without the fields and items of a set.
    pub fn remove(&self, items: &Set) -> Typed<'s> {
        self.with(remove::remove(self.schema, self.of, &self.value, items).unwrap_or(Value::Null))
    }

    /// Nothing but the fields and items of a set.
    pub fn extract(&self, items: &Set) -> Typed<'s> {
        self.with(remove::extract(self.schema, self.of, &self.value, items).unwrap_or(Value::Null))
    }

    /// The keys of list items that paths of a set lead through, as far as this value has these paths.
    pub fn key_fields(&self, items: &Set) -> Set {
        let present = self.field_set();
        let mut keys = Set::new();
        items.for_each(|path| {
            if present.contains(path) {
                remove::insert_key_fields(&mut keys, path);
            }
        });
        keys
    }

    /// A set of fields with the structs' fields that lead to them; entries of maps are not added.
    pub fn with_named_fields(&self, set: &Set) -> Set {
        field_set::with_named_fields(self.schema, Some(self.of), set)
    }

    /// A set of fields as it must be since types became atomic, or `None` if it need not change.
    pub fn reconcile(&self, set: &Set) -> Option<Set> {
        reconcile::reconcile(self.schema, self.of, set)
    }

    fn with(&self, value: Value) -> Typed<'s> {
        Typed { schema: self.schema, of: self.of, value: Cow::Owned(value) }
    }
}

/// Which of an atom's three kinds are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kinds {
    scalar: bool,
    list: bool,
    map: bool,
}

/// The one kind that a value is read as.
enum Kind<'s> {
    Map(&'s super::schema::Map),
    Scalar(super::schema::Scalar),
    List(&'s super::schema::List),
}

impl Kinds {
    /// The kind that fits the value; all that the type allows if none does, or for null and for no value at all.
    fn of(atom: &Atom, value: Option<&Value>) -> Kinds {
        let all = Kinds { scalar: atom.scalar.is_some(), list: atom.list.is_some(), map: atom.map.is_some() };
        let none = Kinds { scalar: false, list: false, map: false };
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if all.scalar => {
                Kinds { scalar: true, ..none }
            }
            Some(Value::Array(_)) if all.list => Kinds { list: true, ..none },
            Some(Value::Object(_)) if all.map => Kinds { map: true, ..none },
            _ => all,
        }
    }

    /// Of several kinds, a map comes first.
    fn first(self, atom: &Atom) -> Option<Kind<'_>> {
        if self.map {
            atom.map.as_ref().map(Kind::Map)
        } else if self.scalar {
            atom.scalar.map(Kind::Scalar)
        } else {
            atom.list.as_ref().map(Kind::List)
        }
    }
}

/// The kind that a value is read as; `None` if its type allows nothing.
fn kind_of<'s>(schema: &'s Schema, of: Option<TypeId>, value: &Value) -> Option<Kind<'s>> {
    let atom = schema.get(of?);
    Kinds::of(atom, Some(value)).first(atom)
}

#[cfg(test)]
mod tests;
