//! Where pods were placed: v1beta1 lists every domain, v1beta2 says what domains share once (TA-5).

use serde_json::{Value, json};

/// The domains of v1beta1 as one slice of v1beta2.
pub(super) fn fold(assignment: &Value) -> Value {
    let levels = assignment["levels"].clone();
    let domains = assignment["domains"].as_array().map(Vec::as_slice).unwrap_or_default();
    if domains.is_empty() {
        return json!({ "levels": levels, "slices": [] });
    }
    let depth = levels.as_array().map_or(0, Vec::len);
    let values_per_level: Vec<Value> = (0..depth).map(|level| fold_values(domains, level)).collect();
    let counts: Vec<&Value> = domains.iter().map(|domain| &domain["count"]).collect();
    let pod_counts = match all_equal(&counts) {
        Some(count) => json!({ "universal": count }),
        None => json!({ "individual": counts }),
    };
    let slice =
        json!({ "domainCount": domains.len(), "valuesPerLevel": values_per_level, "podCounts": pod_counts });
    json!({ "levels": levels, "slices": [slice] })
}

fn fold_values(domains: &[Value], level: usize) -> Value {
    let values: Vec<&str> =
        domains.iter().map(|domain| domain["values"][level].as_str().unwrap_or_default()).collect();
    if let Some(value) = all_equal(&values) {
        return json!({ "universal": value });
    }
    let prefix =
        values.iter().skip(1).fold(values[0], |shared, value| &shared[..shared_prefix(shared, value)]);
    let ends: Vec<&str> = values.iter().map(|value| &value[prefix.len()..]).collect();
    let suffix = ends
        .iter()
        .skip(1)
        .fold(ends[0], |shared, value| &shared[shared.len() - shared_suffix(shared, value)..]);
    let roots: Vec<&str> = ends.iter().map(|end| &end[..end.len() - suffix.len()]).collect();
    let mut individual = json!({ "roots": roots });
    for (field, shared) in [("prefix", prefix), ("suffix", suffix)] {
        if !shared.is_empty() {
            individual[field] = json!(shared);
        }
    }
    json!({ "individual": individual })
}

/// The domains that the slices of v1beta2 stand for, however they share.
pub(super) fn unfold(assignment: &Value) -> Value {
    let slices = assignment["slices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut domains = Vec::new();
    for slice in slices {
        let levels = slice["valuesPerLevel"].as_array().map(Vec::as_slice).unwrap_or_default();
        let count = usize::try_from(slice["domainCount"].as_u64().unwrap_or(0)).unwrap_or(0);
        // A slice says how many domains it stands for; what it spells out for each bounds what we make of that.
        let spelled =
            levels.iter().filter_map(|level| level["individual"]["roots"].as_array()).map(Vec::len).max();
        for index in 0..count.min(spelled.unwrap_or(1)) {
            let values: Vec<String> = levels.iter().map(|level| unfold_value(level, index)).collect();
            let counts = &slice["podCounts"];
            let count = if counts["universal"].is_null() {
                &counts["individual"][index]
            } else {
                &counts["universal"]
            };
            domains.push(json!({ "values": values, "count": count }));
        }
    }
    json!({ "levels": assignment["levels"], "domains": domains })
}

fn unfold_value(level: &Value, index: usize) -> String {
    if let Some(value) = level["universal"].as_str() {
        return value.to_owned();
    }
    let individual = &level["individual"];
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    part(&individual["prefix"]) + &part(&individual["roots"][index]) + &part(&individual["suffix"])
}

fn all_equal<T: PartialEq + Copy>(values: &[T]) -> Option<T> {
    let first = *values.first()?;
    values.iter().all(|value| *value == first).then_some(first)
}

/// How many bytes two texts share at their beginning, in whole characters.
fn shared_prefix(a: &str, b: &str) -> usize {
    let shared = a.chars().zip(b.chars()).take_while(|(a, b)| a == b);
    shared.map(|(character, _)| character.len_utf8()).sum()
}

/// The same at their end.
fn shared_suffix(a: &str, b: &str) -> usize {
    let shared = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a == b);
    shared.map(|(character, _)| character.len_utf8()).sum()
}
