//! What can be done with an object besides reading and writing it whole (2.12).
//!
//! Some subresources are the object itself, of which they write a part: `status`, `resize`, `finalize` and the like are
//! ordinary writes under other rules. The others take an object of a foreign kind and have a file each.

use crate::answer::Answer;
use crate::apply::filter::Pattern;
use crate::apply::{Filter, PathElement, Set};
use crate::auth::{self, token_request};
use crate::cluster::Context;
use crate::registry::Resource;
use crate::request::Verb;
use crate::status::Refusal;
use crate::verbs;

pub(crate) mod binding;
pub(crate) mod connect;
mod eviction;
mod forward;
mod links;
mod logs;
mod proxy;
mod spdy;
mod streams;

/// Subresources that are the object itself.
const PARTS: [&str; 5] = ["status", "ephemeralcontainers", "resize", "finalize", "approval"];

/// Answers a request about a subresource that the resource has, with a verb that it allows.
pub(crate) async fn answer(context: &Context<'_>, name: &str, body: &[u8]) -> Result<Answer, Refusal> {
    match (name, context.target.verb) {
        (name, Verb::Get) if PARTS.contains(&name) => verbs::get::get(context).await,
        (name, Verb::Update) if PARTS.contains(&name) => verbs::update::update(context, body, true).await,
        (name, Verb::Patch) if PARTS.contains(&name) => verbs::patch::patch(context, body, true).await,
        ("binding", Verb::Create) => binding::create(context, body).await,
        ("eviction", Verb::Create) => eviction::create(context, body).await,
        ("log", Verb::Get) => logs::get(context).await,
        ("exec" | "attach", _) => {
            connect::expect_admitted(context, name).await?;
            auth::expect_create_too(context)?;
            streams::connect(context, name)
        }
        ("proxy", _) if matches!(context.resource.plural.as_str(), "pods" | "services" | "nodes") => {
            connect::expect_admitted(context, name).await?;
            proxy::pass_on(context, body).await
        }
        ("portforward", _) => {
            connect::expect_admitted(context, name).await?;
            auth::expect_create_too(context)?;
            forward::connect(context)
        }
        ("scale", _) => verbs::scale::scale(context, body).await,
        ("token", Verb::Create) => token_request::create(context, body).await,
        _ => Err(Refusal::unknown_resource()),
    }
}

/// The fields that a write through a subresource, or without one, can change (2.46). Whoever writes the others does not
/// come to manage them.
pub(crate) fn written(resource: &Resource, subresource: &str) -> Filter {
    let field = |name: &str| Some(PathElement::field(name));
    let is_pod = resource.group.is_empty() && resource.kind == "Pod";
    let is_signing_request =
        resource.group == "certificates.k8s.io" && resource.kind == "CertificateSigningRequest";
    match subresource {
        "ephemeralcontainers" => {
            Filter::Only(Pattern::prefix(&[field("spec"), field("ephemeralContainers")]))
        }
        "resize" => {
            let part =
                |list: &str, part: &str| Pattern::prefix(&[field("spec"), field(list), None, field(part)]);
            let of = |list: &str| part(list, "resources").or(part(list, "resizePolicy"));
            Filter::Only(of("containers").or(of("initContainers")))
        }
        "status" if is_pod => Filter::Except(set(&[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ])),
        "status" if (resource.group.as_str(), resource.kind.as_str()) == ("apps", "Deployment") => {
            Filter::Except(set(&[&["spec"], &["metadata", "labels"]]))
        }
        "status" if is_signing_request => Filter::Except(set(&[&["spec"], &["status", "conditions"]])),
        "approval" if is_signing_request => Filter::Except(set(&[&["spec"], &["status", "certificate"]])),
        // What is requested never changes, and is managed by nobody (as measured).
        _ if is_signing_request => Filter::Except(set(&[&["spec"], &["status"]])),
        // Metadata is written, but managed by nobody (as measured).
        "status" if resource.is_definition() => Filter::Except(set(&[&["spec"], &["metadata"]])),
        "status" if keeps_metadata(resource) => Filter::Except(set(&[&["spec"], &["metadata"]])),
        "status" => Filter::Except(set(&[&["spec"]])),
        _ if resource.subresource("status").is_some() => Filter::Except(set(&[&["status"]])),
        _ => Filter::Except(Set::default()),
    }
}

/// Whether a write to the status cannot change metadata, whatever it says (§9, 2.35).
fn keeps_metadata(resource: &Resource) -> bool {
    // Upstream's strategy for ranges of addresses forgets to say so.
    let is_told = resource.custom.is_none() && resource.kind != "ServiceCIDR";
    is_told && rules::kind::of(&resource.group, &resource.kind).status_keeps_metadata()
}

fn set(paths: &[&[&str]]) -> Set {
    let mut set = Set::default();
    for path in paths {
        let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
        set.insert(&path);
    }
    set
}
