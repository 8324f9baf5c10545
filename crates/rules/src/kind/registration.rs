//! Who serves which group and version.

use serde_json::{Value, json};

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::names::{self, Problems};

/// Servers of groups and versions; one without a Service is the cluster's own.
pub(super) struct Services;

const STATUSES: [&str; 3] = ["True", "False", "Unknown"];

impl Kind for Services {
    fn name(&self) -> fn(&str) -> Problems {
        names::path_segment
    }

    fn status_keeps_metadata(&self) -> bool {
        true
    }

    /// Whoever serves without a Service is this server, which is there.
    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        if at(new, "spec.service").is_null() {
            let since = at(new, "metadata.creationTimestamp").clone();
            new["status"] = json!({"conditions": [{"type": "Available", "status": "True",
                "lastTransitionTime": since, "reason": "Local",
                "message": "Local APIServices are always available"}]});
        }
        Vec::new()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = metadata(it);
        let (group, version) = (text(spec, "group"), text(spec, "version"));
        if group.is_empty() && version != "v1" {
            let why = "only v1 may have an empty group and it better be legacy kube";
            errors.push(path.child("group").required(why));
        }
        if !group.is_empty() {
            errors.extend(named(group, &path.child("group"), names::dns_subdomain));
        }
        errors.extend(named(version, &path.child("version"), names::dns_1035_label));
        for (field, max) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let priority = spec[field].as_i64().unwrap_or(0);
            if priority <= 0 || priority > max {
                let why = format!("must be positive and less than {max}");
                errors.push(path.child(field).invalid(priority, why));
            }
        }
        errors.extend(trust(spec, &path));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.any_metadata_update();
        errors.extend(self.validate(it));
        errors
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let path = Path::new("status").child("conditions");
        let mut errors = it.any_metadata_update();
        for (i, condition) in items(it.new, "status.conditions").iter().enumerate() {
            let status = text(condition, "status");
            if !STATUSES.contains(&status) {
                let path = path.index(i).child("status");
                errors.push(path.not_supported(field::Value::json(&status), &STATUSES));
            }
        }
        errors
    }
}

/// A name says the version and the group; what it is generated from, too.
fn metadata(it: &It<'_>) -> Errors {
    let required = format!("{}.{}", text(it.new, "spec.version"), text(it.new, "spec.group"));
    let why = format!("must be `spec.version+\".\"+spec.group`: {}", types::go::quote(&required));
    let path = Path::new("metadata");
    let mut errors = Errors::new();
    for (field, name) in [("generateName", &it.meta.generate_name), ("name", &it.meta.name)] {
        if let Some(name) = name.as_ref().filter(|name| !name.is_empty() && **name != required)
            && names::path_segment(name).is_empty()
        {
            errors.push(path.child(field).invalid(name, why.as_str()));
        }
    }
    errors.extend(it.any_metadata());
    errors
}

/// A server that is not the cluster's own is somewhere, and trusted for a reason or without.
fn trust(spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (service, bundle) = (&spec["service"], text(spec, "caBundle"));
    let is_insecure = spec["insecureSkipTLSVerify"] == json!(true);
    let at_insecure = path.child("insecureSkipTLSVerify");
    if service.is_null() {
        if !bundle.is_empty() {
            let shown = format!("{} bytes", decoded_length(bundle));
            let why = "local APIServices may not have a caBundle";
            errors.push(path.child("caBundle").invalid(shown.as_str(), why));
        }
        if is_insecure {
            errors.push(at_insecure.invalid(true, "local APIServices may not have insecureSkipTLSVerify"));
        }
        return errors;
    }
    let at_service = path.child("service");
    let empty = ["namespace", "name"].into_iter().filter(|field| text(service, field).is_empty());
    errors.extend(empty.map(|field| at_service.child(field).required("")));
    let port = i32::try_from(service["port"].as_i64().unwrap_or(0)).unwrap_or(-1);
    let problems = names::port_number(port);
    if !problems.is_empty() {
        let why = format!("port is not valid: {}", problems.join(", "));
        errors.push(at_service.child("port").invalid(port, why));
    }
    if is_insecure && !bundle.is_empty() {
        errors.push(at_insecure.invalid(true, "may not be true if caBundle is present"));
    }
    errors
}

fn named(name: &str, path: &Path, check: fn(&str) -> Problems) -> Errors {
    check(name).into_iter().map(|problem| path.invalid(name, problem)).collect()
}

/// How many bytes base64 text stands for.
fn decoded_length(text: &str) -> usize {
    let digits = text.trim_end_matches('=').len();
    digits * 3 / 4
}
