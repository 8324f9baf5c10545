//! How objects of a defined kind are made and changed: the steps of a version, with the metadata that the server gives.

use rules::field::Errors;
use rules::meta::system::{Identity, begin_create, match_namespace, match_stored};
use rules::write::{Accepted, Refused};
use serde_json::Value;

use super::kind::Custom;
use crate::managed::Aside;
use crate::object;
use crate::strategy::Strategy;

impl Strategy for Custom {
    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        let version = self.version();
        let mut object = body.clone();
        let managers = Aside::taken(&mut object);
        let mut meta = object::meta(&object);
        match_namespace(&mut meta, namespace)?;
        begin_create(&mut meta, identity);
        let sent_version = meta.resource_version.take();
        object::set_meta(&mut object, &meta);
        version.prepare_create(&mut object);
        accepted(version.validate_create(&object))?;
        if sent_version.is_some_and(|version| version.parse::<u64>().is_ok_and(|version| version != 0)) {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Refused::Internal(why.to_owned()));
        }
        managers.put_back(&mut object);
        Ok(Accepted { warnings: version.warnings(&object, None), object })
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let version = self.version();
        let mut object = matched(body, stored)?;
        version.prepare_update(&mut object, stored);
        let mut warnings = Vec::new();
        accepted(version.validate_update(&object, stored, &mut warnings))?;
        warnings.extend(version.warnings(&object, Some(stored)));
        Ok(Accepted { object, warnings })
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let version = self.version();
        match_stored(&mut object::meta(body), &object::meta(stored))?;
        let object = version.with_status(stored, body);
        let mut warnings = Vec::new();
        accepted(version.validate_status_update(&object, stored, &mut warnings))?;
        Ok(Accepted { object, warnings })
    }
}

/// The body as a change of the stored object, if it is one.
fn matched(body: &Value, stored: &Value) -> Result<Value, Refused> {
    let mut object = body.clone();
    let mut meta = object::meta(&object);
    match_stored(&mut meta, &object::meta(stored))?;
    object::set_meta(&mut object, &meta);
    Ok(object)
}

fn accepted(errors: Errors) -> Result<(), Refused> {
    if errors.is_empty() { Ok(()) } else { Err(Refused::Invalid(errors)) }
}
