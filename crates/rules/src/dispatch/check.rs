//! What is said about a MultiKueue check: whether it can be passed, and which clusters stand behind it.

use types::kueue::{self, AdmissionCheck, MultiKueueConfig};

/// The kind of the object with a check's settings.
const CONFIG: &str = "MultiKueueConfig";

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

/// The name of a check's settings, or what is wrong with it (MK-AC-03).
pub fn config_name(check: &AdmissionCheck) -> Result<&str, String> {
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
    if parameters.kind != CONFIG {
        return bad(format!("wrong kind {:?}, expecting {CONFIG:?}", parameters.kind));
    }
    Ok(&parameters.name)
}

/// What a check's condition says when this is its configuration, and this of its clusters: absent, inactive, active
/// (MK-AC-01, MK-AC-02).
pub fn active(config: Result<&MultiKueueConfig, String>, state: impl Fn(&str) -> Option<bool>) -> Active {
    let config = match config {
        Ok(config) => config,
        Err(why) => {
            let message = format!("Cannot load the AdmissionChecks parameters: {why}");
            return Active { status: false, reason: "BadConfig", message };
        }
    };
    let clusters = &config.spec.clusters;
    let named = |wanted: Option<bool>| -> Vec<&str> {
        clusters.iter().map(String::as_str).filter(|name| state(name) == wanted).collect()
    };
    let (missing, inactive) = (named(None), named(Some(false)));
    if missing.is_empty() && inactive.is_empty() {
        return Active {
            status: true,
            reason: "Active",
            message: "The admission check is active".to_owned(),
        };
    }
    let parts = [("Missing", &missing), ("Inactive", &inactive)];
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> =
        parts.map(|(what, names)| format!("{what} clusters: [{}]", names.join(" "))).collect();
    let some = missing.len() + inactive.len() < clusters.len();
    Active {
        status: some,
        reason: if some { "SomeActiveClusters" } else { "NoUsableClusters" },
        message: parts.join(", "),
    }
}

/// What is wrong if a check's settings do not exist, as an API server says it.
pub fn config_not_found(name: &str) -> String {
    format!("multikueueconfigs.{} {name:?} not found", kueue::GROUP)
}
