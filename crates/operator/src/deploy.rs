//! What is installed on a cluster so that the operator runs there: what `ferry install` applies and what the manifests
//! and the chart in `deploy/` are written from.

use serde_json::{Value, json};

use crate::{Settings, rbac, visibility, webhooks};

/// The name of everything that is installed, but for the namespace.
pub const NAME: &str = "ferry";
/// The namespace, unless another one is asked for: Kueue's, since the Lease is there.
pub const NAMESPACE: &str = "kueue-system";
/// The Service by which the cluster reaches the webhooks.
pub const WEBHOOK_SERVICE: &str = "ferry-webhooks";
/// The Service by which the cluster asks how to get from one version of an object to the other. It leads to pods that are not ready,
/// too: what is stored in the older version can only be read, and a pod be ready, once somebody answers.
pub const CONVERSION_SERVICE: &str = "ferry-conversion";
const WEBHOOK_PORT: u16 = 9443;
/// The Service by which the cluster asks who waits. It is not Kueue's, which stays for as long as Kueue does.
pub const VISIBILITY_SERVICE: &str = "ferry-visibility";
const VISIBILITY_PORT: u16 = 8082;
const CONTAINER: &str = "operator";
const METRICS_PORT: u16 = 8080;
/// How many seconds a pod that is to stop still takes what it is asked: by then, every node knows that it is on its way out and
/// asks another one.
const STAYS: u32 = 5;
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
    /// How many there are; left as it is, and one if it never was said, without a word.
    pub replicas: Option<Value>,
    /// Kueue's configuration file, if there is one.
    pub configuration: Option<Configuration>,
    /// What the operator is told beside all that.
    pub further_arguments: Vec<String>,
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
            replicas: None,
            configuration: None,
            further_arguments: Vec::new(),
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
        // What every API server behind another one needs: who asks for others, and who may ask.
        labelled(rbac::bound("ferry-auth-reader", Some(KUBE_SYSTEM), AUTH_READER, (namespace, NAME))),
        labelled(rbac::bound("ferry-auth-delegator", None, AUTH_DELEGATOR, (namespace, NAME))),
    ]
}

/// Roles that every cluster has.
const KUBE_SYSTEM: &str = "kube-system";
const AUTH_READER: &str = "extension-apiserver-authentication-reader";
const AUTH_DELEGATOR: &str = "system:auth-delegator";

/// How the cluster finds out whom to ask who waits (VI-1).
fn api_service(version: &str, namespace: &str) -> Value {
    labelled(json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": format!("{version}.{}", visibility::GROUP) },
        "spec": visibility::api_service(version, namespace, VISIBILITY_SERVICE),
    }))
}

/// The operator itself, and the way to its webhooks, its metrics and what it says of who waits.
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
    let mut conversion = service(CONVERSION_SERVICE, json!([port("conversion", 443, "webhooks")]));
    conversion["spec"]["publishNotReadyAddresses"] = json!(true);
    let mut objects: Vec<Value> = configuration.collect();
    objects.extend([
        labelled(deployment(wanted)),
        service(WEBHOOK_SERVICE, json!([port("webhooks", 443, "webhooks")])),
        conversion,
        service("ferry-metrics", json!([port("metrics", METRICS_PORT, "metrics")])),
        service(VISIBILITY_SERVICE, json!([port("visibility", 443, "visibility")])),
    ]);
    objects.extend(visibility::VERSIONS.map(|version| api_service(version, &wanted.namespace)));
    objects
}

/// The webhook configurations, which the operator fills in and which go with it. Those of Kueue have the same names: whoever finds
/// them there lets them be.
pub fn configurations() -> Vec<Value> {
    webhooks::unasked().to_vec()
}

/// The operator. When there is a next one it is ready, answers webhooks and says who waits, before it is its turn to act: the first gives it the Lease when
/// it goes.
fn deployment(wanted: &Deployment) -> Value {
    let mut arguments = vec![
        "operator".to_owned(),
        format!("--namespace={}", wanted.namespace),
        format!("--listen=0.0.0.0:{METRICS_PORT}"),
        format!("--webhook-listen=0.0.0.0:{WEBHOOK_PORT}"),
        format!("--webhook-service={WEBHOOK_SERVICE}"),
        format!("--conversion-service={CONVERSION_SERVICE}"),
        format!("--visibility-listen=0.0.0.0:{VISIBILITY_PORT}"),
        format!("--visibility-service={VISIBILITY_SERVICE}"),
    ];
    arguments.extend(wanted.further_arguments.iter().cloned());
    let probe = |path: &str| json!({ "httpGet": { "path": path, "port": "metrics" } });
    let container = json!({
        "name": CONTAINER,
        "image": wanted.image,
        "imagePullPolicy": wanted.pull_policy,
        "args": arguments,
        "ports": [
            { "name": "metrics", "containerPort": METRICS_PORT },
            { "name": "webhooks", "containerPort": WEBHOOK_PORT },
            { "name": "visibility", "containerPort": VISIBILITY_PORT },
        ],
        "readinessProbe": probe("/readyz"),
        "lifecycle": { "preStop": { "sleep": { "seconds": STAYS } } },
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
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": NAME, "namespace": wanted.namespace },
        "spec": {
            "selector": { "matchLabels": labels() },
            "template": template,
        },
    });
    if let Some(replicas) = &wanted.replicas {
        deployment["spec"]["replicas"] = replicas.clone();
    }
    deployment
}

/// The operator's containers in a Deployment that is there: one, unless somebody wants it otherwise.
fn containers(deployment: &Value) -> impl Iterator<Item = &Value> {
    let containers = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    containers.into_iter().flatten().filter(|it| it["name"] == CONTAINER)
}

/// The image of an operator that is there.
pub fn image(deployment: &Value) -> Option<&str> {
    containers(deployment).find_map(|it| it["image"].as_str()).filter(|image| !image.is_empty())
}

/// Where an operator that is there reads its configuration file, as it was told.
pub fn configured(deployment: &Value) -> Vec<String> {
    let arguments = containers(deployment).filter_map(|it| it["args"].as_array()).flatten();
    let mut arguments = arguments.filter_map(Value::as_str);
    let mut told = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument.starts_with("--config=") {
            told = vec![argument.to_owned()];
        } else if argument == "--config" {
            told = arguments.next().map(|path| format!("--config={path}")).into_iter().collect();
        }
    }
    told
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
    fn where_an_operator_reads_its_configuration() {
        let told = |arguments: Value| {
            let containers = json!([{ "name": "sidecar", "args": ["--config=/other"] }, { "name": "operator", "args": arguments }]);
            configured(&json!({ "spec": { "template": { "spec": { "containers": containers } } } }))
        };
        assert_eq!(told(json!(["operator", "--config=/etc/a", "--listen=x"])), ["--config=/etc/a"]);
        assert_eq!(told(json!(["operator", "--config", "/etc/a", "--listen=x"])), ["--config=/etc/a"]);
        assert_eq!(told(json!(["operator", "--listen=x"])), [""; 0]);
        assert_eq!(configured(&Value::Null), [""; 0]);
    }

    #[test]
    fn which_image_an_operator_has() {
        let with = |image: Value| {
            let containers =
                json!([{ "name": "sidecar", "image": "other" }, { "name": "operator", "image": image }]);
            json!({ "spec": { "template": { "spec": { "containers": containers } } } })
        };
        assert_eq!(image(&with(json!("registry.example/ferry:0.1.0"))), Some("registry.example/ferry:0.1.0"));
        assert_eq!((image(&with(json!(""))), image(&Value::Null)), (None, None));
    }

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
