//! Kueue's configuration file, as `kueue-controller-manager --config` reads it (section 9.5 of the rules): what is
//! supported has effect, what changes nothing here is said in a warning, and all else is an error that names its path.

mod gates;
mod reader;
mod sections;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use crate::Settings;
use reader::{Problems, Section};

/// A configuration file, read.
pub struct Configuration {
    /// What the operator does.
    pub settings: Settings,
    /// Whether the file names the namespace that the operator is at home in.
    pub names_namespace: bool,
    /// Where metrics and health are served.
    pub listen: Vec<SocketAddr>,
    /// Where webhooks are served.
    pub webhooks: Option<SocketAddr>,
    /// The Service by which the cluster reaches them.
    pub webhook_service: String,
    /// Where it is said who waits where.
    pub visibility: Option<SocketAddr>,
    /// Whether that is not to be said.
    pub hides_visibility: bool,
    /// How the Lease is taken and kept: its namespace, if it is another one, and the three times.
    pub lease: Lease,
    /// Settings that have no effect, and why.
    pub warnings: Vec<String>,
}

/// How the Lease is taken and kept, where the file says so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// Where it is.
    pub namespace: Option<String>,
    /// For how long it is ours without being renewed.
    pub duration: Option<Duration>,
    /// For how long renewing may fail before we stop.
    pub deadline: Option<Duration>,
    /// How often it is renewed, or looked at.
    pub period: Option<Duration>,
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is no YAML.
    #[error("the configuration is no YAML: {0}")]
    Unreadable(String),
    /// What it says cannot be done.
    #[error("the configuration cannot be used:\n  {}", .0.join("\n  "))]
    Refused(Vec<String>),
}

/// The two versions of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// The older one, in which sections are there before they are enabled.
    V1Beta1,
    /// The one in which sections that are there are meant.
    V1Beta2,
}

impl Configuration {
    /// Reads a file.
    pub fn read(text: &str) -> Result<Configuration, Error> {
        let value: Value =
            serde_saphyr::from_str(text).map_err(|error| Error::Unreadable(error.to_string()))?;
        let mut problems = Problems::default();
        let mut file = Section::whole(value, &mut problems);
        let version = version(&mut file, &mut problems);
        let mut read = Configuration {
            settings: Settings::default(),
            names_namespace: false,
            listen: Vec::new(),
            webhooks: None,
            webhook_service: "kueue-webhook-service".to_owned(),
            visibility: None,
            hides_visibility: false,
            lease: Lease::default(),
            warnings: Vec::new(),
        };
        read.home(&mut file, &mut problems);
        read.endpoints(&mut file, &mut problems);
        read.jobs(&mut file, &mut problems);
        read.pods_ready(&mut file, version, &mut problems);
        read.quota(&mut file, version, &mut problems);
        read.sharing_by_usage(&mut file, &mut problems);
        read.multikueue(&mut file, &mut problems);
        read.retention(&mut file, &mut problems);
        let gates = gates::check(&mut file, &mut problems);
        read.visibility(&mut file, gates.visibility, &mut problems);
        let why = "a client is not held back here; the API server's own fairness is";
        file.ignore("clientConnection", why, &mut problems);
        file.ignore("controller", "how much is done at once is not set by kind here", &mut problems);
        file.ignore("pprofBindAddress", "there is nothing to profile in this way", &mut problems);
        file.ignore("queueVisibility", "it has none in Kueue either", &mut problems);
        file.refuse("tls", "TLS 1.2 and 1.3 are served with safe defaults", &mut problems);
        file.done(&mut problems);
        read.warnings = problems.warnings;
        if problems.errors.is_empty() { Ok(read) } else { Err(Error::Refused(problems.errors)) }
    }
}

fn version(file: &mut Section, problems: &mut Problems) -> Version {
    let versions = [
        ("config.kueue.x-k8s.io/v1beta1", Version::V1Beta1),
        ("config.kueue.x-k8s.io/v1beta2", Version::V1Beta2),
    ];
    for field in ["apiVersion", "kind"] {
        if !file.has(field) {
            problems.errors.push(format!("{field}: must be set"));
        }
    }
    file.choice("kind", &[("Configuration", ())], problems);
    file.choice("apiVersion", &versions, problems).unwrap_or(Version::V1Beta2)
}

/// An address as Go reads it: without a host it is all of them.
fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix(':') {
        Some(port) => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
