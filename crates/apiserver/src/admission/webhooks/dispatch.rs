//! Asking the webhooks: those that may change something one after the other, the others all at once (3.17).

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use store::Store;

use super::configuration::{Configurations, Hook};
use super::review::{self, Verdict};
use crate::admission::conditions::{self, RequestAuthority, Seen};
use crate::admission::criteria::Asked;
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::patch;
use crate::patch::json::{Patch, Reading};
use crate::registry::Resource;
use crate::status::{About, Refusal};
use crate::webhook::Caller;

/// Those that may change what is written.
pub(in crate::admission) struct Mutating(Hooks);

/// Those that may only refuse it.
pub(in crate::admission) struct Validating(Hooks);

struct Hooks {
    store: Store,
    caller: Caller,
    configurations: Configurations,
}

impl Mutating {
    pub(in crate::admission) fn new(store: &Store, caller: &Caller) -> Self {
        Mutating(Hooks::new(store, caller, "mutatingwebhookconfigurations"))
    }
}

impl Validating {
    pub(in crate::admission) fn new(store: &Store, caller: &Caller) -> Self {
        Validating(Hooks::new(store, caller, "validatingwebhookconfigurations"))
    }
}

impl Plugin for Mutating {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        self.0.wants(operation, resource, subresource)
    }

    fn sees_managers(&self) -> bool {
        true
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.dispatch(request))
    }
}

impl Plugin for Validating {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        self.0.wants(operation, resource, subresource)
    }

    fn sees_managers(&self) -> bool {
        true
    }

    fn mutates(&self, _: Operation, _: &Resource) -> bool {
        false
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(self.dispatch(request))
    }
}

/// Why a webhook's say did not count, or did.
enum Failed {
    /// It could not be asked, or what it said makes no sense: its failure policy decides.
    Calling(String),
    /// It refuses, or it may not be asked this.
    Refused(Refusal),
}

impl Mutating {
    async fn dispatch(&self, request: &mut Request<'_>) -> Result<(), Refusal> {
        let Hooks { store, configurations, .. } = &self.0;
        if request.again.is_second_round && request.again.last.as_ref() != request.object.as_ref() {
            // The cluster's own plugins changed something in the second round.
            request.again.remember_previous();
        }
        for hook in &*configurations.hooks() {
            let Some(asked) = asked(hook, request, store).await? else { continue };
            if request.again.is_second_round && !request.again.wanted.contains(&hook.id) {
                continue;
            }
            let changed = match self.ask(hook, request, &asked).await {
                Ok(changed) => changed,
                Err(Failed::Refused(refusal)) => return Err(refusal),
                Err(Failed::Calling(why)) => {
                    fail(hook, &why)?;
                    false
                }
            };
            if changed {
                request.again.remember_previous();
                request.again.is_wanted = true;
            }
            if hook.is_asked_again {
                request.again.previous.insert(hook.id.clone());
            }
        }
        request.again.last.clone_from(&request.object);
        Ok(())
    }

    /// Asks, and puts into the request what is answered; says whether that changed it.
    async fn ask(&self, hook: &Hook, request: &mut Request<'_>, asked: &Asked) -> Result<bool, Failed> {
        let verdict = self.0.call(hook, request, asked, true).await?;
        if verdict.patch.is_empty() {
            return Ok(false);
        }
        let undecodable =
            |why: String| Failed::Calling(format!("received undecodable patch in webhook response: {why}"));
        let operations: Value =
            serde_json::from_slice(&verdict.patch).map_err(|why| undecodable(why.to_string()))?;
        if operations.as_array().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        let (operations, _) =
            Patch::read(operations, Reading::Lenient).map_err(|why| undecodable(told(&why)))?;
        let internal = |why: String| Failed::Refused(Refusal::internal_cause(why));
        if request.object.is_none() {
            return Err(internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                types::go::quote(&hook.name)
            )));
        }
        let patched = operations.apply(asked.object.clone()).map_err(|why| internal(told(&why)))?;
        // Back to the version that was requested, if the webhook saw another.
        let patched = match &asked.instead {
            Some(other) => other.back(request.resource, patched).await.map_err(Failed::Refused)?,
            None => patched,
        };
        let patched = request.settled(patched).map_err(Failed::Refused)?;
        let changed = request.object.as_ref() != Some(&patched);
        request.object = Some(patched);
        Ok(changed)
    }
}

impl Validating {
    async fn dispatch(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let mut calls = Vec::new();
        let hooks = self.0.configurations.hooks();
        for hook in &*hooks {
            if let Some(asked) = asked(hook, request, &self.0.store).await? {
                calls.push((hook.clone(), asked));
            }
        }
        let asked = calls.iter().map(|(hook, asked)| async {
            match self.0.call(hook, request, asked, false).await {
                Ok(_) => Ok(()),
                Err(Failed::Refused(refusal)) => Err(refusal),
                Err(Failed::Calling(why)) => fail(hook, &why),
            }
        });
        join_all(asked).await.into_iter().collect()
    }
}

impl Hooks {
    fn new(store: &Store, caller: &Caller, plural: &str) -> Self {
        let configurations = Configurations::new(store.clone(), plural);
        Hooks { store: store.clone(), caller: caller.clone(), configurations }
    }

    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        let hooks: Arc<[Arc<Hook>]> = self.configurations.hooks();
        hooks.iter().any(|hook| hook.criteria.may_concern(operation, resource, subresource))
    }

    async fn call(
        &self,
        hook: &Hook,
        request: &Request<'_>,
        asked: &Asked,
        may_patch: bool,
    ) -> Result<Verdict, Failed> {
        if request.dry_run && hook.has_side_effects {
            let name = types::go::quote(&hook.name);
            let why = format!("admission webhook {name} does not support dry run");
            return Err(Failed::Refused(Refusal::bad_request(why)));
        }
        let version = review::version(&hook.versions).map_err(Failed::Calling)?;
        let target = hook.target.as_ref();
        let target = target.map_err(|why| Failed::Calling(format!("could not get REST client: {why}")))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let body = json!({
            "kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"),
            "request": review::request(&uid, request, asked, true),
        });
        let answer = self.caller.post(target, &body, hook.timeout).await;
        let answer = answer.map_err(|why| Failed::Calling(format!("failed to call webhook: {why}")))?;
        let verdict = review::verdict(&answer, version, &uid, may_patch);
        let verdict =
            verdict.map_err(|why| Failed::Calling(format!("received invalid webhook response: {why}")))?;
        for warning in &verdict.warnings {
            request.warn(warning);
        }
        if verdict.is_allowed { Ok(verdict) } else { Err(Failed::Refused(denied(hook, &verdict.result))) }
    }
}

/// How a webhook is to be asked; `None` if the request is no concern of its.
async fn asked(hook: &Hook, request: &Request<'_>, store: &Store) -> Result<Option<Asked>, Refusal> {
    let Some(asked) = hook.criteria.asked(request, store).await? else { return Ok(None) };
    let holds = hook.conditions.is_empty() || meets_conditions(hook, request, &asked)?;
    Ok(holds.then_some(asked))
}

fn meets_conditions(hook: &Hook, request: &Request<'_>, asked: &Asked) -> Result<bool, Refusal> {
    let described = review::request("", request, asked, false);
    let authority = RequestAuthority::of(request);
    let seen = Seen {
        object: &asked.object,
        old_object: &asked.old,
        request: &described,
        // They may name it, and are not shown it (as measured).
        namespace: &Value::Null,
        params: &Value::Null,
        authority: &authority,
    };
    match conditions::all_hold(&hook.conditions, &seen) {
        Ok(holds) => Ok(holds),
        Err(_) if hook.is_ignored_on_failure => Ok(false),
        Err(why) => {
            let Resource { group, plural, .. } = request.resource;
            Err(Refusal::forbidden(About { group, resource: plural, name: &request.name }, &why))
        }
    }
}

/// What becomes of a request when a webhook cannot be asked.
fn fail(hook: &Hook, why: &str) -> Result<(), Refusal> {
    let why = format!("failed calling webhook {}: {why}", types::go::quote(&hook.name));
    if hook.is_ignored_on_failure {
        tracing::warn!(%why, "a webhook has no say");
        return Ok(());
    }
    Err(Refusal::internal_cause(why))
}

/// The refusal of a webhook, with its own status as far as it gave one.
fn denied(hook: &Hook, result: &Value) -> Refusal {
    let mut status = if result.is_object() { result.clone() } else { json!({}) };
    let start = format!("admission webhook {} denied the request", types::go::quote(&hook.name));
    let (message, reason) = (object::text(&status, &["message"]), object::text(&status, &["reason"]));
    let message = match (message, reason) {
        ("", "") => format!("{start} without explanation"),
        ("", reason) => format!("{start}: {reason}"),
        (message, _) => format!("{start}: {message}"),
    };
    status["message"] = json!(message);
    Refusal::relayed(&status)
}

fn told(error: &patch::Error) -> String {
    match error {
        patch::Error::BadRequest(why)
        | patch::Error::TooLarge(why)
        | patch::Error::Unprocessable(why)
        | patch::Error::Failed(why) => why.clone(),
    }
}
