//! Which domains pods get (TA-4).
//!
//! First it is counted how many pods, and slices of them, each domain takes, from the lowest level up. Then a level is
//! chosen, and at that level the fewest domains that take all pods; then, level by level down, the fewest of their
//! children. It is Kueue's heuristic, and the order in which domains are tried is as much a rule as the counting is.

mod counts;
mod descent;

use std::{cmp::Reverse, collections::BTreeMap, collections::HashMap};

use counts::Room;

use super::{
    Place, Placement, Resources,
    domains::Domains,
    ground::{Ground, Site, Spot},
    refusal::{Excluded, not_fit},
    with_pod,
};
use crate::quota::workload::{Layer, PodSet, TopologyRequest};

/// Pods that are to be placed: those of one pod set, or of two that stay together.
#[derive(Debug, Clone, Copy)]
pub struct Pods<'a> {
    /// What they are like.
    pub pod_set: &'a PodSet,
    /// How many of them.
    pub count: u32,
    /// The one pod that leads them, from another pod set.
    pub leader: Option<&'a PodSet>,
}

/// Where pods are found a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The pods.
    pub pods: Placement,
    /// The one that leads them.
    pub leader: Option<Placement>,
}

/// What is promised to pods of the same Workload before these.
pub type Promised = HashMap<Spot, Resources>;

/// Finds the domains for pods, or says in Kueue's words why there are none. `empty` takes nothing to be taken by other
/// Workloads.
pub fn find(
    ground: &Ground,
    site: &Site,
    pods: Pods<'_>,
    promised: &Promised,
    empty: bool,
) -> Result<Found, String> {
    let asked = Asked::read(&site.domains, pods)?;
    let mut search = Search {
        domains: &site.domains,
        topology: &site.topology,
        rooms: vec![Room::default(); site.domains.len()],
        excluded: Excluded::default(),
        asked,
    };
    search.count(ground, site, pods, promised, empty);
    let (level, chosen) = search.choose(search.asked.level)?;
    let chosen = search.descend(level, chosen);
    search.placed(pods, &chosen)
}

/// What pods ask of domains, by the levels of one topology.
#[derive(Debug, Clone)]
struct Asked {
    count: i64,
    leaders: i64,
    /// The level at which all of them are to be in one domain.
    level: usize,
    required: bool,
    /// Whether the fullest domains are filled first, rather than the fewest taken.
    anywhere: bool,
    /// The pods of a slice, of which all are in one domain of `slice_level`.
    slice: i64,
    slice_level: usize,
    /// Slices within slices: how many pods of one are in the same domain of each level.
    inner: BTreeMap<usize, i64>,
    /// All of these, as they were asked for, if there are slices within slices.
    layers: Vec<Layer>,
}

impl Asked {
    fn read(domains: &Domains, pods: Pods<'_>) -> Result<Asked, String> {
        let (levels, request) = (domains.levels(), pods.pod_set.topology.as_ref());
        let layers: &[Layer] = request.map_or(&[], |request| &request.slices);
        let slice = layers.first().map_or(1, |outermost| i64::from(outermost.size));
        if slice <= 0 {
            return Err("slice topology requested, but slice size not provided".to_owned());
        }
        // Who asks for nothing is in a queue where everybody is placed, and goes anywhere.
        let lowest = levels.last().map(String::as_str);
        let label = request.map_or(lowest, |request| request.level(levels));
        let label = label.ok_or_else(|| "topology level not specified".to_owned())?;
        let level = domains.level(label).ok_or_else(|| format!("no requested topology level: {label}"))?;
        let slice_label = layers.first().map_or(lowest.unwrap_or_default(), |layer| layer.level.as_str());
        let slice_level = domains
            .level(slice_label)
            .ok_or_else(|| format!("no requested topology level for slices: {slice_label}"))?;
        if level > slice_level {
            return Err(format!("podset slice topology {slice_label} is above the podset topology {label}"));
        }
        let count = i64::from(pods.count);
        let inner = inner_slices(domains, layers, slice, slice_level)?;
        // Kueue leaves the rest without a place, and whoever waits for it for ever.
        if count % slice != 0 {
            return Err(format!("slices of {slice} pods cannot be made of {count} pod(s)"));
        }
        Ok(Asked {
            count,
            leaders: i64::from(pods.leader.is_some()),
            level,
            required: request.is_some_and(|request| request.required.is_some()),
            anywhere: request.is_none_or(TopologyRequest::is_anywhere),
            slice,
            slice_level,
            layers: if inner.is_empty() { Vec::new() } else { layers.to_vec() },
            inner,
        })
    }

    fn slices(&self) -> i64 {
        self.count / self.slice
    }
}

fn inner_slices(
    domains: &Domains,
    layers: &[Layer],
    slice: i64,
    slice_level: usize,
) -> Result<BTreeMap<usize, i64>, String> {
    let mut inner = BTreeMap::new();
    let (mut size_above, mut level_above) = (slice, slice_level);
    for layer in layers.iter().skip(1) {
        let (label, size) = (&layer.level, i64::from(layer.size));
        let level = domains
            .level(label)
            .ok_or_else(|| format!("no requested topology level for additional slice layer: {label}"))?;
        if level <= level_above {
            let above = &domains.levels()[level_above];
            return Err(format!(
                "additional slice layer topology {label} must be at a lower level than {above}"
            ));
        }
        if size <= 0 || size_above % size != 0 {
            return Err(format!(
                "additional slice layer size {size} must evenly divide parent layer size {size_above}"
            ));
        }
        // The levels between divide pods alike, so that whole slices arrive at this one.
        inner.extend((level_above + 1..=level).map(|between| (between, size)));
        (size_above, level_above) = (size, level);
    }
    Ok(inner)
}

/// The search for places of some pods.
struct Search<'a> {
    domains: &'a Domains,
    topology: &'a str,
    asked: Asked,
    /// What each domain takes; and where domains are chosen, what each of them gets.
    rooms: Vec<Room>,
    excluded: Excluded,
}

impl Search<'_> {
    /// The domains that take all pods together, at `level` or, if there is no need to be so close, at one above it.
    fn choose(&self, level: usize) -> Result<(usize, Vec<usize>), String> {
        let (slices, leaders) = (self.asked.slices(), self.asked.leaders);
        let all: Vec<usize> = self.domains.at(level).collect();
        if all.is_empty() {
            return Err(format!("no topology domains at level: {}", self.domains.levels()[level]));
        }
        let sorted = self.sorted_for_leader(&all);
        let takes_all =
            |domain: usize| self.rooms[domain].slices_led >= slices && self.rooms[domain].leaders >= leaders;
        let mut top = sorted[0];
        if !self.asked.anywhere && takes_all(top) {
            top = self.best_fit(&sorted, slices, leaders, |room| room.slices, |room| room.slices_led);
        }
        if self.asked.anywhere {
            let fullest = sorted.iter().find(|domain| {
                let room = &self.rooms[**domain];
                let slices_here = if leaders > 0 { room.slices_led } else { room.slices };
                room.leaders >= leaders && slices_here >= slices
            });
            if let Some(domain) = fullest {
                return Ok((level, vec![*domain]));
            }
            if self.asked.required {
                return Err(self.not_fit(level, self.rooms[sorted[sorted.len() - 1]].pods));
            }
        }
        if takes_all(top) {
            return Ok((level, vec![top]));
        }
        if self.asked.required {
            return Err(self.not_fit(level, self.rooms[top].slices));
        }
        if level > 0 && !self.asked.anywhere {
            return self.choose(level - 1);
        }
        self.several(level, sorted).map(|chosen| (level, chosen))
    }

    /// Domains one after the other until all pods have a place: first one that takes who leads them, then the others.
    fn several(&self, level: usize, sorted: Vec<usize>) -> Result<Vec<usize>, String> {
        let mut left = self.asked.slices();
        let mut leaders = self.asked.leaders;
        let mut chosen = Vec::new();
        let sorted = self.led_first(sorted, self.asked.count, leaders, self.asked.slice, true);
        let mut next = 0;
        while leaders > 0 && next < sorted.len() && self.rooms[sorted[next]].leaders > 0 {
            let mut domain = sorted[next];
            if !self.asked.anywhere && self.rooms[domain].slices_led >= left {
                domain =
                    self.best_fit(&sorted[next..], left, leaders, |room| room.slices, |room| room.slices_led);
            }
            chosen.push(domain);
            leaders -= self.rooms[domain].leaders;
            left -= self.rooms[domain].slices_led;
            next += 1;
        }
        if leaders > 0 {
            return Err(self.not_fit(level, self.asked.leaders - leaders));
        }
        let sorted = self.sorted(&sorted[next..]);
        for (index, &first) in sorted.iter().enumerate() {
            if left <= 0 {
                break;
            }
            let mut domain = first;
            if !self.asked.anywhere && self.rooms[domain].slices >= left {
                domain = self.best_fit(&sorted[index..], left, 0, |room| room.slices, |room| room.slices_led);
            }
            chosen.push(domain);
            left -= self.rooms[domain].slices;
        }
        if left > 0 {
            return Err(self.not_fit(level, self.asked.slices() - left));
        }
        Ok(chosen)
    }

    /// The first of those domains that take just enough; the first of all if none takes enough.
    fn best_fit(
        &self,
        domains: &[usize],
        needed: i64,
        leaders: i64,
        unled: impl Fn(&Room) -> i64,
        led: impl Fn(&Room) -> i64,
    ) -> usize {
        let takes = |domain: usize| {
            let room = &self.rooms[domain];
            if leaders > 0 { led(room) } else { unled(room) }
        };
        let enough = domains
            .iter()
            .copied()
            .filter(|&domain| self.rooms[domain].leaders >= leaders && takes(domain) >= needed);
        enough.min_by_key(|&domain| takes(domain)).unwrap_or(domains[0])
    }

    /// Domains in the order in which they are tried: those first that take the most, or the least where the fullest are
    /// filled first. Equals are in the order of their labels, which is that of their numbers.
    fn sorted(&self, domains: &[usize]) -> Vec<usize> {
        let mut sorted = domains.to_vec();
        sorted.sort_by_key(|&domain| {
            let room = &self.rooms[domain];
            (self.order(room.slices), room.pods, domain)
        });
        sorted
    }

    /// The same for pods that somebody leads.
    fn sorted_for_leader(&self, domains: &[usize]) -> Vec<usize> {
        let mut sorted = domains.to_vec();
        sorted.sort_by_key(|&domain| {
            let room = &self.rooms[domain];
            (Reverse(room.leaders), self.order(room.slices_led), room.pods_led, domain)
        });
        sorted
    }

    fn order(&self, slices: i64) -> i64 {
        if self.asked.anywhere { slices } else { -slices }
    }

    /// That pods do not fit, and how many would.
    fn not_fit(&self, level: usize, fit: i64) -> String {
        let Asked { count, slice, layers, .. } = &self.asked;
        if layers.is_empty() {
            return not_fit(self.topology, fit, self.asked.slices(), *slice, &self.excluded);
        }
        let mut text = format!("topology {} doesn't allow to fit", types::go::quote(self.topology));
        let best = self.domains.at(level).max_by_key(|&domain| (self.rooms[domain].slices, Reverse(domain)));
        for layer in layers {
            let size = i64::from(layer.size);
            let (Some(best), Some(at)) = (best, self.domains.level(&layer.level)) else { continue };
            let fit = self.slices_below(best, level, at, size);
            let (wanted, label) = (count / size, &layer.level);
            let part = format!("; {fit}/{wanted} slice(s) fit on level {label}");
            text.push_str(&part);
        }
        text + &self.excluded.text()
    }

    fn slices_below(&self, domain: usize, level: usize, at: usize, size: i64) -> i64 {
        if level == at {
            return self.rooms[domain].pods / size;
        }
        let children = self.domains.get(domain).children.clone();
        children.map(|child| self.slices_below(child, level + 1, at, size)).sum()
    }

    /// What was found, as a placement.
    fn placed(&self, pods: Pods<'_>, chosen: &[usize]) -> Result<Found, String> {
        let first = if self.domains.are_nodes() { self.domains.levels().len() - 1 } else { 0 };
        let mut chosen = chosen.to_vec();
        chosen.sort_unstable();
        let placement = |count: &dyn Fn(&Room) -> i64| Placement {
            levels: self.domains.levels()[first..].to_vec(),
            domains: chosen
                .iter()
                .filter_map(|&domain| {
                    let count = u32::try_from(count(&self.rooms[domain])).ok().filter(|count| *count > 0)?;
                    Some(Place { values: self.domains.get(domain).values[first..].to_vec(), count })
                })
                .collect(),
        };
        let found = Found {
            pods: placement(&|room| room.pods),
            leader: pods.leader.map(|_| placement(&|room| room.leaders)),
        };
        // Nobody is let in without a place for every pod.
        let leader = found.leader.as_ref().map_or(0, Placement::count);
        if found.pods.count() != pods.count || i64::from(leader) != self.asked.leaders {
            return Err(self.not_fit(self.asked.level, 0));
        }
        Ok(found)
    }
}

/// What pods take that were found a place, added to what was promised before.
pub fn promise(promised: &mut Promised, site: &Site, placement: &Placement, each: &Resources) {
    let each = with_pod(each);
    for place in &placement.domains {
        let spot = Spot::of(&site.flavor.name, &placement.levels, &place.values);
        super::add(promised.entry(spot).or_default(), &super::times(&each, place.count));
    }
}
