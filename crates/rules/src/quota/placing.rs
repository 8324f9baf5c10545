//! Which pod sets of a Workload are to be placed by topology, and where all of them together go.

use std::collections::BTreeMap;

use super::{
    names::FlavorName,
    topology::{
        Ground, Place, Placement,
        ground::Site,
        search::{self, Pods, Promised, promise},
    },
    workload::{PodSet, Workload},
};

/// A pod set that is to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToPlace {
    /// Which one.
    pub pod_set: usize,
    /// In which flavor.
    pub flavor: FlavorName,
    /// How many of its pods.
    pub count: u32,
    /// Where some of them are already: those of the slice whose place the Workload is to take.
    pub placed: Option<Placement>,
}

/// That a pod set cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Which one.
    pub pod_set: usize,
    /// Why, in Kueue's words.
    pub why: String,
}

/// Finds a place for all of `wanted`, by their numbers. `empty` takes nothing to be taken by other Workloads.
pub fn find(
    ground: &Ground,
    workload: &Workload,
    wanted: &[ToPlace],
    empty: bool,
) -> Result<BTreeMap<usize, Placement>, Misfit> {
    let mut found = BTreeMap::new();
    let mut promised = Promised::new();
    for members in groups(workload, wanted) {
        let first = members[0];
        let misfit = |why: String| Misfit { pod_set: first.pod_set, why };
        let site = ground.site(&first.flavor).ok_or_else(|| misfit(NO_DOMAINS.to_owned()))?;
        let (pods, leader) = roles(&members).map_err(misfit)?;
        let mut group = Group { ground, site, workload, promised: &mut promised, empty };
        for (pod_set, placement) in group.place(pods, leader).map_err(misfit)? {
            found.insert(pod_set, placement);
        }
    }
    Ok(found)
}

const NO_DOMAINS: &str = "workload requires Topology, but there is no TAS cache information";

/// Pod sets that are placed together, flavor by flavor.
fn groups<'a>(workload: &Workload, wanted: &'a [ToPlace]) -> Vec<Vec<&'a ToPlace>> {
    let mut groups: Vec<Vec<&ToPlace>> = Vec::new();
    for one in wanted {
        let group = |it: &ToPlace| workload.pod_sets[it.pod_set].group.as_ref();
        let same = |members: &&mut Vec<&ToPlace>| {
            group(one).is_some() && members[0].flavor == one.flavor && group(members[0]) == group(one)
        };
        match groups.iter_mut().find(same) {
            Some(members) => members.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.sort_by(|one, other| one[0].flavor.cmp(&other[0].flavor));
    groups
}

/// The pods of a group, and the one that leads them.
fn roles<'a>(members: &[&'a ToPlace]) -> Result<(&'a ToPlace, Option<&'a ToPlace>), String> {
    let (pods, leader) = match members {
        [pods] => return Ok((pods, None)),
        [one, other] if other.count > one.count => (*other, *one),
        [one, other] => (*one, *other),
        _ => return Err(format!("a group of {} pod sets cannot be placed together", members.len())),
    };
    if leader.count != 1 {
        return Err(format!("a group cannot be led by {} pods", leader.count));
    }
    Ok((pods, Some(leader)))
}

struct Group<'a> {
    ground: &'a Ground,
    site: &'a Site,
    workload: &'a Workload,
    promised: &'a mut Promised,
    empty: bool,
}

impl Group<'_> {
    fn place(&mut self, pods: &ToPlace, leader: Option<&ToPlace>) -> Result<Vec<(usize, Placement)>, String> {
        let is_there = |it: &ToPlace| it.placed.as_ref().filter(|placed| self.site.has_all(placed)).cloned();
        let before = is_there(pods);
        let led_before = leader.and_then(is_there);
        // Who leads stays where it is, and if its domain is gone, all begin anew.
        let Some(before) = before.filter(|_| leader.is_none() || led_before.is_some()) else {
            return self.place_anew(pods, leader, pods.count);
        };
        let kept = first_of(&before, pods.count);
        self.promise(pods, &kept);
        let mut placed = Vec::new();
        if let (Some(leader), Some(place)) = (leader, led_before) {
            self.promise(leader, &place);
            placed.push((leader.pod_set, place));
        }
        let more = pods.count - kept.count();
        let added = if more > 0 { self.place_anew(pods, None, more)? } else { Vec::new() };
        let added = added.into_iter().map(|(_, placement)| placement).fold(kept, together);
        placed.push((pods.pod_set, added));
        Ok(placed)
    }

    fn place_anew(
        &mut self,
        pods: &ToPlace,
        leader: Option<&ToPlace>,
        count: u32,
    ) -> Result<Vec<(usize, Placement)>, String> {
        let leads = leader.map(|leader| self.pod_set(leader));
        let asked = Pods { pod_set: self.pod_set(pods), count, leader: leads };
        let found = search::find(self.ground, self.site, asked, self.promised, self.empty)?;
        self.promise(pods, &found.pods);
        let mut placed = vec![(pods.pod_set, found.pods)];
        if let (Some(leader), Some(place)) = (leader, found.leader) {
            self.promise(leader, &place);
            placed.push((leader.pod_set, place));
        }
        Ok(placed)
    }

    fn pod_set(&self, of: &ToPlace) -> &PodSet {
        &self.workload.pod_sets[of.pod_set]
    }

    fn promise(&mut self, of: &ToPlace, placement: &Placement) {
        let each = self.workload.pod_sets[of.pod_set].pod_requests();
        promise(self.promised, self.site, placement, each);
    }
}

/// The places of the first `count` pods.
fn first_of(placement: &Placement, count: u32) -> Placement {
    let mut left = count;
    let mut domains = Vec::new();
    for place in &placement.domains {
        let here = place.count.min(left);
        left -= here;
        if here > 0 {
            domains.push(Place { count: here, ..place.clone() });
        }
    }
    Placement { levels: placement.levels.clone(), domains }
}

/// The places of both.
fn together(one: Placement, other: Placement) -> Placement {
    let mut counts: BTreeMap<Vec<String>, u32> = BTreeMap::new();
    for place in one.domains.into_iter().chain(other.domains) {
        *counts.entry(place.values).or_default() += place.count;
    }
    let domains = counts.into_iter().map(|(values, count)| Place { values, count }).collect();
    Placement { levels: one.levels, domains }
}
