//! Manifests in files.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::failure::Hint as _;

/// All documents of a file; `-` is standard input. JSON is YAML, and a List is its items.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let failed = || format!("failed to read {}", file.display());
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).with_context(failed)?;
    } else {
        text = std::fs::read_to_string(file).with_context(failed).hint("`-` reads standard input")?;
    }
    parse(&text).with_context(failed).hint("it has to be YAML or JSON")
}

fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let documents = documents.into_iter().filter(|document| !document.is_null());
    Ok(documents.flat_map(items).collect())
}

fn items(mut document: Value) -> Vec<Value> {
    if document["kind"] != "List" {
        return vec![document];
    }
    match document["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists() {
        let text = "---\nkind: A\n---\n# nothing\n---\nkind: List\nitems:\n- kind: B\n- kind: C\n";
        let kinds: Vec<String> = parse(text)
            .expect("YAML")
            .iter()
            .map(|it| it["kind"].as_str().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert!(parse("{ kind: [").is_err());
    }
}
