//! `pods/eviction`: a removal that asks the pod's disruption budget first (2.75).

use std::sync::{Arc, LazyLock, OnceLock};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rules::field::Path;
use rules::pod::eviction::{Denied, Guard, changed_meanwhile, guard, take};
use rules::pod::prepare::mark_evicted;
use rules::wire;
use serde_json::{Value, json};
use store::{Scope, Write};

use super::binding::{now, success};
use crate::admission;
use crate::answer::{self, Answer};
use crate::apply::{Entries, Tracked};
use crate::body;
use crate::body::DeleteOptions;
use crate::cluster::Context;
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::{About, Refusal};
use crate::verbs::delete;

/// How often somebody else may come between.
const ATTEMPTS: usize = 20;

/// Evictions as objects of their own, as far as reading them goes.
static EVICTIONS: LazyLock<Arc<Resource>> = LazyLock::new(|| {
    Arc::new(Resource {
        group: "policy".to_owned(),
        version: "v1".to_owned(),
        kind: "Eviction".to_owned(),
        plural: "evictions".to_owned(),
        singular: "eviction".to_owned(),
        namespaced: true,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: String::new(),
        subresources: Vec::new(),
        custom: None,
        known_type: OnceLock::new(),
    })
});

/// Clients from before the version was stable are still heard.
static BETA_EVICTIONS: LazyLock<Arc<Resource>> =
    LazyLock::new(|| Arc::new(Resource { version: "v1beta1".to_owned(), ..EVICTIONS.as_ref().clone() }));

pub(super) async fn create(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let is_beta = |bytes: &[u8]| {
        serde_json::from_slice::<Value>(bytes).is_ok_and(|sent| sent["apiVersion"] == "policy/v1beta1")
    };
    let read_as = if is_beta(bytes) { &BETA_EVICTIONS } else { &EVICTIONS };
    let sent = body::read(read_as, &context.head.headers, context.query, bytes)?;
    let mut warnings = sent.warnings;
    answer::warned(evict(context, sent.object, &mut warnings).await, &warnings)
}

async fn evict(context: &Context<'_>, sent: Value, warnings: &mut Vec<String>) -> Result<Answer, Refusal> {
    crate::verbs::expect_namespace(context, &sent)?;
    let mut eviction = admission::mutated_part(context, &EVICTIONS, sent, warnings).await?;
    let name = context.name();
    if object::text(&eviction, &["metadata", "name"]) != name {
        return Err(Refusal::bad_request("name in URL does not match name in Eviction object"));
    }
    expect_readable(context, &eviction)?;
    let is_said = |options: &Value| options["dryRun"].as_array().is_some_and(|all| !all.is_empty());
    if context.is_dry_run() && !is_said(&eviction["deleteOptions"]) {
        eviction["deleteOptions"]["dryRun"] = json!(["All"]);
    }
    admission::validated_part(context, &EVICTIONS, &eviction, warnings).await?;
    let asked = eviction["deleteOptions"].take();
    let asked = if asked.is_null() { json!({}) } else { asked };
    let asks_version = asked["preconditions"]["resourceVersion"].is_string();
    let is_dry_run = is_said(&asked);
    for _ in 0..ATTEMPTS {
        let pod = read(context)?;
        let mut options = asked.clone();
        let guard = guard(&wire::typed(&pod), &budgets(context)?);
        let budget = match &guard {
            Guard::None => None,
            Guard::IfUnchanged => {
                if !asks_version {
                    options["preconditions"]["resourceVersion"] = pod["metadata"]["resourceVersion"].clone();
                }
                None
            }
            Guard::Several => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Refusal::unknown(why));
            }
            Guard::Budget(budget) => Some(budget),
        };
        if let Some(budget) = budget {
            take_disruption(context, budget, is_dry_run).await?;
        }
        // What the client itself asks for does not come true by asking again.
        delete::expect_preconditions(context, name, &DeleteOptions::of(asked.clone())?, &pod)?;
        match remove(context, options, is_dry_run).await {
            // Whoever did not ask for a version is not told that it was another one: it is tried again, or may be.
            Err(refusal)
                if refusal.code() == http::StatusCode::CONFLICT && !asks_version && budget.is_none() => {}
            done => return done.map(|()| success()),
        }
    }
    Err(denied(&changed_meanwhile(name), ""))
}

/// A pod that cannot be read is not evicted, whatever may be done with other objects.
fn expect_readable(context: &Context<'_>, eviction: &Value) -> Result<(), Refusal> {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if eviction["deleteOptions"][OPTION] != true {
        return Ok(());
    }
    let path = Path::new("deleteOptions").child(OPTION);
    let error = path.invalid(true, "can not be set for pod eviction, try after removing the option");
    let about = About { group: "policy", resource: "Eviction", name: context.name() };
    Err(Refusal::invalid(about, &vec![error]))
}

fn read(context: &Context<'_>) -> Result<Value, Refusal> {
    let key = object::key(context.resource, context.namespace(), context.name());
    let found =
        context.cluster.store().get(&key).ok_or_else(|| crate::verbs::absent(context, context.name()))?;
    Ok(object::read(&found))
}

fn budget_resource() -> &'static Arc<Resource> {
    Registry::built_in().get("policy", "v1", "poddisruptionbudgets").expect("budgets are served")
}

fn budgets(context: &Context<'_>) -> Result<Vec<PodDisruptionBudget>, Refusal> {
    let view = context.cluster.store().view_at(store::At::Latest);
    let view = view.map_err(|why| Refusal::internal(why.to_string()))?;
    let scope = Scope::resource(&object::storage_name(budget_resource())).namespace(context.namespace());
    Ok(view.list(&scope).map(|object| wire::typed(&object::read(object))).collect())
}

/// Writes down in the budget that one of its disruptions is used.
async fn take_disruption(context: &Context<'_>, name: &str, is_dry_run: bool) -> Result<(), Refusal> {
    let (resource, store) = (budget_resource(), context.cluster.store());
    let key = object::key(resource, context.namespace(), name);
    loop {
        let about = About { group: "policy", resource: "poddisruptionbudgets", name };
        let current = store.get(&key).ok_or_else(|| Refusal::not_found(about))?;
        let mut budget: PodDisruptionBudget = wire::typed(&object::read(&current));
        take(&mut budget, context.name(), &Time(now())).map_err(|why| denied(&why, name))?;
        if is_dry_run {
            return Ok(());
        }
        let mut new = schema::encode(resource.of_type(), &wire::untyped(&budget, &Value::Null));
        new["apiVersion"] = json!(resource.api_version());
        new["kind"] = json!(resource.kind);
        let fields =
            [("metadata.name", name.to_owned()), ("metadata.namespace", context.namespace().to_owned())];
        let draft = object::draft(&new, &Entries::default(), &fields);
        let write = Write::put(key.clone(), draft).if_revision(current.revision);
        match store.commit(write).await {
            Ok(_) => return Ok(()),
            Err(store::error::Commit::Conflict { .. }) => {}
            Err(error) => return Err(Refusal::unavailable(error.to_string())),
        }
    }
}

fn denied(why: &Denied, budget: &str) -> Refusal {
    match why {
        Denied::TooManyRequests(message, cause, retry_after) => {
            let refusal = Refusal::too_many_requests(*message).with_cause("DisruptionBudget", cause, "");
            retry_after.map_or(refusal.clone(), |seconds| refusal.retry_after(seconds))
        }
        Denied::Forbidden(why) => {
            Refusal::forbidden(About { group: "policy", resource: "poddisruptionbudget", name: budget }, why)
        }
    }
}

/// Removes the pod. Whoever may evict it needs not be asked whether it may be removed.
async fn remove(context: &Context<'_>, mut options: Value, is_dry_run: bool) -> Result<(), Refusal> {
    if !is_dry_run {
        note_why(context, &mut options).await?;
    }
    delete::delete_admitted(context, &DeleteOptions::of(options)?).await
}

/// Notes on the pod why it goes. Options that ask for its version ask for the one with the note then.
async fn note_why(context: &Context<'_>, options: &mut Value) -> Result<(), Refusal> {
    let key = object::key(context.resource, context.namespace(), context.name());
    let asked = DeleteOptions::of(options.clone())?;
    loop {
        let current = context.cluster.store().get(&key).ok_or_else(|| Refusal::not_found(context.about()))?;
        let Tracked { object: old, managers } = object::read_tracked(&current);
        delete::expect_preconditions(context, context.name(), &asked, &old)?;
        let mut pod: Pod = wire::typed(&old);
        mark_evicted(&mut pod, Time(now()));
        let mut new = schema::encode(context.resource.of_type(), &wire::untyped(&pod, &Value::Null));
        new["apiVersion"] = json!(context.resource.api_version());
        new["kind"] = json!(context.resource.kind);
        if crate::verbs::update::same(&new, &old) {
            return Ok(());
        }
        let write =
            Write::put(key.clone(), context.draft(&new, &managers).await?).if_revision(current.revision);
        match context.cluster.store().commit(write).await {
            Ok(done) => {
                if options["preconditions"]["resourceVersion"].is_string() {
                    options["preconditions"]["resourceVersion"] = json!(done.revision().to_string());
                }
                return Ok(());
            }
            Err(store::error::Commit::Conflict { .. }) => {}
            Err(error) => return Err(crate::verbs::not_committed(context, context.name(), error)),
        }
    }
}
