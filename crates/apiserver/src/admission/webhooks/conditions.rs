//! Conditions in the Common Expression Language that a request must meet before a webhook is asked.

use serde_json::Value;

use crate::cel::types::Type;
use crate::cel::{self, Budget, Program};
use crate::object;

/// What evaluating the conditions of one webhook may cost.
const STEPS: u64 = 2_500_000;

/// One condition.
pub(super) struct Condition {
    expression: String,
    program: Result<Program, String>,
}

/// What conditions see. What is not there is null.
pub(super) struct Seen<'a> {
    pub(super) object: &'a Value,
    pub(super) old_object: &'a Value,
    pub(super) request: &'a Value,
    pub(super) namespace: &'a Value,
}

impl Condition {
    pub(super) fn read(condition: &Value) -> Condition {
        let expression = object::text(condition, &["expression"]).to_owned();
        let names = ["object", "oldObject", "request", "namespaceObject"];
        let program = Program::compile(&expression, &names.map(|name| (name, Type::Dyn)));
        Condition { expression, program }
    }

    fn holds(&self, seen: &Seen<'_>) -> Result<bool, String> {
        let program = self.program.as_ref().map_err(|why| format!("compilation error: {why}"))?;
        let view = |value| Ok(cel::Value::any(value));
        let variables = vec![
            ("object", view(seen.object)),
            ("oldObject", view(seen.old_object)),
            ("request", view(seen.request)),
            ("namespaceObject", view(seen.namespace)),
        ];
        match program.run(variables, &mut Budget::new(STEPS)) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err(format!("expression '{}' does not give a boolean", self.expression)),
            Err(why) => Err(format!("expression '{}' resulted in error: {why}", self.expression)),
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
        let seen = Seen { object: &object, old_object: &null, request: &null, namespace: &null };
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
