//! What the operator asks of clusters, and so what it has to be allowed: one table, from which everything that is
//! installed is written.
//!
//! A test has the operator take Jobs through their lives under these rules alone and records what it asks: nothing may
//! be refused, and no rule may be left over.

use std::collections::BTreeSet;

use rules::dispatch::{Adapter, adapter::Back};
use rules::framework::{Kind, apps::STATEFUL_SET, custom::ALL};
use rules::provisioning::{POD_TEMPLATE, REQUEST};
use serde_json::{Value, json};

use crate::{Settings, definitions, jobs::OWNERS, kinds, leader::LEASE, visibility};

/// Something that is asked of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Whether it is asked about the operator's own namespace alone.
    pub at_home: bool,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// Resources, as they are called in paths, with `/status` and the like.
    pub resources: Vec<String>,
    /// The objects, if it is asked about these alone.
    pub names: Vec<String>,
    /// What is done with them.
    pub verbs: Vec<&'static str>,
    /// What for.
    pub why: &'static str,
}

const KUEUE: &str = "kueue.x-k8s.io";
const WATCH: [&str; 2] = ["list", "watch"];
const GUARDED: &str = "what is made for an object is owned by it, which some clusters guard";

fn ask<R: ToString>(group: &'static str, resources: &[R], verbs: &[&'static str], why: &'static str) -> Ask {
    let (resources, verbs) = (resources.iter().map(ToString::to_string).collect(), verbs.to_vec());
    Ask { at_home: false, group, resources, names: Vec::new(), verbs, why }
}

impl Ask {
    fn at_home(self) -> Ask {
        Ask { at_home: true, ..self }
    }

    fn of(self, names: impl IntoIterator<Item = impl Into<String>>) -> Ask {
        Ask { names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// As a rule of a role.
    pub fn rule(&self) -> Value {
        let mut rule = json!({ "apiGroups": [self.group], "resources": self.resources, "verbs": self.verbs });
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }
}

/// What the operator asks of the cluster that it runs on under these settings.
pub fn operator(settings: &Settings) -> Vec<Ask> {
    let mut asks = queues();
    asks.extend(jobs());
    asks.extend(pods(settings));
    asks.extend(other_jobs(settings));
    asks.extend(nodes());
    asks.extend(owners());
    asks.extend(surroundings());
    asks.extend(itself());
    asks
}

fn queues() -> Vec<Ask> {
    let statuses = [
        "admissionchecks/status",
        "clusterqueues/status",
        "cohorts/status",
        "localqueues/status",
        "multikueueclusters/status",
        "workloads/status",
    ];
    vec![
        ask(
            KUEUE,
            &["workloads"],
            &["list", "watch", "create", "patch", "delete"],
            "every job in a queue has a Workload",
        ),
        ask(
            KUEUE,
            &["admissionchecks", "clusterqueues", "resourceflavors"],
            &["list", "watch", "patch"],
            "queues, and a finalizer on what is in use",
        ),
        ask(
            KUEUE,
            &[
                "cohorts",
                "localqueues",
                "multikueueclusters",
                "multikueueconfigs",
                "provisioningrequestconfigs",
                "topologies",
                "workloadpriorityclasses",
            ],
            &WATCH,
            "what decides about queues and workers",
        ),
        ask(KUEUE, &statuses, &["patch"], "what is shown of them"),
    ]
}

fn jobs() -> Vec<Ask> {
    let life = ["list", "watch", "patch", "delete"];
    vec![
        ask("batch", &["jobs"], &life, "Jobs start and stop as their quota says"),
        ask("batch", &["jobs/status"], &["patch"], "the status that a worker reports, and stops"),
        ask("batch", &["jobs/finalizers"], &["update"], GUARDED),
        ask(
            "",
            &["pods"],
            &["list", "watch", "patch"],
            "pods of elastic Jobs wait for their slice, those that are placed for their place, and others take room",
        ),
        ask("", &["nodes"], &WATCH, "where pods can be placed"),
    ]
}

/// Pods that are queued themselves, and what is made of them.
fn pods(settings: &Settings) -> Vec<Ask> {
    let mut asks = Vec::new();
    if settings.queues_pods() {
        let life = ["watch", "delete"];
        asks.push(ask("", &["pods"], &life, "pods start and stop as their quota says"));
        asks.push(ask("", &["pods/status"], &["patch"], "the status that a worker reports, and stops"));
        asks.push(ask("", &["pods/finalizers"], &["update"], GUARDED));
    }
    if settings.manages(&STATEFUL_SET) {
        asks.push(ask("apps", &["statefulsets"], &WATCH, "the pods of a StatefulSet start together"));
    }
    asks
}

/// The same for kinds that others define, as far as they are queued or dispatched.
fn other_jobs(settings: &Settings) -> Vec<Ask> {
    let mut wanted = kinds::wanted(settings);
    wanted.retain(|kind| ![REQUEST, POD_TEMPLATE].contains(kind));
    let managed: Vec<Kind> = ALL
        .iter()
        .map(|shape| shape.kind)
        .filter(|kind| settings.manages(kind) && wanted.contains(kind))
        .collect();
    let dispatched = settings.dispatch.kinds.iter().filter(|adapter| adapter.back != Back::Nothing);
    let dispatched = dispatched.map(|adapter| kinds::kind_of(adapter));
    let shown: BTreeSet<Kind> =
        managed.iter().copied().chain(dispatched).filter(|kind| wanted.contains(kind)).collect();
    let mut asks = Vec::new();
    for group in groups(wanted.iter().map(|kind| kind.group)) {
        let plurals = |kinds: &mut dyn Iterator<Item = &Kind>, part: &str| -> Vec<String> {
            kinds.filter(|kind| kind.group == group).map(|kind| format!("{}{part}", kind.plural)).collect()
        };
        asks.push(ask(group, &plurals(&mut wanted.iter(), ""), &WATCH, "jobs of kinds that others define"));
        let managed_here = plurals(&mut managed.iter(), "");
        if !managed_here.is_empty() {
            asks.push(ask(
                group,
                &managed_here,
                &["patch", "delete"],
                "they start and stop as their quota says",
            ));
            asks.push(ask(group, &plurals(&mut managed.iter(), "/finalizers"), &["update"], GUARDED));
        }
        let shown_here = plurals(&mut shown.iter(), "/status");
        if !shown_here.is_empty() {
            asks.push(ask(group, &shown_here, &["patch"], "the status that a worker reports"));
        }
    }
    asks
}

/// Nodes that an autoscaler is asked for.
fn nodes() -> Vec<Ask> {
    let (requests, templates) = (REQUEST.plural, POD_TEMPLATE.plural);
    let why = "nodes that an autoscaler is asked for";
    vec![
        ask(REQUEST.group, &[requests], &["list", "watch", "create", "delete"], why),
        ask(
            POD_TEMPLATE.group,
            &[templates],
            &["list", "watch", "create", "patch"],
            "for which pods that is",
        ),
        ask(REQUEST.group, &[format!("{requests}/finalizers")], &["update"], GUARDED),
        ask(KUEUE, &["workloads/finalizers"], &["update"], GUARDED),
    ]
}

fn owners() -> Vec<Ask> {
    let mut asks = Vec::new();
    for group in groups(OWNERS.iter().map(|(group, _, _)| *group)) {
        let of_group = OWNERS.iter().filter(|(its, _, _)| *its == group).map(|(_, _, plural)| *plural);
        asks.push(ask(group, &of_group.collect::<Vec<_>>(), &["get"], "whose part a Job is"));
    }
    asks
}

fn groups(all: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut groups: Vec<&'static str> = Vec::new();
    for group in all {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

fn surroundings() -> Vec<Ask> {
    vec![
        ask(
            "",
            &["limitranges", "namespaces"],
            &WATCH,
            "what pods may ask for, and which namespaces a queue is for",
        ),
        ask("node.k8s.io", &["runtimeclasses"], &WATCH, "what pods need beyond their containers"),
        ask("scheduling.k8s.io", &["priorityclasses"], &WATCH, "priority"),
        ask("events.k8s.io", &["events"], &["create"], "what is told about objects"),
    ]
}

/// What it needs to be there at all.
fn itself() -> Vec<Ask> {
    let definitions = definitions::names();
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let of_kueue = ["kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"];
    let extensions = "apiextensions.k8s.io";
    let registration = "admissionregistration.k8s.io";
    vec![
        ask("", &["namespaces"], &["get"], "its own namespace"),
        ask("coordination.k8s.io", &["leases"], &["create"], "only one acts at a time").at_home(),
        ask("coordination.k8s.io", &["leases"], &["get", "update"], "only one acts at a time")
            .of([LEASE])
            .at_home(),
        ask(
            "",
            &["secrets"],
            &["get", "list", "watch", "create"],
            "kubeconfigs of workers, certificates of webhooks",
        )
        .at_home(),
        ask(extensions, &["customresourcedefinitions"], &["list", "watch"], "which kinds there are"),
        ask(extensions, &["customresourcedefinitions"], &["create"], "definitions that are missing"),
        ask(extensions, &["customresourcedefinitions"], &["get", "patch"], "definitions that are its own")
            .of(definitions),
        ask(registration, &configurations, &["create"], "webhooks that make Jobs wait"),
        ask(registration, &configurations, &["list", "watch", "patch"], "webhooks that make Jobs wait")
            .of(of_kueue),
        ask(
            "apiregistration.k8s.io",
            &["apiservices"],
            &["list", "watch", "patch"],
            "by which authority the cluster knows whom it asks who waits",
        )
        .of(visibility::api_services()),
    ]
}

/// What a manager asks of its workers, if it sends jobs of these kinds there.
pub fn worker(kinds: &[&'static Adapter]) -> Vec<Ask> {
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    let mut asks = vec![
        ask(KUEUE, &["workloads"], &all, "the copy of a Workload waits for quota of the worker"),
        ask(KUEUE, &["workloads/status"], &["patch"], "a copy is deactivated before it goes"),
        ask(
            KUEUE,
            &["clusterqueues", "localqueues"],
            &["get", "list", "watch"],
            "which queues there are, and what is free",
        ),
        ask("", &["namespaces"], &["get"], "which cluster it is").of(["kube-system"]),
    ];
    for group in groups(kinds.iter().map(|kind| kind.group)) {
        let of_group = kinds.iter().filter(|kind| kind.group == group).map(|kind| kind.plural);
        asks.push(ask(group, &of_group.collect::<Vec<_>>(), &all, "mirrors"));
    }
    asks
}

/// What reading the logs of mirrors asks of a worker; given only on request.
pub fn logs() -> Vec<Ask> {
    vec![
        ask("", &["pods"], &["get", "list", "watch"], "the pods of mirrors"),
        ask("", &["pods/log"], &["get"], "what they write"),
    ]
}

/// A role with these rules: for the whole cluster, or for a namespace.
pub fn role<'a>(name: &str, namespace: Option<&str>, asks: impl IntoIterator<Item = &'a Ask>) -> Value {
    let rules: Vec<Value> = asks.into_iter().map(Ask::rule).collect();
    let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name }, "rules": rules,
    });
    if let Some(namespace) = namespace {
        role["metadata"]["namespace"] = json!(namespace);
    }
    role
}

/// The role of this name, given to a service account.
pub fn binding(name: &str, namespace: Option<&str>, account: (&str, &str)) -> Value {
    bound(name, namespace, name, account)
}

/// A role of any name, given to a service account.
pub fn bound(name: &str, namespace: Option<&str>, role: &str, account: (&str, &str)) -> Value {
    let (kind, of) =
        if namespace.is_some() { ("RoleBinding", "Role") } else { ("ClusterRoleBinding", "ClusterRole") };
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "namespace": account.0, "name": account.1 }],
    });
    if let Some(namespace) = namespace {
        binding["metadata"]["namespace"] = json!(namespace);
    }
    binding
}

#[cfg(test)]
mod tests {
    use rules::dispatch::adapter;

    use super::*;

    /// MK-RBAC-01, MK-RBAC-02, MK-EXT-04: a manager asks nothing of its workers but copies, mirrors, a look at queues and which
    /// cluster it is; what Kueue updates we patch. It writes no status of a mirror, and reads no Secrets and no nodes.
    #[test]
    fn mk_rbac_01_what_a_manager_asks_of_its_workers() {
        let kinds: Vec<&'static Adapter> = adapter::ALL.iter().collect();
        let asks = worker(&kinds);
        let verbs = |resource: &str| -> Vec<&str> {
            let found = asks.iter().find(|ask| ask.resources.iter().any(|it| it == resource));
            found.map(|ask| ask.verbs.clone()).unwrap_or_default()
        };
        let all = ["get", "list", "watch", "create", "patch", "delete"];
        assert_eq!(verbs("workloads"), all);
        assert_eq!(verbs("workloads/status"), ["patch"]);
        assert_eq!(verbs("clusterqueues"), ["get", "list", "watch"]);
        for adapter in &adapter::ALL {
            assert_eq!(verbs(adapter.plural), all, "{}", adapter.kind);
            assert_eq!(verbs(&format!("{}/status", adapter.plural)), Vec::<&str>::new(), "{}", adapter.kind);
        }
        let namespaces = asks.iter().find(|ask| ask.resources == ["namespaces"]).expect("asked for");
        assert_eq!(
            (&namespaces.verbs[..], &namespaces.names[..]),
            (&["get"][..], &["kube-system".to_owned()][..])
        );
        assert_eq!((verbs("secrets"), verbs("nodes")), (Vec::new(), Vec::new()));
        let jobs = worker(&[adapter::job()]);
        assert!(
            jobs.iter().flat_map(|ask| &ask.resources).all(|it| it != "pipelineruns"),
            "what is not sent is not asked"
        );
    }
}
