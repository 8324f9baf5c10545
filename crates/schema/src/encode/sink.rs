//! Where written JSON goes: into text, or into a tree.

use serde_json::{Map, Number, Value};
use types::go;

/// Takes JSON piece by piece.
pub(crate) trait Sink {
    fn null(&mut self);
    fn bool(&mut self, value: bool);
    fn number(&mut self, value: &Number);
    fn string(&mut self, value: &str);
    /// Any JSON, as it is.
    fn tree(&mut self, value: &Value);
    fn begin_list(&mut self);
    /// Before each item of a list.
    fn item(&mut self);
    fn end_list(&mut self);
    fn begin_object(&mut self);
    /// Before each value of an object.
    fn key(&mut self, key: &str);
    fn end_object(&mut self);
}

/// Text as Go's `encoding/json` writes it.
#[derive(Default)]
pub(crate) struct Text {
    out: String,
}

impl Text {
    pub(crate) fn finish(self) -> String {
        self.out
    }

    fn separate(&mut self) {
        if !self.out.ends_with(['{', '[']) {
            self.out.push(',');
        }
    }
}

impl Sink for Text {
    fn null(&mut self) {
        self.out.push_str("null");
    }

    fn bool(&mut self, value: bool) {
        self.out.push_str(if value { "true" } else { "false" });
    }

    fn number(&mut self, value: &Number) {
        match value.as_f64() {
            Some(float) if value.is_f64() => self.out.push_str(&super::float(float)),
            _ => self.out.push_str(&value.to_string()),
        }
    }

    fn string(&mut self, value: &str) {
        go::write_json_string(&mut self.out, value);
    }

    fn tree(&mut self, value: &Value) {
        self.out.push_str(&go::json(value));
    }

    fn begin_list(&mut self) {
        self.out.push('[');
    }

    fn item(&mut self) {
        self.separate();
    }

    fn end_list(&mut self) {
        self.out.push(']');
    }

    fn begin_object(&mut self) {
        self.out.push('{');
    }

    fn key(&mut self, key: &str) {
        self.separate();
        go::write_json_string(&mut self.out, key);
        self.out.push(':');
    }

    fn end_object(&mut self) {
        self.out.push('}');
    }
}

/// A tree.
#[derive(Default)]
pub(crate) struct Tree {
    root: Value,
    /// The lists and objects that are not complete, innermost last.
    open: Vec<Open>,
}

enum Open {
    List(Vec<Value>),
    Object(Map<String, Value>, String),
}

impl Tree {
    pub(crate) fn finish(self) -> Value {
        self.root
    }

    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.root = value,
            Some(Open::List(items)) => items.push(value),
            Some(Open::Object(members, key)) => {
                members.insert(std::mem::take(key), value);
            }
        }
    }
}

impl Sink for Tree {
    fn null(&mut self) {
        self.put(Value::Null);
    }

    fn bool(&mut self, value: bool) {
        self.put(Value::Bool(value));
    }

    fn number(&mut self, value: &Number) {
        self.put(Value::Number(value.clone()));
    }

    fn string(&mut self, value: &str) {
        self.put(Value::String(value.to_owned()));
    }

    fn tree(&mut self, value: &Value) {
        self.put(value.clone());
    }

    fn begin_list(&mut self) {
        self.open.push(Open::List(Vec::new()));
    }

    fn item(&mut self) {}

    fn end_list(&mut self) {
        if let Some(Open::List(items)) = self.open.pop() {
            self.put(Value::Array(items));
        }
    }

    fn begin_object(&mut self) {
        self.open.push(Open::Object(Map::new(), String::new()));
    }

    fn key(&mut self, key: &str) {
        if let Some(Open::Object(_, next)) = self.open.last_mut() {
            key.clone_into(next);
        }
    }

    fn end_object(&mut self) {
        if let Some(Open::Object(members, _)) = self.open.pop() {
            self.put(Value::Object(members));
        }
    }
}
