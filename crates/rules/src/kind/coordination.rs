//! Leases: nothing but compare and swap, and a few numbers that must make sense (3.13).

use super::{It, Kind, at, text};
use crate::field::{Errors, Path, Value};
use crate::meta::NEGATIVE;

pub(super) struct Leases;

impl Leases {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|seconds| *seconds <= 0) {
            errors.push(path.child("leaseDurationSeconds").invalid(seconds, "must be greater than 0"));
        }
        if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
            errors.push(path.child("leaseTransitions").invalid(count, NEGATIVE));
        }
        if let Some(strategy) = spec["strategy"].as_str() {
            errors.extend(self::strategy(strategy, &path.child("strategy")));
        }
        if !text(spec, "preferredHolder").is_empty() && text(spec, "strategy").is_empty() {
            let why = "may only be specified if `strategy` is defined";
            errors.push(path.child("preferredHolder").forbidden(why));
        }
        errors
    }
}

/// How a new holder is chosen: one word that is known, or a name with a domain.
fn strategy(strategy: &str, path: &Path) -> Errors {
    let problems = crate::names::qualified_name(strategy);
    if !problems.is_empty() {
        return problems.into_iter().map(|problem| path.invalid(Value::json(&strategy), problem)).collect();
    }
    if strategy.contains('/') || strategy == "OldestEmulationVersion" {
        return Errors::new();
    }
    vec![path.not_supported(Value::json(&strategy), &["OldestEmulationVersion"])]
}

/// Behind a gate that is off: CoordinatedLeaderElection.
fn drop_disabled(new: &mut serde_json::Value, old: &serde_json::Value) {
    for field in ["strategy", "preferredHolder"] {
        if at(old, "spec")[field].is_null() {
            new["spec"].as_object_mut().map(|spec| spec.remove(field));
        }
    }
}

impl Kind for Leases {
    fn prepare_create(&self, new: &mut serde_json::Value) -> Vec<String> {
        drop_disabled(new, &serde_json::Value::Null);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut serde_json::Value, old: &serde_json::Value) {
        drop_disabled(new, old);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.any_metadata();
        errors.extend(Leases::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.any_metadata_update();
        errors.extend(Leases::spec(it));
        errors
    }
}
