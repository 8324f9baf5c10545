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

/// The version in which all is read and written.
pub const VERSION: &str = "v1beta2";

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
    #[serde(default)]
    versions: Vec<Served>,
}

/// Whether a version is served.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Served {
    name: String,
    #[serde(default)]
    served: bool,
}

/// What a cluster has of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Missing,
    /// One of an earlier release of ours.
    Older,
    /// One that will do.
    Usable,
    /// Somebody else's that serves no [`VERSION`].
    Unusable,
}

/// How a cluster gets from one version of an object to the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversion {
    /// The cluster knows how: it is embedded and converts in this process.
    Embedded,
    /// By asking us, as a client configuration of `apiextensions.k8s.io/v1` says.
    Webhook(Value),
    /// Nobody does. An API server would change nothing but the name of the version, and drop every field that is called otherwise
    /// in the other one, as the checks of a queue are: so the older version is not served.
    Nobody,
}

impl Conversion {
    /// How a cluster does it that does not ask us.
    pub async fn without_us(client: &Client) -> Result<Conversion, Error> {
        let is_embedded = is_embedded(client).await.map_err(Error::Version)?;
        Ok(if is_embedded { Conversion::Embedded } else { Conversion::Nobody })
    }
}

/// Whether a cluster is one of ours.
pub async fn is_embedded(client: &Client) -> Result<bool, kube::Error> {
    Ok(client.apiserver_version().await?.git_version.contains("ferry"))
}

/// Why definitions did not come to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the cluster is.
    #[error("failed to read the version of the cluster")]
    Version(#[source] kube::Error),
    /// Reading one.
    #[error("failed to read the definition of {name}")]
    Read {
        /// Its name.
        name: String,
        /// What the cluster said.
        source: kube::Error,
    },
    /// Writing one.
    #[error("failed to install the definition of {name}")]
    Install {
        /// Its name.
        name: String,
        /// What the cluster said.
        source: kube::Error,
    },
    /// Somebody else's that is older than all that we know.
    #[error("what is installed of kueue.x-k8s.io is too old: {} not served in {VERSION}", names.join(", "))]
    Unusable {
        /// The names of those.
        names: Vec<&'static str>,
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
        if !is_converted(definition) {
            continue;
        }
        match conversion {
            Conversion::Embedded => {}
            Conversion::Webhook(client) => {
                let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
                definition["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
            }
            Conversion::Nobody => {
                let versions = definition["spec"]["versions"].as_array_mut().into_iter().flatten();
                for older in versions.filter(|version| version["name"] != VERSION) {
                    older["served"] = json!(false);
                }
            }
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

/// What a cluster has of each definition, by its name.
pub async fn states(client: &Client) -> Result<Vec<(&'static str, State)>, Error> {
    let api = definitions(client);
    let mut states = Vec::new();
    for name in NAMES {
        let there = api.get_opt(name).await;
        let there = there.map_err(|source| Error::Read { name: name.to_owned(), source })?;
        states.push((name, state(there.as_ref())));
    }
    Ok(states)
}

fn state(there: Option<&Definition>) -> State {
    match there {
        None => State::Missing,
        Some(there) if is_ours_and_older(there) => State::Older,
        Some(there) if !there.spec.versions.iter().any(|it| it.name == VERSION && it.served) => {
            State::Unusable
        }
        Some(_) => State::Usable,
    }
}

/// Refuses what nothing can be done with. It is somebody else's, so nothing is done about it either.
pub fn expect_usable(states: &[(&'static str, State)]) -> Result<(), Error> {
    let unusable = states.iter().filter(|(_, state)| *state == State::Unusable);
    let names: Vec<&str> = unusable.map(|(name, _)| *name).collect();
    if names.is_empty() { Ok(()) } else { Err(Error::Unusable { names }) }
}

/// Installs what is missing, brings up to date what is ours and older, leaves everything else as it is, and returns
/// when the cluster serves all of it. Where something cannot be used nothing is written.
pub async fn install(client: &Client, conversion: &Conversion) -> Result<(), Error> {
    let api = definitions(client);
    let states = states(client).await?;
    expect_usable(&states)?;
    for (name, state) in states {
        let failed = |source| Error::Install { name: name.to_owned(), source };
        match state {
            State::Missing => match create(client, &api, &one(name, conversion)).await {
                Ok(_) => info!(definition = %name, "installed"),
                // Somebody was faster; what they installed is theirs.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(source) => return Err(failed(source)),
            },
            State::Older => {
                let there = api.get(name).await.map_err(failed)?;
                let definition = one(name, if asks(&there) { &Conversion::Embedded } else { conversion });
                let patch = Patch::Merge(json!({
                    "metadata": { "annotations": definition["metadata"]["annotations"] },
                    "spec": definition["spec"],
                }));
                api.patch(name, &PatchParams::default(), &patch).await.map_err(failed)?;
                info!(definition = %name, "brought up to date");
            }
            // What was left by a release that did not mind.
            State::Usable if *conversion == Conversion::Nobody => {
                let there = api.get(name).await.map_err(failed)?;
                if is_converted(&one(name, conversion)) && !asks(&there) {
                    serve(&api, &there, false).await.map_err(failed)?;
                }
            }
            State::Usable | State::Unusable => {}
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

/// Whether a cluster asks somebody how to convert.
fn asks(definition: &Definition) -> bool {
    definition.spec.conversion["strategy"] == "Webhook"
}

/// Has the older version of one of our definitions served, or not.
async fn serve(api: &Api<Definition>, there: &Definition, served: bool) -> Result<(), kube::Error> {
    let Some(name) = there.metadata.name.as_deref().filter(|_| mark(there).is_some()) else { return Ok(()) };
    let older = there.spec.versions.iter().enumerate().filter(|(_, it)| it.name != VERSION);
    let steps = older.filter(|(_, it)| it.served != served).flat_map(|(at, it)| {
        let path = format!("/spec/versions/{at}");
        [
            json!({ "op": "test", "path": format!("{path}/name"), "value": it.name }),
            json!({ "op": "replace", "path": format!("{path}/served"), "value": served }),
        ]
    });
    let steps: Vec<Value> = steps.collect();
    if steps.is_empty() {
        return Ok(());
    }
    let steps: json_patch::Patch = serde_json::from_value(json!(steps)).expect("steps are a patch");
    api.patch(name, &PatchParams::default(), &Patch::Json::<()>(steps)).await.map(drop)
}

/// Has all definitions convert in this way from now on. Where Kueue was before, nobody answers any more whom its definitions
/// ask; they ask there again once we leave.
pub async fn convert_by(client: &Client, conversion: &Conversion) -> Result<(), Error> {
    let api = definitions(client);
    for definition in all(conversion).iter().filter(|definition| is_converted(definition)) {
        let name = definition["metadata"]["name"].as_str().expect("the table has names");
        let failed = |source| Error::Install { name: name.to_owned(), source };
        let Some(there) = api.get_opt(name).await.map_err(failed)? else { continue };
        // It is served only while somebody converts.
        let served = *conversion != Conversion::Nobody;
        if !served {
            serve(&api, &there, false).await.map_err(failed)?;
        }
        if let Some(patch) = converting(&there, definition["spec"].get("conversion")) {
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(failed)?;
        }
        if served {
            serve(&api, &there, true).await.map_err(failed)?;
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
    fn api_2_what_nobody_converts_is_not_served_in_the_older_version() {
        let definitions = all(&Conversion::Nobody);
        let served = |definition: &Value| {
            let versions = definition["spec"]["versions"].as_array().expect("versions").iter();
            let served = versions.filter(|version| version["served"] == true);
            served.map(|version| version["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
        };
        for definition in &definitions {
            let expected: &[&str] =
                if is_converted(definition) { &["v1beta2"] } else { &["v1beta1", "v1beta2"] };
            assert_eq!(served(definition), expected, "{}", definition["metadata"]["name"]);
        }
    }

    #[test]
    fn only_what_is_ours_and_older_is_replaced_and_what_is_too_old_is_refused() {
        let judged = |mark: Option<&str>, served: &[(&str, bool)]| {
            let kind = ApiResource::erase::<CustomResourceDefinition>(&());
            let versions =
                served.iter().map(|(name, served)| Served { name: (*name).to_owned(), served: *served });
            let spec = Spec { versions: versions.collect(), ..Spec::default() };
            let mut there = Definition::new("workloads", &kind, spec);
            there.metadata.annotations = mark.map(|mark| [(MARK.to_owned(), mark.to_owned())].into());
            state(Some(&there))
        };
        let both = [("v1beta1", true), ("v1beta2", true)];
        assert_eq!(state(None), State::Missing);
        assert_eq!(judged(None, &both), State::Usable, "Kueue's own");
        for mark in ["1902", "2000", "new"] {
            assert_eq!(judged(Some(mark), &both), State::Usable, "{mark}");
        }
        assert_eq!(judged(Some("1901"), &both), State::Older);
        assert_eq!(judged(Some("1901"), &[("v1beta1", true)]), State::Older, "ours are brought up to date");
        assert_eq!(judged(None, &[("v1beta1", true)]), State::Unusable, "of a Kueue that is too old");
        assert_eq!(judged(None, &[("v1beta1", true), ("v1beta2", false)]), State::Unusable);
    }
}
