//! What changes from one value to another of the same type.

use serde_json::Value;

use super::super::go;
use super::super::path::PathElement;
use super::super::schema::{List, Map, Merge, Schema, TypeId};
use super::super::set::{Entry, Set};
use super::error::{Errors, Problem, Trail};
use super::item::{self, ByElement};
use super::{Kind, Kinds, validate};

/// What changes from one value to another. No field is in two of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Fields of the new value only.
    pub added: Set,
    /// Fields of both, with different values.
    pub modified: Set,
    /// Fields of the old value only.
    pub removed: Set,
}

impl Comparison {
    /// Whether the values are the same.
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }
}

pub(super) fn compare(
    schema: &Schema,
    of: TypeId,
    left: &Value,
    right: &Value,
) -> Result<Comparison, Errors> {
    let mut walk = Walk { schema, problems: Vec::new() };
    let mut root = Changes::default();
    walk.value(Some(of), Some(left), Some(right), &mut root, &Trail::START);
    if !walk.problems.is_empty() {
        return Err(Errors(walk.problems));
    }
    Ok(Comparison {
        added: root.added.children,
        modified: root.modified.children,
        removed: root.removed.children,
    })
}

struct Walk<'s> {
    schema: &'s Schema,
    problems: Vec<Problem>,
}

/// What changes at one field and below it.
#[derive(Default)]
struct Changes {
    added: Entry,
    modified: Entry,
    removed: Entry,
}

/// The items of two lists that have the same step.
#[derive(Default)]
struct Sides<'v> {
    left: Vec<&'v Value>,
    right: Vec<&'v Value>,
}

impl Changes {
    fn put(&mut self, element: &PathElement, below: Changes) {
        self.added.children.put(element, below.added);
        self.modified.children.put(element, below.modified);
        self.removed.children.put(element, below.removed);
    }

    /// Records a value that has no parts to compare.
    fn leaf(&mut self, left: Option<&Value>, right: Option<&Value>) {
        match (left, right) {
            (None, _) => self.added.member = true,
            (_, None) => self.removed.member = true,
            (Some(left), Some(right)) => self.modified.member |= !go::equal(left, right),
        }
    }

    /// Records a value whose parts were compared.
    fn branch(&mut self, left: Option<&Value>, right: Option<&Value>) {
        self.added.member |= left.is_none();
        self.removed.member |= left.is_some() && right.is_none();
    }
}

impl Walk<'_> {
    fn value(
        &mut self,
        of: Option<TypeId>,
        left: Option<&Value>,
        right: Option<&Value>,
        changes: &mut Changes,
        trail: &Trail<'_>,
    ) {
        let Some(atom) = of.map(|of| self.schema.get(of)) else {
            return self.problems.push(trail.problem("schema error: invalid atom: inlined"));
        };
        let kinds = Kinds::of(atom, right.or(left));
        // Where both are there but of different kinds, what the old one had is gone and what the new one has is new.
        if let (Some(_), Some(_)) = (left, right) {
            let old = Kinds::of(atom, left);
            if old != kinds {
                self.kind(old.first(atom), left, right, changes, trail);
            }
        }
        self.kind(kinds.first(atom), left, right, changes, trail);
    }

    fn kind(
        &mut self,
        kind: Option<Kind<'_>>,
        left: Option<&Value>,
        right: Option<&Value>,
        changes: &mut Changes,
        trail: &Trail<'_>,
    ) {
        match kind {
            Some(Kind::Map(map)) => self.maps(map, left, right, changes, trail),
            Some(Kind::List(list)) => self.lists(list, left, right, changes, trail),
            Some(Kind::Scalar(scalar)) => {
                let problem =
                    |value: Option<&Value>| value.and_then(|it| validate::scalar_problem(scalar, it));
                if let (Some(why_left), Some(why_right)) = (problem(left), problem(right)) {
                    self.problems.push(trail.problem(format!("lhs: {why_left}")));
                    self.problems.push(trail.problem(format!("rhs: {why_right}")));
                } else {
                    changes.leaf(left, right);
                }
            }
            None => self.problems.push(trail.problem("schema error: invalid atom: inlined")),
        }
    }

    fn maps(
        &mut self,
        map: &Map,
        left: Option<&Value>,
        right: Option<&Value>,
        changes: &mut Changes,
        trail: &Trail<'_>,
    ) {
        let none = serde_json::Map::new();
        let lefts = left.and_then(Value::as_object).unwrap_or(&none);
        let rights = right.and_then(Value::as_object).unwrap_or(&none);
        if map.atomic || lefts.is_empty() && rights.is_empty() {
            return changes.leaf(left, right);
        }
        for (name, old) in lefts {
            self.field(map, name, Some(old), rights.get(name), changes, trail);
        }
        for (name, new) in rights.iter().filter(|(name, _)| !lefts.contains_key(*name)) {
            self.field(map, name, None, Some(new), changes, trail);
        }
        changes.branch(left, right);
    }

    fn field(
        &mut self,
        map: &Map,
        name: &str,
        left: Option<&Value>,
        right: Option<&Value>,
        changes: &mut Changes,
        trail: &Trail<'_>,
    ) {
        // Most fields are the same on both sides, and need no step: both were found to be of their type before.
        if left.is_some() && left == right {
            return;
        }
        let declared = map.field(name);
        let mut below = Changes::default();
        self.value(declared.map(|field| field.of).or(map.rest), left, right, &mut below, &trail.field(name));
        let element = PathElement::Field(declared.map_or_else(|| name.into(), |field| field.name.clone()));
        changes.put(&element, below);
    }

    fn lists(
        &mut self,
        list: &List,
        left: Option<&Value>,
        right: Option<&Value>,
        changes: &mut Changes,
        trail: &Trail<'_>,
    ) {
        let lefts = left.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rights = right.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if list.merge == Merge::Atomic || lefts.is_empty() && rights.is_empty() {
            return changes.leaf(left, right);
        }
        let mut order = Vec::with_capacity(lefts.len().max(rights.len()));
        let mut items = ByElement::with_capacity(order.capacity());
        self.gather(list, lefts, &mut order, &mut items, |sides| &mut sides.left, trail);
        self.gather(list, rights, &mut order, &mut items, |sides| &mut sides.right, trail);
        let mut changed = Vec::new();
        for element in &order {
            let Some(Sides { left: lefts, right: rights }) = items.get(element) else { continue };
            if lefts == rights {
                continue;
            }
            let mut below = Changes::default();
            let mut item = |walk: &mut Self, left, right| {
                walk.value(Some(list.items), left, right, &mut below, &trail.element(element));
            };
            // Items that repeat are one value: it is there, or it is not, or it is another.
            match (lefts.as_slice(), rights.as_slice()) {
                (lefts @ ([] | [_]), rights @ ([] | [_])) => {
                    item(self, lefts.first().copied(), rights.first().copied());
                }
                (lefts @ [_, _, ..], rights @ [_, _, ..]) => {
                    let same = lefts.len() == rights.len()
                        && lefts.iter().zip(rights).all(|(left, right)| go::equal(left, right));
                    below.modified.member |= !same;
                }
                ([_, _, ..], rights) => {
                    if let [only] = rights {
                        item(self, None, Some(only));
                    }
                    below.removed.member = true;
                }
                (lefts, _) => {
                    if let [only] = lefts {
                        item(self, Some(only), None);
                    }
                    below.added.member = true;
                }
            }
            changed.push((element, below));
        }
        // In the order of a set, in which each is only added to the end.
        changed.sort_by_key(|(element, _)| *element);
        for (element, below) in changed {
            changes.put(element, below);
        }
        changes.branch(left, right);
    }

    fn gather<'v>(
        &mut self,
        list: &List,
        values: &'v [Value],
        order: &mut Vec<PathElement>,
        items: &mut ByElement<Sides<'v>>,
        side: impl for<'a> Fn(&'a mut Sides<'v>) -> &'a mut Vec<&'v Value>,
        trail: &Trail<'_>,
    ) {
        for (place, value) in values.iter().enumerate() {
            match item::element(self.schema, list, value) {
                Ok(element) => {
                    let sides = items.entry(&element, || {
                        order.push(element.clone());
                        Sides::default()
                    });
                    side(sides).push(value);
                }
                Err(why) => self.problems.push(trail.problem(format!("element {place}: {why}"))),
            }
        }
    }
}
