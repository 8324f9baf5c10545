//! Classes that objects get which name none: of storage for claims, and of ingresses (3.14).

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use store::{Scope, Store};

use super::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::Refusal;

/// Gives new claims and ingresses the class that is marked as the default, the newest if there are several.
pub(super) struct DefaultClasses(pub(super) Store);

/// Where an object says its class, and how a class says that it is the default.
struct Classed {
    field: &'static str,
    annotation: &'static str,
    classes: (&'static str, &'static str),
    marks: &'static [&'static str],
}

const CLAIMS: Classed = Classed {
    field: "storageClassName",
    annotation: super::claims::CLASS,
    classes: ("storage.k8s.io", "storageclasses"),
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
};

const INGRESSES: Classed = Classed {
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
    classes: ("networking.k8s.io", "ingressclasses"),
    marks: &["ingressclass.kubernetes.io/is-default-class"],
};

fn of(resource: &Resource) -> Option<Classed> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "persistentvolumeclaims") => Some(CLAIMS),
        ("networking.k8s.io", "ingresses") => Some(INGRESSES),
        _ => None,
    }
}

impl Plugin for DefaultClasses {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        operation == Operation::Create && subresource.is_empty() && of(resource).is_some()
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        if let (Some(classed), Some(object)) = (of(request.resource), &mut request.object)
            && !classed.has_class(object)
            && let Some(class) = self.default_of(&classed)
        {
            object["spec"][classed.field] = json!(class);
        }
        Box::pin(ready(Ok(())))
    }
}

impl Classed {
    fn has_class(&self, object: &Value) -> bool {
        !object["spec"][self.field].is_null() || !object["metadata"]["annotations"][self.annotation].is_null()
    }
}

impl DefaultClasses {
    fn default_of(&self, classed: &Classed) -> Option<String> {
        let (group, plural) = classed.classes;
        let classes = Registry::built_in().get(group, "v1", plural)?;
        let scope = Scope::resource(&object::storage_name(classes));
        let view = self.0.view();
        newest(view.list(&scope).map(|class| object::read(class)), classed.marks)
    }
}

/// The newest class that has one of the marks; of several, the first by name.
fn newest(classes: impl Iterator<Item = Value>, marks: &[&str]) -> Option<String> {
    let is_default =
        |class: &Value| marks.iter().any(|mark| class["metadata"]["annotations"][mark] == "true");
    let key = |class: &Value| {
        let meta = |field: &str| object::text(class, &["metadata", field]).to_owned();
        (std::cmp::Reverse(meta("creationTimestamp")), meta("name"))
    };
    let first = classes.filter(is_default).min_by_key(key)?;
    Some(object::text(&first, &["metadata", "name"]).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_14_the_newest_default_class_is_taken() {
        let class = |name: &str, second: u8, mark: &str| {
            let annotations = json!({mark: "true"});
            let created = format!("2026-01-01T00:00:0{second}Z");
            json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}})
        };
        let [mark, beta] = [CLAIMS.marks[0], CLAIMS.marks[1]];
        let check = |classes: Vec<Value>, expected: Option<&str>| {
            assert_eq!(newest(classes.into_iter(), CLAIMS.marks).as_deref(), expected);
        };
        check(vec![], None);
        check(vec![class("a", 1, "other")], None);
        check(vec![class("a", 1, mark), class("b", 2, beta), class("c", 3, "other")], Some("b"));
        check(vec![class("b", 1, mark), class("a", 1, mark)], Some("a"));
    }
}
