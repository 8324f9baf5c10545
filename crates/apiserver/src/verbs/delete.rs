//! DELETE of one object and of many (2.52–2.58).

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{At, Write};

use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::status::Refusal;
use crate::strategy::addresses;
use crate::verbs::list::{Selection, list_bytes};
use crate::{admission, body, crd, object, verbs};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(crate) async fn delete(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let options = body::delete_options(&context.head.headers, context.query, bytes)?;
    let mut answer = delete_named(context, context.name(), &options).await?;
    warn_of_orphans(context, &options, &mut answer);
    Ok(answer)
}

/// Lists what is selected and deletes one after the other; answers with the list as it was.
pub(crate) async fn delete_collection(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let options = body::delete_options(&context.head.headers, context.query, bytes)?;
    let selection = Selection::read(context)?;
    let scope = selection.scope(context);
    let view =
        context.cluster.store().view_at(At::Latest).map_err(|why| Refusal::internal(why.to_string()))?;
    let selected: Vec<_> = view.list(&scope).filter(|object| selection.matches(object)).cloned().collect();
    let answer = list_bytes(context, view.revision(), &selected, None, None).await?;
    for object in &selected {
        let done = delete_in(context, object.key.namespace(), object.key.name(), &options).await;
        match done {
            Err(refusal) if refusal.code() == StatusCode::NOT_FOUND => {}
            done => drop(done?),
        }
    }
    let mut answer = answer::json(StatusCode::OK, answer);
    warn_of_orphans(context, &options, &mut answer);
    Ok(answer)
}

async fn delete_named(context: &Context<'_>, name: &str, options: &Value) -> Result<Answer, Refusal> {
    delete_in(context, context.namespace(), name, options).await
}

pub(crate) async fn delete_in(
    context: &Context<'_>,
    namespace: &str,
    name: &str,
    options: &Value,
) -> Result<Answer, Refusal> {
    let key = object::key(context.resource, namespace, name);
    loop {
        let current =
            context.cluster.store().get(&key).ok_or_else(|| Refusal::not_found(context.about_name(name)))?;
        let old = object::read(&current);
        expect_preconditions(context, name, options, &old)?;
        let mut warnings = Vec::new();
        admission::deleted(context, &old, options, &mut warnings).await?;
        let new = leaving(context, options, &old, Timestamp::now());
        let is_held = is_held(context, &new);
        if context.is_dry_run() {
            let answer = if is_held { verbs::unstored(StatusCode::OK, &new) } else { gone(context, &old) };
            return Ok(warned(answer, &warnings));
        }
        if is_held && verbs::update::same(&new, &old) {
            return verbs::stored(context, StatusCode::OK, &current).await;
        }
        let write = if is_held {
            Write::put(key.clone(), context.draft(&new).await?)
        } else {
            Write::delete(key.clone())
        };
        match context.cluster.store().commit(write.if_revision(current.revision)).await {
            Ok(done) if is_held => {
                let answer = verbs::stored(context, StatusCode::OK, &done.object).await?;
                return Ok(warned(answer, &warnings));
            }
            Ok(_) => {
                addresses::give_back_of(context, &old, None).await;
                return Ok(warned(gone(context, &old), &warnings));
            }
            Err(store::error::Commit::Conflict { .. }) => {}
            Err(error) => return Err(verbs::not_committed(context, name, error)),
        }
    }
}

fn warned(mut answer: Answer, warnings: &[String]) -> Answer {
    answer::warn(&mut answer, warnings);
    answer
}

pub(crate) fn expect_preconditions(
    context: &Context<'_>,
    name: &str,
    options: &Value,
    old: &Value,
) -> Result<(), Refusal> {
    let wanted = |field: &str| options["preconditions"][field].as_str();
    let (uid, version) =
        (object::text(old, &["metadata", "uid"]), object::text(old, &["metadata", "resourceVersion"]));
    if let Some(wanted) = wanted("uid").filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(Refusal::conflict(context.about_name(name), &why));
    }
    if let Some(wanted) = wanted("resourceVersion").filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        );
        return Err(Refusal::conflict(context.about_name(name), &why));
    }
    Ok(())
}

/// What becomes of the objects that this one owns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// Said by the client, or by finalizers that are there, or by the kind (2.54).
fn propagation(context: &Context<'_>, options: &Value, old: &Value) -> Propagation {
    let has =
        |name: &str| old["metadata"]["finalizers"].as_array().is_some_and(|list| list.contains(&json!(name)));
    match (options["propagationPolicy"].as_str(), options["orphanDependents"].as_bool()) {
        (Some("Orphan"), _) | (_, Some(true)) => Propagation::Orphan,
        (Some("Foreground"), _) => Propagation::Foreground,
        (Some(_), _) | (_, Some(false)) => Propagation::Background,
        _ if has(ORPHAN) => Propagation::Orphan,
        _ if has(FOREGROUND) => Propagation::Foreground,
        _ if orphans_by_default(context) => Propagation::Orphan,
        _ => Propagation::Background,
    }
}

fn orphans_by_default(context: &Context<'_>) -> bool {
    let resource = (context.resource.group.as_str(), context.resource.plural.as_str());
    matches!(resource, ("batch", "jobs") | ("", "replicationcontrollers"))
}

/// The object as it is on its way out: with a time, a grace period, and whoever still has to act on it (2.55, 2.56).
fn leaving(context: &Context<'_>, options: &Value, old: &Value, now: Timestamp) -> Value {
    if context.resource.plural == "customresourcedefinitions" {
        return crd::definition::leaving(old, now);
    }
    let mut new = old.clone();
    let finalizers = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let wanted = match propagation(context, options, old) {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let others = finalizers.into_iter().filter(|name| *name != json!(ORPHAN) && *name != json!(FOREGROUND));
    let finalizers: Vec<Value> = others.chain(wanted.map(|name| json!(name))).collect();
    if finalizers.is_empty() {
        new["metadata"].as_object_mut().map(|meta| meta.remove("finalizers"));
    } else {
        new["metadata"]["finalizers"] = json!(finalizers);
    }
    let grace = grace(context, options, old);
    let before = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if old["metadata"]["deletionTimestamp"].is_null() || before.is_some_and(|before| grace < before) {
        let at = now + jiff::SignedDuration::from_secs(grace);
        new["metadata"]["deletionTimestamp"] = json!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        if context.resource.plural == "namespaces" {
            new["status"]["phase"] = json!("Terminating");
        } else {
            new["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
        if let (Some(generation), true) =
            (old["metadata"]["generation"].as_i64(), old["metadata"]["deletionTimestamp"].is_null())
        {
            new["metadata"]["generation"] = json!(generation + 1);
        }
    }
    new
}

/// How long a pod may take to end; nothing else takes any time.
fn grace(context: &Context<'_>, options: &Value, old: &Value) -> i64 {
    if context.resource.plural != "pods" {
        return 0;
    }
    let ended = matches!(object::text(old, &["status", "phase"]), "Succeeded" | "Failed");
    if ended || object::text(old, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    let seconds = options["gracePeriodSeconds"].as_i64().unwrap_or(own);
    if seconds < 0 { 1 } else { seconds }
}

/// Whether somebody still has to act before the object may go: a finalizer, or the time a pod has to end.
pub(crate) fn is_held(context: &Context<'_>, object: &Value) -> bool {
    let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    some(&object["metadata"]["finalizers"])
        || context.resource.plural == "namespaces" && some(&object["spec"]["finalizers"])
        || object["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 0)
}

/// Kinds that answer with the object that is gone (2.57).
const ANSWER_WITH_OBJECT: [&str; 6] =
    ["pods", "services", "serviceaccounts", "podtemplates", "resourcequotas", "namespaces"];

fn gone(context: &Context<'_>, old: &Value) -> Answer {
    if context.resource.group.is_empty() && ANSWER_WITH_OBJECT.contains(&context.resource.plural.as_str()) {
        return answer::value(StatusCode::OK, old);
    }
    let meta = &old["metadata"];
    let mut details = json!({"name": meta["name"], "kind": context.resource.plural, "uid": meta["uid"]});
    if !context.resource.group.is_empty() {
        details["group"] = json!(context.resource.group);
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    answer::value(StatusCode::OK, &status)
}

/// W-05: pods of a deleted Job stay unless the client says otherwise.
fn warn_of_orphans(context: &Context<'_>, options: &Value, answer: &mut Answer) {
    let said = !options["propagationPolicy"].is_null() || !options["orphanDependents"].is_null();
    if (context.resource.group.as_str(), context.resource.plural.as_str()) == ("batch", "jobs") && !said {
        answer::warn(answer, &[rules::job::warnings::PODS_ARE_PRESERVED.to_owned()]);
    }
}
