//! Whether the expressions of a webhook configuration or a policy compile, which is asked when it is written.
//!
//! What else must be right with these kinds is in [`rules::kind`], which does not know the language.

use std::collections::BTreeMap;

use rules::field::{Error, Errors, Path};
use serde_json::Value;

use crate::cel::Program;
use crate::cel::types::{Field, Object, Type};
use crate::object;

const GROUP: &str = "admissionregistration.k8s.io";
/// Expressions that ask who may do what are not compiled: policies that hold them refuse with a clear message.
const AUTHORIZER: &str = "authorizer";

/// What is wrong with the expressions of an object.
pub(crate) fn errors(group: &str, kind: &str, new: &Value) -> Errors {
    match (group, kind) {
        (GROUP, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => webhooks(new),
        (GROUP, "ValidatingAdmissionPolicy") => policy(&new["spec"]),
        _ => Errors::new(),
    }
}

fn webhooks(new: &Value) -> Errors {
    let mut errors = Errors::new();
    for (i, hook) in items(&new["webhooks"]).iter().enumerate() {
        let path = Path::new("webhooks").index(i).child("matchConditions");
        errors.extend(conditions(&hook["matchConditions"], &known(false), &path));
    }
    errors
}

fn policy(spec: &Value) -> Errors {
    let path = Path::new("spec");
    let mut names = known(!spec["paramKind"].is_null());
    let mut errors = conditions(&spec["matchConditions"], &names, &path.child("matchConditions"));
    let mut variables = BTreeMap::new();
    for (i, variable) in items(&spec["variables"]).iter().enumerate() {
        let path = path.child("variables").index(i).child("expression");
        let (text, name) = (object::text(variable, &["expression"]), object::text(variable, &["name"]));
        let found = match compiled(text, &names) {
            Some(Ok(program)) => program.result().clone(),
            Some(Err(why)) => {
                errors.push(failed(&path, text, &why));
                Type::Dyn
            }
            None => Type::Dyn,
        };
        variables.insert(name.to_owned(), Field { name: name.to_owned(), r#type: found });
        names.retain(|(known, _)| *known != "variables");
        names.push(("variables", fields(variables.clone())));
    }
    for (i, validation) in items(&spec["validations"]).iter().enumerate() {
        let path = path.child("validations").index(i);
        errors.extend(expression(validation, "expression", &names, &[Type::Bool], &path));
        errors.extend(expression(validation, "messageExpression", &names, &[Type::String], &path));
    }
    for (i, annotation) in items(&spec["auditAnnotations"]).iter().enumerate() {
        let path = path.child("auditAnnotations").index(i);
        let either = [Type::String, Type::Null];
        errors.extend(expression(annotation, "valueExpression", &names, &either, &path));
    }
    errors
}

fn conditions(conditions: &Value, names: &[(&str, Type)], path: &Path) -> Errors {
    let each = items(conditions).iter().enumerate();
    each.filter_map(|(i, condition)| {
        expression(condition, "expression", names, &[Type::Bool], &path.index(i))
    })
    .collect()
}

/// What is wrong with the expression in a field, which must give one of these types.
fn expression(
    holder: &Value,
    field: &str,
    names: &[(&str, Type)],
    wanted: &[Type],
    path: &Path,
) -> Option<Error> {
    let (text, path) = (object::text(holder, &[field]), path.child(field));
    match compiled(text, names)? {
        Err(why) => Some(failed(&path, text, &why)),
        Ok(program) if wanted.contains(program.result()) => None,
        Ok(program) => {
            let types: Vec<String> = wanted.iter().map(type_name).collect();
            let wanted = match types.as_slice() {
                [one] => one.clone(),
                many => format!("one of [{}]", many.join(" ")),
            };
            let found = type_name(program.result());
            Some(path.invalid(text, format!("must evaluate to {wanted} but got {found}")))
        }
    }
}

fn failed(path: &Path, text: &str, why: &str) -> Error {
    path.invalid(text, format!("compilation failed: {why}"))
}

/// A type as the language calls it.
fn type_name(of: &Type) -> String {
    match of {
        Type::Null => "null_type".to_owned(),
        other => other.to_string(),
    }
}

/// The expression, or why it is none; nothing where there is none.
fn compiled(text: &str, names: &[(&str, Type)]) -> Option<Result<Program, String>> {
    if text.trim().is_empty() || text.contains(AUTHORIZER) {
        return None;
    }
    Some(Program::compile(text, names))
}

/// What expressions can name, and of what type it is.
fn known(has_params: bool) -> Vec<(&'static str, Type)> {
    let mut names = vec![
        ("object", Type::Dyn),
        ("oldObject", Type::Dyn),
        ("request", request()),
        ("namespaceObject", namespace()),
    ];
    if has_params {
        names.push(("params", Type::Dyn));
    }
    names
}

fn request() -> Type {
    let texts = |names: &[&str]| of(&names.iter().map(|name| (*name, Type::String)).collect::<Vec<_>>());
    let kind = texts(&["group", "version", "kind"]);
    let resource = texts(&["group", "version", "resource"]);
    let user = of(&[
        ("username", Type::String),
        ("uid", Type::String),
        ("groups", Type::list(Type::String)),
        ("extra", Type::map(Type::String, Type::list(Type::String))),
    ]);
    of(&[
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("subResource", Type::String),
        ("requestKind", kind),
        ("requestResource", resource),
        ("requestSubResource", Type::String),
        ("name", Type::String),
        ("namespace", Type::String),
        ("operation", Type::String),
        ("userInfo", user),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ])
}

fn namespace() -> Type {
    let labels = Type::map(Type::String, Type::String);
    let meta = of(&[
        ("name", Type::String),
        ("generateName", Type::String),
        ("namespace", Type::String),
        ("labels", labels.clone()),
        ("annotations", labels),
        ("UID", Type::String),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", Type::String),
        ("finalizers", Type::list(Type::String)),
    ]);
    let spec = of(&[("finalizers", Type::list(Type::String))]);
    let status = of(&[("phase", Type::String)]);
    of(&[("metadata", meta), ("spec", spec), ("status", status)])
}

fn of(members: &[(&str, Type)]) -> Type {
    let field = |(name, r#type): &(&str, Type)| {
        ((*name).to_owned(), Field { name: (*name).to_owned(), r#type: r#type.clone() })
    };
    fields(members.iter().map(field).collect())
}

fn fields(fields: BTreeMap<String, Field>) -> Type {
    Type::Object(std::sync::Arc::new(Object { fields }))
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(kind: &str, object: &Value) -> Vec<String> {
        errors(GROUP, kind, object).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rule_3_16_conditions_are_compiled_when_they_are_written() {
        let hooks =
            |expression: &str| json!({"webhooks": [{"matchConditions": [{"expression": expression}]}]});
        let told = |expression: &str| told("ValidatingWebhookConfiguration", &hooks(expression));
        assert_eq!(told("object.metadata.name == 'a' && request.userInfo.username == 'b'"), [""; 0]);
        assert_eq!(told("authorizer.path('/x').check('get').allowed()"), [""; 0]);
        let at = "webhooks[0].matchConditions[0].expression: Invalid value: ";
        assert_eq!(told("1"), [format!("{at}\"1\": must evaluate to bool but got int")]);
        assert!(told("params == 1")[0].contains("undeclared reference to 'params'"));
        assert!(told("request.nope")[0].contains("undefined field 'nope'"));
    }

    #[test]
    fn rule_3_20_a_policy_sees_its_variables_and_parameters() {
        let policy = |spec: Value| told("ValidatingAdmissionPolicy", &json!({"spec": spec}));
        let variables = json!([{"name": "a", "expression": "1"}]);
        let ok = json!({"variables": variables, "validations": [{"expression": "variables.a == 1"}]});
        assert_eq!(policy(ok), [""; 0]);
        let other = json!({"variables": variables, "validations": [{"expression": "variables.b == 1"}]});
        assert!(policy(other)[0].contains("undefined field 'b'"));
        let none = json!({"validations": [{"expression": "params.x == 1"}]});
        assert!(policy(none)[0].contains("undeclared reference to 'params'"));
        let params = json!({"paramKind": {"kind": "K"}, "validations": [{"expression": "params.x == 1"}]});
        assert_eq!(policy(params), [""; 0]);
        let audit = json!({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]});
        assert!(policy(audit)[0].ends_with("must evaluate to one of [string null_type] but got int"));
    }
}
