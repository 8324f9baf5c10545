//! The metadata fields that belong to the server, on their way through a write.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::write::Refused;

/// What the server gives a new object. It is made where clocks and randomness are allowed.
#[derive(Debug, Clone)]
pub struct Identity {
    /// A fresh uid.
    pub uid: String,
    /// The moment of creation.
    pub now: Timestamp,
    /// Five random characters, appended to `generateName` where there is no name.
    pub suffix: String,
}

/// What a write answers when somebody else wrote first.
pub const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Generated names have at most this many characters before the random ones.
const MAX_GENERATED_BASE: usize = 58;

/// Takes away what a client may not set on a new object and sets what the server gives it (G-01). Returns whether the
/// name was generated.
pub fn begin_create(meta: &mut ObjectMeta, identity: Identity) -> bool {
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    meta.self_link = None;
    meta.uid = Some(identity.uid);
    // Times have a resolution of one second on the wire.
    let seconds = Timestamp::from_second(identity.now.as_second()).expect("the second of a time is a time");
    meta.creation_timestamp = Some(Time(seconds));

    let is_empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    let generates = is_empty(&meta.name) && !is_empty(&meta.generate_name);
    if generates {
        meta.name = meta.generate_name.as_ref().map(|base| generated_name(base, &identity.suffix));
    }
    generates
}

/// A name made of a base and random characters.
pub fn generated_name(base: &str, suffix: &str) -> String {
    let base: String = base.chars().take(MAX_GENERATED_BASE).collect();
    base + suffix
}

/// The namespace of an object is that of the request; it may be left out, but not be another one (C-03). Objects outside
/// of namespaces have none.
pub fn match_namespace(meta: &mut ObjectMeta, namespace: &str) -> Result<(), Refused> {
    let own = meta.namespace.as_deref().unwrap_or("");
    if !own.is_empty() && !namespace.is_empty() && own != namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refused::BadRequest(why.to_owned()));
    }
    meta.namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
    Ok(())
}

/// Whether an update speaks of the stored object and of its last version; what it leaves open is taken from there
/// (U-04, API-04). Another uid is left to be judged: only a PUT means another object by it, and that is its precondition.
pub fn match_stored(new: &mut ObjectMeta, old: &ObjectMeta) -> Result<(), Refused> {
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
    let (new_version, old_version) = (text(&new.resource_version), text(&old.resource_version));
    if !new_version.is_empty() && new_version != "0" && new_version != old_version {
        return Err(Refused::Conflict(MODIFIED.to_owned()));
    }
    begin_update(new, old);
    Ok(())
}

/// Keeps what an update cannot change, before it is judged (U-04).
fn begin_update(new: &mut ObjectMeta, old: &ObjectMeta) {
    new.generation = old.generation;
    if new.uid.as_ref().is_none_or(String::is_empty) {
        new.uid.clone_from(&old.uid);
    }
    if new.resource_version.as_ref().is_none_or(String::is_empty) {
        new.resource_version.clone_from(&old.resource_version);
    }
    if old.creation_timestamp.is_some() {
        new.creation_timestamp.clone_from(&old.creation_timestamp);
    }
    if old.deletion_timestamp.is_some() {
        new.deletion_timestamp.clone_from(&old.deletion_timestamp);
    }
    if new.deletion_grace_period_seconds.is_none() {
        new.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        let now = "2025-01-01T00:00:00.7Z".parse().expect("a time");
        Identity { uid: "fresh".to_owned(), now, suffix: "bcdfg".to_owned() }
    }

    #[test]
    fn g_01_system_fields_are_the_servers() {
        let mut meta = ObjectMeta {
            name: Some("n".to_owned()),
            uid: Some("mine".to_owned()),
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            deletion_grace_period_seconds: Some(5),
            self_link: Some("/x".to_owned()),
            ..ObjectMeta::default()
        };
        assert!(!begin_create(&mut meta, identity()));
        let created = "2025-01-01T00:00:00Z".parse().expect("a time");
        let expected = ObjectMeta {
            name: Some("n".to_owned()),
            uid: Some("fresh".to_owned()),
            creation_timestamp: Some(Time(created)),
            ..ObjectMeta::default()
        };
        assert_eq!(meta, expected);
    }

    #[test]
    fn g_01_names_are_generated_from_58_characters() {
        for (base, name) in [("job-", "job-bcdfg".to_owned()), (&"a".repeat(60), "a".repeat(58) + "bcdfg")] {
            let mut meta = ObjectMeta { generate_name: Some(base.to_owned()), ..ObjectMeta::default() };
            assert!(begin_create(&mut meta, identity()));
            assert_eq!(meta.name, Some(name));
        }
    }

    #[test]
    fn u_04_what_an_update_keeps() {
        let old = ObjectMeta {
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            generation: Some(3),
            creation_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            deletion_grace_period_seconds: Some(0),
            ..ObjectMeta::default()
        };
        let mut new = ObjectMeta { generation: Some(9), ..ObjectMeta::default() };
        begin_update(&mut new, &old);
        assert_eq!(new, old);
    }
}
