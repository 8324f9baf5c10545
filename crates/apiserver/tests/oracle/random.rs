//! Input that looks like objects, the same for the same seed.

use serde_json::{Map, Value, json};

/// A small generator of numbers (splitmix64): a case can be run again by its seed.
pub(crate) struct Random(u64);

/// The seeds of a test's cases; `FERRY_SEED` and `FERRY_CASES` choose others and more.
pub(crate) fn seeds(cases: u64) -> impl Iterator<Item = u64> {
    let set = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (start, cases) = (set("FERRY_SEED").unwrap_or(1), set("FERRY_CASES").unwrap_or(cases));
    start..start + cases
}

fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        // Mixed, because neighbouring seeds of this generator give the same numbers one step apart.
        Random(mix(seed))
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        usize::try_from(mix(self.0) % limit as u64).expect("smaller than the limit")
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Any JSON, a few levels deep.
    pub(crate) fn json(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.percent(50)),
            2 => self.number(),
            3..=5 => self.string(),
            6 => (0..self.below(4)).map(|_| self.json(depth - 1)).collect(),
            _ => {
                let fields = (0..self.below(4)).map(|_| {
                    let name = (*self.one(&["a", "b", "name", "c<"])).to_owned();
                    (name, self.json(depth - 1))
                });
                Value::Object(fields.collect())
            }
        }
    }

    pub(crate) fn number(&mut self) -> Value {
        self.one(&[
            json!(0),
            json!(1),
            json!(2),
            json!(80),
            json!(1_000_000),
            json!(-1),
            json!(1.5),
            json!(1e21),
        ])
        .clone()
    }

    pub(crate) fn string(&mut self) -> Value {
        json!(self.one(&["a", "b", "c", "", "<&>", "é\"\\", "TCP"]))
    }

    /// A value of a type of a schema of structured-merge-diff; now and then not quite.
    pub(crate) fn value(&mut self, shape: &Shape<'_>, of: &Value, depth: usize) -> Value {
        if self.percent(shape.noise) {
            return self.json(1);
        }
        let atom = shape.resolve(of);
        let kinds: Vec<&str> =
            ["scalar", "list", "map"].into_iter().filter(|kind| !atom[kind].is_null()).collect();
        let Some(kind) = kinds.get(self.below(kinds.len().max(1))) else { return Value::Null };
        match *kind {
            "scalar" => match atom["scalar"].as_str() {
                Some("numeric") => self.number(),
                Some("boolean") => json!(self.percent(50)),
                Some("string") => self.string(),
                _ if self.percent(3) => Value::Null,
                _ if self.percent(50) => self.number(),
                _ => self.string(),
            },
            "list" if depth == 0 => json!([]),
            "list" => self.list(shape, &atom["list"], depth),
            _ if depth == 0 => json!({}),
            _ => self.map(shape, &atom["map"], depth),
        }
    }

    fn list(&mut self, shape: &Shape<'_>, list: &Value, depth: usize) -> Value {
        let count = self.below(4);
        let mut items: Vec<Value> =
            (0..count).map(|_| self.value(shape, &list["elementType"], depth - 1)).collect();
        let keys = list["keys"].as_array().cloned().unwrap_or_default();
        for item in &mut items {
            for key in keys.iter().filter_map(Value::as_str) {
                if self.percent(95)
                    && let Value::Object(fields) = item
                {
                    let value = if key.to_lowercase().contains("port") {
                        json!(80 + self.below(3))
                    } else {
                        self.string()
                    };
                    fields.insert(key.to_owned(), value);
                }
            }
        }
        if list["elementRelationship"] == "associative" && self.percent(90) {
            let mut seen: Vec<Value> = Vec::new();
            items.retain(|item| {
                let of_keys = keys.iter().map(|key| item[key.as_str().unwrap_or_default()].clone());
                let identity = if keys.is_empty() { item.clone() } else { of_keys.collect() };
                let is_new = !seen.contains(&identity);
                seen.push(identity);
                is_new
            });
        }
        Value::Array(items)
    }

    fn map(&mut self, shape: &Shape<'_>, map: &Value, depth: usize) -> Value {
        let mut fields = Map::new();
        let declared = map["fields"].as_array().map_or(&[][..], Vec::as_slice);
        let odds = if declared.len() > 8 { 300 / declared.len() } else { 45 };
        for field in declared {
            if self.percent(odds) {
                let name = field["name"].as_str().unwrap_or_default().to_owned();
                let value = self.value(shape, &field["type"], depth - 1);
                fields.insert(name, value);
            }
        }
        if !map["elementType"].is_null() {
            for _ in 0..self.below(3) {
                let name = (*self.one(&["a", "b", "c<", "d.e/f"])).to_owned();
                let value = self.value(shape, &map["elementType"], depth - 1);
                fields.insert(name, value);
            }
        } else if self.percent(shape.noise) {
            fields.insert("undeclared".into(), json!(1));
        }
        Value::Object(fields)
    }
}

/// A schema of structured-merge-diff as JSON, and how often values are not of their type, in percent.
pub(crate) struct Shape<'a> {
    types: std::collections::HashMap<&'a str, &'a Value>,
    pub(crate) noise: usize,
}

impl<'a> Shape<'a> {
    pub(crate) fn new(schema: &'a Value, noise: usize) -> Shape<'a> {
        let types = schema["types"].as_array().expect("a schema has types");
        let types = types.iter().filter_map(|of| Some((of["name"].as_str()?, of))).collect();
        Shape { types, noise }
    }

    fn resolve<'b>(&'b self, of: &'b Value) -> &'b Value {
        match of["namedType"].as_str() {
            Some(name) => self.types[name],
            None => of,
        }
    }
}
