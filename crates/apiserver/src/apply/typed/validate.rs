//! Whether a value has its type.

use serde_json::Value;

use super::super::go;
use super::super::path::PathElement;
use super::super::schema::{List, Map, Merge, Scalar, Schema, TypeId};
use super::error::{Errors, Problem, Trail, shown};
use super::item::{self, ByElement};
use super::{Duplicates, Kind, kind_of};

/// Nothing is looked for in fields that are the same in a `known` value, which has its type.
pub(super) fn validate(
    schema: &Schema,
    of: TypeId,
    value: &Value,
    known: Option<&Value>,
    duplicates: Duplicates,
) -> Result<(), Errors> {
    let mut walk = Walk { schema, duplicates, problems: Vec::new() };
    walk.value(of, value, known, &Trail::START);
    if walk.problems.is_empty() { Ok(()) } else { Err(Errors(walk.problems)) }
}

struct Walk<'s> {
    schema: &'s Schema,
    duplicates: Duplicates,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn value(&mut self, of: TypeId, value: &Value, known: Option<&Value>, trail: &Trail<'_>) {
        match kind_of(self.schema, Some(of), value) {
            Some(Kind::Map(map)) => self.map(map, value, known, trail),
            Some(Kind::List(list)) => self.list(list, value, trail),
            Some(Kind::Scalar(scalar)) => {
                self.problems.extend(scalar_problem(scalar, value).map(|why| trail.problem(why)));
            }
            None => self.problems.push(trail.problem("schema error: invalid atom: inlined")),
        }
    }

    fn map(&mut self, map: &Map, value: &Value, known: Option<&Value>, trail: &Trail<'_>) {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => return,
            other => return self.problems.push(trail.problem(format!("expected map, got {}", shown(other)))),
        };
        for (name, field) in fields {
            let known = known.and_then(|known| known.get(name));
            if known == Some(field) {
                continue;
            }
            let trail = trail.field(name);
            let Some(of) = map.field(name).map(|field| field.of).or(map.rest) else {
                // As upstream, which looks no further in this map.
                return self.problems.push(trail.problem("field not declared in schema"));
            };
            self.value(of, field, known, &trail);
        }
    }

    fn list(&mut self, list: &List, value: &Value, trail: &Trail<'_>) {
        let items = match value {
            Value::Array(items) => items,
            Value::Null => return,
            other => {
                return self.problems.push(trail.problem(format!("expected list, got {}", shown(other))));
            }
        };
        let mut seen = ByElement::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            if list.merge == Merge::Atomic {
                self.value(list.items, item, None, &trail.index(place));
                continue;
            }
            let element = match item::element(self.schema, list, item) {
                Ok(element) => element,
                // Without a step there is nothing to say of what is below, nor of what comes after.
                Err(why) => return self.problems.push(trail.problem(format!("element {place}: {why}"))),
            };
            if self.is_repeated(&mut seen, &element) {
                self.problems.push(trail.problem(format!("duplicate entries for key {element}")));
            }
            self.value(list.items, item, None, &trail.element(&element));
        }
    }

    /// Whether an element was seen before and should not have been.
    fn is_repeated(&self, seen: &mut ByElement<bool>, element: &PathElement) -> bool {
        let known = seen.entry(element, || false);
        std::mem::replace(known, true) && self.duplicates == Duplicates::Refused
    }
}

/// What is wrong with a scalar, if anything.
pub(super) fn scalar_problem(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Numeric, _) => {
            Some(format!("expected numeric (int or float), got {}", go::type_name(value)))
        }
        (Scalar::String, _) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::syntax(value)))
        }
        (Scalar::Boolean, _) => Some(format!("expected boolean, got {}", shown(value))),
        (Scalar::Untyped, _) => Some(format!("expected any scalar, got {}", shown(value))),
    }
}
