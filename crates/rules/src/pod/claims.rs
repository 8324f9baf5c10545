//! Claims of a pod on devices, and their use by its containers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodResourceClaim, ResourceClaim};

use super::named;
use crate::field::{Errors, Path, Value};
use crate::names;

const POD_RESOURCE_CLAIM: &str = "io.k8s.api.core.v1.PodResourceClaim";

/// The claims of a pod on devices. `is_static` says that a node made the pod, and not an API server.
pub(super) fn validate(claims: &[PodResourceClaim], is_static: bool, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        if is_static {
            errors.push(Path::new("[]").forbidden("static pods do not support resource claims"));
            continue;
        }
        if claim.name.is_empty() {
            errors.push(path.child("name").required(""));
        } else if !seen.insert(&claim.name) {
            errors.push(path.child("name").duplicate(&claim.name));
        } else {
            errors.extend(named(&path.child("name"), &claim.name, names::dns_label));
        }
        let why = match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
            (Some(_), Some(_)) => {
                Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
            }
            (None, None) => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        errors.extend(why.map(|why| path.invalid(Value::internal(POD_RESOURCE_CLAIM, claim), why)));
        for (field, name) in [
            ("resourceClaimName", &claim.resource_claim_name),
            ("resourceClaimTemplateName", &claim.resource_claim_template_name),
        ] {
            errors.extend(name.iter().flat_map(|name| named(&path.child(field), name, names::dns_subdomain)));
        }
    }
    errors
}

/// The claims that a container uses are claims of its pod, and each is used once.
pub(super) fn validate_use(claims: &[ResourceClaim], of_pod: &BTreeSet<&str>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        let name = &claim.name;
        if name.is_empty() {
            errors.push(path.required(""));
            continue;
        }
        if seen.contains(name) {
            errors.push(path.duplicate(name)); // all requests of the claim were used already
        } else {
            errors.extend(used_once(claim, &mut seen, &path));
        }
        if !of_pod.contains(name.as_str()) {
            let known: Vec<&str> = of_pod.iter().copied().collect();
            let known = if known.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", known.join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
            errors.push(path.not_found(name).with_detail(detail));
        }
    }
    errors
}

fn used_once(claim: &ResourceClaim, seen: &mut BTreeSet<String>, path: &Path) -> Errors {
    let name = &claim.name;
    let request = claim.request.as_deref().unwrap_or_default();
    if request.is_empty() {
        let parts = seen.iter().filter(|key| key.split_once('/').is_some_and(|(claim, _)| claim == name));
        let errors = parts.map(|_| path.duplicate(name)).collect();
        seen.insert(name.clone());
        return errors;
    }
    let mut errors = named(&path.child("request"), request, names::dns_label);
    let key = format!("{name}/{request}");
    if seen.contains(&key) {
        errors.push(path.duplicate(&key));
    }
    seen.insert(key);
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::check_spec;

    #[test]
    fn c_63_claims_and_their_use() {
        check_spec(
            json!({
                "resourceClaims": [{"name": "a", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "x"}, {}],
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [
                    {"name": "a", "request": "r"}, {"name": "a", "request": "r"}, {"name": "a"}, {"name": "b"}, {"name": ""},
                ]}}],
            }),
            &[
                r#"spec.resourceClaims[1].name: Duplicate value: "a""#,
                "spec.resourceClaims[2].name: Required value",
                "spec.resourceClaims[2]: Invalid value: ",
                r#"spec.containers[0].resources.claims[1]: Duplicate value: "a/r""#,
                r#"spec.containers[0].resources.claims[2]: Duplicate value: "a""#,
                r#"spec.containers[0].resources.claims[3]: Not found: "b": must be one of the names in pod.spec.resourceClaims: a"#,
                "spec.containers[0].resources.claims[4]: Required value",
            ],
        );
    }
}
