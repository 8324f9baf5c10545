//! What `POST jobs`, `PUT jobs/<name>` and `PUT jobs/<name>/status` do with a Job, from the decoded body to the object
//! that is stored: the rules in the order in which an API server applies them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::defaults::apply_defaults;
use super::status::validate_status_update;
use super::update::validate_update;
use super::validate::validate_create;
use super::{Settings, prepare, warnings};
use crate::field::{self, Errors, Path};
use crate::meta::system::{Identity, begin_create, begin_update};
use crate::write::{Accepted, Refused};
use crate::{meta, names, wire};

/// A new Job in a namespace. `body` is what [`schema::decode`] left.
pub fn create(
    body: &Value,
    namespace: &str,
    identity: Identity,
    settings: &Settings,
) -> Result<Accepted, Refused> {
    let mut job: Job = wire::typed(body);
    let has_labels = job.metadata.labels.as_ref().is_some_and(|labels| !labels.is_empty());
    apply_defaults(&mut job);
    let generated_name = begin_create(&mut job.metadata, identity);
    match_namespace(&mut job.metadata, namespace)?;
    let shares_labels = !has_labels && !generated_name && template_has_labels(&job);
    prepare::for_create(&mut job, shares_labels);

    invalid_if_any(validate_create(&job, settings), &job, body)?;
    invalid_if_any(meta::validate(&job.metadata, names::path_segment, &Path::new("metadata")), &job, body)?;
    if job
        .metadata
        .resource_version
        .as_ref()
        .is_some_and(|version| version.parse::<u64>().is_ok_and(|n| n != 0))
    {
        return Err(Refused::Internal(
            "resourceVersion should not be set on objects to be created".to_owned(),
        ));
    }
    job.metadata.resource_version = None;
    Ok(Accepted { warnings: warnings::on_create(&job), object: as_read(job) })
}

/// A changed Job.
pub fn update(body: &Value, stored: &Value, settings: &Settings) -> Result<Accepted, Refused> {
    let (mut new, old): (Job, Job) = (wire::typed(body), wire::typed(stored));
    apply_defaults(&mut new);
    match_stored(&mut new.metadata, &old.metadata)?;
    prepare::for_update(&mut new, &old);

    let mut errors = validate_common(&new.metadata, &old.metadata);
    errors.extend(validate_update(&new, &old, settings));
    invalid_if_any(errors, &new, body)?;
    Ok(Accepted { warnings: warnings::on_update(&new, &old), object: as_read(new) })
}

/// A changed status. It never warns (W-04).
pub fn update_status(body: &Value, stored: &Value) -> Result<Accepted, Refused> {
    let (mut new, old): (Job, Job) = (wire::typed(body), wire::typed(stored));
    apply_defaults(&mut new);
    match_stored(&mut new.metadata, &old.metadata)?;
    prepare::for_status_update(&mut new, &old);

    let mut errors = validate_common(&new.metadata, &old.metadata);
    errors.extend(validate_status_update(&new, &old));
    let sent = json!({"spec": stored["spec"], "status": body["status"]});
    invalid_if_any(errors, &new, &sent)?;
    Ok(Accepted { warnings: Vec::new(), object: as_read(new) })
}

/// What is stored gets its defaults once more when it is read. Storing forgets that a list was there if it was empty.
fn as_read(mut job: Job) -> Value {
    apply_defaults(&mut job);
    schema::encode(wire::named(wire::JOB), &wire::untyped(&job, &Value::Null))
}

fn template_has_labels(job: &Job) -> bool {
    super::spec(job).template.metadata.as_ref().is_some_and(|meta| meta.labels.is_some())
}

/// The checks that every kind gets on an update, before its own.
fn validate_common(new: &ObjectMeta, old: &ObjectMeta) -> Errors {
    let path = Path::new("metadata");
    let mut errors = meta::validate(new, names::path_segment, &path);
    errors.extend(meta::validate_update(new, old, &path));
    errors
}

fn match_namespace(meta: &mut ObjectMeta, namespace: &str) -> Result<(), Refused> {
    match meta::non_empty(meta.namespace.as_ref()) {
        None => meta.namespace = Some(namespace.to_owned()),
        Some(own) if own == namespace => {}
        Some(_) => {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Refused::BadRequest(why.to_owned()));
        }
    }
    Ok(())
}

/// Whether the body speaks of the stored object, and what it leaves open is taken from there (U-04, S-54).
fn match_stored(new: &mut ObjectMeta, old: &ObjectMeta) -> Result<(), Refused> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (new_name, old_name) = (text(&new.name), text(&old.name));
    if new_name.is_empty() {
        let why = format!(
            "the name of the object ({old_name} based on URL) was undeterminable: name must be provided"
        );
        return Err(Refused::BadRequest(why));
    }
    if new_name != old_name {
        let why =
            format!("the name of the object ({new_name}) does not match the name on the URL ({old_name})");
        return Err(Refused::BadRequest(why));
    }
    match_namespace(new, &text(&old.namespace))?;
    let (new_uid, old_uid) = (text(&new.uid), text(&old.uid));
    let (new_version, old_version) = (text(&new.resource_version), text(&old.resource_version));
    let refused = |why: &str| {
        Err(Refused::Conflict(format!(
            "Operation cannot be fulfilled on jobs.batch {}: {why}",
            types::go::quote(&old_name)
        )))
    };
    if !new_uid.is_empty() && new_uid != old_uid {
        return refused(&format!(
            "Precondition failed: UID in precondition: {new_uid}, UID in object meta: {old_uid}"
        ));
    }
    if !new_version.is_empty() && new_version != "0" && new_version != old_version {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        return refused(why);
    }
    begin_update(new, old);
    Ok(())
}

fn invalid_if_any(mut errors: Errors, job: &Job, sent: &Value) -> Result<(), Refused> {
    if errors.is_empty() {
        return Ok(());
    }
    let typed = serde_json::to_value(job).expect("a Job is JSON");
    field::print_as_sent(&mut errors, &typed, &wire::untyped(job, sent));
    Err(Refused::Invalid(errors))
}
