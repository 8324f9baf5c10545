//! What is wrong with a field, and how Kubernetes says it.
//!
//! A validation rule returns [`Errors`]: every error at once, in the order of the checks, duplicates included, because
//! that is what a Kubernetes API server puts into a `Status`. How a status looks on the wire is not known here.

use std::fmt;

use serde::Serialize;
use types::go;

use crate::wire;

/// All errors found in one object, in the order in which they were found.
pub type Errors = Vec<Error>;

/// One thing that is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Where, for example `spec.template.spec.containers[0].image`.
    pub path: String,
    /// What kind of wrong.
    pub kind: Kind,
    /// The refused value as Kubernetes prints it; `None` where it prints none.
    pub value: Option<String>,
    /// Why, and what would be right. May be empty.
    pub detail: String,
    /// How the value was printed, if it may hold a list that was not sent: see [`print_as_sent`].
    form: Option<Form>,
}

/// How a list or a structure prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As JSON.
    Json,
    /// As the internal counterpart of this type.
    Internal(schema::Type),
}

/// The kinds of errors that the Kubernetes API distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The value refers to something that is not there.
    NotFound,
    /// A value is needed and none was given.
    Required,
    /// The value stands a second time where it may stand once.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is none of an enumeration.
    NotSupported,
    /// The value would be right elsewhere, but not here.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list is too long.
    TooMany,
    /// The value is of another type than the schema says.
    TypeInvalid,
    /// The rule itself could not be evaluated.
    Internal,
}

impl Kind {
    /// The machine-readable reason, as in `details.causes[].reason` of a `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            Kind::NotFound => "FieldValueNotFound",
            Kind::Required => "FieldValueRequired",
            Kind::Duplicate => "FieldValueDuplicate",
            Kind::Invalid => "FieldValueInvalid",
            Kind::NotSupported => "FieldValueNotSupported",
            Kind::Forbidden => "FieldValueForbidden",
            Kind::TooLong => "FieldValueTooLong",
            Kind::TooMany => "FieldValueTooMany",
            Kind::TypeInvalid => "FieldValueTypeInvalid",
            Kind::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Kind::NotFound => "Not found",
            Kind::Required => "Required value",
            Kind::Duplicate => "Duplicate value",
            Kind::Invalid | Kind::TypeInvalid => "Invalid value",
            Kind::NotSupported => "Unsupported value",
            Kind::Forbidden => "Forbidden",
            Kind::TooLong => "Too long",
            Kind::TooMany => "Too many",
            Kind::Internal => "Internal error",
        }
    }
}

impl Error {
    /// The same error with another detail, where Kubernetes says more than usual.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Error { detail: detail.into(), ..self }
    }

    /// The message without the path, as in `details.causes[].message` of a `Status`.
    pub fn message(&self) -> String {
        let mut message = self.kind.text().to_owned();
        for part in self.value.iter().chain((!self.detail.is_empty()).then_some(&self.detail)) {
            message.push_str(": ");
            message.push_str(part);
        }
        message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

impl std::error::Error for Error {}

/// A path to a field, grown step by step: `Path::new("spec").child("containers").index(0)`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path(String);

impl Path {
    /// The path of a field at the top of an object.
    pub fn new(name: &str) -> Self {
        Path(name.to_owned())
    }

    /// The path of an object itself; its errors are printed with `<nil>`, as Go prints a path that is not there.
    pub fn root() -> Self {
        Path("<nil>".to_owned())
    }

    /// The path of a field inside this one. `child("a.b")` steps down twice.
    pub fn child(&self, name: &str) -> Self {
        if self.0 == "<nil>" { Path(name.to_owned()) } else { Path([&self.0, ".", name].concat()) }
    }

    /// The path of a list item.
    pub fn index(&self, index: usize) -> Self {
        Path(format!("{}[{index}]", self.0))
    }

    /// The path of a map entry.
    pub fn key(&self, key: &str) -> Self {
        Path([&self.0, "[", key, "]"].concat())
    }

    /// A value is needed and none was given.
    pub fn required(&self, detail: impl Into<String>) -> Error {
        self.error(Kind::Required, Value::OMITTED, detail)
    }

    /// The value is malformed or out of bounds.
    pub fn invalid(&self, value: impl Into<Value>, detail: impl Into<String>) -> Error {
        self.error(Kind::Invalid, value.into(), detail)
    }

    /// The value is none of `supported`, which are printed in the order given.
    pub fn not_supported<S: AsRef<str>>(&self, value: impl Into<Value>, supported: &[S]) -> Error {
        let quoted: Vec<String> = supported.iter().map(|value| go::quote(value.as_ref())).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        self.error(Kind::NotSupported, value.into(), detail)
    }

    /// The value is of another type than the schema says.
    pub fn type_invalid(&self, value: impl Into<Value>, detail: impl Into<String>) -> Error {
        self.error(Kind::TypeInvalid, value.into(), detail)
    }

    /// The value stands a second time where it may stand once.
    pub fn duplicate(&self, value: impl Into<Value>) -> Error {
        self.error(Kind::Duplicate, value.into(), "")
    }

    /// The value refers to something that is not there.
    pub fn not_found(&self, value: impl Into<Value>) -> Error {
        self.error(Kind::NotFound, value.into(), "")
    }

    /// The value would be right elsewhere, but not here.
    pub fn forbidden(&self, detail: impl Into<String>) -> Error {
        self.error(Kind::Forbidden, Value::OMITTED, detail)
    }

    /// The text is longer than `max` bytes.
    pub fn too_long(&self, max: usize) -> Error {
        self.error(
            Kind::TooLong,
            Value::OMITTED,
            format!("may not be more than {max} {}", plural(max, "byte")),
        )
    }

    /// The list has `actual` items, which is more than `max`.
    pub fn too_many(&self, actual: usize, max: usize) -> Error {
        self.error(Kind::TooMany, actual.into(), format!("must have at most {max} {}", plural(max, "item")))
    }

    /// The rule itself could not be evaluated.
    pub fn internal_error(&self, detail: impl Into<String>) -> Error {
        self.error(Kind::Internal, Value::OMITTED, detail)
    }

    fn error(&self, kind: Kind, value: Value, detail: impl Into<String>) -> Error {
        Error { path: self.0.clone(), kind, value: value.printed, detail: detail.into(), form: value.form }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// A refused value, printed as Go prints it: strings quoted, numbers and booleans bare, everything else as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    printed: Option<String>,
    form: Option<Form>,
}

impl Value {
    /// No value is printed at all.
    pub const OMITTED: Value = Value { printed: None, form: None };

    /// A value that prints as plain JSON: lists and maps of scalars, pointers to scalars (`None` is `null`), times, and
    /// Go's named string types.
    pub fn json(value: &impl Serialize) -> Self {
        Value::printed(go::json(&to_json(value)))
    }

    /// A list of scalars that must be there.
    pub fn list<T: Serialize>(values: &[T]) -> Self {
        Value { form: Some(Form::Json), ..Value::json(&values) }
    }

    /// A value of one of Kubernetes' structures, named by its wire type (`io.k8s.api.core.v1.PodSpec`): it prints
    /// with the names and in the order of the structure that the API server holds internally.
    pub fn internal(wire_type: &str, value: &impl Serialize) -> Self {
        let of = wire::named(wire_type);
        Value { printed: Some(print_internal(of, &to_json(value))), form: Some(Form::Internal(of)) }
    }

    /// A list of such structures.
    pub fn internal_list<T: Serialize>(wire_type: &str, values: &[T]) -> Self {
        let printed: Vec<String> =
            values.iter().filter_map(|value| Value::internal(wire_type, value).printed).collect();
        Value::printed(format!("[{}]", printed.join(",")))
    }

    /// A value that was printed already.
    pub fn printed(text: impl Into<String>) -> Self {
        Value { printed: Some(text.into()), form: None }
    }
}

/// A value that is shown with every error of a kind, a whole list with everything that is wrong in it: as often as that does
/// not fill the memory.
pub struct Often {
    value: Value,
    left: usize,
}

impl Often {
    /// About as many bytes as it is shown in.
    const MOST: usize = 4 * 1024 * 1024;
    /// What an error takes without its value.
    const ERROR: usize = 128;

    /// A value that is shown a first time in any case.
    pub fn new(value: Value) -> Self {
        Often { value, left: Self::MOST }
    }

    /// The value once more, if there is room for it.
    pub fn once_more(&mut self) -> Option<Value> {
        if self.left == 0 {
            return None;
        }
        let size = Self::ERROR + self.value.printed.as_ref().map_or(0, String::len);
        self.left = self.left.saturating_sub(size);
        Some(self.value.clone())
    }

    /// The same for so many errors.
    pub fn times(&mut self, times: usize) -> impl Iterator<Item = Value> {
        std::iter::from_fn(|| self.once_more()).take(times)
    }
}

/// Prints values once more from the object as it was sent. Rules see typed objects, in which a list that must be there
/// is empty when it was not sent; Kubernetes tells the two apart and prints `null` for the one, `[]` for the other.
///
/// `typed` is the object as the rules saw it. A value that is not what stands there at the error's path stays as it is.
pub fn print_as_sent(errors: &mut Errors, typed: &serde_json::Value, sent: &serde_json::Value) {
    for error in errors {
        let Some(form) = error.form else { continue };
        let print = |object| {
            let value = at(object, &error.path).unwrap_or(&serde_json::Value::Null);
            match form {
                Form::Internal(of) if !value.is_null() => print_internal(of, value),
                _ => go::json(value),
            }
        };
        if error.value.as_ref() == Some(&print(typed)) {
            error.value = Some(print(sent));
        }
    }
}

/// The value at a path like `spec.rules[0].values`.
fn at<'a>(object: &'a serde_json::Value, path: &str) -> Option<&'a serde_json::Value> {
    path.split(['.', '[']).try_fold(object, |value, part| match part.strip_suffix(']') {
        Some(index) => value.get(index.parse::<usize>().ok()?),
        None => value.get(part),
    })
}

fn print_internal(of: schema::Type, value: &serde_json::Value) -> String {
    schema::internal::json(of, value).unwrap_or_else(|| go::json(value))
}

fn to_json(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("wire types have string keys and finite numbers")
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::printed(go::quote(text))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Value::from(text.as_str())
    }
}

macro_rules! printed_bare {
    ($($type:ty),*) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Value::printed(value.to_string())
            }
        }
    )*};
}
printed_bare!(i32, i64, usize, bool);

/// Asserts that there are as many errors as expected, and that each begins as expected.
#[cfg(test)]
pub(crate) fn assert_starts(errors: &Errors, expected: &[&str]) {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(expected) {
        assert!(error.starts_with(start), "{error:?} does not start with {start:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn messages_as_kubernetes_prints_them() {
        let path = Path::new("spec").child("rules").index(1);
        for (error, message) in [
            (path.required(""), "spec.rules[1]: Required value"),
            (path.required("say why"), "spec.rules[1]: Required value: say why"),
            (path.invalid("a\"b", "no quotes"), r#"spec.rules[1]: Invalid value: "a\"b": no quotes"#),
            (path.invalid(-1, "too small"), "spec.rules[1]: Invalid value: -1: too small"),
            (path.invalid(Value::OMITTED, "both"), "spec.rules[1]: Invalid value: both"),
            (path.invalid(Value::json(&None::<i32>), "gone"), "spec.rules[1]: Invalid value: null: gone"),
            (
                path.key("k").invalid(Value::json(&BTreeMap::from([("b", "2"), ("a", "1")])), "x"),
                r#"spec.rules[1][k]: Invalid value: {"a":"1","b":"2"}: x"#,
            ),
            (
                path.not_supported("C", &["B", "A"]),
                r#"spec.rules[1]: Unsupported value: "C": supported values: "B", "A""#,
            ),
            (path.duplicate(11), "spec.rules[1]: Duplicate value: 11"),
            (path.not_found("v"), r#"spec.rules[1]: Not found: "v""#),
            (path.forbidden("not here"), "spec.rules[1]: Forbidden: not here"),
            (path.too_long(63), "spec.rules[1]: Too long: may not be more than 63 bytes"),
            (path.too_many(21, 20), "spec.rules[1]: Too many: 21: must have at most 20 items"),
            (Path::root().required(""), "<nil>: Required value"),
            (Path::root().child("spec").required(""), "spec: Required value"),
        ] {
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn lists_that_were_not_sent_print_as_null() {
        let rules = Path::new("spec").child("podFailurePolicy");
        let values = rules.child("rules").index(0).child("onExitCodes").child("values");
        let mut errors = vec![
            values.invalid(Value::list::<i32>(&[]), "empty"),
            rules.invalid(
                Value::internal(wire::POD_FAILURE_POLICY, &serde_json::json!({"rules": []})),
                "immutable",
            ),
        ];
        let texts = |errors: &Errors| errors.iter().map(Error::message).collect::<Vec<_>>();
        let policy = |policy| serde_json::json!({"spec": {"podFailurePolicy": policy}});
        let with_values = policy(serde_json::json!({"rules": [{"onExitCodes": {"values": []}}]}));
        print_as_sent(&mut errors, &with_values, &with_values);
        assert_eq!(texts(&errors)[0], "Invalid value: []: empty");
        print_as_sent(
            &mut errors,
            &with_values,
            &policy(serde_json::json!({"rules": [{"onExitCodes": {}}]})),
        );
        print_as_sent(&mut errors, &policy(serde_json::json!({"rules": []})), &policy(serde_json::json!({})));
        assert_eq!(
            texts(&errors),
            ["Invalid value: null: empty", "Invalid value: {\"Rules\":null}: immutable",]
        );
    }
}
