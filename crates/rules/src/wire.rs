//! Typed objects and the JSON that they came from.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::go;

/// The name of a wire type: what is read, written, compared or printed whole.
pub const JOB: &str = "io.k8s.api.batch.v1.Job";
/// See [`JOB`].
pub const JOB_SPEC: &str = "io.k8s.api.batch.v1.JobSpec";
/// See [`JOB`].
pub const POD_FAILURE_POLICY: &str = "io.k8s.api.batch.v1.PodFailurePolicy";
/// See [`JOB`].
pub const SUCCESS_POLICY: &str = "io.k8s.api.batch.v1.SuccessPolicy";
/// See [`JOB`].
pub const UNCOUNTED_TERMINATED_PODS: &str = "io.k8s.api.batch.v1.UncountedTerminatedPods";
/// See [`JOB`].
pub const LABEL_SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
/// See [`JOB`].
pub const POD_TEMPLATE_SPEC: &str = "io.k8s.api.core.v1.PodTemplateSpec";
/// See [`JOB`].
pub const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";

/// The type with this name.
pub fn named(wire_type: &str) -> schema::Type {
    schema::Pack::v1_35().named(wire_type).expect("a rule names a type of the pack")
}

/// Whether a body is of the group, version and kind that are asked for; it may leave out what they are. Otherwise what an
/// API server says to it. `body_text` is the text of the body.
pub fn expect_kind(
    group: &str,
    version: &str,
    kind: &str,
    body: &Value,
    body_text: &[u8],
) -> Result<(), String> {
    expect_readable(kind, body, body_text)?;
    let text = |field: &str| body[field].as_str().unwrap_or("");
    let own = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let sent_kind = if text("kind").is_empty() { kind } else { text("kind") };
    let sent = if says_version(group, body) { text("apiVersion") } else { own.as_str() };
    // A group may be empty and yet be parted from its version.
    let sent = sent.strip_prefix('/').unwrap_or(sent);
    if sent_kind == kind && sent == own {
        return Ok(());
    }
    if sent.ends_with('/') && !body_text.is_empty() {
        let why = format!("Object 'apiVersion' is missing in '{}'", String::from_utf8_lossy(body_text));
        return Err(format!("{sent_kind} in version \"\" cannot be handled as a {kind}: {why}"));
    }
    let (sent_group, sent_version) = sent.split_once('/').unwrap_or(("", sent));
    let is_known = schema::Pack::v1_35().of_kind(sent_group, sent_version, sent_kind).is_some();
    // Other versions of a kind can be read, but are not expected here.
    if is_known && sent_kind == kind {
        return Err(format!(
            "the API version in the data ({sent}) does not match the expected API version ({own})"
        ));
    }
    let why = if is_known {
        let internal = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
        format!("converting ({sent_version}.{sent_kind}) to ({internal}.{kind}): unknown conversion")
    } else {
        let (kind, version) = (go::quote(sent_kind), go::quote(sent));
        format!("no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\"")
    };
    Err(format!("{sent_kind} in version {} cannot be handled as a {kind}: {why}", go::quote(sent_version)))
}

/// Whether it can be heard what a body says it is. Otherwise what an API server says to it.
pub fn expect_readable(kind: &str, body: &Value, body_text: &[u8]) -> Result<(), String> {
    for field in ["apiVersion", "kind"] {
        let found = match &body[field] {
            Value::Null | Value::String(_) => continue,
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let why = format!("json: cannot unmarshal {found} into Go struct field .{field} of type string");
        return Err(unrecognized(kind, &why, body_text));
    }
    // A version is a group and a number, or a number alone.
    let version = body["apiVersion"].as_str().unwrap_or("");
    if version.matches('/').count() > 1 {
        return Err(unreadable(kind, &format!("unexpected GroupVersion string: {version}"), body_text));
    }
    Ok(())
}

/// Whether a body says a version. A slash alone is none, and neither is one after the group that is asked for.
pub fn says_version(group: &str, body: &Value) -> bool {
    let version = body["apiVersion"].as_str().unwrap_or("");
    let is_group = version.strip_suffix('/').is_some_and(|of| of.is_empty() || of == group);
    !version.is_empty() && !is_group
}

/// What an API server says to a body that does not even tell what it is: where the JSON breaks off, and how it begins.
pub fn unrecognized(kind: &str, why: &str, sent: &[u8]) -> String {
    unreadable(kind, &format!("couldn't get version/kind; json parse error: {why}"), sent)
}

/// What an API server says to a body that it cannot read at all, and how that begins.
pub fn unreadable(kind: &str, why: &str, sent: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = &sent[..sent.len().min(SHOWN)];
    let more = if sent.len() > SHOWN { " ..." } else { "" };
    let start = match sent.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).collect(),
    };
    format!("the object provided is unrecognized (must be of type {kind}): {why} ({start}{more})")
}

fn hex_digit(value: u8) -> char {
    char::from_digit(value.into(), 16).expect("half a byte is a hexadecimal digit")
}

/// A decoded body as a typed object.
pub fn typed<T: DeserializeOwned>(decoded: &Value) -> T {
    T::deserialize(decoded).expect("what was decoded fits its type")
}

/// A typed object as JSON again. `sent` is what it came from, or the parts that it was made of.
pub fn untyped(object: &impl Serialize, sent: &Value) -> Value {
    let mut value = serde_json::to_value(object).expect("wire types have string keys and finite numbers");
    take_back_empty_lists(&mut value, sent);
    value
}

/// A typed object cannot say that a list which must be there is not: it has an empty one. Kubernetes stores and prints
/// `null` then.
fn take_back_empty_lists(value: &mut Value, sent: &Value) {
    match value {
        Value::Object(fields) => {
            let is_invented = |key: &str, value: &Value| {
                value.as_array().is_some_and(Vec::is_empty) && sent.get(key).is_none_or(Value::is_null)
            };
            fields.retain(|key, value| !is_invented(key, value));
            for (key, value) in fields {
                take_back_empty_lists(value, sent.get(key).unwrap_or(&Value::Null));
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                take_back_empty_lists(item, sent.get(i).unwrap_or(&Value::Null));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_expected_as_an_api_server_does() {
        let check = |body: Value, expected: &str| {
            let sent = body.to_string();
            let refused = expect_kind("batch", "v1", "Job", &body, sent.as_bytes()).err();
            assert_eq!(refused.as_deref().unwrap_or(""), expected);
        };
        check(json!({}), "");
        check(json!({"kind": "Job"}), "");
        check(json!({"apiVersion": "batch/v1", "kind": "Job"}), "");
        check(
            json!({"apiVersion": "batch/v1", "kind": "Jobb"}),
            "Jobb in version \"v1\" cannot be handled as a Job: no kind \"Jobb\" is registered for version \"batch/v1\" in \
             scheme \"pkg/runtime/scheme.go:111\"",
        );
        check(
            json!({"apiVersion": "batch/v1", "kind": 5}),
            "the object provided is unrecognized (must be of type Job): couldn't get version/kind; json parse error: json: \
             cannot unmarshal number into Go struct field .kind of type string ({\"apiVersion\":\"batch/v1\",\"kind ...)",
        );
        check(
            json!({"apiVersion": "v1", "kind": "Secret"}),
            "Secret in version \"v1\" cannot be handled as a Job: converting (v1.Secret) to (batch.Job): unknown conversion",
        );
    }

    #[test]
    fn absent_and_empty_lists_stay_what_they_were() {
        for policy in [json!({}), json!({"rules": []}), json!({"rules": [{"action": "Count"}]})] {
            let sent = json!({"spec": {"podFailurePolicy": policy}});
            let job: Job = typed(&sent);
            assert_eq!(untyped(&job, &sent)["spec"]["podFailurePolicy"], policy);
        }
    }
}
