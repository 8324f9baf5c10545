//! What is said about a MultiKueue check: whether it can be passed, and which clusters stand behind it.

use types::kueue::{AdmissionCheck, MultiKueueConfig};

use crate::workload::parameters::{self, Active};

/// The kind of the object with a check's settings, and its name in paths.
const CONFIG: (&str, &str) = ("MultiKueueConfig", "multikueueconfigs");

/// The name of a check's settings, or what is wrong with it (MK-AC-03).
pub fn config_name(check: &AdmissionCheck) -> Result<&str, String> {
    parameters::name(check, CONFIG.0)
}

/// What is wrong if a check's settings do not exist.
pub fn config_not_found(name: &str) -> String {
    parameters::not_found(CONFIG.1, name)
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
        return Active::yes();
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
