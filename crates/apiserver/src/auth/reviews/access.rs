//! SubjectAccessReview, SelfSubjectAccessReview and LocalSubjectAccessReview: whether somebody may do something.

use ::rules::field::{Errors, Path, Value as Printed};
use ::rules::wire;
use serde_json::{Value, json};

use crate::auth::attributes::{Attributes, What};
use crate::auth::user::User;
use crate::cluster::Context;
use crate::object;
use crate::status::{About, Refusal};

pub(super) fn review(context: &Context<'_>, mut review: Value) -> Result<Value, Refusal> {
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
    if !has_known_operators(&spec["resourceAttributes"]["labelSelector"]) {
        let why = "spec.resourceAttributes.labelSelector ignored due to parse error";
        status["evaluationError"] = json!(why);
    }
    review["status"] = status;
    Ok(review)
}

fn has_known_operators(selector: &Value) -> bool {
    let known = |operator: &str| matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist");
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    requirements.into_iter().all(|requirement| known(object::text(requirement, &["operator"])))
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
    for name in ["fieldSelector", "labelSelector"] {
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
    }
    errors
}

/// Attributes as Go prints the type it uses inside.
fn printed(other: &Value) -> Printed {
    let text = |field: &str| object::text(other, &[field]);
    Printed::json(&json!({"Path": text("path"), "Verb": text("verb")}))
}
