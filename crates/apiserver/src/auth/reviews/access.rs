//! SubjectAccessReview, SelfSubjectAccessReview and LocalSubjectAccessReview: whether somebody may do something.

use ::rules::field::{Errors, Path, Value as Printed};
use ::rules::{names, wire};
use serde_json::{Value, json};

use crate::auth::attributes::{Attributes, What};
use crate::auth::user::User;
use crate::cluster::Context;
use crate::object;
use crate::selector::{Fields, Labels};
use crate::status::{About, Refusal};

/// A review that can be answered.
pub(super) fn accepted(context: &Context<'_>, mut review: Value) -> Result<Value, Refusal> {
    let is_local = context.resource.plural == "localsubjectaccessreviews";
    if is_local && object::text(&review, &["metadata", "namespace"]).is_empty() {
        review["metadata"]["namespace"] = json!(context.namespace());
    }
    let errors = validate(context, &review);
    if !errors.is_empty() {
        // Upstream names no kind here.
        let about = About { group: &context.resource.group, resource: "", name: "" };
        return Err(Refusal::invalid(about, &errors));
    }
    if is_local {
        expect_namespace(context, &review)?;
    }
    Ok(review)
}

pub(super) fn answered(context: &Context<'_>, mut review: Value) -> Value {
    let spec = &review["spec"];
    let subject;
    let user = if context.resource.plural == "selfsubjectaccessreviews" {
        context.user
    } else {
        subject = subject_of(spec);
        &subject
    };
    let asked = asked(user, spec);
    let decision = context.cluster.authorizer().decide(&asked);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    let attributes = &spec["resourceAttributes"];
    let ignored: Vec<String> = SELECTORS.iter().filter_map(|name| ignored(name, &attributes[name])).collect();
    if !ignored.is_empty() {
        status["evaluationError"] = json!(ignored.join("; "));
    }
    review["status"] = status;
    review
}

const SELECTORS: [&str; 2] = ["fieldSelector", "labelSelector"];

/// What is said of a selector that was not understood, or not all of it: the decision is one without it.
fn ignored(name: &str, selector: &Value) -> Option<String> {
    let is_of_fields = name == "fieldSelector";
    let raw = object::text(selector, &["rawSelector"]);
    let is_readable = if is_of_fields { Fields::parse(raw).is_ok() } else { Labels::parse(raw).is_ok() };
    let is_understood = |requirement: &&Value| {
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        match object::text(requirement, &["operator"]) {
            "In" | "NotIn" => !is_of_fields || values == 1,
            "Exists" | "DoesNotExist" => !is_of_fields,
            _ => false,
        }
    };
    let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    let understood = requirements.iter().filter(is_understood).count();
    if is_readable && understood == requirements.len() {
        return None;
    }
    let how = if understood > 0 { "partially ignored" } else { "ignored" };
    Some(format!("spec.resourceAttributes.{name} {how} due to parse error"))
}

fn subject_of(spec: &Value) -> User {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: object::text(spec, &["user"]).to_owned(),
        uid: object::text(spec, &["uid"]).to_owned(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

fn asked<'a>(user: &'a User, spec: &'a Value) -> Attributes<'a> {
    let of = &spec["resourceAttributes"];
    if of.is_null() {
        let of = &spec["nonResourceAttributes"];
        let what = What::Path(object::text(of, &["path"]));
        return Attributes { user, verb: object::text(of, &["verb"]), what };
    }
    let text = |field: &str| object::text(of, &[field]);
    let what = What::Resource {
        group: text("group"),
        version: text("version"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
    };
    Attributes { user, verb: text("verb"), what }
}

/// The namespace of the path is the one that is asked about.
fn expect_namespace(context: &Context<'_>, review: &Value) -> Result<(), Refusal> {
    let namespace = context.namespace();
    if object::text(review, &["metadata", "namespace"]) == namespace {
        return Ok(());
    }
    let why = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
    Err(Refusal::bad_request(why))
}

fn validate(context: &Context<'_>, review: &Value) -> Errors {
    let mut errors = Errors::new();
    let (path, spec) = (Path::new("spec"), &review["spec"]);
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    match (resource.is_null(), other.is_null()) {
        (false, false) => errors.push(
            path.child("nonResourceAttributes")
                .invalid(printed(other), "cannot be specified in combination with resourceAttributes"),
        ),
        (true, true) => errors.push(path.child("resourceAttributes").invalid(
            Printed::printed("null"),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    let plural = context.resource.plural.as_str();
    let groups = spec["groups"].as_array().map_or(0, Vec::len);
    if plural != "selfsubjectaccessreviews" && object::text(spec, &["user"]).is_empty() && groups == 0 {
        errors.push(path.child("user").invalid("", "at least one of user or group must be specified"));
    }
    errors.extend(selector_errors(resource));
    let is_local = plural == "localsubjectaccessreviews";
    errors.extend(metadata_error(review, is_local));
    if is_local {
        let (asked, own) =
            (object::text(resource, &["namespace"]), object::text(review, &["metadata", "namespace"]));
        if !resource.is_null() && asked != own {
            let path = Path::new("spec.resourceAttributes.namespace");
            errors.push(path.invalid(asked, "must match metadata.namespace"));
        }
        if !other.is_null() {
            let path = Path::new("spec.nonResourceAttributes");
            errors.push(path.invalid(printed(other), "disallowed on this kind of request"));
        }
    }
    errors
}

/// Reviews are about nobody's object; only the managers of their fields may stand there.
fn metadata_error(review: &Value, is_local: bool) -> Option<::rules::field::Error> {
    let meta = review["metadata"].as_object()?;
    let spared = |key: &str| key == "managedFields" || is_local && key == "namespace";
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    if meta.iter().all(|(key, value)| spared(key) || is_empty(value)) {
        return None;
    }
    let of = wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let text = schema::encode_text(of, &review["metadata"]);
    let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
    Some(Path::new("metadata").invalid(Printed::printed(text), why))
}

/// Selectors that a request would be confined to: said in one way, and in one way only.
fn selector_errors(resource: &Value) -> Errors {
    let mut errors = Errors::new();
    for name in SELECTORS {
        let selector = &resource[name];
        if selector.is_null() {
            continue;
        }
        let path = Path::new("spec.resourceAttributes").child(name);
        let raw = object::text(selector, &["rawSelector"]);
        let requirements = selector["requirements"].as_array().map_or(0, Vec::len);
        if !raw.is_empty() && requirements > 0 {
            let why = "may not specified at the same time as requirements";
            errors.push(path.child("rawSelector").invalid(raw, why));
        }
        if raw.is_empty() && requirements == 0 {
            let why = format!(
                "when spec.resourceAttributes.{name} is specified, requirements or rawSelector is required"
            );
            errors.push(path.child("requirements").required(why));
        }
        let requirements = selector["requirements"].as_array().into_iter().flatten();
        for (i, requirement) in requirements.enumerate() {
            let path = path.child("requirements").index(i);
            errors.extend(requirement_errors(name == "fieldSelector", requirement, &path));
        }
    }
    errors
}

/// What is wrong with one requirement. An operator that is not known is one of a newer client, who is told otherwise.
fn requirement_errors(is_of_fields: bool, requirement: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (key, values) = (object::text(requirement, &["key"]), &requirement["values"]);
    let values: Vec<&str> = values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if is_of_fields && key.is_empty() {
        errors.push(path.child("key").required("must be specified"));
    }
    match object::text(requirement, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(path.child("values").required(why));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(path.child("values").forbidden(why));
        }
        _ => {}
    }
    if !is_of_fields {
        let key_path = path.child("key");
        errors.extend(names::qualified_name(key).into_iter().map(|why| key_path.invalid(key, why)));
        for (i, value) in values.iter().enumerate() {
            let path = path.child("values").index(i);
            errors.extend(names::label_value(value).into_iter().map(|why| path.invalid(*value, why)));
        }
    }
    errors
}

/// Attributes as Go prints the type it uses inside.
fn printed(other: &Value) -> Printed {
    let text = |field: &str| object::text(other, &[field]);
    Printed::json(&json!({"Path": text("path"), "Verb": text("verb")}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_6_8_selectors_that_are_not_understood_are_told_of() {
        let check = |name: &str, selector: Value, expected: Option<&str>| {
            let expected =
                expected.map(|how| format!("spec.resourceAttributes.{name} {how} due to parse error"));
            assert_eq!(ignored(name, &selector), expected, "{selector}");
        };
        let of = |operator: &str, values: Value| json!({"key": "a", "operator": operator, "values": values});
        check("labelSelector", json!(null), None);
        check("labelSelector", json!({"rawSelector": "a=b"}), None);
        check("labelSelector", json!({"rawSelector": "a in"}), Some("ignored"));
        check("fieldSelector", json!({"rawSelector": "a"}), Some("ignored"));
        check("labelSelector", json!({"requirements": [of("Exists", json!([]))]}), None);
        check("fieldSelector", json!({"requirements": [of("Exists", json!([]))]}), Some("ignored"));
        let some = json!([of("In", json!(["x"])), of("Newer", json!([]))]);
        check("fieldSelector", json!({"requirements": some}), Some("partially ignored"));
    }

    #[test]
    fn rule_6_8_requirements_are_judged() {
        let check = |is_of_fields: bool, requirement: Value, expected: &str| {
            let errors = requirement_errors(is_of_fields, &requirement, &Path::new("r"));
            let errors: Vec<String> = errors.iter().map(|error| error.path.clone()).collect();
            assert_eq!(errors.join(" "), expected, "{requirement}");
        };
        check(true, json!({"key": "a", "operator": "In"}), "r.values");
        check(true, json!({"key": "", "operator": "Newer"}), "r.key");
        check(
            false,
            json!({"key": "a b", "operator": "Exists", "values": ["c d"]}),
            "r.values r.key r.values[0]",
        );
        check(false, json!({"key": "a", "operator": "NotIn", "values": ["b"]}), "");
    }
}
