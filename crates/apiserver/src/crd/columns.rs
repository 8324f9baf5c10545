//! `kubectl get` of custom resources: the cells of `additionalPrinterColumns` (3.31).

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::Value;
use types::go;

use super::go::number;
use crate::{cel, jsonpath::JsonPath};

/// A column after the name's.
#[derive(Debug, Clone)]
pub struct Column {
    /// What stands above it.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub r#type: String,
    /// The format, often none.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// Columns with a priority above 0 are shown by `-o wide`.
    pub priority: i32,
    path: JsonPath,
}

impl Column {
    /// The columns of a version. If one of them has a path that cannot be read, those before it are shown.
    pub fn all(columns: &[CustomResourceColumnDefinition]) -> Vec<Column> {
        columns.iter().map_while(Column::new).collect()
    }

    /// The column that is shown when a definition has none.
    pub fn age() -> Vec<Column> {
        let path = ".metadata.creationTimestamp".to_owned();
        let (name, type_) = ("Age".to_owned(), "date".to_owned());
        Column::all(&[CustomResourceColumnDefinition { name, type_, json_path: path, ..Default::default() }])
    }

    fn new(column: &CustomResourceColumnDefinition) -> Option<Column> {
        let described = column.description.clone().filter(|text| !text.is_empty());
        let derived =
            || format!("Custom resource definition column (in JSONPath format): {}", column.json_path);
        Some(Column {
            name: column.name.clone(),
            r#type: column.type_.clone(),
            format: column.format.clone().unwrap_or_default(),
            description: described.unwrap_or_else(derived),
            priority: column.priority.unwrap_or(0),
            path: JsonPath::parse(&column.json_path).ok()?,
        })
    }

    /// The cell of an object; `null` where there is nothing to show.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.first(object) else { return Value::Null };
        match (self.r#type.as_str(), value) {
            ("string", value) => Value::String(text(value)),
            ("integer", Value::Number(number)) => integer(number),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(time)) => Value::String(age(time, now)),
            _ => Value::Null,
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => self::number(number),
        Value::Null => "<no value>".to_owned(),
        other => go::json(other),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Go truncates here too")]
fn integer(number: &serde_json::Number) -> Value {
    number.as_i64().or(number.as_f64().map(|double| double as i64)).map_or(Value::Null, Value::from)
}

/// How long ago a time was, as kubectl shows it.
pub fn age(time: &str, now: Timestamp) -> String {
    if time.is_empty() || time == "null" {
        return "<unknown>".to_owned();
    }
    let Some(at) = cel::timestamp(time) else { return "<invalid>".to_owned() };
    human(now.as_second() - at.as_second())
}

fn human(seconds: i64) -> String {
    let with = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => with(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => with(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => with(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_3_31() {
        let object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"a": "x", "n": 3, "l": ["p"], "b": true, "o": {"k": 1}, "f": 1.5, "z": null}});
        let now = "2026-01-01T00:05:30Z".parse().expect("a time");
        for (r#type, path, cell) in [
            ("string", ".spec.a", json!("x")),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.l[*]", json!("p")),
            ("string", ".spec.o", json!("{\"k\":1}")),
            ("string", ".spec.missing", json!(null)),
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(1)),
            ("integer", ".spec.a", json!(null)),
            ("number", ".spec.f", json!(1.5)),
            ("boolean", ".spec.b", json!(true)),
            ("date", ".metadata.creationTimestamp", json!("5m30s")),
            ("date", ".spec.a", json!("<invalid>")),
            ("date", ".spec.z", json!(null)),
        ] {
            let (type_, json_path) = (r#type.to_owned(), path.to_owned());
            let column = CustomResourceColumnDefinition { type_, json_path, ..Default::default() };
            assert_eq!(Column::all(&[column])[0].cell(&object, now), cell, "{type} {path}");
        }
    }

    #[test]
    fn ages_as_kubectl_shows_them() {
        for (seconds, shown) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (601, "10m"),
            (3 * 3600, "3h"),
            (8 * 3600 - 60, "7h59m"),
            (47 * 3600, "47h"),
            (49 * 3600, "2d1h"),
            (9 * 86400, "9d"),
            (3 * 365 * 86400, "3y"),
            (3 * 365 * 86400 + 86400, "3y1d"),
            (9 * 365 * 86400, "9y"),
        ] {
            assert_eq!(human(seconds), shown, "{seconds}");
        }
    }
}
