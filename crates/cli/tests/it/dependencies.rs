//! What we build on: licences that we may use, and one version of each crate. `deny.toml` has the lists, so that
//! `cargo deny` says the same where it is installed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::architecture::cargo;

/// The quoted words of a list in `deny.toml`.
fn listed(key: &str) -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deny.toml");
    let text = std::fs::read_to_string(path).expect("deny.toml");
    let (_, list) = text.split_once(&format!("\n{key} = [")).expect("the list");
    let (list, _) = list.split_once(']').expect("the end of the list");
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What is built here. What other platforms need was not even downloaded.
fn packages() -> Vec<Value> {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo tells its host");
    let metadata = cargo(&["metadata", "--format-version", "1", "--filter-platform", host]);
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or("")
}

#[test]
fn licences_are_allowed() {
    let allowed = listed("allow");
    for package in packages() {
        let licence = text(&package, "license").replace('/', " OR ");
        assert!(
            is_allowed(&licence, &allowed),
            "{} {} is under {licence:?}",
            text(&package, "name"),
            text(&package, "version")
        );
    }
}

/// An SPDX expression of AND and OR, without precedence puzzles: every part of an AND, any part of an OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace(['(', ')'], "");
    expression.split(" AND ").all(|all| all.split(" OR ").any(|any| allowed.contains(any.trim())))
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned()]);
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("ISC AND (GPL-3.0 OR MIT)", true),
        ("ISC AND GPL-3.0", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

/// In what ships: a second version of a crate is more to build, to trust and to load.
#[test]
fn the_binary_has_one_version_of_each_crate() {
    let tree = cargo(&[
        "tree",
        "--package",
        "cli",
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    let skipped = listed("skip");
    let twice: Vec<_> =
        versions.iter().filter(|(name, found)| found.len() > 1 && !skipped.contains(**name)).collect();
    assert!(twice.is_empty(), "several versions: {twice:?}");
}
