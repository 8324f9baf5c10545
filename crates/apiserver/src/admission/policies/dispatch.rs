//! Asking the policies.

use std::rc::Rc;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use store::{Scope, Store};

use super::policy::{Binding, Bindings, Policy, Validation};
use crate::admission::conditions::{self, RequestAuthority, STEPS, Seen};
use crate::admission::criteria::{self, Asked, Criteria};
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::admission::pods::forbidden;
use crate::admission::webhooks::review;
use crate::auth::reviews;
use crate::cel::{self, Budget};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

/// The longest message that an expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// Refuses what a policy does not allow.
pub(in crate::admission) struct Policies {
    store: Store,
    bindings: Bindings,
}

/// A rule of a policy is broken, or could not be judged.
struct Broken {
    message: String,
    reason: String,
}

impl Broken {
    fn failed(message: String) -> Self {
        Broken { message, reason: String::new() }
    }
}

impl Policies {
    pub(in crate::admission) fn new(store: &Store) -> Self {
        Policies { store: store.clone(), bindings: Bindings::new(store.clone()) }
    }

    async fn dispatch(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let mut denied: Option<(String, String)> = None;
        let mut deny = |policy: &Policy, binding: Option<&Binding>, broken: &Broken| {
            let with = binding.map_or(String::new(), |binding| format!(" with binding '{}'", binding.name));
            let message = format!(
                "ValidatingAdmissionPolicy '{}'{with} denied request: {}",
                policy.name, broken.message
            );
            denied.get_or_insert((message, broken.reason.clone()));
        };
        for (policy, bindings) in &*self.bindings.bound() {
            let Some(asked) = policy.criteria.asked(request, &self.store).await? else { continue };
            for binding in bindings {
                if !self.is_bound(binding, request).await? {
                    continue;
                }
                let params = match self.params(policy, binding, request).await {
                    Ok(params) => params,
                    Err(_) if policy.is_ignored_on_failure => continue,
                    Err(why) => {
                        let why = format!("failed to configure binding: {why}");
                        deny(policy, Some(binding), &Broken::failed(why));
                        continue;
                    }
                };
                for param in &params {
                    for broken in self.broken(policy, request, &asked, param) {
                        for action in &binding.actions {
                            match action.as_str() {
                                "Deny" => deny(policy, Some(binding), &broken),
                                "Warn" => request.warn(format!(
                                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                                    policy.name, binding.name, broken.message
                                )),
                                _ => {}
                            }
                        }
                    }
                }
            }
        }
        denied.map_or(Ok(()), |(message, reason)| Err(refusal(request, &message, &reason)))
    }

    async fn is_bound(&self, binding: &Binding, request: &Request<'_>) -> Result<bool, Refusal> {
        let Some(criteria) = &binding.criteria else { return Ok(true) };
        // A binding that names no resources holds for all of the policy's.
        let all;
        let criteria = if criteria.rules.is_empty() {
            all = Criteria { rules: vec![criteria::Rule::everything()], ..criteria.clone() };
            &all
        } else {
            criteria
        };
        Ok(criteria.asked(request, &self.store).await?.is_some())
    }

    /// The parameters that a policy is judged with, one after the other; null if it has none.
    async fn params(
        &self,
        policy: &Policy,
        binding: &Binding,
        request: &Request<'_>,
    ) -> Result<Vec<Value>, String> {
        let reference = &binding.param_ref;
        let Some((version, kind)) = policy.params.as_ref().filter(|_| reference.is_object()) else {
            return Ok(vec![Value::Null]);
        };
        let (group, of) = version.split_once('/').unwrap_or(("", version));
        let registry = request.context.cluster.registry();
        let resource = registry.of_kind(group, of, kind);
        let resource =
            resource.ok_or_else(|| format!("paramKind kind `{version}, Kind={kind}` not known"))?;
        let own = object::text(reference, &["namespace"]);
        let namespace = match (resource.namespaced, own, request.namespace) {
            (false, "", _) => "",
            (false, ..) => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned()
                );
            }
            (true, "", "") => {
                let why =
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Err(why.to_owned());
            }
            (true, "", of_request) => of_request,
            (true, own, _) => own,
        };
        let name = object::text(reference, &["name"]);
        let found: Vec<Value> = if name.is_empty() {
            let selector: LabelSelector =
                serde_json::from_value(reference["selector"].clone()).unwrap_or_default();
            let scope = Scope::resource(&object::storage_name(resource)).namespace(namespace);
            let all: Vec<Value> = self.store.view().list(&scope).map(|object| object::read(object)).collect();
            let wanted = |object: &Value| {
                criteria::is_everything(&selector) || criteria::selects(&selector, Some(object))
            };
            all.into_iter().filter(wanted).collect()
        } else {
            let found = self.store.get(&object::key(resource, namespace, name));
            found.map(|object| object::read(&object)).into_iter().collect()
        };
        if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Err(why.to_owned());
        }
        let mut params = Vec::with_capacity(found.len());
        for object in found {
            params.push(match &resource.custom {
                None => object,
                Some(custom) => custom.read(object).await.map_err(|why| why.to_string())?,
            });
        }
        Ok(params)
    }

    /// The rules of a policy that a request breaks.
    fn broken(&self, policy: &Policy, request: &Request<'_>, asked: &Asked, params: &Value) -> Vec<Broken> {
        let described = review::request("", request, asked, false);
        let is_namespace = request.resource.group.is_empty() && request.resource.kind == "Namespace";
        let name = criteria::namespace_of(request).filter(|_| !is_namespace);
        let namespace = name.and_then(|name| criteria::namespace(&self.store, name)).unwrap_or_default();
        let authority = RequestAuthority::of(request);
        let seen = Seen {
            object: &asked.object,
            old_object: &asked.old,
            request: &described,
            namespace: &namespace,
            params,
            authority: &authority,
        };
        // Whether a policy is asked at all does not depend on the namespace beyond its name (as measured).
        match conditions::all_hold(&policy.conditions, &Seen { namespace: &Value::Null, ..seen }) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(_) if policy.is_ignored_on_failure => return Vec::new(),
            Err(why) => return vec![Broken::failed(why)],
        }
        let mut budget = Budget::new(STEPS);
        let variables = variables(policy, &seen, &mut budget);
        let judged = policy.validations.iter().filter_map(|validation| {
            judged(validation, &seen, &variables, policy.is_ignored_on_failure, &mut budget)
        });
        judged.collect()
    }
}

/// The values of a policy's variables. One that cannot be computed is not there for those who look for it.
fn variables<'a>(policy: &'a Policy, seen: &Seen<'a>, budget: &mut Budget) -> cel::Value<'a> {
    let mut known: Vec<(cel::Value<'a>, cel::Value<'a>)> = Vec::new();
    for (name, expression) in &policy.variables {
        let so_far = cel::Value::Map(cel::Map::Owned(Rc::new(known.clone())));
        if let Ok(value) = expression.run(seen, &so_far, budget) {
            known.push((cel::Value::String(name.into()), value));
        }
    }
    cel::Value::Map(cel::Map::Owned(Rc::new(known)))
}

fn judged<'a>(
    validation: &'a Validation,
    seen: &Seen<'a>,
    variables: &cel::Value<'a>,
    is_ignored_on_failure: bool,
    budget: &mut Budget,
) -> Option<Broken> {
    let given = validation.expression.run(seen, variables, budget);
    match given {
        Ok(cel::Value::Bool(true)) => None,
        Err(_) if is_ignored_on_failure => None,
        Err(why) => Some(Broken::failed(why)),
        Ok(_) => {
            let own = validation.message_expression.as_ref();
            let own = own.and_then(|expression| expression.run(seen, variables, budget).ok());
            let own = match &own {
                Some(cel::Value::String(text)) => text.trim(),
                _ => "",
            };
            let is_usable = !own.is_empty() && own.len() <= MAX_MESSAGE && !own.contains('\n');
            let message = match (is_usable, validation.message.trim()) {
                (true, _) => own.to_owned(),
                (false, "") => format!("failed expression: {}", validation.expression.text.trim()),
                (false, message) => message.to_owned(),
            };
            Some(Broken { message, reason: validation.reason.clone() })
        }
    }
}

fn refusal(request: &Request<'_>, message: &str, reason: &str) -> Refusal {
    let reason = if reason.is_empty() { "Invalid" } else { reason };
    let code = match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    let mut status = forbidden(request, message).to_status();
    status["reason"] = json!(reason);
    status["code"] = json!(code);
    status["details"]["causes"] = json!([{"message": message}]);
    Refusal::relayed(&status)
}

impl Plugin for Policies {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        // Who could not ask any more what somebody may do could not mend the policy either.
        let bound = if reviews::is_review(resource) { Arc::default() } else { self.bindings.bound() };
        bound.iter().any(|(policy, _)| policy.criteria.may_concern(operation, resource, subresource))
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
