//! Fields that a request cannot change, and that it therefore does not come to manage.
//!
//! Writes to a resource reset its status, writes to `/status` reset the spec, `/resize` resets nearly all.

use std::collections::BTreeMap;

use super::path::PathElement;
use super::set::{Entry, Set};
use super::typed::Comparison;

/// Which fields of a set count.
#[derive(Debug, Clone)]
pub enum Filter {
    /// All but these and what is below them.
    Except(Set),
    /// Only those of a pattern.
    Only(Pattern),
}

/// A filter for each version in which fields may be managed. A version without one counts every field.
pub type Filters = BTreeMap<String, Filter>;

/// Paths, some of whose steps may be any.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Every path.
    All,
    /// Paths whose first step matches, and whose others match what follows. Steps that match any come first.
    Steps(Vec<(Option<PathElement>, Pattern)>),
}

impl Filter {
    pub(crate) fn apply(&self, set: &Set) -> Set {
        match self {
            Filter::Except(fields) => set.recursive_difference(fields),
            Filter::Only(pattern) => pattern.matching(set),
        }
    }

    pub(crate) fn apply_to(&self, changes: Comparison) -> Comparison {
        Comparison {
            added: self.apply(&changes.added),
            modified: self.apply(&changes.modified),
            removed: self.apply(&changes.removed),
        }
    }
}

impl Pattern {
    /// The paths that begin with these steps; `None` is any step.
    pub fn prefix(steps: &[Option<PathElement>]) -> Pattern {
        match steps.split_first() {
            None => Pattern::All,
            Some((first, rest)) => Pattern::Steps(vec![(first.clone(), Pattern::prefix(rest))]),
        }
    }

    /// The paths of either pattern.
    pub fn or(self, other: Pattern) -> Pattern {
        let (Pattern::Steps(mut steps), Pattern::Steps(others)) = (self, other) else { return Pattern::All };
        for (step, below) in others {
            // As upstream, steps that match any are never joined, and of two of them only the first is followed.
            match steps.iter().position(|(known, _)| step.is_some() && *known == step) {
                Some(place) => {
                    let known = std::mem::replace(&mut steps[place].1, Pattern::All);
                    steps[place].1 = known.or(below);
                }
                None => steps.push((step, below)),
            }
        }
        steps.sort_by(|(left, _), (right, _)| left.cmp(right));
        Pattern::Steps(steps)
    }

    fn matching(&self, set: &Set) -> Set {
        let Pattern::Steps(steps) = self else { return set.clone() };
        let mut matched = Set::new();
        for (element, member, children) in set.entries() {
            let step = steps.iter().find(|(step, _)| step.as_ref().is_none_or(|step| step == element));
            if let Some((_, below)) = step {
                matched.put(element, Entry { member, children: below.matching(children) });
            }
        }
        matched
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(fields: Value) -> Set {
        Set::from_fields_v1(&fields).expect("FieldsV1")
    }

    fn prefix(steps: &str) -> Pattern {
        let step = |step: &str| (step != "*").then(|| PathElement::field(step));
        Pattern::prefix(&steps.split('.').map(step).collect::<Vec<_>>())
    }

    #[test]
    fn r2_46_reset_fields_are_left_out_with_all_below() {
        let filter = Filter::Except(set(json!({"f:status": {}})));
        let all = set(json!({"f:spec": {"f:a": {}}, "f:status": {".": {}, "f:b": {"f:c": {}}}}));
        assert_eq!(filter.apply(&all), set(json!({"f:spec": {"f:a": {}}})));
    }

    #[test]
    fn r2_46_patterns_keep_what_they_lead_to() {
        let all = set(json!({"f:spec": {".": {}, "f:containers": {"k:{\"name\":\"c\"}": {
            ".": {}, "f:image": {}, "f:resources": {"f:limits": {}}, "f:resizePolicy": {}}}, "f:x": {}}, "f:status": {}}));
        let resources = json!({"f:spec": {".": {}, "f:containers": {"k:{\"name\":\"c\"}": {
            ".": {}, "f:resources": {"f:limits": {}}}}}});
        assert_eq!(Filter::Only(prefix("spec.containers.*.resources")).apply(&all), set(resources.clone()));
        let either = prefix("spec.containers.*.resources").or(prefix("spec.containers.*.resizePolicy"));
        assert_eq!(Filter::Only(either).apply(&all), set(resources));
        let fields = prefix("spec.x").or(prefix("status"));
        assert_eq!(
            Filter::Only(fields).apply(&all),
            set(json!({"f:spec": {".": {}, "f:x": {}}, "f:status": {}}))
        );
    }
}
