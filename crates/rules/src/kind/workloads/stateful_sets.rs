//! StatefulSets.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, Volume};
use serde_json::{Value, json};

use super::{
    TEMPLATE, collisions, drop_disabled, exceeding, generation, judge_selector, negative, runs_for_ever,
    template, warn_of_template,
};
use crate::field::{self, Errors, Path};
use crate::kind::{Counts, It, Kind, at, items, storage, text};
use crate::meta::{self, not_negative};
use crate::names::{self, Problems};
use crate::{pod, wire};

pub(in crate::kind) struct StatefulSets;

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
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            if !names.is_empty() {
                let own = spec.volumes.take().unwrap_or_default();
                let claimed = unique.iter().map(|name| {
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
        let options = options.with_privileged(it.allow_privileged);
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
        warnings.extend(parts_of_bytes(new, |path| path));
        warnings.extend(keeps_all_revisions(new));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let mut warnings =
            if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, TEMPLATE) };
        // Only here does upstream name the claim's spec, and with a capital.
        warnings.extend(parts_of_bytes(new, |path| path.child("Spec")));
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

/// What to say of claims that ask for a part of a byte.
fn parts_of_bytes(new: &Value, of: fn(Path) -> Path) -> Vec<String> {
    let claims = items(new, "spec.volumeClaimTemplates").iter().enumerate();
    let path = Path::new("spec").child("volumeClaimTemplates");
    claims.flat_map(|(i, claim)| storage::parts_of_bytes(at(claim, "spec"), &of(path.index(i)))).collect()
}

fn keeps_all_revisions(new: &Value) -> Option<String> {
    let limit = at(new, "spec.revisionHistoryLimit").as_i64().unwrap_or(0);
    let why = "a negative value retains all historical revisions; a value >= 0 is recommended";
    (limit < 0).then(|| format!("spec.revisionHistoryLimit: {why}"))
}
