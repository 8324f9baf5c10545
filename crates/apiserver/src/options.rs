//! The options of a write, as they stand in the query: what is wrong with them is said before anything else.

use rules::field::{Errors, Path, Value};

use crate::request::{Query, Verb};
use crate::status::{About, Refusal};

const DRY_RUN: [&str; 1] = ["All"];
const FIELD_VALIDATION: [&str; 4] = ["", "Ignore", "Strict", "Warn"];

/// Refuses options that mean nothing.
pub(crate) fn expect(verb: Verb, query: &Query) -> Result<(), Refusal> {
    let kind = match verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => return Ok(()),
    };
    let mut errors: Errors = Vec::new();
    if let Some(manager) = query.get("fieldManager") {
        errors.extend(rules::meta::field_manager(manager, &Path::new("fieldManager")));
    }
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if dry_run.iter().any(|value| !DRY_RUN.contains(value)) {
        errors.push(Path::new("dryRun").not_supported(Value::json(&dry_run), &DRY_RUN));
    }
    if let Some(validation) = query.get("fieldValidation").filter(|value| !FIELD_VALIDATION.contains(value)) {
        errors.push(Path::new("fieldValidation").not_supported(validation, &FIELD_VALIDATION));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(About { group: "meta.k8s.io", resource: kind, name: "" }, &errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: &str) {
        let refused = expect(Verb::Create, &Query::read(query)).err().map(|refusal| refusal.to_string());
        assert_eq!(refused.unwrap_or_default(), expected, "{query}");
    }

    #[test]
    fn rule_2_59_2_65_options() {
        check("dryRun=All&fieldValidation=Strict&fieldManager=me", "");
        check(
            "dryRun=Some",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
        );
        check(
            "fieldValidation=Loud",
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Loud\": supported values: \"\", \
             \"Ignore\", \"Strict\", \"Warn\"",
        );
        let long = "x".repeat(129);
        let why = "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
        check(&format!("fieldManager={long}"), why);
    }
}
