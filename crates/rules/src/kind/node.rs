//! Runtimes of nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use serde_json::Value;

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta::{self, IMMUTABLE};
use crate::repeated::repeated;
use crate::{names, pod, wire};

/// How pods are run: a name that the node understands.
pub(super) struct RuntimeClasses;

impl Kind for RuntimeClasses {
    fn warn(&self, new: &Value) -> Vec<String> {
        let labels = at(new, "scheduling.nodeSelector").as_object().into_iter().flatten();
        let told = labels.filter_map(|(key, _)| pod::warnings::deprecated_label(key));
        told.map(|why| format!("scheduling.nodeSelector: {why}")).collect()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.any_metadata();
        let (handler, path) = (text(it.new, "handler"), Path::new("handler"));
        errors.extend(names::dns_label(handler).into_iter().map(|problem| path.invalid(handler, problem)));
        let amounts = at(it.new, "overhead.podFixed");
        if !at(it.new, "overhead").is_null() {
            let amounts = if amounts.is_null() { BTreeMap::new() } else { wire::typed(amounts) };
            errors.extend(pod::overhead(&amounts, &Path::new("overhead")));
        }
        let scheduling = at(it.new, "scheduling");
        if !scheduling.is_null() {
            let path = Path::new("scheduling");
            let labels = scheduling["nodeSelector"].as_object().map(|labels| {
                labels
                    .iter()
                    .map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_owned()))
                    .collect()
            });
            errors.extend(meta::labels(labels.as_ref(), &path.child("nodeSelector")));
            let tolerations: Vec<Toleration> =
                items(scheduling, "tolerations").iter().map(wire::typed).collect();
            let path = path.child("tolerations");
            errors.extend(pod::tolerations(&tolerations, &path));
            // For how long makes no difference.
            let again = repeated(&tolerations, |toleration| {
                let Toleration { key, operator, value, effect, toleration_seconds: _ } = toleration;
                (key, operator, value, effect)
            });
            for (i, toleration) in tolerations.iter().enumerate().filter(|(i, _)| again[*i]) {
                let value = field::Value::internal("io.k8s.api.core.v1.Toleration", toleration);
                errors.push(path.index(i).duplicate(value));
            }
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(it.any_metadata_update());
        let new = text(it.new, "handler");
        if new != text(it.old, "handler") {
            errors.push(Path::new("handler").invalid(new, IMMUTABLE));
        }
        errors
    }
}
