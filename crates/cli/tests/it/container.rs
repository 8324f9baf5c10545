//! What the recipe of the image says about this workspace is so. That it builds is for those to see who have an engine.

use std::path::Path;

use serde_json::Value;

use crate::architecture::cargo;

fn tree(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_image_has_the_binary_that_manifests_start() {
    let recipe = tree("deploy/Containerfile");
    let after = |text: &str| {
        let (_, rest) = recipe.split_once(text).unwrap_or_else(|| panic!("{text} is missing: {recipe}"));
        rest.split_whitespace().next().expect("a word").to_owned()
    };
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|it| it["name"] == after("--package ").as_str()).expect("the package");
    let binary = after(&format!("/source/target/{}/", after("--profile ")));
    let has = |target: &Value| target["name"] == binary.as_str() && target["kind"][0] == "bin";
    assert!(package["targets"].as_array().expect("targets").iter().any(has), "{binary}");
    assert!(recipe.ends_with(&format!("ENTRYPOINT [\"/usr/local/bin/{binary}\"]\n")), "{recipe}");

    // Who runs it in a cluster calls it by this name and version, and as a user who is not root.
    let image = format!("{binary}:{}", package["version"].as_str().expect("a version"));
    assert_eq!(after("-t "), image);
    assert!(tree("deploy/kustomize/operator.yaml").contains(&format!("image: {image}\n")), "{image}");
    assert_ne!(after("USER "), "0");
    // What was built here is of no use there, and large.
    assert!(tree(".dockerignore").lines().any(|line| line == "/target"));
}
