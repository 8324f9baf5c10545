//! Claims that grow: only where their class says that it can be done (3.14).

use futures::future::{BoxFuture, ready};
use serde_json::Value;
use store::Store;
use types::Quantity;

use super::plugin::{Operation, Plugin, Request};
use super::pods::{find, forbidden};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

/// The older way for a claim to say its class.
pub(super) const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Refuses claims that want to grow and cannot.
pub(super) struct ClaimResize(pub(super) Store);

impl Plugin for ClaimResize {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        operation == Operation::Update
            && (resource.group.as_str(), resource.plural.as_str(), subresource)
                == ("", "persistentvolumeclaims", "")
    }

    fn mutates(&self, _: Operation, _: &Resource) -> bool {
        false
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let refused = match (&request.object, request.old) {
            (Some(new), Some(old)) => refuse(new, old, |class| self.grows(class)),
            _ => None,
        };
        Box::pin(ready(refused.map_or(Ok(()), |why| Err(forbidden(request, why)))))
    }
}

impl ClaimResize {
    fn grows(&self, class: &str) -> bool {
        let found = find(&self.0, "storage.k8s.io", "storageclasses", "", class);
        found.is_some_and(|class| class["allowVolumeExpansion"] == true)
    }
}

/// Why a claim cannot become what it is to become.
fn refuse(new: &Value, old: &Value, grows: impl Fn(&str) -> bool) -> Option<&'static str> {
    if size(new) <= size(old) {
        return None;
    }
    if object::text(old, &["status", "phase"]) != "Bound" {
        return Some("Only bound persistent volume claims can be expanded");
    }
    let (before, after) = (class(old), class(new));
    let can_grow = !after.is_empty() && before == after && grows(after);
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support \
               resize";
    (!can_grow).then_some(why)
}

fn size(claim: &Value) -> Quantity {
    let text = object::text(claim, &["spec", "resources", "requests", "storage"]);
    text.parse().unwrap_or_default()
}

fn class(claim: &Value) -> &str {
    let older = claim["metadata"]["annotations"][CLASS].as_str();
    older.unwrap_or_else(|| object::text(claim, &["spec", "storageClassName"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_3_14_claims_grow_where_their_class_lets_them() {
        let claim = |size: &str, class: &str, phase: &str| {
            let spec = json!({"storageClassName": class, "resources": {"requests": {"storage": size}}});
            json!({"spec": spec, "status": {"phase": phase}})
        };
        let check = |new: Value, old: Value, expected: Option<&str>| {
            let why = refuse(&new, &old, |class| class == "grows");
            assert_eq!(why.map(|why| &why[..10]), expected);
        };
        check(claim("2Gi", "grows", "Bound"), claim("1Gi", "grows", "Bound"), None);
        check(claim("1Gi", "stays", "Bound"), claim("2Gi", "stays", "Bound"), None);
        check(claim("2Gi", "stays", "Bound"), claim("1Gi", "stays", "Bound"), Some("only dynam"));
        check(claim("2Gi", "", "Bound"), claim("1Gi", "", "Bound"), Some("only dynam"));
        check(claim("2Gi", "grows", "Bound"), claim("1Gi", "stays", "Bound"), Some("only dynam"));
        check(claim("2Gi", "grows", "Pending"), claim("1Gi", "grows", "Pending"), Some("Only bound"));
    }
}
