//! What an AdmissionCheck refers to, and whether it is active: the same for all who answer for checks.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use types::kueue::{self, AdmissionCheck};

use super::condition;

const ACTIVE: &str = "Active";

/// The name of a check's settings, which are of this kind, or what is wrong with it (MK-AC-03).
pub fn name<'a>(check: &'a AdmissionCheck, kind: &str) -> Result<&'a str, String> {
    let Some(parameters) = &check.spec.parameters else {
        return Err("missing parameters reference".to_owned());
    };
    let bad = |why: String| Err(format!("{why}: bad parameters reference"));
    if parameters.name.is_empty() {
        return bad("empty name".to_owned());
    }
    if parameters.api_group != kueue::GROUP {
        return bad(format!("wrong group {:?}, expecting {:?}", parameters.api_group, kueue::GROUP));
    }
    if parameters.kind != kind {
        return bad(format!("wrong kind {:?}, expecting {kind:?}", parameters.kind));
    }
    Ok(&parameters.name)
}

/// What is wrong if a check's settings do not exist, as an API server says it.
pub fn not_found(plural: &str, name: &str) -> String {
    format!("{plural}.{} {name:?} not found", kueue::GROUP)
}

/// What the condition `Active` of a check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Active {
    /// Whether it is.
    pub status: bool,
    /// In a word.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

impl Active {
    /// That it is.
    pub fn yes() -> Active {
        let message = "The admission check is active".to_owned();
        Active { status: true, reason: "Active", message }
    }

    /// The conditions of a check with this among them; `None` if it is there already.
    pub fn among(&self, check: &AdmissionCheck, now: Timestamp) -> Option<Vec<Condition>> {
        let mut conditions = check.status.as_ref().map_or_else(Vec::new, |status| status.conditions.clone());
        let generation = check.metadata.generation;
        let is_said = condition::find(&conditions, ACTIVE).is_some_and(|there| {
            there.status == if self.status { "True" } else { "False" }
                && there.reason == self.reason
                && there.message == self.message
        });
        if is_said {
            return None;
        }
        let said = condition::new(ACTIVE, self.status, self.reason, &self.message, generation, now);
        condition::set(&mut conditions, said).then_some(conditions)
    }
}
