//! What policies and bindings in a store say, followed as they change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use store::{Scope, Store, Watch};

use crate::admission::conditions::{Condition, Expression};
use crate::admission::criteria::Criteria;
use crate::object;

const GROUP: &str = "admissionregistration.k8s.io";

/// One policy, with what nobody said.
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) criteria: Criteria,
    pub(super) is_ignored_on_failure: bool,
    /// `apiVersion` and `kind` of its parameters.
    pub(super) params: Option<(String, String)>,
    pub(super) conditions: Vec<Condition>,
    pub(super) variables: Vec<(String, Expression)>,
    pub(super) validations: Vec<Validation>,
}

/// One rule of a policy, and what is said when it is broken.
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

/// Where a policy holds, and what comes of breaking it.
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) policy: String,
    /// `None` if it holds wherever the policy does.
    pub(super) criteria: Option<Criteria>,
    pub(super) param_ref: Value,
    pub(super) actions: Vec<String>,
}

/// A policy with its bindings.
pub(super) type Bound = (Arc<Policy>, Vec<Arc<Binding>>);

/// All policies, by their names.
pub(super) struct Bindings {
    store: Store,
    seen: Mutex<Seen>,
}

struct Seen {
    watches: [(Scope, Watch); 2],
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    bound: Arc<[Bound]>,
}

impl Bindings {
    pub(super) fn new(store: Store) -> Self {
        let seen = Mutex::new(Seen::read(&store));
        Bindings { store, seen }
    }

    /// The policies that hold somewhere, as they are now.
    pub(super) fn bound(&self) -> Arc<[Bound]> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.follow(&self.store);
        seen.bound.clone()
    }
}

impl Seen {
    fn read(store: &Store) -> Self {
        let scopes = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
        let [policies, bindings] = scopes.map(|plural| {
            let scope = Scope::resource(&format!("{plural}.{GROUP}"));
            let (view, watch) = store.view_and_watch(&scope);
            let objects: Vec<Value> = view.list(&scope).map(|object| object::read(object)).collect();
            (objects, (scope, watch))
        });
        let name = |object: &Value| object::text(object, &["metadata", "name"]).to_owned();
        let mut seen = Seen {
            policies: policies
                .0
                .iter()
                .map(|object| (name(object), Arc::new(Policy::read(object))))
                .collect(),
            bindings: bindings
                .0
                .iter()
                .map(|object| (name(object), Arc::new(Binding::read(object))))
                .collect(),
            watches: [policies.1, bindings.1],
            bound: Arc::new([]),
        };
        seen.bind();
        seen
    }

    fn follow(&mut self, store: &Store) {
        let mut has_changed = false;
        let [(_, policies), (_, bindings)] = &mut self.watches;
        while let Some(next) = policies.try_next() {
            let Ok(event) = next else { return *self = Seen::read(store) };
            has_changed = true;
            let name = event.key().name().to_owned();
            match event.after() {
                Some(after) => self.policies.insert(name, Arc::new(Policy::read(&object::read(after)))),
                None => self.policies.remove(&name),
            };
        }
        while let Some(next) = bindings.try_next() {
            let Ok(event) = next else { return *self = Seen::read(store) };
            has_changed = true;
            let name = event.key().name().to_owned();
            match event.after() {
                Some(after) => self.bindings.insert(name, Arc::new(Binding::read(&object::read(after)))),
                None => self.bindings.remove(&name),
            };
        }
        if has_changed {
            self.bind();
        }
    }

    fn bind(&mut self) {
        let of = |policy: &Arc<Policy>| -> Vec<Arc<Binding>> {
            self.bindings.values().filter(|binding| binding.policy == policy.name).cloned().collect()
        };
        let bound = self.policies.values().map(|policy| (policy.clone(), of(policy)));
        self.bound = bound.filter(|(_, bindings)| !bindings.is_empty()).collect();
    }
}

impl Policy {
    fn read(object: &Value) -> Policy {
        let spec = &object["spec"];
        let list = |field: &str| spec[field].as_array().into_iter().flatten();
        let text = |value: &Value, field: &str| object::text(value, &[field]).to_owned();
        let params = &spec["paramKind"];
        Policy {
            name: object::text(object, &["metadata", "name"]).to_owned(),
            criteria: criteria(&spec["matchConstraints"]),
            is_ignored_on_failure: spec["failurePolicy"] == "Ignore",
            params: params.is_object().then(|| (text(params, "apiVersion"), text(params, "kind"))),
            conditions: list("matchConditions").map(Condition::read).collect(),
            variables: list("variables")
                .map(|variable| {
                    let expression = Expression::new(object::text(variable, &["expression"]));
                    (text(variable, "name"), expression)
                })
                .collect(),
            validations: list("validations")
                .map(|validation| Validation {
                    expression: Expression::new(object::text(validation, &["expression"])),
                    message: text(validation, "message"),
                    message_expression: validation["messageExpression"].as_str().map(Expression::new),
                    reason: Some(text(validation, "reason"))
                        .filter(|reason| !reason.is_empty())
                        .unwrap_or_else(|| "Invalid".to_owned()),
                })
                .collect(),
        }
    }
}

impl Binding {
    fn read(object: &Value) -> Binding {
        let spec = &object["spec"];
        Binding {
            name: object::text(object, &["metadata", "name"]).to_owned(),
            policy: object::text(spec, &["policyName"]).to_owned(),
            criteria: spec["matchResources"].is_object().then(|| criteria(&spec["matchResources"])),
            param_ref: spec["paramRef"].clone(),
            actions: typed(&spec["validationActions"]),
        }
    }
}

fn criteria(of: &Value) -> Criteria {
    Criteria {
        rules: typed(&of["resourceRules"]),
        excluded: typed(&of["excludeResourceRules"]),
        takes_equivalents: of["matchPolicy"] != "Exact",
        namespaces: typed(&of["namespaceSelector"]),
        objects: typed(&of["objectSelector"]),
    }
}

/// What is stored passed the rules of its kind; what is absent is empty.
fn typed<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_default()
}
