//! How a fleet is reached, written into a kubeconfig that may have contexts of other clusters, which stay.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::failure::{Code, Failure, Hint as _};

/// The lists of a kubeconfig, whose items have names.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// The extension of a context that says where the files of its fleet's nodes are.
const NODES: &str = "ferry.dev/nodes";

/// Notes in all contexts where the nodes of their clusters have their files: with logs of pods that are gone.
pub(crate) fn note_nodes(config: &mut Value, nodes: &Path) {
    for context in config["contexts"].as_array_mut().into_iter().flatten() {
        context["context"]["extensions"] =
            json!([{ "name": NODES, "extension": { "directory": nodes.display().to_string() } }]);
    }
}

/// Where the nodes have their files of the fleet that a context leads to, if it was noted.
pub(crate) fn nodes_of(config: &Kubeconfig, context: &str) -> Option<PathBuf> {
    let context = config.contexts.iter().find(|it| it.name == context)?.context.as_ref()?;
    let noted = context.extensions.iter().flatten().find(|it| it.name == NODES)?;
    noted.extension["directory"].as_str().map(PathBuf::from)
}

/// That a kubeconfig can be written: what it has of others is lost to nobody who did not ask for it.
pub(crate) fn expect_writable(path: &Path, ours: &[String], merge: bool) -> anyhow::Result<()> {
    let Some(there) = read(path)? else { return Ok(()) };
    let others: Vec<&str> =
        names(&there, "contexts").filter(|name| !ours.iter().any(|it| it == name)).collect();
    if merge || others.is_empty() {
        return Ok(());
    }
    let message = format!("{} has contexts of other clusters: {}", path.display(), others.join(", "));
    Err(Failure::new(Code::Error, message)
        .hint("--merge adds what is new and keeps the rest; another --kubeconfig FILE is written anew")
        .into())
}

/// Writes a kubeconfig that only its owner can read; with `merge`, keeps what is there under other names.
pub(crate) fn write(path: &Path, ours: &Value, merge: bool) -> anyhow::Result<()> {
    let there = if merge { read(path)? } else { None };
    let text = match there {
        // What people write by hand is YAML, and stays it.
        Some(there) => serde_saphyr::to_string(&merged(there, ours)).context("failed to write YAML")?,
        None => serde_json::to_string_pretty(ours).context("failed to write JSON")?,
    };
    replace(path, &text).with_context(|| format!("failed to write the kubeconfig {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<Option<Value>> {
    let hint = "--kubeconfig FILE chooses another one";
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => {
            read.with_context(|| format!("failed to read the kubeconfig {}", path.display())).hint(hint)?
        }
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let read = serde_saphyr::from_str(&text).with_context(|| format!("{} is no kubeconfig", path.display()));
    read.hint(hint).map(Some)
}

fn names<'a>(config: &'a Value, list: &str) -> impl Iterator<Item = &'a str> {
    config[list].as_array().into_iter().flatten().filter_map(|item| item["name"].as_str())
}

/// Both, where ours replaces what has the same name. The current context stays if there is one.
fn merged(mut there: Value, ours: &Value) -> Value {
    for list in LISTS {
        let is_ours = |item: &&Value| names(ours, list).any(|name| item["name"] == name);
        let kept = there[list].as_array().into_iter().flatten().filter(|item| !is_ours(item)).cloned();
        let added = ours[list].as_array().into_iter().flatten().cloned();
        let all: Value = kept.chain(added).collect();
        there[list] = all;
    }
    if there["current-context"].as_str().is_none_or(str::is_empty) {
        there["current-context"] = ours["current-context"].clone();
    }
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        there[key] = json!(value);
    }
    there
}

/// Replaces a file in one step; one that is a link to another stays one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(names: &[&str], server: &str) -> Value {
        let list =
            |what: &str| names.iter().map(|name| json!({ "name": name, what: server })).collect::<Value>();
        json!({
            "apiVersion": "v1", "kind": "Config", "clusters": list("cluster"), "users": list("user"),
            "contexts": list("context"), "current-context": names[0],
        })
    }

    #[test]
    fn contexts_of_others_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/config");
        let ours = ["ferry-manager".to_owned()];
        expect_writable(&path, &ours, false).expect("nothing is there");
        write(&path, &config(&["ferry-manager"], "1"), false).expect("written");
        expect_writable(&path, &ours, false).expect("only our own is there");

        std::fs::write(
            &path,
            serde_saphyr::to_string(&config(&["prod", "ferry-manager"], "old")).expect("YAML"),
        )
        .expect("a file");
        let refused = expect_writable(&path, &ours, false).expect_err("prod would be lost");
        assert!(refused.to_string().ends_with("has contexts of other clusters: prod"), "{refused}");
        expect_writable(&path, &ours, true).expect("it was asked for");
        write(&path, &config(&["ferry-manager"], "new"), true).expect("written");
        let both = read(&path).expect("readable").expect("there");
        assert_eq!(names(&both, "contexts").collect::<Vec<_>>(), ["prod", "ferry-manager"]);
        assert_eq!(
            (&both["clusters"][0]["cluster"], &both["clusters"][1]["cluster"]),
            (&json!("old"), &json!("new"))
        );
        assert_eq!(both["current-context"], "prod", "where the user is, he stays");
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_overwritten() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "{ kind: [").expect("a file");
        assert!(expect_writable(file.path(), &[], true).is_err());
    }
}
