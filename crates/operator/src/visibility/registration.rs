//! How the cluster knows that it is us whom it asks: the APIServices that lead here carry our authority, whoever wrote
//! them. They are made and removed with the rest of an installation: one that is left over would make the cluster wait for
//! somebody who is gone.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::StreamExt as _;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rules::visibility::{GROUP, VERSIONS};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::certificate;

/// Who writes our authority into them.
const MANAGER: &str = "ferry-visibility";
/// How long after one was set it is left as it is.
const PEACE: Duration = Duration::from_secs(1);

/// The names of the APIServices.
pub(crate) fn names() -> [String; 2] {
    VERSIONS.map(|version| format!("{version}.{GROUP}"))
}

/// What an APIService says that leads to a Service of this namespace and name.
pub(crate) fn spec(version: &str, namespace: &str, service: &str) -> Value {
    json!({
        "group": GROUP, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
        "service": { "namespace": namespace, "name": service },
    })
}

/// What is wrong with an APIService, if it leads to our Service: the authority, in base64, or that it has none.
fn correction(spec: &Value, namespace: &str, service: &str, bundle: &str) -> Option<Value> {
    let is_ours = spec["service"]["namespace"] == namespace && spec["service"]["name"] == service;
    let is_right = spec["caBundle"] == bundle && spec["insecureSkipTLSVerify"] != true;
    let right = json!({ "spec": { "caBundle": bundle, "insecureSkipTLSVerify": false } });
    (is_ours && !is_right).then_some(right)
}

/// Keeps our authority, as it is at any time, in one of the APIServices, for as long as it leads to our Service.
pub(super) async fn keep(
    client: Client,
    name: String,
    service: (String, String),
    mut authority: certificate::Current,
) {
    loop {
        let bundle = BASE64.encode(authority.borrow_and_update().bundle());
        tokio::select! {
            () = keep_one(&client, &name, &service, &bundle) => return,
            () = certificate::replaced(&mut authority) => {}
        }
    }
}

async fn keep_one(client: &Client, name: &str, service: &(String, String), bundle: &str) {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let mut seen = Box::pin(watcher::watch_object(api.clone(), name).default_backoff());
    while let Some(object) = seen.next().await {
        let object = match object {
            Ok(Some(object)) => object,
            Ok(None) => {
                info!(api_service = name, "there is none, so the cluster does not ask who waits");
                continue;
            }
            // A watch that fails is started again.
            Err(error) => {
                let error = reconcile::chain(&error);
                warn!(api_service = name, %error, "failed to watch how the cluster finds who waits");
                continue;
            }
        };
        let Some(patch) = correction(&object.data["spec"], &service.0, &service.1, bundle) else { continue };
        let by_us = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch(name, &by_us, &Patch::Merge(patch)).await {
            Ok(_) => info!(api_service = name, "the cluster knows our authority"),
            Err(error) => {
                let error = reconcile::chain(&error);
                warn!(api_service = name, %error, "failed to tell the cluster our authority");
            }
        }
        // Whoever wants it otherwise is not fought without a pause.
        tokio::time::sleep(PEACE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vi_1_only_what_leads_to_us_gets_our_authority() {
        let right = json!({ "spec": { "caBundle": "b", "insecureSkipTLSVerify": false } });
        let check = |spec: &Value, expected: Option<&Value>| {
            assert_eq!(correction(spec, "home", "ours", "b").as_ref(), expected, "{spec}");
        };
        let mut ours = spec("v1beta2", "home", "ours");
        check(&ours, Some(&right));
        ours["caBundle"] = json!("old");
        check(&ours, Some(&right));
        ours["caBundle"] = json!("b");
        check(&ours, None);
        ours["insecureSkipTLSVerify"] = json!(true);
        check(&ours, Some(&right));
        check(&spec("v1beta2", "home", "kueue-visibility-server"), None);
        check(&spec("v1beta2", "elsewhere", "ours"), None);
        check(&json!({ "group": GROUP, "version": "v1beta2" }), None);
    }
}
