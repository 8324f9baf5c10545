//! The Pod Security Standards: what a namespace lets its pods do to the node they run on.
//!
//! A [`Policy`] says to which [`Standard`]s a namespace holds its pods, [`violations`] how a pod violates one. Every check
//! is a function that words what it found as upstream does, because that is what users read.
//!
//! How a refusal or a warning reaches the user is not known here.

mod baseline;
mod existing;
mod policy;
mod restricted;
mod subject;

use std::fmt;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use existing::existing;
pub use policy::{Level, Policy, Standard, Version};
use subject::Subject;

/// All that a pod does which a standard does not allow. It prints as users read it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<Violation>);

/// What one check found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Violation {
    /// What is not allowed, in a few words.
    reason: String,
    /// Who does it, and what would be right.
    detail: String,
}

/// One check of a level.
struct Check {
    /// The first minor version that has it.
    since: u64,
    /// From this version on the restricted level has a check of its own for the same.
    replaced: Option<u64>,
    run: fn(&Subject<'_>) -> Option<Violation>,
}

const fn check(since: u64, run: fn(&Subject<'_>) -> Option<Violation>) -> Check {
    Check { since, replaced: None, run }
}

impl Check {
    const fn replaced_since(self, minor: u64) -> Check {
        Check { replaced: Some(minor), ..self }
    }
}

/// The checks of the baseline level, in the order in which messages tell of them.
const BASELINE: [Check; 12] = [
    check(0, baseline::app_armor),
    check(0, baseline::capabilities).replaced_since(22),
    check(0, baseline::host_namespaces),
    check(0, baseline::host_paths).replaced_since(0),
    check(0, baseline::host_ports),
    check(34, baseline::hosts_of_handlers),
    check(0, baseline::privileged),
    check(0, baseline::proc_mount).replaced_since(35),
    check(0, baseline::se_linux),
    check(0, baseline::seccomp).replaced_since(19),
    check(0, baseline::sysctls),
    check(0, baseline::windows_host_process),
];

/// Those that the restricted level has besides.
const RESTRICTED: [Check; 7] = [
    check(8, restricted::privilege_escalation),
    check(22, restricted::capabilities),
    check(35, baseline::unmasked),
    check(0, restricted::volumes),
    check(0, restricted::run_as_non_root),
    check(23, restricted::run_as_user),
    check(19, restricted::seccomp),
];

/// How a pod, or a template of one, violates a standard.
pub fn violations(standard: Standard, meta: &ObjectMeta, spec: &PodSpec) -> Violations {
    if standard.level == Level::Privileged {
        return Violations::default();
    }
    let subject = Subject::new(standard.version, meta, spec);
    let is_restricted = standard.level == Level::Restricted;
    let is_replaced = |check: &&Check| check.replaced.is_some_and(|since| subject.minor >= since);
    let baseline = BASELINE.iter().filter(|check| !is_restricted || !is_replaced(check));
    let checks = baseline.chain(RESTRICTED.iter().filter(|_| is_restricted));
    let found = checks.filter(|check| subject.minor >= check.since).filter_map(|check| (check.run)(&subject));
    Violations(found.collect())
}

impl Violations {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is violated, and not by whom: many pods violate the same.
    fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|violation| violation.reason.as_str()).collect();
        reasons.join(", ")
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Violation { reason, detail }) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{reason} ({detail})")?;
        }
        Ok(())
    }
}

/// Whether a pod that was let in has to be judged again: it runs another image, or in another container. Nothing else of what
/// is judged can change.
pub fn is_judged_again(new: &Pod, old: &Pod) -> bool {
    let (Some(new), Some(old)) = (&new.spec, &old.spec) else { return true };
    let differ = |new: &[Container], old: &[Container]| {
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| new.image != old.image)
    };
    let is_new = |added: &EphemeralContainer| {
        let before = old.ephemeral_containers.iter().flatten().find(|container| container.name == added.name);
        before.is_none_or(|before| before.image != added.image)
    };
    let (inits, old_inits) = (new.init_containers.as_deref(), old.init_containers.as_deref());
    differ(&new.containers, &old.containers)
        || differ(inits.unwrap_or_default(), old_inits.unwrap_or_default())
        || new.ephemeral_containers.iter().flatten().any(is_new)
}

/// A noun for so many, with their names: `containers "a", "b"`.
fn named<S: AsRef<str>>(noun: &str, names: &[S]) -> String {
    format!("{} {}", plural(noun, names.len()), quoted(names))
}

fn plural(noun: &str, count: usize) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

/// What one or more of them do.
fn use_or_uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{}\"", name.as_ref())).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests;
