//! What converting a wire value to the internal one changes besides names.
//!
//! Each function changes the wire value so that copying field by field gives what Kubernetes' own conversion gives.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::base64;

/// Prepares a value of a wire type, named as in OpenAPI, for being copied field by field.
pub(super) fn prepare<'v>(name: &str, value: &'v Value) -> Cow<'v, Value> {
    let change: fn(&mut Map<String, Value>) = match name {
        "io.k8s.api.core.v1.PodSpec" => pod_spec,
        "io.k8s.api.core.v1.PodTemplateSpec" => pod_template_spec,
        "io.k8s.api.core.v1.Pod" => pod,
        "io.k8s.api.core.v1.PodStatus" => pod_status,
        "io.k8s.api.core.v1.NodeSpec" => node_spec,
        "io.k8s.api.core.v1.Secret" => secret,
        _ => return Cow::Borrowed(value),
    };
    let mut object = value.as_object().cloned().unwrap_or_default();
    change(&mut object);
    Cow::Owned(Value::Object(object))
}

/// The host's namespaces are part of the internal security context, which is therefore always there.
fn pod_spec(spec: &mut Map<String, Value>) {
    const HOST: [&str; 5] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers"];
    let mut context = match spec.remove("securityContext") {
        Some(Value::Object(context)) => context,
        _ => Map::new(),
    };
    for name in HOST {
        if let Some(value) = spec.remove(name) {
            context.insert(name.to_owned(), value);
        }
    }
    spec.insert("securityContext".to_owned(), Value::Object(context));
    if spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or_default().is_empty()
        && let Some(name) = spec.remove("serviceAccount")
    {
        spec.insert("serviceAccountName".to_owned(), name);
    }
}

/// Annotations in which clients before v1.8 kept init containers are dropped.
pub(super) fn pod_template_spec(template: &mut Map<String, Value>) {
    const DROPPED: [&str; 4] = [
        "pod.beta.kubernetes.io/init-containers",
        "pod.alpha.kubernetes.io/init-containers",
        "pod.beta.kubernetes.io/init-container-statuses",
        "pod.alpha.kubernetes.io/init-container-statuses",
    ];
    let metadata = template.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(annotations) =
        metadata.and_then(|it| it.get_mut("annotations")).and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !DROPPED.contains(&key.as_str()));
    }
}

pub(super) fn pod(pod: &mut Map<String, Value>) {
    pod_template_spec(pod);
    let grace = pod.get_mut("spec").and_then(|spec| spec.get_mut("terminationGracePeriodSeconds"));
    if let Some(grace) = grace
        && grace.as_i64().is_some_and(|seconds| seconds < 0)
    {
        *grace = json!(1);
    }
}

/// Of the addresses, the single one is the authority if it differs from the first of the list.
pub(super) fn pod_status(status: &mut Map<String, Value>) {
    let first = status.get("podIPs").and_then(|all| all.get(0)).map(|first| first["ip"].clone());
    if let Some(ip) = status.get("podIP").filter(|ip| **ip != json!("") && first.as_ref() != Some(*ip)) {
        let all = json!([{ "ip": ip }]);
        status.insert("podIPs".to_owned(), all);
    }
}

pub(super) fn node_spec(spec: &mut Map<String, Value>) {
    let first = spec.get("podCIDRs").and_then(|all| all.get(0)).cloned();
    if let Some(cidr) =
        spec.get("podCIDR").filter(|cidr| **cidr != json!("") && first.as_ref() != Some(*cidr))
    {
        let all = json!([cidr]);
        spec.insert("podCIDRs".to_owned(), all);
    }
}

/// Plain text becomes data.
pub(super) fn secret(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else { return };
    if texts.is_empty() {
        return;
    }
    let mut data = match secret.remove("data") {
        Some(Value::Object(data)) => data,
        _ => Map::new(),
    };
    for (key, text) in texts {
        let bytes = base64::encode(text.as_str().unwrap_or_default().as_bytes());
        data.insert(key, Value::String(bytes));
    }
    secret.insert("data".to_owned(), Value::Object(data));
}
