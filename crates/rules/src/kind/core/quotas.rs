//! Quotas and limits of a namespace: names and amounts of resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use types::Quantity;

use crate::field::{self, Errors, Path};
use crate::kind::{It, Kind, at, items, text};
use crate::meta::IMMUTABLE;
use crate::names;
use crate::pod::resources::{container_resource_name, may_overcommit, resource_name, validate_amount};
use crate::repeated::repeated;

pub(super) struct ResourceQuotas;

const STANDARD: [&str; 19] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const COMPUTE: [&str; 6] =
    ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Scopes that say only whether they apply.
const WITHOUT_VALUES: [&str; 5] =
    ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];
const OPPOSITE: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

fn scope_fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

/// Amounts by resource, each with its name and its path.
fn amounts(object: &Value, of: &str, name: fn(&str, &Path) -> Errors) -> Errors {
    let path = of.split_once('.').map_or_else(|| Path::new(of), |(a, b)| Path::new(a).child(b));
    let mut errors = Errors::new();
    for (resource, amount) in at(object, of).as_object().into_iter().flatten() {
        let path = path.key(resource);
        errors.extend(name(resource, &path));
        if let Some(Ok(amount)) = amount.as_str().map(str::parse::<Quantity>) {
            errors.extend(validate_amount(resource, &amount, &path));
        }
    }
    errors
}

fn quota_resource(name: &str, path: &Path) -> Errors {
    let mut errors = resource_name(name, path);
    if !name.contains('/') && !is_standard(name) {
        errors.push(path.invalid(field::Value::json(&name), "must be a standard resource for quota"));
    }
    errors
}

impl ResourceQuotas {
    fn spec(it: &It<'_>) -> Errors {
        let mut errors = amounts(it.new, "spec.hard", quota_resource);
        errors.extend(ResourceQuotas::scopes(it.new));
        errors.extend(ResourceQuotas::selector(it.new));
        errors
    }

    fn misfits(object: &Value, scope: &str) -> usize {
        let hard: BTreeSet<&String> =
            at(object, "spec.hard").as_object().into_iter().flat_map(Map::keys).collect();
        hard.into_iter().filter(|name| is_standard(name) && !scope_fits(scope, name)).count()
    }

    fn scopes(object: &Value) -> Errors {
        let path = Path::new("spec").child("scopes");
        let scopes: Vec<&str> = items(object, "spec.scopes").iter().filter_map(Value::as_str).collect();
        let mut all = field::Often::new(field::Value::json(&scopes));
        let mut wrong = |why: &str, times: usize| -> Errors {
            all.times(times).map(|all| path.invalid(all, why)).collect()
        };
        let mut misfits: BTreeMap<&str, usize> = BTreeMap::new();
        let mut errors = Errors::new();
        for scope in &scopes {
            errors.extend(wrong("unsupported scope", usize::from(!SCOPES.contains(scope))));
            let misfits = misfits.entry(scope).or_insert_with(|| ResourceQuotas::misfits(object, scope));
            errors.extend(wrong("unsupported scope applied to resource", *misfits));
        }
        let conflicts = OPPOSITE.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope)));
        errors.extend(wrong("conflicting scopes", conflicts.count()));
        errors
    }

    fn selector(object: &Value) -> Errors {
        let selector = at(object, "spec.scopeSelector");
        let path = Path::new("spec").child("scopeSelector").child("matchExpressions");
        let mut errors = Errors::new();
        let mut seen = BTreeSet::new();
        let mut all = field::Often::new(field::Value::internal("io.k8s.api.core.v1.ScopeSelector", selector));
        let mut misfits: BTreeMap<&str, usize> = BTreeMap::new();
        for requirement in items(selector, "matchExpressions") {
            let (scope, operator) = (text(requirement, "scopeName"), text(requirement, "operator"));
            let json = |value: &str| field::Value::json(&value);
            if !SCOPES.contains(&scope) {
                errors.push(path.child("scopeName").invalid(json(scope), "unsupported scope"));
            }
            let misfits = misfits.entry(scope).or_insert_with(|| ResourceQuotas::misfits(object, scope));
            let misfits = all.times(*misfits);
            errors.extend(misfits.map(|all| path.invalid(all, "unsupported scope applied to resource")));
            if WITHOUT_VALUES.contains(&scope) && operator != "Exists" {
                let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                           ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                           ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
                errors.push(path.child("operator").invalid(json(operator), why));
            }
            let values = items(requirement, "values");
            match operator {
                "In" | "NotIn" if values.is_empty() => {
                    let why =
                        "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    errors.push(path.child("values").required(why));
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    let why =
                        "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    errors.push(path.child("values").invalid(field::Value::json(&values), why));
                }
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                _ => errors
                    .push(path.child("operator").invalid(json(operator), "not a valid selector operator")),
            }
            seen.insert(scope);
        }
        let scopes = at(object, "spec.scopes");
        let conflicts = OPPOSITE.iter().filter(|pair| pair.iter().all(|scope| seen.contains(scope)));
        errors.extend(conflicts.map(|_| path.invalid(field::Value::json(scopes), "conflicting scopes")));
        errors
    }
}

impl Kind for ResourceQuotas {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(ResourceQuotas::spec(it));
        errors.extend(amounts(it.new, "status.hard", quota_resource));
        errors.extend(amounts(it.new, "status.used", quota_resource));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let hard = at(new, "spec.hard");
        let amount = |name: String| -> Option<(String, Quantity)> {
            let amount = hard[&name].as_str()?.parse().ok()?;
            Some((name, amount))
        };
        let more_than_limit = |resource: &&str| {
            let bare = || amount((*resource).to_owned()).filter(|_| matches!(*resource, "cpu" | "memory"));
            let (asked, request) = amount(format!("requests.{resource}")).or_else(bare)?;
            let (limited, limit) = amount(format!("limits.{resource}"))?;
            (request > limit)
                .then(|| format!("ResourceQuota {asked} ({request}) should be less than {limited} ({limit})"))
        };
        ["cpu", "memory", "storage", "ephemeral-storage"].iter().filter_map(more_than_limit).collect()
    }

    fn warn_update(&self, _: &Value, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(ResourceQuotas::spec(it));
        let scopes = |object: &Value| -> BTreeSet<String> {
            items(object, "spec.scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        if scopes(it.new) != scopes(it.old) {
            let value = field::Value::json(at(it.new, "spec.scopes"));
            errors.push(Path::new("spec").child("scopes").invalid(value, IMMUTABLE));
        }
        errors
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(amounts(it.new, "status.hard", quota_resource));
        errors.extend(amounts(it.new, "status.used", quota_resource));
        errors
    }
}

pub(super) struct LimitRanges;

type Amounts = BTreeMap<String, Quantity>;

fn read(item: &Value, field: &str) -> Amounts {
    let entries = item[field].as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

impl LimitRanges {
    fn item(item: &Value, path: &Path) -> Errors {
        let kind = text(item, "type");
        let name_rule = |name: &str, path: &Path| match kind {
            "Pod" | "Container" => container_resource_name(name, path),
            _ => resource_name(name, path),
        };
        let [max, min, default, request, ratio] =
            ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
                .map(|field| read(item, field));
        let mut errors = Errors::new();
        let mut names_of = |field: &str, amounts: &Amounts| {
            for name in amounts.keys() {
                errors.extend(name_rule(name, &path.child(field).key(name)));
            }
        };
        names_of("max", &max);
        names_of("min", &min);
        if kind == "Pod" {
            for (field, amounts) in [("default", &default), ("defaultRequest", &request)] {
                if !amounts.is_empty() {
                    errors.push(path.child(field).forbidden("may not be specified when `type` is 'Pod'"));
                }
            }
        } else {
            names_of("default", &default);
            names_of("defaultRequest", &request);
        }
        if kind == "PersistentVolumeClaim" && !min.contains_key("storage") && !max.contains_key("storage") {
            errors.push(
                path.child("limits").required(
                    "either minimum or maximum storage value is required, but neither was provided",
                ),
            );
        }
        for name in ratio.keys() {
            errors.extend(name_rule(name, &path.child("maxLimitRequestRatio").key(name)));
        }
        let all: BTreeSet<&String> =
            [&max, &min, &default, &request, &ratio].into_iter().flat_map(BTreeMap::keys).collect();
        for name in all {
            let of = |amounts: &'_ Amounts| amounts.get(name).cloned();
            let found = [of(&max), of(&min), of(&default), of(&request), of(&ratio)];
            errors.extend(LimitRanges::compare(name, &found, path));
        }
        errors
    }

    /// How the amounts of one resource fit each other: largest, smallest, default, default request and ratio.
    fn compare(
        name: &str,
        [max, min, default, request, ratio]: &[Option<Quantity>; 5],
        path: &Path,
    ) -> Errors {
        let mut errors = Errors::new();
        let mut more = |field: &str,
                        a: &Option<Quantity>,
                        b: &Option<Quantity>,
                        shown: &Option<Quantity>,
                        words: [&str; 2]| {
            if let (Some(a), Some(b), Some(shown)) = (a, b, shown)
                && a > b
            {
                let why = format!("{} value {a} is greater than {} value {b}", words[0], words[1]);
                errors.push(path.child(field).key(name).invalid(field::Value::json(shown), why));
            }
        };
        more("min", min, max, min, ["min", "max"]);
        more("defaultRequest", min, request, request, ["min", "default request"]);
        more("defaultRequest", request, max, request, ["default request", "max"]);
        more("defaultRequest", request, default, request, ["default request", "default limit"]);
        more("default", min, default, min, ["min", "default"]);
        more("default", default, max, max, ["default", "max"]);
        if let Some(ratio) = ratio {
            let path = path.child("maxLimitRequestRatio").key(name);
            if *ratio < Quantity::from_units(1, ratio.format()) {
                errors.push(path.invalid(field::Value::json(ratio), format!("ratio {ratio} is less than 1")));
            }
            if let (Some(min), Some(max)) = (min, max) {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "Kubernetes compares these as floating-point numbers"
                )]
                let (limit, ratio_value) = (
                    max.millis_saturating() as f64 / min.millis_saturating() as f64,
                    ratio.millis_saturating() as f64 / 1000.0,
                );
                if ratio_value > limit {
                    let why = format!("ratio {ratio} is greater than max/min = {limit:.6}");
                    errors.push(path.invalid(field::Value::json(ratio), why));
                }
            }
        }
        if let (Some(default), Some(request)) = (default, request)
            && !may_overcommit(name)
            && default != request
        {
            let why =
                format!("default value {default} must equal to defaultRequest value {request} in {name}");
            errors.push(path.child("defaultRequest").key(name).invalid(field::Value::json(request), why));
        }
        errors
    }
}

impl Kind for LimitRanges {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let path = Path::new("spec").child("limits");
        let limits = items(it.new, "spec.limits");
        let again = repeated(limits, |item| text(item, "type"));
        for (i, item) in limits.iter().enumerate() {
            let (path, kind) = (path.index(i), text(item, "type"));
            let at_type = path.child("type");
            let problems = names::qualified_name(kind);
            if !problems.is_empty() {
                let json = || field::Value::json(&kind);
                errors.extend(problems.into_iter().map(|problem| at_type.invalid(json(), problem)));
            } else if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
                let why = "must be a standard limit type or fully qualified";
                errors.push(at_type.invalid(field::Value::json(&kind), why));
            }
            if again[i] {
                errors.push(at_type.duplicate(field::Value::json(&kind)));
            }
            errors.extend(LimitRanges::item(item, &path));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        self.validate(it)
    }
}
