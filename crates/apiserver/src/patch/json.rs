//! JSON patch (RFC 6902), with the ways of the library that kube-apiserver uses.
//!
//! Those differ from the RFC: `replace` adds a missing member, `test` against null passes on a missing one, indexes may
//! count from the end, and a path without its leading slash loses its first step.

use serde_json::{Map, Value};

use super::Error;

/// Operations allowed in one patch.
const MAX_OPERATIONS: usize = 10_000;

/// Bytes that the `copy` operations of one patch may add.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Values that the operations of one patch may look at to see how deep they nest, and items of lists that they may shift:
/// what takes a real server minutes is refused.
const MAX_WORK: usize = 100_000_000;

/// A patch that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch(Vec<Map<String, Value>>);

/// How strictly a patch is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Members are checked, and unknown ones reported: `fieldValidation` is Warn or Strict.
    Checked,
    /// What does not fit is found out when it is needed: `fieldValidation` is Ignore.
    Lenient,
}

impl Patch {
    /// Reads a patch. Also returns what a strict server refuses and another warns of.
    pub fn read(patch: Value, reading: Reading) -> Result<(Patch, Vec<String>), Error> {
        let mut strict = Vec::new();
        let (whole, one) = match reading {
            Reading::Checked => {
                ("error decoding patch: ", ["[]handlers.jsonPatchOp", "handlers.jsonPatchOp"])
            }
            Reading::Lenient => ("", ["jsonpatch.Patch", "jsonpatch.Operation"]),
        };
        let refuse = |value: &Value, of: &str| {
            let kind = kind(value);
            Error::BadRequest(format!("{whole}json: cannot unmarshal {kind} into Go value of type {of}"))
        };
        let items = match patch {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            other => return Err(refuse(&other, one[0])),
        };
        let mut operations = Vec::with_capacity(items.len());
        for (place, item) in items.into_iter().enumerate() {
            let operation = match item {
                Value::Object(operation) => operation,
                Value::Null => Map::new(),
                other => return Err(refuse(&other, one[1])),
            };
            if reading == Reading::Checked {
                check(&operation, place, &mut strict)?;
            }
            operations.push(operation);
        }
        if operations.len() > MAX_OPERATIONS {
            return Err(Error::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            )));
        }
        Ok((Patch(operations), strict))
    }

    /// The document after all operations; none is applied if one fails, nor if the document would nest deeper than any may
    /// that is sent.
    pub fn apply(&self, mut document: Value) -> Result<Value, Error> {
        let mut spent = Spent::default();
        for operation in &self.0 {
            apply(operation, &mut document, &mut spent).map_err(Error::Unprocessable)?;
        }
        Ok(document)
    }
}

/// Members of an operation that the server knows; all but the value are strings.
fn check(operation: &Map<String, Value>, place: usize, strict: &mut Vec<String>) -> Result<(), Error> {
    for (name, value) in operation {
        match (name.as_str(), value) {
            ("value", _) | ("op" | "path" | "from", Value::String(_) | Value::Null) => {}
            ("op" | "path" | "from", other) => {
                return Err(Error::BadRequest(format!(
                    "error decoding patch: json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type \
                     string",
                    kind(other)
                )));
            }
            _ => strict.push(format!("json patch unknown field \"[{place}].{name}\"")),
        }
    }
    Ok(())
}

/// A value's kind as Go's JSON reader names it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What the operations of a patch have cost so far.
#[derive(Default)]
struct Spent {
    copied: usize,
    work: usize,
}

impl Spent {
    fn copy(&mut self, value: &Value) -> Result<(), String> {
        self.copied += if value.is_null() { 0 } else { types::go::json(value).len() };
        if self.copied > MAX_COPIED {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {MAX_COPIED}",
                self.copied
            ));
        }
        Ok(())
    }

    fn work(&mut self, steps: usize) -> Result<(), String> {
        self.work = self.work.saturating_add(steps);
        if self.work > MAX_WORK { Err("the patch takes too long".into()) } else { Ok(()) }
    }

    /// Looks how deep the document is with a value put where a path leads.
    fn expect_room(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let left = schema::MAX_DEPTH.checked_sub(level(path));
        let fits = left.map_or(Ok(false), |left| self.fits(value, left))?;
        if fits { Ok(()) } else { Err(format!("exceeded max depth for path: '{path}'")) }
    }

    fn fits(&mut self, value: &Value, left: usize) -> Result<bool, String> {
        self.work(1)?;
        let mut inner: Box<dyn Iterator<Item = &Value>> = match value {
            Value::Array(items) => Box::new(items.iter()),
            Value::Object(members) => Box::new(members.values()),
            _ => return Ok(true),
        };
        let Some(left) = left.checked_sub(1) else { return Ok(false) };
        inner.try_fold(true, |fits, value| Ok(fits && self.fits(value, left)?))
    }
}

/// How many lists and objects a path leads through.
fn level(path: &str) -> usize {
    path.matches('/').count()
}

fn apply(operation: &Map<String, Value>, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let path = text("path").ok_or("operation missing path field: missing value");
    let from = text("from").ok_or("operation, missing from field: missing value");
    let value = operation.get("value");
    match text("op").unwrap_or("unknown") {
        "add" => {
            let path = path.map_err(|_| "add operation failed to decode path: missing value")?;
            let missing =
                format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
            let (parent, key) = find(document, path).ok_or(missing)?;
            let value = value.cloned().unwrap_or(Value::Null);
            spent.expect_room(path, &value)?;
            spent.work(parent.items())?;
            parent.add(&key, value).map_err(|why| format!("error in add for path: '{path}': {why}"))
        }
        "remove" => {
            let path = path.map_err(|_| "remove operation failed to decode path: missing value")?;
            let missing =
                format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
            let (parent, key) = find(document, path).ok_or(missing)?;
            spent.work(parent.items())?;
            parent.remove(&key).map(drop).map_err(|why| format!("error in remove for path: '{path}': {why}"))
        }
        "replace" => {
            let path = path.map_err(|why| format!("replace operation failed to decode path: {why}"))?;
            if path.is_empty() {
                return match value {
                    Some(value @ (Value::Object(_) | Value::Array(_))) => {
                        *document = value.clone();
                        Ok(())
                    }
                    _ => Err("replace operation value must be object or array: %!w(<nil>)".into()),
                };
            }
            let missing =
                format!("replace operation does not apply: doc is missing path: {path}: missing value");
            let (parent, key) = find(document, path).ok_or(missing)?;
            let missing =
                format!("replace operation does not apply: doc is missing key: {path}: missing value");
            parent.get(&key).map_err(|_| missing)?;
            let value = value.cloned().unwrap_or(Value::Null);
            spent.expect_room(path, &value)?;
            parent.set(&key, value);
            Ok(())
        }
        "move" => {
            let from = from.map_err(|why| format!("move operation failed to decode from: {why}"))?;
            let missing =
                format!("move operation does not apply: doc is missing from path: {from}: missing value");
            let (parent, key) = find(document, from).ok_or(missing)?;
            spent.work(parent.items())?;
            let moved =
                parent.remove(&key).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
            let path = path.map_err(|why| format!("move operation failed to decode path: {why}"))?;
            let missing = format!(
                "move operation does not apply: doc is missing destination path: {path}: missing value"
            );
            let (parent, key) = find(document, path).ok_or(missing)?;
            // What does not come to lie deeper is not looked at again.
            if level(path) > level(from) {
                spent.expect_room(path, &moved)?;
            }
            spent.work(parent.items())?;
            parent.add(&key, moved).map_err(|why| format!("error in move for path: '{path}': {why}"))
        }
        "test" => {
            let path = path.map_err(|why| format!("test operation failed to decode path: {why}"))?;
            let failed = format!("testing value {path} failed: test failed");
            if path.is_empty() {
                return if value == Some(document) { Ok(()) } else { Err(failed) };
            }
            let missing = format!("test operation does not apply: is missing path: {path}: missing value");
            let (parent, key) = find(document, path).ok_or(missing)?;
            let found = parent.get(&key).map_err(|why| format!("error in test for path: '{path}': {why}"))?;
            let (found, value) = (found.unwrap_or(&Value::Null), value.unwrap_or(&Value::Null));
            if found == value { Ok(()) } else { Err(failed) }
        }
        "copy" => {
            let from = from.map_err(|why| format!("copy operation failed to decode from: {why}"))?;
            let missing =
                format!("copy operation does not apply: doc is missing from path: {from}: missing value");
            let (parent, key) = find(document, from).ok_or(missing)?;
            let found = parent.get(&key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
            let copy = found.cloned().unwrap_or(Value::Null);
            let path = path.map_err(|_| "copy operation failed to decode path: missing value")?;
            let missing = format!(
                "copy operation does not apply: doc is missing destination path: {path}: missing value"
            );
            let (parent, key) = find(document, path).ok_or(missing)?;
            spent.copy(&copy)?;
            spent.expect_room(path, &copy)?;
            spent.work(parent.items())?;
            parent.add(&key, copy).map_err(|why| format!("error while adding value during copy: {why}"))
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// What a path's last step is taken in.
enum Parent<'a> {
    Object(&'a mut Map<String, Value>),
    Array(&'a mut Vec<Value>),
}

/// The parent and the last step of a path. What comes before the first slash is not looked at.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(Parent<'a>, String)> {
    let (_, steps) = path.split_once('/')?;
    let (parents, last) =
        steps.rsplit_once('/').map_or((None, steps), |(parents, last)| (Some(parents), last));
    let mut found = document;
    for step in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let step = unescape(step);
        found = match found {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let place = index(&step, items.len()).ok()?;
                items.get_mut(place)?
            }
            _ => return None,
        };
    }
    let parent = match found {
        Value::Object(fields) => Parent::Object(fields),
        Value::Array(items) => Parent::Array(items),
        _ => return None,
    };
    Some((parent, unescape(last)))
}

fn unescape(step: &str) -> String {
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(place) = rest.find('~') {
        out.push_str(&rest[..place]);
        let (escaped, length) = match rest.as_bytes().get(place + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(escaped);
        rest = &rest[place + length..];
    }
    out + rest
}

/// The place that a step means in a list of some length, counted from the end if it is negative.
fn index(step: &str, length: usize) -> Result<usize, String> {
    let given: i64 = step.parse().map_err(|_| {
        let quoted = types::go::quote(step);
        format!("strconv.Atoi: parsing {quoted}: invalid syntax")
    })?;
    let invalid = || format!("Unable to access invalid index: {given}: invalid index referenced");
    let length = i64::try_from(length).map_err(|_| invalid())?;
    let place = if given < 0 { given.saturating_add(length) } else { given };
    if place >= length {
        return Err(invalid());
    }
    usize::try_from(place).map_err(|_| invalid())
}

impl Parent<'_> {
    /// How many items may have to make room or close up.
    fn items(&self) -> usize {
        match self {
            Parent::Object(_) => 0,
            Parent::Array(items) => items.len(),
        }
    }

    /// The value at a step, if there is one; a list has to have it.
    fn get(&self, key: &str) -> Result<Option<&Value>, String> {
        match self {
            Parent::Object(fields) => Ok(fields.get(key)),
            Parent::Array(items) => Ok(items.get(index(key, items.len())?)),
        }
    }

    fn set(self, key: &str, value: Value) {
        match self {
            Parent::Object(fields) => {
                fields.insert(key.to_owned(), value);
            }
            Parent::Array(items) => {
                if let Ok(place) = index(key, items.len()) {
                    items[place] = value;
                }
            }
        }
    }

    fn add(self, key: &str, value: Value) -> Result<(), String> {
        match self {
            Parent::Object(fields) => {
                fields.insert(key.to_owned(), value);
            }
            Parent::Array(items) if key == "-" => items.push(value),
            Parent::Array(items) => {
                let place = index(key, items.len() + 1);
                let is_number = key.parse::<i64>().is_ok();
                let place = place.map_err(|why| {
                    if is_number {
                        why
                    } else {
                        format!("value was not a proper array index: '{key}': {why}")
                    }
                })?;
                items.insert(place, value);
            }
        }
        Ok(())
    }

    fn remove(self, key: &str) -> Result<Value, String> {
        match self {
            Parent::Object(fields) => fields
                .remove(key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
            Parent::Array(items) => Ok(items.remove(index(key, items.len())?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: Value) -> Result<Value, Error> {
        Patch::read(patch, Reading::Checked)?.0.apply(document)
    }

    #[test]
    fn r2_38_operations() {
        let document = json!({"a": "1", "list": ["x", "y"], "m~/": {"k": null}});
        let check = |patch: Value, expected: Value| {
            let mut merged = document.clone();
            for (name, value) in expected.as_object().expect("an object") {
                merged[name] = value.clone();
            }
            assert_eq!(patched(document.clone(), patch), Ok(merged));
        };
        check(json!([{"op": "add", "path": "/list/-", "value": "z"}]), json!({"list": ["x", "y", "z"]}));
        check(json!([{"op": "add", "path": "/list/0", "value": "z"}]), json!({"list": ["z", "x", "y"]}));
        check(json!([{"op": "add", "path": "/list/-1", "value": "z"}]), json!({"list": ["x", "y", "z"]}));
        check(json!([{"op": "remove", "path": "/list/-1"}]), json!({"list": ["x"]}));
        check(json!([{"op": "replace", "path": "/list/1", "value": 5}]), json!({"list": ["x", 5]}));
        check(json!([{"op": "replace", "path": "/zz", "value": "x"}]), json!({"zz": "x"}));
        check(json!([{"op": "add", "path": "data/a", "value": "x"}]), json!({"a": "x"}));
        check(json!([{"op": "add", "path": "/zz"}]), json!({"zz": null}));
        check(json!([{"op": "add", "path": "/m~0~1/k", "value": 1}]), json!({"m~/": {"k": 1}}));
        check(json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"b": "1"}));
        check(json!([{"op": "move", "from": "/list/0", "path": "/list/1"}]), json!({"list": ["y", "x"]}));
        check(
            json!([{"op": "test", "path": "/zz", "value": null}, {"op": "test", "path": "/zz"}]),
            json!({}),
        );
        check(json!([{"op": "test", "path": "/list", "value": ["x", "y"]}]), json!({}));
    }

    #[test]
    fn r2_38_failures_are_422() {
        for patch in [
            json!([{"op": "test", "path": "/a", "value": "2"}]),
            json!([{"op": "test", "path": "/a", "value": 1}]),
            json!([{"op": "remove", "path": "/zz"}]),
            json!([{"op": "remove", "path": ""}]),
            json!([{"op": "add", "path": "/nope/x", "value": 1}]),
            json!([{"op": "add", "path": "/a/x", "value": 1}]),
            json!([{"op": "add", "value": 1}]),
            json!([{"op": "frob", "path": "/a"}]),
            json!([{"path": "/a"}]),
            json!([null]),
            json!([{"op": "move", "path": "/a"}]),
            json!([{"op": "replace", "path": "/list/9", "value": 1}]),
            json!([{"op": "add", "path": "/list/x", "value": 1}]),
            json!([{"op": "add", "path": "/list/-9", "value": 1}]),
            json!([{"op": "replace", "path": "", "value": 1}]),
        ] {
            let result = patched(json!({"a": "1", "list": ["x"]}), patch.clone());
            assert!(matches!(result, Err(Error::Unprocessable(_))), "{patch}: {result:?}");
        }
    }

    #[test]
    fn r2_38_what_is_no_patch_is_400() {
        let check = |patch: Value, reading: Reading, message: &str| {
            assert_eq!(Patch::read(patch, reading), Err(Error::BadRequest(message.into())));
        };
        check(
            json!({"op": "add"}),
            Reading::Checked,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        );
        check(
            json!({}),
            Reading::Lenient,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        );
        check(
            json!([1]),
            Reading::Lenient,
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        );
        check(
            json!([{"op": 5}]),
            Reading::Checked,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        );
        let (_, strict) =
            Patch::read(json!([{"op": "test", "path": "", "x": 1}]), Reading::Checked).expect("a patch");
        assert_eq!(strict, ["json patch unknown field \"[0].x\""]);
    }

    #[test]
    fn r2_38_too_much_is_refused() {
        let many = vec![json!({"op": "test", "path": "/a"}); MAX_OPERATIONS + 1];
        let message = "The allowed maximum operations in a JSON patch is 10000, got 10001";
        assert_eq!(Patch::read(many.into(), Reading::Checked), Err(Error::TooLarge(message.into())));
        let copies = vec![json!({"op": "copy", "from": "/a", "path": "/b/-"}); 4];
        let document = json!({"a": "x".repeat(1024 * 1024), "b": []});
        assert!(matches!(patched(document, copies.into()), Err(Error::Unprocessable(_))));
    }

    #[test]
    fn r2_38_what_would_nest_too_deep_is_refused() {
        let deep = |levels: usize| (1..levels).fold(json!([]), |inner, _| json!([inner]));
        let check = |patch: Vec<Value>, fits: bool| {
            let document = json!({"a": {}, "b": deep(10)});
            let patched = patched(document, patch.into());
            match patched {
                Ok(document) => assert!(fits && schema::nests_within(&document, schema::MAX_DEPTH)),
                Err(why) => assert!(!fits && matches!(why, Error::Unprocessable(_)), "{why:?}"),
            }
        };
        let most = schema::MAX_DEPTH;
        for op in ["add", "replace"] {
            check(vec![json!({"op": op, "path": "/a", "value": deep(most - 1)})], true);
            check(vec![json!({"op": op, "path": "/a", "value": deep(most)})], false);
        }
        let inside = |step: usize, path: &str| json!({"op": "add", "path": path, "value": step});
        check(vec![inside(1, &"/a".repeat(100_000))], false);
        // A value in itself, and in that again: each time twice as deep.
        let copies = |many: u32| -> Vec<Value> {
            let path = |of: u32| format!("/b{}", "/0".repeat(10 * 2_usize.pow(of) - of as usize));
            (0..many).map(|of| json!({"op": "copy", "from": "/b", "path": path(of)})).collect()
        };
        check(copies(3), true);
        check(copies(17), false);
        let moves = |many: usize| -> Vec<Value> {
            let one = |_| {
                let into = format!("/a{}/0", "/0".repeat(8));
                [
                    json!({"op": "add", "path": "/a", "value": deep(10)}),
                    json!({"op": "move", "from": "/b", "path": into}),
                    json!({"op": "move", "from": "/a", "path": "/b"}),
                ]
            };
            (0..many).flat_map(one).collect()
        };
        check(moves(10), true);
        check(moves(3_000), false);
    }

    #[test]
    fn r2_38_a_long_list_is_not_shifted_without_end() {
        let document = json!({"list": vec![0; 1_000_000]});
        let patch = |path: &str| vec![json!({"op": "add", "path": path, "value": 0}); MAX_OPERATIONS];
        assert!(matches!(patched(document, patch("/list/0").into()), Err(Error::Unprocessable(_))));
        let document = json!({"list": [0]});
        assert!(patched(document, patch("/list/0").into()).is_ok());
    }
}
