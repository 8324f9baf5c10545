//! What can be asked about who is who and who may what (6.8). Reviews are answered and not stored.

mod access;
mod rules;
mod tokens;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::User;
use crate::answer::{self, Answer};
use crate::apply::Tracked;
use crate::cluster::Context;
use crate::registry::Resource;
use crate::status::Refusal;
use crate::{body, managed, object};

/// Whether a resource is something to be asked rather than stored.
pub(crate) fn is_review(resource: &Resource) -> bool {
    matches!(resource.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a review.
pub(crate) fn create(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let read = body::read(context.resource, &context.head.headers, context.query, bytes)?;
    // Nobody will ever read who managed these fields, but upstream says it.
    let followed = managed::followed(context, None, read.object, false);
    let sent = Tracked { object: followed.body, managers: followed.managers.entries }.into_whole();
    let mut review = match context.resource.plural.as_str() {
        "selfsubjectreviews" => whoami(context.user),
        "tokenreviews" => tokens::review(context, sent)?,
        "selfsubjectrulesreviews" => rules::review(context, &sent)?,
        _ => access::review(context, sent)?,
    };
    review["apiVersion"] = json!(context.resource.api_version());
    review["kind"] = json!(context.resource.kind);
    let mut answer = answer::value(StatusCode::CREATED, &schema::encode(context.resource.of_type(), &review));
    answer::warn(&mut answer, &read.warnings);
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
