//! Who acts on the queues of a cluster, or would: by the Lease that an operator holds, and by its Deployment.
//!
//! Operators take turns by a Lease of one name in their namespace. In two namespaces there are two of them, and then nobody
//! waits for anybody.

use std::fmt;

use ::operator::leader::LEASE;
use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

use crate::connect::Manager;
use crate::failure;

/// The Deployment of Kueue, where Kueue is installed.
pub(crate) const KUEUE: &str = "kueue-controller-manager";
/// How long a Lease lasts that does not say.
const LASTS: i32 = 15;

/// A program that is to act on queues, if it is its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The Leases of operators: of all namespaces, or of the operator's own for who may not read more.
pub(crate) async fn leases(manager: &Manager) -> anyhow::Result<Vec<Lease>> {
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let all: Api<Lease> = Api::all(manager.client.clone());
    let listed = all.list(&named).await.context("failed to look for the Leases of operators");
    match listed {
        Err(error) if failure::is_forbidden(&error) => {
            let own: Api<Lease> = Api::namespaced(manager.client.clone(), &manager.operator_namespace);
            let own = own.get_opt(LEASE).await.context("failed to read the Lease of the operator")?;
            Ok(own.into_iter().collect())
        }
        listed => Ok(listed?.items),
    }
}

/// Who holds a Lease and has renewed it in time.
pub(crate) fn actor(lease: &Lease, now: Timestamp) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let lasts = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(LASTS)));
    let age = now.duration_since(spec.renew_time.as_ref()?.0);
    let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
    (age <= lasts).then(|| format!("{holder} of namespace {namespace}"))
}

/// The programs that are to act, wherever they are installed.
pub(crate) async fn programs(manager: &Manager) -> anyhow::Result<Vec<Program>> {
    let ferry = "app.kubernetes.io/name=ferry,app.kubernetes.io/component=operator";
    let ferry = ListParams::default().labels(ferry);
    let kueue = ListParams::default().fields(&format!("metadata.name={KUEUE}"));
    let mut there = Vec::new();
    for params in [ferry, kueue] {
        for deployment in deployments(manager, &params).await? {
            let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            let (name, namespace) = (deployment.metadata.name, deployment.metadata.namespace);
            let program =
                Program { namespace: namespace.unwrap_or_default(), name: name.unwrap_or_default() };
            there.extend((replicas > 0).then_some(program));
        }
    }
    Ok(there)
}

async fn deployments(manager: &Manager, params: &ListParams) -> anyhow::Result<Vec<Deployment>> {
    let all: Api<Deployment> = Api::all(manager.client.clone());
    let listed = all.list(params).await.context("failed to look for operators");
    match listed {
        Err(error) if failure::is_forbidden(&error) => {
            let own: Api<Deployment> = Api::namespaced(manager.client.clone(), &manager.operator_namespace);
            Ok(own.list(params).await.context("failed to look for operators")?.items)
        }
        listed => Ok(listed?.items),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_has_not_renewed_his_lease_does_not_act() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let lease = |holder: &str| -> Lease {
            let renewed = "2026-01-01T00:00:00.000000Z";
            let spec = json!({ "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15 });
            serde_json::from_value(json!({ "metadata": { "namespace": "n" }, "spec": spec }))
                .expect("a Lease")
        };
        let begin = 1_767_225_600; // 2026-01-01T00:00:00Z
        assert_eq!(actor(&lease("a"), at(begin + 15)).as_deref(), Some("a of namespace n"));
        assert_eq!(actor(&lease("a"), at(begin + 16)), None);
        assert_eq!(actor(&lease(""), at(begin)), None);
        assert_eq!(actor(&Lease::default(), at(begin)), None);
    }
}
