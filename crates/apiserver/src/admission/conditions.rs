//! Conditions in the Common Expression Language that a request must meet before a webhook or a policy is asked.

use serde_json::Value;

use super::plugin::Request;
use crate::auth::rbac::Authorizer;
use crate::auth::{Attributes, User, What};
use crate::cel::types::{Library, Type};
use crate::cel::{self, Authority, Budget, Check, Program, Question};
use crate::object;

/// What evaluating the expressions of one webhook or policy may cost.
pub(super) const STEPS: u64 = 2_500_000;

/// What expressions can name that is of any type.
const NAMES: [&str; 6] = ["object", "oldObject", "request", "namespaceObject", "params", "variables"];
/// Whom they can ask what somebody may do, and where that begins with the resource of the request.
const AUTHORIZER: [(&str, Type); 2] = [
    ("authorizer", Type::Library(Library::Authorizer)),
    ("authorizer.requestResource", Type::Library(Library::ResourceCheck)),
];

/// An expression about a request.
pub(super) struct Expression {
    pub(super) text: String,
    program: Result<Program, String>,
}

/// What expressions see. What is not there is null.
pub(super) struct Seen<'a> {
    pub(super) object: &'a Value,
    pub(super) old_object: &'a Value,
    pub(super) request: &'a Value,
    pub(super) namespace: &'a Value,
    pub(super) params: &'a Value,
    pub(super) authority: &'a RequestAuthority<'a>,
}

/// Answers what the user of a request may do, or a service account.
pub(super) struct RequestAuthority<'a> {
    authorizer: &'a Authorizer,
    user: &'a User,
    own: Question,
}

impl<'a> RequestAuthority<'a> {
    pub(super) fn of(request: &'a Request<'_>) -> Self {
        let own = Question {
            group: request.resource.group.clone(),
            resource: request.resource.plural.clone(),
            subresource: request.subresource.to_owned(),
            namespace: request.namespace.to_owned(),
            name: request.name.clone(),
            ..Question::default()
        };
        RequestAuthority { authorizer: request.context.cluster.authorizer(), user: request.user, own }
    }
}

impl Authority for RequestAuthority<'_> {
    fn decide(&self, asked: &Question) -> cel::Decision {
        let account = asked.service_account.as_ref();
        let account = account.map(|(namespace, name)| User::service_account(namespace, name));
        let what = match &asked.path {
            Some(path) => What::Path(path),
            None => What::Resource {
                group: &asked.group,
                version: "*",
                resource: &asked.resource,
                subresource: &asked.subresource,
                namespace: &asked.namespace,
                name: &asked.name,
            },
        };
        let user = account.as_ref().unwrap_or(self.user);
        let decision = self.authorizer.decide(&Attributes { user, verb: &asked.verb, what });
        cel::Decision { allowed: decision.allowed, reason: decision.reason }
    }
}

impl Expression {
    pub(super) fn new(text: &str) -> Expression {
        let names: Vec<(&str, Type)> =
            NAMES.map(|name| (name, Type::Dyn)).into_iter().chain(AUTHORIZER).collect();
        let program = Program::compile(text, &names);
        Expression { text: text.to_owned(), program }
    }

    /// What it gives, where the variables of a policy have these values.
    pub(super) fn run<'a>(
        &'a self,
        seen: &Seen<'a>,
        variables: &cel::Value<'a>,
        budget: &mut Budget,
    ) -> Result<cel::Value<'a>, String> {
        let program = self.program.as_ref().map_err(|why| format!("compilation error: {why}"))?;
        let any = |value| Ok(cel::Value::any(value));
        let known = vec![
            ("object", any(seen.object)),
            ("oldObject", any(seen.old_object)),
            ("request", any(seen.request)),
            ("namespaceObject", any(seen.namespace)),
            ("params", any(seen.params)),
            ("variables", Ok(variables.clone())),
            ("authorizer", Ok(Check::authorizer(seen.authority))),
            ("authorizer.requestResource", Ok(Check::resource(seen.authority, seen.authority.own.clone()))),
        ];
        let given = program.run(known, budget);
        given.map_err(|why| format!("expression '{}' resulted in error: {why}", self.text))
    }
}

/// One condition.
pub(super) struct Condition(Expression);

impl Condition {
    pub(super) fn read(condition: &Value) -> Condition {
        Condition(Expression::new(object::text(condition, &["expression"])))
    }

    fn holds(&self, seen: &Seen<'_>) -> Result<bool, String> {
        match self.0.run(seen, &cel::Value::Null, &mut Budget::new(STEPS))? {
            cel::Value::Bool(holds) => Ok(holds),
            _ => Err(format!("expression '{}' does not give a boolean", self.0.text)),
        }
    }
}

/// Whether all conditions hold. One that does not settles it, whatever the others come to.
pub(super) fn all_hold(conditions: &[Condition], seen: &Seen<'_>) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        match condition.holds(seen) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => errors.push(why),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn rule_3_16_conditions() {
        let (object, null) = (json!({"metadata": {"name": "a"}}), Value::Null);
        let store = store::Store::open(store::Options::ephemeral()).expect("a store");
        let (authorizer, user) = (Authorizer::new(store), User::named("u"));
        let authority = RequestAuthority { authorizer: &authorizer, user: &user, own: Question::default() };
        let seen = Seen {
            object: &object,
            old_object: &null,
            request: &null,
            namespace: &null,
            params: &null,
            authority: &authority,
        };
        let check = |expressions: &[&str]| {
            let conditions: Vec<Condition> =
                expressions.iter().map(|text| Condition::read(&json!({"expression": text}))).collect();
            all_hold(&conditions, &seen)
        };
        assert_eq!(check(&[]), Ok(true));
        assert_eq!(check(&["object.metadata.name == 'a'", "oldObject == null"]), Ok(true));
        assert_eq!(check(&["object.spec.x == 1", "false"]), Ok(false));
        assert!(check(&["object.spec.x == 1", "true"]).is_err());
        assert!(check(&["nonsense("]).is_err());
        assert_eq!(check(&["!authorizer.path('/x').check('get').allowed()"]), Ok(true));
    }
}
