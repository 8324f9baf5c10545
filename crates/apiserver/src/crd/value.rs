//! Judges a value by its schema: types, bounds, enumerations, formats and combined schemas, in go-openapi's words.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use rules::field::{self, Errors, Path};
use serde_json::{Map, Value};
use types::go::quote;

use super::{
    at::At,
    correlate::Correlated,
    formats,
    go::{float, shown},
    schema::{Additional, Bounds, Combined, Schema, Type},
};

/// Every error of a new value. `path` is put in front of the paths found.
pub fn validate(value: &Value, schema: &Schema, path: Option<&Path>) -> Errors {
    let room = Cell::new(MOST);
    errors(Judge { old: None, is_silent: false, room: &room }.judge(value, schema, &At::ROOT), path)
}

/// Every error of a changed value that is not in a part that did not change.
pub(crate) fn validate_update(
    value: &Value,
    schema: &Schema,
    old: Option<Correlated<'_>>,
    path: Option<&Path>,
) -> Errors {
    let room = Cell::new(MOST);
    errors(Judge { old, is_silent: false, room: &room }.ratcheted(value, schema, &At::ROOT), path)
}

fn errors(found: Found, path: Option<&Path>) -> Errors {
    let prefixed = |name: &str| {
        let name = name.strip_prefix('.').unwrap_or(name);
        match (path, name) {
            (None, "") => Path::root().to_string(),
            (None, name) => name.to_owned(),
            (Some(path), "") => path.to_string(),
            (Some(path), name) => path.child(name).to_string(),
        }
    };
    if found.faults.is_empty() && found.has_more {
        let at = path.map_or_else(Path::root, Path::clone);
        return vec![at.invalid(field::Value::OMITTED, "more is wrong than can be told")];
    }
    found.faults.into_iter().map(|fault| fault.error(prefixed(&fault.at))).collect()
}

/// What was found, and how many checks were gone through: of several schemas that fail, the one that got furthest
/// tells why.
#[derive(Debug, Default)]
struct Found {
    faults: Vec<Fault>,
    /// The messages of these: none is told twice.
    told: HashSet<Rc<str>>,
    /// Whether there are faults that nobody wants to hear of.
    has_more: bool,
    checks: usize,
}

/// So many bytes of faults are put into words. A list of a million wrong items in a place with a long name would fill the
/// memory.
const MOST: usize = 32 * 1024 * 1024;

impl Found {
    fn add(&mut self, fault: Fault) {
        if self.told.insert(fault.message.clone()) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Found) {
        self.checks += other.checks;
        self.has_more |= other.has_more;
        if self.faults.is_empty() {
            (self.faults, self.told) = (other.faults, other.told);
        } else {
            other.faults.into_iter().for_each(|fault| self.add(fault));
        }
    }

    fn is_valid(&self) -> bool {
        self.faults.is_empty() && !self.has_more
    }

    fn forgive(&mut self) {
        *self = Found { checks: self.checks, ..Found::default() };
    }
}

#[derive(Debug)]
struct Fault {
    at: String,
    message: Rc<str>,
    what: What,
}

#[derive(Debug)]
enum What {
    Required,
    Enum(Value, Rc<[String]>),
    TooLong(i64),
    TooMany(usize, i64),
    /// The found type, or the text that has another format.
    Type(String),
    Invalid(Value),
    /// About a schema and not about a place: told at the root of the value.
    Schema,
}

impl Fault {
    /// A fault at a place; `message` goes on from its path.
    fn at(at: &At<'_>, what: What, message: impl FnOnce(&str) -> String) -> Fault {
        let at = at.dotted();
        Fault { message: message(&at).into(), at, what }
    }

    /// About as many bytes as it takes here and in the refusal.
    fn size(&self) -> usize {
        let allowed = match &self.what {
            What::Enum(_, allowed) => allowed.iter().map(String::len).sum(),
            _ => 0,
        };
        256 + 2 * self.at.len() + 2 * self.message.len() + allowed
    }

    fn error(&self, path: String) -> field::Error {
        let size = |size: i64| usize::try_from(size).unwrap_or(0);
        let detail = self.message.to_string();
        let at = Path::new(&path);
        match &self.what {
            What::Required => at.required(""),
            What::Enum(value, allowed) => at.not_supported(shown(value), allowed),
            What::TooLong(max) => at.too_long(size(*max)),
            What::TooMany(actual, max) => at.too_many(*actual, size(*max)),
            What::Type(found) => at.type_invalid(found, detail),
            What::Invalid(value) => at.invalid(shown(value), detail),
            What::Schema => at.invalid("", detail),
        }
    }
}

/// One judgement of a value. What it was before is looked for only where something is wrong, and what is wrong is put into
/// words only if somebody will hear them: most values are right.
#[derive(Clone, Copy)]
struct Judge<'a> {
    old: Option<Correlated<'a>>,
    /// Only whether the value is right is asked.
    is_silent: bool,
    /// How many bytes may still be told.
    room: &'a Cell<usize>,
}

impl Judge<'_> {
    fn add(self, found: &mut Found, fault: impl FnOnce() -> Fault) {
        if self.is_silent || self.room.get() == 0 {
            found.has_more = true;
        } else {
            let fault = fault();
            self.room.set(self.room.get().saturating_sub(fault.size()));
            found.add(fault);
        }
    }

    /// Judges a value, unless it is invalid and unchanged: then it was accepted before, and stays.
    fn ratcheted(self, value: &Value, schema: &Schema, at: &At<'_>) -> Found {
        let mut found = self.judge(value, schema, at);
        if !found.is_valid() && at.correlated(self.old).here.is_some_and(Correlated::is_unchanged) {
            found.forgive();
        }
        found
    }

    fn judge(self, value: &Value, schema: &Schema, at: &At<'_>) -> Found {
        let mut found = Found::default();
        if value.is_null() {
            let types = expected_types(schema);
            if types.is_empty() || schema.nullable {
                found.checks += 1;
            } else {
                self.add(&mut found, || wrong_type(at, &types.join(","), "null"));
            }
            self.check_enum(value, schema, at, &mut found);
            return found;
        }
        if schema.r#type.is_some() || schema.int_or_string || schema.checked_format.is_some() {
            self.check_type(value, schema, at, &mut found);
            found.checks += 1;
        }
        if let Some(combined) = &schema.combined {
            found.merge(self.combined_schemas(value, combined, at));
        }
        found.checks += 2;
        match value {
            Value::String(text) => {
                if let Some(bounds) = &schema.bounds {
                    self.text_bounds(text, bounds, at, &mut found);
                }
                found.checks += 1;
                if let (Some(checked), Some(format)) = (&schema.checked_format, &schema.format) {
                    if !formats::is_of(checked, text) {
                        self.add(&mut found, || wrong_type(at, format, text));
                    }
                    found.checks += 1;
                }
            }
            Value::Number(number) => {
                if let Some(bounds) = &schema.bounds {
                    self.number_bounds(number, bounds, at, &mut found);
                }
                found.checks += 2;
            }
            Value::Array(items) => {
                self.check_items(items, schema, at, &mut found);
                found.checks += 2;
            }
            Value::Object(_) | Value::Bool(_) | Value::Null => {}
        }
        self.check_enum(value, schema, at, &mut found);
        found.checks += 1;
        if let Value::Object(fields) = value {
            self.check_fields(fields, schema, at, &mut found);
            found.checks += 1;
        }
        found.checks += 1;
        found
    }

    fn check_type(self, value: &Value, schema: &Schema, at: &At<'_>, found: &mut Found) {
        let types = expected_types(schema);
        let (actual, actual_format) = match value {
            Value::Bool(_) => ("boolean", ""),
            Value::Number(number) if number.is_f64() || number.as_i64().is_none() => ("number", "float64"),
            Value::Number(_) => ("integer", "int64"),
            Value::String(_) => ("string", ""),
            Value::Array(_) => ("array", ""),
            Value::Object(_) | Value::Null => ("object", ""),
        };
        let whole = actual == "number" && types.contains(&"integer") && value.as_f64().is_some_and(is_whole);
        let fits = types.contains(&actual) || whole || (actual == "integer" && types.contains(&"number"));
        let numeric = types.contains(&"number") || types.contains(&"integer");
        let has_text = matches!(value, Value::String(_) | Value::Array(_));
        match known_format(schema) {
            Some(format) if !has_text && !fits => {
                self.add(found, || wrong_type(at, format, actual_format));
            }
            Some(_) if has_text && !numeric => found.checks += 1,
            _ if !fits => self.add(found, || wrong_type(at, &types.join(","), actual)),
            _ => found.checks += 1,
        }
    }

    fn check_enum(self, value: &Value, schema: &Schema, at: &At<'_>, found: &mut Found) {
        if schema.r#enum.is_empty() || schema.r#enum.iter().any(|allowed| same(value, allowed)) {
            return;
        }
        self.add(found, || {
            let text = |value: &Value| value.as_str().map_or_else(|| types::go::json(value), str::to_owned);
            let what = What::Enum(value.clone(), schema.r#enum.iter().map(text).collect());
            Fault::at(at, what, |path| format!("{path} in body should be one of {:?}", schema.r#enum))
        });
    }

    fn check_items(self, items: &[Value], schema: &Schema, at: &At<'_>, found: &mut Found) {
        if let Some(inner) = &schema.items {
            for (index, item) in items.iter().enumerate() {
                found.merge(self.ratcheted(item, inner, &at.item(index)));
            }
        }
        let Some(bounds) = &schema.bounds else { return };
        if let Some(min) = bounds.min_items.filter(|min| len(items.len()) < *min) {
            self.add(found, || {
                let what = What::Invalid(items.len().into());
                Fault::at(at, what, |path| format!("{path} in body should have at least {min} items"))
            });
        }
        if let Some(max) = bounds.max_items.filter(|max| len(items.len()) > *max) {
            self.add(found, || {
                let what = What::TooMany(items.len(), max);
                Fault::at(at, what, |path| format!("{path} in body should have at most {max} items"))
            });
        }
    }

    fn check_fields(self, fields: &Map<String, Value>, schema: &Schema, at: &At<'_>, found: &mut Found) {
        if let Some(bounds) = &schema.bounds {
            if let Some(min) = bounds.min_properties.filter(|min| len(fields.len()) < *min) {
                self.add(found, || {
                    let what = What::Invalid(fields.len().into());
                    Fault::at(at, what, |path| {
                        format!("{path} in body should have at least {min} properties")
                    })
                });
            }
            if let Some(max) = bounds.max_properties.filter(|max| len(fields.len()) > *max) {
                self.add(found, || {
                    let what = What::TooMany(fields.len(), max);
                    Fault::at(at, what, |path| format!("{path} in body should have at most {max} properties"))
                });
            }
        }
        let others = || fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name));
        match &schema.additional {
            Additional::Allowed(false) => {
                for (name, _) in others() {
                    self.add(found, || {
                        let what = What::Invalid(name.clone().into());
                        Fault::at(at, what, |path| format!("{path}.{name} in body is a forbidden property"))
                    });
                }
            }
            Additional::Schema(inner) => {
                for (name, value) in others() {
                    found.merge(self.ratcheted(value, inner, &at.entry(name)));
                }
            }
            Additional::Absent | Additional::Allowed(true) => {}
        }
        // Both are in the order of names, and there are far more properties than fields.
        if !schema.properties.is_empty() {
            for (name, value) in fields {
                if let Some(inner) = schema.properties.get(name) {
                    found.merge(self.ratcheted(value, inner, &at.field(name)));
                }
            }
        }
        for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
            self.add(found, || {
                let at = format!("{}.{name}", at.dotted());
                Fault { message: format!("{at} in body is required").into(), at, what: What::Required }
            });
        }
    }

    fn combined_schemas(self, value: &Value, combined: &Combined, at: &At<'_>) -> Found {
        let mut found = Found::default();
        let schema_fault = |message: &str| {
            let message = format!("{} {message}", quote(&at.dotted())).into();
            Fault { at: String::new(), message, what: What::Schema }
        };
        let by = |schema: &Schema| self.judge(value, schema, at);
        // Most values fit a schema that is not the first one: why they do not fit the others is nobody's business.
        let silently = |schema: &Schema| Judge { is_silent: true, ..self }.judge(value, schema, at);
        if !combined.any_of.is_empty() {
            let valid = combined.any_of.iter().map(silently).find(Found::is_valid);
            if valid.is_none() {
                self.add(&mut found, || schema_fault("must validate at least one schema (anyOf)"));
            }
            found.merge(valid.unwrap_or_else(|| furthest(combined.any_of.iter().map(by))));
        }
        if !combined.one_of.is_empty() {
            let mut valid = combined.one_of.iter().map(silently).filter(Found::is_valid);
            let (first, others) = (valid.next(), valid.count());
            match (first, others) {
                (Some(first), 0) => found.merge(first),
                (Some(_), others) => {
                    let valid = others + 1;
                    self.add(&mut found, || {
                        schema_fault(&format!(
                            "must validate one and only one schema (oneOf). Found {valid} valid alternatives"
                        ))
                    });
                }
                (None, _) => {
                    self.add(&mut found, || {
                        schema_fault("must validate one and only one schema (oneOf). Found none valid")
                    });
                    found.merge(furthest(combined.one_of.iter().map(by)));
                }
            }
        }
        if !combined.all_of.is_empty() {
            let mut valid = 0;
            for schema in &combined.all_of {
                let result = by(schema);
                valid += usize::from(result.is_valid());
                found.merge(result);
            }
            if valid != combined.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.add(&mut found, || {
                    schema_fault(&format!("must validate all the schemas (allOf){none}"))
                });
            }
        }
        if combined.not.as_ref().is_some_and(|schema| silently(schema).is_valid()) {
            self.add(&mut found, || schema_fault("must not validate the schema (not)"));
        }
        found
    }

    fn text_bounds(self, text: &str, bounds: &Bounds, at: &At<'_>, found: &mut Found) {
        if bounds.max_length.is_some() || bounds.min_length.is_some() {
            let characters = len(text.chars().count());
            if let Some(max) = bounds.max_length.filter(|max| characters > *max) {
                return self.add(found, || {
                    let what = What::TooLong(max);
                    Fault::at(at, what, |path| format!("{path} in body should be at most {max} chars long"))
                });
            }
            if let Some(min) = bounds.min_length.filter(|min| characters < *min) {
                return self.add(found, || {
                    let what = What::Invalid(text.into());
                    Fault::at(at, what, |path| format!("{path} in body should be at least {min} chars long"))
                });
            }
        }
        let Some(pattern) = &bounds.pattern else { return };
        let verdict = pattern.is_match(text);
        if verdict == Ok(true) {
            return;
        }
        self.add(found, || {
            let failed = match verdict {
                Ok(_) => pattern.text().to_owned(),
                Err(why) => format!("{}, but pattern is invalid: {why}", pattern.text()),
            };
            let what = What::Invalid(text.into());
            Fault::at(at, what, |path| format!("{path} in body should match '{failed}'"))
        });
    }

    fn number_bounds(self, value: &serde_json::Number, bounds: &Bounds, at: &At<'_>, found: &mut Found) {
        let double = value.as_f64().unwrap_or(f64::NAN);
        let integer = value.as_i64();
        // An integer is held against bounds without their fraction, as Go converts them.
        let shown = |bound: f64| if integer.is_some() { i64_of(bound).to_string() } else { float(bound) };
        let cmp = |bound: f64| match integer {
            Some(integer) => Some(integer.cmp(&i64_of(bound))),
            None => double.partial_cmp(&bound),
        };
        let fault = |what: &str| {
            let number = What::Invalid(Value::Number(value.clone()));
            Fault::at(at, number, |path| format!("{path} in body {what}"))
        };
        if let Some(factor) = bounds.multiple_of {
            let positive = if integer.is_some() { i64_of(factor) > 0 } else { factor > 0.0 };
            let multiple = match integer {
                Some(integer) if positive => integer % i64_of(factor) == 0,
                _ if factor < 1.0 => is_whole(1.0 / factor * double),
                _ => is_whole(double / factor),
            };
            if !positive {
                self.add(found, || {
                    let factor =
                        if integer.is_some() { Value::from(i64_of(factor)) } else { Value::from(factor) };
                    let declared = |path: &str| {
                        format!("factor MultipleOf declared for {path} must be positive: {factor}")
                    };
                    Fault::at(at, What::Invalid(factor.clone()), declared)
                });
            } else if !multiple {
                self.add(found, || fault(&format!("should be a multiple of {}", shown(factor))));
            }
        }
        if let Some(min) = bounds.minimum {
            let below =
                cmp(min).is_some_and(|order| order.is_lt() || (bounds.exclusive_minimum && order.is_eq()));
            if below {
                let how = if bounds.exclusive_minimum { "greater than" } else { "greater than or equal to" };
                self.add(found, || fault(&format!("should be {how} {}", shown(min))));
            }
        }
        if let Some(max) = bounds.maximum {
            let above =
                cmp(max).is_some_and(|order| order.is_gt() || (bounds.exclusive_maximum && order.is_eq()));
            if above {
                let how = if bounds.exclusive_maximum { "less than" } else { "less than or equal to" };
                self.add(found, || fault(&format!("should be {how} {}", shown(max))));
            }
        }
    }
}

/// Of several failures the one that got furthest, and the first of those.
fn furthest(all: impl Iterator<Item = Found>) -> Found {
    let further = |best: Found, next: Found| if next.checks > best.checks { next } else { best };
    all.reduce(further).unwrap_or_default()
}

fn expected_types(schema: &Schema) -> &'static [&'static str] {
    match (schema.int_or_string, schema.r#type) {
        (true, _) => &["integer", "string"],
        (false, Some(Type::Array)) => &["array"],
        (false, Some(Type::Boolean)) => &["boolean"],
        (false, Some(Type::Integer)) => &["integer"],
        (false, Some(Type::Number)) => &["number"],
        (false, Some(Type::Object)) => &["object"],
        (false, Some(Type::String)) => &["string"],
        (false, None) => &[],
    }
}

fn known_format(schema: &Schema) -> Option<&str> {
    schema.format.as_deref().filter(|_| schema.checked_format.is_some())
}

fn wrong_type(at: &At<'_>, expected: &str, found: &str) -> Fault {
    let told = |path: &str| format!("{path} in body must be of type {expected}: {}", quote(found));
    Fault::at(at, What::Type(found.to_owned()), told)
}

fn len(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

fn is_whole(value: f64) -> bool {
    value.is_finite() && value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_991.0
}

/// Whether a value is an allowed one; numbers of different types are compared as Go converts them.
fn same(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Number(value), Value::Number(allowed)) => match (value.as_i64(), allowed.as_i64()) {
            (Some(value), Some(allowed)) => value == allowed,
            (None, Some(allowed)) => value.as_f64().is_some_and(|value| i64_of(value) == allowed),
            (_, None) => value.as_f64() == allowed.as_f64(),
        },
        (value, allowed) => !allowed.is_null() && value == allowed,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Go truncates here too")]
fn i64_of(value: f64) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd::tests::schema;

    fn check(of: Value, value: Value, expected: &[&str]) {
        let schema = schema(json!({"type": "object", "properties": {"x": of}}));
        let errors = validate(&json!({"x": value}), &schema, None);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn types_3_25() {
        check(
            json!({"type": "string"}),
            json!(1),
            &[r#"x: Invalid value: "integer": x in body must be of type string: "integer""#],
        );
        check(
            json!({"type": "integer"}),
            json!("1"),
            &[r#"x: Invalid value: "string": x in body must be of type integer: "string""#],
        );
        check(
            json!({"type": "integer"}),
            json!(1.5),
            &[r#"x: Invalid value: "number": x in body must be of type integer: "number""#],
        );
        check(json!({"type": "integer"}), json!(2.0), &[]);
        check(json!({"type": "number"}), json!(2), &[]);
        check(
            json!({"type": "string"}),
            json!(null),
            &[r#"x: Invalid value: "null": x in body must be of type string: "null""#],
        );
        check(json!({"type": "string", "nullable": true}), json!(null), &[]);
        check(
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            &[r#"x: Invalid value: "boolean": x in body must be of type integer,string: "boolean""#],
        );
        check(
            json!({"type": "string", "format": "date-time"}),
            json!(5),
            &[r#"x: Invalid value: "int64": x in body must be of type date-time: "int64""#],
        );
        check(
            json!({"type": "string", "format": "date-time"}),
            json!("soon"),
            &[r#"x: Invalid value: "soon": x in body must be of type date-time: "soon""#],
        );
        check(json!({"type": "integer", "format": "int32"}), json!(3_000_000_000_i64), &[]);
    }

    #[test]
    fn what_is_wrong_many_times_is_told_once_and_not_without_end() {
        let of = schema(json!({"type": "object", "additionalProperties": {"type": "array", "items": {
            "anyOf": [{"type": "integer"}, {"type": "string", "enum": ["a", "b"]}]}}}));
        let errors = |value: Value| validate(&value, &of, None);
        let found = errors(json!({"x": vec![true; 10_000]}));
        // The schema that got furthest, and that none fits, of each.
        assert_eq!(found.len(), 20_000);
        assert_eq!(found[19_999].path, "x[9999]");
        // In a place with a long name there are less.
        let found = errors(json!({"x".repeat(100_000): vec![true; 300_000]}));
        assert!((1..1000).contains(&found.len()), "{}", found.len());
        let of = schema(
            json!({"type": "array", "items": {"type": "string", "enum": vec!["x".repeat(1000); 1000]}}),
        );
        let found = validate(&json!(vec!["y"; 100_000]), &of, None);
        assert!((1..1000).contains(&found.len()), "{}", found.len());
    }

    #[test]
    fn bounds_3_25() {
        check(
            json!({"type": "string", "maxLength": 2}),
            json!("abc"),
            &["x: Too long: may not be more than 2 bytes"],
        );
        check(
            json!({"type": "string", "minLength": 2}),
            json!("a"),
            &[r#"x: Invalid value: "a": x in body should be at least 2 chars long"#],
        );
        check(
            json!({"type": "string", "pattern": "^o"}),
            json!("bad"),
            &[r#"x: Invalid value: "bad": x in body should match '^o'"#],
        );
        check(
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            &["x: Invalid value: 0: x in body should be greater than or equal to 1"],
        );
        check(
            json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true}),
            json!(1.5),
            &["x: Invalid value: 1.5: x in body should be less than 1.5"],
        );
        check(
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            &["x: Invalid value: 4: x in body should be a multiple of 3"],
        );
        check(
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1, "minItems": 1}),
            json!([1, 2]),
            &["x: Too many: 2: must have at most 1 item"],
        );
        check(
            json!({"type": "array", "items": {"type": "integer"}, "minItems": 1}),
            json!([]),
            &["x: Invalid value: 0: x in body should have at least 1 items"],
        );
        check(
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"a": "", "b": 1}),
            &[
                "x: Too many: 2: must have at most 1 item",
                r#"x.b: Invalid value: "integer": x.b in body must be of type string: "integer""#,
            ],
        );
    }

    #[test]
    fn enums_and_required_3_25() {
        check(
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            &[r#"x: Unsupported value: "c": supported values: "a", "b""#],
        );
        check(json!({"type": "number", "enum": [1]}), json!(1.5), &[]);
        check(
            json!({"type": "object", "required": ["y"], "properties": {"y": {"type": "string"}}}),
            json!({}),
            &["x.y: Required value"],
        );
    }

    #[test]
    fn combined_3_25() {
        let of = |combined: Value| {
            let mut of =
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
            of.as_object_mut().expect("an object").extend(combined.as_object().expect("an object").clone());
            of
        };
        check(
            of(json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]})),
            json!({"a": "", "b": ""}),
            &[
                r#"<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        );
        check(
            of(json!({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]})),
            json!({}),
            &[
                r#"<nil>: Invalid value: "": "x" must validate at least one schema (anyOf)"#,
                "x.a: Required value",
            ],
        );
        check(
            of(json!({"not": {"required": ["a"]}})),
            json!({"a": ""}),
            &[r#"<nil>: Invalid value: "": "x" must not validate the schema (not)"#],
        );
        check(
            of(json!({"allOf": [{"required": ["a"]}, {"required": ["b"]}]})),
            json!({"a": ""}),
            &[
                "x.b: Required value",
                r#"<nil>: Invalid value: "": "x" must validate all the schemas (allOf)"#,
            ],
        );
    }
}
