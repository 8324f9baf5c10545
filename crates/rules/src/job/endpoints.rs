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
use crate::meta::system::{Identity, begin_create, match_namespace, match_stored};
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
    let (mut new, old) = typed(body, stored);
    apply_defaults(&mut new);
    match_stored(&mut new.metadata, &old.metadata)?;
    prepare::for_update(&mut new, &old);

    let mut errors = validate_common(&new.metadata, &old.metadata);
    errors.extend(validate_update(&new, &old, settings));
    invalid_if_any(errors, &new, body)?;
    let warnings = warnings::on_update(&new, &old);
    let object = if new.spec == old.spec { with_spec_of(stored, new) } else { as_read(new) };
    Ok(Accepted { object, warnings })
}

/// A changed status. It never warns (W-04).
pub fn update_status(body: &Value, stored: &Value) -> Result<Accepted, Refused> {
    let (mut new, old) = typed(body, stored);
    apply_defaults(&mut new);
    match_stored(&mut new.metadata, &old.metadata)?;
    prepare::for_status_update(&mut new, &old);

    let mut errors = validate_common(&new.metadata, &old.metadata);
    errors.extend(validate_status_update(&new, &old));
    let sent = json!({"spec": stored["spec"], "status": body["status"]});
    invalid_if_any(errors, &new, &sent)?;
    Ok(Accepted { warnings: Vec::new(), object: with_spec_of(stored, new) })
}

/// The body of a change and what it changes. A spec that is left alone, as by most changes, is read once.
fn typed(body: &Value, stored: &Value) -> (Job, Job) {
    let old: Job = wire::typed(stored);
    if body["spec"] != stored["spec"] {
        return (wire::typed(body), old);
    }
    let given = |part: &str| body.get(part).filter(|part| !part.is_null());
    let new = Job {
        metadata: given("metadata").map(wire::typed).unwrap_or_default(),
        spec: old.spec.clone(),
        status: given("status").map(wire::typed),
    };
    (new, old)
}

/// A changed Job in canonical form, if all that has defaults is as it is stored and so has them.
pub fn settled(body: &Value, stored: &Value) -> Option<Value> {
    let mut job = body.clone();
    schema::settle(wire::named(wire::JOB), &mut job);
    let has_labels = job["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    (has_labels && job["spec"] == stored["spec"]).then_some(job)
}

/// A changed Job as it is read, when its spec is that of the stored one.
fn with_spec_of(stored: &Value, job: Job) -> Value {
    let mut job = wire::untyped(&Job { spec: None, ..job }, &Value::Null);
    schema::settle(wire::named(wire::JOB), &mut job);
    job["spec"] = stored["spec"].clone();
    job
}

/// What is stored gets its defaults once more when it is read. Storing forgets that a list was there if it was empty.
fn as_read(mut job: Job) -> Value {
    apply_defaults(&mut job);
    let mut job = wire::untyped(&job, &Value::Null);
    schema::settle(wire::named(wire::JOB), &mut job);
    job
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

fn invalid_if_any(mut errors: Errors, job: &Job, sent: &Value) -> Result<(), Refused> {
    if errors.is_empty() {
        return Ok(());
    }
    let typed = serde_json::to_value(job).expect("a Job is JSON");
    field::print_as_sent(&mut errors, &typed, &wire::untyped(job, sent));
    Err(Refused::Invalid(errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(patch: &Value) -> Value {
        let mut job = json!({
            "metadata": {"name": "n"},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
        });
        for (key, value) in patch.as_object().expect("an object") {
            job["metadata"][key] = value.clone();
        }
        job
    }

    fn created(patch: Value) -> Result<Accepted, Refused> {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let identity = Identity { uid: "u".to_owned(), now, suffix: "xxxxx".to_owned() };
        create(&body(&patch), "ns", identity, &Settings::default())
    }

    fn stored() -> Value {
        let mut job = created(json!({})).expect("a good Job").object;
        job["metadata"]["resourceVersion"] = json!("7");
        job
    }

    #[test]
    fn c_03_the_namespace_is_the_requests() {
        assert_eq!(created(json!({})).expect("a good Job").object["metadata"]["namespace"], "ns");
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        assert_eq!(created(json!({"namespace": "other"})).err(), Some(Refused::BadRequest(why.to_owned())));
    }

    #[test]
    fn c_05_a_new_job_has_no_version() {
        let why = "resourceVersion should not be set on objects to be created";
        assert_eq!(created(json!({"resourceVersion": "5"})).err(), Some(Refused::Internal(why.to_owned())));
        assert!(created(json!({"resourceVersion": "0"})).is_ok());
    }

    #[test]
    fn g_06_nothing_is_generated_again() {
        let mut new = stored();
        new["spec"]["selector"] = Value::Null;
        let Err(Refused::Invalid(errors)) = update(&new, &stored(), &Settings::default()) else {
            panic!("the selector is missing")
        };
        assert_eq!(errors[0].to_string(), "spec.selector: Required value");
    }

    #[test]
    fn api_04_s_54_versions_are_compared_where_they_are_given() {
        let with = |version: Value| {
            let mut new = stored();
            new["metadata"]["resourceVersion"] = version;
            new
        };
        for version in [json!(null), json!("7")] {
            assert!(update(&with(version.clone()), &stored(), &Settings::default()).is_ok());
            assert!(update_status(&with(version), &stored()).is_ok());
        }
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        let conflict = Some(Refused::Conflict(why.to_owned()));
        assert_eq!(update(&with(json!("6")), &stored(), &Settings::default()).err(), conflict);
        assert_eq!(update_status(&with(json!("6")), &stored()).err(), conflict);
    }

    #[test]
    fn u_04_another_uid_is_another_job() {
        let mut new = stored();
        new["metadata"]["uid"] = json!("other");
        let Err(Refused::Invalid(errors)) = update(&new, &stored(), &Settings::default()) else {
            panic!("the uid is another one")
        };
        let why = "metadata.uid: Invalid value: \"other\": field is immutable";
        assert_eq!(errors.iter().filter(|error| error.to_string() == why).count(), 2, "{errors:?}");
    }

    #[test]
    fn w_04_a_status_write_never_warns() {
        let mut dotted = stored();
        dotted["metadata"]["name"] = json!("a.b");
        let mut new = dotted.clone();
        new["status"] = json!({"startTime": "2025-01-01T00:00:00Z"});
        assert_eq!(update_status(&new, &dotted).expect("a good status").warnings, Vec::<String>::new());
        assert_eq!(created(json!({"name": "a.b"})).expect("a good Job").warnings.len(), 1);
    }
}
