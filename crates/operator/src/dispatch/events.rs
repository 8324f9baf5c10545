//! Events about Workloads and MultiKueueClusters, told as all others are.

use kube::Resource;
use rules::workload::plan::Event;

use crate::events;

/// Tells events.
#[derive(Clone)]
pub(super) struct Recorder(pub(super) events::Recorder);

/// Who tells.
pub(super) struct Told {
    /// The controller (MK-EVT-01).
    pub(super) by: &'static str,
    /// In a word.
    pub(super) reason: &'static str,
    /// In words.
    pub(super) note: String,
    /// Whether somebody should look.
    pub(super) warning: bool,
}

impl Recorder {
    pub(super) fn tell<K: Resource<DynamicType = ()>>(&self, about: &K, told: Told) {
        let Told { by, reason, note, warning } = told;
        let event = if warning { Event::warning(reason, &note) } else { Event::normal(reason, &note) };
        self.0.tell(by, about, &event);
    }
}
