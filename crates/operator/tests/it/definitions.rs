//! Our definitions say what Kueue's say, field by field, and clusters take them.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use operator::definitions::{Conversion, all, install};
use serde_json::{Value, json};
use testkit::ControlPlane;
use testkit::go::Tools;

use crate::world::World;

/// What Kueue ships, by name, without prose and without what only its tools say.
fn upstream() -> Option<Vec<Value>> {
    let tools = Tools::for_test("crds")?;
    let directory = tools.module("sigs.k8s.io/kueue").join("config/components/crd/bases");
    let files = fs::read_dir(directory).expect("the module has definitions");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let definitions = paths.iter().map(|path| {
        let text = fs::read_to_string(path).expect("a readable file");
        let definition: Value = serde_saphyr::from_str(&text).expect("a definition");
        let mut facts = json!({
            "apiVersion": definition["apiVersion"],
            "kind": definition["kind"],
            "metadata": { "name": definition["metadata"]["name"] },
            "spec": definition["spec"],
        });
        without_prose(&mut facts["spec"], false);
        facts
    });
    Some(definitions.collect())
}

/// Takes the descriptions of schemas and columns away. A field of an object may be called `description` itself.
fn without_prose(value: &mut Value, names_fields: bool) {
    match value {
        Value::Object(fields) => {
            if !names_fields {
                fields.remove("description");
            }
            for (name, value) in fields {
                without_prose(value, name == "properties" && !names_fields);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without_prose(item, false)),
        _ => {}
    }
}

#[test]
fn definitions_are_kueues_field_by_field() {
    let Some(upstream) = upstream() else { return };
    if std::env::var_os("UPDATE_DEFINITIONS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/definitions/kueue-v0.19.2.json.gz");
        let mut file = GzEncoder::new(fs::File::create(path).expect("our own tree"), Compression::best());
        file.write_all(&serde_json::to_vec(&upstream).expect("JSON")).expect("written");
        file.finish().expect("written");
        return;
    }
    let mut ours = all(&Conversion::Embedded);
    assert_eq!(ours.len(), upstream.len());
    for (ours, upstream) in ours.iter_mut().zip(&upstream) {
        without_prose(&mut ours["spec"], false);
        let changes = json_patch::diff(&upstream["spec"], &ours["spec"]);
        assert!(changes.0.is_empty(), "{}: {changes:?}", upstream["metadata"]["name"]);
    }
}

/// A real API server stores of ours what it stores of Kueue's.
#[tokio::test]
async fn a_real_server_makes_the_same_of_them() -> anyhow::Result<()> {
    let Some(upstream) = upstream() else { return Ok(()) };
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = cluster.client();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    install(&client, &Conversion::Embedded).await?;
    for theirs in upstream {
        let name = theirs["metadata"]["name"].as_str().expect("a name").to_owned();
        let mut ours = serde_json::to_value(api.get(&name).await?.spec)?;
        without_prose(&mut ours, false);
        // The same name cannot be there twice: theirs goes to a group of its own.
        let mut theirs = theirs;
        theirs["spec"]["group"] = json!("kueue.example.com");
        theirs["metadata"]["name"] = json!(name.replace("kueue.x-k8s.io", "kueue.example.com"));
        let theirs: CustomResourceDefinition = serde_json::from_value(theirs)?;
        let stored = api.create(&PostParams::default(), &theirs).await?;
        let mut stored = serde_json::to_value(stored.spec)?;
        stored["group"] = ours["group"].clone();
        let changes = json_patch::diff(&stored, &ours);
        assert!(changes.0.is_empty(), "{name}: {changes:?}");
        api.delete(theirs.metadata.name.as_deref().expect("a name"), &DeleteParams::default()).await?;
    }
    install(&client, &Conversion::Embedded).await?;
    Ok(())
}

/// API-1: definitions of a newer release, and those of others, are left as they are; older ones of ours are brought up to
/// date.
async fn never_downgrades(client: &Client) -> anyhow::Result<()> {
    const MARK: &str = "ferry.dev/definitions";
    install(client, &Conversion::Embedded).await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let facts = async |name: &str| {
        let found = api.get(&format!("{name}.kueue.x-k8s.io")).await?;
        anyhow::Ok((found.metadata.generation, found.metadata.annotations.unwrap_or_default(), found.spec))
    };
    let ours = facts("workloads").await?;
    let kinds = [("workloads", json!("999999")), ("cohorts", Value::Null), ("localqueues", json!("1901"))];
    for (name, mark) in &kinds {
        // Another release has another word for it, and no two kinds have the same.
        let other = Patch::Merge(json!({
            "metadata": { "annotations": { MARK: mark } },
            "spec": { "names": { "shortNames": [format!("other{name}")] } },
        }));
        api.patch(&format!("{name}.kueue.x-k8s.io"), &PatchParams::default(), &other).await?;
    }
    let (newer, theirs) = (facts("workloads").await?, facts("cohorts").await?);
    assert_ne!(newer, ours);
    install(client, &Conversion::Embedded).await?;
    assert_eq!(facts("workloads").await?, newer, "a newer release");
    assert_eq!(facts("cohorts").await?, theirs, "somebody else's");
    let (_, annotations, spec) = facts("localqueues").await?;
    assert_eq!(annotations.get(MARK), ours.1.get(MARK), "an older release");
    assert_eq!(spec.names.short_names, Some(vec!["queue".to_owned(), "queues".to_owned(), "lq".to_owned()]));
    Ok(())
}

/// Where Kueue is older than what we know, it is said which definitions are, and nothing is installed beside them.
#[tokio::test]
async fn definitions_that_are_too_old_are_refused() -> anyhow::Result<()> {
    let client = World::embedded_cluster().await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut old = all(&Conversion::Embedded).remove(1);
    old["metadata"]["annotations"] = json!({});
    let versions = old["spec"]["versions"].as_array_mut().expect("versions");
    versions.retain(|version| version["name"] == "v1beta1");
    versions[0]["storage"] = json!(true);
    api.create(&PostParams::default(), &serde_json::from_value(old)?).await?;
    let refused = install(&client, &Conversion::Embedded).await.expect_err("too old").to_string();
    let expected =
        "what is installed of kueue.x-k8s.io is too old: clusterqueues.kueue.x-k8s.io not served in v1beta2";
    assert_eq!(refused, expected);
    assert_eq!(api.list(&kube::api::ListParams::default()).await?.items.len(), 1);
    Ok(())
}

#[tokio::test]
async fn api_1_an_embedded_cluster_keeps_newer_ones() -> anyhow::Result<()> {
    never_downgrades(&World::embedded_cluster().await?).await
}

#[tokio::test]
async fn api_1_a_real_server_keeps_newer_ones() -> anyhow::Result<()> {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    never_downgrades(&cluster.client()).await
}

/// The schema of a kind, as it is stored.
fn schema(plural: &str) -> Value {
    let all = all(&Conversion::Embedded);
    let definition = all.iter().find(|it| it["spec"]["names"]["plural"] == plural).expect("a definition");
    let versions = definition["spec"]["versions"].as_array().expect("versions");
    let stored = versions.iter().find(|it| it["storage"] == true).expect("a version is stored");
    assert_eq!(stored["name"], "v1beta2");
    stored["schema"]["openAPIV3Schema"].clone()
}

#[track_caller]
fn check(plural: &str, path: &str, facts: &Value) {
    let schema = schema(plural);
    let found = schema.pointer(path).unwrap_or_else(|| panic!("{plural} has no {path}"));
    for (name, fact) in facts.as_object().expect("facts") {
        assert_eq!(found.get(name).unwrap_or(&Value::Null), fact, "{name} of {path} of {plural}");
    }
}

#[test]
fn api_4_names() {
    let subdomain = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    let reference = json!({ "maxLength": 253, "pattern": subdomain });
    let spec = "/properties/spec/properties";
    check("clusterqueues", &format!("{spec}/cohortName"), &reference);
    let flavors = format!("{spec}/resourceGroups/items/properties/flavors/items/properties/name");
    check("clusterqueues", &flavors, &reference);
    check("localqueues", &format!("{spec}/clusterQueue"), &reference);
    check("resourceflavors", &format!("{spec}/topologyName"), &reference);
    let label = json!({ "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "default": "main" });
    check("workloads", &format!("{spec}/podSets/items/properties/name"), &label);
}

#[test]
fn api_8_conditions_are_maps_by_type() {
    let conditions = json!({
        "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
    });
    for plural in ["admissionchecks", "clusterqueues", "localqueues", "multikueueclusters", "workloads"] {
        check(plural, "/properties/status/properties/conditions", &conditions);
    }
}

#[test]
fn wpc_1_a_class_is_a_value_with_a_description() {
    check("workloadpriorityclasses", "", &json!({ "required": ["value"] }));
    check("workloadpriorityclasses", "/properties/value", &json!({ "type": "integer", "format": "int32" }));
    check("workloadpriorityclasses", "/properties/description", &json!({ "maxLength": 2048 }));
    check("workloadpriorityclasses", "/properties", &json!({ "spec": null, "status": null }));
}

#[test]
fn ac_3_what_a_check_may_say() {
    let state = "/properties/status/properties/admissionChecks/items/properties/state";
    check("workloads", state, &json!({ "enum": ["Pending", "Ready", "Retry", "Rejected"] }));
}

#[test]
fn mkc_2_clusters_are_named_once_each() {
    let unique = "size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0";
    let facts = json!({
        "minItems": 1, "maxItems": 20,
        "x-kubernetes-validations": [{ "message": "must be unique", "rule": unique }],
    });
    check("multikueueconfigs", "/properties/spec/properties/clusters", &facts);
}
