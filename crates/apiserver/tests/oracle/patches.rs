//! Patches of each type on generated documents.

use apiserver::patch::{Error, json as json_patch, merge, strategic};
use schema::Pack;
use serde_json::{Map, Value, json};

use crate::go;
use crate::random::{Random, Shape, seeds};

fn answer(result: Result<Value, Error>) -> Value {
    let (code, error) = match result {
        Ok(object) => return json!({"object": object}),
        Err(error @ Error::BadRequest(_)) => (400, error),
        Err(error @ Error::TooLarge(_)) => (413, error),
        Err(error @ Error::Unprocessable(_)) => (422, error),
        Err(error @ Error::Failed(_)) => (500, error),
    };
    json!({"error": error.to_string(), "code": code})
}

/// Compares all answers; returns how many patches fitted their document.
fn compare(questions: &[Value], answers: impl Iterator<Item = Value>) -> usize {
    let mut fitted = 0;
    for ((seed, ours), (question, theirs)) in
        seeds(questions.len() as u64).zip(answers).zip(questions.iter().zip(go::ask(questions)))
    {
        let one = vec![theirs.clone()];
        let all = theirs.get("answers").and_then(Value::as_array).unwrap_or(&one);
        // Where upstream panics, which is a 500 with the panic's words, any refusal will do.
        if all.iter().any(|theirs| theirs.get("panic").is_some()) {
            continue;
        }
        fitted += usize::from(ours.get("object").is_some());
        let asked = format!("seed {seed}: {} of {}", question["patch"], question["document"]);
        assert!(all.contains(&ours), "{asked}\nours: {ours}\ntheirs: {theirs}");
    }
    fitted
}

fn path(random: &mut Random, document: &Value) -> String {
    let mut path = String::new();
    let mut at = document;
    loop {
        let step = match at {
            Value::Object(fields) if !fields.is_empty() && random.percent(80) => {
                let names: Vec<&String> = fields.keys().collect();
                let name = (*random.one(&names)).clone();
                at = &fields[&name];
                name.replace('~', "~0").replace('/', "~1")
            }
            Value::Array(items) if !items.is_empty() && random.percent(80) => {
                let place = random.below(items.len());
                at = &items[place];
                if random.percent(10) { format!("-{}", random.below(4)) } else { place.to_string() }
            }
            _ if random.percent(60) => return path,
            _ => {
                let last = random.one(&["-", "0", "7", "a", "b", "~1", "", "x/y"]);
                return format!("{path}/{last}");
            }
        };
        path = format!("{path}/{step}");
        if random.percent(30) {
            return path;
        }
    }
}

fn operation(random: &mut Random, document: &Value) -> Value {
    let mut operation = Map::new();
    let op =
        *random.one(&["add", "add", "remove", "replace", "replace", "move", "copy", "test", "test", "frob"]);
    if op != "frob" || random.percent(20) {
        operation.insert("op".into(), json!(op));
    }
    if random.percent(98) {
        operation.insert("path".into(), json!(path(random, document)));
    }
    if matches!(op, "move" | "copy") && random.percent(95) {
        operation.insert("from".into(), json!(path(random, document)));
    }
    if op == "test" && random.percent(80) {
        let at = operation.get("path").and_then(Value::as_str).unwrap_or_default();
        if let Some(value) = document.pointer(at) {
            operation.insert("value".into(), value.clone());
        }
    } else if random.percent(90) {
        operation.insert("value".into(), random.json(2));
    }
    Value::Object(operation)
}

fn object(random: &mut Random) -> Value {
    let names = ["a", "b", "list", "x/y", "c~"];
    Value::Object(names.iter().map(|name| ((*name).to_owned(), random.json(4))).collect())
}

#[test]
fn oracle_json_patches() {
    if !go::is_here() {
        return;
    }
    let cases: Vec<(Value, Value)> = seeds(600)
        .map(|seed| {
            let random = &mut Random::new(seed);
            let document = object(random);
            let patch: Value = (0..=random.below(3)).map(|_| operation(random, &document)).collect();
            (document, patch)
        })
        .collect();
    let questions: Vec<Value> = cases
        .iter()
        .map(
            |(document, patch)| json!({"op": "json-patch", "document": document, "patch": patch.to_string()}),
        )
        .collect();
    let answers = cases.into_iter().map(|(document, patch)| {
        let patch = json_patch::Patch::read(patch, json_patch::Reading::Lenient);
        answer(patch.and_then(|(patch, _)| patch.apply(document)))
    });
    let fitted = compare(&questions, answers);
    assert!(fitted > questions.len() / 5, "only {fitted} of {} patches fitted", questions.len());
}

#[test]
fn oracle_merge_patches() {
    if !go::is_here() {
        return;
    }
    let cases: Vec<(Value, Value)> = seeds(400)
        .map(|seed| {
            let random = &mut Random::new(seed);
            let document = object(random);
            (document, if random.percent(90) { object(random) } else { random.json(2) })
        })
        .collect();
    let questions: Vec<Value> = cases
        .iter()
        .map(|(document, patch)| json!({"op": "merge-patch", "document": document, "patch": patch.to_string()}))
        .collect();
    let answers = cases.into_iter().map(|(document, patch)| answer(merge::apply(document, patch)));
    let fitted = compare(&questions, answers);
    assert!(fitted > questions.len() / 2, "only {fitted} of {} patches fitted", questions.len());
}

/// A patch that has to do with the document: parts of it and of another, with directives here and there.
fn strategic_patch(random: &mut Random, document: &Value, other: &Value) -> Value {
    match (document, other) {
        (Value::Object(fields), Value::Object(others)) => {
            let mut patch = Map::new();
            for (name, value) in
                fields.iter().chain(others.iter().filter(|(name, _)| !fields.contains_key(*name)))
            {
                let known = fields.get(name).unwrap_or(value);
                let other = others.get(name).unwrap_or(value);
                if random.percent(60) {
                    patch.insert(name.clone(), strategic_patch(random, known, other));
                } else if random.percent(8) {
                    patch.insert(name.clone(), Value::Null);
                }
                if known.is_array() && random.percent(25) {
                    let list = strategic_patch(random, known, other);
                    let plain = list.as_array().cloned().unwrap_or_default();
                    let order = plain.iter().map(|item| without(item, "$patch")).collect();
                    let directive =
                        *random.one(&["$setElementOrder", "$setElementOrder", "$deleteFromPrimitiveList"]);
                    patch.insert(format!("{directive}/{name}"), order);
                    // Adding to a list and deleting from it at once has an outcome that depends on Go's maps.
                    patch.remove(name);
                    if directive == "$setElementOrder" && random.percent(80) {
                        let kept = plain.iter().filter(|_| random.percent(70)).cloned().collect();
                        patch.insert(name.clone(), kept);
                    }
                }
            }
            if random.percent(3) {
                let directive = *random.one(&["replace", "delete", "merge", "frob"]);
                patch.insert("$patch".into(), json!(directive));
            }
            if random.percent(3) {
                let mut keys: Vec<Value> = patch.keys().map(|name| json!(name)).collect();
                if random.percent(20) {
                    keys.pop();
                }
                patch.insert("$retainKeys".into(), keys.into());
            }
            Value::Object(patch)
        }
        (Value::Array(items), Value::Array(others)) => {
            let mut patch = Vec::new();
            for item in items.iter().chain(others) {
                if random.percent(50) {
                    let mut item =
                        if random.percent(50) { strategic_patch(random, item, item) } else { item.clone() };
                    keep_keys(random, &mut item, items);
                    if random.percent(8)
                        && let Value::Object(fields) = &mut item
                    {
                        let directive = *random.one(&["delete", "delete", "delete", "replace", "merge"]);
                        fields.insert("$patch".into(), json!(directive));
                    }
                    patch.push(item);
                }
            }
            Value::Array(patch)
        }
        (_, other) => other.clone(),
    }
}

/// Mostly gives an item the keys of one of the list.
fn keep_keys(random: &mut Random, item: &mut Value, items: &[Value]) {
    let Value::Object(fields) = item else { return };
    for key in
        ["name", "type", "uid", "ip", "mountPath", "devicePath", "containerPort", "port", "topologyKey"]
    {
        if items.iter().any(|item| item.get(key).is_some()) && random.percent(95) {
            let known = random.one(items).get(key).cloned();
            fields.insert(key.into(), known.unwrap_or_else(|| json!("n")));
        }
    }
}

fn without(item: &Value, name: &str) -> Value {
    let mut item = item.clone();
    if let Value::Object(fields) = &mut item {
        fields.remove(name);
    }
    item
}

#[test]
fn oracle_strategic_merge_patches() {
    if !go::is_here() {
        return;
    }
    let source = go::ask(&[json!({"op": "schema"})]).remove(0)["schema"].take();
    let shape = Shape::new(&source, 0);
    let kinds = [
        ("", "Pod", "io.k8s.api.core.v1.Pod"),
        ("", "Service", "io.k8s.api.core.v1.Service"),
        ("apps", "Deployment", "io.k8s.api.apps.v1.Deployment"),
        ("batch", "Job", "io.k8s.api.batch.v1.Job"),
        ("", "ServiceAccount", "io.k8s.api.core.v1.ServiceAccount"),
        ("", "Node", "io.k8s.api.core.v1.Node"),
    ];
    let cases: Vec<_> = seeds(600)
        .map(|seed| {
            let random = &mut Random::new(seed);
            let (group, kind, name) = kinds[random.below(kinds.len())];
            let of = json!({"namedType": name});
            let document = random.value(&shape, &of, 8);
            let other = random.value(&shape, &of, 8);
            let patch = strategic_patch(random, &document, &other);
            (group, kind, document, patch)
        })
        .collect();
    let questions: Vec<Value> = cases
        .iter()
        .map(|(group, kind, document, patch)| {
            json!({"op": "strategic", "group": group, "apiVersion": "v1", "patchKind": kind, "document": document,
                "patch": patch.to_string()})
        })
        .collect();
    let answers = cases.into_iter().map(|(group, kind, document, patch)| {
        let of = Pack::v1_35().of_kind(group, "v1", kind).expect("a built-in kind");
        answer(strategic::apply(of, document, patch))
    });
    let fitted = compare(&questions, answers);
    assert!(fitted > questions.len() / 5, "only {fitted} of {} patches fitted", questions.len());
}
