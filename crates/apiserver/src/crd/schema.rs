//! A structural schema in the form in which objects are pruned, defaulted and judged by it.
//!
//! Compiled from the schema of an accepted definition; whether a schema is acceptable at all is [`definition`]'s
//! business.
//!
//! [`definition`]: super::definition

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use serde_json::Value;

use super::{formats, pattern::Pattern};

/// What a value must be, node by node.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an extension of its own in the definition")]
pub struct Schema {
    /// The type; none where `x-kubernetes-int-or-string` or `x-kubernetes-preserve-unknown-fields` stands instead.
    pub r#type: Option<Type>,
    /// The format of a string.
    pub format: Option<String>,
    /// The same, if values are held against it.
    pub checked_format: Option<&'static str>,
    /// Whether `null` is a value.
    pub nullable: bool,
    /// What stands here when nothing does.
    pub default: Option<Value>,
    /// The fields of a structure.
    pub properties: BTreeMap<String, Schema>,
    /// Whether any of them has a default.
    pub has_defaults: bool,
    /// What the values of a map must be.
    pub additional: Additional,
    /// What the items of a list must be.
    pub items: Option<Box<Schema>>,
    /// How the items of a list belong together.
    pub list_type: ListType,
    /// Fields that tell the items of a map list apart.
    pub list_map_keys: Vec<String>,
    /// Either an integer or a string.
    pub int_or_string: bool,
    /// An object of its own, with `apiVersion`, `kind` and `metadata`.
    pub embedded: bool,
    /// Fields without a schema are kept.
    pub preserve_unknown: bool,
    /// Fields that must be there.
    pub required: Vec<String>,
    /// The only values allowed, if any are named.
    pub r#enum: Vec<Value>,
    /// Bounds of numbers, text, lists and maps.
    pub bounds: Option<Box<Bounds>>,
    /// Further schemas for the same value.
    pub combined: Option<Box<Combined>>,
    /// `x-kubernetes-validations`
    pub rules: Vec<Rule>,
    /// What is to be looked for in this node and below.
    pub below: Below,
}

/// What stands somewhere in a node or below it, so that nobody looks where it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Below {
    /// Objects of their own.
    pub embedded: bool,
    /// Lists that hold every item, or every key, once.
    pub unique: bool,
    /// Defaults, of nodes below only.
    pub defaults: bool,
}

/// The types of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A list.
    Array,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// A structure or a map.
    Object,
    /// Text.
    String,
}

/// `additionalProperties`
#[derive(Debug, Clone, Default)]
pub enum Additional {
    /// Not said: unknown fields are pruned.
    #[default]
    Absent,
    /// Said without a schema.
    Allowed(bool),
    /// What each value must be.
    Schema(Box<Schema>),
}

/// `x-kubernetes-list-type`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    /// One value as a whole.
    #[default]
    Atomic,
    /// Every item once.
    Set,
    /// Every key once.
    Map,
}

/// Bounds of a value.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "named and meant as in JSON Schema")]
pub struct Bounds {
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub multiple_of: Option<f64>,
    pub max_length: Option<i64>,
    pub min_length: Option<i64>,
    pub pattern: Option<Arc<Pattern>>,
    pub max_items: Option<i64>,
    pub min_items: Option<i64>,
    pub max_properties: Option<i64>,
    pub min_properties: Option<i64>,
}

/// Schemas that hold together, instead of each other, or not at all.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "named and meant as in JSON Schema")]
pub struct Combined {
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Schema>,
}

/// A rule in the Common Expression Language.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named and meant as in the definition")]
pub struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

impl Schema {
    /// Compiles a schema that was accepted. What an accepted schema cannot have is ignored.
    pub fn compile(props: &JSONSchemaProps) -> Schema {
        Compiler::default().schema(props)
    }

    /// The schema of a field: of the structure, or of the map.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        match (self.properties.get(name), &self.additional) {
            (Some(field), _) => Some(field),
            (None, Additional::Schema(value)) => Some(value),
            (None, _) => None,
        }
    }

    /// The fields that have defaults, with these.
    pub fn defaulted(&self) -> impl Iterator<Item = (&String, &Schema, &Value)> {
        let properties = self.has_defaults.then_some(&self.properties).into_iter().flatten();
        properties.filter_map(|(name, property)| Some((name, property, property.default.as_ref()?)))
    }

    /// The type as it is named in JSON.
    pub fn type_name(&self) -> &'static str {
        self.r#type.map_or("", Type::name)
    }

    /// Whether this node or one below has rules.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty() || self.children().any(Schema::has_rules)
    }

    /// The schemas of fields, values and items.
    pub fn children(&self) -> impl Iterator<Item = &Schema> {
        let value = match &self.additional {
            Additional::Schema(value) => Some(&**value),
            _ => None,
        };
        self.properties.values().chain(value).chain(self.items.as_deref())
    }
}

impl Type {
    /// The type named `name`.
    pub fn named(name: &str) -> Option<Type> {
        Some(match name {
            "array" => Type::Array,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "object" => Type::Object,
            "string" => Type::String,
            _ => return None,
        })
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Type::Array => "array",
            Type::Boolean => "boolean",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Object => "object",
            Type::String => "string",
        }
    }
}

#[derive(Default)]
struct Compiler {
    patterns: HashMap<String, Arc<Pattern>>,
}

impl Compiler {
    fn schema(&mut self, props: &JSONSchemaProps) -> Schema {
        let mut schema = Schema {
            r#type: props.type_.as_deref().and_then(Type::named),
            format: props.format.clone().filter(|format| !format.is_empty()),
            checked_format: props.format.as_deref().and_then(formats::checked),
            nullable: props.nullable == Some(true),
            default: props
                .default
                .as_ref()
                .map(|default| default.0.clone())
                .filter(|default| !default.is_null()),
            properties: props
                .properties
                .iter()
                .flatten()
                .map(|(name, props)| (name.clone(), self.schema(props)))
                .collect(),
            additional: match &props.additional_properties {
                None => Additional::Absent,
                Some(JSONSchemaPropsOrBool::Bool(allowed)) => Additional::Allowed(*allowed),
                Some(JSONSchemaPropsOrBool::Schema(props)) => {
                    Additional::Schema(Box::new(self.schema(props)))
                }
            },
            items: match &props.items {
                Some(JSONSchemaPropsOrArray::Schema(props)) => Some(Box::new(self.schema(props))),
                _ => None,
            },
            list_type: match props.x_kubernetes_list_type.as_deref() {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map,
                _ => ListType::Atomic,
            },
            list_map_keys: props.x_kubernetes_list_map_keys.clone().unwrap_or_default(),
            int_or_string: props.x_kubernetes_int_or_string == Some(true),
            embedded: props.x_kubernetes_embedded_resource == Some(true),
            preserve_unknown: props.x_kubernetes_preserve_unknown_fields == Some(true),
            required: props.required.clone().unwrap_or_default(),
            r#enum: props.enum_.iter().flatten().map(|value| value.0.clone()).collect(),
            bounds: self.bounds(props),
            combined: self.combined(props),
            rules: props.x_kubernetes_validations.iter().flatten().map(rule).collect(),
            has_defaults: false,
            below: Below::default(),
        };
        schema.has_defaults = schema.properties.values().any(|property| property.default.is_some());
        let any = |is: fn(&Schema) -> bool| schema.children().any(is);
        let below = Below {
            embedded: schema.embedded || any(|child| child.below.embedded),
            unique: schema.list_type != ListType::Atomic || any(|child| child.below.unique),
            defaults: any(|child| child.default.is_some() || child.below.defaults),
        };
        schema.below = below;
        schema
    }

    fn bounds(&mut self, props: &JSONSchemaProps) -> Option<Box<Bounds>> {
        let bounds = Bounds {
            maximum: props.maximum,
            exclusive_maximum: props.exclusive_maximum == Some(true),
            minimum: props.minimum,
            exclusive_minimum: props.exclusive_minimum == Some(true),
            multiple_of: props.multiple_of,
            max_length: props.max_length,
            min_length: props.min_length,
            pattern: props.pattern.as_deref().filter(|text| !text.is_empty()).map(|text| self.pattern(text)),
            max_items: props.max_items,
            min_items: props.min_items,
            max_properties: props.max_properties,
            min_properties: props.min_properties,
        };
        let numbers = [bounds.maximum, bounds.minimum, bounds.multiple_of];
        let sizes = [
            bounds.max_length,
            bounds.min_length,
            bounds.max_items,
            bounds.min_items,
            bounds.max_properties,
            bounds.min_properties,
        ];
        let any = numbers.iter().any(Option::is_some)
            || sizes.iter().any(Option::is_some)
            || bounds.pattern.is_some();
        any.then(|| Box::new(bounds))
    }

    fn pattern(&mut self, text: &str) -> Arc<Pattern> {
        if let Some(known) = self.patterns.get(text) {
            return Arc::clone(known);
        }
        let pattern = Arc::new(Pattern::new(text));
        self.patterns.insert(text.to_owned(), Arc::clone(&pattern));
        pattern
    }

    fn combined(&mut self, props: &JSONSchemaProps) -> Option<Box<Combined>> {
        let mut all = |schemas: &Option<Vec<JSONSchemaProps>>| -> Vec<Schema> {
            schemas.iter().flatten().map(|props| self.schema(props)).collect()
        };
        let combined = Combined {
            all_of: all(&props.all_of),
            any_of: all(&props.any_of),
            one_of: all(&props.one_of),
            not: props.not.as_ref().map(|props| self.schema(props)),
        };
        let none = combined.all_of.is_empty() && combined.any_of.is_empty() && combined.one_of.is_empty();
        (!none || combined.not.is_some()).then(|| Box::new(combined))
    }
}

fn rule(rule: &ValidationRule) -> Rule {
    Rule {
        rule: rule.rule.clone(),
        message: rule.message.clone().unwrap_or_default(),
        message_expression: rule.message_expression.clone().unwrap_or_default(),
        reason: rule.reason.clone(),
        field_path: rule.field_path.clone().unwrap_or_default(),
        optional_old_self: rule.optional_old_self,
    }
}
