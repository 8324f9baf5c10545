//! What a manager is on a worker: a service account, what it may do, and its token.

use std::time::Duration;

use ::operator::{Settings, deploy, rbac};
use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::connect::uid_of;
use crate::failure::{Code, Failure, Hint as _};
use crate::install::apply::Target;
use crate::output;

/// The label of what lets a manager in, with the manager's name for itself.
const MANAGER: &str = "ferry.dev/manager";
/// How long to wait for the worker to write a token.
const WRITTEN: Duration = Duration::from_secs(5);
/// What is asked for where no token is written: ten years. Clusters may give less.
const LIFETIME: i64 = 10 * 365 * 24 * 3600;
/// What helps where a token was about to be there.
const AGAIN: &str = "do it again: what was done is not done twice, and a token is asked for anew";

/// What a manager is let do on a worker.
pub(crate) struct Access<'a> {
    /// What tells this manager from others.
    pub(crate) identity: String,
    /// Where its account is.
    pub(crate) namespace: &'a str,
    /// Whether it may read logs.
    pub(crate) logs: bool,
}

/// What a management cluster is called on its workers: the beginning of what tells it from all clusters.
pub(crate) fn identity(uid: &str) -> String {
    uid.chars().take(8).collect()
}

/// What tells a cluster from all others. Whoever joins clusters has to know it.
pub(crate) async fn uid(cluster: &str, client: &Client) -> anyhow::Result<String> {
    uid_of(cluster, client).await?.ok_or_else(|| {
        let message =
            format!("failed to tell {cluster} from other clusters: its namespace kube-system cannot be read");
        Failure::new(Code::Forbidden, message).hint("ask for leave to get namespaces there").into()
    })
}

impl Access<'_> {
    /// The name of the account, its role and its token.
    pub(crate) fn name(&self) -> String {
        format!("ferry-manager-{}", self.identity)
    }

    /// Two managers of one worker would each delete what they find under their own name for themselves, which is the same
    /// unless somebody set it.
    pub(crate) async fn expect_no_other_manager(&self, worker: &Target) -> anyhow::Result<()> {
        let bindings: Api<ClusterRoleBinding> = Api::all(worker.client.clone());
        let all = bindings.list_metadata(&ListParams::default().labels(MANAGER)).await;
        let all = all.with_context(|| format!("failed to look for managers of {}", worker.name))?;
        let other = all.items.into_iter().filter_map(|it| it.metadata.name).find(|name| *name != self.name());
        match other {
            None => Ok(()),
            Some(other) => {
                let message =
                    format!("{} has another manager already, with the account {other}", worker.name);
                let hint = "let it leave there; or, if the operators have different origins: --shared";
                Err(Failure::new(Code::No, message).hint(hint).into())
            }
        }
    }

    pub(crate) async fn grant(&self, worker: &Target) -> anyhow::Result<()> {
        for object in self.objects() {
            worker.apply(&object).await?;
        }
        Ok(())
    }

    /// Takes everything away but the namespace, which may be others' too.
    pub(crate) async fn revoke(&self, worker: &Target) -> anyhow::Result<()> {
        for object in self.objects().iter().skip(1).rev() {
            worker.remove(object).await?;
        }
        Ok(())
    }

    fn objects(&self) -> Vec<Value> {
        let mut asks = rbac::worker(&Settings::default().dispatch.kinds);
        if self.logs {
            asks.extend(rbac::logs());
        }
        let name = self.name();
        let metadata = json!({ "name": name, "namespace": self.namespace });
        let mut named = metadata.clone();
        named["annotations"] = json!({ "kubernetes.io/service-account.name": name });
        let mut binding = rbac::binding(&name, None, (self.namespace, &name));
        binding["metadata"]["labels"] = json!({ MANAGER: self.identity });
        vec![
            deploy::namespace(self.namespace),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
            rbac::role(&name, None, &asks),
            binding,
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": named,
                "type": "kubernetes.io/service-account-token",
            }),
        ]
    }

    /// A token that does not end, as the worker's controller writes it into a Secret; where there is no such controller,
    /// one that ends late.
    pub(crate) async fn token(&self, worker: &Target) -> anyhow::Result<String> {
        let name = self.name();
        let secrets: Api<Secret> = Api::namespaced(worker.client.clone(), self.namespace);
        let token = |secret: Option<&Secret>| {
            let data = secret.and_then(|secret| secret.data.as_ref());
            data.and_then(|data| data.get("token")).and_then(|token| String::from_utf8(token.0.clone()).ok())
        };
        let is_written = move |secret: Option<&Secret>| token(secret).is_some();
        let waited = tokio::time::timeout(WRITTEN, await_condition(secrets, &name, is_written)).await;
        if let Ok(secret) = waited {
            let secret = secret.context("failed to wait for a token").hint(AGAIN)?;
            return token(secret.as_ref()).context("the token was taken away again").hint(AGAIN);
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(worker.client.clone(), self.namespace);
        let asked = json!({ "spec": { "audiences": [], "expirationSeconds": LIFETIME } });
        let asked: TokenRequest = serde_json::from_value(asked).context("failed to ask for a token")?;
        let answer = accounts.create_token_request(&name, &PostParams::default(), &asked).await;
        let answer = answer.with_context(|| format!("failed to get a token on {}", worker.name))?;
        let status = answer.status.context("the worker answered without a token").hint(AGAIN)?;
        output::line(format!(
            "{}: the token ends at {:.0}: repeat this command before",
            worker.name, status.expiration_timestamp.0
        ))?;
        Ok(status.token)
    }
}

/// How a worker is reached, by whomever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) server: String,
    /// In PEM, as base64.
    pub(crate) authority: Option<String>,
    pub(crate) server_name: Option<String>,
}

impl Address {
    /// A kubeconfig for whoever has this token.
    pub(crate) fn kubeconfig(&self, cluster: &str, token: &str) -> Value {
        let mut at = json!({ "server": self.server });
        if let Some(authority) = &self.authority {
            at["certificate-authority-data"] = json!(authority);
        }
        if let Some(name) = &self.server_name {
            at["tls-server-name"] = json!(name);
        }
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": cluster,
            "clusters": [{ "name": cluster, "cluster": at }],
            "users": [{ "name": "manager", "user": { "token": token } }],
            "contexts": [{ "name": cluster, "context": { "cluster": cluster, "user": "manager" } }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mk_conn_03_the_operator_takes_the_kubeconfig() {
        let server = "https://east.example:6443".to_owned();
        let address = Address { server, authority: Some("Y2E=".to_owned()), server_name: None };
        assert_eq!(rules::dispatch::kubeconfig::refuse(&address.kubeconfig("east", "t")), Ok(()));
    }

    #[test]
    fn logs_are_given_only_on_request() {
        let pods = |logs: bool| {
            Access { identity: "0".to_owned(), namespace: "n", logs }
                .objects()
                .iter()
                .any(|object| object.to_string().contains("pods/log"))
        };
        assert!(pods(true) && !pods(false));
    }
}
