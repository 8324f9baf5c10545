//! Who converts custom resources, and gets it wrong: our server says of it what a real one says.

use http::Method;
use serde_json::{Value, json};

use crate::admission::webhooks::Hook;
use crate::both::Both;

/// What can be wrong with an answer, as paths of the hook.
const WAYS: [&str; 21] = [
    "right",
    "beta",
    "no-kind",
    "no-response",
    "bad-uid",
    "failed",
    "failed-silently",
    "none",
    "two",
    "version",
    "kind",
    "name",
    "uid",
    "metadata",
    "bad-metadata",
    "labels",
    "label-number",
    "label-float",
    "bad-label",
    "bad-annotation",
    "no-labels",
];

/// Makes an answer wrong in one of these ways.
pub(crate) fn spoil(how: &str, review: &mut Value) {
    let response = &mut review["response"];
    match how {
        "beta" => {
            review["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
            review["response"]["uid"] = Value::Null;
        }
        "no-kind" => drop(review.as_object_mut().map(|review| review.remove("kind"))),
        "no-response" => review["response"] = Value::Null,
        "bad-uid" => response["uid"] = json!("other"),
        "failed" => response["result"] = json!({"status": "Failure", "message": "cannot do that"}),
        "failed-silently" => response["result"] = json!({"status": "Failure"}),
        "none" => response["convertedObjects"] = json!([]),
        "two" => {
            let again = response["convertedObjects"][0].clone();
            response["convertedObjects"] = json!([again.clone(), again]);
        }
        "version" => response["convertedObjects"][0]["apiVersion"] = json!("other/v1"),
        "kind" => response["convertedObjects"][0]["kind"] = json!("Other"),
        "metadata" => {
            drop(response["convertedObjects"][0].as_object_mut().map(|object| object.remove("metadata")));
        }
        "bad-metadata" => response["convertedObjects"][0]["metadata"] = json!("no"),
        _ => {
            let metadata = &mut response["convertedObjects"][0]["metadata"];
            match how {
                "name" => metadata["name"] = json!("other"),
                "uid" => metadata["uid"] = json!("other"),
                "labels" => metadata["labels"] = json!(["a"]),
                "label-number" => metadata["labels"] = json!({"a": 1}),
                "label-float" => metadata["labels"] = json!({"a": 1.5}),
                "bad-label" => metadata["labels"] = json!({"a": "not good"}),
                "bad-annotation" => metadata["annotations"] = json!({"a b": "x"}),
                "no-labels" => drop(metadata.as_object_mut().map(|metadata| metadata.remove("labels"))),
                _ => {}
            }
        }
    }
}

/// A kind of its own, whose objects are converted so.
fn definition(hook: &Hook, way: &str, reviews: &[&str]) -> Value {
    let group = format!("{way}.example.com");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema},
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": hook.config(&format!("/convert/{way}")), "conversionReviewVersions": reviews,
            }},
        },
    })
}

#[tokio::test]
async fn rule_3_30_conversions_that_go_wrong_are_told_alike() {
    let Some(both) = Both::start().await else { return };
    let hook = Hook::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for way in WAYS {
        let reviews = if way == "beta" { &["v7", "v1beta1", "v1"][..] } else { &["v1", "v1beta1"] };
        let definition = definition(&hook, way, reviews);
        let made = both.codes(&Method::POST, definitions, &definition).await;
        assert_eq!(made, (201, 201), "{way}");
        let of = |version: &str| format!("/apis/{way}.example.com/{version}/namespaces/default/widgets");
        for version in ["v1", "v1beta1"] {
            while both.codes(&Method::GET, &of(version), &Value::Null).await.1 != 200 {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        let widget = json!({
            "apiVersion": format!("{way}.example.com/v1"), "kind": "Widget",
            "metadata": {"name": "w", "labels": {"l": "1"}}, "spec": {"color": "red"},
        });
        both.make(&of("v1"), &widget).await;
        let (code, shown) = both.ask(&[], &Method::GET, &format!("{}/w", of("v1beta1")), None).await;
        let is_good = matches!(way, "right" | "beta" | "no-labels");
        assert_eq!(code, if is_good { 200 } else { 500 }, "{way}: {shown}");
        let _ = both.ask(&[], &Method::DELETE, &format!("{}/w", of("v1beta1")), None).await;
    }
}
