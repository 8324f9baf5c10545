//! The definitions of other projects, read from the Go module cache: `tools/crds/go.mod` pins them, nothing is copied.

use std::{collections::BTreeMap, fs, path::Path, sync::OnceLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;
use testkit::go::Tools;

/// Where each project keeps its definitions.
const DIRECTORIES: [(&str, &str); 7] = [
    ("github.com/kubeflow/mpi-operator", "manifests/base"),
    ("github.com/kubeflow/trainer/v2", "manifests/base/crds"),
    ("github.com/project-codeflare/appwrapper", "config/crd/bases"),
    ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
    ("github.com/tektoncd/pipeline", "config/300-crds"),
    ("sigs.k8s.io/jobset", "config/components/crd/bases"),
    ("sigs.k8s.io/kueue", "config/components/crd/bases"),
];

/// All definitions by name; `None`, said aloud, where there is no Go to fetch them with and none is required.
pub(super) fn definitions() -> Option<&'static BTreeMap<String, CustomResourceDefinition>> {
    static READ: OnceLock<Option<BTreeMap<String, CustomResourceDefinition>>> = OnceLock::new();
    READ.get_or_init(read_all).as_ref()
}

fn read_all() -> Option<BTreeMap<String, CustomResourceDefinition>> {
    let typed = |manifest: &Value| {
        let mut definition = serde_json::from_value(manifest.clone()).expect("a definition is one");
        apiserver::crd::definition::apply_defaults(&mut definition);
        definition
    };
    Some(manifests()?.iter().map(|(name, manifest)| (name.clone(), typed(manifest))).collect())
}

/// All definitions by name, as they are shipped.
pub(super) fn manifests() -> Option<&'static BTreeMap<String, Value>> {
    static READ: OnceLock<Option<BTreeMap<String, Value>>> = OnceLock::new();
    READ.get_or_init(read_manifests).as_ref()
}

fn read_manifests() -> Option<BTreeMap<String, Value>> {
    let tools = Tools::for_test("crds")?;
    let mut found = BTreeMap::new();
    for (module, directory) in DIRECTORIES {
        let directory = tools.module(module).join(directory);
        for entry in fs::read_dir(&directory).expect("a module has its definitions") {
            let path = entry.expect("a directory entry").path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                for manifest in read(&path) {
                    let name = manifest["metadata"]["name"].as_str().expect("a definition has a name");
                    found.insert(name.to_owned(), manifest);
                }
            }
        }
    }
    Some(found)
}

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a readable file");
    let documents =
        text.split("\n---\n").filter(|document| document.contains("kind: CustomResourceDefinition"));
    documents
        .map(|document| apiserver::body::yaml::read(document.as_bytes()).expect("a definition is YAML"))
        .collect()
}
