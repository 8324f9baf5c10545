//! How large a value of a schema can be, as the cost of rules is estimated by it.

use std::collections::{BTreeMap, BTreeSet};

use super::schema::{Additional, Bounds, Schema, Type as SchemaType};
use crate::cel::{Size, types::escape};

/// The largest request.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;
/// A text can be as long as a request without its quotes.
const MAX_TEXT: u64 = MAX_REQUEST - 2;
/// Lengths of what stands for a time, as JSON.
const MAX_DURATION: u64 = 32;
const MIN_DURATION: u64 = 3;
const DATE: u64 = 12;
const MAX_DATE_TIME: u64 = 32;
const MIN_DATE_TIME: u64 = 21;

/// The extent of a value, and of what is in it.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// How many characters, items or entries there can be.
    max: u64,
    /// How short it is at least, as JSON.
    min_json: u64,
    fields: BTreeMap<String, Extent>,
    /// What stands in a list or a map.
    inner: Option<Box<Extent>>,
    is_map: bool,
}

impl Extent {
    fn of_text(max: u64, min_json: u64) -> Extent {
        Extent { max, min_json, ..Extent::default() }
    }

    /// The extent of what a schema allows; none if expressions cannot see it. `root` says that it is an object of its own.
    pub(super) fn of(schema: &Schema, root: bool) -> Option<Extent> {
        let bound = |pick: fn(&Bounds) -> Option<i64>| {
            let limit = schema.bounds.as_deref().and_then(pick)?;
            Some(u64::try_from(limit).unwrap_or(0))
        };
        // A character can be of four bytes.
        let length = bound(|bounds| bounds.max_length);
        let text = || length.map_or(MAX_TEXT, |length| length.saturating_mul(4));
        if schema.int_or_string {
            return Some(Extent::of_text(text(), 1));
        }
        Some(match schema.r#type? {
            SchemaType::Array => {
                let items = schema.items.as_ref()?;
                let inner = Extent::of(items, items.embedded)?;
                let most = (MAX_REQUEST - 2) / (inner.min_json + 1);
                let max = bound(|bounds| bounds.max_items).unwrap_or(most);
                Extent { max, min_json: 2, inner: Some(Box::new(inner)), ..Extent::default() }
            }
            SchemaType::Object => match &schema.additional {
                Additional::Schema(values) => {
                    let inner = Extent::of(values, values.embedded)?;
                    let most = (MAX_REQUEST - 2) / (inner.min_json + 6);
                    let max = bound(|bounds| bounds.max_properties).unwrap_or(most);
                    let inner = Some(Box::new(inner));
                    Extent { max, min_json: 2, inner, is_map: true, ..Extent::default() }
                }
                _ => Extent::structure(schema, root),
            },
            SchemaType::String => match schema.format.as_deref() {
                Some("byte") => Extent::of_text(length.unwrap_or(MAX_TEXT), 2),
                Some("duration") => Extent::of_text(MAX_DURATION, MIN_DURATION),
                Some("date") => Extent::of_text(DATE, DATE),
                Some("date-time") => Extent::of_text(MAX_DATE_TIME, MIN_DATE_TIME),
                _ if length.is_none() && !schema.r#enum.is_empty() => {
                    let longest = schema.r#enum.iter().filter_map(|value| value.as_str()).map(str::len).max();
                    Extent::of_text(longest.unwrap_or(0) as u64, 2)
                }
                _ => Extent::of_text(text(), 2),
            },
            SchemaType::Boolean => Extent::of_text(0, 4),
            SchemaType::Number | SchemaType::Integer => Extent::of_text(0, 1),
        })
    }

    fn structure(schema: &Schema, root: bool) -> Extent {
        let mut extent = Extent { min_json: 2, ..Extent::default() };
        let required: BTreeSet<&str> = schema.required.iter().map(String::as_str).collect();
        let mut add = |name: &str, field: Extent, has_default: bool| {
            if required.contains(name) && !has_default {
                extent.min_json += name.len() as u64 + field.min_json + 4;
            }
            if let Some(escaped) = escape(name) {
                extent.fields.insert(escaped, field);
            }
        };
        let is_given = |name: &str| root && matches!(name, "apiVersion" | "kind" | "metadata");
        for (name, field) in schema.properties.iter().filter(|(name, _)| !is_given(name)) {
            if let Some(extent) = Extent::of(field, field.embedded) {
                add(name, extent, field.default.is_some());
            }
        }
        if root {
            let text = || Extent::of_text(MAX_TEXT, 2);
            let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
            let metadata = Extent { min_json: 2, fields: BTreeMap::from(names), ..Extent::default() };
            add("metadata", metadata, false);
            add("apiVersion", text(), false);
            add("kind", text(), false);
        }
        extent
    }

    /// The size of what a path leads to from here; its first part is the name of this.
    pub(super) fn at(&self, path: &[String]) -> Option<Size> {
        static KEY: Extent =
            Extent { max: 0, min_json: 2, fields: BTreeMap::new(), inner: None, is_map: false };
        let mut here = self;
        for part in path.iter().skip(1) {
            here = match part.as_str() {
                "@items" | "@values" => here.inner.as_deref()?,
                "@keys" if here.is_map => &KEY,
                "@keys" => return None,
                name => here.fields.get(name)?,
            };
        }
        Some(Size { min: 0, max: here.max })
    }

    /// How often such a value can stand in a request.
    pub(super) fn most(&self) -> u64 {
        MAX_REQUEST / (self.min_json + 1)
    }
}
