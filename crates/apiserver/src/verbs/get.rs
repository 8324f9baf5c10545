//! GET of one object (2.5): from memory, so always the latest state.

use http::StatusCode;

use crate::answer::Answer;
use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;

pub(crate) async fn get(context: &Context<'_>) -> Result<Answer, Refusal> {
    let key = object::key(context.resource, context.namespace(), context.name());
    let found = context.cluster.store().get(&key).ok_or_else(|| Refusal::not_found(context.about()))?;
    super::stored(context, StatusCode::OK, &found).await
}
