//! The files in `deploy/` are written from the same values that `ferry install` applies.
//! `UPDATE_DEPLOY=1 cargo test -p operator --test it deploy` writes them anew.

use std::fs;
use std::path::{Path, PathBuf};

use operator::deploy::{self, Deployment};
use serde_json::Value;

const NOTE: &str = "# Written by UPDATE_DEPLOY=1 cargo test -p operator --test it deploy; not to be edited.";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn yaml(objects: &[Value]) -> String {
    let mut text = format!("{NOTE}\n");
    for object in objects {
        text.push_str("---\n");
        text.push_str(serde_saphyr::to_string(object).expect("YAML").trim_end());
        text.push('\n');
    }
    text
}

/// What a chart's placeholders are, with the value that each has if nobody says otherwise.
fn placeholders() -> [(&'static str, String); 5] {
    let usual = Deployment::default();
    let (image, tag) = usual.image.split_once(':').expect("an image with a tag");
    [
        ("{{ .Release.Namespace }}", usual.namespace.clone()),
        (
            "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}",
            format!("{image}:{tag}"),
        ),
        ("{{ .Values.image.pullPolicy }}", usual.pull_policy.clone()),
        ("{{ .Values.requests.cpu }}", usual.requests.0.clone()),
        ("{{ .Values.requests.memory }}", usual.requests.1),
    ]
}

fn chart() -> Deployment {
    let [namespace, image, pull_policy, cpu, memory] =
        placeholders().map(|(placeholder, _)| placeholder.to_owned());
    Deployment { namespace, image, pull_policy, requests: (cpu, memory) }
}

fn files() -> Vec<(&'static str, String)> {
    let settings = operator::Settings::default();
    let (plain, chart) = (Deployment::default(), chart());
    vec![
        ("kustomize/namespace.yaml", yaml(&[deploy::namespace(&plain.namespace)])),
        ("kustomize/rbac.yaml", yaml(&deploy::access(&plain.namespace, &settings))),
        ("kustomize/operator.yaml", yaml(&deploy::operator(&plain))),
        ("chart/templates/rbac.yaml", yaml(&deploy::access(&chart.namespace, &settings))),
        ("chart/templates/operator.yaml", yaml(&deploy::operator(&chart))),
    ]
}

#[test]
fn files_say_what_is_installed() {
    for (name, expected) in files() {
        let path = directory().join(name);
        if std::env::var_os("UPDATE_DEPLOY").is_some() {
            fs::create_dir_all(path.parent().expect("a directory")).expect("our own tree");
            fs::write(&path, &expected).expect("our own tree");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == expected, "deploy/{name} is out of date: {NOTE}");
    }
}

/// Templates have placeholders for whole words only, so that whoever can replace words can render them.
#[test]
fn the_chart_renders_to_the_plain_manifests() {
    let read = |name: &str| fs::read_to_string(directory().join(name)).expect("a file");
    for part in ["rbac", "operator"] {
        let mut rendered = read(&format!("chart/templates/{part}.yaml"));
        for (placeholder, value) in placeholders() {
            rendered = rendered.replace(placeholder, &value);
        }
        assert!(!rendered.contains("{{"), "{rendered}");
        let objects = |text: &str| {
            let documents = text.split("---\n").skip(1);
            documents.map(|text| serde_saphyr::from_str(text).expect("YAML")).collect::<Vec<Value>>()
        };
        assert_eq!(objects(&rendered), objects(&read(&format!("kustomize/{part}.yaml"))), "{part}");
    }
}

#[test]
fn the_chart_is_of_this_release_and_its_values_are_the_usual_ones() {
    let read = |name: &str| -> Value {
        let text = fs::read_to_string(directory().join(name)).expect("a file");
        serde_saphyr::from_str(&text).expect("YAML")
    };
    let (chart, values, usual) = (read("chart/Chart.yaml"), read("chart/values.yaml"), Deployment::default());
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    let repository = values["image"]["repository"].as_str().expect("a repository");
    assert_eq!(usual.image, format!("{repository}:{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(values["image"]["tag"], "");
    assert_eq!(values["image"]["pullPolicy"], usual.pull_policy);
    assert_eq!(values["requests"]["cpu"], usual.requests.0);
    assert_eq!(values["requests"]["memory"], usual.requests.1);
}
