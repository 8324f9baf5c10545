//! What a webhook is told, and what it answers: AdmissionReview (3.15).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::admission::criteria::Asked;
use crate::admission::plugin::{Operation, Request};
use crate::auth::reviews::user_info;
use crate::object;

/// The `request` of a review, with or without the objects, which conditions see beside it.
pub(in crate::admission) fn request(
    uid: &str,
    request: &Request<'_>,
    asked: &Asked,
    with_objects: bool,
) -> Value {
    let (resource, of) = (request.resource, request.of);
    let requested = (resource.group.as_str(), resource.version.as_str());
    let shown = asked.instead.as_ref().map(|other| other.of(resource));
    // Whoever connects sends options, which have a kind of their own.
    let own = request.object.as_ref().filter(|_| request.operation == Operation::Connect);
    let kind = own.and_then(|object| object["kind"].as_str()).unwrap_or(&of.kind);
    let own_kind = (of.group.as_str(), of.version.as_str());
    let kind = |(group, version): (&str, &str)| json!({"group": group, "version": version, "kind": kind});
    let plural = |(group, version): (&str, &str)| json!({"group": group, "version": version, "resource": resource.plural});
    let is_namespace = resource.is_namespace();
    let namespace = if is_namespace { &request.name } else { request.namespace };
    let mut body = json!({
        "uid": uid,
        "kind": kind(shown.unwrap_or(own_kind)),
        "resource": plural(shown.unwrap_or(requested)),
        "requestKind": kind(own_kind),
        "requestResource": plural(requested),
        "operation": request.operation.to_string(),
        "userInfo": user_info(request.user),
        "dryRun": request.dry_run,
        "options": request.options,
    });
    for (field, text) in [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.name.as_str()),
        ("namespace", namespace),
    ] {
        if !text.is_empty() {
            body[field] = json!(text);
        }
    }
    if with_objects {
        body["object"] = asked.object.clone();
        body["oldObject"] = asked.old.clone();
    }
    body
}

/// The version of reviews that a webhook understands, if it understands one.
pub(super) fn version(known: &[String]) -> Result<&str, String> {
    let version = known.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"));
    version.map(String::as_str).ok_or_else(|| {
        "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"
            .to_owned()
    })
}

/// What a webhook says.
pub(super) struct Verdict {
    pub(super) is_allowed: bool,
    pub(super) warnings: Vec<String>,
    /// Why it refuses, if it says so.
    pub(super) result: Value,
    /// A JSON patch; empty if nothing is to be changed.
    pub(super) patch: Vec<u8>,
}

/// Reads an answer to the question `uid`, or says what is wrong with it.
pub(super) fn verdict(answer: &Value, version: &str, uid: &str, may_patch: bool) -> Result<Verdict, String> {
    let response = &answer["response"];
    if response.is_null() {
        return Err("webhook response was absent".to_owned());
    }
    let patch_type = response["patchType"].as_str();
    let patch = STANDARD
        .decode(object::text(response, &["patch"]))
        .map_err(|_| "webhook returned a response.patch that is no base64".to_owned())?;
    if version == "v1" {
        let said = object::text(response, &["uid"]);
        if said != uid {
            let (uid, said) = (types::go::quote(uid), types::go::quote(said));
            return Err(format!("expected response.uid={uid}, got {said}"));
        }
        let kind = (object::text(answer, &["apiVersion"]), object::text(answer, &["kind"]));
        if kind != ("admission.k8s.io/v1", "AdmissionReview") {
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {}, Kind={}",
                kind.0, kind.1
            ));
        }
        expect_patch_type(may_patch, &patch, patch_type)?;
    }
    if may_patch && !patch.is_empty() && !matches!(patch_type, None | Some("JSONPatch")) {
        return Err(format!("unsupported patch type {}", types::go::quote(patch_type.unwrap_or(""))));
    }
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(Verdict {
        is_allowed: response["allowed"] == true,
        warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        result: response["status"].clone(),
        patch: if may_patch { patch } else { Vec::new() },
    })
}

fn expect_patch_type(may_patch: bool, patch: &[u8], patch_type: Option<&str>) -> Result<(), String> {
    let why = match (may_patch, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_15_answers_that_are_none() {
        let check = |answer: Value, may_patch: bool, expected: &str| {
            let got = verdict(&answer, "v1", "u", may_patch).err().unwrap_or_default();
            assert_eq!(got, expected, "{answer}");
        };
        let answer = |response: Value| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        check(json!({}), true, "webhook response was absent");
        check(answer(json!({"uid": "x"})), true, "expected response.uid=\"u\", got \"x\"");
        check(
            json!({"response": {"uid": "u"}}),
            true,
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got , Kind=",
        );
        check(
            answer(json!({"uid": "u", "patch": "W10="})),
            true,
            "webhook returned response.patch but not response.patchType",
        );
        check(
            answer(json!({"uid": "u", "patch": "W10=", "patchType": "JSONPatch"})),
            false,
            "validating webhook may not return response.patch",
        );
        check(answer(json!({"uid": "u", "allowed": true})), true, "");
    }
}
