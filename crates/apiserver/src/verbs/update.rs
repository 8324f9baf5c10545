//! PUT of an object or of its status (2.31–2.35).

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value};
use store::{Object, Write};

use crate::admission::{self, Operation, Sent};
use crate::answer::{self, Answer};
use crate::apply::{Tracked, remove_managed_fields};
use crate::body::Read;
use crate::cluster::Context;
use crate::managed::{Followed, Managers};
use crate::object;
use crate::status::Refusal;
use crate::strategy::traits::Traits;
use crate::strategy::{addresses, admin_access, certificates};
use crate::verbs::delete::is_let_go;
use crate::{auth, body, managed, options, verbs};

pub(crate) async fn update(context: &Context<'_>, bytes: &[u8], status: bool) -> Result<Answer, Refusal> {
    let traits = Traits::of(context.resource);
    let mut body = body::read(context.resource, &context.head.headers, context.query, bytes)?;
    body.warnings.extend(verbs::without_repeated_owners(&mut body.object, ""));
    verbs::expect_namespace(context, &body.object)
        .and_then(|()| verbs::expect_name(context, &body.object))
        .map_err(|refusal| refusal.or_warning(&body.warnings))?;
    let version = match object::text(&body.object, &["metadata", "resourceVersion"]) {
        "" => 0,
        text => options::number(text).map_err(Refusal::unknown)?,
    };
    if traits.creates_on_update && !status {
        let key = object::key(context.resource, context.namespace(), context.name());
        if context.cluster.store().get(&key).is_none() {
            verbs::expect_segment(context.name())?;
            match create(context, &body).await {
                // Another client was quicker; its object is changed then.
                Err(refusal) if refusal.is_already_exists() => {}
                done => return done,
            }
        }
    }
    change(context, status, |old| {
        expect_uid(context, &body.object, &old.object)?;
        if version == 0 && traits.needs_version {
            let path = rules::field::Path::new("metadata").child("resourceVersion");
            let error = path.invalid(0, "must be specified for an update");
            return Err(Refusal::invalid(context.about(), &vec![error]));
        }
        let followed = managed::followed(context, Some(old), body.object.clone(), status);
        Ok(Wanted::of(followed, body.warnings.clone()))
    })
    .await
    .map_err(|refusal| refusal.or_warning(&body.warnings))
}

/// A PUT of an object that is not there makes it, for kinds that allow that (2.33).
async fn create(context: &Context<'_>, body: &Read) -> Result<Answer, Refusal> {
    expect_uid(context, &body.object, &Value::Null)?;
    auth::expect_create(context)?;
    let mut followed = managed::followed(context, None, body.object.clone(), false);
    for object in [Some(&mut followed.body), followed.canonical.as_mut()].into_iter().flatten() {
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
    }
    verbs::create::expect_place(context, context.name())?;
    verbs::create::attempt(context, &followed, &body.warnings).await
}

/// A client that says which object it means gets no other.
pub(crate) fn expect_uid(context: &Context<'_>, new: &Value, old: &Value) -> Result<(), Refusal> {
    let (wanted, uid) = (object::text(new, &["metadata", "uid"]), object::text(old, &["metadata", "uid"]));
    if wanted.is_empty() || wanted == uid {
        return Ok(());
    }
    Err(precondition_failed(context, &format!("UID in precondition: {wanted}, UID in object meta: {uid}")))
}

/// What is said where the stored object is not the one that was meant. A dry run does not get as far as the storage, and
/// does not know where it keeps things.
pub(crate) fn precondition_failed(context: &Context<'_>, what: &str) -> Refusal {
    let path = object::registry_path(context.resource, context.namespace(), context.name());
    let key = path.strip_prefix("/registry").filter(|_| context.is_dry_run()).unwrap_or(&path);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         {what}"
    );
    Refusal::conflict(context.about(), &why)
}

/// What is to become of an object.
pub(crate) struct Wanted {
    /// As it was sent, but for its managers.
    pub(crate) object: Value,
    pub(crate) managers: Managers,
    pub(crate) warnings: Vec<String>,
}

impl Wanted {
    /// What was sent.
    pub(crate) fn of(followed: Followed, warnings: Vec<String>) -> Self {
        Wanted { object: followed.body, managers: followed.managers, warnings }
    }

    /// What was worked out.
    pub(crate) fn applied(Tracked { object, managers: entries }: Tracked, warnings: Vec<String>) -> Self {
        Wanted { object, managers: Managers { entries, are_given: false }, warnings }
    }
}

/// Replaces the stored object by what `make` makes of it, as often as somebody else comes between. A client
/// that names a version wants to know when it is another one; all others want the change.
pub(crate) async fn change(
    context: &Context<'_>,
    status: bool,
    make: impl Fn(&Tracked) -> Result<Wanted, Refusal>,
) -> Result<Answer, Refusal> {
    let key = object::key(context.resource, context.namespace(), context.name());
    loop {
        let current =
            context.cluster.store().get(&key).ok_or_else(|| verbs::absent(context, context.name()))?;
        let old = context.read_tracked(&current).await?;
        let Wanted { object: wanted, managers, mut warnings } = make(&old)?;
        let version = object::text(&wanted, &["metadata", "resourceVersion"]);
        if !version.is_empty() {
            options::number(version).map_err(Refusal::unknown)?;
        }
        let sent = Sent { body: &wanted, canonical: None, managers: &managers, old: Some(&old) };
        let (mutated, managers) = admission::mutated(context, Operation::Update, sent, &mut warnings).await?;
        let managers = managers.into_owned();
        let mut wanted = match mutated {
            Cow::Owned(mutated) => mutated,
            Cow::Borrowed(_) => wanted,
        };
        if verbs::repeats_owners(&wanted) {
            let when = " after mutating admission happens";
            warnings.extend(verbs::without_repeated_owners(&mut wanted, when));
        }
        let wanted = certificates::told(context, Cow::Owned(wanted), Some(&old.object));
        let (wanted, taken) = addresses::given(context, wanted, Some(&old.object)).await?;
        let wanted = Wanted { object: wanted.into_owned(), managers, warnings };
        let stored = store(context, &current, wanted, &old, status).await;
        if !matches!(stored, Ok(Some(_))) {
            addresses::give_back(context, taken).await;
        }
        if let Some(answer) = stored? {
            return Ok(answer);
        }
        // Made again, it says whether that is a conflict.
    }
}

/// Judges a change and stores it. `None` if somebody else has changed the object since it was read.
async fn store(
    context: &Context<'_>,
    current: &Arc<Object>,
    wanted: Wanted,
    tracked: &Tracked,
    status: bool,
) -> Result<Option<Answer>, Refusal> {
    let (name, key) = (context.name(), object::key(context.resource, context.namespace(), context.name()));
    let Wanted { object: wanted, managers, mut warnings } = wanted;
    let Tracked { object: old, managers: managers_before } = tracked;
    let sent = managers.judged(&wanted);
    let judged = match context.target.subresource.as_deref().filter(|_| status) {
        Some(subresource) => context.strategy.update_subresource(subresource, &sent, old),
        None => context.strategy.update(&sent, old),
    };
    let mut accepted = admin_access::judged(context, &wanted, Some(old), judged)
        .map_err(|refused| verbs::refused(context, &wanted, name, refused).warning(&warnings))?;
    warnings.append(&mut accepted.warnings);
    remove_managed_fields(&mut accepted.object);
    let new = Tracked { object: accepted.object, managers: managers.entries.clone() };
    let mut object = admission::validated(context, Operation::Update, new, Some(tracked), &mut warnings)
        .await
        .map_err(|refusal| refusal.warning(&warnings))?;
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.remove("selfLink");
    }
    let is_let_go = is_let_go(context, &object, old);
    let is_same = same(&object, old);
    // A write that changes nothing but when its manager wrote is none either (2.43): the times stay as they were.
    let keeps_times = is_same && managers.entries.are_same_but_for_times(managers_before);
    let managers = if keeps_times { managers_before } else { &managers.entries };
    let is_first = current.revision == current.created && first_counts(context, old);
    let mut answer = if !is_let_go && is_same && managers == managers_before && !is_first {
        verbs::stored(context, StatusCode::OK, current).await?
    } else if context.is_dry_run() {
        verbs::unstored(StatusCode::OK, &object, managers)
    } else {
        let write = if is_let_go {
            Write::delete(key)
        } else {
            Write::put(key, verbs::draft_within(context, &object, managers).await?)
        };
        match context.cluster.store().commit(write.if_revision(current.revision)).await {
            // Whoever took the last finalizer sees the object without it, as it was before it went (2.55).
            Ok(_) if is_let_go => {
                addresses::give_back_of(context, old, None).await;
                verbs::unstored(StatusCode::OK, &object, managers)
            }
            Ok(done) => {
                addresses::give_back_of(context, old, Some(&object)).await;
                verbs::stored(context, StatusCode::OK, &done.object).await?
            }
            Err(store::error::Commit::Conflict { .. }) => return Ok(None),
            Err(error) => return Err(verbs::not_committed(context, name, error)),
        }
    };
    answer::warn(&mut answer, &warnings);
    Ok(Some(answer))
}

/// Whether the first write to a Job counts, and be it that it changes nothing: the labels that it got from its template are
/// shown from the beginning, but a real server stores them only now, because they were generated after it looked there.
/// That of a PersistentVolumeClaim counts, too (as measured).
fn first_counts(context: &Context<'_>, job: &Value) -> bool {
    if (context.resource.group.as_str(), context.resource.kind.as_str()) == ("", "PersistentVolumeClaim") {
        return true;
    }
    let of_template = &job["spec"]["template"]["metadata"]["labels"];
    let is_generated = |label: &String| rules::job::GENERATED_LABELS.contains(&label.as_str());
    (context.resource.group.as_str(), context.resource.kind.as_str()) == ("batch", "Job")
        && job["spec"]["manualSelector"] != serde_json::json!(true)
        && job["metadata"]["labels"] == *of_template
        && of_template.as_object().is_some_and(|labels| !labels.is_empty() && labels.keys().all(is_generated))
}

/// A write that changes nothing is none (2.3).
pub(crate) fn same(new: &Value, old: &Value) -> bool {
    same_but_for(new, old, &["resourceVersion"])
}

/// Whether two objects are the same, whatever some fields of their metadata say.
pub(crate) fn same_but_for(new: &Value, old: &Value, fields: &[&str]) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return new == old };
    new.len() == old.len()
        && new.iter().zip(old).all(|((name, new), (other, old))| {
            name == other
                && match (name.as_str(), new, old) {
                    ("metadata", Value::Object(new), Value::Object(old)) => same_fields(new, old, fields),
                    _ => new == old,
                }
        })
}

/// Whether two objects have the same fields, whatever some of them say.
pub(crate) fn same_fields(new: &Map<String, Value>, old: &Map<String, Value>, but_for: &[&str]) -> bool {
    let counts = |(name, _): &(&String, &Value)| !but_for.contains(&name.as_str());
    new.iter().filter(counts).eq(old.iter().filter(counts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_2_3_a_write_that_changes_only_the_version_changes_nothing() {
        let old = json!({"kind": "A", "metadata": {"name": "a", "resourceVersion": "1"}, "spec": {"b": [1]}});
        let changed = |change: fn(&mut Value)| {
            let mut new = old.clone();
            change(&mut new);
            !same(&new, &old)
        };
        assert!(!changed(|_| {}));
        assert!(!changed(|new| new["metadata"]["resourceVersion"] = json!("2")));
        assert!(!changed(|new| drop(new["metadata"].as_object_mut().map(|it| it.remove("resourceVersion")))));
        assert!(changed(|new| new["metadata"]["name"] = json!("b")));
        assert!(changed(|new| new["metadata"]["uid"] = json!("u")));
        assert!(changed(|new| drop(new["metadata"].as_object_mut().map(|it| it.remove("name")))));
        assert!(changed(|new| new["spec"]["b"][0] = json!(2)));
        assert!(changed(|new| new["status"] = json!({})));
        assert!(changed(|new| drop(new.as_object_mut().map(|it| it.remove("spec")))));
    }
}
