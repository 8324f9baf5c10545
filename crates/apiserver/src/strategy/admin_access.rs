//! Devices that others use are given for administration only in namespaces that were made for it.

use rules::field::{Error, Path};
use rules::write::{Accepted, Refused};
use serde_json::Value;

use crate::cluster::Context;
use crate::object::{self, items};
use crate::registry::Registry;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// What was judged of a claim, and whether its namespace may have what it wants.
pub(crate) fn judged(
    context: &Context<'_>,
    new: &Value,
    old: Option<&Value>,
    judged: Result<Accepted, Refused>,
) -> Result<Accepted, Refused> {
    if context.resource.group != "resource.k8s.io" {
        return judged;
    }
    let asked = match (context.resource.kind.as_str(), old) {
        ("ResourceClaim", None) => asked_by(&new["spec"]),
        ("ResourceClaimTemplate", None) => asked_by(&new["spec"]["spec"]),
        ("ResourceClaim", Some(old)) if given_to(old).is_none() && is_of_status(context) => given_to(new),
        _ => None,
    };
    let Some(error) = asked.and_then(|path| forbidden(context, &path)) else { return judged };
    Err(match judged {
        Err(Refused::Invalid(others)) => Refused::Invalid(std::iter::once(error).chain(others).collect()),
        Err(other) => other,
        Ok(_) => Refused::Invalid(vec![error]),
    })
}

fn is_of_status(context: &Context<'_>) -> bool {
    context.target.subresource.as_deref() == Some("status")
}

/// The first request that asks for it. A template is told of it where a claim has it.
fn asked_by(spec: &Value) -> Option<Path> {
    let asks = |request: &Value| request["exactly"]["adminAccess"] == true;
    let place = items(&spec["devices"]["requests"]).iter().position(asks)?;
    Some(Path::new("spec").child("devices").child("requests").index(place).child("adminAccess"))
}

/// The first result that has it.
fn given_to(claim: &Value) -> Option<Path> {
    let results = items(&claim["status"]["allocation"]["devices"]["results"]);
    let place = results.iter().position(|result| result["adminAccess"] == true)?;
    let path = Path::new("status").child("allocation").child("devices").child("results");
    Some(path.index(place).child("adminAccess"))
}

fn forbidden(context: &Context<'_>, path: &Path) -> Option<Error> {
    let namespaces = Registry::built_in().get("", "v1", "namespaces").expect("namespaces are served");
    let found = context.cluster.store().get(&object::key(namespaces, "", context.namespace()));
    let is_labelled =
        found.is_some_and(|namespace| object::read(&namespace)["metadata"]["labels"][LABEL] == "true");
    let why =
        format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    (!is_labelled).then(|| path.forbidden(why))
}
