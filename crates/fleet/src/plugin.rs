//! What the operator says to writes, asked without HTTP.

use std::sync::OnceLock;

use apiserver::admission::{Operation, Plugin, Request};
use apiserver::registry::Resource;
use apiserver::status::Refusal;
use futures::future::BoxFuture;
use operator::Operator;
use operator::webhooks::{ASKED, Asked};

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

fn asked(resource: &Resource) -> Option<&'static Asked> {
    ASKED.iter().find(|asked| {
        asked.group == resource.group && asked.version == resource.version && asked.plural == resource.plural
    })
}

impl Plugin for Webhooks {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        let Some(asked) = asked(resource) else { return false };
        let is_part = subresource.is_empty() || subresource == "status" && asked.status;
        matches!(operation, Operation::Create | Operation::Update) && is_part
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some((operator, asked)) = self.asked(request.resource) else { return Ok(()) };
            let Some(object) = &request.object else { return Ok(()) };
            if request.operation == Operation::Create && asked.defaulted {
                let after = operator.default(asked.kind, request.namespace, object).await;
                request.object = Some(after.map_err(|error| Refusal::internal(reconcile::chain(&error)))?);
            }
            Ok(())
        })
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some((operator, asked)) = self.asked(request.resource) else { return Ok(()) };
            let Some(object) = &request.object else { return Ok(()) };
            let said = operator.validate(asked.kind, request.namespace, object, request.old).await;
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
