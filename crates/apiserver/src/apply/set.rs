//! Sets of fields, and FieldsV1, which is how managed fields write them.
//!
//! A set is a tree of steps. Each step says whether the path that ends there is in the set; steps below it say the same
//! of longer paths. Owning `.spec.replicas` says nothing of owning `.spec`.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::path::{ParseError, Path, PathElement, display};

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// Sorted, and none of them empty: each is a member or has children.
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    element: PathElement,
    member: bool,
    children: Set,
}

/// What a set says of one field and of all below it; how trees are built from the bottom.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) member: bool,
    pub(crate) children: Set,
}

/// FieldsV1 that is no set.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    /// Every step leads to an object.
    #[error("expected an object, found {0}")]
    NotAnObject(String),
    /// A key that is no step.
    #[error("parsing key as path element: {0}")]
    Element(#[from] ParseError),
}

impl Set {
    /// The empty set.
    pub const fn new() -> Set {
        Set { nodes: Vec::new() }
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a path. The empty path is the object itself, which nobody owns.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let place = self.find(first).unwrap_or_else(|place| {
            self.nodes.insert(place, Node { element: first.clone(), member: false, children: Set::new() });
            place
        });
        let node = &mut self.nodes[place];
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Adds what is known of one step. Cheapest in order.
    pub(crate) fn put(&mut self, element: &PathElement, entry: Entry) {
        if !entry.member && entry.children.is_empty() {
            return;
        }
        let in_order = self.nodes.last().is_none_or(|last| last.element < *element);
        let place = if in_order { Err(self.nodes.len()) } else { self.find(element) };
        match place {
            Ok(place) => {
                let known = &mut self.nodes[place];
                known.member |= entry.member;
                known.children = known.children.union(&entry.children);
            }
            Err(place) => {
                let Entry { member, children } = entry;
                self.nodes.insert(place, Node { element: element.clone(), member, children });
            }
        }
    }

    /// Adds what is known of many steps, in any order: one by one, each would shift those that come after it.
    pub(crate) fn put_all(&mut self, mut entries: Vec<(PathElement, Entry)>) {
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (element, entry) in entries {
            self.put(&element, entry);
        }
    }

    /// Whether the path is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let Ok(place) = self.find(first) else { return false };
        let node = &self.nodes[place];
        if rest.is_empty() { node.member } else { node.children.contains(rest) }
    }

    /// What the set says of a step: whether it is a member, and what is below it.
    pub(crate) fn get(&self, element: &PathElement) -> Option<(bool, &Set)> {
        let node = &self.nodes[self.find(element).ok()?];
        Some((node.member, &node.children))
    }

    /// The steps of the first level, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&PathElement, bool, &Set)> {
        self.nodes.iter().map(|node| (&node.element, node.member, &node.children))
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// The paths of either set.
    pub fn union(&self, other: &Set) -> Set {
        zip(self, other, |pair| match pair {
            Pair::Left(node) | Pair::Right(node) => Some(node.clone()),
            Pair::Both(left, right) => Some(Node {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
        })
    }

    /// The paths of both sets.
    pub fn intersection(&self, other: &Set) -> Set {
        zip(self, other, |pair| match pair {
            Pair::Left(_) | Pair::Right(_) => None,
            Pair::Both(left, right) => left.with(
                left.member && right.member, //
                || left.children.intersection(&right.children),
            ),
        })
    }

    /// The paths of this set that are not in the other. Fields below a path of the other stay.
    pub fn difference(&self, other: &Set) -> Set {
        zip(self, other, |pair| match pair {
            Pair::Left(node) => Some(node.clone()),
            Pair::Right(_) => None,
            Pair::Both(left, right) => left.with(
                left.member && !right.member, //
                || left.children.difference(&right.children),
            ),
        })
    }

    /// The paths of this set that are neither in the other nor below a path of it.
    pub fn recursive_difference(&self, other: &Set) -> Set {
        zip(self, other, |pair| match pair {
            Pair::Left(node) => Some(node.clone()),
            Pair::Right(_) => None,
            Pair::Both(_, right) if right.member => None,
            Pair::Both(left, right) => {
                left.with(left.member, || left.children.recursive_difference(&right.children))
            }
        })
    }

    /// Calls `visit` for every path: those that end here first, then those of each step in turn.
    pub fn for_each(&self, mut visit: impl FnMut(&[PathElement])) {
        self.visit(&mut Path::new(), &mut visit);
    }

    fn visit(&self, path: &mut Path, visit: &mut impl FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            path.push(node.element.clone());
            visit(path);
            path.pop();
        }
        for node in &self.nodes {
            path.push(node.element.clone());
            node.children.visit(path, visit);
            path.pop();
        }
    }

    /// The set as FieldsV1.
    pub fn to_fields_v1(&self) -> Value {
        serde_json::from_str(&self.to_json()).expect("what was written is JSON")
    }

    /// The set as the text of FieldsV1, in upstream's order of steps, which is not that of their spelling.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        out
    }

    pub(super) fn write_json(&self, out: &mut String) {
        self.write_below(out, false);
    }

    fn write_below(&self, out: &mut String, member: bool) {
        out.push('{');
        let own = member && !self.is_empty();
        if own {
            out.push_str("\".\":{}");
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if own || i > 0 {
                out.push(',');
            }
            node.element.write_key(out);
            out.push(':');
            node.children.write_below(out, node.member);
        }
        out.push('}');
    }

    /// Reads FieldsV1. Steps of kinds that this version does not know are left out.
    pub fn from_fields_v1(fields: &Value) -> Result<Set, FieldsError> {
        Ok(Entry::from_fields_v1(fields)?.children)
    }
}

/// The key by which FieldsV1 says that a field with children is itself a member.
const OWN: &str = ".";

impl Entry {
    fn from_fields_v1(fields: &Value) -> Result<Entry, FieldsError> {
        let fields = match fields {
            Value::Object(fields) => fields,
            Value::Null => return Ok(Entry { member: true, children: Set::new() }),
            other => return Err(FieldsError::NotAnObject(other.to_string())),
        };
        let mut entry = Entry::default();
        let mut all = Vec::with_capacity(fields.len());
        for (key, below) in fields {
            if key == OWN {
                entry.member = true;
                continue;
            }
            match PathElement::parse(key) {
                Ok(element) => all.push((element, Entry::from_fields_v1(below)?)),
                Err(ParseError::Unknown) => {}
                Err(error) => return Err(error.into()),
            }
        }
        entry.children.put_all(all);
        entry.member |= entry.children.is_empty();
        Ok(entry)
    }
}

/// Reads the text of FieldsV1 without making a tree of it first. It says less of what is wrong with it than
/// [`Set::from_fields_v1`].
impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Entry::deserialize(deserializer)?.children)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Entry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("FieldsV1")
            }

            fn visit_unit<E>(self) -> Result<Entry, E> {
                Ok(Entry { member: true, children: Set::new() })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Entry, A::Error> {
                let mut entry = Entry::default();
                let mut all = Vec::new();
                while let Some(step) = fields.next_key::<Step>()? {
                    match step {
                        Step::Own => {
                            fields.next_value::<IgnoredAny>()?;
                            entry.member = true;
                        }
                        Step::Unknown => drop(fields.next_value::<IgnoredAny>()?),
                        Step::To(element) => all.push((element, fields.next_value()?)),
                    }
                }
                entry.children.put_all(all);
                entry.member |= entry.children.is_empty();
                Ok(entry)
            }
        }

        deserializer.deserialize_any(Fields)
    }
}

/// A key of FieldsV1.
enum Step {
    Own,
    To(PathElement),
    Unknown,
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;

        impl Visitor<'_> for Key {
            type Value = Step;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step")
            }

            fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Step, E> {
                match key {
                    OWN => Ok(Step::Own),
                    key => match PathElement::parse(key) {
                        Ok(element) => Ok(Step::To(element)),
                        Err(ParseError::Unknown) => Ok(Step::Unknown),
                        Err(error) => Err(E::custom(error)),
                    },
                }
            }
        }

        deserializer.deserialize_str(Key)
    }
}

impl Node {
    /// The same step with other contents, or nothing if they are empty.
    fn with(&self, member: bool, children: impl FnOnce() -> Set) -> Option<Node> {
        let children = children();
        (member || !children.is_empty()).then(|| Node { element: self.element.clone(), member, children })
    }
}

enum Pair<'a> {
    Left(&'a Node),
    Right(&'a Node),
    Both(&'a Node, &'a Node),
}

fn zip(left: &Set, right: &Set, mut keep: impl FnMut(Pair<'_>) -> Option<Node>) -> Set {
    let (mut lefts, mut rights) = (left.nodes.iter().peekable(), right.nodes.iter().peekable());
    let mut nodes = Vec::with_capacity(left.nodes.len());
    loop {
        let pair = match (lefts.peek(), rights.peek()) {
            (None, None) => return Set { nodes },
            (Some(&left), None) => Pair::Left(left),
            (None, Some(&right)) => Pair::Right(right),
            (Some(&left), Some(&right)) => match left.element.cmp(&right.element) {
                Ordering::Less => Pair::Left(left),
                Ordering::Greater => Pair::Right(right),
                Ordering::Equal => Pair::Both(left, right),
            },
        };
        if !matches!(pair, Pair::Right(_)) {
            lefts.next();
        }
        if !matches!(pair, Pair::Left(_)) {
            rights.next();
        }
        nodes.extend(keep(pair));
    }
}

impl<'a> FromIterator<&'a [PathElement]> for Set {
    fn from_iter<T: IntoIterator<Item = &'a [PathElement]>>(paths: T) -> Set {
        let mut set = Set::new();
        for path in paths {
            set.insert(path);
        }
        set
    }
}

/// One path a line.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        self.for_each(|path| lines.push(display(path)));
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests;
