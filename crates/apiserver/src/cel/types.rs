//! The types an expression is checked with, and the shape of the JSON it will read.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// A type of the Common Expression Language, as far as Kubernetes uses it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Type {
    /// Whatever the value turns out to be.
    #[default]
    Dyn,
    /// The same, declared under another name.
    Any,
    /// Of what could not be typed: as good as [`Type::Dyn`], but said.
    Wrong,
    /// The type of `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A floating-point number.
    Double,
    /// Text.
    String,
    /// Binary data, base64 in JSON.
    Bytes,
    /// A span of time.
    Duration,
    /// A point in time.
    Timestamp,
    /// A list.
    List(Arc<List>),
    /// A map with keys and values of one type each.
    Map(Arc<(Type, Type)>),
    /// A structure with declared fields.
    Object(Arc<Object>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Arc<Type>),
    /// A type of Kubernetes' own libraries.
    Library(Library),
    /// A type variable in the signature of a function.
    Param(char),
}

/// The types that Kubernetes adds to the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// `kubernetes.Quantity`
    Quantity,
    /// `net.IP`
    Ip,
    /// `net.CIDR`
    Cidr,
    /// `kubernetes.URL`
    Url,
    /// `kubernetes.Semver`
    Semver,
    /// `kubernetes.NamedFormat`
    Format,
    /// Who is asked what somebody may do.
    Authorizer,
    /// A question about a path.
    PathCheck,
    /// A question about a group of resources.
    GroupCheck,
    /// A question about a resource.
    ResourceCheck,
    /// What was answered.
    Decision,
}

/// A list type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The type of the items.
    pub item: Type,
    /// How two such lists compare and combine.
    pub kind: ListKind,
}

/// How lists compare and combine: `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListKind {
    /// In order, as a whole.
    Atomic,
    /// Without order.
    Set,
    /// Without order, items known by these keys.
    Map(Vec<String>),
}

/// A structure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object {
    /// What it is called in messages of the compiler; nothing for what a schema declares.
    pub name: &'static str,
    /// The fields, by the name an expression uses for them.
    pub fields: BTreeMap<String, Field>,
}

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name in JSON.
    pub name: String,
    /// What it holds.
    pub r#type: Type,
}

impl Object {
    /// The field an expression means: reserved words may be written plainly where they can only be a field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields
            .get(name)
            .or_else(|| self.fields.get(&format!("__{name}__")).filter(|field| field.name == name))
    }
}

impl Type {
    /// An ordinary list.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(List { item, kind: ListKind::Atomic }))
    }

    /// A map from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// An optional value.
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    /// The type of the type.
    pub fn of(inner: Type) -> Type {
        Type::Type(Arc::new(inner))
    }

    /// Whether the value is only known at run time.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Wrong)
    }

    /// The type that a bare name like `string` stands for.
    pub fn named(name: &str) -> Option<Type> {
        Some(match name {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "null_type" => Type::Null,
            "type" => Type::of(Type::Dyn),
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "optional_type" => Type::optional(Type::Dyn),
            "kubernetes.Quantity" => Type::Library(Library::Quantity),
            "kubernetes.URL" => Type::Library(Library::Url),
            "kubernetes.Semver" => Type::Library(Library::Semver),
            "kubernetes.NamedFormat" => Type::Library(Library::Format),
            "net.IP" => Type::Library(Library::Ip),
            "net.CIDR" => Type::Library(Library::Cidr),
            _ => return None,
        })
    }
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Library::Quantity => "kubernetes.Quantity",
            Library::Ip => "net.IP",
            Library::Cidr => "net.CIDR",
            Library::Url => "kubernetes.URL",
            Library::Semver => "kubernetes.Semver",
            Library::Format => "kubernetes.NamedFormat",
            Library::Authorizer => "kubernetes.authorization.Authorizer",
            Library::PathCheck => "kubernetes.authorization.PathCheck",
            Library::GroupCheck => "kubernetes.authorization.GroupCheck",
            Library::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Library::Decision => "kubernetes.authorization.Decision",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Any => f.write_str("any"),
            Type::Wrong => f.write_str("!error!"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("google.protobuf.Duration"),
            Type::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Type::List(list) => write!(f, "list({})", list.item),
            Type::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Type::Object(object) if object.name.is_empty() => f.write_str("object"),
            Type::Object(object) => f.write_str(object.name),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Type(inner) => write!(f, "type({inner})"),
            Type::Library(library) => f.write_str(library.name()),
            Type::Param(name) => write!(f, "{name}"),
        }
    }
}

/// The name under which an expression reads a JSON field, or none if it cannot: what is no identifier is escaped, and
/// so are the words the language keeps for itself.
pub fn escape(name: &str) -> Option<String> {
    if name == "namespace" || super::token::RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = tail;
            continue;
        }
        match c {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            c if c.is_ascii_alphabetic() || c == '_' || (c.is_ascii_digit() && !escaped.is_empty()) => {
                escaped.push(c);
            }
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    (!escaped.is_empty()).then_some(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_names_are_escaped_as_kubernetes_escapes_them() {
        for (name, escaped) in [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("if", Some("__if__")),
            ("a.b-c/d", Some("a__dot__b__dash__c__slash__d")),
            ("a__b", Some("a__underscores__b")),
            ("_a", Some("_a")),
            ("int", Some("int")),
            ("1a", None),
            ("a$", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
        }
    }

    #[test]
    fn types_print_as_in_compiler_messages() {
        assert_eq!(Type::map(Type::String, Type::list(Type::Int)).to_string(), "map(string, list(int))");
        assert_eq!(Type::optional(Type::Library(Library::Ip)).to_string(), "optional_type(net.IP)");
    }
}
