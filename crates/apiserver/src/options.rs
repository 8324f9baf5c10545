//! The options of a write, as they stand in the query: what is wrong with them is said before anything else.

use std::time::Duration;

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
        // Those of a patch depend on what kind of one it is.
        _ => return Ok(()),
    };
    judged(kind, write_errors(query))
}

/// Refuses options of a patch that mean nothing. Only an apply can be forced, and only it must say by whom it is made.
pub(crate) fn expect_of_patch(query: &Query, is_apply: bool) -> Result<(), Refusal> {
    let mut errors = Errors::new();
    if is_apply && query.get("fieldManager").unwrap_or("").is_empty() {
        errors.push(Path::new("fieldManager").required("is required for apply patch"));
    }
    if !is_apply && query.get("force").is_some() {
        errors.push(Path::new("force").forbidden("may not be specified for non-apply patch"));
    }
    errors.extend(write_errors(query));
    judged("PatchOptions", errors)
}

/// What is wrong with the options that all writes have.
fn write_errors(query: &Query) -> Errors {
    let mut errors: Errors = Vec::new();
    if let Some(manager) = query.get("fieldManager") {
        errors.extend(rules::meta::field_manager(manager, &Path::new("fieldManager")));
    }
    errors.extend(dry_run_errors(&query.all("dryRun").collect::<Vec<_>>()));
    if let Some(validation) = query.get("fieldValidation").filter(|value| !FIELD_VALIDATION.contains(value)) {
        errors.push(Path::new("fieldValidation").not_supported(validation, &FIELD_VALIDATION));
    }
    errors
}

fn judged(kind: &str, errors: Errors) -> Result<(), Refusal> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(About { group: "meta.k8s.io", resource: kind, name: "" }, &errors))
}

/// What is wrong with the stages that are to be left out.
pub(crate) fn dry_run_errors(dry_run: &[&str]) -> Errors {
    let is_known = dry_run.iter().all(|value| DRY_RUN.contains(value));
    if is_known {
        Vec::new()
    } else {
        vec![Path::new("dryRun").not_supported(Value::json(&dry_run), &DRY_RUN)]
    }
}

/// The options of a list or a watch (2.6, 2.15).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    /// At most so many; `None` for all.
    pub(crate) limit: Option<usize>,
    /// Where to go on.
    pub(crate) token: Option<String>,
    version: String,
    /// How the state may differ from the version: `Exact` or `NotOlderThan`.
    pub(crate) version_match: Option<String>,
    /// Whether a watch begins with what is there.
    pub(crate) initial_events: Option<bool>,
    /// How long a watch lasts, if that is said.
    pub(crate) timeout: Option<Duration>,
}

impl ListOptions {
    /// Reads the query, and refuses what contradicts itself.
    pub(crate) fn read(query: &Query, is_watch: bool) -> Result<Self, Refusal> {
        let number = |name: &str| query.get(name).map(integer).transpose();
        let text = |name: &str| query.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let options = ListOptions {
            limit: number("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0),
            token: text("continue"),
            version: text("resourceVersion").unwrap_or_default(),
            version_match: text("resourceVersionMatch"),
            initial_events: query.get("sendInitialEvents").map(|_| query.is_on("sendInitialEvents")),
            timeout: number("timeoutSeconds")?.and_then(lasts),
        };
        let errors = if is_watch { options.watch_errors() } else { options.list_errors() };
        if errors.is_empty() {
            return Ok(options);
        }
        Err(Refusal::invalid(About { group: "meta.k8s.io", resource: "ListOptions", name: "" }, &errors))
    }

    /// The version that is asked for, as it was said.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The version that is asked for; 0 if none is.
    pub(crate) fn revision(&self) -> Result<store::Revision, Refusal> {
        if self.version.is_empty() {
            return Ok(store::Revision(0));
        }
        revision(&self.version)
            .map_err(|why| Refusal::bad_request(format!("invalid resource version: {why}")))
    }

    fn list_errors(&self) -> Errors {
        let path = Path::new("resourceVersionMatch");
        let mut errors = Errors::new();
        if let Some(how) = &self.version_match {
            if self.version.is_empty() {
                errors.push(
                    path.forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"),
                );
            }
            if self.token.is_some() {
                errors.push(path.forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if !["Exact", "NotOlderThan"].contains(&how.as_str()) {
                errors.push(path.not_supported(how.as_str(), &["Exact", "NotOlderThan", ""]));
            }
            if how == "Exact" && self.version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(path.forbidden(why));
            }
        }
        if self.initial_events.is_some() {
            errors.push(Path::new("sendInitialEvents").forbidden("sendInitialEvents is forbidden for list"));
        }
        errors
    }

    fn watch_errors(&self) -> Errors {
        let path = Path::new("resourceVersionMatch");
        let is_not_older = self.version_match.as_deref() == Some("NotOlderThan");
        let mut errors = Errors::new();
        if self.initial_events.is_some() && !is_not_older {
            errors.push(
                path.forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
            );
        }
        if let Some(how) = &self.version_match {
            if self.initial_events.is_none() {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                errors.push(path.forbidden(why));
            }
            if !is_not_older {
                errors.push(path.not_supported(how.as_str(), &["NotOlderThan"]));
            }
        }
        // A watch from nowhere in particular is one that begins with what is there (2.14).
        let begins_with_all = self.initial_events.is_none() && matches!(self.version.as_str(), "" | "0");
        if self.token.is_some() && (self.version_match.is_some() || begins_with_all) {
            errors.push(path.forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        errors
    }
}

/// How long something lasts for which so many seconds are asked; `None` if that is left open. Less than none is none, and so
/// is what Go cannot count in nanoseconds.
fn lasts(seconds: i64) -> Option<Duration> {
    let nanoseconds = seconds.wrapping_mul(1_000_000_000);
    (nanoseconds != 0).then(|| Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0)))
}

/// A resource version, or why it is none.
pub(crate) fn revision(text: &str) -> Result<store::Revision, String> {
    let invalid = |why| format!("resourceVersion: Invalid value: {}: {why}", types::go::quote(text));
    number(text).map(store::Revision).map_err(invalid)
}

/// The number of a resource version, or why it is none.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if is_number => Ok(number),
        _ => {
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Err(format!("strconv.ParseUint: parsing {}: {why}", types::go::quote(text)))
        }
    }
}

pub(crate) fn integer(text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| {
        let is_number = text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit());
        let why = if is_number && !text.is_empty() { "value out of range" } else { "invalid syntax" };
        Refusal::bad_request(format!("strconv.ParseInt: parsing {}: {why}", types::go::quote(text)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: &str) {
        let refused = expect(Verb::Create, &Query::read(query)).err().map(|refusal| refusal.to_string());
        assert_eq!(refused.unwrap_or_default(), expected, "{query}");
    }

    #[test]
    fn rule_2_19_a_watch_lasts_as_long_as_is_said() {
        for (seconds, expected) in [
            (0, None),
            (5, Some(Duration::from_secs(5))),
            (-1, Some(Duration::ZERO)),
            (i64::MAX, Some(Duration::ZERO)),
            (i64::MIN, None),
        ] {
            assert_eq!(lasts(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn rule_2_6_2_15_list_options() {
        let check = |query: &str, is_watch: bool, expected: &str| {
            let refused = ListOptions::read(&Query::read(query), is_watch).err();
            let causes = refused.map(|refusal| refusal.to_status()["details"]["causes"].clone());
            let fields = causes.iter().filter_map(serde_json::Value::as_array).flatten();
            let fields: Vec<_> = fields.filter_map(|cause| cause["field"].as_str()).collect();
            assert_eq!(fields.join(" "), expected, "{query}");
        };
        check("resourceVersionMatch=Exact&resourceVersion=5", false, "");
        check("resourceVersionMatch=Exact&resourceVersion=0", false, "resourceVersionMatch");
        check("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true, "");
        check("sendInitialEvents=true", true, "resourceVersionMatch");
        check("resourceVersionMatch=Exact", true, "resourceVersionMatch resourceVersionMatch");
        check("sendInitialEvents=true", false, "sendInitialEvents");
    }

    #[test]
    fn rule_2_59_all_that_is_wrong_with_a_patch_is_said_at_once() {
        let check = |query: &str, is_apply: bool, expected: &str| {
            let refused = expect_of_patch(&Query::read(query), is_apply).err();
            let causes = refused.map(|refusal| refusal.to_status()["details"]["causes"].clone());
            let fields = causes.iter().filter_map(serde_json::Value::as_array).flatten();
            let fields: Vec<_> = fields.filter_map(|cause| cause["field"].as_str()).collect();
            assert_eq!(fields.join(" "), expected, "{query}");
        };
        check("force=true&fieldManager=m", true, "");
        check("force=true&dryRun=Some&fieldValidation=Loud", false, "force dryRun fieldValidation");
        check("dryRun=Some", true, "fieldManager dryRun");
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
