//! Whether roles and bindings allow a request (6.5–6.7).
//!
//! What is stored is followed by watching, when somebody asks and not before: a decision sees every role and binding
//! that was written before it, and costs nothing for those that did not change.

pub(crate) mod aggregation;
mod escalation;
mod policy;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use store::{Scope, Store, Watch};

pub use rules::rbac::Rule;

pub(crate) use escalation::Escalation;
pub(crate) use policy::{Missing, Policy, RoleRef};

use super::attributes::{Attributes, What};
use super::user::{MASTERS, User};
use super::{Decision, forbidden};
use crate::status::Refusal;

const GROUP: &str = "rbac.authorization.k8s.io";
const KINDS: [Kind; 4] = [
    Kind { plural: "clusterroles", is_role: true },
    Kind { plural: "roles", is_role: true },
    Kind { plural: "clusterrolebindings", is_role: false },
    Kind { plural: "rolebindings", is_role: false },
];

#[derive(Clone, Copy)]
struct Kind {
    plural: &'static str,
    is_role: bool,
}

/// Decides by the roles and bindings in a store.
pub struct Authorizer {
    store: Store,
    seen: Mutex<Seen>,
}

/// What was read, and how to learn of changes.
struct Seen {
    policy: Arc<Policy>,
    watches: Vec<(Kind, Watch)>,
}

impl Authorizer {
    pub(crate) fn new(store: Store) -> Self {
        let seen = Mutex::new(Seen::read(&store));
        Authorizer { store, seen }
    }

    /// Roles and bindings as they are now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.follow(&self.store);
        seen.policy.clone()
    }

    /// Whether something is allowed.
    pub fn decide(&self, asked: &Attributes<'_>) -> Decision {
        if asked.user.is_in(MASTERS) {
            return Decision { allowed: true, reason: String::new() };
        }
        let namespace = match &asked.what {
            What::Path(_) => "",
            What::Resource { namespace, .. } => namespace,
        };
        let policy = self.policy();
        if is_node(asked.user) && policy.node_rules().iter().any(|rule| rule.allows(asked.verb, &asked.what))
        {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut errors = Vec::new();
        for held in policy.held(asked.user, namespace) {
            match held {
                Ok((rule, source)) if rule.allows(asked.verb, &asked.what) => {
                    return Decision { allowed: true, reason: format!("RBAC: allowed by {source}") };
                }
                Ok(_) => {}
                Err(why) => errors.push(why.to_string()),
            }
        }
        let reason = if errors.is_empty() { String::new() } else { format!("RBAC: {}", aggregated(&errors)) };
        Decision { allowed: false, reason }
    }

    /// Refuses what is not allowed.
    pub fn expect(&self, asked: &Attributes<'_>) -> Result<(), Refusal> {
        let decision = self.decide(asked);
        if decision.allowed { Ok(()) } else { Err(forbidden(asked, &decision.reason)) }
    }

    /// All rules that hold for a user in a namespace, and what could not be found out.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for held in self.policy().held(user, namespace) {
            match held {
                Ok((rule, _)) => rules.push(rule.clone()),
                Err(why) => errors.push(why.to_string()),
            }
        }
        (rules, (!errors.is_empty()).then(|| aggregated(&errors)))
    }
}

/// Nodes have the role that is made for them without a binding (6.9), as where a Node authorizer is at work. That one
/// would also ask which objects the pods of a node need; here all nodes are one.
fn is_node(user: &User) -> bool {
    user.name.starts_with("system:node:") && user.is_in("system:nodes")
}

/// Several errors as Go prints them: each once, in brackets if there are more.
fn aggregated(errors: &[String]) -> String {
    let mut known = HashSet::new();
    let said: Vec<&str> = errors.iter().map(String::as_str).filter(|error| known.insert(*error)).collect();
    if let [one] = said.as_slice() { (*one).to_owned() } else { format!("[{}]", said.join(", ")) }
}

impl Seen {
    fn read(store: &Store) -> Self {
        let mut policy = Policy::default();
        let watches = KINDS.map(|kind| {
            let scope = Scope::resource(&format!("{}.{GROUP}", kind.plural));
            let (view, watch) = store.view_and_watch(&scope);
            for object in view.list(&scope) {
                kind.put(&mut policy, &object.key, Some(&object.value));
            }
            (kind, watch)
        });
        Seen { policy: Arc::new(policy), watches: watches.into() }
    }

    fn follow(&mut self, store: &Store) {
        for (kind, watch) in &mut self.watches {
            while let Some(next) = watch.try_next() {
                // Too many changes since somebody asked: everything is read again.
                let Ok(event) = next else {
                    *self = Seen::read(store);
                    return;
                };
                let after = event.after().map(|object| object.value.clone());
                kind.put(Arc::make_mut(&mut self.policy), event.key(), after.as_deref());
            }
        }
    }
}

impl Kind {
    fn put(self, policy: &mut Policy, key: &store::Key, bytes: Option<&[u8]>) {
        if self.is_role {
            policy.put_role(key.namespace(), key.name(), bytes);
        } else {
            policy.put_binding(key.namespace(), key.name(), bytes);
        }
    }
}
