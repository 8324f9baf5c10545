//! ARCHITECTURE.md says what is so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn crates() -> BTreeSet<String> {
    let entries = std::fs::read_dir(workspace().join("crates")).expect("the crates");
    let with_manifest = entries
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.path().join("Cargo.toml").exists());
    with_manifest.map(|entry| entry.file_name().into_string().expect("a plain name")).collect()
}

#[test]
fn architecture_names_every_crate_and_only_those() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let sections = text.split("\n### ").skip(1);
    let mut named = BTreeSet::new();
    for section in sections {
        let (name, body) = section.split_once('\n').expect("a heading and a paragraph");
        assert!(body.contains("*Invariant:*"), "{name} has no invariant");
        assert!(named.insert(name.trim().to_owned()), "{name} stands twice");
    }
    assert_eq!(named, crates());
}

/// Whoever follows a Job by the table finds what it names.
#[test]
fn a_job_s_way_leads_through_functions_that_exist() {
    let text = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.split("```").nth(1).expect("the table");
    let mut steps = 0;
    for line in table.lines().filter(|line| !line.trim().is_empty()) {
        let [number, place, function] = line.split_whitespace().take(3).collect::<Vec<_>>()[..] else {
            panic!("{line:?} is no step");
        };
        steps += 1;
        assert_eq!(number, steps.to_string(), "{line}");
        let (name, rest) = place.split_once('/').unwrap_or_else(|| panic!("{place} is in no crate"));
        let path = workspace().join("crates").join(name).join("src").join(rest);
        assert!(path.exists(), "{place} does not exist");
        // Where there are many, the table does not name one.
        let named = function.trim_end_matches('…');
        if !named.is_empty() {
            let source = std::fs::read_to_string(&path).unwrap_or_default();
            let module = std::fs::read_to_string(path.join("mod.rs")).unwrap_or_default();
            let is_there = |source: &str| {
                let ends: &[&str] = if named == function { &["(", "<"] } else { &[""] };
                ends.iter().any(|end| source.contains(&format!("fn {named}{end}")))
            };
            assert!(is_there(&source) || is_there(&module), "{place} has no function {function}");
        }
    }
    assert!(steps > 20, "the table was read: {steps} steps");
}

/// What rules may not depend on: runtimes, clients, clocks and randomness.
const FORBIDDEN: [&str; 12] = [
    "tokio",
    "async-std",
    "smol",
    "hyper",
    "reqwest",
    "kube",
    "kube-client",
    "kube-runtime",
    "rand",
    "getrandom",
    "chrono",
    "tracing",
];

#[test]
fn types_schema_and_rules_depend_on_no_runtime_client_or_clock() {
    for name in ["types", "schema", "rules"] {
        let dependencies = dependencies_of(name);
        assert!(dependencies.contains("serde_json"), "{name}: the tree was read");
        let found: Vec<&&str> =
            FORBIDDEN.iter().filter(|forbidden| dependencies.contains(**forbidden)).collect();
        assert!(found.is_empty(), "{name} depends on {found:?}");
    }
}

/// Everything that is linked into a crate, without what only its tests need.
fn dependencies_of(name: &str) -> BTreeSet<String> {
    let tree =
        cargo(&["tree", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Arrows point down: who may depend on whom.
const MAY_USE: [(&str, &[&str]); 14] = [
    ("types", &[]),
    ("schema", &["types"]),
    ("rules", &["types", "schema"]),
    ("store", &[]),
    ("tls", &[]),
    ("apiserver", &["types", "schema", "rules", "store", "tls"]),
    ("testkit", &[]),
    ("reconcile", &[]),
    ("controllers", &["types", "schema", "rules", "reconcile"]),
    ("runner", &["types", "schema", "rules", "reconcile", "tls"]),
    ("operator", &["types", "schema", "rules", "reconcile", "tls"]),
    (
        "fleet",
        &["types", "schema", "rules", "store", "apiserver", "reconcile", "controllers", "runner", "operator"],
    ),
    (
        "bench",
        &[
            "types",
            "schema",
            "rules",
            "store",
            "apiserver",
            "reconcile",
            "controllers",
            "runner",
            "operator",
            "fleet",
            "testkit",
        ],
    ),
    (
        "cli",
        &[
            "types",
            "schema",
            "rules",
            "store",
            "apiserver",
            "reconcile",
            "controllers",
            "runner",
            "operator",
            "fleet",
        ],
    ),
];

#[test]
fn arrows_point_down() {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).expect("JSON");
    let names = crates();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let (_, allowed) =
            MAY_USE.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name} has no row"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let used = dependency["name"].as_str().expect("a name");
            let is_linked = dependency["kind"].is_null();
            assert!(
                !is_linked || !names.contains(used) || allowed.contains(&used),
                "{name} must not use {used}"
            );
        }
    }
}

pub(crate) fn cargo(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO")).args(arguments).arg("--offline").current_dir(workspace()).output();
    let output = output.expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
