//! Random values for a schema: mostly right, sometimes wrong in one of the ways that people get it wrong.

use serde_json::{Map, Value, json};

/// A small generator of numbers: the same seed gives the same test. Every other seed is careful and makes few mistakes.
pub(super) struct Random {
    state: u64,
    careful: bool,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, careful: seed.is_multiple_of(2) }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

const TEXTS: [&str; 14] = [
    "a",
    "b",
    "abc",
    "",
    "not good",
    "2026-01-02T03:04:05Z",
    "2026-01-02",
    "5m",
    "90s",
    "10.0.0.1",
    "1Gi",
    "x-y",
    "éé<>",
    "https://a.example/b",
];

/// A value for `schema`, a JSON schema as it stands in a definition.
pub(super) fn value(schema: &Value, random: &mut Random) -> Value {
    if random.careful
        && random.chance(95)
        && let Some(value) = right(schema, random)
    {
        return value;
    }
    if !random.careful && random.chance(4) {
        return random.pick(&[
            json!(null),
            json!(true),
            json!(5),
            json!("x"),
            json!([]),
            json!({}),
            json!(1.5),
            json!(["a"]),
        ]);
    }
    if let Some(allowed) = schema["enum"].as_array() {
        return if random.chance(90) { random.pick(allowed) } else { json!("other") };
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return random.pick(&[json!(1), json!("50%"), json!(-3), json!("x")]);
    }
    match schema["type"].as_str().unwrap_or("object") {
        "string" => {
            // A day alone is no time, but an expression may take it for one.
            let texts: Vec<&str> = TEXTS
                .into_iter()
                .filter(|text| schema["format"] != "date-time" || *text != "2026-01-02")
                .collect();
            json!(random.pick(&texts))
        }
        "integer" => random.pick(&[
            json!(-1),
            json!(0),
            json!(1),
            json!(2),
            json!(3),
            json!(7),
            json!(100),
            json!(3_000_000_000_i64),
        ]),
        "number" => random.pick(&[json!(0.5), json!(1), json!(2.5), json!(-3)]),
        "boolean" => json!(random.chance(50)),
        "array" => {
            let mut items: Vec<Value> =
                (0..random.below(4)).map(|_| value(&schema["items"], random)).collect();
            if random.chance(15) {
                items.extend(items.first().cloned());
            }
            Value::Array(items)
        }
        _ => Value::Object(object(schema, random)),
    }
}

/// A value with what is required and little else: schemas of the real world are large.
pub(super) fn sparse(schema: &Value, random: &mut Random, depth: usize) -> Value {
    if let Some(allowed) = schema["enum"].as_array() {
        return random.pick(allowed);
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return random.pick(&[json!(1), json!("50%")]);
    }
    match schema["type"].as_str().unwrap_or("object") {
        "array" => {
            let most = if depth == 0 { 1 } else { 3 };
            Value::Array(
                (0..random.below(most))
                    .map(|_| sparse(&schema["items"], random, depth.saturating_sub(1)))
                    .collect(),
            )
        }
        "object" => {
            let mut fields = Map::new();
            for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
                let required = schema["required"]
                    .as_array()
                    .is_some_and(|names| names.iter().any(|known| known == name));
                if required || depth > 0 && random.chance(8 * depth) {
                    fields.insert(name.clone(), sparse(inner, random, depth.saturating_sub(1)));
                }
            }
            if schema["additionalProperties"].is_object() && random.chance(50) {
                let inner = sparse(&schema["additionalProperties"], random, depth.saturating_sub(1));
                fields.insert("k".to_owned(), inner);
            }
            Value::Object(fields)
        }
        "boolean" => json!(random.chance(50)),
        _ => right(schema, random).unwrap_or_else(|| json!("a")),
    }
}

/// A scalar that satisfies the schema, as far as it is easy to tell.
fn right(schema: &Value, random: &mut Random) -> Option<Value> {
    if schema["enum"].is_array() {
        return None;
    }
    Some(match (schema["type"].as_str()?, schema["format"].as_str()) {
        ("string", Some("date-time")) => json!("2026-01-02T03:04:05Z"),
        ("string", Some("date")) => json!("2026-01-02"),
        ("string", Some("duration")) => random.pick(&[json!("5m"), json!("30s")]),
        ("string", Some("ipv4")) => json!("10.0.0.1"),
        ("string", Some("uri")) => json!("https://a.example/b"),
        ("string", _) => random.pick(&[json!("a"), json!("ab"), json!("x-y")]),
        ("integer", _) => random.pick(&[json!(1), json!(2), json!(3)]),
        ("number", _) => random.pick(&[json!(1.5), json!(2.5)]),
        _ => return None,
    })
}

fn object(schema: &Value, random: &mut Random) -> Map<String, Value> {
    let mut fields = Map::new();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let required =
            schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
        if random.chance(if required { 93 } else { 65 }) {
            fields.insert(name.clone(), value(inner, random));
        }
    }
    if schema["additionalProperties"].is_object() {
        for _ in 0..random.below(4) {
            let name = random.pick(&["k", "l", "a.b", "c/d"]);
            fields.insert(name.to_owned(), value(&schema["additionalProperties"], random));
        }
    }
    if random.chance(8) {
        fields.insert("unknown".to_owned(), json!({"deep": [1]}));
    }
    if schema["x-kubernetes-embedded-resource"] == true && random.chance(85) {
        fields.extend(
            [
                ("apiVersion", json!("v1")),
                ("kind", json!("Pod")),
                ("metadata", json!({"name": "p", "odd": 1})),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    fields
}
