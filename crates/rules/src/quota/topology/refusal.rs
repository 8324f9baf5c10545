//! Why pods cannot be placed, in Kueue's words.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

use crate::quota::names::ResourceName;

/// Nodes that were left out, and why.
#[derive(Debug, Clone, Default)]
pub(super) struct Excluded {
    pub(super) total: usize,
    pub(super) selector: usize,
    pub(super) affinity: usize,
    taints: BTreeMap<String, usize>,
    resources: BTreeMap<ResourceName, usize>,
}

impl Excluded {
    pub(super) fn by_taint(&mut self, taint: &Taint) {
        let text = match taint.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
            None => format!("{}:{}", taint.key, taint.effect),
        };
        *self.taints.entry(text).or_default() += 1;
    }

    pub(super) fn by_resource(&mut self, resource: &ResourceName) {
        *self.resources.entry(resource.clone()).or_default() += 1;
    }

    /// The end of a message; empty if no node was left out.
    pub(super) fn text(&self) -> String {
        let mut reasons = Vec::new();
        if self.selector > 0 {
            reasons.push(format!("nodeSelector: {}", self.selector));
        }
        if self.affinity > 0 {
            reasons.push(format!("affinity: {}", self.affinity));
        }
        let quoted =
            |kind: &str, name: &str, count: usize| format!("{kind} {}: {count}", types::go::quote(name));
        reasons.extend(self.taints.iter().map(|(taint, count)| quoted("taint", taint, *count)));
        reasons.extend(self.resources.iter().map(|(name, count)| quoted("resource", name.as_str(), *count)));
        if reasons.is_empty() {
            return String::new();
        }
        reasons.sort();
        format!(". Total nodes: {}; excluded: {}", self.total, reasons.join(", "))
    }
}

/// That only so many pods, or slices of them, fit.
pub(super) fn not_fit(topology: &str, fit: i64, wanted: i64, slice: i64, excluded: &Excluded) -> String {
    let unit = if slice == 1 { "pod" } else { "slice" };
    let topology = types::go::quote(topology);
    let text = if fit == 0 {
        format!("topology {topology} doesn't allow to fit any of {wanted} {unit}(s)")
    } else {
        format!("topology {topology} allows to fit only {fit} out of {wanted} {unit}(s)")
    };
    text + &excluded.text()
}
