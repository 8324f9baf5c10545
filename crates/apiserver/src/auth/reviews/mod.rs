//! What can be asked about who is who and who may what (6.8). Reviews are answered and not stored.

mod access;
mod rules;
mod tokens;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::User;
use crate::admission::{self, Operation, Sent};
use crate::answer::{self, Answer};
use crate::apply::Tracked;
use crate::cluster::Context;
use crate::managed::Followed;
use crate::registry::Resource;
use crate::status::Refusal;
use crate::{body, managed, object};

/// Whether a resource is something to be asked rather than stored.
pub(crate) fn is_review(resource: &Resource) -> bool {
    matches!(resource.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review. Others have a say in it as in everything that is made, but for policies, which could lock everybody out.
pub(crate) async fn create(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let read = body::read(context.resource, &context.head.headers, context.query, bytes)?;
    let mut warnings = read.warnings;
    // Nobody will ever read who managed these fields, but upstream says it.
    let Followed { body, canonical, managers } = managed::followed(context, None, read.object, false);
    let sent = Sent { body: &body, canonical: canonical.as_ref(), managers: &managers, old: None };
    let (body, managers) = admission::mutated(context, Operation::Create, sent, &mut warnings).await?;
    let sent = Tracked { object: body.into_owned(), managers: managers.entries.clone() };
    let review = sent.clone().into_whole();
    let plural = context.resource.plural.as_str();
    let review = match plural {
        "selfsubjectreviews" => review,
        "tokenreviews" => tokens::accepted(review)?,
        "selfsubjectrulesreviews" => rules::accepted(review)?,
        _ => access::accepted(context, review)?,
    };
    let shown = context.canonical(&sent.object, None).unwrap_or_else(|| sent.object.clone());
    let shown = Tracked { object: shown, managers: sent.managers };
    admission::validated(context, Operation::Create, shown, None, &mut warnings)
        .await
        .map_err(|refusal| refusal.warning(&warnings))?;
    let mut review = match plural {
        "selfsubjectreviews" => whoami(context.user),
        "tokenreviews" => tokens::answered(context, review),
        "selfsubjectrulesreviews" => rules::answered(context, &review),
        _ => access::answered(context, review),
    };
    review["apiVersion"] = json!(context.resource.api_version());
    review["kind"] = json!(context.resource.kind);
    let mut answer = answer::value(StatusCode::CREATED, &schema::encode(context.resource.of_type(), &review));
    answer::warn(&mut answer, &warnings);
    Ok(answer)
}

fn whoami(user: &User) -> Value {
    let now = object::time(jiff::Timestamp::now());
    json!({"metadata": {"creationTimestamp": now}, "status": {"userInfo": user_info(user)}})
}

/// A user as reviews and webhooks show one.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Map::from_iter([("username".to_owned(), json!(user.name))]);
    if !user.uid.is_empty() {
        info.insert("uid".to_owned(), json!(user.uid));
    }
    if !user.groups.is_empty() {
        info.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".to_owned(), json!(user.extra));
    }
    Value::Object(info)
}
