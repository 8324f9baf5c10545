//! Label selectors: their syntax, and what they match.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::{Map, labels, qualified};
use crate::field::{Errors, Path, Value};
use crate::names;

/// A label selector. `tolerate_values` lets label values pass that an older server let in.
pub fn validate(selector: &LabelSelector, tolerate_values: bool, path: &Path) -> Errors {
    let mut errors = labels(selector.match_labels.as_ref(), &path.child("matchLabels"));
    for (i, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let path = path.child("matchExpressions").index(i);
        errors.extend(validate_requirement(requirement, tolerate_values, &path));
    }
    errors
}

fn validate_requirement(
    requirement: &LabelSelectorRequirement,
    tolerate_values: bool,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            errors
                .push(path.child("values").required("must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(
            path.child("values")
                .forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            errors.push(path.child("operator").invalid(Value::json(&other), "not a valid selector operator"));
        }
    }
    errors.extend(qualified(&requirement.key, &path.child("key")));
    if !tolerate_values {
        for (i, value) in values.iter().enumerate() {
            let path = path.child("values").index(i);
            errors.extend(names::label_value(value).into_iter().map(|problem| path.invalid(value, problem)));
        }
    }
    errors
}

/// Whether a selector holds a label value that would not be let in today.
pub fn has_invalid_value(selector: Option<&LabelSelector>) -> bool {
    let requirements = selector.into_iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    requirements
        .flat_map(|requirement| requirement.values.iter().flatten())
        .any(|value| !names::label_value(value).is_empty())
}

/// Whether a selector matches a set of labels; `None` if the selector itself is malformed. No selector matches
/// nothing, an empty one everything.
pub fn matches(selector: Option<&LabelSelector>, labels: &Map) -> Option<bool> {
    let Some(selector) = selector else { return Some(false) };
    let mut all = true;
    for (key, value) in selector.match_labels.iter().flatten() {
        if !names::qualified_name(key).is_empty() || !names::label_value(value).is_empty() {
            return None;
        }
        all &= labels.get(key) == Some(value);
    }
    for requirement in selector.match_expressions.iter().flatten() {
        all &= requirement_matches(requirement, labels)?;
    }
    Some(all)
}

fn requirement_matches(requirement: &LabelSelectorRequirement, labels: &Map) -> Option<bool> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || labels.get(&requirement.key).is_some_and(|value| values.contains(value));
    let malformed = !names::qualified_name(&requirement.key).is_empty()
        || values.iter().any(|value| !names::label_value(value).is_empty());
    match requirement.operator.as_str() {
        _ if malformed => None,
        "In" if !values.is_empty() => Some(listed()),
        "NotIn" if !values.is_empty() => Some(!listed()),
        "Exists" if values.is_empty() => Some(labels.contains_key(&requirement.key)),
        "DoesNotExist" if values.is_empty() => Some(!labels.contains_key(&requirement.key)),
        _ => None,
    }
}

/// A selector as a text, by the keys of its requirements.
pub fn printed(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| (key, format!("{key}={value}")));
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| {
        let key = &requirement.key;
        let mut values = requirement.values.clone().unwrap_or_default();
        values.sort();
        let values = values.join(",");
        let text = match requirement.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        (key, text)
    });
    let mut all: Vec<(&String, String)> = labels.chain(expressions).collect();
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// A selector as Go prints the struct.
pub fn in_go(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| {
        let LabelSelectorRequirement { key, operator, values } = requirement;
        let values = values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let (labels, expressions) = (labels.collect::<String>(), expressions.collect::<String>());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use crate::field::assert_starts;
    use serde_json::json;

    use super::*;

    #[test]
    fn c_66_selectors() {
        let selector = |value| serde_json::from_value::<LabelSelector>(value).expect("a test's selector");
        let check = |value, expected: &[&str]| {
            assert_starts(&validate(&selector(value), false, &Path::new("s")), expected);
        };
        check(json!({}), &[]);
        check(json!({"matchLabels": {"a": "-"}}), &["s.matchLabels: Invalid value: \"-\""]);
        check(
            json!({"matchExpressions": [
                {"key": "a", "operator": "In"},
                {"key": "a", "operator": "Exists", "values": ["x"]},
                {"key": "", "operator": "Near", "values": ["-"]},
            ]}),
            &[
                "s.matchExpressions[0].values: Required value: must be specified",
                "s.matchExpressions[1].values: Forbidden: may not be specified",
                "s.matchExpressions[2].operator: Invalid value: \"Near\": not a valid selector operator",
                "s.matchExpressions[2].key: Invalid value: \"\": name part must be non-empty",
                "s.matchExpressions[2].key: Invalid value: \"\": name part must consist",
                "s.matchExpressions[2].values[0]: Invalid value: \"-\": a valid label",
            ],
        );
    }

    #[test]
    fn selectors_in_go() {
        let selector = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["3", "4"]}, {"key": "d", "operator": "Exists"},
        ]});
        assert_eq!(
            in_go(&serde_json::from_value(selector).expect("a test's selector")),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:c,Operator:In,Values:[3 4],},\
             LabelSelectorRequirement{Key:d,Operator:Exists,Values:[],},},}"
        );
    }

    #[test]
    fn selectors_match() {
        let labels = Map::from([("a".to_owned(), "1".to_owned())]);
        let check = |value: serde_json::Value, expected| {
            let selector: LabelSelector = serde_json::from_value(value).expect("a test's selector");
            assert_eq!(matches(Some(&selector), &labels), expected);
        };
        assert_eq!(matches(None, &labels), Some(false));
        check(json!({}), Some(true));
        check(json!({"matchLabels": {"a": "1"}}), Some(true));
        check(json!({"matchLabels": {"a": "2"}}), Some(false));
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        check(expression("In", &["1", "2"]), Some(true));
        check(expression("NotIn", &["1"]), Some(false));
        check(expression("Exists", &[]), Some(true));
        check(expression("DoesNotExist", &[]), Some(false));
        check(expression("In", &[]), None);
        check(expression("Near", &[]), None);
    }
}
