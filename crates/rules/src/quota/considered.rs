//! Which flavors were looked at before one was taken, in Kueue's words: the end of its event `QuotaReserved` (SC-10).

use std::fmt;

use super::{
    fit::{Fit, Mode},
    flavors::Assigned,
    names::FlavorName,
    why::Why,
};

/// A flavor that was looked at and does not fit without more ado.
#[derive(Debug, Clone, PartialEq)]
pub struct Considered {
    flavor: FlavorName,
    mode: Mode,
    /// The furthest that one of the resources would have to be borrowed from.
    level: usize,
    why: Vec<Why>,
}

impl Considered {
    /// A flavor, how it fits, and what is wrong with it; `None` if nothing is worth a word.
    pub fn new(flavor: &FlavorName, fit: Fit, why: Vec<Why>) -> Option<Considered> {
        let simply_fits = fit.mode == Mode::Fit && fit.level == 0;
        (!simply_fits).then(|| Considered { flavor: flavor.clone(), mode: fit.mode, level: fit.level, why })
    }
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::NoFit => "NoFit",
            Mode::NoCandidates => "preemptionMode=NoCandidates",
            Mode::Preempt => "preemptionMode=Preempt",
            Mode::Reclaim => "preemptionMode=Reclaim",
            Mode::Fit => "Fit",
        };
        write!(f, "{}({mode}", self.flavor)?;
        if self.level > 0 {
            write!(f, ";borrow={}", self.level)?;
        }
        let mut reasons: Vec<String> = self.why.iter().map(ToString::to_string).collect();
        reasons.sort();
        reasons.dedup();
        reasons.iter().try_for_each(|reason| write!(f, ";{reason}"))?;
        f.write_str(")")
    }
}

/// What is told of all pod sets; empty if each had the first flavor at once.
pub fn text(pod_sets: &[Assigned]) -> String {
    let mut parts = Vec::new();
    for pod_set in pod_sets.iter().filter(|pod_set| !pod_set.considered.is_empty()) {
        let mut considered: Vec<&Considered> = pod_set.considered.iter().collect();
        considered.sort_by(|one, other| one.flavor.cmp(&other.flavor));
        let considered: Vec<String> = considered.iter().map(ToString::to_string).collect();
        parts.push(format!("{}: {}", pod_set.assignment.name, considered.join(", ")));
    }
    parts.join(" | ")
}
