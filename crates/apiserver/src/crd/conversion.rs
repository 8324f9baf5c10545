//! From one version of a custom resource to another (3.30).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
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
    Ask(Caller, Result<Target, String>),
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
                let config = conversion.webhook.as_ref().and_then(|webhook| webhook.client_config.as_ref());
                let config = config.and_then(|config| serde_json::to_value(config).ok()).unwrap_or_default();
                How::Ask(Caller::new(store.clone()), Target::read(&config))
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
            How::Ask(caller, target) => {
                let of = objects.first().map(kind_of).unwrap_or_default();
                let failed = |why: String| Refusal::unknown(format!("conversion webhook for {of} {why}"));
                let target = target.as_ref().map_err(|why| failed(format!("failed: {why}")))?;
                let (review, uid) = review(&objects, to);
                let answer = caller.post(target, &review, TIMEOUT).await;
                let answer = answer.map_err(|why| failed(format!("failed: {why}")))?;
                converted(&objects, &answer, &uid, to).map_err(failed)
            }
        }
    }
}

/// `kueue.x-k8s.io/v1beta2, Kind=Workload`
fn kind_of(object: &Value) -> String {
    format!("{}, Kind={}", object::text(object, &["apiVersion"]), object::text(object, &["kind"]))
}

/// The question, and the name that the answer must have.
fn review(objects: &[Value], to: &Version) -> (Value, String) {
    let uid = uuid::Uuid::new_v4().to_string();
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": uid, "desiredAPIVersion": to.api_version(), "objects": objects},
    });
    (review, uid)
}

/// The objects of an answer, if it is one to the question: as many, in the same order, of the wanted version, and the same
/// but for what a version may say differently.
fn converted(sent: &[Value], answer: &Value, uid: &str, to: &Version) -> Result<Vec<Value>, String> {
    let response = &answer["response"];
    if object::text(response, &["uid"]) != uid {
        let got = types::go::quote(object::text(response, &["uid"]));
        return Err(format!("failed: expected response.uid={}, got {got}", types::go::quote(uid)));
    }
    if object::text(response, &["result", "status"]) != "Success" {
        return Err(format!("failed: {}", object::text(response, &["result", "message"])));
    }
    let objects = response["convertedObjects"].as_array().map_or(&[][..], Vec::as_slice);
    if objects.len() != sent.len() {
        return Err(format!("returned {} objects, expected {}", objects.len(), sent.len()));
    }
    let all = objects.iter().zip(sent).enumerate();
    all.map(|(at, (object, sent))| {
        let invalid = |what: String| format!("returned invalid converted object at index {at}: {what}");
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
        restored(object, sent)
            .map_err(|why| format!("returned invalid metadata in object at index {at}: {why}"))
    })
    .collect()
}

/// Of the metadata a conversion may change labels and annotations; the rest is the sent object's.
fn restored(object: &Value, sent: &Value) -> Result<Value, String> {
    let Some(metadata) = object["metadata"].as_object() else {
        return Err("must return metadata".to_owned());
    };
    for field in ["name", "namespace", "uid"] {
        let text = |object: &Value| object::text(object, &["metadata", field]).to_owned();
        if text(object) != text(sent) {
            return Err(format!("metadata.{field}: must be unchanged"));
        }
    }
    let mut kept: Map<String, Value> = sent["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match metadata.get(field).filter(|value| !value.is_null()) {
            Some(value) => drop(kept.insert(field.to_owned(), value.clone())),
            None => drop(kept.remove(field)),
        }
    }
    let mut object = object.clone();
    object["metadata"] = kept.into();
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::tests::definition;

    fn check(answer: &Value, expected: Result<Value, &str>) {
        let version = Version::all(&definition(json!({"type": "object"}))).remove(0);
        let sent = [json!({"apiVersion": "example.com/v0", "kind": "Widget",
            "metadata": {"name": "a", "uid": "u", "labels": {"l": "1"}, "generation": 3}})];
        let found = converted(&sent, answer, "q", &version);
        assert_eq!(found, expected.map(|object| vec![object]).map_err(str::to_owned), "{answer}");
    }

    #[test]
    fn rule_3_30_answers_of_those_who_convert() {
        let answer = |result: Value, objects: Value| json!({"response": {"uid": "q", "result": result, "convertedObjects": objects}});
        let success = json!({"status": "Success"});
        let meta = json!({"name": "a", "uid": "u", "annotations": {"x": "y"}, "generation": 9});
        let good = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": meta, "spec": {}});
        let mut kept = good.clone();
        kept["metadata"] = json!({"name": "a", "uid": "u", "annotations": {"x": "y"}, "generation": 3});
        check(&answer(success.clone(), json!([good])), Ok(kept));
        check(&answer(json!({"status": "Failure", "message": "no"}), json!([])), Err("failed: no"));
        check(&answer(success.clone(), json!([])), Err("returned 0 objects, expected 1"));
        check(&json!({}), Err("failed: expected response.uid=\"q\", got \"\""));
        let mut other = good.clone();
        other["apiVersion"] = json!("example.com/v2");
        check(
            &answer(success.clone(), json!([other])),
            Err(
                "returned invalid converted object at index 0: invalid groupVersion (expected example.com/v1, received example.com/v2)",
            ),
        );
        let mut renamed = good;
        renamed["metadata"]["name"] = json!("b");
        check(
            &answer(success, json!([renamed])),
            Err("returned invalid metadata in object at index 0: metadata.name: must be unchanged"),
        );
    }
}
