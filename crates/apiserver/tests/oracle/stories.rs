//! Stories: several managers apply and update one object, in two versions and through a subresource. Every step is put
//! to both field managers.

use std::collections::HashMap;

use apiserver::apply::filter::{Filter, Filters};
use apiserver::apply::{ApplyError, FieldManager, Schema, Set, Tracked, TypeId, Versions};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::random::{Random, Shape, seeds};
use crate::{go, schema};

const GROUP: &str = "example.com";

struct Widgets {
    schema: Schema,
    names: HashMap<String, TypeId>,
}

/// What a version calls the number of replicas.
fn replicas_in(version: &str) -> &'static str {
    if version.ends_with("v2") { "count" } else { "replicas" }
}

impl Versions for Widgets {
    fn type_in(&self, version: &str) -> Option<(&Schema, TypeId)> {
        let (group, name) = version.split_once('/')?;
        (group == GROUP).then(|| self.names.get(name).map(|of| (&self.schema, *of)))?
    }

    fn convert(&self, object: &Value, version: &str) -> Result<Value, String> {
        let mut converted = object.clone();
        let from = replicas_in(object["apiVersion"].as_str().unwrap_or_default());
        converted["apiVersion"] = json!(version);
        if let Some(Value::Object(spec)) = converted.get_mut("spec")
            && let Some(replicas) = spec.remove(from)
        {
            spec.insert(replicas_in(version).into(), replicas);
        }
        Ok(converted)
    }
}

/// One step of a story: the question for the oracle, and our answer to it.
struct Step {
    question: Value,
    ours: Value,
}

struct Story<'a> {
    widgets: &'a Widgets,
    shape: &'a Shape<'a>,
    random: Random,
    object: Value,
    now: i64,
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Story<'_> {
    fn step(&mut self) -> Step {
        let random = &mut self.random;
        self.now += 1;
        let now = Timestamp::from_second(1_700_000_000 + self.now).expect("a time");
        let version = format!("{GROUP}/{}", random.one(&["v1", "v1", "v1", "v2"]));
        let subresource = if random.percent(10) { "status" } else { "" };
        let manager = *random.one(&["a", "a", "b", "b", "c", "kubectl", "d<", "ü e"]);
        let reset = if subresource.is_empty() { json!({"f:status": {}}) } else { json!({"f:spec": {}}) };
        let filters: Filters = ["v1", "v2"]
            .map(|name| {
                let set = Set::from_fields_v1(&reset).expect("FieldsV1");
                (format!("{GROUP}/{name}"), Filter::Except(set))
            })
            .into();
        let live = self.widgets.convert(&self.object, &version).expect("a conversion");
        let empty = json!({"apiVersion": version, "kind": "Widget"});
        let fields = FieldManager {
            versions: self.widgets,
            version: &version,
            kind: "Widget",
            subresource,
            reset: &filters,
            empty: &empty,
        };
        let of = json!({"namedType": version.split_once('/').map(|(_, name)| name)});
        let mut object = random.value(self.shape, &of, 6);
        let applies = random.percent(60);
        let force = applies && random.percent(40);
        if applies {
            without_managers(random, &mut object);
        } else {
            object = updated(random, &live, object);
        }
        mark(&mut object, &version);
        let mut question = json!({"op": if applies { "apply" } else { "update" }, "live": live, "object": object,
            "manager": manager, "force": force, "version": version, "kind": "Widget", "subresource": subresource,
            "now": now.to_string(), "empty": empty});
        question["types"] = json!({"example.com/v1": "v1", "example.com/v2": "v2"});
        question["names"] = json!({"example.com/v1": "replicas", "example.com/v2": "count"});
        question["reset"] = json!({"example.com/v1": reset, "example.com/v2": reset});
        let ours = if applies {
            match fields.apply(&Tracked::of(live), object, manager, force, now) {
                Ok(applied) => json!({"object": applied.whole()}),
                Err(error) => refusal(&error),
            }
        } else {
            let brought = object.pointer("/metadata/managedFields").cloned();
            let Tracked { object: new, .. } = Tracked::of(object);
            match fields.update(&Tracked::of(live), &new, brought.as_ref(), manager, now) {
                Ok(managers) => json!({"object": Tracked { object: new, managers }.whole()}),
                Err(error) => json!({"error": error.to_string()}),
            }
        };
        if let Some(object) = ours.get("object") {
            self.object = object.clone();
            self.object["metadata"]["uid"] = json!("u");
        }
        Step { question, ours }
    }
}

fn refusal(error: &ApplyError) -> Value {
    let message = error.to_string();
    match error {
        ApplyError::Failed(_) => json!({"error": message}),
        ApplyError::BadRequest(_) => json!({"error": message, "code": 400}),
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.0.iter().map(|conflict| {
                json!({"reason": "FieldManagerConflict", "message": conflict.message(), "field": conflict.field()})
            });
            json!({"error": message, "code": 409, "causes": causes.collect::<Value>()})
        }
    }
}

/// Says what the object is.
fn mark(object: &mut Value, version: &str) {
    if !object.is_object() {
        *object = json!({});
    }
    object["apiVersion"] = json!(version);
    object["kind"] = json!("Widget");
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = json!("w");
}

/// Nearly never brings managers along: that is refused, and once in a while is enough.
fn without_managers(random: &mut Random, object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && random.percent(97)
    {
        metadata.remove("managedFields");
    }
}

/// The live object with some parts of another, or without some.
fn updated(random: &mut Random, live: &Value, other: Value) -> Value {
    let mut new = live.clone();
    let Value::Object(other) = other else { return new };
    for (name, value) in other {
        if random.percent(70) && name != "metadata" {
            new[&name] = match (new.get(&name).cloned(), value) {
                (Some(Value::Object(mut known)), Value::Object(fields)) if random.percent(70) => {
                    known.extend(fields);
                    Value::Object(known)
                }
                (_, value) => value,
            };
        } else if random.percent(20) {
            new.as_object_mut().expect("an object").remove(&name);
        }
    }
    if random.percent(15) {
        let last = json!({"apiVersion": live["apiVersion"], "kind": "Widget", "metadata": {"name": "w"},
            "spec": live["spec"], "data": live["data"]});
        new["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
    }
    match random.below(30) {
        0 => new["metadata"]["managedFields"] = json!([]),
        1 => new["metadata"]["managedFields"] = json!([{}]),
        2 => new["metadata"]["managedFields"] = Value::Null,
        3 => {
            if let Some(Value::Array(entries)) = new["metadata"].get_mut("managedFields") {
                entries.truncate(1);
            }
        }
        4 => {
            new["metadata"]["managedFields"] = json!([{"manager": "edited", "operation": "Apply",
            "apiVersion": format!("{GROUP}/{}", random.one(&["v1", "v2", "v0"])), "time": "2020-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:selector": {"f:a": {}}, "f:paused": {},
            "f:containers": {"k:{\"name\":\"a\"}": {"f:name": {}, "f:image": {}}}}, "f:data": {"f:a": {}}}}]);
        }
        _ => {}
    }
    new
}

/// Answers with numbers evened out, managers as a map, and lists of conflicts sorted: Go's maps order them by chance.
fn comparable(mut answer: Value) -> Value {
    integers(&mut answer);
    if let Some(Value::Array(causes)) = answer.get_mut("causes") {
        causes.sort_by_key(ToString::to_string);
    }
    if let Some(text) = answer.get("error").and_then(Value::as_str) {
        let vague = text.contains("field not declared in schema");
        answer["error"] = if vague { json!("vague") } else { lines(text) };
    }
    answer
}

fn lines(text: &str) -> Value {
    if text.starts_with("Apply failed") {
        return json!(text);
    }
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    json!(lines)
}

fn integers(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(integers),
        Value::Object(fields) => fields.values_mut().for_each(integers),
        _ => {}
    }
}

#[test]
fn oracle_stories_of_several_managers() {
    if !go::is_here() {
        return;
    }
    let source = schema::widgets();
    let (schema, names) = schema::read(&source);
    let widgets = Widgets { schema, names };
    let shape = Shape::new(&source, 0);
    let mut steps: Vec<(u64, Step)> = Vec::new();
    for seed in seeds(120) {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}});
        let mut story = Story { widgets: &widgets, shape: &shape, random: Random::new(seed), object, now: 0 };
        steps.extend((0..14).map(|_| (seed, story.step())));
    }
    let questions: Vec<Value> = steps
        .iter()
        .map(|(_, step)| {
            let mut question = step.question.clone();
            question["fieldSchema"] = source.clone();
            question
        })
        .collect();
    let mut outcomes: Map<String, Value> = Map::new();
    for ((seed, step), theirs) in steps.into_iter().zip(go::ask(&questions)) {
        let outcome = match (theirs.get("code").and_then(Value::as_i64), theirs.get("error")) {
            (Some(code), _) => code.to_string(),
            (None, Some(_)) => "failed".to_owned(),
            (None, None) => format!("{} done", step.question["op"].as_str().unwrap_or_default()),
        };
        let count = outcomes.get(&outcome).and_then(Value::as_u64).unwrap_or(0);
        outcomes.insert(outcome, json!(count + 1));
        let asked = step.question;
        assert_eq!(comparable(step.ours), comparable(theirs), "seed {seed}: {asked:#}");
    }
    eprintln!("{}", json!(outcomes));
    for outcome in ["apply done", "update done", "409"] {
        let count = outcomes.get(outcome).and_then(Value::as_u64).unwrap_or(0);
        assert!(count > 30, "stories should have every outcome: {outcomes:?}");
    }
}
