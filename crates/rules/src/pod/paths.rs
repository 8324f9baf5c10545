//! Paths inside volumes and on nodes: where they may lead.

use crate::field::{Errors, Path};

/// No part of the path leads back up.
pub(crate) fn no_backsteps(target: &str, path: &Path) -> Errors {
    let steps_back = target.split('/').any(|part| part == "..");
    if steps_back { vec![path.invalid(target, "must not contain '..'")] } else { Errors::new() }
}

/// A relative path that stays below where it starts.
pub(super) fn descending(target: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if target.starts_with('/') {
        errors.push(path.invalid(target, "must be a relative path"));
    }
    errors.extend(no_backsteps(target, path));
    errors
}

/// A descending path whose name is not one that a node keeps for itself: those start with two dots.
pub(super) fn not_reserved(target: &str, path: &Path) -> Errors {
    let mut errors = descending(target, path);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.push(path.invalid(target, "must not start with '..'"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_63_paths() {
        for (target, expected) in [
            ("a/b", &[] as &[&str]),
            ("a/..b", &[]),
            ("/a", &["must be a relative path"]),
            ("/a/../b", &["must be a relative path", "must not contain '..'"]),
            ("..", &["must not contain '..'", "must not start with '..'"]),
            ("../a", &["must not contain '..'"]),
            ("..a", &["must not start with '..'"]),
        ] {
            let errors = not_reserved(target, &Path::new("p"));
            let details: Vec<&str> = errors.iter().map(|error| error.detail.as_str()).collect();
            assert_eq!(details, expected, "{target}");
        }
    }
}
