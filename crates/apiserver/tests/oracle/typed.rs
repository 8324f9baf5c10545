//! Values with types: every operation, on one pair of values a case.

use apiserver::apply::{Duplicates, Schema, Set, TypeId, Typed};
use serde_json::{Value, json};

use crate::random::{Random, Shape, seeds};
use crate::{go, schema};

/// What we make of a question, in the words of an answer.
fn ours(schema: &Schema, of: TypeId, question: &Value) -> Value {
    let mut answer = json!({});
    let mut floats = question["right"].clone();
    to_floats(&mut floats);
    if let Err(error) = Typed::new(schema, of, floats.clone(), Duplicates::Refused) {
        answer["strictError"] = json!(error.to_string());
    }
    let left = match Typed::new(schema, of, question["left"].clone(), Duplicates::Allowed) {
        Ok(left) => left,
        Err(error) => return json!({"leftError": error.to_string()}),
    };
    let right = match Typed::new(schema, of, floats, Duplicates::Allowed) {
        Ok(right) => right,
        Err(error) => {
            answer["rightError"] = json!(error.to_string());
            return answer;
        }
    };
    let Ok(items) = Set::from_fields_v1(&question["set"]) else {
        answer["setError"] = json!(true);
        return answer;
    };
    answer["fields"] = json!(right.field_set().to_json());
    match left.merge(&right) {
        Ok(merged) => answer["merged"] = merged.into_value(),
        Err(error) => answer["mergeError"] = json!(error.to_string()),
    }
    match left.compare(&right) {
        Ok(changes) => {
            answer["added"] = json!(changes.added.to_json());
            answer["modified"] = json!(changes.modified.to_json());
            answer["removed"] = json!(changes.removed.to_json());
        }
        Err(error) => answer["compareError"] = json!(error.to_string()),
    }
    answer["named"] = json!(left.with_named_fields(&items).to_json());
    answer["without"] = left.remove(&items).into_value();
    answer["only"] = left.extract(&items).into_value();
    answer["onlyWithKeys"] = left.extract(&items.union(&left.key_fields(&items))).into_value();
    if let Some(set) = left.reconcile(&items) {
        answer["reconciled"] = json!(set.to_json());
    }
    answer["printed"] = json!(items.to_string());
    answer
}

fn to_floats(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(to_floats),
        Value::Object(fields) => fields.values_mut().for_each(to_floats),
        _ => {}
    }
}

/// Both answers with numbers and the order of problems, which is that of Go's maps, evened out.
fn comparable(mut answer: Value) -> Value {
    to_floats(&mut answer);
    for name in ["strictError", "leftError", "rightError", "mergeError", "compareError"] {
        if let Some(text) = answer.get(name).and_then(Value::as_str) {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            // Of several undeclared fields Go names one, by chance; the rest of that map it does not look at.
            let vague = text.contains("field not declared in schema");
            answer[name] = if vague { json!("vague") } else { json!(lines) };
        }
    }
    answer
}

fn check(
    name: &str,
    schema_json: &Value,
    question_schema: Option<&Value>,
    of: &str,
    noise: usize,
    cases: u64,
) {
    let (schema, names) = schema::read(schema_json);
    let shape = Shape::new(schema_json, noise);
    let reference = json!({"namedType": of});
    let questions: Vec<Value> = seeds(cases)
        .map(|seed| {
            let random = &mut Random::new(seed);
            let left = random.value(&shape, &reference, 7);
            let right =
                if random.percent(30) { mutated(random, &left) } else { random.value(&shape, &reference, 7) };
            let set = set_like(random, &schema, names[of], [&left, &right]);
            let mut question = json!({"op": "typed", "type": of, "left": left, "right": right, "set": set});
            if let Some(schema) = question_schema {
                question["schema"] = schema.clone();
            }
            question
        })
        .collect();
    let mut whole = 0;
    for (seed, (question, answer)) in seeds(cases).zip(questions.iter().zip(go::ask(&questions))) {
        let ours = ours(&schema, names[of], question);
        whole += usize::from(ours.get("merged").is_some());
        let asked = json!({"left": question["left"], "right": question["right"], "set": question["set"]});
        let (ours, theirs) = (comparable(ours), comparable(answer));
        assert_eq!(ours, theirs, "{name}, seed {seed}: {asked:#}");
    }
    assert!(
        whole > questions.len() / 4,
        "{name}: of {} cases only {whole} were of their type",
        questions.len()
    );
}

/// A value with some of its parts gone or changed.
fn mutated(random: &mut Random, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = serde_json::Map::new();
            for (name, value) in fields {
                if random.percent(80) {
                    kept.insert(name.clone(), mutated(random, value));
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => {
            let mut kept: Vec<Value> = items.iter().filter(|_| random.percent(80)).cloned().collect();
            if kept.len() > 1 && random.percent(30) {
                kept.swap(0, 1);
            }
            for item in &mut kept {
                *item = mutated(random, item);
            }
            Value::Array(kept)
        }
        other => other.clone(),
    }
}

/// Fields of either value, mostly.
fn set_like(random: &mut Random, schema: &Schema, of: TypeId, values: [&Value; 2]) -> Value {
    if random.percent(5) {
        return random.json(3);
    }
    let mut set = Set::new();
    for value in values {
        if let Ok(typed) = Typed::new(schema, of, value.clone(), Duplicates::Allowed) {
            typed.field_set().for_each(|path| {
                if random.percent(30) {
                    set.insert(&path[..=random.below(path.len())]);
                }
            });
        }
    }
    set.to_fields_v1()
}

#[test]
fn oracle_typed_values_of_a_made_up_kind() {
    if go::is_here() {
        let widgets = schema::widgets();
        check("widgets", &widgets, Some(&widgets), "v1", 1, 400);
    }
}

#[test]
fn oracle_typed_values_of_built_in_kinds() {
    if go::is_here() {
        let builtin = go::ask(&[json!({"op": "schema"})]).remove(0)["schema"].take();
        for (of, cases) in [
            ("io.k8s.api.batch.v1.Job", 60),
            ("io.k8s.api.core.v1.Pod", 60),
            ("io.k8s.api.core.v1.Service", 60),
            ("io.k8s.api.apps.v1.Deployment", 60),
            ("io.k8s.api.core.v1.Node", 40),
        ] {
            check(of, &builtin, None, of, 0, cases);
        }
    }
}
