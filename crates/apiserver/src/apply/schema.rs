//! What server-side apply knows of a type: which parts merge field by field, which item by item, and which as one.
//!
//! A [`Schema`] holds the types of many kinds, by number, so that types may refer to themselves. It says nothing of
//! values being right beyond their JSON type; that is validation's.

use std::sync::Arc;

use serde_json::Value;

/// Types that refer to each other.
#[derive(Debug, Clone)]
pub struct Schema {
    types: Vec<Atom>,
}

/// A type of one [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u32);

/// What a value of a type may be. Most types allow one of the three.
#[derive(Debug, Clone, Default)]
pub struct Atom {
    /// A value without parts.
    pub scalar: Option<Scalar>,
    /// A list.
    pub list: Option<List>,
    /// A map or a struct.
    pub map: Option<Map>,
}

/// The type of a value without parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// An integer or a float.
    Numeric,
    /// A string.
    String,
    /// A truth value.
    Boolean,
    /// Any of them.
    Untyped,
}

/// The type of a list.
#[derive(Debug, Clone)]
pub struct List {
    /// The type of its items.
    pub items: TypeId,
    /// How two lists become one.
    pub merge: Merge,
}

/// How two lists become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merge {
    /// The later one replaces the earlier one.
    Atomic,
    /// Items are their own keys.
    Set,
    /// Items are found by the values of these fields.
    ByKeys(Vec<Arc<str>>),
}

/// The type of a map or struct.
#[derive(Debug, Clone, Default)]
pub struct Map {
    /// Sorted by name.
    fields: Vec<Field>,
    /// The type of everything that is not a declared field; without one, nothing else is allowed.
    pub rest: Option<TypeId>,
    /// The later one replaces the earlier one.
    pub atomic: bool,
}

/// A declared field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name in JSON.
    pub name: Arc<str>,
    /// Its type.
    pub of: TypeId,
    /// The value that a key of a list has when an item leaves it out.
    pub default: Option<Value>,
}

impl Schema {
    /// The type that takes any value as one.
    pub const ANY: TypeId = TypeId(0);
    /// The type of values that nothing is declared about: maps merge by key, lists are atomic.
    pub const DEDUCED: TypeId = TypeId(1);

    /// A schema with nothing but [`Schema::ANY`] and [`Schema::DEDUCED`].
    pub fn new() -> Schema {
        let untyped = |rest, atomic| Atom {
            scalar: Some(Scalar::Untyped),
            list: Some(List { items: Schema::ANY, merge: Merge::Atomic }),
            map: Some(Map { fields: Vec::new(), rest: Some(rest), atomic }),
        };
        Schema { types: vec![untyped(Schema::ANY, true), untyped(Schema::DEDUCED, false)] }
    }

    /// Adds a type.
    pub fn add(&mut self, atom: impl Into<Atom>) -> TypeId {
        let id = TypeId(u32::try_from(self.types.len()).expect("fewer types than memory holds"));
        self.types.push(atom.into());
        id
    }

    /// Makes room for a type that others refer to before it can be defined.
    pub fn declare(&mut self) -> TypeId {
        self.add(Atom::default())
    }

    /// Says what a declared type is.
    pub fn define(&mut self, id: TypeId, atom: impl Into<Atom>) {
        self.types[id.0 as usize] = atom.into();
    }

    /// What a type is.
    pub fn get(&self, id: TypeId) -> &Atom {
        &self.types[id.0 as usize]
    }
}

impl Default for Schema {
    fn default() -> Schema {
        Schema::new()
    }
}

impl Map {
    /// A struct: these fields and no others.
    pub fn of_fields(fields: impl IntoIterator<Item = Field>) -> Map {
        let mut fields: Vec<Field> = fields.into_iter().collect();
        fields.sort_by(|left, right| left.name.cmp(&right.name));
        Map { fields, rest: None, atomic: false }
    }

    /// A map from any name to values of one type.
    pub fn of(rest: TypeId) -> Map {
        Map { fields: Vec::new(), rest: Some(rest), atomic: false }
    }

    /// The same, as one value.
    pub fn atomic(self) -> Map {
        Map { atomic: true, ..self }
    }

    /// The declared field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let place = self.fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        Some(&self.fields[place])
    }

    /// The declared fields, sorted by name.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Nothing is declared, everything is allowed and deduced.
    pub(crate) fn is_deduced(&self) -> bool {
        self.fields.is_empty() && self.rest == Some(Schema::DEDUCED)
    }
}

impl Field {
    /// A field without a default.
    pub fn new(name: &str, of: TypeId) -> Field {
        Field { name: name.into(), of, default: None }
    }

    /// The same with a default.
    pub fn or(self, default: Value) -> Field {
        Field { default: Some(default), ..self }
    }
}

impl List {
    /// A list that is one value.
    pub fn atomic(items: TypeId) -> List {
        List { items, merge: Merge::Atomic }
    }

    /// A list of distinct scalars.
    pub fn set(items: TypeId) -> List {
        List { items, merge: Merge::Set }
    }

    /// A list of maps that are found by keys.
    pub fn by_keys<'a>(items: TypeId, keys: impl IntoIterator<Item = &'a str>) -> List {
        List { items, merge: Merge::ByKeys(keys.into_iter().map(Arc::from).collect()) }
    }
}

impl From<Scalar> for Atom {
    fn from(scalar: Scalar) -> Atom {
        Atom { scalar: Some(scalar), ..Atom::default() }
    }
}

impl From<List> for Atom {
    fn from(list: List) -> Atom {
        Atom { list: Some(list), ..Atom::default() }
    }
}

impl From<Map> for Atom {
    fn from(map: Map) -> Atom {
        Atom { map: Some(map), ..Atom::default() }
    }
}
