//! Our definitions say what Kueue's say, field by field, and clusters take them.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use operator::definitions::{Conversion, all, install};
use serde_json::{Value, json};
use testkit::ControlPlane;
use testkit::go::Tools;

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
