//! From one version of a custom resource to another (3.30).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rules::field::Path;
use rules::meta;
use serde_json::{Map, Value, json};
use store::Store;

use super::version::Version;
use crate::object;
use crate::status::Refusal;
use crate::webhook::{Caller, Target};

/// How long somebody may take to convert.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Somebody in this process who knows how objects get from one version to another, where their definition leaves it to
/// the server. What is asked for is answered at once: no lock is held, but a request waits.
pub trait Converter: Send + Sync {
    /// Whether it knows the objects of a kind.
    fn knows(&self, group: &str, kind: &str) -> bool;

    /// An object in another version, `apiVersion` included; or why it cannot be said in it.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;
}

/// How it is done.
pub struct Conversion(How);

enum How {
    /// All versions are alike but for the name of the version.
    Rename,
    /// Somebody in this process does it.
    Here(Arc<dyn Converter>),
    /// Somebody else does it, if it is known who.
    Ask(Caller, Result<Target, String>, Option<Review>),
}

/// The versions of the question, each with what is made sure of in its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Review {
    V1,
    /// What it is and to which question it belongs was not asked of answers when this was new.
    V1beta1,
}

impl Review {
    /// The first version that somebody understands of those that there are.
    fn among(understood: &[String]) -> Option<Review> {
        understood.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Review::V1),
            "v1beta1" => Some(Review::V1beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Review::V1 => "apiextensions.k8s.io/v1",
            Review::V1beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

impl std::fmt::Debug for Conversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            How::Rename => "Conversion::Rename",
            How::Here(_) => "Conversion::Here",
            How::Ask(..) => "Conversion::Ask",
        })
    }
}

impl Conversion {
    /// What a definition says. Services are looked up in the store.
    pub fn of(
        definition: &CustomResourceDefinition,
        store: &Store,
        converters: &[Arc<dyn Converter>],
    ) -> Conversion {
        let spec = &definition.spec;
        let here = converters.iter().find(|converter| converter.knows(&spec.group, &spec.names.kind));
        Conversion(match &definition.spec.conversion {
            Some(conversion) if conversion.strategy == "Webhook" => {
                let webhook = conversion.webhook.as_ref();
                let config = webhook.and_then(|webhook| webhook.client_config.as_ref());
                let config = config.and_then(|config| serde_json::to_value(config).ok()).unwrap_or_default();
                let review = webhook.and_then(|webhook| Review::among(&webhook.conversion_review_versions));
                How::Ask(Caller::new(store.clone()), Target::read(&config), review)
            }
            _ => here.map_or(How::Rename, |converter| How::Here(converter.clone())),
        })
    }

    /// Whether somebody else is asked, who may do anything with labels.
    pub(super) fn asks(&self) -> bool {
        matches!(self.0, How::Ask(..))
    }

    /// An object in another version, as far as that can be told without asking anybody else.
    pub(super) fn convert_here(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        match &self.0 {
            How::Here(converter) => converter.convert(object, api_version),
            How::Rename | How::Ask(..) => {
                let mut object = object.clone();
                object["apiVersion"] = api_version.into();
                Ok(object)
            }
        }
    }

    /// Objects in another version.
    pub async fn convert(&self, mut objects: Vec<Value>, to: &Version) -> Result<Vec<Value>, Refusal> {
        match &self.0 {
            How::Rename => {
                for object in &mut objects {
                    object["apiVersion"] = to.api_version().into();
                }
                Ok(objects)
            }
            How::Here(converter) => {
                let each = objects.iter().map(|object| {
                    let of = kind_of(object);
                    let converted = converter.convert(object, &to.said_as);
                    converted.map_err(|why| Refusal::unknown(format!("conversion of {of} failed: {why}")))
                });
                each.collect()
            }
            How::Ask(caller, target, review) => {
                let of = objects.first().map(kind_of).unwrap_or_default();
                let failed = |why: String| Refusal::unknown(format!("conversion webhook for {of} {why}"));
                let target = target.as_ref().map_err(|why| failed(format!("failed: {why}")))?;
                // Which cannot be in a definition that was accepted.
                let none = || Refusal::unknown("no supported conversion review versions");
                let review = review.ok_or_else(none)?;
                let (question, uid) = question(review, &objects, to);
                let answer = caller.post(target, &question, TIMEOUT).await;
                let answer = answer.map_err(|why| failed(format!("failed: {why}")))?;
                converted(&objects, review, &answer, &uid, to).map_err(failed)
            }
        }
    }
}

/// `kueue.x-k8s.io/v1beta2, Kind=Workload`
fn kind_of(object: &Value) -> String {
    format!("{}, Kind={}", object::text(object, &["apiVersion"]), object::text(object, &["kind"]))
}

/// The question, and the name that the answer must have.
fn question(review: Review, objects: &[Value], to: &Version) -> (Value, String) {
    let uid = uuid::Uuid::new_v4().to_string();
    let question = json!({
        "apiVersion": review.api_version(), "kind": "ConversionReview",
        "request": {"uid": uid, "desiredAPIVersion": to.api_version(), "objects": objects},
    });
    (question, uid)
}

/// The objects of an answer, if it is one to the question: as many, in the same order, of the wanted version, and the same
/// but for what a version may say differently.
fn converted(
    sent: &[Value],
    review: Review,
    answer: &Value,
    uid: &str,
    to: &Version,
) -> Result<Vec<Value>, String> {
    let response = &answer["response"];
    let expected = format!("{}, Kind=ConversionReview", review.api_version());
    if review == Review::V1 && kind_of(answer) != expected {
        let got = kind_of(answer);
        return Err(format!("failed: expected webhook response of {expected}, got {got}"));
    }
    if !response.is_object() {
        return Err("failed: no response provided".to_owned());
    }
    if review == Review::V1 && object::text(response, &["uid"]) != uid {
        let got = types::go::quote(object::text(response, &["uid"]));
        return Err(format!("failed: expected response.uid={}, got {got}", types::go::quote(uid)));
    }
    let status = object::text(response, &["result", "status"]);
    if status != "Success" {
        return Err(match object::text(response, &["result", "message"]) {
            "" => format!("failed: response.result.status was '{status}', not 'Success'"),
            why => format!("failed: {why}"),
        });
    }
    let objects = response["convertedObjects"].as_array().map_or(&[][..], Vec::as_slice);
    if objects.len() != sent.len() {
        return Err(format!("returned {} objects, expected {}", objects.len(), sent.len()));
    }
    // A real server asks for one object at a time, and speaks of one.
    let all = objects.iter().zip(sent);
    all.map(|(object, sent)| {
        let invalid = |what: String| format!("returned invalid object at index 0: {what}");
        let differs = |field: &str, expected: &str| {
            let got = object::text(object, &[field]);
            (got != expected).then(|| format!("(expected {expected}, received {got})"))
        };
        if let Some(which) = differs("apiVersion", &to.said_as) {
            return Err(invalid(format!("invalid groupVersion {which}")));
        }
        if let Some(which) = differs("kind", object::text(sent, &["kind"])) {
            return Err(invalid(format!("invalid kind {which}")));
        }
        expect_same(object, sent).map_err(|why| format!("returned invalid object: {why}"))?;
        restored(object, sent).map_err(|why| format!("returned invalid metadata: {why}"))
    })
    .collect()
}

/// An object keeps its name, whatever version it is in.
fn expect_same(object: &Value, sent: &Value) -> Result<(), String> {
    for (field, called) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let text = |object: &'_ Value| object::text(object, &["metadata", field]).to_owned();
        let (sent, got) = (text(sent), text(object));
        if sent != got {
            return Err(format!("must have the same {called}: {sent} != {got}"));
        }
    }
    Ok(())
}

/// Of the metadata a conversion may change labels and annotations; the rest is the sent object's.
fn restored(object: &Value, sent: &Value) -> Result<Value, String> {
    let metadata = match object.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", go_type(other)));
        }
        None => return Err("missing metadata in converted object".to_owned()),
    };
    let mut kept: Map<String, Value> = sent["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match metadata.get(field).filter(|value| !value.is_null()) {
            Some(value) => {
                if kept.get(field) != Some(value) {
                    expect_texts(field, value)?;
                }
                kept.insert(field.to_owned(), value.clone());
            }
            None => drop(kept.remove(field)),
        }
    }
    let mut object = object.clone();
    object["metadata"] = kept.into();
    Ok(object)
}

/// Labels and annotations that somebody else gave an object are texts, and such as a client could have given it.
fn expect_texts(field: &str, value: &Value) -> Result<(), String> {
    let Some(given) = value.as_object() else {
        return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(value)));
    };
    let mut texts = BTreeMap::new();
    for (key, value) in given {
        let Some(text) = value.as_str() else {
            let found = go_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        };
        texts.insert(key.clone(), text.to_owned());
    }
    let path = Path::new("metadata");
    let errors = match field {
        "labels" => meta::labels(Some(&texts), &path.child("labels")),
        // Upstream leaves the last letter out.
        _ => meta::annotations(Some(&texts), &path.child("annotation")),
    };
    let mut told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    told.dedup();
    match told.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// What Go calls the type of a value that was read from JSON.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::tests::definition;

    fn check(answer: &Value, expected: Result<Value, &str>) {
        let version = Version::all(&definition(json!({"type": "object"}))).remove(0);
        let sent = [json!({"apiVersion": "example.com/v0", "kind": "Widget",
            "metadata": {"name": "a", "uid": "u", "labels": {"l": "1"}, "generation": 3}})];
        let found = converted(&sent, Review::V1, answer, "q", &version);
        assert_eq!(found, expected.map(|object| vec![object]).map_err(str::to_owned), "{answer}");
    }

    #[test]
    fn rule_3_30_answers_of_those_who_convert() {
        let of = |response: Value| json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
        let answer = |result: Value, objects: Value| {
            of(json!({"uid": "q", "result": result, "convertedObjects": objects}))
        };
        let success = json!({"status": "Success"});
        let meta = json!({"name": "a", "uid": "u", "annotations": {"x": "y"}, "generation": 9});
        let good = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {}});
        let mut kept = good.clone();
        kept["metadata"] = json!({"name": "a", "uid": "u", "annotations": {"x": "y"}, "generation": 3});
        check(&answer(success.clone(), json!([good])), Ok(kept));
        check(&answer(json!({"status": "Failure", "message": "no"}), json!([])), Err("failed: no"));
        check(&answer(success.clone(), json!([])), Err("returned 0 objects, expected 1"));
        check(&of(json!({})), Err("failed: expected response.uid=\"q\", got \"\""));
        check(&of(Value::Null), Err("failed: no response provided"));
        let unnamed = "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind=";
        check(&json!({"response": {}}), Err(unnamed));
        let mut other = good.clone();
        other["apiVersion"] = json!("example.com/v2");
        check(
            &answer(success.clone(), json!([other])),
            Err(
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v2)",
            ),
        );
        let mut labelled = good.clone();
        labelled["metadata"]["labels"] = json!({"l": 1});
        check(
            &answer(success.clone(), json!([labelled])),
            Err(
                "returned invalid metadata: metadata.labels[l] must be a string, but is int64 in converted object",
            ),
        );
        let mut renamed = good;
        renamed["metadata"]["name"] = json!("b");
        check(
            &answer(success, json!([renamed])),
            Err("returned invalid object: must have the same name: a != b"),
        );
    }
}
