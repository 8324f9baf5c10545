//! GET of one object (2.5): from memory, so always the latest state, and never one older than the client has seen.

use http::StatusCode;

use crate::answer::Answer;
use crate::cluster::Context;
use crate::status::Refusal;
use crate::{object, options};

pub(crate) async fn get(context: &Context<'_>) -> Result<Answer, Refusal> {
    expect_no_export(context)?;
    super::expect_segment(context.name())?;
    let asked = context.query.get("resourceVersion").filter(|text| !text.is_empty());
    if let Some(text) = asked {
        // Events are not read from a cache, and what reads them has other words.
        let is_event = context.resource.is_event();
        let revision = options::revision(text).map_err(|why| {
            if is_event {
                Refusal::bad_request(format!("invalid resource version: {why}"))
            } else {
                Refusal::unknown(why)
            }
        })?;
        super::list::wait_for(context, revision).await?;
    }
    let key = object::key(context.resource, context.namespace(), context.name());
    let found = context.cluster.store().get(&key).ok_or_else(|| Refusal::not_found(context.about()))?;
    super::stored(context, StatusCode::OK, &found).await
}

/// Nobody gets an object without what its cluster added, as old clients ask for (2.5).
pub(crate) fn expect_no_export(context: &Context<'_>) -> Result<(), Refusal> {
    if !context.query.is_on("export") {
        return Ok(());
    }
    let why = "the export parameter, deprecated since v1.14, is no longer supported";
    Err(Refusal::bad_request(why))
}
