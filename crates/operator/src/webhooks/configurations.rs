//! How a cluster is told whom to ask: the webhook configurations, by Kueue's names (WH-1, WH-2).

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rules::webhook::Kind;
use serde_json::{Value, json};
use tracing::warn;

use super::Asked;

/// Who writes the configurations.
const MANAGER: &str = "kueue-webhooks";
/// How long after a configuration was set again it is left as it is.
const PEACE: Duration = Duration::from_secs(1);
/// How long one stays away that somebody deleted, where the whole operator may be on its way out: longer than a pod takes to
/// stop that was told to.
pub(super) const UNINSTALLED: Duration = Duration::from_secs(30);

/// Whether a webhook changes objects or only judges them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It changes them.
    Mutating,
    /// It judges them.
    Validating,
}

impl Mode {
    pub(super) const BOTH: [Mode; 2] = [Mode::Mutating, Mode::Validating];

    fn kind(self) -> &'static str {
        match self {
            Mode::Mutating => "MutatingWebhookConfiguration",
            Mode::Validating => "ValidatingWebhookConfiguration",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Mode::Mutating => "kueue-mutating-webhook-configuration",
            Mode::Validating => "kueue-validating-webhook-configuration",
        }
    }

    /// Whether webhooks of this mode are asked about a kind.
    fn wants(self, asked: &Asked) -> bool {
        self == Mode::Validating || asked.defaulted
    }
}

/// The path on which a kind is asked about.
pub(super) fn path(mode: Mode, asked: &Asked) -> String {
    let mode = match mode {
        Mode::Mutating => "mutate",
        Mode::Validating => "validate",
    };
    let group = asked.group.replace('.', "-");
    format!("/{mode}-{group}-{}-{}", asked.version, asked.singular())
}

/// The name of the webhook that asks about a kind.
pub(super) fn name(mode: Mode, asked: &Asked) -> String {
    let letter = match mode {
        Mode::Mutating => 'm',
        Mode::Validating => 'v',
    };
    format!("{letter}{}.kb.io", asked.singular())
}

/// A configuration. `client` says how the server is reached on a path; Jobs of `namespaces` are not asked about.
pub(super) fn configuration(
    mode: Mode,
    asked: &[&Asked],
    client: impl Fn(&str) -> Value,
    namespaces: &[&str],
) -> Value {
    let webhooks = asked.iter().filter(|asked| mode.wants(asked)).map(|asked| {
        let is_new_only = mode == Mode::Mutating && !asked.kind.has_later_defaults();
        let operations = if is_new_only { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
        let mut resources = vec![asked.plural.to_owned()];
        if asked.status && mode == Mode::Validating {
            resources.push(format!("{}/status", asked.plural));
        }
        let mut webhook = json!({
            "name": name(mode, asked),
            "clientConfig": client(&path(mode, asked)),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "apiGroups": [asked.group], "apiVersions": [asked.version],
                "operations": operations, "resources": resources,
            }],
        });
        if asked.framework.is_some() {
            let excluded =
                json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces });
            webhook["namespaceSelector"] = json!({ "matchExpressions": [excluded] });
        }
        if asked.kind == Kind::Pod {
            webhook["matchConditions"] = conditions(mode);
        }
        webhook
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": mode.kind(),
        "metadata": { "name": mode.name() },
        "webhooks": webhooks.collect::<Vec<_>>(),
    })
}

/// The configurations before anybody is asked. They belong to what is installed, so that they go with it: one that is left over
/// would have the cluster wait for somebody who is gone. Without labels, since Kueue's may be there, and apart from its name
/// nothing is said of it.
pub(crate) fn unasked() -> [Value; 2] {
    Mode::BOTH.map(|mode| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": mode.kind(),
            "metadata": { "name": mode.name() },
        })
    })
}

/// Which pods are asked about: every other would only be slower. A new pod is, unless a Job controls it that says for its pods
/// what is to be said; a pod that changes is if it is marked as one that is queued, or was.
fn conditions(mode: Mode) -> Value {
    let marks = |object: &str, what: &str| {
        format!(
            "has({object}.metadata.{what}) && {object}.metadata.{what}.exists(k, k.startsWith('kueue.x-k8s.io/'))"
        )
    };
    let marked = |object: &str| format!("{} || {}", marks(object, "labels"), marks(object, "annotations"));
    let condition = match mode {
        Mode::Mutating => {
            let owners = "object.metadata.ownerReferences";
            let job = "o.kind == 'Job' && o.apiVersion == 'batch/v1' && has(o.controller) && o.controller";
            format!("{} || !(has({owners}) && {owners}.exists(o, {job}))", marked("object"))
        }
        Mode::Validating => {
            format!("{} || (oldObject != null && ({}))", marked("object"), marked("oldObject"))
        }
    };
    json!([{ "name": "may-be-queued", "expression": condition }])
}

/// Writes a configuration as it is to be, whatever was there. What others had written is gone: webhooks of theirs that
/// nobody answers any more would keep everything from being written that they are asked about.
pub(super) async fn write(cluster: &Client, mode: Mode, configuration: &Value) -> Result<(), kube::Error> {
    let api = api(cluster, mode);
    let webhooks = json!({ "webhooks": configuration["webhooks"] });
    let by_us = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(mode.name(), &by_us, &Patch::Merge(webhooks)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        done => return done.map(drop),
    }
    let patch = PatchParams::apply(MANAGER).force();
    api.patch(mode.name(), &patch, &Patch::Apply(configuration)).await.map(drop)
}

/// Keeps a configuration as it is to be, whoever changes or deletes it. One that was deleted stays away for some time: whoever
/// uninstalls us deletes it while we are still there.
pub(super) async fn keep(cluster: Client, mode: Mode, configuration: Value, away: Duration) {
    let seen = watcher::watch_object(api(&cluster, mode), mode.name()).default_backoff();
    let mut seen = Box::pin(seen);
    while let Some(object) = seen.next().await {
        // A watch that fails is started again.
        let Ok(object) = object else { continue };
        let there = object.as_ref().and_then(|object| object.data.get("webhooks"));
        if there.is_some_and(|there| is_as_wanted(there, &configuration["webhooks"])) {
            continue;
        }
        if object.is_none() {
            tokio::time::sleep(away).await;
        }
        warn!(configuration = mode.name(), "somebody changed the webhooks; they are set again");
        if let Err(error) = write(&cluster, mode, &configuration).await {
            warn!(configuration = mode.name(), error = %reconcile::chain(&error), "failed to set the webhooks");
        }
        // Whoever wants it otherwise, for good or ill, is not fought without a pause.
        tokio::time::sleep(PEACE).await;
    }
}

/// Whether a value says all that is wanted. A cluster adds to objects what nobody said, but not to lists.
fn is_as_wanted(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| there.get(key).is_some_and(|there| is_as_wanted(there, wanted)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there.iter().zip(wanted).all(|(there, wanted)| is_as_wanted(there, wanted))
        }
        _ => there == wanted,
    }
}

/// Takes a configuration away; it may be gone already.
pub(super) async fn remove(cluster: &Client, mode: Mode) -> Result<(), kube::Error> {
    match api(cluster, mode).delete(mode.name(), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done.map(drop),
    }
}

fn api(cluster: &Client, mode: Mode) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", mode.kind());
    Api::all_with(cluster.clone(), &ApiResource::from_gvk(&kind))
}

#[cfg(test)]
mod tests {
    use super::super::ASKED;
    use super::*;

    #[test]
    fn what_a_cluster_adds_is_not_what_somebody_changed() {
        let wanted = json!([{ "name": "a", "clientConfig": { "url": "u" } }, { "name": "b" }]);
        let check =
            |there: Value, expected: bool| assert_eq!(is_as_wanted(&there, &wanted), expected, "{there}");
        check(wanted.clone(), true);
        check(
            json!([{ "name": "a", "clientConfig": { "url": "u" }, "timeoutSeconds": 10 }, { "name": "b" }]),
            true,
        );
        check(json!([{ "name": "a", "clientConfig": { "url": "other" } }, { "name": "b" }]), false);
        check(json!([{ "name": "a", "clientConfig": { "url": "u" } }]), false);
        check(
            json!([{ "name": "a", "clientConfig": { "url": "u" } }, { "name": "b" }, { "name": "c" }]),
            false,
        );
    }

    #[test]
    fn wh_1_kueues_names_and_paths() {
        let said = |mode| {
            let asked: Vec<&Asked> = ASKED.iter().filter(|it| !matches!(it.kind, Kind::Custom(_))).collect();
            let client = |path: &str| json!({ "url": path });
            let configuration = configuration(mode, &asked, client, &["kube-system", "kueue-system"]);
            let webhooks = configuration["webhooks"].as_array().expect("webhooks").clone();
            let line = |webhook: &Value| {
                let rule = &webhook["rules"][0];
                format!(
                    "{} {} {} {}",
                    webhook["name"], webhook["clientConfig"]["url"], rule["operations"], rule["resources"]
                )
                .replace('"', "")
            };
            webhooks.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            said(Mode::Mutating),
            [
                "mclusterqueue.kb.io /mutate-kueue-x-k8s-io-v1beta2-clusterqueue [CREATE] [clusterqueues]",
                "mdeployment.kb.io /mutate-apps-v1-deployment [CREATE,UPDATE] [deployments]",
                "mjob.kb.io /mutate-batch-v1-job [CREATE] [jobs]",
                "mleaderworkerset.kb.io /mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset [CREATE,UPDATE] [leaderworkersets]",
                "mpod.kb.io /mutate--v1-pod [CREATE] [pods]",
                "mresourceflavor.kb.io /mutate-kueue-x-k8s-io-v1beta2-resourceflavor [CREATE] [resourceflavors]",
                "mstatefulset.kb.io /mutate-apps-v1-statefulset [CREATE,UPDATE] [statefulsets]",
                "mworkload.kb.io /mutate-kueue-x-k8s-io-v1beta2-workload [CREATE] [workloads]",
            ]
        );
        assert_eq!(
            said(Mode::Validating),
            [
                "vclusterqueue.kb.io /validate-kueue-x-k8s-io-v1beta2-clusterqueue [CREATE,UPDATE] [clusterqueues]",
                "vcohort.kb.io /validate-kueue-x-k8s-io-v1beta2-cohort [CREATE,UPDATE] [cohorts]",
                "vdeployment.kb.io /validate-apps-v1-deployment [CREATE,UPDATE] [deployments]",
                "vjob.kb.io /validate-batch-v1-job [CREATE,UPDATE] [jobs]",
                "vleaderworkerset.kb.io /validate-leaderworkerset-x-k8s-io-v1-leaderworkerset [CREATE,UPDATE] [leaderworkersets]",
                "vpod.kb.io /validate--v1-pod [CREATE,UPDATE] [pods]",
                "vresourceflavor.kb.io /validate-kueue-x-k8s-io-v1beta2-resourceflavor [CREATE,UPDATE] [resourceflavors]",
                "vstatefulset.kb.io /validate-apps-v1-statefulset [CREATE,UPDATE] [statefulsets]",
                "vworkload.kb.io /validate-kueue-x-k8s-io-v1beta2-workload [CREATE,UPDATE] [workloads,workloads/status]",
            ]
        );
    }

    #[test]
    fn wh_2_every_kind_of_job_is_asked_about_but_not_in_the_systems_own_namespaces() {
        let asked: Vec<&Asked> = ASKED.iter().collect();
        let client = |path: &str| json!({ "url": path });
        let configuration = configuration(Mode::Mutating, &asked, client, &["kube-system", "kueue-system"]);
        let webhooks = configuration["webhooks"].as_array().expect("webhooks");
        let of = |name: &str| webhooks.iter().find(|webhook| webhook["name"] == name).expect("a webhook");
        assert_eq!(of("mjobset.kb.io")["clientConfig"]["url"], "/mutate-jobset-x-k8s-io-v1alpha2-jobset");
        assert_eq!(of("mmpijob.kb.io")["clientConfig"]["url"], "/mutate-kubeflow-org-v2beta1-mpijob");
        assert_eq!(of("mraycluster.kb.io")["clientConfig"]["url"], "/mutate-ray-io-v1-raycluster");
        assert_eq!(
            of("mappwrapper.kb.io")["clientConfig"]["url"],
            "/mutate-workload-codeflare-dev-v1beta2-appwrapper"
        );
        let excluded = json!(["kube-system", "kueue-system"]);
        let jobs = ASKED.iter().filter(|asked| asked.framework.is_some());
        for asked in jobs {
            let webhook = of(&name(Mode::Mutating, asked));
            assert_eq!(webhook["namespaceSelector"]["matchExpressions"][0]["values"], excluded);
        }
        assert!(of("mworkload.kb.io").get("namespaceSelector").is_none());
    }
}
