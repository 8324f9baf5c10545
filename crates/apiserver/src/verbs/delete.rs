//! DELETE of one object and of many (2.52–2.58).

use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use rules::kind::policy::is_system_class;
use serde_json::{Value, json};
use store::error::Commit;
use store::{Committed, Key, Object, Store, Write};

use crate::answer::{self, Answer};
use crate::apply::Tracked;
use crate::body::DeleteOptions;
use crate::cluster::Context;
use crate::request::Verb;
use crate::status::{About, Refusal};
use crate::strategy::addresses;
use crate::strategy::traits::{Owned, Traits};
use crate::verbs::list;
use crate::{admission, body, object, verbs};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Namespaces that a cluster cannot do without (2.60).
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
/// The same of its own priority classes, of which one is not deleted by itself. Those of a collection go, as upstream.
const PRIORITY_CLASS: (&str, &str) = ("scheduling.k8s.io", "PriorityClass");

pub(crate) async fn delete(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let options = body::delete_options(&context.head.headers, context.query, bytes)?;
    let warnings = orphan_warnings(context, &options);
    let name = context.name();
    if (context.resource.group.as_str(), context.resource.kind.as_str()) == PRIORITY_CLASS
        && is_system_class(name)
    {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Refusal::forbidden(context.about_name(name), why).warning(&warnings));
    }
    let deleted = delete_in(context, context.namespace(), context.name(), &options).await;
    Ok(warned(deleted.map_err(|refusal| refusal.warning(&warnings))?, &warnings))
}

/// Lists what is selected and deletes one after the other; answers with the list as it was.
pub(crate) async fn delete_collection(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let page = list::Page::read(context).await?;
    let selection = list::Selection::read(context)?;
    let options = body::delete_options(&context.head.headers, context.query, bytes)?;
    let listed = list::listed(context, &selection, &page).await?;
    let answer = listed.answer(context).await?;
    for object in &listed.objects {
        let done = delete_in(context, object.key.namespace(), object.key.name(), &options).await;
        match done {
            Err(refusal) if refusal.code() == StatusCode::NOT_FOUND => {}
            done => drop(done?),
        }
    }
    Ok(warned(answer, &orphan_warnings(context, &options)))
}

/// Deletes an object, or marks it for whoever still has to act on it.
pub(crate) async fn delete_in(
    context: &Context<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<Answer, Refusal> {
    remove(context, namespace, name, options, true).await
}

/// The same for who was admitted already, to something that includes it.
pub(crate) async fn delete_admitted(context: &Context<'_>, options: &DeleteOptions) -> Result<(), Refusal> {
    remove(context, context.namespace(), context.name(), options, false).await.map(drop)
}

async fn remove(
    context: &Context<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
    asks: bool,
) -> Result<Answer, Refusal> {
    let key = object::key(context.resource, namespace, name);
    let store = context.cluster.store();
    // What this has marked to go at once. Whoever sees that may be faster.
    let mut leaving: Option<Arc<Object>> = None;
    loop {
        let Some(current) = store.get(&key) else {
            let last = leaving.ok_or_else(|| verbs::absent(context, name))?;
            return gone(context, StatusCode::OK, &last).await;
        };
        let tracked = context.read_tracked(&current).await?;
        let Tracked { object: old, managers } = &tracked;
        expect_preconditions(context, name, options, old)?;
        let Some(step) = next_step(context, options, old, Timestamp::now()) else {
            // Nobody has a say in what changes nothing.
            let code = if context.resource.is_namespace() { options.code_if_held() } else { StatusCode::OK };
            return gone(context, code, &current).await;
        };
        if context.resource.is_namespace() && IMMORTAL.contains(&name) {
            return Err(Refusal::forbidden(context.about_name(name), "this namespace may not be deleted"));
        }
        let mut warnings = Vec::new();
        if asks {
            admission::deleted(context, &tracked, options, &mut warnings).await?;
        }
        let (write, then_removes) = match &step {
            Step::Mark(new) | Step::MarkAndRemove(new) if options.dry_run => {
                let code =
                    if matches!(step, Step::Mark(_)) { options.code_if_held() } else { StatusCode::OK };
                return Ok(warned(verbs::unstored(code, new, managers), &warnings));
            }
            Step::Remove if options.dry_run => {
                return Ok(warned(gone(context, StatusCode::OK, &current).await?, &warnings));
            }
            Step::Mark(new) => (Write::put(key.clone(), context.draft(new, managers).await?), false),
            Step::MarkAndRemove(new) => (Write::put(key.clone(), context.draft(new, managers).await?), true),
            Step::Remove => (Write::delete(key.clone()), false),
        };
        let is_marked = matches!(step, Step::Mark(_));
        if let Step::Mark(new) = &step
            && verbs::update::same(new, old)
        {
            let answer = verbs::stored(context, options.code_if_held(), &current).await?;
            return Ok(warned(answer, &warnings));
        }
        let write = write.if_revision(current.revision);
        let done = if then_removes {
            mark_and_remove(store.clone(), key.clone(), write).await.and_then(|(marked, removed)| {
                leaving = Some(marked.object);
                removed
            })
        } else {
            store.commit(write).await
        };
        let done = match done {
            Ok(done) => done,
            Err(Commit::Conflict { .. }) => continue,
            // Whoever came between the two found an object that is to go at once, and took it away.
            Err(Commit::Absent { .. }) if leaving.is_some() => continue,
            Err(error) => return Err(verbs::not_committed(context, name, error)),
        };
        let answer = if is_marked {
            verbs::stored(context, options.code_if_held(), &done.object).await?
        } else {
            addresses::give_back_of(context, old, None).await;
            gone(context, StatusCode::OK, &done.object).await?
        };
        return Ok(warned(answer, &warnings));
    }
}

/// Marks an object that is to go at once, and removes it, also when nobody waits for the answer any more: whoever sees it
/// marked counts on that.
async fn mark_and_remove(
    store: Store,
    key: Key,
    mark: Write,
) -> Result<(Committed, Result<Committed, Commit>), Commit> {
    let both = tokio::spawn(async move {
        let marked = store.commit(mark).await?;
        let removed = store.commit(Write::delete(key).if_revision(marked.revision())).await;
        Ok((marked, removed))
    });
    both.await.expect("two writes do not panic, and nobody ends them")
}

fn warned(mut answer: Answer, warnings: &[String]) -> Answer {
    answer::warn(&mut answer, warnings);
    answer
}

/// The object must still be the one that the client means (2.53).
pub(crate) fn expect_preconditions(
    context: &Context<'_>,
    name: &str,
    options: &DeleteOptions,
    old: &Value,
) -> Result<(), Refusal> {
    let wanted = |field: &str| options.value["preconditions"][field].as_str();
    let (uid, version) =
        (object::text(old, &["metadata", "uid"]), object::text(old, &["metadata", "resourceVersion"]));
    let is_one = context.target.verb != Verb::DeleteCollection;
    if is_one && Traits::of(context.resource).judges_preconditions {
        for (word, field, found) in [("UID", "uid", uid), ("ResourceVersion", "resourceVersion", version)] {
            if let Some(wanted) = wanted(field).filter(|wanted| *wanted != found) {
                let why = format!(
                    "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {found}"
                );
                return Err(Refusal::conflict(context.about_name(name), &why));
            }
        }
        return Ok(());
    }
    // Upstream names the kind here, where it names the resource elsewhere.
    let about = About { group: &context.resource.group, resource: &context.resource.kind, name };
    if let Some(wanted) = wanted("uid").filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        );
        return Err(Refusal::conflict(about, &why));
    }
    if let Some(wanted) = wanted("resourceVersion").filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        );
        return Err(Refusal::conflict(about, &why));
    }
    Ok(())
}

/// What a DELETE does to an object.
enum Step {
    /// It is marked, and stays until whoever holds it lets go.
    Mark(Value),
    /// It is marked for those who watch it, and goes.
    MarkAndRemove(Value),
    /// It goes.
    Remove,
}

/// `None` if an object is already on its way, and this does not make it faster.
fn next_step(context: &Context<'_>, options: &DeleteOptions, old: &Value, now: Timestamp) -> Option<Step> {
    let traits = Traits::of(context.resource);
    let is_marked = !old["metadata"]["deletionTimestamp"].is_null();
    // Namespaces and definitions are marked once; the rest is up to whoever empties them.
    if !is_marked && let Some(mut new) = context.strategy.leaving(old, now) {
        if context.resource.is_namespace() {
            set_finalizers(&mut new, finalizers(context, options, old));
        }
        return Some(Step::Mark(new));
    }
    if is_unemptied(context, old) {
        return None;
    }
    let finalizers = finalizers(context, options, old);
    let is_held = !finalizers.is_empty();
    if !is_held && !traits.is_graceful {
        return Some(Step::Remove);
    }
    let mut new = old.clone();
    let mut grace = None;
    if traits.is_graceful {
        // Whoever asked before may have asked for less time, but not for more.
        grace = begin_grace(options, &mut new, now)?;
    }
    set_finalizers(&mut new, finalizers);
    Some(match grace {
        // The object said how long it takes, and its watchers hear of it even if that is no time at all.
        Some(seconds) if is_held || seconds > 0 => Step::Mark(new),
        Some(_) => Step::MarkAndRemove(new),
        None if is_held => {
            mark(&mut new, now);
            Step::Mark(new)
        }
        None => Step::Remove,
    })
}

/// A time so many seconds later, or the last that there is.
fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// What a second DELETE may change: `None` nothing, and otherwise how long the object may still take, if it has begun to
/// leave with this or an earlier request.
#[expect(clippy::option_option, reason = "nothing to do, no grace and some grace are three things")]
fn begin_grace(options: &DeleteOptions, new: &mut Value, now: Timestamp) -> Option<Option<i64>> {
    let asked = options.grace.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if new["metadata"]["deletionTimestamp"].is_null() {
        let seconds = grace(new, asked);
        let at = later(now, seconds);
        bump(new);
        new["metadata"]["deletionTimestamp"] = json!(object::time(at));
        new["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        return Some(Some(seconds));
    }
    let before = new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if before == 0 {
        return Some(None);
    }
    let mut seconds = asked.filter(|asked| *asked < before)?;
    let marked: Option<Timestamp> =
        new["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
    let mut at = marked.map_or(now, |marked| later(marked, seconds.saturating_sub(before)));
    if at < now {
        at = now;
        seconds = seconds.min(1);
    }
    new["metadata"]["deletionTimestamp"] = json!(object::time(at));
    new["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
    Some(Some(seconds))
}

/// How long a pod may take to end.
fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let has_ended = matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    if has_ended || object::text(pod, &["spec", "nodeName"]).is_empty() {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let seconds = asked.unwrap_or(own);
    if seconds < 0 { 1 } else { seconds }
}

/// Marks an object that takes no time, but is held.
fn mark(new: &mut Value, now: Timestamp) {
    let marked =
        new["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    if marked.is_none() {
        bump(new);
    }
    if marked.is_none_or(|marked| marked > now) {
        new["metadata"]["deletionTimestamp"] = json!(object::time(now));
    }
    new["metadata"]["deletionGracePeriodSeconds"] = json!(0);
}

fn bump(new: &mut Value) {
    if let Some(generation) = new["metadata"]["generation"].as_i64().filter(|generation| *generation > 0) {
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

/// The finalizers that an object leaves with: the garbage collector's follow what the client says, or those that are
/// there, or the kind (2.54).
fn finalizers(context: &Context<'_>, options: &DeleteOptions, old: &Value) -> Vec<Value> {
    let owned = Traits::of(context.resource).owned;
    let own = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| own.contains(&json!(name));
    let wanted = match (options.policy.as_deref(), options.orphan) {
        _ if owned == Owned::Ignored => None,
        (_, Some(true)) | (Some("Orphan"), _) => Some(ORPHAN),
        // Of a namespace whose dependents are not to stay it is said that they go first.
        (_, Some(false)) => context.resource.is_namespace().then_some(FOREGROUND),
        (Some("Foreground"), _) => Some(FOREGROUND),
        (Some(_), _) => None,
        _ if has(ORPHAN) => Some(ORPHAN),
        _ if has(FOREGROUND) => Some(FOREGROUND),
        _ if owned == Owned::Orphaned => Some(ORPHAN),
        _ => None,
    };
    if wanted.is_some_and(has) && !(has(ORPHAN) && has(FOREGROUND)) {
        return own;
    }
    let others = own.into_iter().filter(|name| *name != json!(ORPHAN) && *name != json!(FOREGROUND));
    others.chain(wanted.map(|name| json!(name))).collect()
}

fn set_finalizers(new: &mut Value, finalizers: Vec<Value>) {
    if finalizers.is_empty() {
        new["metadata"].as_object_mut().map(|meta| meta.remove("finalizers"));
    } else {
        new["metadata"]["finalizers"] = json!(finalizers);
    }
}

/// Whether a namespace still has something in it that somebody has to take care of.
fn is_unemptied(context: &Context<'_>, object: &Value) -> bool {
    context.resource.is_namespace()
        && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

/// Whether a change lets go of an object that was only waiting for it (2.55).
pub(crate) fn is_let_go(context: &Context<'_>, new: &Value, old: &Value) -> bool {
    let is_marked = !old["metadata"]["deletionTimestamp"].is_null();
    let is_held = new["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
    let has_time = old["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 0);
    // Whoever finalizes a namespace has the last word on it (2.60, as measured).
    let is_finalized =
        context.target.subresource.as_deref() == Some("finalize") && !is_unemptied(context, new);
    is_marked && (is_finalized || !is_held && !has_time && !is_unemptied(context, new))
}

/// What is told of an object that is gone.
async fn gone(context: &Context<'_>, code: StatusCode, last: &Arc<Object>) -> Result<Answer, Refusal> {
    if Traits::of(context.resource).answers_deleted {
        return verbs::stored(context, code, last).await;
    }
    let (name, uid) = (last.key.name(), &*last.index.token);
    let mut details = json!({"name": name, "kind": context.resource.plural, "uid": uid});
    if !context.resource.group.is_empty() {
        details["group"] = json!(context.resource.group);
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Ok(answer::value(code, &status))
}

/// W-05: pods of a deleted Job stay unless the client says otherwise.
fn orphan_warnings(context: &Context<'_>, options: &DeleteOptions) -> Vec<String> {
    let is_said = options.policy.is_some() || options.orphan.is_some();
    let warning = Traits::of(context.resource).orphan_warning.filter(|_| !is_said);
    warning.map(str::to_owned).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Method, Request};
    use http_body_util::BodyExt as _;
    use rules::job::Settings;
    use store::{Options, Scope};

    use super::*;
    use crate::Cluster;

    #[tokio::test]
    async fn r2_56_what_is_marked_to_go_at_once_goes_although_nobody_waits() {
        let store = Store::open(Options::ephemeral()).expect("a store");
        let cluster = Cluster::open(store.clone(), Settings::default()).await.expect("a cluster");
        let pods = "/api/v1/namespaces/default/pods";
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let request = Request::builder().method(Method::POST).uri(pods).body(Bytes::from(pod.to_string()));
        let created = cluster.answer(request.expect("a request")).await;
        assert_eq!(created.status(), StatusCode::CREATED, "{:?}", created.into_body().collect().await);

        let (_, mut changes) = store.view_and_watch(&Scope::resource("pods"));
        let request = Request::delete(format!("{pods}/p")).body(Bytes::new()).expect("a request");
        let marked = tokio::select! {
            biased;
            marked = changes.next() => marked,
            _ = cluster.answer(request) => panic!("it is answered before anybody hears of it"),
        };
        assert!(matches!(marked, Some(Ok(_))), "{marked:?}");
        // Whoever asked is gone; the removal is told all the same.
        let gone = tokio::time::timeout(Duration::from_secs(30), changes.next()).await;
        assert!(matches!(gone, Ok(Some(Ok(_)))), "{gone:?}");
        assert!(store.get(&Key::new("pods", "default", "p")).is_none());
    }
}
