//! Every pod runs as a service account, and can show its token (3.5).

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use store::{Scope, Store};

use super::{CONTAINERS, find, forbidden};
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::Refusal;

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Asks of an account's pods that they use no other secrets than those that the account names.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
const EPHEMERAL: (&str, &str) = ("ephemeralContainers", "ephemeral container");
const MIRROR: &str = "kubernetes.io/config.mirror";
/// A controller makes the account of a new namespace; a pod may come before it.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Gives pods their service account and its token.
pub(in crate::admission) struct ServiceAccounts(pub(in crate::admission) Store);

impl Plugin for ServiceAccounts {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        (resource.group.as_str(), resource.plural.as_str()) == ("", "pods")
            && matches!(
                (operation, subresource),
                (Operation::Create, "") | (Operation::Update, "ephemeralcontainers")
            )
    }

    fn mutate<'a>(&'a self, request: &'a mut Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            if request.operation != Operation::Create {
                return Ok(());
            }
            let Some(mut pod) = request.object.take() else { return Ok(()) };
            let admitted = self.admit(&mut pod, request.namespace).await;
            request.object = Some(pod);
            admitted.map_err(|why| forbidden(request, &why))
        })
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(pod) = &request.object else { return Ok(()) };
            let is_new = request.operation == Operation::Create;
            if is_new && is_mirror(pod) {
                return expect_plain_mirror(pod).map_err(|why| forbidden(request, &why));
            }
            let name = object::text(pod, &["spec", "serviceAccountName"]);
            if name.is_empty() {
                let pod = object::text(pod, &["metadata", "name"]);
                let why = format!("no service account specified for pod {}/{pod}", request.namespace);
                return Err(forbidden(request, &why));
            }
            let account = self.account(request.namespace, name).await;
            let account = account.map_err(|why| forbidden(request, &why))?;
            if is_new {
                return expect_named_secrets(&account, pod).map_err(|why| forbidden(request, &why));
            }
            // Upstream does not make a refusal of this one.
            expect_named_in(&account, pod, &[EPHEMERAL]).map_err(Refusal::unknown)
        })
    }
}

impl ServiceAccounts {
    async fn admit(&self, pod: &mut Value, namespace: &str) -> Result<(), String> {
        if is_mirror(pod) {
            return expect_plain_mirror(pod);
        }
        if object::text(pod, &["spec", "serviceAccountName"]).is_empty() {
            pod["spec"]["serviceAccountName"] = json!(DEFAULT);
        }
        let name = object::text(pod, &["spec", "serviceAccountName"]).to_owned();
        // The older of the two names goes with it, as whoever reads pods expects.
        pod["spec"]["serviceAccount"] = json!(name);
        let account = self.account(namespace, &name).await?;
        let own = pod["spec"]["automountServiceAccountToken"].as_bool();
        if own.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
            mount(pod);
        }
        let secrets = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        if !secrets(&pod["spec"]["imagePullSecrets"]) && secrets(&account["imagePullSecrets"]) {
            pod["spec"]["imagePullSecrets"] = account["imagePullSecrets"].clone();
        }
        expect_named_secrets(&account, pod)
    }

    async fn account(&self, namespace: &str, name: &str) -> Result<Value, String> {
        let found = || find(&self.0, "", "serviceaccounts", namespace, name);
        if let Some(account) = found() {
            return Ok(account);
        }
        if name == DEFAULT {
            let resource = Registry::built_in().get("", "v1", "serviceaccounts");
            let resource = resource.expect("service accounts are served");
            let scope = Scope::object(&object::key(resource, namespace, name));
            let (view, mut watch) = self.0.view_and_watch(&scope);
            let is_there = view.list(&scope).next().is_some();
            // Whatever comes of it, one more look tells.
            if !is_there {
                drop(tokio::time::timeout(PATIENCE, watch.next()).await);
            }
        }
        found().ok_or_else(|| {
            let name_only = types::go::quote(name);
            format!(
                "error looking up service account {namespace}/{name}: serviceaccount {name_only} not found"
            )
        })
    }
}

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

/// A pod that only mirrors what a node runs by itself cannot ask for what the cluster keeps.
fn expect_plain_mirror(pod: &Value) -> Result<(), String> {
    if !object::text(pod, &["spec", "serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    if names_a_secret(&pod["spec"]) {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    let mut sources = list(&pod["spec"]["volumes"]).flat_map(|volume| list(&volume["projected"]["sources"]));
    if sources.any(|source| source["serviceAccountToken"].is_object()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    Ok(())
}

/// Where sources of volumes name a secret.
const SECRETS_OF_VOLUMES: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/flexVolume/secretRef/name",
    "/rbd/secretRef/name",
    "/secret/secretName",
    "/scaleIO/secretRef/name",
    "/iscsi/secretRef/name",
    "/storageos/secretRef/name",
    "/csi/nodePublishSecretRef/name",
];

/// Whether a pod wants to have any secret, wherever it names it.
fn names_a_secret(spec: &Value) -> bool {
    let is_named = |object: &Value, place: &str| {
        object.pointer(place).and_then(Value::as_str).is_some_and(|name| !name.is_empty())
    };
    let volumes = || list(&spec["volumes"]);
    let projected = || volumes().flat_map(|volume| list(&volume["projected"]["sources"]));
    let containers =
        || [CONTAINERS[0], CONTAINERS[1], EPHEMERAL].into_iter().flat_map(|(field, _)| list(&spec[field]));
    list(&spec["imagePullSecrets"]).any(|secret| is_named(secret, "/name"))
        || containers().flat_map(|it| list(&it["envFrom"])).any(|from| is_named(from, "/secretRef/name"))
        || containers()
            .flat_map(|it| list(&it["env"]))
            .any(|variable| is_named(variable, "/valueFrom/secretKeyRef/name"))
        || volumes().any(|volume| SECRETS_OF_VOLUMES.iter().any(|place| is_named(volume, place)))
        || projected().any(|source| is_named(source, "/secret/name"))
}

/// A pod of an account that says so uses only the secrets that the account names.
fn expect_named_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let own = object::text(account, &["metadata", "name"]);
    for volume in list(&pod["spec"]["volumes"]).filter(|volume| volume["secret"].is_object()) {
        let secret = object::text(volume, &["secret", "secretName"]);
        if !names(account, "secrets", secret) {
            return Err(format!(
                "volume with secret.secretName=\"{secret}\" is not allowed because service account {own} does not \
                 reference that secret"
            ));
        }
    }
    let [containers, first_ones] = CONTAINERS;
    expect_named_in(account, pod, &[first_ones, containers])?;
    for (i, reference) in list(&pod["spec"]["imagePullSecrets"]).enumerate() {
        let secret = object::text(reference, &["name"]);
        if !names(account, "imagePullSecrets", secret) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{secret}\" is not allowed because service account {own} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// The same of what these lists of containers have in their environment.
fn expect_named_in(account: &Value, pod: &Value, of: &[(&str, &str)]) -> Result<(), String> {
    if !enforces(account) {
        return Ok(());
    }
    let own = object::text(account, &["metadata", "name"]);
    let expect = |from: &Value, what: &dyn Fn() -> String| {
        let secret = object::text(from, &["name"]);
        if from.is_null() || names(account, "secrets", secret) {
            return Ok(());
        }
        Err(format!(
            "{} referencing secret.secretName=\"{secret}\" is not allowed because service account {own} does not \
             reference that secret",
            what()
        ))
    };
    for (field, word) in of {
        for container in list(&pod["spec"][field]) {
            let container_name = object::text(container, &["name"]);
            for env in list(&container["env"]) {
                let name = object::text(env, &["name"]);
                let what = || format!("{word} {container_name} with envVar {name}");
                expect(&env["valueFrom"]["secretKeyRef"], &what)?;
            }
            for from in list(&container["envFrom"]) {
                expect(&from["secretRef"], &|| format!("{word} {container_name} with envFrom"))?;
            }
        }
    }
    Ok(())
}

fn enforces(account: &Value) -> bool {
    let said = account["metadata"]["annotations"][ENFORCE].as_str();
    said.is_some_and(|said| types::go::parse_bool(said) == Ok(true))
}

/// Whether a service account names a secret.
fn names(account: &Value, field: &str, secret: &str) -> bool {
    list(&account[field]).any(|reference| object::text(reference, &["name"]) == secret)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Mounts the token into every container that has nothing else in its place.
fn mount(pod: &mut Value) {
    let spec = &mut pod["spec"];
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let existing = volumes.iter().map(|volume| object::text(volume, &["name"]));
    let existing = existing.filter(|name| name.starts_with(VOLUME)).map(str::to_owned).next();
    let name = existing
        .clone()
        .unwrap_or_else(|| ::rules::meta::system::generated_name(VOLUME, &crate::cluster::identity().suffix));
    let mut is_needed = false;
    for (list, _) in CONTAINERS {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let mut mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            container["volumeMounts"] = json!(mounts);
            is_needed = true;
        }
    }
    if is_needed && existing.is_none() {
        let mut volumes = volumes;
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
        spec["volumes"] = json!(volumes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_pod_names_no_secrets() {
        let (secrets, tokens) = (
            "a mirror pod may not reference secrets",
            "a mirror pod may not use ServiceAccountToken volume projections",
        );
        let env = json!([{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
        let volume = |source: Value| json!({"volumes": [{"emptyDir": {}}, source]});
        let projected =
            |source: Value| volume(json!({"projected": {"sources": [{"configMap": {"name": "m"}}, source]}}));
        for (spec, expected) in [
            (json!({}), None),
            (
                json!({"serviceAccountName": "default"}),
                Some("a mirror pod may not reference service accounts"),
            ),
            (json!({"imagePullSecrets": [{"name": "s"}]}), Some(secrets)),
            (json!({"imagePullSecrets": [{"name": ""}, {}]}), None),
            (json!({"containers": [{"name": "a"}, {"name": "b", "env": env}]}), Some(secrets)),
            (json!({"initContainers": [{"name": "a", "env": env}]}), Some(secrets)),
            (
                json!({"ephemeralContainers": [{"name": "a", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
                Some(secrets),
            ),
            (json!({"containers": [{"name": "a", "envFrom": [{"configMapRef": {"name": "m"}}]}]}), None),
            (volume(json!({"secret": {"secretName": "s"}})), Some(secrets)),
            (volume(json!({"azureFile": {"secretName": "s"}})), Some(secrets)),
            (volume(json!({"csi": {"driver": "d", "nodePublishSecretRef": {"name": "s"}}})), Some(secrets)),
            (volume(json!({"csi": {"driver": "d"}})), None),
            (projected(json!({"secret": {"name": "s"}})), Some(secrets)),
            (projected(json!({"serviceAccountToken": {"path": "t"}})), Some(tokens)),
            (projected(json!({"downwardAPI": {}})), None),
        ]
        .into_iter()
        .chain(
            ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"]
                .map(|kind| (volume(json!({(kind): {"secretRef": {"name": "s"}}})), Some(secrets))),
        ) {
            assert_eq!(expect_plain_mirror(&json!({"spec": spec})).err().as_deref(), expected, "{spec}");
        }
    }

    #[test]
    fn an_account_can_keep_pods_to_its_secrets() {
        let account = |enforce: &str| {
            json!({
                "metadata": {"name": "own", "annotations": {ENFORCE: enforce}},
                "secrets": [{"name": "a"}],
                "imagePullSecrets": [{"name": "p"}],
            })
        };
        let env = |secret: &str| json!([{"name": "plain", "value": "v"}, {"name": "E", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
        let with = |field: &str, container: Value| json!({field: [container]});
        let end = "does not reference that secret";
        for (spec, expected) in [
            (json!({}), None),
            (json!({"volumes": [{"emptyDir": {}}, {"secret": {"secretName": "a"}}]}), None),
            (
                json!({"volumes": [{"secret": {"secretName": "b"}}]}),
                Some(format!(
                    r#"volume with secret.secretName="b" is not allowed because service account own {end}"#
                )),
            ),
            (with("containers", json!({"name": "c", "env": env("a"), "envFrom": [{"secretRef": {"name": "a"}}]})), None),
            (
                with("containers", json!({"name": "c", "env": env("b")})),
                Some(format!(
                    r#"container c with envVar E referencing secret.secretName="b" is not allowed because service account own {end}"#
                )),
            ),
            (
                with("initContainers", json!({"name": "c", "envFrom": [{"configMapRef": {"name": "b"}}, {"secretRef": {"name": "b"}}]})),
                Some(format!(
                    r#"init container c with envFrom referencing secret.secretName="b" is not allowed because service account own {end}"#
                )),
            ),
            (json!({"imagePullSecrets": [{"name": "p"}]}), None),
            (
                json!({"imagePullSecrets": [{"name": "p"}, {"name": "a"}]}),
                Some(
                    r#"imagePullSecrets[1].name="a" is not allowed because service account own does not reference that imagePullSecret"#
                        .to_owned(),
                ),
            ),
        ] {
            let pod = json!({"spec": spec});
            assert_eq!(expect_named_secrets(&account("true"), &pod).err(), expected, "{pod}");
            for enforce in ["false", "yes", ""] {
                assert_eq!(expect_named_secrets(&account(enforce), &pod), Ok(()));
            }
        }
        let late = json!({"spec": with("ephemeralContainers", json!({"name": "c", "env": env("b")}))});
        assert_eq!(expect_named_secrets(&account("1"), &late), Ok(()));
        let told = format!(
            r#"ephemeral container c with envVar E referencing secret.secretName="b" is not allowed because service account own {end}"#
        );
        assert_eq!(expect_named_in(&account("1"), &late, &[EPHEMERAL]), Err(told));
    }
}
