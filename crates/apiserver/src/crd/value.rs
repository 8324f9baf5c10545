//! Judges a value by its schema: types, bounds, enumerations, formats and combined schemas, in go-openapi's words.

use rules::field::{self, Errors, Path};
use serde_json::{Map, Value};
use types::go::quote;

use super::{
    correlate::Correlated,
    formats,
    go::{float, shown},
    schema::{Additional, Bounds, Combined, Schema, Type},
};

/// Every error of a new value. `path` is put in front of the paths found.
pub fn validate(value: &Value, schema: &Schema, path: Option<&Path>) -> Errors {
    errors(judge(value, schema, "", None), path)
}

/// Every error of a changed value that is not in a part that did not change.
pub(crate) fn validate_update(
    value: &Value,
    schema: &Schema,
    old: Option<Correlated<'_>>,
    path: Option<&Path>,
) -> Errors {
    errors(ratcheted(value, schema, "", old), path)
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
    found.faults.into_iter().map(|fault| fault.error(prefixed(&fault.at))).collect()
}

/// What was found, and how many checks were gone through: of several schemas that fail, the one that got furthest
/// tells why.
#[derive(Debug, Default)]
struct Found {
    faults: Vec<Fault>,
    checks: usize,
}

impl Found {
    fn add(&mut self, fault: Fault) {
        if !self.faults.iter().any(|known| known.message == fault.message) {
            self.faults.push(fault);
        }
    }

    fn merge(&mut self, other: Found) {
        self.checks += other.checks;
        other.faults.into_iter().for_each(|fault| self.add(fault));
    }

    fn is_valid(&self) -> bool {
        self.faults.is_empty()
    }
}

#[derive(Debug)]
struct Fault {
    at: String,
    message: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Required,
    Enum(Value, Vec<Value>),
    TooLong(i64),
    TooMany(usize, i64),
    /// The found type, or the text that has another format.
    Type(String),
    Invalid(Value),
    /// About a schema and not about a place: told at the root of the value.
    Schema,
}

impl Fault {
    fn error(&self, path: String) -> field::Error {
        let size = |size: i64| usize::try_from(size).unwrap_or(0);
        let detail = self.message.clone();
        let at = Path::new(&path);
        match &self.what {
            What::Required => at.required(""),
            What::Enum(value, allowed) => {
                let allowed: Vec<String> = allowed
                    .iter()
                    .map(|value| value.as_str().map_or_else(|| types::go::json(value), str::to_owned))
                    .collect();
                at.not_supported(shown(value), &allowed)
            }
            What::TooLong(max) => at.too_long(size(*max)),
            What::TooMany(actual, max) => at.too_many(*actual, size(*max)),
            What::Type(found) => at.type_invalid(found, detail),
            What::Invalid(value) => at.invalid(shown(value), detail),
            What::Schema => at.invalid("", detail),
        }
    }
}

/// Judges a value, unless it is invalid and unchanged: then it was accepted before, and stays.
fn ratcheted(value: &Value, schema: &Schema, path: &str, old: Option<Correlated<'_>>) -> Found {
    let mut found = judge(value, schema, path, old);
    if !found.is_valid() && old.is_some_and(Correlated::is_unchanged) {
        found.faults.clear();
    }
    found
}

fn judge(value: &Value, schema: &Schema, path: &str, old: Option<Correlated<'_>>) -> Found {
    let mut found = Found::default();
    if value.is_null() {
        let types = expected_types(schema);
        if types.is_empty() || schema.nullable {
            found.checks += 1;
        } else {
            found.add(wrong_type(path, &types.join(","), "null"));
        }
        check_enum(value, schema, path, &mut found);
        return found;
    }
    if schema.r#type.is_some() || schema.int_or_string || known_format(schema).is_some() {
        check_type(value, schema, path, &mut found);
        found.checks += 1;
    }
    if let Some(combined) = &schema.combined {
        found.merge(combined_schemas(value, combined, path, old));
    }
    found.checks += 2;
    match value {
        Value::String(text) => {
            if let Some(bounds) = &schema.bounds {
                text_bounds(text, bounds, path, &mut found);
            }
            found.checks += 1;
            if let Some(format) = known_format(schema) {
                if !formats::matches(format, text) {
                    found.add(wrong_type(path, format, text));
                }
                found.checks += 1;
            }
        }
        Value::Number(number) => {
            if let Some(bounds) = &schema.bounds {
                number_bounds(number, bounds, path, &mut found);
            }
            found.checks += 2;
        }
        Value::Array(items) => {
            check_items(items, schema, path, old, &mut found);
            found.checks += 2;
        }
        Value::Object(_) | Value::Bool(_) | Value::Null => {}
    }
    check_enum(value, schema, path, &mut found);
    found.checks += 1;
    if let Value::Object(fields) = value {
        check_fields(fields, schema, path, old, &mut found);
        found.checks += 1;
    }
    found.checks += 1;
    found
}

fn check_type(value: &Value, schema: &Schema, path: &str, found: &mut Found) {
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
        Some(format) if !has_text && !fits => found.add(wrong_type(path, format, actual_format)),
        Some(_) if has_text && !numeric => found.checks += 1,
        _ if !fits => found.add(wrong_type(path, &types.join(","), actual)),
        _ => found.checks += 1,
    }
}

fn check_enum(value: &Value, schema: &Schema, path: &str, found: &mut Found) {
    if schema.r#enum.is_empty() || schema.r#enum.iter().any(|allowed| same(value, allowed)) {
        return;
    }
    found.add(Fault {
        at: path.to_owned(),
        message: format!("{path} in body should be one of {:?}", schema.r#enum),
        what: What::Enum(value.clone(), schema.r#enum.clone()),
    });
}

fn check_items(items: &[Value], schema: &Schema, path: &str, old: Option<Correlated<'_>>, found: &mut Found) {
    if let Some(inner) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            let old = old.and_then(|old| old.item(index));
            found.merge(ratcheted(item, inner, &format!("{path}[{index}]"), old));
        }
    }
    let Some(bounds) = &schema.bounds else { return };
    if let Some(min) = bounds.min_items.filter(|min| len(items.len()) < *min) {
        let message = format!("{path} in body should have at least {min} items");
        found.add(Fault { at: path.to_owned(), message, what: What::Invalid(items.len().into()) });
    }
    if let Some(max) = bounds.max_items.filter(|max| len(items.len()) > *max) {
        let message = format!("{path} in body should have at most {max} items");
        found.add(Fault { at: path.to_owned(), message, what: What::TooMany(items.len(), max) });
    }
}

fn check_fields(
    fields: &Map<String, Value>,
    schema: &Schema,
    path: &str,
    old: Option<Correlated<'_>>,
    found: &mut Found,
) {
    if let Some(bounds) = &schema.bounds {
        if let Some(min) = bounds.min_properties.filter(|min| len(fields.len()) < *min) {
            let message = format!("{path} in body should have at least {min} properties");
            found.add(Fault { at: path.to_owned(), message, what: What::Invalid(fields.len().into()) });
        }
        if let Some(max) = bounds.max_properties.filter(|max| len(fields.len()) > *max) {
            let message = format!("{path} in body should have at most {max} properties");
            found.add(Fault { at: path.to_owned(), message, what: What::TooMany(fields.len(), max) });
        }
    }
    // The types of the root are the request's and not the object's: they cannot have changed.
    let correlated = |name: &str| {
        let fixed = path.is_empty() && matches!(name, "kind" | "apiVersion");
        old.filter(|_| !fixed).and_then(|old| old.field(name))
    };
    let others = || fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name));
    match &schema.additional {
        Additional::Allowed(false) => {
            for (name, _) in others() {
                let message = format!("{path}.{name} in body is a forbidden property");
                found.add(Fault { at: path.to_owned(), message, what: What::Invalid(name.clone().into()) });
            }
        }
        Additional::Schema(inner) => {
            for (name, value) in others() {
                found.merge(ratcheted(value, inner, &format!("{path}.{name}"), correlated(name)));
            }
        }
        Additional::Absent | Additional::Allowed(true) => {}
    }
    for (name, inner) in &schema.properties {
        if let Some(value) = fields.get(name) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            found.merge(ratcheted(value, inner, &path, correlated(name)));
        }
    }
    for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
        let at = format!("{path}.{name}");
        found.add(Fault { message: format!("{at} in body is required"), at, what: What::Required });
    }
}

fn combined_schemas(value: &Value, combined: &Combined, path: &str, old: Option<Correlated<'_>>) -> Found {
    let mut found = Found::default();
    let quoted = quote(path);
    let schema_fault = |message: String| Fault { at: String::new(), message, what: What::Schema };
    let by = |schema: &Schema| judge(value, schema, path, old);
    if !combined.any_of.is_empty() {
        let (mut best, mut valid): (Option<Found>, Option<Found>) = (None, None);
        for schema in &combined.any_of {
            let result = by(schema);
            if result.is_valid() {
                valid = Some(result);
                break;
            }
            if best.as_ref().is_none_or(|best| result.checks > best.checks) {
                best = Some(result);
            }
        }
        if valid.is_none() {
            found.add(schema_fault(format!("{quoted} must validate at least one schema (anyOf)")));
        }
        found.merge(valid.or(best).unwrap_or_default());
    }
    if !combined.one_of.is_empty() {
        let (mut best, mut first, mut valid): (Option<Found>, Option<Found>, usize) = (None, None, 0);
        for schema in &combined.one_of {
            let result = by(schema);
            if result.is_valid() {
                valid += 1;
                best = None;
                first = first.or(Some(result));
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.checks > best.checks) {
                best = Some(result);
            }
        }
        if valid == 1 {
            found.merge(first.unwrap_or_default());
        } else {
            let how = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            found.add(schema_fault(format!("{quoted} must validate one and only one schema (oneOf). {how}")));
            found.merge(best.unwrap_or_default());
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
            found.add(schema_fault(format!("{quoted} must validate all the schemas (allOf){none}")));
        }
    }
    if combined.not.as_ref().is_some_and(|schema| by(schema).is_valid()) {
        found.add(schema_fault(format!("{quoted} must not validate the schema (not)")));
    }
    found
}

fn expected_types(schema: &Schema) -> Vec<&'static str> {
    match (schema.int_or_string, schema.r#type) {
        (true, _) => vec!["integer", "string"],
        (false, Some(r#type)) => vec![Type::name(r#type)],
        (false, None) => Vec::new(),
    }
}

fn known_format(schema: &Schema) -> Option<&str> {
    schema.format.as_deref().filter(|format| formats::is_known(format))
}

fn wrong_type(path: &str, expected: &str, found: &str) -> Fault {
    let message = format!("{path} in body must be of type {expected}: {}", quote(found));
    Fault { at: path.to_owned(), message, what: What::Type(found.to_owned()) }
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

fn text_bounds(text: &str, bounds: &Bounds, path: &str, found: &mut Found) {
    let characters = len(text.chars().count());
    let at = path.to_owned();
    if let Some(max) = bounds.max_length.filter(|max| characters > *max) {
        let message = format!("{path} in body should be at most {max} chars long");
        return found.add(Fault { at, message, what: What::TooLong(max) });
    }
    if let Some(min) = bounds.min_length.filter(|min| characters < *min) {
        let message = format!("{path} in body should be at least {min} chars long");
        return found.add(Fault { at, message, what: What::Invalid(text.into()) });
    }
    let Some(pattern) = &bounds.pattern else { return };
    let failed = match pattern.is_match(text) {
        Ok(true) => return,
        Ok(false) => pattern.text().to_owned(),
        Err(why) => format!("{}, but pattern is invalid: {why}", pattern.text()),
    };
    let message = format!("{path} in body should match '{failed}'");
    found.add(Fault { at, message, what: What::Invalid(text.into()) });
}

fn number_bounds(value: &serde_json::Number, bounds: &Bounds, path: &str, found: &mut Found) {
    let double = value.as_f64().unwrap_or(f64::NAN);
    let integer = value.as_i64();
    // An integer is held against bounds without their fraction, as Go converts them.
    let shown = |bound: f64| if integer.is_some() { i64_of(bound).to_string() } else { float(bound) };
    let cmp = |bound: f64| match integer {
        Some(integer) => Some(integer.cmp(&i64_of(bound))),
        None => double.partial_cmp(&bound),
    };
    if let Some(factor) = bounds.multiple_of {
        let positive = if integer.is_some() { i64_of(factor) > 0 } else { factor > 0.0 };
        let multiple = match integer {
            Some(integer) if positive => integer % i64_of(factor) == 0,
            _ if factor < 1.0 => is_whole(1.0 / factor * double),
            _ => is_whole(double / factor),
        };
        if !positive {
            let factor = if integer.is_some() { Value::from(i64_of(factor)) } else { Value::from(factor) };
            let message = format!("factor MultipleOf declared for {path} must be positive: {factor}");
            found.add(Fault { at: path.to_owned(), message, what: What::Invalid(factor) });
        } else if !multiple {
            let message = format!("{path} in body should be a multiple of {}", shown(factor));
            found.add(Fault {
                at: path.to_owned(),
                message,
                what: What::Invalid(Value::Number(value.clone())),
            });
        }
    }
    let mut add = |what: String| {
        let message = format!("{path} in body {what}");
        found.add(Fault { at: path.to_owned(), message, what: What::Invalid(Value::Number(value.clone())) });
    };
    if let Some(min) = bounds.minimum {
        let below =
            cmp(min).is_some_and(|order| order.is_lt() || (bounds.exclusive_minimum && order.is_eq()));
        if below {
            let how = if bounds.exclusive_minimum { "greater than" } else { "greater than or equal to" };
            add(format!("should be {how} {}", shown(min)));
        }
    }
    if let Some(max) = bounds.maximum {
        let above =
            cmp(max).is_some_and(|order| order.is_gt() || (bounds.exclusive_maximum && order.is_eq()));
        if above {
            let how = if bounds.exclusive_maximum { "less than" } else { "less than or equal to" };
            add(format!("should be {how} {}", shown(max)));
        }
    }
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
