//! Environment variables, where their values come from, and the references to a pod's own fields and resources that
//! downward API volumes use too.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, ObjectFieldSelector, PodSpec, ResourceFieldSelector,
};
use types::Quantity;

use super::paths::no_backsteps;
use super::{all_containers, named};
use crate::field::{Errors, Path};
use crate::names;

/// The fields of a pod that a variable can hold.
const VARIABLE_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a pod that a file can hold.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// The fields of a pod that have names at all.
const KNOWN_FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// The variables of a container.
pub(super) fn validate(variables: &[EnvVar], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, variable) in variables.iter().enumerate() {
        let path = path.index(i);
        if variable.name.is_empty() {
            errors.push(path.child("name").required(""));
        } else {
            errors.extend(named(&path.child("name"), &variable.name, names::env_var_name));
        }
        if let Some(source) = &variable.value_from {
            let has_value = variable.value.as_ref().is_some_and(|value| !value.is_empty());
            errors.extend(value_from(source, has_value, &path.child("valueFrom")));
        }
    }
    errors
}

fn value_from(source: &EnvVarSource, has_value: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut sources = 0;
    if let Some(selector) = &source.field_ref {
        sources += 1;
        errors.extend(field_selector(selector, &VARIABLE_FIELDS, &path.child("fieldRef")));
    }
    if let Some(selector) = &source.resource_field_ref {
        sources += 1;
        errors.extend(resource_selector(selector, false, &path.child("resourceFieldRef")));
    }
    for (field, selector) in [
        ("configMapKeyRef", source.config_map_key_ref.as_ref().map(|s| (&s.name, &s.key))),
        ("secretKeyRef", source.secret_key_ref.as_ref().map(|s| (&s.name, &s.key))),
    ] {
        if let Some((name, key)) = selector {
            sources += 1;
            errors.extend(key_selector(name, key, &path.child(field)));
        }
    }
    if let Some(selector) = &source.file_key_ref {
        sources += 1;
        errors.extend(file_key_selector(selector, &path.child("fileKeyRef")));
    }
    if sources == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.push(path.invalid("", why));
    } else if has_value {
        errors.push(path.invalid("", "may not be specified when `value` is not empty"));
    } else if sources > 1 {
        errors.push(path.invalid("", "may not have more than one field specified at a time"));
    }
    errors
}

/// A field of the pod itself, which must be one of `supported`; labels and annotations also one by one.
pub(super) fn field_selector(selector: &ObjectFieldSelector, supported: &[&str], path: &Path) -> Errors {
    let version = selector.api_version.as_deref().unwrap_or_default();
    let field = selector.field_path.as_str();
    if version.is_empty() {
        return vec![path.child("apiVersion").required("")];
    }
    if field.is_empty() {
        return vec![path.child("fieldPath").required("")];
    }
    let unknown = |why: String| {
        vec![path.child("fieldPath").invalid(field, format!("error converting fieldPath: {why}"))]
    };
    if version != "v1" {
        return unknown(format!("unsupported pod version: {version}"));
    }
    match split_subscript(field) {
        Some(("metadata.annotations", key)) => named(path, &key.to_lowercase(), names::qualified_name),
        Some(("metadata.labels", key)) => named(path, key, names::qualified_name),
        Some(_) => unknown(format!("field label does not support subscript: {field}")),
        None => {
            // The old spelling of old clients.
            let field = if field == "spec.host" { "spec.nodeName" } else { field };
            if !KNOWN_FIELDS.contains(&field) {
                return unknown(format!("field label not supported: {field}"));
            }
            if supported.contains(&field) {
                return Errors::new();
            }
            vec![path.child("fieldPath").not_supported(field, supported)]
        }
    }
}

/// `path['key']` in its parts.
fn split_subscript(field: &str) -> Option<(&str, &str)> {
    field.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// The resources of a container; a file has to say of which one.
pub(super) fn resource_selector(selector: &ResourceFieldSelector, in_file: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let resource = selector.resource.as_str();
    let is_huge_pages =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if in_file && selector.container_name.as_ref().is_none_or(String::is_empty) {
        errors.push(path.child("containerName").required(""));
    } else if resource.is_empty() {
        errors.push(path.child("resource").required(""));
    } else if !RESOURCES.contains(&resource) && !is_huge_pages {
        errors.push(path.child("resource").not_supported(resource, &RESOURCES));
    }
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::try_from(divisor).ok());
    let Some(divisor) = divisor.filter(|divisor| !divisor.is_zero()) else { return errors };
    let (divisors, noun): (&[&str], &str) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (&BYTE_DIVISORS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (&BYTE_DIVISORS, "local ephemeral storage")
        }
        _ if is_huge_pages => (&BYTE_DIVISORS, "hugepages"),
        _ => return errors,
    };
    if !divisors.contains(&divisor.to_string().as_str()) {
        let listed = if noun == "cpu" { "1m and 1".to_owned() } else { divisors.join(", ") };
        let why = format!("only divisor's values {listed} are supported with the {noun} resource");
        errors.push(path.child("divisor").invalid(resource, why));
    }
    errors
}

/// One key of a ConfigMap or a Secret.
fn key_selector(name: &str, key: &str, path: &Path) -> Errors {
    let mut errors = named(&path.child("name"), name, names::dns_subdomain);
    if key.is_empty() {
        errors.push(path.child("key").required(""));
    } else {
        errors.extend(named(&path.child("key"), key, names::config_map_key));
    }
    errors
}

/// One variable of a file in a volume.
fn file_key_selector(selector: &FileKeySelector, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if selector.key.is_empty() {
        errors.push(path.child("key").required(""));
    } else {
        errors.extend(named(&path.child("key"), &selector.key, names::env_var_name));
    }
    if selector.volume_name.is_empty() {
        errors.push(path.child("volumeName").required(""));
    } else {
        errors.extend(named(&path.child("volumeName"), &selector.volume_name, names::dns_label));
    }
    if selector.path.is_empty() {
        errors.push(path.child("path").required(""));
    } else {
        errors.extend(no_backsteps(&selector.path, &path.child("path")));
    }
    errors
}

/// Variables taken from all keys of ConfigMaps and Secrets.
pub(super) fn validate_from(sources: &[EnvFromSource], path: &Path) -> Errors {
    let list = path;
    let mut errors = Errors::new();
    for (i, source) in sources.iter().enumerate() {
        let path = path.index(i);
        if let Some(prefix) = source.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
            errors.extend(named(&path.child("prefix"), prefix, names::env_var_name));
        }
        let references = [
            ("configMapRef", source.config_map_ref.as_ref().map(|reference| &reference.name)),
            ("secretRef", source.secret_ref.as_ref().map(|reference| &reference.name)),
        ];
        for (field, name) in references {
            let path = path.child(field).child("name");
            match name {
                Some(name) if name.is_empty() => errors.push(path.required("")),
                Some(name) => errors.extend(
                    names::as_prefix(name, names::dns_subdomain)
                        .into_iter()
                        .map(|problem| path.invalid(name, problem)),
                ),
                None => {}
            }
        }
        match references.iter().filter(|(_, name)| name.is_some()).count() {
            0 => errors.push(list.invalid("", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => errors.push(list.invalid("", "may not have more than one field specified at a time")),
        }
    }
    errors
}

/// Files with variables lie in volumes that live and die with the pod.
pub(super) fn file_volumes(spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (container, path) in all_containers(spec, path) {
        for (i, variable) in container.env.iter().flatten().enumerate() {
            let Some(file) = variable.value_from.as_ref().and_then(|source| source.file_key_ref.as_ref())
            else {
                continue;
            };
            let path = path.child("env").index(i).child("valueFrom.fileKeyRef.volumeName");
            // The last of two volumes of one name counts.
            let mut volumes = spec.volumes.iter().flatten();
            match volumes.rfind(|volume| volume.name == file.volume_name) {
                None => errors.push(path.not_found(&file.volume_name)),
                Some(volume) if volume.empty_dir.is_none() => {
                    errors
                        .push(path.invalid(&file.volume_name, "referenced volume must be of type emptyDir"));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{check_container, check_spec};

    fn check(source: Value, expected: &[&str]) {
        check_container(json!({"env": [{"name": "N", "valueFrom": source}]}), expected);
    }

    #[test]
    fn c_63_names() {
        check_container(
            json!({"env": [{"name": ""}, {"name": "a b"}, {"name": "a=b"}]}),
            &[
                ".env[0].name: Required value",
                r#".env[2].name: Invalid value: "a=b": a valid environment variable"#,
            ],
        );
        check_container(
            json!({"envFrom": [{"prefix": "a="}, {"configMapRef": {"name": ""}, "secretRef": {"name": "A"}},
                {"configMapRef": {"name": "a-"}}]}),
            &[
                r#".envFrom[0].prefix: Invalid value: "a=": a valid environment variable"#,
                r#".envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`"#,
                ".envFrom[1].configMapRef.name: Required value",
                r#".envFrom[1].secretRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain"#,
                r#".envFrom: Invalid value: "": may not have more than one field specified at a time"#,
            ],
        );
    }

    #[test]
    fn c_63_fields() {
        let at = |field: &str| json!({"fieldRef": {"fieldPath": field}});
        check(at("metadata.name"), &[]);
        check(at("spec.host"), &[]);
        check(at("metadata.labels['a']"), &[]);
        check(at("metadata.annotations['A']"), &[]);
        check(
            at("metadata.labels"),
            &[
                r#".env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs""#,
            ],
        );
        check(
            at("metadata.labels['-']"),
            &[r#".env[0].valueFrom.fieldRef: Invalid value: "-": name part must consist"#],
        );
        check(
            at("spec.x['a']"),
            &[
                r#".env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x['a']": error converting fieldPath: field label does not support subscript: spec.x['a']"#,
            ],
        );
        check(
            at("x"),
            &[
                r#".env[0].valueFrom.fieldRef.fieldPath: Invalid value: "x": error converting fieldPath: field label not supported: x"#,
            ],
        );
        check(at(""), &[".env[0].valueFrom.fieldRef.fieldPath: Required value"]);
        check(
            json!({"fieldRef": {"fieldPath": "x", "apiVersion": "v2"}}),
            &[
                r#".env[0].valueFrom.fieldRef.fieldPath: Invalid value: "x": error converting fieldPath: unsupported pod version: v2"#,
            ],
        );
    }

    #[test]
    fn c_63_resources() {
        let at = |resource: &str, divisor: &str| json!({"resourceFieldRef": {"resource": resource, "divisor": divisor}});
        check(at("limits.cpu", "1m"), &[]);
        check(at("limits.hugepages-2Mi", "1Mi"), &[]);
        check(
            at("limits.cpu", "2"),
            &[
                r#".env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#,
            ],
        );
        check(
            at("requests.memory", "2"),
            &[
                r#".env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "requests.memory": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"#,
            ],
        );
        check(
            at("limits.gpu", "0"),
            &[
                r#".env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#,
            ],
        );
    }

    #[test]
    fn c_63_other_sources() {
        check(
            json!({}),
            &[
                r#".env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"#,
            ],
        );
        check(
            json!({"configMapKeyRef": {"name": "", "key": ""}, "secretKeyRef": {"name": "s", "key": ".."}}),
            &[
                r#".env[0].valueFrom.configMapKeyRef.name: Invalid value: "": a lowercase RFC 1123 subdomain"#,
                ".env[0].valueFrom.configMapKeyRef.key: Required value",
                r#".env[0].valueFrom.secretKeyRef.key: Invalid value: "..": must not be '..'"#,
                r#".env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time"#,
            ],
        );
        check_container(
            json!({"env": [{"name": "N", "value": "v", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
            &[r#".env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#],
        );
    }

    #[test]
    fn c_63_files() {
        let variable = |volume: &str| {
            json!({"name": "N", "valueFrom": {"fileKeyRef":
            {"key": "K", "path": "a/../b", "volumeName": volume}}})
        };
        check_spec(
            json!({"volumes": [{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}],
                "containers": [{"name": "c", "image": "i", "env": [variable("e"), variable("s"), variable("x")]}]}),
            &[
                r#"spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "a/../b": must not contain '..'"#,
                r#"spec.containers[0].env[1].valueFrom.fileKeyRef.path: Invalid value: "a/../b": must not contain '..'"#,
                r#"spec.containers[0].env[2].valueFrom.fileKeyRef.path: Invalid value: "a/../b": must not contain '..'"#,
                r#"spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Invalid value: "s": referenced volume must be of type emptyDir"#,
                r#"spec.containers[0].env[2].valueFrom.fileKeyRef.volumeName: Not found: "x""#,
            ],
        );
    }
}
