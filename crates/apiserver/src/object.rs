//! An object as JSON: what the server reads in it, and the bytes that are stored.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use memchr::memmem;
use rules::wire;
use serde_json::{Map, Value};
use store::{Draft, Index, Key, Object};

use crate::apply::{Entries, Tracked};
use crate::registry::Resource;

/// The metadata of an object, typed.
pub fn meta(object: &Value) -> ObjectMeta {
    object.get("metadata").filter(|meta| !meta.is_null()).map(wire::typed).unwrap_or_default()
}

/// Puts typed metadata into an object.
pub fn set_meta(object: &mut Value, meta: &ObjectMeta) {
    object["metadata"] = wire::untyped(meta, &Value::Null);
}

/// A text somewhere in an object, such as `metadata`, `name`; empty if it is not there.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    path.iter().try_fold(object, |value, part| value.get(part)).and_then(Value::as_str).unwrap_or("")
}

/// A moment as objects tell it: in whole seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The stored bytes of an object as JSON.
pub fn read(object: &Object) -> Value {
    serde_json::from_slice(&object.value).expect("what was stored is JSON")
}

/// The stored bytes of an object as JSON, and its managers beside it.
pub fn read_tracked(object: &Object) -> Tracked {
    let Some((before, managers, after)) =
        object.revision_at().and_then(|at| around_managers(&object.value, at))
    else {
        return Tracked::of(read(object));
    };
    let rest = [before, after].concat();
    Tracked {
        object: serde_json::from_slice(&rest).expect("what was stored is JSON"),
        managers: Entries::stored(object.value.slice_ref(managers)),
    }
}

/// Where objects of a resource are stored. Versions of a group share one place.
pub fn key(resource: &Resource, namespace: &str, name: &str) -> Key {
    Key::new(&storage_name(resource), namespace, name)
}

/// The name under which a resource is stored: the same for all its versions, and for the two APIs of events.
pub fn storage_name(resource: &Resource) -> String {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("" | "events.k8s.io", "events") => "events".to_owned(),
        ("", plural) => plural.to_owned(),
        (group, plural) => format!("{plural}.{group}"),
    }
}

/// Where upstream's storage has an object; some errors tell it.
pub fn registry_path(resource: &Resource, namespace: &str, name: &str) -> String {
    let of = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}"),
        (group, plural) if resource.custom.is_some() => format!("{group}/{plural}"),
        (_, plural) => plural.to_owned(),
    };
    let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("/registry/{of}/{namespace}{name}")
}

/// An object ready to be stored: canonical JSON with a place for the revision, and what the store is told about it. Its
/// managers stand beside it, or in it.
pub fn draft(object: &Value, managers: &Entries, selectable: &[(impl AsRef<str>, String)]) -> Draft {
    let index = Index {
        token: text(object, &["metadata", "uid"]).into(),
        labels: labels(object).collect(),
        fields: selectable
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_str()))
            .chain(owners(object))
            .collect(),
    };
    let (bytes, offset) = write(object, managers);
    Draft::new(bytes, index).revision_at(offset)
}

fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// Who owns the object: the garbage collector looks for it by this.
fn owners(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    references.filter_map(|reference| Some(("metadata.ownerReferences.uid", reference["uid"].as_str()?)))
}

/// What stands first in the bytes of an object, so that a list can leave it out (2.11).
const FIRST: [&str; 2] = ["apiVersion", "kind"];

/// The bytes of an object as an item of a list, whose kind says theirs.
pub fn item<'a>(resource: &Resource, bytes: &'a [u8]) -> (&'static [u8], &'a [u8]) {
    // Items of custom resources say themselves what they are.
    if resource.custom.is_some() {
        return (b"", bytes);
    }
    let first = format!(r#"{{"apiVersion":"{}","kind":"{}","#, resource.api_version(), resource.kind);
    match bytes.strip_prefix(first.as_bytes()) {
        Some(rest) => (b"{", rest),
        None => (b"", bytes),
    }
}

/// The items of a list; none of what is no list.
pub fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The bytes of an object from its metadata on, which is followed by the end of the object: `write` puts it last, with the
/// revision at `revision_at` first.
pub fn metadata_from(bytes: &[u8], revision_at: usize) -> Option<&[u8]> {
    let before = bytes.get(..revision_at)?.strip_suffix(REVISION)?.strip_suffix(METADATA)?;
    bytes.get(before.len() + METADATA.len()..)
}

/// `managedFields` in the bytes of an object, if it has any, between what stands before and after: they begin after
/// `from`, behind everything that is not metadata.
pub fn around_managers(bytes: &[u8], from: usize) -> Option<(&[u8], &[u8], &[u8])> {
    // Within a text, quotes are escaped; and no other field of metadata has this name and is a list.
    let start = from + memmem::find(bytes.get(from..)?, br#","managedFields":["#)?;
    let list = start + MANAGERS.len();
    let end = match bytes.strip_suffix(END) {
        // What `write` puts last ends where the metadata does.
        Some(rest) if rest.ends_with(b"]") => rest.len(),
        _ => list + list_length(&bytes[list..])?,
    };
    Some((&bytes[..start], &bytes[list..end], &bytes[end..]))
}

/// How long the list is that some bytes begin with.
fn list_length(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' if !is_text => depth += 1,
            b']' if !is_text => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// What the bytes of every object in a version begin with.
pub fn prefix(api_version: &str) -> String {
    format!(r#"{{"apiVersion":"{api_version}","#)
}

const METADATA: &[u8] = br#""metadata":"#;
const REVISION: &[u8] = br#"{"resourceVersion":""#;
const MANAGERS: &[u8] = br#","managedFields":"#;
const END: &[u8] = b"}}";

/// Writes an object without its resourceVersion, and says where the digits go. Managers that stand beside it come last.
fn write(object: &Value, managers: &Entries) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(1024);
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    out.push(b'{');
    for key in FIRST {
        write_field(&mut out, key, fields.get(key).unwrap_or(&Value::Null));
    }
    for (key, value) in fields.iter().filter(|(key, _)| *key != "metadata" && !FIRST.contains(&key.as_str()))
    {
        write_field(&mut out, key, value);
    }
    out.extend_from_slice(METADATA);
    out.extend_from_slice(REVISION);
    let offset = out.len();
    out.push(b'"');
    let meta = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    for (key, value) in meta.iter().filter(|(key, _)| *key != "resourceVersion") {
        out.push(b',');
        write_pair(&mut out, key, value);
    }
    if let Some(managers) = managers.text() {
        out.extend_from_slice(MANAGERS);
        out.extend_from_slice(managers);
    }
    out.extend_from_slice(END);
    (out, offset)
}

fn write_field(out: &mut Vec<u8>, key: &str, value: &Value) {
    write_pair(out, key, value);
    out.push(b',');
}

fn write_pair(out: &mut Vec<u8>, key: &str, value: &Value) {
    serde_json::to_writer(&mut *out, key).expect("writing to memory");
    out.push(b':');
    serde_json::to_writer(&mut *out, value).expect("writing to memory");
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::{Options, Store, Write};

    use super::*;

    #[tokio::test]
    async fn the_revision_is_written_into_the_bytes() {
        let store = Store::open(Options::ephemeral()).expect("a store");
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "\"b\""},
            "metadata": {"name": "x", "namespace": "n", "uid": "u", "labels": {"l": "1"}, "resourceVersion": "7"},
        });
        let key = Key::new("configmaps", "n", "x");
        let done = store
            .commit(Write::put(
                key,
                draft(&object, &Entries::default(), &[("metadata.name", "x".to_owned())]),
            ))
            .await
            .expect("a write");
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!(done.revision().to_string());
        assert_eq!(read(&done.object), expected);
        assert!(done.object.index.labels.has("l", "1"));
        assert!(done.object.index.fields.has("metadata.name", "x"));
        assert_eq!(&*done.object.index.token, "u");
        let at = done.object.revision_at().expect("a place for the revision");
        for value in [done.object.value.clone(), done.object.value_at(store::Revision(123_456))] {
            let whole: Value = serde_json::from_slice(&value).expect("JSON");
            let cut = metadata_from(&value, at).and_then(|from| from.strip_suffix(b"}")).expect("metadata");
            assert_eq!(serde_json::from_slice::<Value>(cut).expect("JSON"), whole["metadata"]);
            assert_eq!(metadata_from(&value, at + 1), None);
        }
    }

    #[tokio::test]
    async fn managers_are_cut_out() {
        let store = Store::open(Options::ephemeral()).expect("a store");
        let fields = json!({"f:spec": {"k:{\"a\":\"]\"}": {".": {}}, "v:\"[\\\\\"": {}}});
        let entries = json!([{"manager": "a", "fieldsV1": fields}, {"manager": "[b\\"}]);
        for annotation in ["x", r#","managedFields":[{"a":1}]"#] {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": r#","managedFields":[1]"#},
                "metadata": {"annotations": {"managedFields": annotation}, "name": "n", "uid": "u"},
            });
            let mut whole = object.clone();
            whole["metadata"]["managedFields"] = entries.clone();
            // Beside the object, and in it, where stores of earlier versions have them.
            for (object, managers) in
                [(&object, Entries::of_tree(Some(&entries))), (&whole, Entries::default())]
            {
                let key = Key::new("configmaps", "n", "x");
                let draft = draft(object, &managers, &[("metadata.name", "x".to_owned())]);
                let stored = store.commit(Write::put(key, draft)).await.expect("a write").object;
                let mut expected = whole.clone();
                expected["metadata"]["resourceVersion"] = json!(stored.revision.to_string());
                assert_eq!(read(&stored), expected);
                let tracked = read_tracked(&stored);
                assert_eq!(tracked.whole(), expected);
                assert_eq!(tracked.managers.tree().as_ref(), Some(&entries));
                assert_eq!(tracked.object["metadata"].get("managedFields"), None);
            }
            let (bytes, at) = write(&object, &Entries::default());
            assert_eq!(around_managers(&bytes, at), None);
        }
    }
}
