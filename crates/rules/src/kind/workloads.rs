//! What runs pods from a template: Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, and the
//! templates and revisions that they keep.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::{Counts, It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{self, IMMUTABLE, not_negative, selector};
use crate::names::{self, Problems};
use crate::{pod, wire};

mod amounts;

use amounts::is_zero;
pub(super) use amounts::{int_or_percent, no_more_than_all};

const TEMPLATE: &str = "spec.template";
const DECREMENTED: &str = "cannot be decremented";

/// The pod template at a path.
pub(super) fn template(object: &Value, path: &str) -> PodTemplateSpec {
    match at(object, path) {
        Value::Null => PodTemplateSpec::default(),
        template => wire::typed(template),
    }
}

/// Drops from a template what is behind a gate that is off.
pub(super) fn drop_disabled(new: &mut Value, old: &Value, path: &str) {
    if at(new, path).is_null() {
        return;
    }
    let (mut changed, before) = (template(new, path), template(old, path));
    let sent = changed.clone();
    pod::gates::drop_disabled(&mut changed, (!old.is_null()).then_some(&before));
    if changed == sent {
        return;
    }
    let untyped = wire::untyped(&changed, at(new, path));
    if let Some(place) = new.pointer_mut(&format!("/{}", path.replace('.', "/"))) {
        *place = schema::encode(wire::named(wire::POD_TEMPLATE_SPEC), &untyped);
    }
}

/// What is wrong with a template, and with a pod that does not go on for ever.
fn judge_template(it: &It<'_>, noun: &str) -> Errors {
    let mut errors = template_errors(it, TEMPLATE);
    errors.extend(runs_for_ever(it.new, noun));
    errors
}

pub(super) fn template_errors(it: &It<'_>, path: &str) -> Errors {
    let (new, old) = (template(it.new, path), template(it.old, path));
    let options = pod::Options::for_template(&new, (!it.old.is_null()).then_some(&old));
    let at_template = path
        .split('.')
        .skip(1)
        .fold(Path::new(path.split('.').next().unwrap_or("")), |p, part| p.child(part));
    pod::validate_template(&new, &options, &at_template)
}

fn runs_for_ever(object: &Value, noun: &str) -> Errors {
    let path = Path::new("spec").child("template").child("spec");
    let mut errors = Errors::new();
    let policy = text(object, "spec.template.spec.restartPolicy");
    if policy != "Always" {
        errors.push(path.child("restartPolicy").not_supported(field::Value::json(&policy), &["Always"]));
    }
    if !at(object, "spec.template.spec.activeDeadlineSeconds").is_null() {
        let why = format!("activeDeadlineSeconds in {noun} is not Supported");
        errors.push(path.child("activeDeadlineSeconds").forbidden(why));
    }
    errors
}

/// The selector at `spec.selector`, which must be there, not be empty, and match the labels of the template.
struct Selected {
    errors: Errors,
    /// Whether it can be matched against labels at all.
    is_usable: bool,
    mismatch: Option<field::Error>,
}

fn judge_selector(object: &Value, noun: &str, tolerate: bool) -> Selected {
    let path = Path::new("spec").child("selector");
    let value = at(object, "spec.selector");
    if value.is_null() {
        // An absent selector selects nothing, and so not what the template makes.
        return Selected {
            errors: vec![path.required("")],
            is_usable: true,
            mismatch: mismatch(object, None),
        };
    }
    let typed: LabelSelector = wire::typed(value);
    let mut errors = selector::validate(&typed, tolerate, &path);
    let is_empty = typed.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
        && typed.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        let why = format!("empty selector is invalid for {noun}");
        errors.push(path.invalid(field::Value::internal(wire::LABEL_SELECTOR, &typed), why));
    }
    let labels = template(object, TEMPLATE).metadata.and_then(|meta| meta.labels).unwrap_or_default();
    let matches = selector::matches(Some(&typed), &labels);
    Selected {
        errors,
        is_usable: matches.is_some(),
        mismatch: if is_empty { None } else { mismatch(object, Some(&typed)) },
    }
}

fn mismatch(object: &Value, selector: Option<&LabelSelector>) -> Option<field::Error> {
    let labels = template(object, TEMPLATE).metadata.and_then(|meta| meta.labels);
    let matches = selector.is_some_and(|selector| {
        selector::matches(Some(selector), &labels.clone().unwrap_or_default()) != Some(false)
    });
    let path = Path::new("spec").child("template").child("metadata").child("labels");
    (!matches)
        .then(|| path.invalid(field::Value::json(&labels), "`selector` does not match template `labels`"))
}

/// Numbers below zero, by their names in an object.
fn negative(object: &Value, of: &str, fields: &[&str]) -> Errors {
    let numbers = fields.iter().filter_map(|name| Some((name, at(at(object, of), name).as_i64()?)));
    numbers.flat_map(|(name, number)| not_negative(number, &Path::new(of).child(name))).collect()
}

/// Counts in a status that exceed another one.
fn exceeding(object: &Value, fields: &[&str], limit: &str, why: &str) -> Errors {
    let count = |name: &str| object["status"][name].as_i64().unwrap_or(0);
    let more = fields.iter().filter(|name| count(name) > count(limit));
    more.map(|name| Path::new("status").child(name).invalid(count(name), why)).collect()
}

fn collisions(it: &It<'_>) -> Option<field::Error> {
    let count = |object: &Value| at(object, "status.collisionCount").as_i64();
    let (new, old) = (count(it.new), count(it.old)?);
    let path = Path::new("status").child("collisionCount");
    (new.unwrap_or(0) < old).then(|| path.invalid(new.unwrap_or(0), DECREMENTED))
}

fn immutable_selector(it: &It<'_>) -> Errors {
    let (new, old) = (at(it.new, "spec.selector"), at(it.old, "spec.selector"));
    if new == old {
        return Errors::new();
    }
    let value = match new {
        Value::Null => field::Value::printed("null"),
        new => field::Value::internal(wire::LABEL_SELECTOR, new),
    };
    vec![Path::new("spec").child("selector").invalid(value, IMMUTABLE)]
}

pub(super) fn name_is_no_label(new: &Value) -> Vec<String> {
    let problems = names::dns_label(text(new, "metadata.name"));
    if problems.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        problems.join(" ")
    )]
}

fn warn_of_template(new: &Value, path: &str) -> Vec<String> {
    let at_template = path
        .split('.')
        .skip(1)
        .fold(Path::new(path.split('.').next().unwrap_or("")), |p, part| p.child(part));
    pod::warnings::for_template(&template(new, path), None, &at_template)
}

fn generation(object: &Value) -> i64 {
    at(object, "metadata.generation").as_i64().unwrap_or(0)
}

pub(super) struct Deployments;

impl Deployments {
    fn spec(it: &It<'_>) -> Errors {
        let path = Path::new("spec");
        let mut errors = negative(it.new, "spec", &["replicas"]);
        let selected = judge_selector(it.new, "deployment", false);
        errors.extend(selected.errors);
        if selected.is_usable {
            errors.extend(selected.mismatch);
            errors.extend(judge_template(it, "ReplicaSet"));
        } else {
            let selector = field::Value::internal(wire::LABEL_SELECTOR, at(it.new, "spec.selector"));
            errors.push(path.child("selector").invalid(selector, "invalid label selector"));
        }
        errors.extend(Deployments::strategy(at(it.new, "spec.strategy"), &path.child("strategy")));
        errors.extend(negative(
            it.new,
            "spec",
            &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        ));
        let ready = at(it.new, "spec.minReadySeconds").as_i64().unwrap_or(0);
        if let Some(deadline) = at(it.new, "spec.progressDeadlineSeconds").as_i64().filter(|it| *it <= ready)
        {
            let why = "must be greater than minReadySeconds";
            errors.push(path.child("progressDeadlineSeconds").invalid(deadline, why));
        }
        errors
    }

    fn strategy(strategy: &Value, path: &Path) -> Errors {
        let rolling = &strategy["rollingUpdate"];
        let path_rolling = path.child("rollingUpdate");
        match text(strategy, "type") {
            "Recreate" if rolling.is_null() => Errors::new(),
            "Recreate" => {
                vec![path_rolling.forbidden("may not be specified when strategy `type` is 'Recreate'")]
            }
            "RollingUpdate" if rolling.is_null() => {
                vec![path_rolling.required("this should be defaulted and never be nil")]
            }
            "RollingUpdate" => {
                let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
                let at_unavailable = path_rolling.child("maxUnavailable");
                let mut errors = int_or_percent(unavailable, &at_unavailable);
                errors.extend(int_or_percent(surge, &path_rolling.child("maxSurge")));
                if is_zero(unavailable) && is_zero(surge) {
                    let why = "may not be 0 when `maxSurge` is 0";
                    errors.push(at_unavailable.invalid(field::Value::json(unavailable), why));
                }
                errors.extend(no_more_than_all(unavailable, &at_unavailable));
                errors
            }
            _ => {
                let value = field::Value::internal("io.k8s.api.apps.v1.DeploymentStrategy", strategy);
                vec![path.not_supported(value, &["Recreate", "RollingUpdate"])]
            }
        }
    }
}

impl Kind for Deployments {
    fn counts(&self) -> Counts {
        Counts::Fields(&["spec", "metadata.annotations"])
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(Deployments::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(Deployments::spec(it));
        errors.extend(immutable_selector(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = name_is_no_label(new);
        warnings.extend(warn_of_template(new, TEMPLATE));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, TEMPLATE) }
    }

    fn prepare_subresource(&self, _: &str, new: &mut Value, old: &Value) {
        super::keep_all_but(new, old, &["metadata", "status"]);
        let (mut meta, stored) = (new["metadata"].take(), &old["metadata"]);
        super::keep(&mut meta, stored, "labels");
        new["metadata"] = meta;
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(negative(
            it.new,
            "status",
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
        ));
        let why = "cannot be greater than status.replicas";
        errors.extend(exceeding(
            it.new,
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            "replicas",
            why,
        ));
        errors.extend(exceeding(
            it.new,
            &["availableReplicas"],
            "readyReplicas",
            "cannot be greater than readyReplicas",
        ));
        errors.extend(collisions(it));
        errors
    }
}

/// ReplicaSets, and what they were before.
pub(super) enum Replicas {
    Set,
    Controller,
}

impl Replicas {
    fn spec(&self, it: &It<'_>) -> Errors {
        let path = Path::new("spec");
        match self {
            Replicas::Set => {
                let mut errors = negative(it.new, "spec", &["replicas", "minReadySeconds"]);
                let selected = judge_selector(it.new, "deployment", false);
                errors.extend(selected.errors);
                if selected.is_usable {
                    errors.extend(selected.mismatch);
                    errors.extend(judge_template(it, "ReplicaSet"));
                } else {
                    let selector = field::Value::internal(wire::LABEL_SELECTOR, at(it.new, "spec.selector"));
                    errors.push(path.child("selector").invalid(selector, "invalid label selector"));
                }
                errors
            }
            Replicas::Controller => {
                let mut errors = negative(it.new, "spec", &["minReadySeconds"]);
                let labels = at(it.new, "spec.selector");
                let has_selector = labels.as_object().is_some_and(|labels| !labels.is_empty());
                if !has_selector {
                    errors.push(path.child("selector").required(""));
                }
                errors.extend(negative(it.new, "spec", &["replicas"]));
                if at(it.new, TEMPLATE).is_null() {
                    errors.push(path.child("template").required(""));
                    return errors;
                }
                let own = at(it.new, "spec.template.metadata.labels");
                let differs = |(key, value): (&String, &Value)| own.get(key) != Some(value);
                if labels.as_object().is_some_and(|labels| labels.iter().any(differs)) {
                    let path = path.child("template").child("metadata").child("labels");
                    let why = "`selector` does not match template `labels`";
                    errors.push(path.invalid(field::Value::json(own), why));
                }
                errors.extend(judge_template(it, "ReplicationController"));
                errors
            }
        }
    }
}

impl Kind for Replicas {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(self.spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.spec(it));
        if matches!(self, Replicas::Set) {
            errors.extend(immutable_selector(it));
        }
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = name_is_no_label(new);
        warnings.extend(warn_of_template(new, TEMPLATE));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, TEMPLATE) }
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(negative(
            it.new,
            "status",
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
        ));
        let why = "cannot be greater than status.replicas";
        let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        errors.extend(exceeding(it.new, &counts, "replicas", why));
        errors.extend(exceeding(
            it.new,
            &["availableReplicas"],
            "readyReplicas",
            "cannot be greater than readyReplicas",
        ));
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.replicas"]
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.replicas", at(object, "status.replicas").as_i64().unwrap_or(0).to_string())]
    }
}

pub(super) struct StatefulSets;

impl StatefulSets {
    fn spec(it: &It<'_>, is_new: bool) -> Errors {
        let (path, spec) = (Path::new("spec"), at(it.new, "spec"));
        let mut errors = Errors::new();
        match text(spec, "podManagementPolicy") {
            "" => errors.push(path.child("podManagementPolicy").required("")),
            "OrderedReady" | "Parallel" => {}
            other => {
                let why = "must be 'OrderedReady' or 'Parallel'";
                errors.push(path.child("podManagementPolicy").invalid(field::Value::json(&other), why));
            }
        }
        errors.extend(StatefulSets::strategy(&spec["updateStrategy"], &path.child("updateStrategy")));
        let retention = &spec["persistentVolumeClaimRetentionPolicy"];
        for field in ["whenDeleted", "whenScaled"].into_iter().filter(|_| !retention.is_null()) {
            let policy = text(retention, field);
            if !matches!(policy, "Retain" | "Delete") {
                let path = path.child("persistentVolumeClaimRetentionPolicy").child(field);
                errors.push(path.not_supported(field::Value::json(&policy), &["Retain", "Delete"]));
            }
        }
        if is_new {
            for (i, claim) in items(spec, "volumeClaimTemplates").iter().enumerate() {
                let claim: PersistentVolumeClaimSpec = match at(claim, "spec") {
                    Value::Null => PersistentVolumeClaimSpec::default(),
                    spec => wire::typed(spec),
                };
                let path = path.child("volumeClaimTemplates").index(i).child("spec");
                errors.extend(pod::volumes::claims::claim_spec(&claim, &path));
            }
        }
        errors.extend(negative(it.new, "spec", &["replicas", "minReadySeconds", "ordinals.start"]));
        if is_new && !text(spec, "serviceName").is_empty() {
            let (name, path) = (text(spec, "serviceName"), path.child("serviceName"));
            errors.extend(names::dns_label(name).into_iter().map(|problem| path.invalid(name, problem)));
        }
        let selected = judge_selector(it.new, "statefulset", false);
        errors.extend(selected.errors);
        if selected.is_usable {
            errors.extend(selected.mismatch);
            errors.extend(StatefulSets::template(it));
        } else {
            let selector = field::Value::internal(wire::LABEL_SELECTOR, at(it.new, "spec.selector"));
            errors.push(path.child("selector").invalid(selector, ""));
        }
        errors.extend(runs_for_ever(it.new, "StatefulSet"));
        errors
    }

    fn strategy(strategy: &Value, path: &Path) -> Errors {
        let (rolling, at_rolling) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
        match text(strategy, "type") {
            "" => vec![path.required("")],
            "OnDelete" | "RollingUpdate" if rolling.is_null() => Errors::new(),
            "OnDelete" => {
                let value =
                    field::Value::internal("io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy", rolling);
                vec![at_rolling.invalid(value, "only allowed for updateStrategy 'RollingUpdate'")]
            }
            "RollingUpdate" => {
                let partition = rolling["partition"].as_i64().unwrap_or(0);
                not_negative(partition, &at_rolling.child("partition"))
            }
            _ => {
                let value = field::Value::internal("io.k8s.api.apps.v1.StatefulSetUpdateStrategy", strategy);
                vec![path.invalid(value, "must be 'RollingUpdate' or 'OnDelete'")]
            }
        }
    }

    /// The template as its pods will be: with the volumes of the claims, and with names of their own.
    fn template(it: &It<'_>) -> Errors {
        let path = Path::new("spec").child("template");
        let as_pods_are = |object: &Value| {
            let mut template = template(object, TEMPLATE);
            let spec = template.spec.get_or_insert_default();
            spec.subdomain = None;
            spec.hostname = None;
            let names: Vec<&str> = items(object, "spec.volumeClaimTemplates")
                .iter()
                .map(|claim| text(claim, "metadata.name"))
                .collect();
            if !names.is_empty() {
                let own = spec.volumes.take().unwrap_or_default();
                let claimed = names.iter().map(|name| {
                    wire::typed::<Volume>(
                        &json!({"name": name, "persistentVolumeClaim": {"claimName": name}}),
                    )
                });
                let others = own.iter().filter(|volume| !names.contains(&volume.name.as_str())).cloned();
                spec.volumes = Some(claimed.chain(others).collect());
            }
            template
        };
        let (new, old) = (as_pods_are(it.new), template(it.old, TEMPLATE));
        let options = pod::Options::for_template(&new, (!it.old.is_null()).then_some(&old));
        let mut errors = pod::validate_template(&new, &options, &path);
        let meta = new.metadata.unwrap_or_default();
        errors.extend(meta::labels(meta.labels.as_ref(), &path.child("labels")));
        errors.extend(meta::annotations(meta.annotations.as_ref(), &path.child("annotations")));
        errors
    }

    /// Behind a gate that is off: MaxUnavailableStatefulSet.
    fn drop_max_unavailable(new: &mut Value, old: &Value) {
        const PATH: &str = "spec.updateStrategy.rollingUpdate";
        if at(old, "spec.updateStrategy.rollingUpdate.maxUnavailable").is_null() && !at(new, PATH).is_null() {
            let rolling = new["spec"]["updateStrategy"]["rollingUpdate"].as_object_mut();
            rolling.map(|rolling| rolling.remove("maxUnavailable"));
        }
    }
}

impl Kind for StatefulSets {
    fn name(&self) -> fn(&str) -> Problems {
        names::dns_label
    }

    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        StatefulSets::drop_max_unavailable(new, &Value::Null);
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        StatefulSets::drop_max_unavailable(new, old);
        drop_disabled(new, old, TEMPLATE);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(StatefulSets::spec(it, true));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(StatefulSets::spec(it, false));
        let without = |object: &Value| {
            let mut spec = object["spec"].clone();
            for field in [
                "replicas",
                "template",
                "updateStrategy",
                "minReadySeconds",
                "ordinals",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
            ] {
                spec.as_object_mut().map(|spec| spec.remove(field));
            }
            spec
        };
        if without(it.new) != without(it.old) {
            errors.push(Path::new("spec").forbidden(
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ));
        }
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = warn_of_template(new, TEMPLATE);
        warnings.extend(keeps_all_revisions(new));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let mut warnings =
            if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, TEMPLATE) };
        warnings.extend(keeps_all_revisions(new));
        warnings
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let counts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        let mut errors = negative(it.new, "status", &["replicas"]);
        errors.extend(negative(it.new, "status", &counts));
        errors.extend(negative(it.new, "status", &["observedGeneration", "collisionCount"]));
        errors.extend(exceeding(it.new, &counts, "replicas", "cannot be greater than status.replicas"));
        let why = "cannot be greater than status.readyReplicas";
        errors.extend(exceeding(it.new, &["availableReplicas"], "readyReplicas", why));
        errors.extend(it.metadata_update());
        errors.extend(collisions(it));
        errors
    }
}

fn keeps_all_revisions(new: &Value) -> Option<String> {
    let limit = at(new, "spec.revisionHistoryLimit").as_i64().unwrap_or(0);
    let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
    (limit < 0).then(|| format!("spec.revisionHistoryLimit: {why}"))
}

pub(super) struct DaemonSets;

/// The generation of the template is kept where clients once read it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl DaemonSets {
    fn spec(it: &It<'_>) -> Errors {
        let (path, spec) = (Path::new("spec"), at(it.new, "spec"));
        let tolerate = !it.old.is_null() && {
            let old: Option<LabelSelector> = match at(it.old, "spec.selector") {
                Value::Null => None,
                selector => Some(wire::typed(selector)),
            };
            selector::has_invalid_value(old.as_ref())
        };
        let mut errors = Errors::new();
        let selector = &spec["selector"];
        let labels = template(it.new, TEMPLATE).metadata.and_then(|meta| meta.labels);
        let typed: Option<LabelSelector> = (!selector.is_null()).then(|| wire::typed(selector));
        if let Some(typed) = &typed {
            errors.extend(selector::validate(typed, tolerate, &path.child("selector")));
        }
        let matches = match &typed {
            None => Some(false),
            Some(typed) => selector::matches(Some(typed), &labels.clone().unwrap_or_default()),
        };
        if matches == Some(false) {
            let path = path.child("template").child("metadata").child("labels");
            errors.push(
                path.invalid(field::Value::json(&labels), "`selector` does not match template `labels`"),
            );
        }
        if let Some(typed) = &typed
            && typed.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
            && typed.match_expressions.as_ref().is_none_or(Vec::is_empty)
        {
            let value = field::Value::internal(wire::LABEL_SELECTOR, typed);
            errors.push(path.child("selector").invalid(value, "empty selector is invalid for daemonset"));
        }
        errors.extend(judge_template(it, "DaemonSet"));
        errors.extend(negative(it.new, "spec", &["minReadySeconds"]));
        errors.extend(DaemonSets::strategy(&spec["updateStrategy"], &path.child("updateStrategy")));
        errors.extend(negative(it.new, "spec", &["revisionHistoryLimit"]));
        errors
    }

    fn strategy(strategy: &Value, path: &Path) -> Errors {
        let (rolling, at_rolling) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
        match text(strategy, "type") {
            "OnDelete" => Errors::new(),
            "RollingUpdate" if rolling.is_null() => vec![at_rolling.required("")],
            "RollingUpdate" => {
                let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
                let (at_unavailable, at_surge) =
                    (at_rolling.child("maxUnavailable"), at_rolling.child("maxSurge"));
                let mut errors = int_or_percent(unavailable, &at_unavailable);
                errors.extend(int_or_percent(surge, &at_surge));
                errors.extend(no_more_than_all(unavailable, &at_unavailable));
                errors.extend(no_more_than_all(surge, &at_surge));
                match (is_zero(unavailable), is_zero(surge)) {
                    (false, false) => {
                        let why = "may not be set when maxUnavailable is non-zero";
                        errors.push(at_surge.invalid(field::Value::json(surge), why));
                    }
                    (true, true) => errors.push(at_unavailable.required("cannot be 0 when maxSurge is 0")),
                    _ => {}
                }
                errors
            }
            _ => {
                let value = field::Value::internal("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", strategy);
                vec![path.not_supported(value, &["RollingUpdate", "OnDelete"])]
            }
        }
    }

    fn template_generation(object: &Value) -> i64 {
        let text = object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn set_template_generation(object: &mut Value, generation: i64) {
        object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(generation.to_string());
    }
}

impl Kind for DaemonSets {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        let generation = DaemonSets::template_generation(new).max(1);
        DaemonSets::set_template_generation(new, generation);
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
        let changed = at(new, TEMPLATE) != at(old, TEMPLATE);
        DaemonSets::set_template_generation(new, DaemonSets::template_generation(old) + i64::from(changed));
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(DaemonSets::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(immutable_selector(it));
        errors.extend(DaemonSets::spec(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        warn_of_template(new, TEMPLATE)
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let same = DaemonSets::template_generation(new) == DaemonSets::template_generation(old);
        if same { Vec::new() } else { warn_of_template(new, TEMPLATE) }
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(negative(
            it.new,
            "status",
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
        ));
        errors.extend(collisions(it));
        errors
    }
}

/// Templates by themselves.
pub(super) struct PodTemplates;

impl Kind for PodTemplates {
    fn counts(&self) -> Counts {
        Counts::Fields(&["template"])
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, "template");
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, "template");
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(template_errors(it, "template"));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(template_errors(it, "template"));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        warn_of_template(new, "template")
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, "template") }
    }
}

/// What a template was before.
pub(super) struct ControllerRevisions;

impl Kind for ControllerRevisions {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(not_negative(at(it.new, "revision").as_i64().unwrap_or(0), &Path::new("revision")));
        if it.old.is_null() {
            match at(it.new, "data") {
                Value::Object(_) => {}
                Value::Null => errors.push(Path::new("data").required("data is mandatory")),
                _ => errors.push(Path::new("data").required("data must be a valid JSON object")),
            }
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.validate(it));
        if at(it.new, "data") != at(it.old, "data") {
            errors.push(Path::new("data").invalid(field::Value::json(at(it.new, "data")), IMMUTABLE));
        }
        errors
    }
}
