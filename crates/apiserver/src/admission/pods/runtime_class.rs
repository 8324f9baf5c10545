//! What a pod's RuntimeClass says: what it costs beside its containers, and where it may go (3.5).

use futures::future::{BoxFuture, ready};
use serde_json::{Map, Value, json};
use store::Store;

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
        if own.as_object().is_some_and(|own| !own.is_empty()) && own != overhead {
            return Err(MISMATCH.to_owned());
        }
        if !overhead.is_null() {
            pod["spec"]["overhead"] = overhead.clone();
        }
    }
    let scheduling = &class["scheduling"];
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
    let more = scheduling["tolerations"].as_array().into_iter().flatten();
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for toleration in more {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    if !tolerations.is_empty() {
        pod["spec"]["tolerations"] = Value::Array(tolerations);
    }
    Ok(())
}

fn check(pod: &Value, class: Option<&Value>) -> Result<(), String> {
    let own = &pod["spec"]["overhead"];
    let empty = || json!(Map::new());
    match class.map(|class| &class["overhead"]).filter(|overhead| !overhead.is_null()) {
        Some(overhead) => {
            let [own, theirs] =
                [own, &overhead["podFixed"]].map(|it| if it.is_null() { empty() } else { it.clone() });
            if own == theirs { Ok(()) } else { Err(MISMATCH.to_owned()) }
        }
        None if own.is_null() => Ok(()),
        None => {
            Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
