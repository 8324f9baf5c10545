//! How many pods each domain takes.

use types::Amount;

use super::{Asked, Pods, Promised, Search};
use crate::quota::{
    affinity,
    names::ResourceName,
    topology::{
        Resources,
        domains::Node,
        ground::{Ground, Site},
        with_pod,
    },
    workload::PodSet,
};

/// No domain is said to take more.
const MANY: i64 = i32::MAX as i64;

/// What a domain takes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Room {
    pub(super) pods: i64,
    /// Slices of pods; none below the level at which a slice is in one domain.
    pub(super) slices: i64,
    /// How many leaders it takes, at most the one that there is.
    pub(super) leaders: i64,
    /// The same beside a leader.
    pub(super) pods_led: i64,
    pub(super) slices_led: i64,
}

impl Search<'_> {
    /// Counts what each domain takes, from the lowest level up.
    pub(super) fn count(
        &mut self,
        ground: &Ground,
        site: &Site,
        pods: Pods<'_>,
        promised: &Promised,
        empty: bool,
    ) {
        let each = with_pod(pods.pod_set.pod_requests());
        let leader = pods.leader.map(|leader| with_pod(leader.pod_requests()));
        for (index, (domain, leaf)) in self.domains.leaves().enumerate() {
            self.excluded.total += 1;
            if let Some(node) = &leaf.node
                && !self.excluded.takes(node, pods.pod_set, site)
            {
                continue;
            }
            let left = |name: &ResourceName| {
                let promised = promised.get(&leaf.spot).and_then(|promised| promised.get(name));
                ground.left(site, index, &leaf.spot, name, empty) - promised.copied().unwrap_or_default()
            };
            let (fit, limit) = times_in(&each, left);
            if let Some(limit) = limit.filter(|_| fit == 0) {
                self.excluded.by_resource(limit);
            }
            let room = &mut self.rooms[domain];
            (room.pods, room.pods_led) = (fit, fit);
            if let Some(leader) = &leader
                && times_in(leader, left).0 > 0
            {
                room.leaders = 1;
                let beside = |name: &ResourceName| left(name) - leader.get(name).copied().unwrap_or_default();
                room.pods_led = times_in(&each, beside).0;
            }
        }
        self.add_up();
    }

    /// What domains take together is what the one above takes.
    fn add_up(&mut self) {
        let Asked { slice, slice_level, leaders, .. } = self.asked;
        let lowest = self.domains.levels().len() - 1;
        for level in (0..=lowest).rev() {
            for domain in self.domains.at(level) {
                if level < lowest {
                    self.rooms[domain] = self.together(domain, level, leaders > 0);
                }
                if level == slice_level {
                    let room = &mut self.rooms[domain];
                    (room.slices, room.slices_led) = (room.pods / slice, room.pods_led / slice);
                }
            }
        }
    }

    fn together(&self, domain: usize, level: usize, is_led: bool) -> Room {
        // Where slices are within slices, a domain counts with whole ones only.
        let whole = self.asked.inner.get(&(level + 1)).copied().unwrap_or(1);
        let mut room = Room::default();
        // One of the children takes the leader: the one that loses the least by it.
        let (mut pods_lost, mut slices_lost): (Option<i64>, Option<i64>) = (None, None);
        for child in self.domains.get(domain).children.clone() {
            let child = &self.rooms[child];
            let (pods, pods_led) = (child.pods / whole * whole, child.pods_led / whole * whole);
            room.pods += pods;
            room.slices += child.slices;
            room.leaders = room.leaders.max(child.leaders);
            if !is_led || child.leaders > 0 {
                let least = |lost: Option<i64>, here: i64| Some(lost.map_or(here, |lost| lost.min(here)));
                pods_lost = least(pods_lost, pods - pods_led);
                slices_lost = least(slices_lost, child.slices - child.slices_led);
            }
        }
        room.pods_led = pods_lost.map_or(0, |lost| room.pods - lost);
        room.slices_led = slices_lost.map_or(0, |lost| room.slices - lost);
        room
    }
}

impl super::Excluded {
    /// Whether a node takes such pods at all (TA-3).
    fn takes(&mut self, node: &Node, pod_set: &PodSet, site: &Site) -> bool {
        let tolerations = || pod_set.tolerations.iter().chain(&site.flavor.tolerations);
        let mut hard = node.taints.iter().filter(|taint| affinity::keeps_out(taint));
        if let Some(taint) = hard.find(|taint| !tolerations().any(|it| affinity::tolerates(it, taint))) {
            self.by_taint(taint);
            return false;
        }
        if pod_set.node_selector.iter().any(|(key, value)| node.labels.get(key) != Some(value)) {
            self.selector += 1;
            return false;
        }
        let matches = |term| affinity::describes(term, &node.name, &node.labels);
        if !pod_set.node_affinity.is_empty() && !pod_set.node_affinity.iter().any(matches) {
            self.affinity += 1;
            return false;
        }
        true
    }
}

/// How many times `each` is in what is left, and what there is the least of; the first by name of equals.
fn times_in(each: &Resources, left: impl Fn(&ResourceName) -> Amount) -> (i64, Option<&ResourceName>) {
    let mut least: Option<(i64, &ResourceName)> = None;
    for (name, amount) in each {
        let fit = match amount.units() {
            0 => MANY,
            units => (left(name).units() / units).clamp(0, MANY),
        };
        if least.is_none_or(|(least, _)| fit < least) {
            least = Some((fit, name));
        }
    }
    least.map_or((0, None), |(fit, name)| (fit, Some(name)))
}
