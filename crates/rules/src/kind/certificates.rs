//! Requests for certificates. They are kept; nobody signs them here.
//!
//! What is in a request and in a certificate is not known here: whoever reads them says what is wrong with them, at their
//! paths.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{It, Kind, at, items, keep, keep_all_but, text};
use crate::field::{self, Errors, Path};
use crate::names::{self, Problems};
use crate::repeated::repeated;

pub(super) struct SigningRequests;

const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// What a certificate may be for.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Seconds for which a certificate is good at least.
const SHORTEST: i64 = 600;
/// The signer of times when nobody named one.
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// Says who asks, in place of what was sent: signers and whoever approves trust these fields.
pub fn set_requester(request: &mut Value, user: &Value) {
    for field in ["username", "uid", "groups", "extra"] {
        keep(&mut request["spec"], user, field);
    }
}

/// Says when conditions were said and came to be, where nobody did.
pub fn set_times(new: &mut Value, old: &Value, now: &str) {
    let mut since = BTreeMap::new();
    for before in conditions_of(old) {
        let time = text(before, "lastTransitionTime");
        if !time.is_empty() {
            since.entry((text(before, "type"), text(before, "status"))).or_insert(time);
        }
    }
    let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter(|condition| condition.is_object()) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = json!(now);
        }
        if condition["lastTransitionTime"].is_null() {
            let since = since.get(&(text(condition, "type"), text(condition, "status"))).copied();
            condition["lastTransitionTime"] = json!(since.unwrap_or(now));
        }
    }
}

fn conditions_of(request: &Value) -> &[Value] {
    items(request, "status.conditions")
}

/// The conditions of a type, which should be one at most.
fn of_type<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    conditions_of(request).iter().filter(|condition| text(condition, "type") == kind).collect()
}

impl SigningRequests {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors: Errors = it.expression(&path.child("request")).into_iter().collect();
        let usages: Vec<&str> = items(spec, "usages").iter().filter_map(Value::as_str).collect();
        let at_usages = path.child("usages");
        if usages.is_empty() {
            errors.push(at_usages.required(""));
        }
        let unknown = usages.iter().enumerate().filter(|(_, usage)| !USAGES.contains(usage));
        errors.extend(
            unknown.map(|(i, usage)| at_usages.index(i).not_supported(field::Value::json(usage), &USAGES)),
        );
        let again = repeated(&usages, |usage| *usage);
        let again = usages.iter().enumerate().filter(|(i, _)| again[*i]);
        errors.extend(again.map(|(i, usage)| at_usages.index(i).duplicate(field::Value::json(usage))));
        errors.extend(signer(text(spec, "signerName"), &path.child("signerName")));
        if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < SHORTEST) {
            let why = "may not specify a duration less than 600 seconds (10 minutes)";
            errors.push(path.child("expirationSeconds").invalid(seconds, why));
        }
        errors
    }

    /// What is wrong with conditions. What the stored ones do already is let pass.
    fn conditions(it: &It<'_>) -> Errors {
        let path = Path::new("status").child("conditions");
        let (new, old) = (conditions_of(it.new), conditions_of(it.old));
        let kind = |condition: &Value| text(condition, "type").to_owned();
        let had_none = old.iter().any(|condition| kind(condition).is_empty());
        let had_both = [APPROVED, DENIED].iter().all(|kind| !of_type(it.old, kind).is_empty());
        let had_again = repeated(old, kind).contains(&true);
        let again = repeated(new, kind);
        let (mut is_approved, mut is_denied) = (false, false);
        let mut errors = Errors::new();
        for (i, condition) in new.iter().enumerate() {
            let path_of = path.index(i);
            let (kind, status) = (text(condition, "type"), text(condition, "status"));
            if kind.is_empty() && !had_none {
                errors.push(path_of.child("type").required(""));
            }
            let known: &[&str] =
                if [APPROVED, DENIED, FAILED].contains(&kind) { &["True"] } else { &STATUSES };
            if status.is_empty() {
                errors.push(path_of.child("status").required(""));
            } else if !known.contains(&status) {
                errors.push(path_of.child("status").not_supported(status, known));
            }
            is_approved |= kind == APPROVED;
            is_denied |= kind == DENIED;
            if [APPROVED, DENIED].contains(&kind) && is_approved && is_denied && !had_both {
                let why = "Approved and Denied conditions are mutually exclusive";
                errors.push(path.invalid(kind, why));
            }
            if again[i] && !had_again {
                errors.push(path_of.child("type").duplicate(kind));
            }
        }
        errors
    }

    /// What only a write through the right subresource may do, and what none may.
    fn changes(it: &It<'_>, subresource: &str) -> Errors {
        let path = Path::new("status").child("conditions");
        let mut errors = Errors::new();
        for kind in [APPROVED, DENIED, FAILED] {
            if of_type(it.new, kind).len() < of_type(it.old, kind).len() {
                errors.push(path.forbidden(format!("updates may not remove a condition of type \"{kind}\"")));
            }
        }
        if subresource != "approval" {
            for kind in [APPROVED, DENIED] {
                if of_type(it.new, kind).len() > of_type(it.old, kind).len() {
                    let why = format!("updates may not add a condition of type \"{kind}\"");
                    errors.push(path.forbidden(why));
                }
            }
        }
        let (new, old) = (text(it.new, "status.certificate"), text(it.old, "status.certificate"));
        if new != old && !old.is_empty() {
            let why = "updates may not modify existing certificate content";
            errors.push(Path::new("status").child("certificate").forbidden(why));
        }
        errors
    }
}

/// What is wrong with the name of a signer.
fn signer(name: &str, path: &Path) -> Errors {
    const LONGEST_DOMAIN: usize = 253;
    const LONGEST: usize = LONGEST_DOMAIN + 1 + LONGEST_DOMAIN + 1 + 63;
    if name.is_empty() {
        return vec![path.required("")];
    }
    if name == LEGACY {
        return vec![path.invalid(name, "the legacy signerName is not allowed via this API version")];
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![path.invalid(name, why)];
    };
    // Of many bad labels the first.
    let labels = |part: &str, check: fn(&str) -> Problems| -> Errors {
        let first = part.split('.').map(|label| (label, check(label))).find(|(_, found)| !found.is_empty());
        let told = |(label, found): (&str, Problems)| {
            let label = types::go::quote(label);
            let told =
                found.into_iter().map(|why| path.invalid(part, format!("validating label {label}: {why}")));
            told.collect()
        };
        first.map(told).unwrap_or_default()
    };
    let mut errors = Errors::new();
    if domain.len() > LONGEST_DOMAIN {
        errors.push(path.too_long(LONGEST_DOMAIN));
    }
    errors.extend(labels(domain, names::dns_label));
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(path.invalid(domain, why));
    }
    errors.extend(labels(rest, names::dns_subdomain));
    if name.len() > LONGEST {
        errors.push(path.too_long(LONGEST));
    }
    errors
}

impl Kind for SigningRequests {
    /// They may be called anything that fits into a path.
    fn name(&self) -> fn(&str) -> Problems {
        |_| Problems::new()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(SigningRequests::spec(it));
        errors
    }

    /// What was asked for stays as it was, whoever asks for a change.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(it.metadata_update());
        errors
    }

    /// Who approves says nothing but conditions; who signs leaves alone what was approved or denied.
    fn prepare_subresource(&self, name: &str, new: &mut Value, old: &Value) {
        keep_all_but(new, old, &["metadata", "status"]);
        if name == "approval" {
            let conditions = at(new, "status.conditions").clone();
            keep(new, old, "status");
            new["status"]["conditions"] = conditions;
            return;
        }
        for kind in [APPROVED, DENIED] {
            let before = of_type(old, kind);
            if before.len() != of_type(new, kind).len() {
                continue;
            }
            let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            let same = conditions.into_iter().flatten().filter(|condition| text(condition, "type") == kind);
            for (condition, before) in same.zip(before) {
                condition.clone_from(before);
            }
        }
    }

    fn validate_subresource(&self, name: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(SigningRequests::conditions(it));
        if text(it.new, "status.certificate") != text(it.old, "status.certificate") {
            errors.extend(it.expression(&Path::new("status").child("certificate")));
        }
        errors.extend(SigningRequests::changes(it, name));
        errors.extend(it.metadata_update());
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["spec.signerName"]
    }
}
