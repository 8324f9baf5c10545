//! PATCH of an object or of its status (2.36–2.40).

use http::{StatusCode, header};
use serde_json::Value;

use crate::answer::Answer;
use crate::body::{self, Read};
use crate::cluster::Context;
use crate::patch::json::{Patch, Reading};
use crate::patch::{self, Error};
use crate::status::Refusal;
use crate::verbs::create;
use crate::verbs::update::change;
use crate::{auth, managed, object};

const ACCEPTED: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(crate) const ACCEPTED_CUSTOM: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

pub(crate) async fn patch(context: &Context<'_>, bytes: &[u8], status: bool) -> Result<Answer, Refusal> {
    // Strategic merge needs a Go type, which custom resources have not; the garbage collector relies on hearing so (2.36).
    let accepted: &[&str] = if context.resource.custom.is_some() { &ACCEPTED_CUSTOM } else { &ACCEPTED };
    let patched = match Patching::read(context, accepted, bytes)? {
        Patching::Apply(config) => return apply(context, config, bytes, status).await,
        Patching::Document(patched) => patched,
    };
    let text = String::from_utf8_lossy(bytes);
    change(context, status, |old| {
        let document = patched(old.clone())?;
        let Read { object, warnings } = body::reread(context.resource, context.query, &document, &text)?;
        Ok(Read { object: managed::followed(context, Some(old), &object, status), warnings })
    })
    .await
}

/// What a patch makes of an object.
pub(crate) enum Patching {
    /// A configuration is applied to it.
    Apply(Value),
    /// Its JSON is changed.
    Document(Box<dyn Fn(Value) -> Result<Value, Refusal> + Send + Sync>),
}

impl Patching {
    /// Reads a patch of one of the kinds that are accepted.
    pub(crate) fn read(context: &Context<'_>, accepted: &[&str], bytes: &[u8]) -> Result<Self, Refusal> {
        let content = context.head.headers.get(header::CONTENT_TYPE);
        let content = content.and_then(|value| value.to_str().ok()).unwrap_or("");
        let content = content.split(';').next().unwrap_or("").trim();
        if !accepted.contains(&content) {
            return Err(Refusal::unsupported_media_type(accepted));
        }
        if content == "application/apply-patch+yaml" {
            let config = serde_json::from_slice(bytes)
                .or_else(|_| serde_saphyr::from_slice(bytes))
                .map_err(|why| Refusal::bad_request(format!("error decoding YAML: {why}")))?;
            return Ok(Patching::Apply(config));
        }
        let patch: Value = serde_json::from_slice(bytes)
            .map_err(|why| Refusal::bad_request(format!("error decoding patch: {why}")))?;
        let reading = match context.query.get("fieldValidation") {
            Some("Ignore") => Reading::Lenient,
            _ => Reading::Checked,
        };
        Ok(Patching::Document(match content {
            "application/json-patch+json" => {
                let (operations, _) = Patch::read(patch, reading).map_err(refusal)?;
                Box::new(move |document| operations.apply(document).map_err(refusal))
            }
            "application/merge-patch+json" => {
                Box::new(move |document| patch::merge::apply(document, patch.clone()).map_err(refusal))
            }
            _ => {
                let of = context.resource.of_type();
                Box::new(move |document| {
                    patch::strategic::apply(of, document, patch.clone()).map_err(refusal)
                })
            }
        }))
    }
}

/// Server-side apply: makes the object if it is not there yet (2.41).
async fn apply(context: &Context<'_>, config: Value, bytes: &[u8], status: bool) -> Result<Answer, Refusal> {
    let text = String::from_utf8_lossy(bytes);
    let key = object::key(context.resource, context.namespace(), context.name());
    if !status && context.cluster.store().get(&key).is_none() {
        auth::expect_create(context)?;
        let applied = managed::apply(context, None, config.clone(), status)?;
        let mut read = body::reread(context.resource, context.query, &applied, &text)?;
        read.object["metadata"]["name"] = context.name().into();
        let created = create::attempt(context, &read.object, &read.warnings).await;
        match created {
            // Somebody else was quicker; his object is changed then.
            Err(refusal) if refusal.code() == StatusCode::CONFLICT => {}
            done => return done,
        }
    }
    change(context, status, |old| {
        let applied = managed::apply(context, Some(old), config.clone(), status)?;
        body::reread(context.resource, context.query, &applied, &text)
    })
    .await
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::BadRequest(why) => Refusal::bad_request(why),
        Error::TooLarge(why) => Refusal::too_many_operations(why),
        Error::Unprocessable(_) => Refusal::unprocessable(Error::UNPROCESSABLE),
        Error::Failed(why) => Refusal::unknown(why),
    }
}
