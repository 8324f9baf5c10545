//! Seccomp and AppArmor profiles: as fields, as the annotations that came before the fields, and that both agree.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{AppArmorProfile, PodSpec, SeccompProfile};

use super::{Annotations, all_containers, paths, required_one_of};
use crate::field::{Error, Errors, Path, Value};

const SECCOMP_PROFILE: &str = "io.k8s.api.core.v1.SeccompProfile";
/// The annotation for a whole pod.
pub(super) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// The annotation for one container, whose name follows.
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The annotation for one container, whose name follows.
pub(super) const APP_ARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const MAX_APP_ARMOR_PATH: usize = 4095;

/// A seccomp profile.
pub(super) fn seccomp(profile: Option<&SeccompProfile>, path: &Path) -> Errors {
    let Some(profile) = profile else { return Errors::new() };
    let mut errors = Errors::new();
    if profile.type_.is_empty() {
        errors.push(path.child("type").required("type is required when seccompProfile is set"));
    } else {
        errors.extend(required_one_of(&path.child("type"), &profile.type_, &TYPES));
    }
    let path = path.child("localhostProfile");
    match &profile.localhost_profile {
        Some(file) if profile.type_ == "Localhost" => errors.extend(paths::descending(file, &path)),
        Some(_) => {
            let value = Value::internal(SECCOMP_PROFILE, profile);
            errors.push(path.invalid(value, "can only be set when seccomp type is Localhost"));
        }
        None if profile.type_ == "Localhost" => {
            errors.push(path.required("must be set when seccomp type is Localhost"));
        }
        None => {}
    }
    errors
}

/// An AppArmor profile.
pub(super) fn app_armor(profile: Option<&AppArmorProfile>, path: &Path) -> Errors {
    let Some(profile) = profile else { return Errors::new() };
    let localhost = path.child("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", file) => app_armor_file(file.as_deref(), &localhost),
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            vec![localhost.invalid(Value::json(file), "can only be set when AppArmor type is Localhost")]
        }
        ("RuntimeDefault" | "Unconfined", None) => Errors::new(),
        ("", _) => vec![path.child("type").required("type is required when appArmorProfile is set")],
        (other, _) => vec![path.child("type").not_supported(Value::json(&other), &TYPES)],
    }
}

fn app_armor_file(file: Option<&str>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let file = file.unwrap_or_default();
    if file.trim() != file {
        errors.push(path.invalid(file, "must not be padded with whitespace"));
    } else if file.is_empty() {
        errors.push(path.required("must be set when AppArmor type is Localhost"));
    }
    if file.len() > MAX_APP_ARMOR_PATH {
        errors.push(path.too_long(MAX_APP_ARMOR_PATH));
    }
    errors
}

/// The annotations that name seccomp profiles.
pub(super) fn seccomp_annotations(annotations: &Annotations, path: &Path) -> Errors {
    let check = |(key, profile): (&String, &String)| {
        let path = path.child(key);
        match profile.strip_prefix("localhost/") {
            _ if matches!(profile.as_str(), "runtime/default" | "docker/default" | "unconfined") => {
                Errors::new()
            }
            Some(file) => paths::descending(file, &path),
            None => vec![path.invalid(profile, "must be a valid seccomp profile")],
        }
    };
    let of_pod = annotations.get_key_value(SECCOMP_POD);
    let of_containers = annotations.iter().filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER));
    of_pod.into_iter().chain(of_containers).flat_map(check).collect()
}

/// The annotations that name AppArmor profiles, each for a container that exists.
pub(super) fn app_armor_annotations(annotations: &Annotations, spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let containers = LazyCell::new(|| -> BTreeSet<String> {
        let all = all_containers(spec, &Path::root());
        all.into_iter().map(|(container, _)| container.name.clone()).collect()
    });
    for (key, profile) in annotations {
        let Some(name) = key.strip_prefix(APP_ARMOR_CONTAINER) else { continue };
        let path = path.key(key);
        if !containers.contains(name) {
            errors.push(path.invalid(name, "container not found"));
        }
        let is_known = matches!(profile.as_str(), "" | "runtime/default" | "unconfined");
        if !is_known && !profile.starts_with("localhost/") {
            let why = format!("invalid AppArmor profile name: {}", types::go::quote(profile));
            errors.push(path.invalid(profile, why));
        }
    }
    errors
}

/// Where a seccomp profile is both a field and an annotation, they say the same.
pub(super) fn seccomp_agrees(annotations: &Annotations, spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let of_pod = spec.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
    if let (Some(profile), Some(annotation)) = (of_pod, annotations.get(SECCOMP_POD)) {
        let path = path.child("securityContext").child("seccompProfile");
        errors.extend(agrees(
            annotation,
            &profile.type_,
            profile.localhost_profile.as_deref(),
            "seccomp",
            &path,
        ));
    }
    for (container, path) in all_containers(spec, path) {
        let profile =
            container.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
        let annotation = annotations.get(&format!("{SECCOMP_CONTAINER}{}", container.name));
        if let (Some(profile), Some(annotation)) = (profile, annotation) {
            let path = path.child("securityContext").child("seccompProfile");
            let file = profile.localhost_profile.as_deref();
            errors.extend(agrees(annotation, &profile.type_, file, "seccomp", &path));
        }
    }
    errors
}

/// Where an AppArmor profile is both a field and an annotation, they say the same.
pub(super) fn app_armor_agrees(annotations: &Annotations, spec: &PodSpec, path: &Path) -> Errors {
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return Errors::new();
    }
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let mut errors = Errors::new();
    for (container, path) in all_containers(spec, path) {
        let own = container.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
        let annotation = annotations.get(&format!("{APP_ARMOR_CONTAINER}{}", container.name));
        if let (Some(profile), Some(annotation)) = (own.or(of_pod), annotation) {
            let path = path.child("securityContext").child("appArmorProfile");
            let file = profile.localhost_profile.as_deref();
            errors.extend(agrees(annotation, &profile.type_, file, "apparmor", &path));
        }
    }
    errors
}

fn agrees(annotation: &str, kind: &str, file: Option<&str>, noun: &str, path: &Path) -> Option<Error> {
    let same_kind = match kind {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || noun == "seccomp" && annotation == "docker/default"
        }
        "Localhost" => annotation.starts_with("localhost/"),
        _ => return None,
    };
    if !same_kind {
        let why = format!("{noun} type in annotation and field must match");
        return Some(path.child("type").forbidden(why));
    }
    let same_file = kind != "Localhost" || annotation.strip_prefix("localhost/") == file;
    let why = format!("{noun} profile in annotation and field must match");
    (!same_file).then(|| path.child("localhostProfile").forbidden(why))
}

/// The AppArmor profile that an annotation stands for, if it stands for one.
pub(super) fn app_armor_from_annotation(annotation: &str) -> Option<AppArmorProfile> {
    let profile = |type_: &str| AppArmorProfile { type_: type_.to_owned(), localhost_profile: None };
    match annotation {
        "unconfined" => Some(profile("Unconfined")),
        "runtime/default" => Some(profile("RuntimeDefault")),
        _ => annotation
            .strip_prefix("localhost/")
            .filter(|file| !file.is_empty())
            .map(|file| AppArmorProfile { localhost_profile: Some(file.to_owned()), ..profile("Localhost") }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{check_container, check_template};

    #[test]
    fn c_63_seccomp() {
        let check = |profile: Value, expected: &[&str]| {
            check_container(json!({"securityContext": {"seccompProfile": profile}}), expected);
        };
        check(json!({"type": "Localhost", "localhostProfile": "a/b.json"}), &[]);
        check(
            json!({"type": ""}),
            &[
                ".securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set",
            ],
        );
        check(
            json!({"type": "Strict", "localhostProfile": "a"}),
            &[
                r#".securityContext.seccompProfile.type: Unsupported value: "Strict": supported values: "Localhost", "RuntimeDefault", "Unconfined""#,
                r#".securityContext.seccompProfile.localhostProfile: Invalid value: {"Type":"Strict","LocalhostProfile":"a"}: can only be set when seccomp type is Localhost"#,
            ],
        );
        check(
            json!({"type": "Localhost"}),
            &[
                ".securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            ],
        );
        check(
            json!({"type": "Localhost", "localhostProfile": "/a"}),
            &[
                r#".securityContext.seccompProfile.localhostProfile: Invalid value: "/a": must be a relative path"#,
            ],
        );
    }

    #[test]
    fn c_63_app_armor() {
        let check = |profile: Value, expected: &[&str]| {
            check_container(json!({"securityContext": {"appArmorProfile": profile}}), expected);
        };
        check(json!({"type": "Localhost", "localhostProfile": "a"}), &[]);
        check(
            json!({"type": "Localhost", "localhostProfile": " "}),
            &[r#".securityContext.appArmorProfile.localhostProfile: Invalid value: " ": must not be padded"#],
        );
        check(
            json!({"type": "Localhost"}),
            &[
                ".securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
            ],
        );
        check(
            json!({"type": "Unconfined", "localhostProfile": "a"}),
            &[r#".securityContext.appArmorProfile.localhostProfile: Invalid value: "a": can only be set"#],
        );
        check(json!({"type": "x"}), &[r#".securityContext.appArmorProfile.type: Unsupported value: "x""#]);
    }

    #[test]
    fn c_63_annotations() {
        let check = |annotations: Value, context: Value, expected: &[&str]| {
            let containers = json!([{"name": "c", "image": "i", "securityContext": context}]);
            check_template(
                json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}),
                expected,
            );
        };
        check(
            json!({"seccomp.security.alpha.kubernetes.io/pod": "odd",
                   "container.apparmor.security.beta.kubernetes.io/x": "odd"}),
            json!({}),
            &[
                r#"annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: "odd": must be a valid seccomp profile"#,
                r#"annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "x": container not found"#,
                r#"annotations[container.apparmor.security.beta.kubernetes.io/x]: Invalid value: "odd": invalid AppArmor profile name: "odd""#,
            ],
        );
        check(
            json!({"container.seccomp.security.alpha.kubernetes.io/c": "unconfined",
                   "container.apparmor.security.beta.kubernetes.io/c": "localhost/b"}),
            json!({"seccompProfile": {"type": "RuntimeDefault"},
                   "appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}),
            &[
                "spec.containers[0].securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
                "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation and field must match",
            ],
        );
    }
}
