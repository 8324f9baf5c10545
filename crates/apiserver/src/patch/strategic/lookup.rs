//! What a Go type says about merging one of its fields.

use schema::Type;
use schema::pack::{Field, Shape};

use super::super::Error;

/// How a field merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// As a merge patch would.
    None,
    /// As one value.
    Replace,
    /// A list item by item, by this key if they are objects.
    Merge(Option<&'static str>),
}

/// The type and strategy of a field that holds an object.
pub(super) fn struct_field(of: Type, name: &str) -> Result<(Type, Strategy), Error> {
    let field = field(of, name)?;
    Ok((field.of_type(), strategy(field)))
}

/// The type of the items, and the strategy, of a field that holds a list.
pub(super) fn list_field(of: Type, name: &str) -> Result<(Type, Strategy), Error> {
    let field = field(of, name)?;
    let items = match field.of_type().shape() {
        Shape::List(items) => match items.shape() {
            Shape::List(_) | Shape::Bytes => return Err(Error::Failed("unexpected slice of slice".into())),
            _ => items,
        },
        Shape::Pointer(to) => match to.shape() {
            Shape::List(items) => items,
            _ => to,
        },
        _ => {
            let kind = kind(of);
            return Err(Error::Failed(format!("expected slice or array type, but got: {kind}")));
        }
    };
    Ok((items, strategy(field)))
}

fn field(of: Type, name: &str) -> Result<Field, Error> {
    let of = match of.shape() {
        Shape::Pointer(to) => to,
        _ => of,
    };
    if kind(of) != "struct" {
        let kind = kind(of);
        return Err(Error::Failed(format!(
            "merging an object in json but data type is not struct, instead is: {kind}"
        )));
    }
    let found = of.field(name).or_else(|| named_alike(of, name));
    found.ok_or_else(|| {
        let short = of.go_name().rsplit_once('.').map_or(of.go_name(), |(_, short)| short);
        let name = types::go::quote(name);
        Error::Failed(format!("unable to find api field in struct {short} for the json field {name}"))
    })
}

/// The field whose name differs in case only, inlined structs' fields included.
fn named_alike(of: Type, name: &str) -> Option<Field> {
    of.fields().find_map(|field| {
        if field.is_inline() {
            return named_alike(field.of_type(), name);
        }
        (field.name().to_lowercase() == name.to_lowercase()).then_some(field)
    })
}

fn strategy(field: Field) -> Strategy {
    let facts = field.facts();
    let mut strategies =
        facts.patch_strategy.unwrap_or_default().split(',').filter(|one| *one != "retainKeys");
    match strategies.next() {
        Some("merge") => Strategy::Merge(facts.merge_key),
        Some("replace") => Strategy::Replace,
        _ => Strategy::None,
    }
}

/// A type's kind as Go's reflection names it.
pub(super) fn kind(of: Type) -> &'static str {
    match of.shape() {
        Shape::String => "string",
        Shape::Bool => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Float64 => "float64",
        Shape::Bytes | Shape::List(_) => "slice",
        Shape::Map(_) => "map",
        Shape::Pointer(_) => "ptr",
        Shape::Any => "interface",
        _ => "struct",
    }
}
