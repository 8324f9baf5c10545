//! What a pod's RuntimeClass says: what it costs beside its containers, and where it may go (3.5).

use futures::future::{BoxFuture, ready};
use serde_json::Value;
use store::Store;

use super::limits::quantities;
use super::{find, forbidden};
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

/// Gives pods what their class has, and refuses those whose class is unknown or says otherwise.
pub(in crate::admission) struct RuntimeClasses(pub(in crate::admission) Store);

impl Plugin for RuntimeClasses {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        subresource.is_empty()
            && operation == Operation::Create
            && (resource.group.as_str(), resource.plural.as_str()) == ("", "pods")
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let Some(mut pod) = request.object.take() else { return Box::pin(ready(Ok(()))) };
        let done = self.class(&pod).and_then(|class| apply(&mut pod, class.as_ref()));
        request.object = Some(pod);
        Box::pin(ready(done.map_err(|why| forbidden(request, &why))))
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let Some(pod) = request.object.as_ref() else { return Box::pin(ready(Ok(()))) };
        let done = self.class(pod).and_then(|class| check(pod, class.as_ref()));
        Box::pin(ready(done.map_err(|why| forbidden(request, &why))))
    }
}

impl RuntimeClasses {
    fn class(&self, pod: &Value) -> Result<Option<Value>, String> {
        match object::text(pod, &["spec", "runtimeClassName"]) {
            "" => Ok(None),
            name => {
                let found = find(&self.0, "node.k8s.io", "runtimeclasses", "", name);
                let unknown = || format!("pod rejected: RuntimeClass {} not found", types::go::quote(name));
                found.ok_or_else(unknown).map(Some)
            }
        }
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

fn apply(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let Some(class) = class else { return Ok(()) };
    let (overhead, own) = (&class["overhead"]["podFixed"], &pod["spec"]["overhead"]);
    if !class["overhead"].is_null() {
        if own.as_object().is_some_and(|own| !own.is_empty()) && quantities(own) != quantities(overhead) {
            return Err(MISMATCH.to_owned());
        }
        if !overhead.is_null() {
            pod["spec"]["overhead"] = overhead.clone();
        }
    }
    let scheduling = &class["scheduling"];
    if scheduling.is_null() {
        return Ok(());
    }
    let mut selector = pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(own) = selector.get(key).filter(|own| *own != value) {
            let (own, value) = (own.as_str().unwrap_or_default(), value.as_str().unwrap_or_default());
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            ));
        }
        selector.insert(key.clone(), value.clone());
    }
    if !selector.is_empty() {
        pod["spec"]["nodeSelector"] = Value::Object(selector);
    }
    let tolerations = merged(list(&pod["spec"]["tolerations"]).chain(list(&scheduling["tolerations"])));
    if !tolerations.is_empty() {
        pod["spec"]["tolerations"] = Value::Array(tolerations);
    }
    Ok(())
}

/// Tolerations without those that others make needless. One with a shorter time would shorten what the others allow: of
/// all that match a taint the shortest counts.
fn merged<'a>(tolerations: impl Iterator<Item = &'a Value>) -> Vec<Value> {
    let all: Vec<&Value> = tolerations.collect();
    let mut merged: Vec<&Value> = Vec::new();
    for (i, toleration) in all.iter().enumerate() {
        let is_wider = |other: &&Value| terms(other) != terms(toleration) && includes(other, toleration);
        // Of equal ones the first stays.
        if !merged.iter().any(|other| includes(other, toleration)) && !all[i + 1..].iter().any(is_wider) {
            merged.push(toleration);
        }
    }
    merged.into_iter().cloned().collect()
}

fn terms(toleration: &Value) -> ([&str; 4], Option<i64>) {
    let texts = ["key", "operator", "value", "effect"].map(|field| object::text(toleration, &[field]));
    (texts, toleration["tolerationSeconds"].as_i64())
}

/// Whether the first toleration tolerates everything that the second does.
fn includes(first: &Value, second: &Value) -> bool {
    if terms(first) == terms(second) {
        return true;
    }
    let ([key, operator, value, effect], seconds) = terms(first);
    let ([other_key, other_operator, other_value, other_effect], other_seconds) = terms(second);
    let has_key = key == other_key || key.is_empty() && operator == "Exists";
    let has_effect = effect == other_effect || effect.is_empty();
    let lasts = effect != "NoExecute"
        || seconds.is_none_or(|seconds| other_seconds.is_some_and(|other| other <= seconds));
    let has_value = match operator {
        // Upstream does not find one without an operator, although that means the same.
        "" | "Equal" => other_operator == "Equal" && value == other_value,
        operator => operator == "Exists",
    };
    has_key && has_effect && lasts && has_value
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn check(pod: &Value, class: Option<&Value>) -> Result<(), String> {
    let own = &pod["spec"]["overhead"];
    match class.map(|class| &class["overhead"]).filter(|overhead| !overhead.is_null()) {
        Some(overhead) if quantities(own) == quantities(&overhead["podFixed"]) => Ok(()),
        Some(_) => Err(MISMATCH.to_owned()),
        None if own.is_null() => Ok(()),
        None => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_3_5_tolerations_that_others_make_needless_go() {
        let check = |own: Value, more: Value, expected: Value| {
            let class = json!({"scheduling": {"tolerations": more}});
            let mut pod = json!({"spec": {"tolerations": own}});
            assert_eq!(apply(&mut pod, Some(&class)), Ok(()));
            assert_eq!(pod["spec"]["tolerations"], expected, "{own} and {more}");
        };
        let all = json!({"operator": "Exists"});
        let for_a_while = |seconds: i64| json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let always = json!({"key": "k", "operator": "Exists", "effect": "NoExecute"});
        let equal =
            |value: &str| json!({"key": "k", "operator": "Equal", "value": value, "effect": "NoSchedule"});
        let any = json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"});
        check(json!([for_a_while(300)]), json!([all]), json!([all]));
        check(json!([all]), json!([any, for_a_while(300)]), json!([all]));
        check(json!([for_a_while(300)]), json!([for_a_while(60)]), json!([for_a_while(300)]));
        check(json!([for_a_while(60)]), json!([for_a_while(300)]), json!([for_a_while(300)]));
        check(json!([for_a_while(60), equal("v")]), json!([always, any]), json!([always, any]));
        check(
            json!([equal("v"), equal("v")]),
            json!([equal("w"), equal("v")]),
            json!([equal("v"), equal("w")]),
        );
        check(json!([any]), json!([]), json!([any]));
        let silent = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        check(json!([silent]), json!([equal("v")]), json!([silent]));
        // A class that does not schedule leaves them alone.
        let mut pod = json!({"spec": {"tolerations": [all, any]}});
        assert_eq!(apply(&mut pod, Some(&json!({"overhead": {"podFixed": {}}}))), Ok(()));
        assert_eq!(pod["spec"]["tolerations"], json!([all, any]));
    }

    #[test]
    fn rule_3_5_overheads_are_compared_by_what_they_amount_to() {
        let class = json!({"overhead": {"podFixed": {"memory": "128Mi"}}});
        let mut pod = json!({"spec": {"overhead": {"memory": "134217728"}}});
        assert_eq!(apply(&mut pod, Some(&class)), Ok(()));
        assert_eq!(pod["spec"]["overhead"], json!({"memory": "128Mi"}));
        assert_eq!(check(&json!({"spec": {"overhead": {"memory": "131072Ki"}}}), Some(&class)), Ok(()));
        for other in [json!({"memory": "128M"}), json!({"memory": "128Mi", "cpu": "0"})] {
            let mut pod = json!({"spec": {"overhead": other}});
            assert_eq!(apply(&mut pod, Some(&class)), Err(MISMATCH.to_owned()));
            assert_eq!(check(&pod, Some(&class)), Err(MISMATCH.to_owned()));
        }
    }

    #[test]
    fn a_pod_gets_what_its_class_has() {
        let class = json!({
            "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        });
        let mut pod = json!({"spec": {"nodeSelector": {"c": "d"}}});
        assert_eq!(apply(&mut pod, Some(&class)), Ok(()));
        assert_eq!(pod["spec"]["overhead"], json!({"cpu": "10m"}));
        assert_eq!(pod["spec"]["nodeSelector"], json!({"a": "b", "c": "d"}));
        assert_eq!(pod["spec"]["tolerations"], json!([{"key": "k", "operator": "Exists"}]));
        assert_eq!(check(&pod, Some(&class)), Ok(()));
        assert_eq!(
            check(&pod, Some(&json!({"overhead": {"podFixed": {"cpu": "20m"}}}))),
            Err(MISMATCH.to_owned())
        );
        assert!(check(&pod, None).is_err_and(|why| why.contains("without corresponding RuntimeClass")));
        let mut other = json!({"spec": {"nodeSelector": {"a": "c"}}});
        assert!(
            apply(&mut other, Some(&class)).is_err_and(|why| why.ends_with("pod.spec.nodeSelector[a] = c"))
        );
    }
}
