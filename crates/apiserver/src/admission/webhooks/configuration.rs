//! What the configurations in a store say, followed as they change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use store::{Scope, Store, Watch};

use crate::admission::conditions::Condition;
use crate::admission::criteria::Criteria;
use crate::object;
use crate::webhook::Target;

const GROUP: &str = "admissionregistration.k8s.io";

/// One webhook of a configuration, with what nobody said.
pub(super) struct Hook {
    /// Tells it from all others: its configuration and its name.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) criteria: Criteria,
    pub(super) is_ignored_on_failure: bool,
    pub(super) conditions: Vec<Condition>,
    pub(super) has_side_effects: bool,
    pub(super) timeout: Duration,
    pub(super) versions: Vec<String>,
    pub(super) target: Result<Target, String>,
    pub(super) is_asked_again: bool,
}

/// All webhooks of one sort, in the order in which they are asked: by the name of the configuration, then as they stand.
pub(super) struct Configurations {
    store: Store,
    scope: Scope,
    seen: Mutex<Seen>,
}

struct Seen {
    watch: Watch,
    by_name: BTreeMap<String, Vec<Arc<Hook>>>,
    all: Arc<[Arc<Hook>]>,
}

impl Configurations {
    pub(super) fn new(store: Store, plural: &str) -> Self {
        let scope = Scope::resource(&format!("{plural}.{GROUP}"));
        let seen = Mutex::new(Seen::read(&store, &scope));
        Configurations { store, scope, seen }
    }

    /// The webhooks as they are now.
    pub(super) fn hooks(&self) -> Arc<[Arc<Hook>]> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_changed = false;
        while let Some(next) = seen.watch.try_next() {
            let Ok(event) = next else {
                *seen = Seen::read(&self.store, &self.scope);
                return seen.all.clone();
            };
            has_changed = true;
            let name = event.key().name().to_owned();
            match event.after() {
                Some(after) => seen.by_name.insert(name.clone(), read(&name, &object::read(after))),
                None => seen.by_name.remove(&name),
            };
        }
        if has_changed {
            seen.all = seen.by_name.values().flatten().cloned().collect();
        }
        seen.all.clone()
    }
}

impl Seen {
    fn read(store: &Store, scope: &Scope) -> Self {
        let (view, watch) = store.view_and_watch(scope);
        let by_name: BTreeMap<String, Vec<Arc<Hook>>> = view
            .list(scope)
            .map(|found| (found.key.name().to_owned(), read(found.key.name(), &object::read(found))))
            .collect();
        let all = by_name.values().flatten().cloned().collect();
        Seen { watch, by_name, all }
    }
}

fn read(configuration: &str, object: &Value) -> Vec<Arc<Hook>> {
    let hooks = object["webhooks"].as_array().into_iter().flatten();
    hooks.map(|hook| Arc::new(read_hook(configuration, hook))).collect()
}

fn read_hook(configuration: &str, hook: &Value) -> Hook {
    let text = |field: &str| object::text(hook, &[field]);
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
    let conditions = hook["matchConditions"].as_array().into_iter().flatten();
    Hook {
        id: format!("{configuration}/{}", text("name")),
        name: text("name").to_owned(),
        criteria: Criteria {
            rules: typed(&hook["rules"]),
            excluded: Vec::new(),
            takes_equivalents: text("matchPolicy") != "Exact",
            namespaces: typed(&hook["namespaceSelector"]),
            objects: typed(&hook["objectSelector"]),
        },
        is_ignored_on_failure: text("failurePolicy") == "Ignore",
        conditions: conditions.map(Condition::read).collect(),
        has_side_effects: !matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
        timeout: Duration::from_secs(seconds.clamp(1, 30)),
        versions: typed(&hook["admissionReviewVersions"]),
        target: Target::read(&hook["clientConfig"]),
        is_asked_again: text("reinvocationPolicy") == "IfNeeded",
    }
}

/// What is stored passed the rules of its kind; what is absent is empty.
fn typed<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_default()
}
