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
        let words: Vec<String> =
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect();
        if words == ["none"] {
            return Ok(Selection::none());
        }
        for word in words.iter().filter(|word| *word != "*") {
            let name = word.strip_prefix('-').unwrap_or(word);
            if !NAMES.contains(&name) {
                return Err(UnknownController { name: name.to_owned() });
            }
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
        let error = "*,jobs".parse::<Selection>().expect_err("no such controller");
        assert!(error.to_string().starts_with("\"jobs\" is not a controller; there are "), "{error}");
        assert!("none,job-controller".parse::<Selection>().is_err());
    }
}
