//! Requests for certificates (3.14): whoever approves or signs one may do so for its signer, and none of those that this
//! server's clients get makes them masters.

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use serde_json::Value;

use super::plugin::{Operation, Plugin, Request};
use super::pods::forbidden;
use crate::auth::attributes::{Attributes, What};
use crate::auth::rbac::Authorizer;
use crate::auth::user::{MASTERS, User};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;
use crate::strategy::certificates::requested;

const GROUP: &str = "certificates.k8s.io";
/// The signer of certificates by which clients show this server who they are.
const OF_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";

/// Checks requests for certificates.
pub(super) struct Certificates(pub(super) Arc<Authorizer>);

impl Plugin for Certificates {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        (resource.group.as_str(), resource.plural.as_str()) == (GROUP, "certificatesigningrequests")
            && matches!(
                (operation, subresource),
                (Operation::Create, "") | (Operation::Update, "approval" | "status")
            )
    }

    fn mutates(&self, _: Operation, _: &Resource) -> bool {
        false
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(ready(self.refuse(request).map_or(Ok(()), |why| Err(forbidden(request, &why)))))
    }
}

impl Certificates {
    /// Why a request is refused.
    fn refuse(&self, request: &Request<'_>) -> Option<String> {
        let (new, old) = (request.object.as_ref()?, request.old.unwrap_or(&Value::Null));
        let verb = match request.subresource {
            "approval" => "approve",
            "status" if is_signed(new, old) => "sign",
            "" => return of_masters(new),
            _ => return None,
        };
        let signer = object::text(old, &["spec", "signerName"]);
        let domain = format!("{}/*", signer.split('/').next().unwrap_or(""));
        let may = [signer, &domain].iter().any(|name| self.may(request.user, verb, name));
        let signer = types::go::quote(signer);
        (!may).then(|| format!("user not permitted to {verb} requests with signerName {signer}"))
    }

    fn may(&self, user: &User, verb: &str, signer: &str) -> bool {
        let what = What::Resource {
            group: GROUP,
            version: "*",
            resource: "signers",
            subresource: "",
            namespace: "",
            name: signer,
        };
        self.0.decide(&Attributes { user, verb, what }).allowed
    }
}

/// Whether a change of the status says something that only a signer says.
fn is_signed(new: &Value, old: &Value) -> bool {
    ["certificate", "conditions"].iter().any(|field| new["status"][field] != old["status"][field])
}

/// Why nobody may ask for such a certificate.
fn of_masters(new: &Value) -> Option<String> {
    if object::text(new, &["spec", "signerName"]) != OF_CLIENTS {
        return None;
    }
    let groups = match groups(object::text(new, &["spec", "request"])) {
        Ok(groups) => groups,
        Err(why) => return Some(format!("failed to parse CSR: {why}")),
    };
    let why = || format!("use of {OF_CLIENTS} signer with {MASTERS} group is not allowed");
    groups.iter().any(|group| group == MASTERS).then(why)
}

/// The groups that a certificate would make its owner a member of.
fn groups(request: &str) -> Result<Vec<String>, String> {
    requested(request, |request| {
        let parts = request.certification_request_info.subject.iter_organization();
        Ok(parts.filter_map(|part| part.as_str().ok()).map(str::to_owned).collect())
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, DnType, KeyPair};
    use serde_json::json;

    use super::*;

    fn csr(group: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
        STANDARD.encode(pem)
    }

    #[test]
    fn rule_3_14_no_client_becomes_a_master_by_a_certificate() {
        let check = |signer: &str, request: &str| {
            of_masters(&json!({"spec": {"signerName": signer, "request": request}}))
        };
        assert_eq!(check(OF_CLIENTS, &csr("others")), None);
        assert_eq!(check("example.com/signer", &csr(MASTERS)), None);
        let why =
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        assert_eq!(check(OF_CLIENTS, &csr(MASTERS)).as_deref(), Some(why));
        assert!(check(OF_CLIENTS, "AAAA").is_some());
    }

    #[test]
    fn rule_3_14_only_a_signer_says_what_is_signed() {
        let status = |status: Value| json!({"status": status});
        assert!(!is_signed(&status(json!({})), &status(json!({}))));
        assert!(is_signed(&status(json!({"certificate": "AAAA"})), &status(json!({}))));
        assert!(is_signed(&status(json!({"conditions": [{"type": "Failed"}]})), &status(json!({}))));
    }
}
