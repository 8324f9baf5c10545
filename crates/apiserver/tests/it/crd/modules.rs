//! The definitions of other projects, read from the Go module cache: `tools/crds/go.mod` pins them, nothing is copied.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Where each project keeps its definitions.
const DIRECTORIES: [(&str, &str); 6] = [
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
    let required =
        env::var_os(testkit::kubernetes::REQUIRED).is_some_and(|value| value != "0" && !value.is_empty());
    let directories = match download() {
        Ok(directories) => directories,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !required => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            let _ =
                writeln!(io::stderr(), "SKIPPED {test}: there is no Go toolchain to fetch definitions with");
            return None;
        }
        Err(error) => panic!("go mod download: {error}"),
    };
    let mut found = BTreeMap::new();
    for (module, directory) in DIRECTORIES {
        let directory = directories[module].join(directory);
        for entry in fs::read_dir(&directory).expect("a module has its definitions") {
            let path = entry.expect("a directory entry").path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                for definition in read(&path) {
                    found.insert(
                        definition.metadata.name.clone().expect("a definition has a name"),
                        definition,
                    );
                }
            }
        }
    }
    Some(found)
}

fn read(path: &Path) -> Vec<CustomResourceDefinition> {
    let text = fs::read_to_string(path).expect("a readable file");
    let documents =
        text.split("\n---\n").filter(|document| document.contains("kind: CustomResourceDefinition"));
    documents
        .map(|document| {
            let value: Value = serde_saphyr::from_str(document).expect("a definition is YAML");
            let mut definition = serde_json::from_value(value).expect("a definition is one");
            apiserver::crd::definition::apply_defaults(&mut definition);
            definition
        })
        .collect()
}

fn download() -> io::Result<BTreeMap<String, PathBuf>> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/crds");
    let go_mod = fs::read_to_string(tools.join("go.mod"))?;
    let pinned = go_mod.lines().filter_map(|line| {
        let (module, version) = line.strip_prefix('\t')?.split_once(' ')?;
        Some(format!("{module}@{version}"))
    });
    let output =
        Command::new("go").args(["mod", "download", "-json"]).args(pinned).current_dir(&tools).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    let text = |answer: &Value, field: &str| answer[field].as_str().expect("go says so").to_owned();
    Ok(answers
        .map(|answer| answer.expect("go answers in JSON"))
        .map(|answer| (text(&answer, "Path"), PathBuf::from(text(&answer, "Dir"))))
        .collect())
}
