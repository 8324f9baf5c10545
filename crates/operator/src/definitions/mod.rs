//! Kueue's custom resources as definitions, and how they come to a cluster.
//!
//! What a field may be is a table of facts, taken from the definitions of Kueue v0.19.2 without their prose (a test
//! holds them together and writes the table anew when asked). What a field means is said in our own words, in
//! `words`.

mod words;

use std::io::Read as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionStatus,
};
use kube::api::{ApiResource, Object, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::info;

/// Made by `UPDATE_DEFINITIONS=1 cargo test -p operator --test it definitions`.
static FACTS: &[u8] = include_bytes!("kueue-v0.19.2.json.gz");

/// The release whose definitions these are, as a number that grows. A cluster is told by [`MARK`].
const RELEASE: u32 = 1902;
/// The annotation that says which of our releases a definition is of.
const MARK: &str = "ferry.dev/definitions";
/// The annotation that says how a definition of somebody else's converted before we were asked.
const BEFORE: &str = "ferry.dev/converted-before";

/// Every kind, by the name of its definition.
const NAMES: [&str; 11] = [
    "admissionchecks.kueue.x-k8s.io",
    "clusterqueues.kueue.x-k8s.io",
    "cohorts.kueue.x-k8s.io",
    "localqueues.kueue.x-k8s.io",
    "multikueueclusters.kueue.x-k8s.io",
    "multikueueconfigs.kueue.x-k8s.io",
    "provisioningrequestconfigs.kueue.x-k8s.io",
    "resourceflavors.kueue.x-k8s.io",
    "topologies.kueue.x-k8s.io",
    "workloadpriorityclasses.kueue.x-k8s.io",
    "workloads.kueue.x-k8s.io",
];

/// A definition as it is read: without its schemas, which take more memory than all else that an operator holds.
type Definition = Object<Spec, CustomResourceDefinitionStatus>;

/// What is read of what a definition says.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Spec {
    #[serde(default, skip_serializing_if = "Value::is_null")]
    conversion: Value,
}

/// How a cluster gets from one version of an object to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversion {
    /// The cluster knows how: it is embedded and converts in this process.
    Embedded,
    /// By asking us, as a client configuration of `apiextensions.k8s.io/v1` says.
    Webhook(Value),
}

/// Why definitions did not come to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or writing one.
    #[error("failed to install the definition of {name}")]
    Install {
        /// Its name.
        name: String,
        /// What the cluster said.
        source: kube::Error,
    },
    /// It was written, and the cluster does not serve it.
    #[error("the definition of {name} is there, but the cluster does not serve it")]
    Established {
        /// Its name.
        name: String,
        /// What went wrong while waiting for it.
        source: kube::runtime::wait::Error,
    },
}

/// Every definition, by name.
pub fn all(conversion: &Conversion) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(FACTS).read_to_string(&mut text).expect("the table is ours and whole");
    let mut definitions: Vec<Value> = serde_json::from_str(&text).expect("the table is JSON");
    for definition in &mut definitions {
        definition["metadata"]["annotations"] = json!({ MARK: RELEASE.to_string() });
        words::describe(definition);
        if let Conversion::Webhook(client) = conversion
            && is_converted(definition)
        {
            let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
            definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
        }
    }
    definitions
}

/// The names of all definitions.
pub fn names() -> Vec<String> {
    NAMES.map(str::to_owned).to_vec()
}

/// The definition of a name.
fn one(name: &str, conversion: &Conversion) -> Value {
    let found = all(conversion).into_iter().find(|definition| definition["metadata"]["name"] == name);
    found.expect("the table has every name")
}

fn definitions(client: &Client) -> Api<Definition> {
    Api::all_with(client.clone(), &ApiResource::erase::<CustomResourceDefinition>(&()))
}

/// Whether the versions of a kind differ in more than their name (API-2).
fn is_converted(definition: &Value) -> bool {
    let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
    ["LocalQueue", "ClusterQueue", "Cohort", "Workload", "MultiKueueCluster"].contains(&kind)
}

/// Installs what is missing, brings up to date what is ours and older, leaves everything else as it is, and returns
/// when the cluster serves all of it.
pub async fn install(client: &Client, conversion: &Conversion) -> Result<(), Error> {
    let api = definitions(client);
    for name in NAMES {
        let failed = |source| Error::Install { name: name.to_owned(), source };
        match api.get_opt(name).await.map_err(failed)? {
            None => match create(client, &api, &one(name, conversion)).await {
                Ok(_) => info!(definition = %name, "installed"),
                // Somebody was faster; what they installed is theirs.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(source) => return Err(failed(source)),
            },
            Some(there) if is_ours_and_older(&there) => {
                let definition = one(name, conversion);
                let patch = Patch::Merge(json!({
                    "metadata": { "annotations": definition["metadata"]["annotations"] },
                    "spec": definition["spec"],
                }));
                api.patch(name, &PatchParams::default(), &patch).await.map_err(failed)?;
                info!(definition = %name, "brought up to date");
            }
            Some(_) => {}
        }
    }
    for name in NAMES {
        let established = await_condition(api.clone(), name, is_established).await;
        established.map_err(|source| Error::Established { name: name.to_owned(), source })?;
    }
    Ok(())
}

/// Creates a definition, of which no more is read than of the others.
async fn create(
    client: &Client,
    api: &Api<Definition>,
    definition: &Value,
) -> Result<Definition, kube::Error> {
    let body = serde_json::to_vec(definition).map_err(kube::Error::SerdeError)?;
    let request = kube::core::Request::new(api.resource_url()).create(&PostParams::default(), body);
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

fn is_established(definition: Option<&Definition>) -> bool {
    let conditions = definition.and_then(|it| it.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Established" && it.status == "True")
}

/// Has all definitions convert in this way from now on. Where Kueue was before, nobody answers any more whom its definitions
/// ask; they ask there again once we leave.
pub async fn convert_by(client: &Client, conversion: &Conversion) -> Result<(), Error> {
    let api = definitions(client);
    for definition in all(conversion).iter().filter(|definition| is_converted(definition)) {
        let name = definition["metadata"]["name"].as_str().expect("the table has names");
        let failed = |source| Error::Install { name: name.to_owned(), source };
        let there = api.get_opt(name).await.map_err(failed)?;
        let patch = there.and_then(|there| converting(&there, definition["spec"].get("conversion")));
        if let Some(patch) = patch {
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)?;
        }
    }
    Ok(())
}

/// The patch that has a definition convert by `webhook`, or as it would without us; `None` if it was never changed.
fn converting(there: &Definition, webhook: Option<&Value>) -> Option<Value> {
    let before = annotation(there, BEFORE);
    let (mut conversion, mut patch) = match (webhook, mark(there).is_some()) {
        (Some(webhook), true) => (webhook.clone(), json!({})),
        (Some(webhook), false) => {
            let before = before.map_or_else(|| there.spec.conversion.to_string(), str::to_owned);
            (webhook.clone(), json!({ "metadata": { "annotations": { BEFORE: before } } }))
        }
        (None, true) => (json!({ "strategy": "None", "webhook": null }), json!({})),
        (None, false) => {
            let before = serde_json::from_str(before?).ok()?;
            (before, json!({ "metadata": { "annotations": { BEFORE: null } } }))
        }
    };
    // One that was reached in the one way is reached in the other from now on.
    if let Some(client) = conversion.pointer_mut("/webhook/clientConfig").and_then(Value::as_object_mut) {
        for way in ["url", "service"] {
            client.entry(way).or_insert(Value::Null);
        }
    }
    patch["spec"] = json!({ "conversion": conversion });
    Some(patch)
}

fn is_ours_and_older(definition: &Definition) -> bool {
    mark(definition).is_some_and(|release| release < RELEASE)
}

/// Which of our releases a definition is of, if it is ours.
fn mark(definition: &Definition) -> Option<u32> {
    annotation(definition, MARK)?.parse().ok()
}

fn annotation<'a>(definition: &'a Definition, name: &str) -> Option<&'a str> {
    definition.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_1_both_versions_are_served_and_the_newer_is_stored() {
        let definitions = all(&Conversion::Embedded);
        let named: Vec<&str> = definitions.iter().filter_map(|it| it["metadata"]["name"].as_str()).collect();
        assert_eq!(named, NAMES);
        for definition in &definitions {
            let kind = &definition["spec"]["names"]["kind"];
            let versions = definition["spec"]["versions"].as_array().expect("versions");
            let said: Vec<_> = versions
                .iter()
                .map(|version| (&version["name"], &version["served"], &version["storage"]))
                .map(|(name, served, stored)| (name.as_str(), served.as_bool(), stored.as_bool()))
                .collect();
            let expected =
                [(Some("v1beta1"), Some(true), Some(false)), (Some("v1beta2"), Some(true), Some(true))];
            assert_eq!(said, expected, "{kind}");
            let warning = versions[0]["deprecationWarning"].as_str();
            let deprecated = warning == Some("This version is deprecated. Use v1beta2 instead.");
            assert_eq!(deprecated, kind != "MultiKueueConfig", "{kind}");
        }
    }

    #[test]
    fn api_2_only_kinds_that_differ_are_converted_by_webhook() {
        let definitions = all(&Conversion::Webhook(json!({ "url": "https://127.0.0.1:1/convert" })));
        let converted: Vec<&str> = definitions
            .iter()
            .filter(|definition| definition["spec"]["conversion"]["strategy"] == "Webhook")
            .filter_map(|definition| definition["spec"]["names"]["plural"].as_str())
            .collect();
        assert_eq!(converted, ["clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"]);
    }

    #[test]
    fn only_what_is_ours_and_older_is_replaced() {
        let definition = |mark: Option<&str>| {
            let kind = ApiResource::erase::<CustomResourceDefinition>(&());
            let mut there = Definition::new("workloads", &kind, Spec::default());
            there.metadata.annotations = mark.map(|mark| [(MARK.to_owned(), mark.to_owned())].into());
            is_ours_and_older(&there)
        };
        assert!(!definition(None), "Kueue's own");
        assert!(!definition(Some("1902")) && !definition(Some("2000")) && !definition(Some("new")));
        assert!(definition(Some("1901")));
    }
}
