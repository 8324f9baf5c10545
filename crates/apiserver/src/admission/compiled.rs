//! Whether the expressions of a webhook configuration, a policy or a claim compile, which is asked when it is written.
//!
//! What else must be right with these kinds is in [`rules::kind`], which does not know the language.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::field::{Error, Errors, Path};
use serde_json::Value;

use crate::cel::types::{Field, Library, Object, Type};
use crate::cel::{Program, Size};
use crate::object::{self, items};

const GROUP: &str = "admissionregistration.k8s.io";
const DEVICES: &str = "resource.k8s.io";
/// What a selector of devices may cost.
const MAX_DEVICE_COST: u64 = 1_000_000;
/// What the variables of a policy are together.
const VARIABLES: &str = "kubernetes.variables";
/// How deep expressions may nest that are made of those before them: so deep nest their values, and their types.
const MAX_DEPTH: usize = 1000;

/// What is wrong with the expressions of an object.
pub(crate) fn errors(group: &str, kind: &str, new: &Value) -> Errors {
    let spec = Path::new("spec");
    match (group, kind) {
        (GROUP, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => webhooks(new),
        (GROUP, "ValidatingAdmissionPolicy") => policy(&new["spec"]),
        (DEVICES, "ResourceClaim") => claim(&new["spec"], &spec),
        (DEVICES, "ResourceClaimTemplate") => claim(&new["spec"]["spec"], &spec.child("spec")),
        (DEVICES, "DeviceClass") => selectors(&new["spec"], &spec),
        _ => Errors::new(),
    }
}

fn webhooks(new: &Value) -> Errors {
    let mut errors = Errors::new();
    for (i, hook) in items(&new["webhooks"]).iter().enumerate() {
        let path = Path::new("webhooks").index(i).child("matchConditions");
        errors.extend(conditions(&hook["matchConditions"], &known(false, true), &path));
    }
    errors
}

fn policy(spec: &Value) -> Errors {
    let path = Path::new("spec");
    let has_params = !spec["paramKind"].is_null();
    let mut names = known(has_params, true);
    let mut errors = conditions(&spec["matchConditions"], &names, &path.child("matchConditions"));
    // A message does not tell what somebody may do.
    let mut of_messages = known(has_params, false);
    let mut variables = Arc::new(Object { name: VARIABLES, fields: BTreeMap::new() });
    if !items(&spec["variables"]).is_empty() {
        names.push(("variables", Type::Object(variables.clone())));
        of_messages.push(("variables", Type::Object(variables.clone())));
    }
    let mut deepest = 0;
    for (i, variable) in items(&spec["variables"]).iter().enumerate() {
        let path = path.child("variables").index(i).child("expression");
        let (text, name) = (object::text(variable, &["expression"]), object::text(variable, &["name"]));
        let found = match compiled(text, &names) {
            Some(Ok(program)) => {
                let depth = program.depth() + if program.uses("variables") { deepest } else { 0 };
                if depth > MAX_DEPTH {
                    let why = format!("expression recursion limit exceeded: {MAX_DEPTH}");
                    errors.push(failed(&path, text, &why));
                    Type::Dyn
                } else {
                    deepest = deepest.max(depth);
                    program.result().clone()
                }
            }
            Some(Err(why)) => {
                errors.push(failed(&path, text, &why));
                Type::Dyn
            }
            None => Type::Dyn,
        };
        for names in [&mut names, &mut of_messages] {
            names.retain(|(known, _)| *known != "variables");
        }
        // Nobody else has them now, unless they are themselves what a variable is.
        let field = Field { name: name.to_owned(), r#type: found };
        Arc::make_mut(&mut variables).fields.insert(name.to_owned(), field);
        for names in [&mut names, &mut of_messages] {
            names.push(("variables", Type::Object(variables.clone())));
        }
    }
    for (i, validation) in items(&spec["validations"]).iter().enumerate() {
        let path = path.child("validations").index(i);
        errors.extend(expression(validation, "expression", &names, &[Type::Bool], &path));
        errors.extend(expression(validation, "messageExpression", &of_messages, &[Type::String], &path));
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
        // What is around it does not count, and is not told.
        let text = object::text(condition, &["expression"]).trim();
        wrong(text, names, &[Type::Bool], &path.index(i).child("expression"))
    })
    .collect()
}

/// The expressions by which a claim chooses devices.
fn claim(spec: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, request) in items(&spec["devices"]["requests"]).iter().enumerate() {
        let path = path.child("devices").child("requests").index(i);
        errors.extend(selectors(&request["exactly"], &path.child("exactly")));
        for (i, alternative) in items(&request["firstAvailable"]).iter().enumerate() {
            errors.extend(selectors(alternative, &path.child("firstAvailable").index(i)));
        }
    }
    errors
}

fn selectors(holder: &Value, path: &Path) -> Errors {
    let each = items(&holder["selectors"]).iter().enumerate();
    each.filter_map(|(i, selector)| {
        let path = path.child("selectors").index(i).child("cel").child("expression");
        let text = object::text(selector, &["cel", "expression"]);
        match Program::costed(text, &[("device", device())], &device_size) {
            Err(why) => Some(failed(&path, text, &why)),
            Ok((program, cost)) if matches!(program.result(), Type::Bool | Type::Any) => {
                (cost > MAX_DEVICE_COST).then(|| path.forbidden("too complex, exceeds cost limit"))
            }
            Ok((program, _)) => {
                let found = type_name(program.result());
                let why = format!("must evaluate to bool or the unknown type, not {found}");
                Some(path.invalid(text, why))
            }
        }
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
    wrong(object::text(holder, &[field]), names, wanted, &path.child(field))
}

fn wrong(text: &str, names: &[(&str, Type)], wanted: &[Type], path: &Path) -> Option<Error> {
    match compiled(text, names)? {
        Err(why) => Some(failed(path, text, &why)),
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
    if text.trim().is_empty() {
        return None;
    }
    Some(Program::compile(text, names))
}

/// What expressions can name, and of what type it is.
pub(super) fn known(has_params: bool, has_authorizer: bool) -> Vec<(&'static str, Type)> {
    let mut names = vec![
        ("object", Type::Dyn),
        ("oldObject", Type::Dyn),
        ("request", request()),
        ("namespaceObject", namespace()),
    ];
    if has_params {
        names.push(("params", Type::Dyn));
    }
    if has_authorizer {
        names.push(("authorizer", Type::Library(Library::Authorizer)));
        names.push(("authorizer.requestResource", Type::Library(Library::ResourceCheck)));
    }
    names
}

fn request() -> Type {
    let texts = |of_type, names: &[&str]| {
        of(of_type, &names.iter().map(|name| (*name, Type::String)).collect::<Vec<_>>())
    };
    let kind = texts("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = texts("kubernetes.GroupVersionResource", &["group", "version", "resource"]);
    let user = of(
        "kubernetes.UserInfo",
        &[
            ("username", Type::String),
            ("uid", Type::String),
            ("groups", Type::list(Type::String)),
            ("extra", Type::map(Type::String, Type::list(Type::String))),
        ],
    );
    of(
        "kubernetes.AdmissionRequest",
        &[
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
        ],
    )
}

fn namespace() -> Type {
    let labels = Type::map(Type::String, Type::String);
    let meta = of(
        "kubernetes.NamespaceMetadata",
        &[
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
        ],
    );
    let condition = of(
        "kubernetes.NamespaceCondition",
        &[
            ("status", Type::String),
            ("type", Type::String),
            ("lastTransitionTime", Type::Timestamp),
            ("message", Type::String),
            ("reason", Type::String),
        ],
    );
    let spec = of("kubernetes.NamespaceSpec", &[("finalizers", Type::list(Type::String))]);
    let status =
        of("kubernetes.NamespaceStatus", &[("conditions", Type::list(condition)), ("phase", Type::String)]);
    of("kubernetes.Namespace", &[("metadata", meta), ("spec", spec), ("status", status)])
}

/// A device as a selector sees it: attributes and capacities, by their domains.
fn device() -> Type {
    let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
    of(
        "kubernetes.DRADevice",
        &[
            ("driver", Type::String),
            ("attributes", by_domain(Type::Any)),
            ("capacity", by_domain(Type::Library(Library::Quantity))),
        ],
    )
}

/// How large parts of a device can be.
fn device_size(path: &[String]) -> Option<Size> {
    const DRIVER: u64 = 63;
    const FACTS: u64 = 32;
    const DOMAIN: u64 = 63;
    const ID: u64 = 32;
    const VALUE: u64 = 64;
    let is_value = |part: &str| matches!(part, "@items" | "@values");
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let max = match path[..] {
        ["device"] => 0,
        ["device", "driver"] => DRIVER,
        ["device", "attributes" | "capacity"] => FACTS,
        ["device", "attributes" | "capacity", "@keys"] => DOMAIN,
        ["device", "attributes" | "capacity", domain] if is_value(domain) => FACTS,
        ["device", "attributes" | "capacity", domain, "@keys"] if is_value(domain) => ID,
        // Every attribute is as large as any other, whatever it is called.
        ["device", "attributes", domain, ..] if is_value(domain) && path.len() == 4 => VALUE,
        ["device", "capacity", domain, value] if is_value(domain) && is_value(value) => 0,
        _ => return None,
    };
    Some(Size { min: 0, max })
}

fn of(name: &'static str, members: &[(&str, Type)]) -> Type {
    let field = |(name, r#type): &(&str, Type)| {
        ((*name).to_owned(), Field { name: (*name).to_owned(), r#type: r#type.clone() })
    };
    fields(name, members.iter().map(field).collect())
}

fn fields(name: &'static str, fields: BTreeMap<String, Field>) -> Type {
    Type::Object(Arc::new(Object { name, fields }))
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
        let nested = |many: usize| -> Vec<String> {
            let one = |n: usize| match n {
                0 => json!({"name": "v0", "expression": "[1]"}),
                n => json!({"name": format!("v{n}"), "expression": format!("[dyn([variables.v{}])]", n - 1)}),
            };
            policy(json!({"variables": (0..many).map(one).collect::<Vec<_>>()}))
        };
        assert_eq!(nested(100), [""; 0]);
        let refused = nested(30_000);
        assert!(refused[0].contains("expression recursion limit exceeded"), "{}", refused[0]);
        let audit = json!({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]});
        assert!(policy(audit)[0].ends_with("must evaluate to one of [string null_type] but got int"));
    }
}
