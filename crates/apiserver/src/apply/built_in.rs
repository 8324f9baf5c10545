//! The types of built-in kinds, as the schema pack knows them.
//!
//! What kube-apiserver converts from its OpenAPI definitions when it starts: lists merge as `listType` says, or as
//! strategic merge patches do where nothing is said; maps and structs merge by key unless they are atomic.

use std::collections::HashMap;
use std::sync::LazyLock;

use schema::pack::{Facts, Field as PackField, ListType, Shape};
use schema::{Pack, Type};
use serde_json::{Value, json};

use super::schema::{Atom, Field, List, Map, Merge, Scalar, Schema, TypeId};

/// Fields that are granular although their type is atomic. There is one, and the pack cannot say so.
const GRANULAR: [(&str, &str); 1] = [("io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef")];

/// The types of all built-in kinds.
pub struct BuiltIn {
    schema: Schema,
    /// Group, version and kind, sorted.
    kinds: Vec<([&'static str; 3], TypeId)>,
}

impl BuiltIn {
    /// The built-in kinds of Kubernetes v1.35.
    pub fn v1_35() -> &'static BuiltIn {
        static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| BuiltIn::new(Pack::v1_35()));
        &BUILT_IN
    }

    fn new(pack: &'static Pack) -> BuiltIn {
        let mut schema = Schema::new();
        let mut converter = Converter::new(&mut schema);
        let kinds = pack.kinds().map(|(kind, of)| {
            let id = converter.convert(of, &Facts::default());
            ([kind.group, kind.version, kind.kind], id)
        });
        let kinds = kinds.collect();
        BuiltIn { schema, kinds }
    }

    /// The type of a kind. The core group's name is empty.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<(&Schema, TypeId)> {
        let place = self.kinds.binary_search_by(|(known, _)| known[..].cmp(&[group, version, kind])).ok()?;
        Some((&self.schema, self.kinds[place].1))
    }
}

/// Adds the type of `metadata` to a schema.
pub(crate) fn object_meta(schema: &mut Schema) -> TypeId {
    let of = Pack::v1_35().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    Converter::new(schema).convert(of.expect("the pack has ObjectMeta"), &Facts::default())
}

/// A kind's zero value as JSON shows it: what a created object is compared with.
pub fn empty(of: Type, api_version: &str, kind: &str) -> Value {
    let mut empty = schema::encode(of, &json!({}));
    empty["apiVersion"] = json!(api_version);
    empty["kind"] = json!(kind);
    empty
}

struct Converter<'s> {
    schema: &'s mut Schema,
    /// By name, and by whether a reference makes it atomic or granular.
    structs: HashMap<(&'static str, Option<bool>), TypeId>,
    scalars: HashMap<&'static str, TypeId>,
}

impl Converter<'_> {
    fn new(schema: &mut Schema) -> Converter<'_> {
        Converter { schema, structs: HashMap::new(), scalars: HashMap::new() }
    }

    /// The type of a field, or of a kind.
    fn convert(&mut self, of: Type, facts: &Facts) -> TypeId {
        match of.shape() {
            Shape::Pointer(to) => self.convert(to, facts),
            Shape::String | Shape::Bytes => self.scalar("string", Scalar::String),
            Shape::Bool => self.scalar("boolean", Scalar::Boolean),
            Shape::Int32 | Shape::Int64 | Shape::Float64 => self.scalar("numeric", Scalar::Numeric),
            Shape::Time | Shape::MicroTime | Shape::Quantity => self.scalar("untyped", Scalar::Untyped),
            Shape::IntOrString
            | Shape::SchemaOrBool(_)
            | Shape::SchemaOrArray(_)
            | Shape::SchemaOrStrings(_) => Schema::DEDUCED,
            Shape::Any => self.schema.add(Map::of(Schema::DEDUCED)),
            Shape::Raw => self.raw(of),
            Shape::List(items) => {
                let items = self.convert(items, &Facts::default());
                self.schema.add(List { items, merge: merge(facts) })
            }
            Shape::Map(values) => {
                let values = self.convert(values, &Facts::default());
                let map = Map::of(values);
                self.schema.add(if facts.atomic { map.atomic() } else { map })
            }
            Shape::Struct => self.structure(of, facts.atomic.then_some(true)),
        }
    }

    fn scalar(&mut self, name: &'static str, scalar: Scalar) -> TypeId {
        *self.scalars.entry(name).or_insert_with(|| self.schema.add(scalar))
    }

    /// Values of any form, which three types hold: one merges as a whole, one is a map, one is deduced.
    fn raw(&mut self, of: Type) -> TypeId {
        match of.name() {
            "io.k8s.apimachinery.pkg.runtime.RawExtension" => Schema::ANY,
            "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1" => self.schema.add(Map::of(Schema::DEDUCED)),
            _ => Schema::DEDUCED,
        }
    }

    /// A struct. A reference may make it atomic, or granular, whatever it is itself.
    fn structure(&mut self, of: Type, atomic: Option<bool>) -> TypeId {
        let name = if of.name().is_empty() { of.go_name() } else { of.name() };
        if let Some(known) = self.structs.get(&(name, atomic)) {
            return *known;
        }
        let id = self.schema.declare();
        self.structs.insert((name, atomic), id);
        let mut fields = Vec::new();
        self.fields(of, of.name(), &mut fields);
        let mut map = if fields.is_empty() { Map::of(Schema::DEDUCED) } else { Map::of_fields(fields) };
        map.atomic = atomic.unwrap_or(of.facts().atomic);
        self.schema.define(id, Atom::from(map));
        id
    }

    fn fields(&mut self, of: Type, named: &str, fields: &mut Vec<Field>) {
        for field in of.fields() {
            if field.is_inline() {
                self.fields(field.of_type(), named, fields);
                continue;
            }
            let id = if GRANULAR.contains(&(named, field.name())) {
                self.structure(pointed_to(field), Some(false))
            } else {
                self.convert(field.of_type(), field.facts())
            };
            fields.push(Field { name: field.name().into(), of: id, default: field.facts().default_value() });
        }
    }
}

fn pointed_to(field: PackField) -> Type {
    match field.of_type().shape() {
        Shape::Pointer(to) => to,
        _ => field.of_type(),
    }
}

/// How a list merges: as its `listType` says, or else as strategic merge patches do.
fn merge(facts: &Facts) -> Merge {
    let merges = matches!(facts.patch_strategy, Some("merge" | "merge,retainKeys"));
    match (facts.list, facts.merge_key) {
        (Some(ListType::Map), _) => Merge::ByKeys(facts.keys.iter().map(|key| (*key).into()).collect()),
        (None, Some(key)) if merges => Merge::ByKeys(vec![key.into()]),
        (list, _) if list == Some(ListType::Set) || list.is_none() && merges => Merge::Set,
        _ => Merge::Atomic,
    }
}

#[cfg(test)]
mod tests;
