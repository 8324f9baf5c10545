//! To which standards a namespace holds its pods, as its labels say.

use std::fmt;

use crate::field::{Error, Errors, Path};

/// The labels of namespaces: what keeps pods out, what is written down of them, and what their users are warned of.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
const AUDIT: &str = "pod-security.kubernetes.io/audit";
const AUDIT_VERSION: &str = "pod-security.kubernetes.io/audit-version";
const WARN: &str = "pod-security.kubernetes.io/warn";
const WARN_VERSION: &str = "pod-security.kubernetes.io/warn-version";

/// How strict a standard is, the least strict first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Everything is allowed.
    Privileged,
    /// What is known to give a pod power over its node is not.
    Baseline,
    /// Pods are hardened as best practice has it.
    Restricted,
}

/// The release of Kubernetes whose standard is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `v1.` and this.
    Minor(u64),
    /// Whatever is the newest.
    Latest,
}

/// A level as one version has it, `restricted:latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standard {
    /// How strict it is.
    pub level: Level,
    /// As of when.
    pub version: Version,
}

/// What a namespace does about pods that violate standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Pods that violate it are refused.
    pub enforce: Standard,
    /// Pods and templates that violate it are noted down.
    pub audit: Standard,
    /// Users are warned of pods and templates that violate it.
    pub warn: Standard,
}

impl Policy {
    /// The policy of a namespace with these labels, and what is wrong with them: a level that is none is the strictest
    /// where it keeps pods out, and no level elsewhere. Whoever says only what keeps pods out is warned of templates that
    /// will be kept out, too.
    pub fn of_labels<'a>(label: impl Fn(&str) -> Option<&'a str>) -> (Policy, Errors) {
        let mut errors = Errors::new();
        let mut standard = |of_level: &str, of_version: &str, otherwise: Level| {
            let mut standard = Standard { level: Level::Privileged, version: Version::Latest };
            if let Some(text) = label(of_level) {
                standard.level = Level::read(text).unwrap_or_else(|why| {
                    errors.push(invalid(of_level, text, why));
                    otherwise
                });
            }
            if let Some(text) = label(of_version) {
                standard.version = Version::read(text).unwrap_or_else(|why| {
                    errors.push(invalid(of_version, text, why));
                    Version::Latest
                });
            }
            standard
        };
        let mut policy = Policy {
            enforce: standard(ENFORCE, ENFORCE_VERSION, Level::Restricted),
            audit: standard(AUDIT, AUDIT_VERSION, Level::Privileged),
            warn: standard(WARN, WARN_VERSION, Level::Privileged),
        };
        if label(WARN).is_none() && label(ENFORCE).is_some_and(|text| Level::read(text).is_ok()) {
            policy.warn.level = policy.enforce.level;
            if label(WARN_VERSION).is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether pods that were let in under `old` may be none that this policy lets in.
    pub fn is_stricter_than(&self, old: &Policy) -> bool {
        let (new, old) = (self.enforce, old.enforce);
        new.level != Level::Privileged && new != old && (new.version != old.version || new.level > old.level)
    }
}

fn invalid(label: &str, value: &str, why: &str) -> Error {
    Path::new("metadata").child("labels").key(label).invalid(value, why)
}

impl Level {
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl Version {
    fn read(text: &str) -> Result<Self, &'static str> {
        const WHY: &str = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(Version::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(WHY)?;
        let is_plain =
            minor.bytes().all(|byte| byte.is_ascii_digit()) && (minor == "0" || !minor.starts_with('0'));
        // Upstream's numbers are signed.
        let minor: i64 = minor.parse().ok().filter(|_| is_plain).ok_or(WHY)?;
        Ok(Version::Minor(minor.unsigned_abs()))
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
            Version::Latest => write!(f, "{level}:latest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(labels: &[(&str, &str)]) -> (Policy, Errors) {
        let find = |name: &str| labels.iter().find(|(label, _)| *label == name).map(|(_, value)| *value);
        Policy::of_labels(find)
    }

    #[test]
    fn labels_say_the_policy() {
        let check = |labels: &[(&str, &str)], expected: &str, wrong: &[&str]| {
            let (Policy { enforce, audit, warn }, errors) = policy(labels);
            assert_eq!(format!("{enforce} {audit} {warn}"), expected);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), wrong);
        };
        check(&[], "privileged:latest privileged:latest privileged:latest", &[]);
        check(
            &[(ENFORCE, "baseline"), (WARN_VERSION, "v1.0"), (WARN, "restricted")],
            "baseline:latest privileged:latest restricted:v1.0",
            &[],
        );
        let version = (ENFORCE_VERSION, "v1.9");
        check(&[(ENFORCE, "baseline"), version], "baseline:v1.9 privileged:latest baseline:v1.9", &[]);
        let warned = (WARN_VERSION, "v1.8");
        check(
            &[(ENFORCE, "baseline"), version, warned],
            "baseline:v1.9 privileged:latest baseline:v1.8",
            &[],
        );
        check(
            &[(ENFORCE, "baseline"), (WARN, "privileged")],
            "baseline:latest privileged:latest privileged:latest",
            &[],
        );
        let level = |label: &str| {
            format!(
                "metadata.labels[{label}]: Invalid value: \"x\": must be one of privileged, baseline, restricted"
            )
        };
        check(
            &[(ENFORCE, "x"), (AUDIT, "x"), (WARN, "x")],
            "restricted:latest privileged:latest privileged:latest",
            &[&level(ENFORCE), &level(AUDIT), &level(WARN)],
        );
        for version in ["1.20", "v1.01", "v1.-1", "v1.+1", "v1.", "v2.0", "v1.9223372036854775808", ""] {
            let (policy, errors) = policy(&[(ENFORCE_VERSION, version)]);
            assert_eq!((policy.enforce.version, errors.len()), (Version::Latest, 1), "{version}");
        }
    }

    #[test]
    fn a_policy_is_stricter_where_it_may_refuse_what_was_let_in() {
        let check = |new: &[(&str, &str)], old: &[(&str, &str)], expected: bool| {
            assert_eq!(policy(new).0.is_stricter_than(&policy(old).0), expected, "{new:?} {old:?}");
        };
        let version = |version| (ENFORCE_VERSION, version);
        check(&[(ENFORCE, "restricted")], &[], true);
        check(&[(ENFORCE, "restricted")], &[(ENFORCE, "baseline")], true);
        check(&[(ENFORCE, "baseline")], &[(ENFORCE, "restricted")], false);
        check(&[(ENFORCE, "baseline")], &[(ENFORCE, "restricted"), version("v1.1")], true);
        check(&[(ENFORCE, "baseline")], &[(ENFORCE, "baseline")], false);
        check(&[version("v1.1")], &[], false);
    }
}
