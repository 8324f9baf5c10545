//! A custom resource's way through a write (3.24), as steps that a server calls in this order:
//!
//! ```text
//! decode    metadata in canonical form, unknown fields dropped and said, defaults filled in
//! prepare   what a client cannot write is taken from the old object; the generation grows
//! validate  metadata, the schema, scale paths, embedded objects, list keys, then rules
//! ```
//!
//! Objects read from the store go through [`Version::read`], because the definition may have changed since.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::{
    field::{Error, Errors, Path},
    meta as rules_meta, names,
};
use serde_json::{Map, Value, json};

use super::{
    correlate::{Correlated, Places},
    defaults, form, lists,
    meta::{self, Malformed},
    prune::prune,
    rules::not_checked,
    scale, value,
    version::Version,
};

impl Version {
    /// Brings an object from a client into the form it is judged and stored in. Returns the paths of fields that were
    /// not known, as strict field validation names them.
    pub fn decode(&self, object: &mut Value) -> Result<Vec<String>, Error> {
        self.formed(object, Malformed::Refuse)
    }

    /// The same for an object from the store, which is never refused.
    pub fn read(&self, object: &mut Value) {
        // Nothing is refused where malformed metadata is dropped.
        let _ = self.formed(object, Malformed::Drop);
    }

    /// An object with its defaults and without what nobody knows.
    fn formed(&self, object: &mut Value, malformed: Malformed) -> Result<Vec<String>, Error> {
        if self.schema.below.embedded {
            let unknown = self.normalize(object, malformed)?;
            defaults::apply(object, &self.schema);
            return Ok(unknown);
        }
        let mut metadata = object.as_object_mut().and_then(|fields| fields.remove_entry("metadata"));
        let mut unknown = match &mut metadata {
            Some((_, metadata)) => {
                canonical_numbers(metadata);
                meta::coerce_own(metadata, malformed)?
            }
            None => Vec::new(),
        };
        unknown.append(&mut form::bring(object, &self.schema));
        if let (Some(fields), Some((name, mut metadata))) = (object.as_object_mut(), metadata) {
            form::bring_metadata(&mut metadata, &self.schema);
            fields.insert(name, metadata);
        }
        Ok(unknown)
    }

    /// An object with what its schema says stands where nothing does, and without metadata that is none.
    pub fn with_defaults(&self, mut object: Value) -> Value {
        // Nothing is refused where malformed metadata is dropped.
        let _ = meta::coerce(&mut object, &super::schema::Schema::default(), true, Malformed::Drop);
        defaults::fill(&mut object, &self.schema);
        object
    }

    /// Drops what this version does not know from an object that was converted to it.
    pub fn conform(&self, object: &mut Value) {
        // Nothing is refused where malformed metadata is dropped.
        let _ = self.normalize(object, Malformed::Drop);
    }

    fn normalize(&self, object: &mut Value, malformed: Malformed) -> Result<Vec<String>, Error> {
        canonical_numbers(object);
        let mut unknown = Vec::new();
        let metadata = object.as_object_mut().and_then(|fields| fields.remove("metadata"));
        let mut own = json!({});
        if let (Some(metadata), Some(fields)) = (metadata, own.as_object_mut()) {
            fields.insert("metadata".to_owned(), metadata);
        }
        let nothing = super::schema::Schema::default();
        unknown.extend(meta::coerce(&mut own, &nothing, true, malformed)?);
        unknown.extend(prune(object, &self.schema, true));
        defaults::drop_nulls(object, Some(&self.schema));
        unknown.extend(meta::coerce(object, &self.schema, false, malformed)?);
        if let (Some(fields), Some(metadata)) = (object.as_object_mut(), own.get_mut("metadata")) {
            fields.insert("metadata".to_owned(), metadata.take());
        }
        Ok(unknown)
    }

    /// A new object has no status yet, if status has an endpoint of its own.
    pub fn prepare_create(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            if self.has_status {
                fields.remove("status");
            }
            set_generation(fields, 1);
        }
    }

    /// An update leaves the status alone, if that has an endpoint of its own, and counts changes.
    pub fn prepare_update(&self, object: &mut Value, old: &Value) {
        let (Some(fields), Some(old)) = (object.as_object_mut(), old.as_object()) else { return };
        if self.has_status {
            match old.get("status") {
                same if same == fields.get("status") => {}
                Some(status) => drop(fields.insert("status".to_owned(), status.clone())),
                None => drop(fields.remove("status")),
            }
        }
        let counts = |(name, _): &(&String, &Value)| *name != "metadata";
        let is_changed = !fields.iter().filter(counts).eq(old.iter().filter(counts));
        let generation =
            old.get("metadata").and_then(|metadata| metadata.get("generation")).and_then(Value::as_i64);
        if is_changed {
            set_generation(fields, generation.unwrap_or(0) + 1);
        }
    }

    /// A status update changes nothing but the status.
    pub fn with_status(&self, old: &Value, body: &Value) -> Value {
        let Value::Object(fields) = old else { return old.clone() };
        let stay = fields.iter().filter(|(name, _)| *name != "status");
        let status = body.as_object().and_then(|body| body.get_key_value("status"));
        let copy = |(name, value): (&String, &Value)| (name.clone(), value.clone());
        Value::Object(stay.chain(status).map(copy).collect())
    }

    /// Every error of a new object.
    pub fn validate_create(&self, object: &Value) -> Errors {
        self.validate_new(object, &object_meta(object))
    }

    /// The same, where the metadata of the object is at hand.
    pub(super) fn validate_new(&self, object: &Value, metadata: &ObjectMeta) -> Errors {
        let wrong_type = self.validate_type(object);
        if !wrong_type.is_empty() {
            return wrong_type;
        }
        let mut errors = self.validate_metadata(metadata);
        errors.extend(value::validate(object, &self.schema, None));
        errors.extend(self.scale.iter().flat_map(|scale| scale::validate(object, scale, true)));
        errors.extend(meta::validate(object, &self.schema, false, &Path::root()));
        errors.extend(self.validate_lists(object));
        self.run_rules(object, None, &mut errors, &mut Vec::new());
        errors
    }

    /// Every error of a changed object that is not in a part that did not change. Rules that hold no longer in such parts
    /// are told in `warnings`.
    pub fn validate_update(&self, object: &Value, old: &Value, warnings: &mut Vec<String>) -> Errors {
        self.validate_changed(object, old, (&object_meta(object), &object_meta(old)), warnings)
    }

    /// The same, where the metadata of both objects is at hand.
    pub(super) fn validate_changed(
        &self,
        object: &Value,
        old: &Value,
        (metadata, old_metadata): (&ObjectMeta, &ObjectMeta),
        warnings: &mut Vec<String>,
    ) -> Errors {
        let wrong_type = self.validate_type(object);
        if !wrong_type.is_empty() {
            return wrong_type;
        }
        let mut errors = rules_meta::validate_update(metadata, old_metadata, &Path::new("metadata"));
        let places = Places::default();
        let correlated = Correlated::new(object, old, &self.schema, &places);
        errors.extend(value::validate_update(object, &self.schema, Some(correlated), None));
        errors.extend(self.scale.iter().flat_map(|scale| scale::validate(object, scale, true)));
        errors.extend(meta::validate(object, &self.schema, false, &Path::root()));
        errors.extend(self.validate_changed_lists(object, old));
        self.run_rules(object, Some(old), &mut errors, warnings);
        errors
    }

    /// Every error of a changed status, and warnings as of any change. But for who manages its fields, the metadata is that of
    /// the old object.
    pub fn validate_status_update(&self, object: &Value, old: &Value, warnings: &mut Vec<String>) -> Errors {
        let wrong_type = self.validate_type(object);
        if !wrong_type.is_empty() {
            return wrong_type;
        }
        let metadata = object_meta(object);
        let mut errors = rules_meta::validate_update(&metadata, &metadata, &Path::new("metadata"));
        if let (Some(status), Some(schema)) = (object.get("status"), self.schema.properties.get("status")) {
            let places = Places::default();
            let correlated = Correlated::new(object, old, &self.schema, &places).field("status");
            errors.extend(value::validate_update(status, schema, correlated, Some(&Path::new("status"))));
        }
        errors.extend(self.scale.iter().flat_map(|scale| scale::validate(object, scale, false)));
        errors.extend(self.validate_changed_lists(object, old));
        self.run_rules(object, Some(old), &mut errors, warnings);
        errors
    }

    /// What to warn of when finalizers are added: names that others might use too.
    pub fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
        let finalizers = |object: &Value| -> Vec<String> {
            let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
            list.into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let known = old.map(finalizers).unwrap_or_default();
        let mut added: Vec<String> =
            finalizers(object).into_iter().filter(|name| !known.contains(name)).collect();
        added.sort_unstable();
        added.dedup();
        let mut warnings = Vec::new();
        for name in added {
            let warning =
                |detail: &str| format!("metadata.finalizers: {}: {detail}", types::go::quote(&name));
            warnings.extend(names::qualified_name(&name).iter().map(|problem| warning(problem)));
            if !name.contains('/') && !STANDARD.contains(&name.as_str()) {
                let path = if name.contains('.') { " including a path (/)" } else { "" };
                warnings.push(warning(&format!(
                    "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer \
                     writers"
                )));
            }
        }
        warnings
    }

    fn validate_type(&self, object: &Value) -> Errors {
        let mut errors = Errors::new();
        for (name, expected) in [("kind", self.names.kind.as_str()), ("apiVersion", self.said_as.as_str())] {
            let found = object.get(name).and_then(Value::as_str).unwrap_or_default();
            if found != expected {
                errors.push(Path::new(name).invalid(found, format!("must be {expected}")));
            }
        }
        errors
    }

    fn validate_metadata(&self, metadata: &ObjectMeta) -> Errors {
        let path = Path::new("metadata");
        if self.namespaced {
            return rules_meta::validate(metadata, names::dns_subdomain, &path);
        }
        let mut metadata = metadata.clone();
        let given = metadata.namespace.replace("none".to_owned()).filter(|namespace| !namespace.is_empty());
        let mut errors = rules_meta::validate(&metadata, names::dns_subdomain, &path);
        if given.is_some() {
            errors.push(path.child("namespace").forbidden("not allowed on this type"));
        }
        errors
    }

    fn validate_lists(&self, object: &Value) -> Errors {
        object
            .as_object()
            .map_or_else(Errors::new, |fields| lists::validate(fields, &self.schema, &Path::root()))
    }

    /// Duplicates, unless there were some before.
    fn validate_changed_lists(&self, object: &Value, old: &Value) -> Errors {
        let mut duplicates = self.validate_lists(object);
        if !duplicates.is_empty() && !self.validate_lists(old).is_empty() {
            duplicates.clear();
        }
        duplicates
    }

    /// Rules may rely on what the schema says, so they are not run on an object that breaks it.
    fn run_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
        warnings: &mut Vec<String>,
    ) {
        let Some(rules) = &self.rules else { return };
        match not_checked(errors) {
            Some(error) => errors.push(error),
            None => errors.extend(rules.validate(object, old, &self.schema, &Path::root(), warnings)),
        }
    }
}

fn object_meta(object: &Value) -> ObjectMeta {
    // Decoding made sure that it can be read.
    object
        .get("metadata")
        .and_then(|metadata| serde::Deserialize::deserialize(metadata).ok())
        .unwrap_or_default()
}

fn set_generation(fields: &mut Map<String, Value>, generation: i64) {
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("generation".to_owned(), generation.into());
    }
}

/// Numbers as Go would write them back: whole ones without a fraction, and those beyond 64 bits as doubles.
pub(super) fn canonical_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let Some(double) = number.as_f64().filter(|_| !number.is_i64()) else { return };
            let printed = super::go::float(double);
            let whole = printed.parse::<i64>().ok().map(Value::from);
            let large = || printed.parse::<u64>().ok().map(Value::from);
            *value = whole.or_else(large).unwrap_or_else(|| double.into());
        }
        Value::Array(items) => items.iter_mut().for_each(canonical_numbers),
        Value::Object(fields) => fields.values_mut().for_each(canonical_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
