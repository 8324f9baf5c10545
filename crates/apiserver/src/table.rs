//! Objects as rows, the way `kubectl get` shows them (1.36, 1.37).
//!
//! A kind has columns and says what stands in them; [`Printer`] is the pair. Kinds that say nothing show their name and when
//! they were made. What a client asked for, and in which form it is sent, is the business of [`crate::answer`].

mod columns;
mod core;
mod hpa;
mod others;
mod pods;
mod policies;
mod value;
mod workloads;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::crd::columns::Column as CustomColumn;
use columns::Column;

/// What the row of an object shows, in the order of its columns.
type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// How objects of a kind are shown.
#[derive(Clone)]
pub(crate) enum Printer<'a> {
    /// A built-in kind.
    BuiltIn(&'static [Column], Cells),
    /// A custom resource: its name, and the columns of its definition.
    Custom(&'a [CustomColumn]),
}

/// What is sent along with each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    Nothing,
    /// The metadata of the object.
    Metadata,
    /// The object.
    Object,
}

impl Printer<'_> {
    /// How a built-in kind is shown.
    pub(crate) fn built_in(group: &str, kind: &str) -> Printer<'static> {
        static FALLBACK: LazyLock<Vec<Column>> = LazyLock::new(|| columns::read("Name:name|Created At:date"));
        for module in [pods::find, core::find, workloads::find, policies::find, others::find, hpa::find] {
            if let Some((columns, cells)) = module(group, kind) {
                return Printer::BuiltIn(columns::of(columns), cells);
            }
        }
        Printer::BuiltIn(&FALLBACK, |object, _| vec![value::name(object), created_at(object)])
    }

    /// The definitions of the columns.
    pub(crate) fn columns(&self) -> Vec<Value> {
        match self {
            Printer::BuiltIn(columns, _) => columns.iter().map(Column::definition).collect(),
            Printer::Custom(columns) => {
                let name = Column { name: "Name".to_owned(), kind: "string", format: "name", priority: 0 };
                let rest = columns.iter().map(|column| {
                    json!({
                        "name": column.name, "type": column.r#type, "format": column.format,
                        "description": column.description, "priority": column.priority,
                    })
                });
                std::iter::once(name.definition()).chain(rest).collect()
            }
        }
    }

    /// The row of an object. `partial` is what stands in for the object if only its metadata is sent.
    pub(crate) fn row(&self, object: &Value, include: Include, version: &str, now: Timestamp) -> Value {
        let cells: Vec<Value> = match self {
            Printer::BuiltIn(_, cells) => cells(object, now),
            Printer::Custom(columns) => {
                let rest = columns.iter().map(|column| column.cell(object, now));
                std::iter::once(value::name(object)).chain(rest).collect()
            }
        };
        let shown = match include {
            Include::Nothing => Value::Null,
            Include::Metadata => partial(object, version),
            Include::Object => object.clone(),
        };
        let mut row = json!({"cells": cells, "object": shown});
        let conditions = if matches!(self, Printer::BuiltIn(..)) { pods::conditions(object) } else { None };
        if let Some(conditions) = conditions {
            row["conditions"] = conditions;
        }
        row
    }
}

/// An object of which only the metadata is shown.
pub(crate) fn partial(object: &Value, version: &str) -> Value {
    let mut meta = object["metadata"].clone();
    // Upstream keeps this one elsewhere and adds it only where the whole object is shown.
    if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut)
        && annotations.remove("deprecated.daemonset.template.generation").is_some()
        && annotations.is_empty()
    {
        meta.as_object_mut().map(|meta| meta.remove("annotations"));
    }
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": meta,
    })
}

/// A table of rows. `columns` are told once in a stream.
pub(crate) fn table(version: &str, meta: &Value, columns: Option<Vec<Value>>, rows: Vec<Value>) -> Value {
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta,
        "columnDefinitions": columns, "rows": rows,
    })
}

fn created_at(object: &Value) -> Value {
    match object["metadata"]["creationTimestamp"].as_str() {
        Some(time) => json!(time),
        None => json!("0001-01-01T00:00:00Z"), // Go's zero time
    }
}
