//! What is installed on a cluster so that the operator runs there: what `ferry install` applies and what the manifests
//! and the chart in `deploy/` are written from.

use serde_json::{Value, json};

use crate::{Settings, rbac};

/// The name of everything that is installed, but for the namespace.
pub const NAME: &str = "ferry";
/// The namespace, unless another one is asked for: Kueue's, since the Lease is there.
pub const NAMESPACE: &str = "kueue-system";
/// The Service by which the cluster reaches the webhooks.
pub const WEBHOOK_SERVICE: &str = "ferry-webhooks";
const WEBHOOK_PORT: u16 = 9443;
const METRICS_PORT: u16 = 8080;
/// The ConfigMap of the configuration file, and the name that the file has in it, as in Kueue's manifests.
const CONFIGURATION: &str = "ferry-configuration";
const CONFIGURATION_FILE: &str = "controller_manager_config.yaml";
const CONFIGURATION_DIRECTORY: &str = "/etc/ferry";

/// What is installed. Every text may be a placeholder of somebody who renders templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Where.
    pub namespace: String,
    /// The image that brings `ferry`.
    pub image: String,
    /// When the image is pulled.
    pub pull_policy: String,
    /// What the operator asks for, as quantities of cpu and memory.
    pub requests: (String, String),
    /// Kueue's configuration file, if there is one.
    pub configuration: Option<Configuration>,
}

/// A configuration file that is installed along with the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// What it says, in base64.
    pub text: String,
    /// Something that changes with it: the operator reads it when it starts, and is replaced when this changes.
    pub mark: String,
}

impl Default for Deployment {
    fn default() -> Self {
        Deployment {
            namespace: NAMESPACE.to_owned(),
            image: format!("ferry:{}", env!("CARGO_PKG_VERSION")),
            pull_policy: "IfNotPresent".to_owned(),
            requests: ("100m".to_owned(), "128Mi".to_owned()),
            configuration: None,
        }
    }
}

/// The operator's namespace.
pub fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Who the operator is, and what it is allowed.
pub fn access(namespace: &str, settings: &Settings) -> Vec<Value> {
    let (home, everywhere): (Vec<_>, Vec<_>) =
        rbac::operator(settings).into_iter().partition(|ask| ask.at_home);
    vec![
        labelled(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": NAME, "namespace": namespace },
        })),
        labelled(rbac::role(NAME, None, &everywhere)),
        labelled(rbac::binding(NAME, None, (namespace, NAME))),
        labelled(rbac::role(NAME, Some(namespace), &home)),
        labelled(rbac::binding(NAME, Some(namespace), (namespace, NAME))),
    ]
}

/// The operator itself, and the way to its webhooks and metrics.
pub fn operator(wanted: &Deployment) -> Vec<Value> {
    let port =
        |name: &str, port: u16, target: &str| json!({ "name": name, "port": port, "targetPort": target });
    let service = |name: &str, ports: Value| {
        labelled(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": wanted.namespace },
            "spec": { "selector": labels(), "ports": ports },
        }))
    };
    let configuration = wanted.configuration.iter().map(|configuration| {
        labelled(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": CONFIGURATION, "namespace": wanted.namespace },
            "binaryData": { CONFIGURATION_FILE: configuration.text },
        }))
    });
    let mut objects: Vec<Value> = configuration.collect();
    objects.extend([
        labelled(deployment(wanted)),
        service(WEBHOOK_SERVICE, json!([port("webhooks", 443, "webhooks")])),
        service("ferry-metrics", json!([port("metrics", METRICS_PORT, "metrics")])),
    ]);
    objects
}

/// One replica. The next one is ready, and answers webhooks, before it is its turn to act: the first gives it the Lease when
/// it goes.
fn deployment(wanted: &Deployment) -> Value {
    let arguments = [
        "operator".to_owned(),
        format!("--namespace={}", wanted.namespace),
        format!("--listen=0.0.0.0:{METRICS_PORT}"),
        format!("--webhook-listen=0.0.0.0:{WEBHOOK_PORT}"),
        format!("--webhook-service={WEBHOOK_SERVICE}"),
    ];
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "metrics" } });
    let container = json!({
        "name": "operator",
        "image": wanted.image,
        "imagePullPolicy": wanted.pull_policy,
        "args": arguments,
        "ports": [
            { "name": "metrics", "containerPort": METRICS_PORT },
            { "name": "webhooks", "containerPort": WEBHOOK_PORT },
        ],
        "readinessProbe": probe("/readyz"),
        "resources": { "requests": { "cpu": wanted.requests.0, "memory": wanted.requests.1 } },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
        },
    });
    let pod = json!({
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container],
    });
    let mut template = json!({ "metadata": { "labels": labels() }, "spec": pod });
    if let Some(configuration) = &wanted.configuration {
        configure(&mut template, configuration);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": NAME, "namespace": wanted.namespace },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels() },
            "template": template,
        },
    })
}

/// Lets the operator read its configuration file. What the arguments say counts more.
fn configure(template: &mut Value, configuration: &Configuration) {
    template["metadata"]["annotations"] = json!({ "ferry.dev/configuration": configuration.mark });
    template["spec"]["volumes"] =
        json!([{ "name": "configuration", "configMap": { "name": CONFIGURATION } }]);
    let container = &mut template["spec"]["containers"][0];
    container["volumeMounts"] =
        json!([{ "name": "configuration", "mountPath": CONFIGURATION_DIRECTORY, "readOnly": true }]);
    if let Some(arguments) = container["args"].as_array_mut() {
        arguments.push(format!("--config={CONFIGURATION_DIRECTORY}/{CONFIGURATION_FILE}").into());
    }
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "operator" })
}

fn labelled(mut object: Value) -> Value {
    object["metadata"]["labels"] = labels();
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_may_touch_secrets_and_leases_only_at_home() {
        for object in access("home", &Settings::default()) {
            let rules = object["rules"].as_array().cloned().unwrap_or_default();
            let guarded = |rule: &Value| {
                let resources = rule["resources"].as_array().cloned().unwrap_or_default();
                resources.iter().any(|it| it == "secrets" || it == "leases")
            };
            assert!(object["kind"] != "ClusterRole" || !rules.iter().any(guarded), "{object}");
            let wild = |rule: &Value| rule.to_string().contains('*') || rule.to_string().contains("escalate");
            assert!(!rules.iter().any(wild), "{object}");
        }
    }
}
