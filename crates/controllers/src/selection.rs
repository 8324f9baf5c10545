//! Which controllers run: names, `*` for all, `-name` for all but this one, `none` for none.

use std::str::FromStr;

/// The controllers that there are, by the names that kube-controller-manager gives them, and the scheduler.
pub const NAMES: [&str; 25] = [
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "scheduler",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "volumeattributesclass-protection-controller",
];

/// What kube-controller-manager called them before, and still takes.
const OLD_NAMES: [(&str, &str); 22] = [
    ("clusterrole-aggregation", "clusterrole-aggregation-controller"),
    ("cronjob", "cronjob-controller"),
    ("daemonset", "daemonset-controller"),
    ("deployment", "deployment-controller"),
    ("disruption", "disruption-controller"),
    ("endpoint", "endpoints-controller"),
    ("endpointslice", "endpointslice-controller"),
    ("endpointslicemirroring", "endpointslice-mirroring-controller"),
    ("garbagecollector", "garbage-collector-controller"),
    ("job", "job-controller"),
    ("namespace", "namespace-controller"),
    ("nodelifecycle", "node-lifecycle-controller"),
    ("podgc", "pod-garbage-collector-controller"),
    ("pv-protection", "persistentvolume-protection-controller"),
    ("pvc-protection", "persistentvolumeclaim-protection-controller"),
    ("replicaset", "replicaset-controller"),
    ("replicationcontroller", "replicationcontroller-controller"),
    ("resourcequota", "resourcequota-controller"),
    ("root-ca-cert-publisher", "root-ca-certificate-publisher-controller"),
    ("serviceaccount", "serviceaccount-controller"),
    ("statefulset", "statefulset-controller"),
    ("ttl-after-finished", "ttl-after-finished-controller"),
];

/// Which controllers run. As kube-controller-manager's flag `--controllers`, with `none` in addition.
///
/// ```
/// let all_but_jobs: controllers::Selection = "*,-job-controller".parse()?;
/// assert!(!all_but_jobs.includes("job-controller"));
/// # Ok::<(), controllers::UnknownController>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    words: Vec<String>,
}

/// A name that is no controller's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a controller; there are {}", NAMES.join(", "))]
pub struct UnknownController {
    name: String,
}

impl Selection {
    /// All of them.
    pub fn all() -> Self {
        Selection { words: vec!["*".to_owned()] }
    }

    /// None of them.
    pub fn none() -> Self {
        Selection { words: Vec::new() }
    }

    /// Whether the controller of this name runs: what is said of it by name counts before `*`.
    pub fn includes(&self, name: &str) -> bool {
        for word in &self.words {
            match word.strip_prefix('-') {
                Some(excluded) if excluded == name => return false,
                None if word == name => return true,
                _ => {}
            }
        }
        self.words.iter().any(|word| word == "*")
    }
}

impl Default for Selection {
    fn default() -> Self {
        Selection::all()
    }
}

impl FromStr for Selection {
    type Err = UnknownController;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = Vec::new();
        let said = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        if said.clone().eq(["none"]) {
            return Ok(Selection::none());
        }
        for word in said {
            let (sign, name) = word.strip_prefix('-').map_or(("", word), |name| ("-", name));
            let old = OLD_NAMES.iter().find(|(old, _)| *old == name);
            let name = old.map_or(name, |(_, name)| name);
            if word != "*" && !NAMES.contains(&name) {
                return Err(UnknownController { name: name.to_owned() });
            }
            words.push(format!("{sign}{name}"));
        }
        Ok(Selection { words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections() {
        let check = |text: &str, name: &str, expected: bool| {
            let selection: Selection = text.parse().expect("a selection");
            assert_eq!(selection.includes(name), expected, "{text}");
        };
        check("*", "job-controller", true);
        check("", "job-controller", false);
        check("none", "job-controller", false);
        check("job-controller", "job-controller", true);
        check("*, -job-controller", "job-controller", false);
        check("-job-controller,*", "job-controller", false);
        check("job", "job-controller", true);
        check("*,-nodelifecycle", "node-lifecycle-controller", false);
        check("*,-nodelifecycle", "job-controller", true);
        for (old, name) in OLD_NAMES {
            check(old, name, true);
            assert!(NAMES.contains(&name) && !NAMES.contains(&old), "{old}");
        }
        let error = "*,jobs".parse::<Selection>().expect_err("no such controller");
        assert!(error.to_string().starts_with("\"jobs\" is not a controller; there are "), "{error}");
        assert!("none,job-controller".parse::<Selection>().is_err());
    }
}
