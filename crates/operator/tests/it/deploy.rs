//! The files in `deploy/` are written from the same values that `ferry install` applies.
//! `UPDATE_DEPLOY=1 cargo test -p operator --test it deploy` writes them anew.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use operator::Settings;
use operator::deploy::{self, Configuration, Deployment};
use operator::roles;
use serde_json::{Value, json};
use testkit::go::Tools;

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

/// In the chart the webhook configurations are left out where others have them, as Kueue does: Helm installs nothing over
/// what is not of the same release.
const UNLESS_OTHERS_HAVE: &str = r#"{{- $kind := "KIND" }}
{{- $there := lookup "admissionregistration.k8s.io/v1" $kind "" "NAME" }}
{{- if or (not $there) (eq .Release.Name (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there)) }}
"#;
const END: &str = "{{- end }}\n";

/// Helm's own namespace is `default`, where the operator would have a Lease of its own beside Kueue's, and both would act.
fn expectations() -> String {
    let expected = deploy::NAMESPACE;
    let why = format!(
        "install with --namespace {expected} --create-namespace: Kueue's Lease is there, by which only one acts, and the \
         Secrets of workers; anyNamespace=true if they are elsewhere"
    );
    format!(
        "{NOTE}\n{{{{- if and (ne .Release.Namespace {expected:?}) (not .Values.anyNamespace) }}}}\n\
         {{{{- fail {why:?} }}}}\n{END}"
    )
}

fn guarded(objects: &[Value]) -> String {
    let mut text = format!("{NOTE}\n");
    for object in objects {
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).expect("a word");
        let guard = UNLESS_OTHERS_HAVE.replace("KIND", word("/kind")).replace("NAME", word("/metadata/name"));
        let object = serde_saphyr::to_string(object).expect("YAML");
        text.extend([&*guard, "---\n", object.trim_end(), "\n", END]);
    }
    text
}

/// What a chart's placeholders are, with the value that each has if nobody says otherwise.
fn placeholders() -> [(&'static str, String); 8] {
    let usual = Deployment::default();
    let configuration = ByteString(configuration().to_string().into_bytes());
    let configuration = serde_json::to_value(configuration).expect("JSON");
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
        (REPLICAS, values()["replicas"].to_string()),
        ("{{ toJson .Values.configuration | b64enc }}", configuration.as_str().expect("base64").to_owned()),
        ("{{ toJson .Values.configuration | sha256sum }}", "a mark".to_owned()),
    ]
}

/// A number, which must not be in quotes.
const REPLICAS: &str = "{{ .Values.replicas }}";

/// What the configuration file says if nobody says otherwise.
fn configuration() -> Value {
    values()["configuration"].clone()
}

fn values() -> Value {
    let text = fs::read_to_string(directory().join("chart/values.yaml")).expect("a file");
    serde_saphyr::from_str(&text).expect("YAML")
}

fn chart() -> Deployment {
    deployment(placeholders().map(|(placeholder, _)| placeholder.to_owned()))
}

fn deployment(words: [String; 8]) -> Deployment {
    let [namespace, image, pull_policy, cpu, memory, replicas, text, mark] = words;
    let replicas = Some(serde_json::from_str(&replicas).unwrap_or_else(|_| json!(replicas)));
    let configuration = Some(Configuration { text, mark });
    let requests = (cpu, memory);
    Deployment { namespace, image, pull_policy, requests, replicas, configuration, ..Deployment::default() }
}

fn files() -> Vec<(&'static str, String)> {
    let settings = operator::Settings::default();
    let (plain, chart) = (Deployment::default(), chart());
    vec![
        ("kustomize/namespace.yaml", yaml(&[deploy::namespace(&plain.namespace)])),
        ("kustomize/rbac.yaml", yaml(&deploy::access(&plain.namespace, &settings))),
        ("kustomize/roles.yaml", yaml(&roles::all())),
        ("kustomize/operator.yaml", yaml(&deploy::operator(&plain))),
        ("kustomize/webhooks.yaml", yaml(&deploy::configurations())),
        ("chart/templates/expectations.yaml", expectations()),
        ("chart/templates/webhooks.yaml", guarded(&deploy::configurations())),
        ("chart/templates/rbac.yaml", yaml(&deploy::access(&chart.namespace, &settings))),
        ("chart/templates/roles.yaml", yaml(&roles::all())),
        (
            "chart/templates/operator.yaml",
            yaml(&deploy::operator(&chart)).replace(&format!("\"{REPLICAS}\""), REPLICAS),
        ),
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
fn the_chart_renders_to_what_is_installed() {
    let usual = deployment(placeholders().map(|(_, value)| value));
    let access = deploy::access(&usual.namespace, &Settings::default());
    let parts = [("rbac", access), ("roles", roles::all()), ("operator", deploy::operator(&usual))];
    for (part, expected) in parts {
        let path = directory().join(format!("chart/templates/{part}.yaml"));
        let mut rendered = fs::read_to_string(path).expect("a file");
        for (placeholder, value) in placeholders() {
            rendered = rendered.replace(placeholder, &value);
        }
        assert!(!rendered.contains("{{"), "{rendered}");
        let documents = rendered.split("---\n").skip(1);
        let objects: Vec<Value> = documents.map(|text| serde_saphyr::from_str(text).expect("YAML")).collect();
        assert_eq!(objects, expected, "{part}");
    }
}

/// Without a word about it in the chart's values, the operator does what it does without a file.
#[test]
fn the_usual_configuration_is_none() {
    let text = configuration().to_string();
    let read = operator::configuration::Configuration::read(&text).expect("a configuration");
    assert_eq!(read.warnings, Vec::<String>::new());
    let (file, usual) = (read.settings, Settings::default());
    assert_eq!(file.frameworks, usual.frameworks);
    assert_eq!(file.external_frameworks, usual.external_frameworks);
    assert_eq!(file.managed_namespaces, usual.managed_namespaces);
    assert_eq!(file.quota, usual.quota);
    assert_eq!(file.workloads, usual.workloads);
    let dispatched = |settings: &Settings| -> std::collections::BTreeSet<&str> {
        settings.dispatch.kinds.iter().map(|adapter| adapter.kind).collect()
    };
    assert_eq!(dispatched(&file), dispatched(&usual));
}

#[test]
fn the_chart_is_of_this_release_and_its_values_are_the_usual_ones() {
    let read = |name: &str| -> Value {
        let text = fs::read_to_string(directory().join(name)).expect("a file");
        serde_saphyr::from_str(&text).expect("YAML")
    };
    let (chart, values, usual) = (read("chart/Chart.yaml"), values(), Deployment::default());
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    let repository = values["image"]["repository"].as_str().expect("a repository");
    assert_eq!(usual.image, format!("{repository}:{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(values["image"]["tag"], "");
    assert_eq!(values["replicas"], 1);
    assert_eq!(values["anyNamespace"], false, "what templates ask for is there");
    assert_eq!(values["image"]["pullPolicy"], usual.pull_policy);
    assert_eq!(values["requests"]["cpu"], usual.requests.0);
    assert_eq!(values["requests"]["memory"], usual.requests.1);
}

/// OB-3: the roles for people have the names and labels of Kueue's and allow what those allow, so that whoever was given
/// one of them keeps it.
#[test]
fn ob_3_roles_are_kueues() {
    let Some(tools) = Tools::for_test("crds") else { return };
    let directory = tools.module("sigs.k8s.io/kueue").join("config/components/rbac");
    // Kinds that nobody can queue here.
    let not_ours = ["leaderworkerset", "sparkapplication"];
    let wanted = |name: &str| {
        let ours =
            ["_editor_role.yaml", "_viewer_role.yaml", "batch_admin_role.yaml", "batch_user_role.yaml"];
        ours.iter().any(|end| name.ends_with(end)) && !not_ours.iter().any(|kind| name.starts_with(kind))
    };
    let files = fs::read_dir(directory).expect("the module has roles");
    let names = files.map(|file| file.expect("a file").path());
    let names = names.filter(|path| wanted(&path.file_name().unwrap_or_default().to_string_lossy()));
    let mut compared = 0;
    let ours = roles::all();
    for path in names {
        let text = fs::read_to_string(&path).expect("a readable file");
        let mut theirs: Value = serde_saphyr::from_str(&text).expect("a role");
        // Their manifests put it before every name.
        let name = format!("kueue-{}", theirs["metadata"]["name"].as_str().expect("a name"));
        theirs["metadata"]["name"] = json!(name);
        // Whoever may edit these may see them.
        if ["kueue-raycluster-viewer-role", "kueue-rayservice-viewer-role"].contains(&name.as_str()) {
            theirs["metadata"]["labels"]["rbac.kueue.x-k8s.io/batch-user"] = json!("true");
        }
        let role = ours.iter().find(|role| role["metadata"]["name"] == name);
        assert_eq!(role, Some(&theirs), "{name}");
        compared += 1;
    }
    assert!(compared >= 38, "only {compared} were compared");
}
