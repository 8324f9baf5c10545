//! Conditions in the Common Expression Language that a request must meet before a webhook or a policy is asked.

use serde_json::Value;

use crate::cel::types::Type;
use crate::cel::{self, Budget, Program};
use crate::object;

/// What evaluating the expressions of one webhook or policy may cost.
pub(super) const STEPS: u64 = 2_500_000;

/// What expressions can name.
const NAMES: [&str; 6] = ["object", "oldObject", "request", "namespaceObject", "params", "variables"];

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
}

impl Expression {
    pub(super) fn new(text: &str) -> Expression {
        let program = Program::compile(text, &NAMES.map(|name| (name, Type::Dyn)));
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

    #[test]
    fn rule_3_16_conditions() {
        let (object, null) = (json!({"metadata": {"name": "a"}}), Value::Null);
        let seen =
            Seen { object: &object, old_object: &null, request: &null, namespace: &null, params: &null };
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
    }
}
