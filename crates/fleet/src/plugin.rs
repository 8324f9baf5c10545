//! What the operator says to writes, asked without HTTP.

use std::borrow::Cow;
use std::sync::OnceLock;

use apiserver::admission::{Operation, Plugin, Request};
use apiserver::crd::conversion::Converter;
use apiserver::registry::Resource;
use apiserver::status::Refusal;
use futures::future::BoxFuture;
use operator::Operator;
use operator::webhooks::{ASKED, Asked};
use rules::conversion;
use serde_json::Value;

/// The operator of a cluster as one of its admission plugins. Before there is an operator it has nothing to say: nobody
/// else can reach the cluster then.
#[derive(Default)]
pub(crate) struct Webhooks {
    operator: OnceLock<Operator>,
}

impl Webhooks {
    /// From now on this one is asked.
    pub(crate) fn ask(&self, operator: Operator) {
        assert!(self.operator.set(operator).is_ok(), "a cluster has one operator");
    }

    /// Whom to ask about a kind, and as what.
    fn asked(&self, resource: &Resource) -> Option<(&Operator, &'static Asked)> {
        let (operator, asked) = (self.operator.get()?, asked(resource)?);
        operator.is_asked(asked).then_some((operator, asked))
    }
}

/// What is written in Kueue's older version is judged as what it means in the newer one.
fn asked(resource: &Resource) -> Option<&'static Asked> {
    ASKED.iter().find(|asked| {
        let is_version = asked.version == resource.version || asked.group == conversion::GROUP;
        asked.group == resource.group && asked.plural == resource.plural && is_version
    })
}

/// An object in another version of its group.
fn said_in<'a>(object: &'a Value, group: &str, version: &str) -> Result<Cow<'a, Value>, Refusal> {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    if group != conversion::GROUP || object["apiVersion"] == api_version {
        return Ok(Cow::Borrowed(object));
    }
    OlderVersions.convert(object, &api_version).map(Cow::Owned).map_err(Refusal::internal)
}

impl Plugin for Webhooks {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        let Some(asked) = asked(resource) else { return false };
        let is_part = subresource.is_empty() || subresource == "status" && asked.status;
        matches!(operation, Operation::Create | Operation::Update) && is_part
    }

    fn mutates(&self, operation: Operation, resource: &Resource) -> bool {
        asked(resource).is_some_and(|asked| match operation {
            Operation::Create => asked.defaulted && asked.kind.has_defaults(),
            Operation::Update => asked.kind.has_later_defaults(),
            _ => false,
        })
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some((operator, asked)) = self.asked(request.resource) else { return Ok(()) };
            let Some(object) = &request.object else { return Ok(()) };
            let object = said_in(object, asked.group, asked.version)?;
            let after = operator.default(asked.kind, request.namespace, &object).await;
            let after = after.map_err(|error| Refusal::internal(reconcile::chain(&error)))?;
            request.object = Some(said_in(&after, asked.group, &request.resource.version)?.into_owned());
            Ok(())
        })
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some((operator, asked)) = self.asked(request.resource) else { return Ok(()) };
            let Some(object) = &request.object else { return Ok(()) };
            let object = said_in(object, asked.group, asked.version)?;
            let old = request.old.map(|old| said_in(old, asked.group, asked.version)).transpose()?;
            let said = operator.validate(asked.kind, request.namespace, &object, old.as_deref());
            let (errors, warnings) = said.map_err(|error| Refusal::internal(reconcile::chain(&error)))?;
            for warning in warnings {
                request.warn(warning);
            }
            if errors.is_empty() {
                return Ok(());
            }
            let by = format!("v{}.kb.io", asked.singular());
            Err(Refusal::denied(&by, &rules::webhook::message(&errors)))
        })
    }
}

/// Kueue's older version, for clients that still speak it: what a webhook does on a cluster that is not ours.
pub(crate) struct OlderVersions;

impl Converter for OlderVersions {
    fn knows(&self, group: &str, _kind: &str) -> bool {
        group == conversion::GROUP
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        if let Some(version) = conversion::Version::of(api_version) {
            return conversion::convert(object, version).map_err(|why| why.to_string());
        }
        // A version that both sides know and this does not is the same but for its name.
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        Ok(object)
    }
}
