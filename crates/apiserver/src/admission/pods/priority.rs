//! The priority of a pod is what its PriorityClass says (3.5), and only one class is everybody's.

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use store::{Scope, Store};

use super::{find, forbidden};
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

const GROUP: &str = "scheduling.k8s.io";
const PLURAL: &str = "priorityclasses";

/// Resolves the priority of pods, and keeps PriorityClasses to one default.
pub(in crate::admission) struct Priority(pub(in crate::admission) Store);

impl Plugin for Priority {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        subresource.is_empty()
            && matches!(operation, Operation::Create | Operation::Update)
            && matches!((resource.group.as_str(), resource.plural.as_str()), ("", "pods") | (GROUP, PLURAL))
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let done = if request.is_about("", "pods") { self.admit(request) } else { Ok(()) };
        Box::pin(ready(done))
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let done = if request.is_about(GROUP, PLURAL) { self.check_class(request) } else { Ok(()) };
        Box::pin(ready(done))
    }
}

impl Priority {
    fn admit(&self, request: &mut Request<'_>) -> Result<(), Refusal> {
        let Some(mut pod) = request.object.take() else { return Ok(()) };
        let admitted = match request.old {
            Some(old) => {
                keep(&mut pod, old);
                Ok(())
            }
            None => self.resolve(&mut pod),
        };
        request.object = Some(pod);
        admitted.map_err(|why| forbidden(request, &why))
    }

    fn resolve(&self, pod: &mut Value) -> Result<(), String> {
        let class = match object::text(pod, &["spec", "priorityClassName"]) {
            "" => self.default_class(),
            name => {
                let class = find(&self.0, GROUP, PLURAL, "", name);
                Some(class.ok_or_else(|| format!("no PriorityClass with name {name} was found"))?)
            }
        };
        let (priority, policy) = match &class {
            None => (0, Some("PreemptLowerPriority")),
            Some(class) => (class["value"].as_i64().unwrap_or(0), class["preemptionPolicy"].as_str()),
        };
        let spec = &mut pod["spec"];
        if let Some(class) = &class {
            spec["priorityClassName"] = class["metadata"]["name"].clone();
        }
        // Whoever copies a pod sends the value too; then it must be the class's.
        expect_same(spec, "priority", &json!(priority), |said| {
            format!(
                "the integer value of priority ({said}) must not be provided in pod spec; priority admission controller \
                 computed {priority} from the given PriorityClass name"
            )
        })?;
        set_policy(spec, policy)
    }

    /// The class of pods that name none: the lowest, should there be several.
    fn default_class(&self) -> Option<Value> {
        let scope = Scope::resource(&format!("{PLURAL}.{GROUP}"));
        let view = self.0.view();
        let classes = view.list(&scope).map(|class| object::read(class));
        classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
    }

    fn check_class(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let Some(class) = request.object.as_ref().filter(|class| class["globalDefault"] == true) else {
            return Ok(());
        };
        let Some(other) = self.default_class() else { return Ok(()) };
        let name = object::text(&other, &["metadata", "name"]);
        if request.old.is_some() && name == object::text(class, &["metadata", "name"]) {
            return Ok(());
        }
        let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
        Err(forbidden(request, &why))
    }
}

fn set_policy(spec: &mut Value, policy: Option<&str>) -> Result<(), String> {
    let Some(policy) = policy else { return Ok(()) };
    expect_same(spec, "preemptionPolicy", &json!(policy), |said| {
        let said = said.as_str().unwrap_or("");
        format!(
            "the string value of PreemptionPolicy ({said}) must not be provided in pod spec; priority admission controller \
             computed {policy} from the given PriorityClass name"
        )
    })
}

/// Sets a field that may only have been set to the same.
fn expect_same(
    spec: &mut Value,
    field: &str,
    value: &Value,
    why: impl Fn(&Value) -> String,
) -> Result<(), String> {
    match &spec[field] {
        Value::Null => spec[field] = value.clone(),
        said if said == value => {}
        said => return Err(why(said)),
    }
    Ok(())
}

/// What was resolved when the pod was made stays, though whoever replaces it leaves it out.
fn keep(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}
