//! POST of an object (2.24–2.29).

use http::StatusCode;
use rules::meta::system::{Identity, generated_name};
use serde_json::Value;
use store::Write;

use crate::admission::{self, Operation, Sent};
use crate::answer::{self, Answer};
use crate::apply::{Tracked, remove_managed_fields};
use crate::cluster::{Context, identity};
use crate::managed::{Followed, Managers};
use crate::object;
use crate::registry::Registry;
use crate::status::{About, Refusal};
use crate::strategy::traits::Traits;
use crate::strategy::{addresses, admin_access, certificates};
use crate::{body, managed, verbs};

const GIVEN_BY_SERVER: [&str; 5] =
    ["creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "selfLink", "uid"];
/// How often a generated name is tried again when it is taken.
const NAME_ATTEMPTS: usize = 8;

pub(crate) async fn create(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let mut body = body::read(context.resource, &context.head.headers, context.query, bytes)?;
    // These are the server's to say, and nobody comes to manage them by saying them (2.24).
    if let Some(meta) = body.object["metadata"].as_object_mut() {
        meta.retain(|key, _| !GIVEN_BY_SERVER.contains(&key.as_str()));
    }
    body.warnings.extend(verbs::without_repeated_owners(&mut body.object, ""));
    verbs::expect_namespace(context, &body.object)?;
    if Traits::of(context.resource).names_itself
        && ["name", "generateName"]
            .iter()
            .all(|field| object::text(&body.object, &["metadata", field]).is_empty())
    {
        body.object["metadata"]["name"] = uuid::Uuid::new_v4().to_string().into();
    }
    let given = object::text(&body.object, &["metadata", "name"]);
    expect_place(context, given)?;
    let generates = given.is_empty();
    let mut attempts = 1;
    let followed = managed::followed(context, None, std::mem::take(&mut body.object), false);
    loop {
        match attempt(context, &followed, &body.warnings).await {
            Err(refusal) if generates && attempts < NAME_ATTEMPTS && refusal.is_already_exists() => {
                attempts += 1;
            }
            Err(refusal) if generates && refusal.is_already_exists() => {
                return Err(refusal.no_unique_name().or_warning(&body.warnings));
            }
            done => return done.map_err(|refusal| refusal.or_warning(&body.warnings)),
        }
    }
}

/// Stores a new object. Who manages its fields is settled before the server adds its own.
pub(crate) async fn attempt(
    context: &Context<'_>,
    followed: &Followed,
    warnings: &[String],
) -> Result<Answer, Refusal> {
    let Followed { body, canonical, managers } = followed;
    let identity = identity();
    if context.resource.custom.as_ref().is_some_and(|custom| custom.kind().is_leaving()) {
        let why = "create not allowed while custom resource definition is terminating";
        let name = object::text(body, &["metadata", "name"]);
        return Err(Refusal::forbidden(context.about_name(name), why));
    }
    let wanted_name = match object::text(body, &["metadata", "name"]) {
        "" => match object::text(body, &["metadata", "generateName"]) {
            "" => String::new(),
            base => generated_name(base, &identity.suffix),
        },
        name => name.to_owned(),
    };
    let mut warnings = warnings.to_vec();
    let sent = Sent { body, canonical: canonical.as_ref(), managers, old: None };
    let (mut body, managers) = admission::mutated(context, Operation::Create, sent, &mut warnings).await?;
    if verbs::repeats_owners(&body) {
        let when = " after mutating admission happens";
        warnings.extend(verbs::without_repeated_owners(body.to_mut(), when));
    }
    let body = certificates::told(context, body, None);
    let (body, taken) = addresses::given(context, body, None).await?;
    let stored = store(context, &body, &managers, identity, &wanted_name, warnings).await;
    if stored.is_err() {
        addresses::give_back(context, taken).await;
    }
    stored
}

async fn store(
    context: &Context<'_>,
    body: &Value,
    managers: &Managers,
    identity: Identity,
    wanted_name: &str,
    mut warnings: Vec<String>,
) -> Result<Answer, Refusal> {
    let judged = context.strategy.create(&managers.judged(body), context.namespace(), identity);
    let mut accepted = admin_access::judged(context, body, None, judged)
        .map_err(|refused| verbs::refused(context, body, wanted_name, refused).warning(&warnings))?;
    remove_managed_fields(&mut accepted.object);
    let name = object::text(&accepted.object, &["metadata", "name"]);
    let key = object::key(context.resource, context.namespace(), name);
    warnings.extend_from_slice(&accepted.warnings);
    let managers = &managers.entries;
    let new = Tracked { object: accepted.object, managers: managers.clone() };
    let object = admission::validated(context, Operation::Create, new, None, &mut warnings)
        .await
        .map_err(|refusal| refusal.warning(&warnings))?;
    let name = object::text(&object, &["metadata", "name"]);
    let mut answer = if context.is_dry_run() {
        if let Some(current) = context.cluster.store().get(&key) {
            let is_leaving = !object::read(&current)["metadata"]["deletionTimestamp"].is_null();
            return Err(Refusal::already_exists(context.about_name(name), is_leaving));
        }
        verbs::unstored(StatusCode::CREATED, &object, managers)
    } else {
        let draft = verbs::draft_within(context, &object, managers).await?;
        let write = Write::put(key.clone(), draft).if_absent();
        match context.cluster.store().commit(write).await {
            Ok(done) => verbs::stored(context, StatusCode::CREATED, &done.object).await?,
            Err(store::error::Commit::Exists { current }) => {
                let is_leaving = !object::read(&current)["metadata"]["deletionTimestamp"].is_null();
                return Err(Refusal::already_exists(context.about_name(name), is_leaving));
            }
            Err(error) => return Err(verbs::not_committed(context, name, error)),
        }
    };
    answer::warn(&mut answer, &warnings);
    Ok(answer)
}

/// Objects are made in namespaces that are there and will stay (2.28).
pub(crate) fn expect_place(context: &Context<'_>, of: &str) -> Result<(), Refusal> {
    if !context.resource.namespaced {
        return Ok(());
    }
    let name = context.namespace();
    let namespaces = Registry::built_in().get("", "v1", "namespaces").expect("namespaces are served");
    let found = context.cluster.store().get(&object::key(namespaces, "", name));
    let Some(found) = found else {
        let problems = rules::names::path_segment(name);
        if !problems.is_empty() {
            let (name, why) = (types::go::quote(name), problems.join(" "));
            return Err(Refusal::internal_cause(format!("invalid resource name {name}: [{why}]")));
        }
        return Err(Refusal::not_found(About { group: "", resource: "namespaces", name }));
    };
    if found.index.fields.has("status.phase", "Terminating") {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let cause = format!("namespace {name} is being terminated");
        return Err(Refusal::forbidden(context.about_name(of), &why).with_cause(
            "NamespaceTerminating",
            &cause,
            "metadata.namespace",
        ));
    }
    Ok(())
}
