//! The objects that a cluster has from its first moment (3.3): namespaces, default roles and bindings, priorities.
//!
//! All but the namespaces are a table of facts read off a real API server (`cargo run -p testkit --example
//! boot_objects`). What is missing is made; what somebody changed stays, but default roles and bindings that say so get
//! back what a version of Kubernetes gives them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use futures::future::try_join_all;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Collected};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rules::rbac::{Part, Rule, aggregated, missing};
use serde_json::{Value, json};
use store::Scope;

use crate::cluster::{Cluster, Handle};
use crate::kept;
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::Refusal;

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Makes what is missing, in a store that may have been in use before.
pub(crate) async fn ensure(cluster: &Cluster) -> Result<(), Refusal> {
    ensure_namespaces(cluster).await?;
    try_join_all(first_objects().iter().map(|object| ensure_object(cluster, object))).await?;
    Ok(())
}

/// Makes namespaces again that somebody deleted, until the cluster is gone (3.3).
pub(crate) async fn keep_namespaces(cluster: Handle) {
    let scopes = NAMESPACES.map(|name| Scope::resource("namespaces").namespace("").name(name));
    let put_right = |cluster: Cluster| async move { ensure_namespaces(&cluster).await };
    kept::keep(cluster, scopes.into(), put_right).await;
}

async fn ensure_namespaces(cluster: &Cluster) -> Result<(), Refusal> {
    let namespaces = NAMESPACES.map(|name| {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        async move { ensure_object(cluster, &namespace).await }
    });
    try_join_all(namespaces).await?;
    Ok(())
}

/// The table, with the rules of aggregated roles, which a real cluster's controller adds at once.
fn first_objects() -> &'static [Value] {
    static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let mut objects: Vec<Value> = serde_json::from_str(include_str!("bootstrap/objects.json"))
            .expect("the table of objects is JSON");
        aggregate(&mut objects);
        objects
    });
    &OBJECTS
}

/// Fills in the rules of roles that are made of others: of leaves first, because `admin` takes what `edit` took.
fn aggregate(objects: &mut [Value]) {
    for _ in 0..objects.len() {
        let before = objects.to_vec();
        let roles: Vec<(String, BTreeMap<String, String>, Vec<Rule>)> = before
            .iter()
            .filter(|object| object["kind"] == "ClusterRole")
            .map(|role| {
                let name = object::text(role, &["metadata", "name"]).to_owned();
                (name, read(&role["metadata"]["labels"]), read(&role["rules"]))
            })
            .collect();
        for role in objects.iter_mut().filter(|object| object["aggregationRule"].is_object()) {
            let selectors: Vec<LabelSelector> = read(&role["aggregationRule"]["clusterRoleSelectors"]);
            let parts = roles.iter().map(|(name, labels, rules)| -> Part<'_> { (name, labels, rules) });
            let rules = aggregated(object::text(role, &["metadata", "name"]), &selectors, parts);
            role["rules"] = json!(rules);
        }
        if objects == before {
            return;
        }
    }
}

async fn ensure_object(cluster: &Cluster, wanted: &Value) -> Result<(), Refusal> {
    let resource = resource_of(wanted);
    let meta = &wanted["metadata"];
    let (namespace, name) = (meta["namespace"].as_str().unwrap_or(""), meta["name"].as_str().unwrap_or(""));
    let stored = cluster.store().get(&object::key(resource, namespace, name));
    let collection = path(resource, namespace);
    match stored.map(|stored| object::read(&stored)) {
        None => send(cluster, Method::POST, &collection, wanted).await,
        Some(stored) => match reconciled(&stored, wanted) {
            None => Ok(()),
            Some(object) => send(cluster, Method::PUT, &format!("{collection}/{name}"), &object).await,
        },
    }
}

fn resource_of(object: &Value) -> &'static Resource {
    let version = object::text(object, &["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object::text(object, &["kind"]);
    Registry::built_in().of_kind(group, version, kind).expect("the table names kinds that are served")
}

fn path(resource: &Resource, namespace: &str) -> String {
    let prefix = if resource.group.is_empty() { "/api" } else { "/apis" };
    let scope = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    format!("{prefix}/{}{scope}/{}", resource.api_version(), resource.plural)
}

/// The stored object with what it lacks of the wanted one, if it lacks something and wants to be kept up to date.
fn reconciled(stored: &Value, wanted: &Value) -> Option<Value> {
    if object::text(stored, &["metadata", "annotations", AUTO_UPDATE]) != "true" {
        return None;
    }
    let mut object = stored.clone();
    for part in ["labels", "annotations"] {
        for (key, value) in wanted["metadata"][part].as_object().into_iter().flatten() {
            if stored["metadata"][part].get(key).is_none() {
                object["metadata"][part][key] = value.clone();
            }
        }
    }
    // The rules of aggregated roles are their parts'.
    if !wanted["rules"].is_null() && wanted["aggregationRule"].is_null() {
        let (mut rules, wanted): (Vec<Rule>, Vec<Rule>) = (read(&stored["rules"]), read(&wanted["rules"]));
        let lacking = missing(&rules, &wanted);
        if !lacking.is_empty() {
            rules.extend(lacking);
            object["rules"] = json!(rules);
        }
    }
    let (mut subjects, wanted): (Vec<Value>, Vec<Value>) =
        (read(&stored["subjects"]), read(&wanted["subjects"]));
    let before = subjects.len();
    for subject in wanted {
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    if subjects.len() > before {
        object["subjects"] = json!(subjects);
    }
    (object != *stored).then_some(object)
}

fn read<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// As the server itself; somebody else may be quicker.
async fn send(cluster: &Cluster, method: Method, path: &str, object: &Value) -> Result<(), Refusal> {
    let body = Bytes::from(serde_json::to_vec(object).expect("JSON prints"));
    let request = Request::builder().method(method).uri(path).header(header::USER_AGENT, "kube-apiserver");
    let answer = cluster.answer(request.body(body).expect("a request")).await;
    match answer.status() {
        StatusCode::CREATED | StatusCode::OK | StatusCode::CONFLICT => Ok(()),
        code => {
            let name = object::text(object, &["metadata", "name"]);
            let body = answer.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
            let status: Value = serde_json::from_slice(&body).unwrap_or_default();
            let why = object::text(&status, &["message"]);
            Err(Refusal::internal(format!("{name} was not made at {path}: {code}: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(kind: &str, name: &str) -> Value {
        let found = first_objects()
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("{kind} {name}")).clone()
    }

    #[tokio::test]
    async fn why_an_object_cannot_be_made_is_told() {
        let store = store::Store::open(store::Options::ephemeral()).expect("a store");
        store.close().await;
        let cluster = Cluster::open(store, rules::job::Settings::default()).await;
        let refused = cluster.err().expect("it takes nothing");
        assert!(refused.to_string().ends_with("503 Service Unavailable: the store is closed"), "{refused}");
    }

    /// API-14: the controllers of Jobs may do what the rules of Jobs say they need.
    #[test]
    fn api_14_roles_of_the_controllers_of_jobs() {
        use rules::job::roles;
        for (name, expected) in [
            ("system:controller:job-controller", &roles::JOB_CONTROLLER[..]),
            ("system:controller:ttl-after-finished-controller", &roles::TTL_AFTER_FINISHED),
        ] {
            let rules: Vec<Rule> = read(&first("ClusterRole", name)["rules"]);
            let mut got = std::collections::BTreeMap::<(String, String), Vec<String>>::new();
            for rule in &rules {
                for (group, resource) in
                    rule.api_groups.iter().flat_map(|group| rule.resources.iter().map(move |r| (group, r)))
                {
                    got.entry((group.clone(), resource.clone())).or_default().extend(rule.verbs.clone());
                }
            }
            for verbs in got.values_mut() {
                verbs.sort();
            }
            let expected = expected.iter().map(|rule| {
                let verbs = rule.verbs.iter().map(|&verb| verb.to_owned()).collect();
                ((rule.group.to_owned(), rule.resource.to_owned()), verbs)
            });
            assert_eq!(got, expected.collect(), "{name}");
        }
    }

    #[test]
    fn rule_3_3_aggregated_roles_have_the_rules_of_their_parts() {
        let rules = |name: &str| -> Vec<Rule> { read(&first("ClusterRole", name)["rules"]) };
        let (admin, edit, view) = (rules("admin"), rules("edit"), rules("view"));
        assert!(view.len() > 5 && missing(&edit, &view).is_empty() && missing(&admin, &edit).is_empty());
        let grant = |rule: &Rule| rule.resources.contains(&"rolebindings".to_owned());
        assert!(admin.iter().any(grant) && !edit.iter().any(grant));
    }

    #[test]
    fn rule_3_3_default_roles_get_back_what_they_lack_and_keep_what_they_were_given() {
        let wanted = first("ClusterRole", "system:basic-user");
        assert_eq!(reconciled(&wanted, &wanted), None);
        let mut stored = wanted.clone();
        let own = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        stored["rules"] = json!([own]);
        let rules: Vec<Rule> = read(&reconciled(&stored, &wanted).expect("it lacks rules")["rules"]);
        assert_eq!(json!(rules[0])["resources"], own["resources"]);
        assert!(missing(&rules, &read::<Vec<Rule>>(&wanted["rules"])).is_empty());
        stored["metadata"]["annotations"][AUTO_UPDATE] = json!("false");
        assert_eq!(reconciled(&stored, &wanted), None);
    }
}
