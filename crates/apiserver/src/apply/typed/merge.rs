//! Two values of one type made into one.

use serde_json::Value;

use super::super::path::PathElement;
use super::super::schema::{List, Map, Merge, Schema, TypeId};
use super::error::{Errors, Problem, Trail};
use super::item::{self, ByElement};
use super::{Kind, Kinds, validate};

/// The left value with the right one written over it.
pub(super) fn merge(
    schema: &Schema,
    of: TypeId,
    left: &Value,
    right: &Value,
) -> Result<Option<Value>, Errors> {
    let mut walk = Walk { schema, problems: Vec::new() };
    let merged = walk.value(Some(of), Some(left), Some(right), &Trail::START);
    if walk.problems.is_empty() { Ok(merged) } else { Err(Errors(walk.problems)) }
}

struct Walk<'s> {
    schema: &'s Schema,
    problems: Vec<Problem>,
}

/// The right value if there is one, for all that does not merge.
fn take(left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    right.or(left).cloned()
}

impl Walk<'_> {
    fn value(
        &mut self,
        of: Option<TypeId>,
        left: Option<&Value>,
        right: Option<&Value>,
        trail: &Trail<'_>,
    ) -> Option<Value> {
        let Some(atom) = of.map(|of| self.schema.get(of)) else {
            self.problems.push(trail.problem("schema error: invalid atom: inlined"));
            return None;
        };
        // The right value decides as what both are read; where there is none, the left one.
        let kinds = Kinds::of(atom, right.or(left));
        match kinds.first(atom) {
            Some(Kind::Map(map)) => self.maps(map, left, right, trail),
            Some(Kind::List(list)) => self.lists(list, left, right, trail),
            Some(Kind::Scalar(scalar)) => {
                let problem =
                    |value: Option<&Value>| value.and_then(|it| validate::scalar_problem(scalar, it));
                if let (Some(why_left), Some(why_right)) = (problem(left), problem(right)) {
                    self.problems.push(trail.problem(format!("lhs: {why_left}")));
                    self.problems.push(trail.problem(format!("rhs: {why_right}")));
                    return None;
                }
                take(left, right)
            }
            None => {
                self.problems.push(trail.problem("schema error: invalid atom: inlined"));
                None
            }
        }
    }

    fn maps(
        &mut self,
        map: &Map,
        left: Option<&Value>,
        right: Option<&Value>,
        trail: &Trail<'_>,
    ) -> Option<Value> {
        let none = serde_json::Map::new();
        let lefts = left.and_then(Value::as_object).unwrap_or(&none);
        let rights = right.and_then(Value::as_object).unwrap_or(&none);
        // Two empty ones are one value, so that `{}` and null stay different.
        if map.atomic || lefts.is_empty() && rights.is_empty() {
            return take(left, right);
        }
        let mut merged = serde_json::Map::new();
        let of = |name: &str| map.field(name).map(|field| field.of).or(map.rest);
        for (name, left) in lefts {
            let trail = trail.field(name);
            if let Some(value) = self.value(of(name), Some(left), rights.get(name), &trail) {
                merged.insert(name.clone(), value);
            }
        }
        for (name, right) in rights.iter().filter(|(name, _)| !lefts.contains_key(*name)) {
            let trail = trail.field(name);
            if let Some(value) = self.value(of(name), None, Some(right), &trail) {
                merged.insert(name.clone(), value);
            }
        }
        (!merged.is_empty()).then_some(Value::Object(merged))
    }

    fn lists(
        &mut self,
        list: &List,
        left: Option<&Value>,
        right: Option<&Value>,
        trail: &Trail<'_>,
    ) -> Option<Value> {
        let lefts = left.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rights = right.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if list.merge == Merge::Atomic || lefts.is_empty() && rights.is_empty() {
            return take(left, right);
        }
        let before = self.problems.len();
        let rights = Items::index(self, list, rights, Repeats::Refused, trail);
        let lefts = Items::index(self, list, lefts, Repeats::Emptied, trail);
        if self.problems.len() > before {
            return None;
        }
        let merged = self.interleave(list, &lefts, &rights, trail);
        (!merged.is_empty()).then_some(Value::Array(merged))
    }

    /// Both lists' items: those of the right in its order, those of the left where they stood between shared ones.
    fn interleave(
        &mut self,
        list: &List,
        lefts: &Items<'_>,
        rights: &Items<'_>,
        trail: &Trail<'_>,
    ) -> Vec<Value> {
        let mut merged = Vec::with_capacity(lefts.order.len().max(rights.order.len()));
        let mut taken = ByElement::with_capacity(rights.order.len());
        let mut shared = rights.order.iter().filter(|(element, _)| lefts.values.get(element).is_some());
        let mut next_shared = shared.next().map(|(element, _)| element);
        let (mut l, mut r) = (0, 0);
        while l < lefts.order.len() || r < rights.order.len() {
            if let (Some((element, _)), Some((other, _))) = (lefts.order.get(l), rights.order.get(r)) {
                if element == other {
                    taken.entry(element, || ());
                    merged.extend(self.item(list, element, lefts.get(element), rights.get(element), trail));
                    (l, r) = (l + 1, r + 1);
                    next_shared = shared.next().map(|(element, _)| element);
                    continue;
                }
                let is_shared = rights.values.get(element).is_some();
                if is_shared && next_shared.is_some_and(|next| next != element) {
                    l += 1; // its turn comes when the right list gets to it
                    continue;
                }
            }
            if let Some((element, item)) = lefts.order.get(l) {
                if rights.values.get(element).is_none() {
                    merged.extend(self.item(list, element, Some(item), None, trail));
                    l += 1;
                    continue;
                } else if taken.get(element).is_some() {
                    l += 1;
                }
            }
            if let Some((element, _)) = rights.order.get(r) {
                taken.entry(element, || ());
                merged.extend(self.item(list, element, lefts.get(element), rights.get(element), trail));
                r += 1;
                if next_shared == Some(element) {
                    next_shared = shared.next().map(|(element, _)| element);
                }
            }
        }
        merged
    }

    fn item(
        &mut self,
        list: &List,
        element: &PathElement,
        left: Option<&Value>,
        right: Option<&Value>,
        trail: &Trail<'_>,
    ) -> Option<Value> {
        // As upstream, which loses what is wrong inside of list items here; validation has spoken of it before.
        let before = self.problems.len();
        let merged = self.value(Some(list.items), left, right, &trail.element(element));
        self.problems.truncate(before);
        merged
    }
}

/// A list's items by their steps.
struct Items<'v> {
    order: Vec<(PathElement, &'v Value)>,
    values: ByElement<&'v Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Refused,
    /// Items that repeat merge with nothing.
    Emptied,
}

impl<'v> Items<'v> {
    fn index(
        walk: &mut Walk<'_>,
        list: &List,
        items: &'v [Value],
        repeats: Repeats,
        trail: &Trail<'_>,
    ) -> Items<'v> {
        let mut order = Vec::with_capacity(items.len());
        let mut values = ByElement::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            let element = match item::element(walk.schema, list, item) {
                Ok(element) => element,
                Err(why) => {
                    walk.problems.push(trail.problem(format!("element {place}: {why}")));
                    continue;
                }
            };
            let mut is_new = false;
            let value = values.entry(&element, || {
                is_new = true;
                item
            });
            if !is_new && repeats == Repeats::Refused {
                walk.problems.push(trail.problem(format!("duplicate entries for key {element}")));
                continue;
            }
            if !is_new {
                *value = &Value::Null;
            }
            order.push((element, item));
        }
        Items { order, values }
    }

    fn get(&self, element: &PathElement) -> Option<&'v Value> {
        self.values.get(element).copied()
    }
}
