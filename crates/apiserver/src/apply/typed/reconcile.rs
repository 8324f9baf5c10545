//! Sets of fields that were written before a type changed.

use super::super::path::PathElement;
use super::super::schema::{Merge, Schema, TypeId};
use super::super::set::{Entry, Set};

/// The set as the type now wants it: what became atomic is owned as one value. `None` if nothing changes.
pub(super) fn reconcile(schema: &Schema, of: TypeId, set: &Set) -> Option<Set> {
    let mut root = Entry { member: false, children: Set::new() };
    let changed = walk(schema, of, Some(set), false, &mut root);
    changed.then(|| set.recursive_difference(&root.children).union(&root.children))
}

/// Collects in `atomic` what is owned in parts but is one value. Says whether there is anything.
fn walk(schema: &Schema, of: TypeId, set: Option<&Set>, is_leaf: bool, atomic: &mut Entry) -> bool {
    let atom = schema.get(of);
    let below = |element: &PathElement| match (&atom.map, &atom.list) {
        (Some(map), _) => match element {
            PathElement::Field(name) => map.field(name).map(|field| field.of).or(map.rest),
            _ => map.rest,
        },
        (None, Some(list)) => Some(list.items),
        (None, None) => None,
    };
    let became_atomic = match (&atom.map, atom.scalar, &atom.list) {
        (Some(map), _, _) if !map.is_deduced() => map.atomic && !is_leaf,
        (None, None, Some(list)) => list.merge == Merge::Atomic && !is_leaf,
        _ => return false,
    };
    if became_atomic {
        // A list counts even with nothing of it owned.
        atomic.member = atom.map.is_none() || set.is_some_and(|set| !set.is_empty());
        return atomic.member;
    }
    let mut changed = false;
    for (element, member, children) in set.into_iter().flat_map(Set::entries) {
        let Some(of) = below(element) else { continue };
        let mut entry = Entry::default();
        let children = (!children.is_empty()).then_some(children);
        changed |= walk(schema, of, children, member && children.is_none(), &mut entry);
        atomic.children.put(element, entry);
    }
    changed
}
