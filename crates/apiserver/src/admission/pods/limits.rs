//! LimitRanges: what containers get that ask for nothing, and how much a container, a pod or a claim may ask for.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use store::{Scope, Store};
use types::Quantity;

use super::{CONTAINERS, forbidden};
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

type List = BTreeMap<String, Quantity>;

/// Keeps new pods and claims within the LimitRanges of their namespace.
pub(in crate::admission) struct LimitRanger(pub(in crate::admission) Store);

impl Plugin for LimitRanger {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        resource.group.is_empty()
            && match (resource.plural.as_str(), subresource) {
                ("pods", "") => operation == Operation::Create,
                ("pods", "resize") => operation == Operation::Update,
                ("persistentvolumeclaims", "") => {
                    matches!(operation, Operation::Create | Operation::Update)
                }
                _ => false,
            }
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        if request.resource.plural == "pods" && !is_leaving(request) {
            for range in self.ranges(request.namespace) {
                if let Some(pod) = &mut request.object {
                    add_defaults(pod, &range);
                }
            }
        }
        Box::pin(ready(Ok(())))
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(ready(self.check(request)))
    }
}

impl LimitRanger {
    fn ranges(&self, namespace: &str) -> Vec<Value> {
        let scope = Scope::resource("limitranges").namespace(namespace);
        let view = self.0.view();
        view.list(&scope).map(|range| object::read(range)).collect()
    }

    fn check(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let Some(object) = request.object.as_ref().filter(|_| !is_leaving(request)) else { return Ok(()) };
        for range in self.ranges(request.namespace) {
            match beyond(&range, &request.resource.plural, object).as_slice() {
                [] => {}
                [one] => return Err(forbidden(request, one)),
                many => return Err(forbidden(request, &format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

fn is_leaving(request: &Request<'_>) -> bool {
    request.old.is_some_and(|old| !old["metadata"]["deletionTimestamp"].is_null())
}

pub(super) fn quantities(list: &Value) -> List {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((name.clone(), text.parse().ok()?))
    })
    .collect()
}

fn add_defaults(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (List::new(), List::new());
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        if limit["type"] == "Container" {
            requests.extend(quantities(&limit["defaultRequest"]));
            limits.extend(quantities(&limit["default"]));
        }
    }
    let mut said = Vec::new();
    for (list, word) in CONTAINERS {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let name = object::text(container, &["name"]).to_owned();
            for (field, defaults, what) in [("requests", &requests, "request"), ("limits", &limits, "limit")]
            {
                let resources = &mut container["resources"][field];
                let missing = defaults.iter().filter(|(name, _)| resources.get(name.as_str()).is_none());
                let missing: Vec<(String, String)> =
                    missing.map(|(name, value)| (name.clone(), value.to_string())).collect();
                for (name, value) in &missing {
                    resources[name.as_str()] = json!(value);
                }
                if !missing.is_empty() {
                    let names: Vec<&str> = missing.iter().map(|(name, _)| name.as_str()).collect();
                    said.push(format!("{} {what} for {word} {name}", names.join(", ")));
                }
            }
        }
    }
    if !said.is_empty() {
        pod["metadata"]["annotations"][ANNOTATION] =
            json!(format!("LimitRanger plugin set: {}", said.join("; ")));
    }
}

/// What of an object a LimitRange does not allow. Each text is told once, however many containers it is true of.
fn beyond(range: &Value, plural: &str, object: &Value) -> Vec<String> {
    let mut told = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        for why in violations(limit, plural, object) {
            if !told.contains(&why) {
                told.push(why);
            }
        }
    }
    told
}

/// What of an object one limit does not allow.
fn violations(limit: &Value, plural: &str, object: &Value) -> Vec<String> {
    let kind = object::text(limit, &["type"]);
    let parts: Vec<(List, Option<List>)> = match (kind, plural) {
        ("Container", "pods") => CONTAINERS
            .iter()
            .flat_map(|(list, _)| object["spec"][list].as_array().into_iter().flatten())
            .map(|container| {
                let resources = &container["resources"];
                (quantities(&resources["requests"]), Some(quantities(&resources["limits"])))
            })
            .collect(),
        ("Pod", "pods") => vec![(of_pod(object, "requests"), Some(of_pod(object, "limits")))],
        ("PersistentVolumeClaim", "persistentvolumeclaims") => {
            vec![(quantities(&object["spec"]["resources"]["requests"]), None)]
        }
        _ => Vec::new(),
    };
    let (min, max, ratio) =
        (quantities(&limit["min"]), quantities(&limit["max"]), quantities(&limit["maxLimitRequestRatio"]));
    let mut errors = Vec::new();
    for (requests, limits) in &parts {
        let none = List::new();
        let own_limits = limits.as_ref().unwrap_or(&none);
        errors.extend(min.iter().filter_map(|(name, min)| below(kind, name, min, requests, own_limits)));
        // What has no limits at all is judged by what it asks for alone.
        let Some(limits) = limits else {
            errors.extend(max.iter().filter_map(|(name, max)| request_above(kind, name, max, requests)));
            continue;
        };
        errors.extend(max.iter().filter_map(|(name, max)| above(kind, name, max, requests, limits)));
        errors
            .extend(ratio.iter().filter_map(|(name, ratio)| over_ratio(kind, name, ratio, requests, limits)));
    }
    errors
}

fn below(kind: &str, name: &str, min: &Quantity, requests: &List, limits: &List) -> Option<String> {
    let start = format!("minimum {name} usage per {kind} is {min}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(request), _) if request < min => Some(format!("{start}, but request is {request}")),
        (_, Some(limit)) if limit < min => Some(format!("{start}, but limit is {limit}")),
        _ => None,
    }
}

fn above(kind: &str, name: &str, max: &Quantity, requests: &List, limits: &List) -> Option<String> {
    let start = format!("maximum {name} usage per {kind} is {max}");
    match (requests.get(name), limits.get(name)) {
        (_, None) => Some(format!("{start}.  No limit is specified")),
        (_, Some(limit)) if limit > max => Some(format!("{start}, but limit is {limit}")),
        (Some(request), _) if request > max => Some(format!("{start}, but request is {request}")),
        _ => None,
    }
}

fn request_above(kind: &str, name: &str, max: &Quantity, requests: &List) -> Option<String> {
    let start = format!("maximum {name} usage per {kind} is {max}");
    match requests.get(name) {
        None => Some(format!("{start}.  No request is specified")),
        Some(request) if request > max => Some(format!("{start}, but request is {request}")),
        Some(_) => None,
    }
}

fn over_ratio(kind: &str, name: &str, ratio: &Quantity, requests: &List, limits: &List) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {kind} is {ratio}, but");
    let Some(request) = requests.get(name).filter(|request| !request.is_zero()) else {
        return Some(format!("{start} no request is specified or request is 0"));
    };
    let Some(limit) = limits.get(name).filter(|limit| !limit.is_zero()) else {
        return Some(format!("{start} no limit is specified or limit is 0"));
    };
    let got = thousandths(limit) / thousandths(request);
    (got * 1000.0 > thousandths(ratio)).then(|| format!("{start} provided ratio is {got:.6}"))
}

/// As a floating point number, which is how upstream compares ratios.
#[expect(clippy::cast_precision_loss, reason = "a ratio is compared, not an amount")]
fn thousandths(quantity: &Quantity) -> f64 {
    quantity.millis_saturating() as f64
}

/// What a whole pod asks for: its containers together, or the most that one of the first ones does.
fn of_pod(pod: &Value, field: &str) -> List {
    let add = |to: &mut List, more: &List| {
        for (name, value) in more {
            *to.entry(name.clone()).or_default() += value;
        }
    };
    let list = |name: &str| pod["spec"][name].as_array().into_iter().flatten();
    let (mut total, mut beside, mut most) = (List::new(), List::new(), List::new());
    for container in list("containers") {
        add(&mut total, &quantities(&container["resources"][field]));
    }
    for container in list("initContainers") {
        let mut own = quantities(&container["resources"][field]);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut beside, &own);
            own = beside.clone();
        } else {
            add(&mut own, &beside);
        }
        raise(&mut most, &own);
    }
    raise(&mut total, &most);
    for (name, value) in quantities(&pod["spec"]["resources"][field]) {
        if matches!(name.as_str(), "cpu" | "memory") {
            total.insert(name, value);
        }
    }
    total
}

fn raise(to: &mut List, other: &List) {
    for (name, value) in other {
        let known = to.entry(name.clone()).or_insert_with(|| value.clone());
        if value > known {
            known.clone_from(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(resources: Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_are_added_and_told() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"}},
        ]}});
        let mut pod = pod(json!({"requests": {"cpu": "2"}}));
        add_defaults(&mut pod, &range);
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "1"}})
        );
        let told = "LimitRanger plugin set: memory request for container c; cpu limit for container c";
        assert_eq!(pod["metadata"]["annotations"][ANNOTATION], told);
    }

    #[test]
    fn what_is_not_allowed() {
        let check = |limit: Value, resources: Value, expected: &[&str]| {
            assert_eq!(violations(&limit, "pods", &pod(resources)), expected);
        };
        let container = |more: Value| {
            let mut limit = json!({"type": "Container"});
            limit.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            limit
        };
        check(
            container(json!({"min": {"cpu": "1"}})),
            json!({}),
            &["minimum cpu usage per Container is 1.  No request is specified"],
        );
        check(
            container(json!({"min": {"cpu": "1"}})),
            json!({"requests": {"cpu": "500m"}}),
            &["minimum cpu usage per Container is 1, but request is 500m"],
        );
        check(
            container(json!({"max": {"cpu": "1"}})),
            json!({"limits": {"cpu": "2"}}),
            &["maximum cpu usage per Container is 1, but limit is 2"],
        );
        check(
            container(json!({"maxLimitRequestRatio": {"cpu": "2"}})),
            json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}),
            &["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        );
        check(json!({"type": "Pod", "max": {"cpu": "1"}}), json!({"limits": {"cpu": "1"}}), &[]);
    }

    #[test]
    fn claims_have_no_limits_to_compare_with_what_they_ask_for() {
        let check = |limit: Value, storage: &str, expected: &[&str]| {
            let claim = json!({"spec": {"resources": {"requests": {"storage": storage}}}});
            let mut limit = limit;
            limit["type"] = json!("PersistentVolumeClaim");
            assert_eq!(violations(&limit, "persistentvolumeclaims", &claim), expected);
        };
        let all = json!({"min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}, "maxLimitRequestRatio": {"storage": "2"}});
        check(all.clone(), "1Gi", &[]);
        let most = "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi";
        check(all.clone(), "11Gi", &[most]);
        let least = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi";
        check(all, "1Mi", &[least]);
    }

    #[test]
    fn what_is_true_of_many_containers_is_told_once() {
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"limits": {"cpu": cpu}}});
        let (two, three) = (
            "maximum cpu usage per Container is 1, but limit is 2",
            "maximum cpu usage per Container is 1, but limit is 3",
        );
        let range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}});
        for (containers, expected) in [
            (vec![container("a", "2"), container("b", "2")], vec![two]),
            (vec![container("a", "2"), container("b", "3"), container("c", "2")], vec![two, three]),
        ] {
            let pod = json!({"spec": {"containers": containers}});
            assert_eq!(beyond(&range, "pods", &pod), expected);
        }
    }
}
