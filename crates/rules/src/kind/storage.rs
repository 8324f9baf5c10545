//! Claims on storage, volumes and their classes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};
use types::Quantity;

use super::{It, Kind, at, csi, items, keep, text, volumes};
use crate::difference;
use crate::field::{self, Errors, Path};
use crate::meta::{self, IMMUTABLE, selector};
use crate::names;
use crate::pod::resources::is_native;
use crate::pod::volumes::claims::claim_spec;
use crate::pod::warnings::deprecated_label;
use crate::wire;

const CLAIM_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) struct Claims;

/// What to say of a claim that asks for a part of a byte.
pub(super) fn parts_of_bytes(spec: &Value, path: &Path) -> Vec<String> {
    let told = |part: &&str| {
        let value = text(&spec["resources"][*part], "storage");
        let has_part = value.parse::<Quantity>().is_ok_and(|value| !value.rounded_to_millis().is_integer());
        let path = path.child("resources").child(part).key("storage");
        let quoted = types::go::quote(value);
        has_part.then(|| format!("{path}: fractional byte value {quoted} is invalid, must be an integer"))
    };
    ["requests", "limits"].iter().filter_map(told).collect()
}

impl Claims {
    fn typed(object: &Value) -> PersistentVolumeClaimSpec {
        match at(object, "spec") {
            Value::Null => PersistentVolumeClaimSpec::default(),
            spec => wire::typed(spec),
        }
    }

    /// Sources of data have two fields, an old one that takes few kinds and a new one; each is made of the other.
    fn data_sources(new: &mut Value, old: &Value) {
        let spec = &mut new["spec"];
        // Behind a gate that is off: CrossNamespaceVolumeDataSource.
        if !text(spec, "dataSourceRef.namespace").is_empty()
            && at(old, "spec.dataSourceRef.namespace").is_null()
        {
            spec.as_object_mut().map(|spec| spec.remove("dataSourceRef"));
        }
        let had_source = !at(old, "spec.dataSource").is_null() || !at(old, "spec.dataSourceRef").is_null();
        if !had_source && !spec["dataSource"].is_null() {
            let source = (text(spec, "dataSource.apiGroup"), text(spec, "dataSource.kind"));
            if !matches!(
                source,
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            ) {
                spec.as_object_mut().map(|spec| spec.remove("dataSource"));
            }
        }
        match (spec["dataSource"].is_null(), spec["dataSourceRef"].is_null()) {
            (false, true) => spec["dataSourceRef"] = spec["dataSource"].clone(),
            (true, false) => spec["dataSource"] = spec["dataSourceRef"].clone(),
            _ => {}
        }
    }

    fn storage(object: &Value, path: &str) -> Quantity {
        let text = at(object, path)["storage"].as_str().unwrap_or("0");
        text.parse().unwrap_or_default()
    }
}

impl Kind for Claims {
    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        Claims::data_sources(new, &Value::Null);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        Claims::data_sources(new, old);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(claim_spec(&Claims::typed(it.new), &Path::new("spec")));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut found = Vec::new();
        if !new["metadata"]["annotations"][BETA_CLASS].is_null() {
            let why = "deprecated since v1.8; use \"storageClassName\" attribute instead";
            found.push(format!("metadata.annotations[{BETA_CLASS}]: {why}"));
        }
        found.extend(parts_of_bytes(at(new, "spec"), &Path::new("spec")));
        found
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.validate(it));
        let (mut new, mut old) = (it.new["spec"].clone(), it.old["spec"].clone());
        if text(&old, "volumeName").is_empty() {
            keep(&mut old, &new, "volumeName");
        }
        // A class may be told in the field of a claim that told of it in the annotation, or not at all.
        let annotated =
            |object: &'_ Value| object["metadata"]["annotations"][BETA_CLASS].as_str().map(str::to_owned);
        let (annotation, before) = (annotated(it.new), annotated(it.old));
        let class = new["storageClassName"].as_str().filter(|_| old["storageClassName"].is_null());
        let moves =
            before.is_some() && class == before.as_deref() && (annotation.is_none() || annotation == before);
        if !moves && annotation.as_deref().unwrap_or("") != before.as_deref().unwrap_or("") {
            let path = Path::new("metadata").child("annotations").child(BETA_CLASS);
            errors.push(path.invalid(annotation.as_deref().unwrap_or(""), IMMUTABLE));
        }
        if class.is_some() && (before.is_none() || class == before.as_deref()) {
            keep(&mut new, &old, "storageClassName");
        }
        if text(it.new, "status.phase") == "Bound" {
            if !new["resources"]["requests"].is_null() {
                let storage = at(&old, "resources.requests.storage").clone();
                new["resources"]["requests"]["storage"] = storage;
            }
            keep(&mut new, &old, "volumeAttributesClassName");
        }
        if new != old {
            let typed = |spec: &Value| wire::typed::<PersistentVolumeClaimSpec>(spec);
            let difference = difference::internal(CLAIM_SPEC, &typed(&old), &typed(&new));
            let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                       claims";
            errors.push(Path::new("spec").forbidden(format!("{why}\n{difference}")));
        }
        let requests = "spec.resources.requests";
        let (size, before) = (Claims::storage(it.new, requests), Claims::storage(it.old, requests));
        if size < before && size <= Claims::storage(it.old, "status.capacity") {
            let path = Path::new("spec").child("resources").child("requests").child("storage");
            errors.push(path.forbidden("field can not be less than status.capacity"));
        }
        let mode = at(it.new, "spec.volumeMode");
        if mode != at(it.old, "spec.volumeMode") {
            errors.push(Path::new("volumeMode").invalid(field::Value::json(mode), IMMUTABLE));
        }
        let attributes = at(it.new, "spec.volumeAttributesClassName");
        if attributes != at(it.old, "spec.volumeAttributesClassName")
            && text(it.new, "spec.volumeAttributesClassName").is_empty()
            && !at(it.old, "status.currentVolumeAttributesClassName").is_null()
        {
            let what = if attributes.is_null() { "nil" } else { "empty string" };
            let why = format!(
                "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
            );
            errors.push(Path::new("spec").child("volumeAttributesClassName").forbidden(why));
        }
        errors
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        let status = Path::new("status");
        let amounts = |field: &str| at(it.new, field).as_object().into_iter().flatten();
        for (name, amount) in amounts("status.capacity") {
            errors.extend(negative(amount, &status.child("capacity").key(name)));
        }
        let path = status.child("allocatedResourceStatuses");
        for (name, state) in amounts("status.allocatedResourceStatuses") {
            errors.extend(not_storage(name, &path));
            if !RESIZING.iter().any(|known| state == known) {
                errors.push(path.not_supported(name.as_str(), &RESIZING));
            }
        }
        let path = status.child("allocatedResources");
        for (name, amount) in amounts("status.allocatedResources") {
            let wrong = not_storage(name, &path);
            if wrong.is_empty() {
                errors.extend(negative(amount, &path.key(name)));
            }
            errors.extend(wrong);
        }
        errors
    }
}

/// How far the resizing of a claim has come.
const RESIZING: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// What is wrong with what a claim got: there is nothing but storage, and what others call theirs.
fn not_storage(name: &str, path: &Path) -> Errors {
    let errors = meta::qualified(name, path);
    if errors.is_empty() && is_native(name) && name != "storage" {
        return vec![path.not_supported(name, &["storage"])];
    }
    errors
}

/// What is wrong with an amount of it.
fn negative(amount: &Value, path: &Path) -> Option<field::Error> {
    let amount = amount.as_str()?.parse::<Quantity>().ok().filter(Quantity::is_negative)?;
    Some(path.invalid(amount.units_saturating(), "must be a valid resource quantity"))
}

pub(super) struct StorageClasses;

impl Kind for StorageClasses {
    fn warn(&self, new: &Value) -> Vec<String> {
        let path = Path::new("allowedTopologies");
        let terms = items(new, "allowedTopologies").iter().enumerate();
        let keys = terms.flat_map(|(i, term)| {
            let path = path.index(i).child("matchLabelExpressions");
            let expressions = items(term, "matchLabelExpressions").iter().enumerate();
            expressions.map(move |(j, expression)| (path.index(j).child("key"), text(expression, "key")))
        });
        keys.filter_map(|(path, key)| Some(format!("{path}: {}", deprecated_label(key)?))).collect()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        match text(it.new, "provisioner") {
            "" => errors.push(Path::new("provisioner").required("")),
            name => errors.extend(meta::qualified(&name.to_lowercase(), &Path::new("provisioner"))),
        }
        errors.extend(parameters(it.new, true));
        let policy = text(it.new, "reclaimPolicy");
        if !policy.is_empty() && !matches!(policy, "Delete" | "Retain") {
            let value = field::Value::json(&policy);
            errors.push(Path::new("reclaimPolicy").not_supported(value, &["Delete", "Retain"]));
        }
        let (mode, path) = (at(it.new, "volumeBindingMode"), Path::new("volumeBindingMode"));
        let modes = ["Immediate", "WaitForFirstConsumer"];
        match mode.as_str() {
            None => errors.push(path.required("")),
            Some(mode) if !modes.contains(&mode) => {
                errors.push(path.not_supported(field::Value::json(&mode), &modes));
            }
            Some(_) => {}
        }
        errors.extend(topologies(items(it.new, "allowedTopologies")));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        for name in ["parameters", "provisioner", "reclaimPolicy"] {
            if at(it.new, name) != at(it.old, name) || is_emptied(it, name) {
                errors.push(Path::new(name).forbidden(format!("updates to {name} are forbidden.")));
            }
        }
        let (new, old) = (at(it.new, "volumeBindingMode"), at(it.old, "volumeBindingMode"));
        if new != old {
            errors.push(Path::new("volumeBindingMode").invalid(field::Value::json(new), IMMUTABLE));
        }
        let mut all = self.validate(it);
        all.extend(errors);
        all
    }
}

/// Whether a map was sent without anything in it, where there is none.
fn is_emptied(it: &It<'_>, name: &str) -> bool {
    let is_empty = at(it.sent, name).as_object().is_some_and(Map::is_empty);
    is_empty && at(it.old, name).is_null()
}

/// Where volumes of a class may be. No two terms may say the same; one that says nothing is also compared with as many
/// that have not been read yet as there are terms.
fn topologies(terms: &[Value]) -> Errors {
    let mut errors = Errors::new();
    let mut before: BTreeMap<BTreeMap<&str, BTreeSet<&str>>, usize> = [(BTreeMap::new(), terms.len())].into();
    let mut nothing = field::Often::new("".into());
    for (i, term) in terms.iter().enumerate() {
        let path = Path::new("allowedTopologies").index(i).child("matchLabelExpressions");
        let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (j, expression) in items(term, "matchLabelExpressions").iter().enumerate() {
            let (path, key) = (path.index(j), text(expression, "key"));
            let mut values = BTreeSet::new();
            if items(expression, "values").is_empty() {
                errors.push(path.child("values").required(""));
            }
            for (k, value) in items(expression, "values").iter().filter_map(Value::as_str).enumerate() {
                if !values.insert(value) {
                    errors.push(path.child("values").index(k).duplicate(value));
                }
            }
            errors.extend(meta::qualified(key, &path.child("key")));
            if wanted.insert(key, values).is_some() {
                errors.push(path.child("key").duplicate(key));
            }
        }
        let same = before.entry(wanted).or_default();
        errors.extend(nothing.times(*same).map(|nothing| path.duplicate(nothing)));
        *same += 1;
    }
    errors
}

/// Attributes of volumes, which are for good.
pub(super) struct VolumeAttributesClasses;

impl Kind for VolumeAttributesClasses {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        match text(it.new, "driverName") {
            "" => errors.push(Path::new("driverName").required("")),
            name => errors.extend(meta::qualified(&name.to_lowercase(), &Path::new("driverName"))),
        }
        errors.extend(parameters(it.new, false));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        for name in ["driverName", "parameters"] {
            if at(it.new, name) != at(it.old, name) {
                errors.push(Path::new(name).forbidden(format!("updates to {name} are forbidden.")));
            }
        }
        errors.extend(self.validate(it));
        errors
    }
}

fn parameters(class: &Value, may_be_empty: bool) -> Errors {
    let path = Path::new("parameters");
    let parameters = class["parameters"].as_object().cloned().unwrap_or_default();
    let mut errors = Errors::new();
    if parameters.len() > 512 {
        return vec![path.too_long(512)];
    }
    if parameters.contains_key("") {
        errors.push(path.invalid("", "field can not be empty."));
    }
    let size: usize =
        parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > 256 * 1024 {
        errors.push(path.too_long(256 * 1024));
    }
    if !may_be_empty && parameters.is_empty() {
        errors.push(path.required("must contain at least one key/value pair"));
    }
    errors
}

/// Volumes that are to be attached to nodes.
pub(super) struct Attachments;

impl Kind for Attachments {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = it.metadata();
        let (attacher, at_attacher) = (text(spec, "attacher"), path.child("attacher"));
        if attacher.is_empty() {
            errors.push(at_attacher.required(""));
        }
        // What a new one says is judged once more.
        if it.old.is_null() {
            errors.extend(csi::driver_name(attacher, &at_attacher));
            if let Some(volume) = at(spec, "source.persistentVolumeName").as_str() {
                let path = path.child("source").child("persistentVolumeName");
                let problems = names::dns_subdomain(volume).into_iter();
                errors.extend(problems.map(|problem| path.invalid(volume, problem)));
            }
        }
        let (node, at_node) = (text(spec, "nodeName"), path.child("nodeName"));
        errors.extend(names::dns_subdomain(node).into_iter().map(|problem| at_node.invalid(node, problem)));
        let (inline, named) = (at(spec, "source.inlineVolumeSpec"), at(spec, "source.persistentVolumeName"));
        let at_source = path.child("source");
        match (inline.is_null(), named.is_null()) {
            (true, true) => {
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(at_source.required(why));
            }
            (false, false) => {
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(at_source.forbidden(why));
            }
            (false, true) => {
                errors.extend(volumes::spec(
                    inline,
                    "",
                    volumes::Place::Inline,
                    !it.old.is_null(),
                    &at_source.child("inlineVolumeSpec"),
                ));
            }
            (true, false) if text(spec, "source.persistentVolumeName").is_empty() => {
                errors.push(
                    at_source
                        .child("persistentVolumeName")
                        .required("must specify non empty persistentVolumeName"),
                );
            }
            _ => {}
        }
        errors.extend(attachment_status(it.new));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        let (new, old) = (at(it.new, "spec"), at(it.old, "spec"));
        if new != old {
            let value = field::Value::internal("io.k8s.api.storage.v1.VolumeAttachmentSpec", new);
            errors.push(Path::new("spec").invalid(value, IMMUTABLE));
        }
        errors
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        self.validate_update(it)
    }
}

/// What an attacher says of its work.
fn attachment_status(attachment: &Value) -> Errors {
    const MAX_METADATA: usize = 256 * 1024;
    const MAX_MESSAGE: usize = 1024;
    let (status, path) = (at(attachment, "status"), Path::new("status"));
    let mut errors = Errors::new();
    let metadata = status["attachmentMetadata"].as_object().into_iter().flatten();
    let size: usize = metadata.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_METADATA {
        errors.push(path.child("attachmentMetadata").too_long(MAX_METADATA));
    }
    for name in ["attachError", "detachError"] {
        let (error, path) = (&status[name], path.child(name));
        // The limit that is told is another one's.
        if text(error, "message").len() > MAX_MESSAGE {
            errors.push(path.child("message").too_long(MAX_METADATA));
        }
        if let Some(code) = error["errorCode"].as_i64().filter(|code| *code < 0) {
            let problems = names::in_range(code, 0, i64::from(i32::MAX)).into_iter();
            errors.extend(problems.map(|problem| path.child("errorCode").invalid(code, problem)));
        }
    }
    errors
}

/// How much storage there is of a class.
pub(super) struct Capacities;

impl Kind for Capacities {
    fn warn(&self, new: &Value) -> Vec<String> {
        let (topology, path) = (at(new, "nodeTopology"), Path::new("nodeTopology"));
        let mut found = Vec::new();
        for (i, expression) in items(topology, "matchExpressions").iter().enumerate() {
            let key = text(expression, "key");
            if let Some(why) = deprecated_label(key) {
                let path = path.child("matchExpressions").index(i).child("key");
                found.push(format!("{path}: {key} is {why}"));
            }
        }
        let labels = at(topology, "matchLabels").as_object().into_iter().flat_map(Map::keys);
        let path = path.child("matchLabels");
        found.extend(
            labels.filter_map(|key| Some(format!("{}: {}", path.child(key), deprecated_label(key)?))),
        );
        found
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let (class, path) = (text(it.new, "storageClassName"), Path::new("storageClassName"));
        errors.extend(names::dns_subdomain(class).into_iter().map(|problem| path.invalid(class, problem)));
        if let Some(Ok(amount)) = it.new["capacity"].as_str().map(str::parse::<Quantity>)
            && amount.is_negative()
        {
            let why = "must be greater than or equal to 0";
            errors.push(Path::new("capacity").invalid(amount.to_string().as_str(), why));
        }
        let path = Path::new("nodeTopology");
        let wrong = |topology: &Value, tolerate: bool| match topology {
            Value::Null => Errors::new(),
            topology => selector::validate(&wire::typed::<LabelSelector>(topology), tolerate, &path),
        };
        // Values that are no labels are let pass where there were some.
        let tolerate = !wrong(at(it.old, "nodeTopology"), false).is_empty();
        errors.extend(wrong(at(it.new, "nodeTopology"), tolerate));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.validate(it));
        let (new, old) = (at(it.new, "nodeTopology"), at(it.old, "nodeTopology"));
        if new != old {
            let shown = match new {
                Value::Null => field::Value::json(new),
                new => field::Value::internal(wire::LABEL_SELECTOR, new),
            };
            errors.push(Path::new("nodeTopology").invalid(shown, IMMUTABLE));
        }
        let class = text(it.new, "storageClassName");
        if class != text(it.old, "storageClassName") {
            errors.push(Path::new("storageClassName").invalid(class, IMMUTABLE));
        }
        errors
    }
}
