//! No user grants more than the user has (6.7): writes of roles and bindings are checked.

use std::sync::Arc;

use futures::future::{BoxFuture, ready};
use rules::rbac::{quoted, uncovered};
use serde_json::{Value, json};

use super::{Authorizer, GROUP, Missing, RoleRef, Rule};
use crate::admission::{Operation, Plugin, Request};
use crate::auth::attributes::{Attributes, What};
use crate::auth::user::MASTERS;
use crate::object;
use crate::registry::Resource;
use crate::status::{About, Refusal};

/// Checks writes of roles and bindings. Stands last among those who mutate: it judges what they leave, before the kind's
/// own rules do.
pub(crate) struct Escalation(pub(crate) Arc<Authorizer>);

impl Plugin for Escalation {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        resource.group == GROUP
            && subresource.is_empty()
            && matches!(operation, Operation::Create | Operation::Update)
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(ready(self.check(request)))
    }
}

impl Escalation {
    fn check(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let Some(object) = &request.object else { return Ok(()) };
        let is_spared = request.user.is_in(MASTERS)
            || request.old.is_some_and(|old| changes_only_what_collection_needs(object, old));
        if is_spared {
            return Ok(());
        }
        match request.resource.plural.as_str() {
            "roles" | "clusterroles" => self.check_role(request, object),
            _ => self.check_binding(request, object),
        }
    }

    fn check_role(&self, request: &Request<'_>, role: &Value) -> Result<(), Refusal> {
        if self.allows(request, "escalate", &request.resource.plural, request_name(request)) {
            return Ok(());
        }
        let rules: Vec<Rule> = read(&role["rules"]);
        self.expect_held(request, role, &rules)?;
        if has_selectors(role) || request.old.is_some_and(has_selectors) {
            let all = || vec!["*".to_owned()];
            let everything = [
                Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
                Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
            ];
            self.expect_held(request, role, &everything).map_err(|_| {
                forbidden(request, role, "must have cluster-admin privileges to use the aggregationRule")
            })?;
        }
        Ok(())
    }

    fn check_binding(&self, request: &Request<'_>, binding: &Value) -> Result<(), Refusal> {
        let role: RoleRef = read(&binding["roleRef"]);
        let plural = match role.kind.as_str() {
            "ClusterRole" => Some("clusterroles"),
            "Role" => Some("roles"),
            _ => None,
        };
        if plural.is_some_and(|plural| self.allows(request, "bind", plural, &role.name)) {
            return Ok(());
        }
        let policy = self.0.policy();
        let rules = policy.rules_of(&role, request.namespace).map_err(|missing| match missing {
            // Upstream names what was asked for, though it is the role that is not there.
            Missing::Absent { name, .. } => {
                Refusal::not_found(About { group: GROUP, resource: &request.resource.plural, name: &name })
            }
            Missing::Unsupported(_) => Refusal::unknown(missing.to_string()),
        })?;
        self.expect_held(request, binding, rules)
    }

    fn allows(&self, request: &Request<'_>, verb: &str, resource: &str, name: &str) -> bool {
        let what = What::Resource {
            group: GROUP,
            version: "*",
            resource,
            subresource: "",
            namespace: request.namespace,
            name,
        };
        self.0.decide(&Attributes { user: request.user, verb, what }).allowed
    }

    /// Refuses what the user does not have.
    fn expect_held(&self, request: &Request<'_>, object: &Value, wanted: &[Rule]) -> Result<(), Refusal> {
        let (held, errors) = self.0.rules_for(request.user, request.namespace);
        let missing = uncovered(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            types::go::quote(&request.user.name),
            quoted(&request.user.groups),
            missing.join("\n")
        );
        if let Some(errors) = errors {
            why = format!("{why}; resolution errors: [{errors}]");
        }
        Err(forbidden(request, object, &why))
    }
}

fn forbidden(request: &Request<'_>, object: &Value, why: &str) -> Refusal {
    let name = object::text(object, &["metadata", "name"]);
    Refusal::forbidden(About { group: GROUP, resource: &request.resource.plural, name }, why)
}

/// The name in the path: a role that is made has none yet, as far as `escalate` is concerned.
fn request_name<'a>(request: &'a Request<'_>) -> &'a str {
    if request.operation == Operation::Create { "" } else { &request.name }
}

fn read<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

fn has_selectors(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|list| !list.is_empty())
}

/// The garbage collector may do its work without having what a role grants.
fn changes_only_what_collection_needs(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            object["metadata"][field] = json!(null);
        }
        object
    };
    rest(new) == rest(old)
}
