//! `ferry check`: what an API server would say to a manifest.

use std::fmt;
use std::process::ExitCode;

use rules::job::Settings;
use rules::job::endpoints;
use rules::meta::system::Identity;
use rules::wire;
use rules::write::Refused;
use serde_json::Value;

use crate::arguments::Check;
use crate::manifest;
use crate::output;

/// Prints a verdict for each object and returns the worst of them.
pub(crate) fn run(check: &Check) -> anyhow::Result<ExitCode> {
    let settings =
        Settings { refuse_reserved_managed_by: check.refuse_reserved_managed_by, ..Settings::default() };
    let mut refused = false;
    for file in &check.files {
        for document in manifest::read(file)? {
            let verdict = judge(&document, &settings);
            refused |= matches!(verdict, Verdict::Refused(_));
            output::line(format!("{}: {}: {verdict}", file.display(), title(&document)))?;
        }
    }
    Ok(if refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// What would become of an object.
enum Verdict {
    /// It would be stored, with these warnings.
    Accepted(Vec<String>),
    /// It would not, for these reasons.
    Refused(Vec<String>),
    /// Nothing is known about its kind.
    PassedOver,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, lines) = match self {
            Verdict::Accepted(warnings) => ("ok", warnings.as_slice()),
            Verdict::Refused(errors) => ("refused", errors.as_slice()),
            Verdict::PassedOver => ("passed over, only batch/v1 Jobs are judged", &[][..]),
        };
        f.write_str(word)?;
        let mark = if matches!(self, Verdict::Accepted(_)) { "warning: " } else { "" };
        lines.iter().try_for_each(|line| write!(f, "\n  {mark}{line}"))
    }
}

fn judge(document: &Value, settings: &Settings) -> Verdict {
    if document["apiVersion"] != "batch/v1" || document["kind"] != "Job" {
        return Verdict::PassedOver;
    }
    let decoded = match schema::decode_value(wire::named(wire::JOB), document) {
        Ok(decoded) => decoded,
        Err(error) => return Verdict::Refused(vec![error.to_string()]),
    };
    let unknown = decoded.strict.iter().map(ToString::to_string);
    let namespace = document["metadata"]["namespace"].as_str().unwrap_or("default");
    match endpoints::create(&without_identity(decoded.value), namespace, identity(), settings) {
        Ok(accepted) => Verdict::Accepted(unknown.chain(accepted.warnings).collect()),
        Err(Refused::Invalid(errors)) => Verdict::Refused(errors.iter().map(ToString::to_string).collect()),
        Err(refused) => Verdict::Refused(vec![refused.to_string()]),
    }
}

/// A Job that was read from a cluster carries what the server gave it, and can be judged all the same.
fn without_identity(mut job: Value) -> Value {
    if let Some(meta) = job["metadata"].as_object_mut() {
        meta.remove("resourceVersion");
    }
    job
}

/// Nothing is stored, so any identity will do.
fn identity() -> Identity {
    Identity {
        uid: "00000000-0000-0000-0000-000000000000".to_owned(),
        now: jiff::Timestamp::UNIX_EPOCH,
        suffix: "xxxxx".to_owned(),
    }
}

fn title(document: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("{} {}", text(&document["kind"]), text(&document["metadata"]["name"]))
}
