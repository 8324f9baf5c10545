//! The syntax of a success policy (C-55…C-59).

use k8s_openapi::api::batch::v1::{JobSpec, SuccessPolicy, SuccessPolicyRule};

use crate::field::{Errors, Path, Value};
use crate::job::indexes::IndexSet;
use crate::job::is_indexed;
use crate::meta::not_negative;
use crate::wire;

const MAX_RULES: usize = 20;
const MAX_INDEXES_BYTES: usize = 64 * 1024;

pub(super) fn validate(policy: &SuccessPolicy, spec: &JobSpec, path: &Path) -> Errors {
    if !is_indexed(spec) {
        let policy = Value::internal(wire::SUCCESS_POLICY, policy);
        return vec![path.invalid(policy, "requires indexed completion mode")];
    }
    let path = path.child("rules");
    let mut errors = Errors::new();
    if policy.rules.is_empty() {
        errors
            .push(path.required("at least one rules must be specified when the successPolicy is specified"));
    }
    if policy.rules.len() > MAX_RULES {
        errors.push(path.too_many(policy.rules.len(), MAX_RULES));
    }
    for (i, rule) in policy.rules.iter().enumerate() {
        errors.extend(validate_rule(rule, spec.completions, &path.index(i)));
    }
    errors
}

/// One rule. An Indexed Job without completions is refused elsewhere (C-31), and nothing can be compared with them
/// here; upstream does not get that far and answers 500.
fn validate_rule(rule: &SuccessPolicyRule, completions: Option<i32>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
        errors.push(path.required("at least one of succeededCount or succeededIndexes must be specified"));
    }
    let mut listed = None;
    if let (Some(text), Some(completions)) = (&rule.succeeded_indexes, completions) {
        let path = path.child("succeededIndexes");
        if text.len() > MAX_INDEXES_BYTES {
            errors.push(path.too_long(MAX_INDEXES_BYTES));
        }
        let indexes = IndexSet::parse(text, completions).unwrap_or_else(|why| {
            errors.push(path.invalid(text, format!("error parsing succeededIndexes: {why}")));
            IndexSet::new()
        });
        listed = Some(indexes.len());
    }
    if let Some(count) = rule.succeeded_count {
        let path = path.child("succeededCount");
        let at_most = |limit: i64, of: &str| {
            let why = format!("must be less than or equal to {limit} (the number of {of})");
            (i64::from(count) > limit).then(|| path.invalid(count, why))
        };
        errors.extend(not_negative(count.into(), &path));
        errors
            .extend(completions.and_then(|completions| at_most(completions.into(), "specified completions")));
        errors.extend(listed.and_then(|listed| {
            let listed = i64::try_from(listed).expect("there are at most 2^31 indexes");
            at_most(listed, "indexes in the specified succeededIndexes field")
        }));
    }
    errors
}
