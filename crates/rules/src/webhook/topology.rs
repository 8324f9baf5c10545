//! What the pods of a template may ask for about where they are, relative to each other (TA-9).

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::go;
use types::kueue::{PodSet, PodSetTopologyRequest, PodsetSliceRequiredTopologyConstraint as Constraint};

use crate::field::{Errors, Path, Value};
use crate::framework::annotation;
use crate::meta;

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE: &str = "kueue.x-k8s.io/podset-slice-required-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// Slices may be within slices, but not deeper than this.
const MOST_LAYERS: usize = 3;

/// What is wrong with what a template asks for, whose metadata is at `path` and of which there are `count` pods.
pub(super) fn validate(template: &PodTemplateSpec, path: &Path, count: i32, elastic: bool) -> Errors {
    let Some(metadata) = &template.metadata else { return Errors::new() };
    let asked = Asked { metadata, path: path.child("annotations") };
    let mut errors = asked.modes();
    errors.extend(asked.group());
    errors.extend(asked.slices());
    errors.extend(asked.layers());
    if !errors.is_empty() {
        return errors;
    }
    for (key, mode) in [(REQUIRED, "required"), (PREFERRED, "preferred")] {
        if elastic && asked.has(key) {
            let why = format!("{mode} topology is not supported with elastic jobs");
            return vec![asked.path.child(key).forbidden(why)];
        }
    }
    asked.larger_than(count)
}

/// What is wrong with pod sets that are to be placed as one: a leader and the others, who ask for the same. `path` is where the
/// annotations of a pod set are.
pub(super) fn grouped(pod_sets: &[PodSet], path: &dyn Fn(&str) -> Path) -> Errors {
    let mut groups: Vec<(&str, Vec<(&PodSet, &PodSetTopologyRequest)>)> = Vec::new();
    for pod_set in pod_sets {
        let Some(request) = &pod_set.topology_request else { continue };
        let Some(name) = request.pod_set_group_name.as_deref() else { continue };
        match groups.iter_mut().find(|(group, _)| *group == name) {
            Some((_, members)) => members.push((pod_set, request)),
            None => groups.push((name, vec![(pod_set, request)])),
        }
    }
    groups.iter().flat_map(|(name, members)| group(name, members, path)).collect()
}

fn group(name: &str, members: &[(&PodSet, &PodSetTopologyRequest)], path: &dyn Fn(&str) -> Path) -> Errors {
    let said = |why: &str| -> Errors {
        members.iter().map(|(pod_set, _)| path(pod_set.name()).key(GROUP).invalid(name, why)).collect()
    };
    let [(a, first), (b, second)] = members else {
        let count = members.len();
        return said(&format!("can only define groups of exactly 2 pod sets, got: {count} pod set(s)"));
    };
    let mut errors = Errors::new();
    if a.count != 1 && b.count != 1 {
        errors.extend(said(&format!(
            "can only define groups where at least one pod set has only 1 replica, got: {} replica(s) and {} replica(s) in the group",
            a.count, b.count
        )));
    }
    let asks = |request: &PodSetTopologyRequest| (request.required.clone(), request.preferred.clone());
    if asks(first) == (None, None) || asks(first) != asks(second) {
        for (one, other) in [(a, b), (b, a)] {
            let why = format!(
                "must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{}' in group '{name}'",
                path(other.name())
            );
            errors.push(path(one.name()).invalid(Value::OMITTED, why));
        }
    }
    errors
}

/// The annotations of a template.
struct Asked<'a> {
    metadata: &'a ObjectMeta,
    path: Path,
}

impl Asked<'_> {
    fn of(&self, key: &str) -> Option<&str> {
        annotation(self.metadata, key)
    }

    fn has(&self, key: &str) -> bool {
        self.of(key).is_some()
    }

    fn modes(&self) -> Errors {
        let mut errors = Errors::new();
        if [REQUIRED, PREFERRED, UNCONSTRAINED].into_iter().filter(|key| self.has(key)).count() > 1 {
            let why = format!(
                "must not contain more than one topology annotation: [{REQUIRED:?}, {PREFERRED:?}, {UNCONSTRAINED:?}]"
            );
            errors.push(self.path.invalid(Value::OMITTED, why));
        }
        for key in [REQUIRED, PREFERRED, SLICE] {
            errors.extend(
                self.of(key).into_iter().flat_map(|level| meta::qualified(level, &self.path.key(key))),
            );
        }
        errors
    }

    fn group(&self) -> Errors {
        let (path, mut errors) = (self.path.key(GROUP), Errors::new());
        if let Some(name) = self.of(GROUP) {
            if name.parse::<u64>().is_ok() {
                errors.push(path.invalid(name, "must not be a number"));
            }
            for key in [SLICE_SIZE, SLICE].into_iter().filter(|key| self.has(key)) {
                errors.push(path.forbidden(format!("may not be set when '{key}' is specified")));
            }
            if !self.has(PREFERRED) && !self.has(REQUIRED) {
                let why = format!("may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified");
                errors.push(path.forbidden(why));
            }
        }
        if let Some(said) = self.of(UNCONSTRAINED).filter(|said| go::parse_bool(said).is_err()) {
            errors.push(self.path.key(UNCONSTRAINED).invalid(said, "must be a boolean value"));
        }
        errors
    }

    fn slices(&self) -> Errors {
        let (path, mut errors) = (self.path.key(SLICE_SIZE), Errors::new());
        if let Some(said) = self.of(SLICE_SIZE) {
            match said.parse::<i32>() {
                Err(_) => errors.push(path.invalid(said, "must be a numeric value")),
                Ok(size) if size < 1 => errors.push(path.invalid(said, "must be greater than or equal to 1")),
                Ok(_) => {}
            }
        }
        match (self.has(SLICE), self.has(SLICE_SIZE)) {
            (true, false) => errors.push(path.required(format!("must be set when '{SLICE}' is specified"))),
            (false, true) => {
                errors.push(path.forbidden(format!("may not be set when '{SLICE}' is not specified")));
            }
            _ => {}
        }
        errors
    }

    fn layers(&self) -> Errors {
        let (path, mut errors) = (self.path.key(LAYERS), Errors::new());
        let Some(said) = self.of(LAYERS) else { return errors };
        for key in [SLICE, SLICE_SIZE].into_iter().filter(|key| self.has(key)) {
            errors.push(path.forbidden(format!("may not be set when '{key}' is specified")));
        }
        if self.has(GROUP) {
            let why = format!("may not be set when '{LAYERS}' is specified");
            errors.push(self.path.key(GROUP).forbidden(why));
        }
        let layers: Vec<Constraint> = match serde_json::from_str(said) {
            Ok(layers) => layers,
            Err(problem) => {
                errors.push(path.invalid(said, format!("must be a valid JSON array: {problem}")));
                return errors;
            }
        };
        if layers.is_empty() || layers.len() > MOST_LAYERS {
            let why = "topology constraints must contain between 1 and 3 entries";
            errors.push(path.invalid(said, why));
            return errors;
        }
        for (i, layer) in layers.iter().enumerate() {
            errors.extend(meta::qualified(&layer.topology, &path.index(i).child("topology")));
            if layer.size < 1 {
                let why = "must be greater than or equal to 1";
                errors.push(path.index(i).child("size").invalid(i64::from(layer.size), why));
            }
        }
        for (i, layer) in layers.iter().enumerate() {
            if let Some(first) = layers[..i].iter().position(|other| other.topology == layer.topology) {
                let twice = format!("{} (also at index {first})", layer.topology);
                errors.push(path.index(i).child("topology").duplicate(twice.as_str()));
            }
        }
        for (i, pair) in layers.windows(2).enumerate() {
            if pair[1].size > 0 && pair[0].size % pair[1].size != 0 {
                let why = format!("must evenly divide the parent layer size {}", pair[0].size);
                errors.push(path.index(i + 1).child("size").invalid(i64::from(pair[1].size), why));
            }
        }
        errors
    }

    /// No slice is larger than all pods together.
    fn larger_than(&self, count: i32) -> Errors {
        let why = || format!("must not be greater than pod set count {count}");
        let mut errors = Errors::new();
        if let Some(said) = self.of(SLICE_SIZE).filter(|said| said.parse::<i32>().is_ok_and(|it| it > count))
        {
            errors.push(self.path.key(SLICE_SIZE).invalid(said, why()));
        }
        let layers: Option<Vec<Constraint>> =
            self.of(LAYERS).and_then(|said| serde_json::from_str(said).ok());
        if let Some(first) = layers.iter().flatten().next().filter(|first| first.size > count) {
            errors.push(self.path.key(LAYERS).invalid(i64::from(first.size), why()));
        }
        errors
    }
}
