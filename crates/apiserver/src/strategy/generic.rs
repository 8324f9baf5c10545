//! Kinds without rules of their own: metadata is judged, the status is kept apart, the generation counts changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::field::{Errors, Path};
use rules::meta;
use rules::meta::system::{Identity, begin_create, match_namespace, match_stored};
use rules::names::Problems;
use rules::write::{Accepted, Refused};
use serde_json::{Value, json};

use super::{Strategy, name_of};
use crate::object;
use crate::registry::Resource;

/// Kinds that start with generation 1 and count changes of their spec (2.34).
const COUNTS_GENERATIONS: [(&str, &str); 15] = [
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("batch", "CronJob"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("policy", "PodDisruptionBudget"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// The strategy of such a kind.
pub(super) struct Generic {
    of: schema::Type,
    kind: (String, String),
    namespaced: bool,
    has_status: bool,
    counts_generations: bool,
    name: fn(&str) -> Problems,
}

impl Generic {
    pub(super) fn of(resource: &Resource) -> Self {
        Generic {
            of: resource.of_type(),
            kind: (resource.api_version(), resource.kind.clone()),
            namespaced: resource.namespaced,
            has_status: resource.subresource("status").is_some(),
            counts_generations: COUNTS_GENERATIONS
                .contains(&(resource.group.as_str(), resource.kind.as_str())),
            name: name_of(resource),
        }
    }

    fn accepted(&self, mut object: Value, meta: &ObjectMeta) -> Accepted {
        object::set_meta(&mut object, meta);
        object["apiVersion"] = json!(self.kind.0);
        object["kind"] = json!(self.kind.1);
        Accepted { object: schema::encode(self.of, &object), warnings: Vec::new() }
    }

    fn validate_update(&self, new: &ObjectMeta, old: &ObjectMeta) -> Result<(), Refused> {
        let path = Path::new("metadata");
        let mut errors = scoped(meta::validate_built_in(new, self.name, &path), self.namespaced, new);
        errors.extend(meta::validate_update_built_in(new, old, &path));
        invalid_if_any(errors)
    }
}

impl Strategy for Generic {
    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        let mut object = body.clone();
        let mut meta = object::meta(&object);
        begin_create(&mut meta, identity);
        match_namespace(&mut meta, namespace)?;
        if self.has_status {
            object["status"] = json!({});
        }
        if self.counts_generations {
            meta.generation = Some(1);
        }
        let errors = meta::validate_built_in(&meta, self.name, &Path::new("metadata"));
        invalid_if_any(scoped(errors, self.namespaced, &meta))?;
        if meta.resource_version.as_ref().is_some_and(|version| version.parse::<u64>().is_ok_and(|n| n != 0))
        {
            return Err(Refused::Internal(
                "resourceVersion should not be set on objects to be created".to_owned(),
            ));
        }
        meta.resource_version = None;
        Ok(self.accepted(object, &meta))
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let mut object = body.clone();
        let (mut new, old) = (object::meta(&object), object::meta(stored));
        let sent_generation = new.generation;
        match_stored(&mut new, &old)?;
        if self.has_status {
            object["status"] = stored["status"].clone();
        }
        if self.counts_generations {
            let spec = |object: &Value| schema::encode(self.of, object)["spec"].clone();
            let changed = spec(&object) != spec(stored);
            new.generation = old.generation.map(|generation| generation + i64::from(changed));
        } else {
            new.generation = sent_generation.or(old.generation);
        }
        self.validate_update(&new, &old)?;
        Ok(self.accepted(object, &new))
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let mut object = stored.clone();
        object["status"] = body["status"].clone();
        let (mut new, old) = (object::meta(body), object::meta(stored));
        match_stored(&mut new, &old)?;
        self.validate_update(&new, &old)?;
        Ok(self.accepted(object, &new))
    }
}

/// Metadata rules are written for objects in namespaces; one without asks for none.
fn scoped(errors: Errors, namespaced: bool, meta: &ObjectMeta) -> Errors {
    if namespaced || meta.namespace.is_some() {
        return errors;
    }
    errors.into_iter().filter(|error| error.path != "metadata.namespace").collect()
}

fn invalid_if_any(errors: Errors) -> Result<(), Refused> {
    if errors.is_empty() { Ok(()) } else { Err(Refused::Invalid(errors)) }
}
