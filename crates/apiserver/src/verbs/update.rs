//! PUT of an object or of its status (2.31–2.35).

use http::StatusCode;
use serde_json::Value;
use store::Write;

use crate::admission::{self, Operation};
use crate::answer::{self, Answer};
use crate::body::Read;
use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;
use crate::strategy::addresses;
use crate::verbs::delete::is_held;
use crate::{body, managed, verbs};

/// Kinds whose updates must say which version they change (2.32).
const CONDITIONAL: [&str; 9] = [
    "customresourcedefinitions",
    "leases",
    "runtimeclasses",
    "poddisruptionbudgets",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "volumeattachments",
    "csidrivers",
    "csinodes",
];

pub(crate) async fn update(context: &Context<'_>, bytes: &[u8], status: bool) -> Result<Answer, Refusal> {
    let body = body::read(context.resource, &context.head.headers, context.query, bytes)?;
    let wanted_version = object::text(&body.object, &["metadata", "resourceVersion"]);
    let is_conditional =
        context.resource.custom.is_some() || CONDITIONAL.contains(&context.resource.plural.as_str());
    let lacks_version = wanted_version.is_empty() && is_conditional;
    change(context, status, |old| {
        if lacks_version {
            let path = rules::field::Path::new("metadata").child("resourceVersion");
            let error = path.invalid(0, "must be specified for an update");
            return Err(Refusal::invalid(context.about(), &vec![error]));
        }
        let object = managed::followed(context, Some(old), &body.object, status);
        Ok(Read { object, warnings: body.warnings.clone() })
    })
    .await
}

/// Replaces the stored object by what `make` makes of it, as often as somebody else comes between. Whoever says which
/// version he changes wants to know when it is another one; everybody else wants the change.
pub(crate) async fn change(
    context: &Context<'_>,
    status: bool,
    make: impl Fn(&Value) -> Result<Read, Refusal>,
) -> Result<Answer, Refusal> {
    let name = context.name();
    let key = object::key(context.resource, context.namespace(), name);
    loop {
        let current = context.cluster.store().get(&key).ok_or_else(|| Refusal::not_found(context.about()))?;
        let old = context.read(&current).await?;
        let Read { object: wanted, mut warnings } = make(&old)?;
        let wanted =
            admission::mutated(context, Operation::Update, &wanted, Some(&old), &mut warnings).await?;
        let (wanted, taken) = addresses::given(context, wanted, Some(&old)).await?;
        let accepted = match context.target.subresource.as_deref().filter(|_| status) {
            Some(subresource) => context.strategy.update_subresource(subresource, &wanted, &old),
            None => context.strategy.update(&wanted, &old),
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(refused) => {
                addresses::give_back(context, taken).await;
                return Err(verbs::refused(context, &wanted, name, refused));
            }
        };
        warnings.extend(accepted.warnings);
        admission::validated(context, Operation::Update, &accepted.object, Some(&old), &mut warnings).await?;
        let mut answer = if same(&accepted.object, &old) {
            verbs::stored(context, StatusCode::OK, &current).await?
        } else if context.is_dry_run() {
            verbs::unstored(StatusCode::OK, &accepted.object)
        } else {
            let write = settle(context, &key, &accepted.object).await?.if_revision(current.revision);
            match context.cluster.store().commit(write).await {
                // Whoever takes off the last finalizer sees the object without it, which was never stored (2.55).
                Ok(_) if is_over(context, &accepted.object) => {
                    addresses::give_back_of(context, &old, None).await;
                    verbs::unstored(StatusCode::OK, &accepted.object)
                }
                Ok(done) => {
                    addresses::give_back_of(context, &old, Some(&accepted.object)).await;
                    verbs::stored(context, StatusCode::OK, &done.object).await?
                }
                Err(store::error::Commit::Conflict { .. }) => {
                    addresses::give_back(context, taken).await;
                    continue; // made again, it says whether that is one
                }
                Err(error) => return Err(verbs::not_committed(context, name, error)),
            }
        };
        answer::warn(&mut answer, &warnings);
        return Ok(answer);
    }
}

/// A write that changes nothing is none (2.3).
pub(crate) fn same(new: &Value, old: &Value) -> bool {
    let content = |object: &Value| {
        let mut object = object.clone();
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        object
    };
    content(new) == content(old)
}

/// Whether an object was only kept by what it has lost now.
fn is_over(context: &Context<'_>, object: &Value) -> bool {
    // Whoever finalizes a namespace has the last word on it (2.60, as measured).
    let is_finalized = context.target.subresource.as_deref() == Some("finalize")
        && object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    !object["metadata"]["deletionTimestamp"].is_null() && (is_finalized || !is_held(context, object))
}

/// The write of a changed object: its removal, if it was only kept by its last finalizer (2.55).
pub(crate) async fn settle(
    context: &Context<'_>,
    key: &store::Key,
    object: &Value,
) -> Result<Write, Refusal> {
    if is_over(context, object) {
        return Ok(Write::delete(key.clone()));
    }
    Ok(Write::put(key.clone(), context.draft(object).await?))
}
