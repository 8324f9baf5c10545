//! Fields that a configuration changes and that others manage.

use std::fmt;

use super::managers::Manager;
use super::path::{Path, display};
use super::set::Set;

/// A field that another manager has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Whose it is.
    pub manager: Manager,
    /// The field.
    pub path: Path,
}

/// All fields of a configuration that other managers have. Prints as the message of the 409.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflict {
    /// The message of this conflict's cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager.shown())
    }

    /// The field of this conflict's cause.
    pub fn field(&self) -> String {
        display(&self.path)
    }
}

impl Conflicts {
    /// The type of every cause.
    pub const CAUSE: &'static str = "FieldManagerConflict";

    pub(crate) fn new(sets: impl IntoIterator<Item = (Manager, Set)>) -> Conflicts {
        let mut sets: Vec<(String, Manager, Set)> =
            sets.into_iter().map(|(manager, set)| (manager.identifier(), manager, set)).collect();
        sets.sort_by(|(left, ..), (right, ..)| left.cmp(right));
        let mut conflicts = Vec::new();
        for (_, manager, set) in sets {
            set.for_each(|path| conflicts.push(Conflict { manager: manager.clone(), path: path.to_vec() }));
        }
        Conflicts(conflicts)
    }

    pub(crate) fn to_set(&self) -> Set {
        self.0.iter().map(|conflict| conflict.path.as_slice()).collect()
    }

    pub(crate) fn except(self, set: &Set) -> Conflicts {
        Conflicts(self.0.into_iter().filter(|conflict| !set.contains(&conflict.path)).collect())
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message(), only.field());
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut before: Option<&Manager> = None;
        for conflict in &self.0 {
            if before != Some(&conflict.manager) {
                let line = if before.is_some() { "\n" } else { "" };
                write!(f, "{line}conflicts with {}:", conflict.manager.shown())?;
                before = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field())?;
        }
        Ok(())
    }
}

impl std::error::Error for Conflicts {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::managers::Operation;
    use super::*;

    #[test]
    fn r2_44_conflicts_are_told_by_manager() {
        let set = |fields| Set::from_fields_v1(&fields).expect("FieldsV1");
        let alice = Manager::new("alice", Operation::Apply, "");
        let bob = Manager::new("bob", Operation::Update { version: "v1".into() }, "scale");
        let one = Conflicts::new([(bob.clone(), set(json!({"f:spec": {"f:x": {}}})))]);
        assert_eq!(
            one.to_string(),
            "Apply failed with 1 conflict: conflict with \"bob\" with subresource \"scale\" using v1: .spec.x"
        );
        assert_eq!(one.0[0].message(), "conflict with \"bob\" with subresource \"scale\" using v1");
        let both = Conflicts::new([
            (bob, set(json!({"f:spec": {"f:x": {}}}))),
            (alice, set(json!({"f:data": {".": {}, "f:k": {}}}))),
        ]);
        assert_eq!(
            both.to_string(),
            "Apply failed with 3 conflicts: conflicts with \"alice\":\n- .data\n- .data.k\nconflicts with \"bob\" \
             with subresource \"scale\" using v1:\n- .spec.x"
        );
    }
}
