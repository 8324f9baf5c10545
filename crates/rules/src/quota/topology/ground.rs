//! What there is in each domain, and who takes it.
//!
//! Usage of a node is kept by its host name: flavors that share nodes share what is left of them. Where the lowest level
//! is wider than a node, it is kept by flavor and domain.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use types::Amount;

use super::{HOSTNAME, Placement, Resources, add, domains::Domains, domains::Node, subtract, times};
use crate::quota::{
    config::Flavor,
    names::{FlavorName, ResourceName},
};

/// The account of a domain of the lowest level.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot(Arc<str>);

impl Spot {
    /// Its name: that of a host, where domains are nodes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The account of the domain with these labels, as the flavor knows it.
    pub(super) fn of(flavor: &FlavorName, levels: &[String], values: &[String]) -> Spot {
        match (levels.last(), values.last()) {
            (Some(level), Some(host)) if level == HOSTNAME => Spot(host.as_str().into()),
            // No label of a node has such characters.
            _ => Spot(format!("{flavor}\n{}", values.join("\n")).into()),
        }
    }
}

/// What somebody takes of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Of which.
    pub spot: Spot,
    /// How much.
    pub amount: Resources,
}

/// What pods of a pod set that got `flavors` take by their placement. `each` is what one of them asks for.
pub fn taken<'a>(
    flavors: impl IntoIterator<Item = &'a FlavorName>,
    placement: &Placement,
    each: &Resources,
) -> Vec<Taken> {
    let each = super::with_pod(each);
    let mut all: Vec<Taken> = Vec::new();
    let mut flavors: Vec<&FlavorName> = flavors.into_iter().collect();
    flavors.sort();
    flavors.dedup();
    for place in &placement.domains {
        let mut spots: Vec<Spot> =
            flavors.iter().map(|flavor| Spot::of(flavor, &placement.levels, &place.values)).collect();
        spots.dedup();
        all.extend(spots.into_iter().map(|spot| Taken { spot, amount: times(&each, place.count) }));
    }
    all
}

/// What `wanted` comes to beyond what is `held` already.
pub fn beyond(wanted: Vec<Taken>, held: &[Taken]) -> Vec<Taken> {
    let mut left: BTreeMap<Spot, Resources> = BTreeMap::new();
    for taken in wanted {
        add(left.entry(taken.spot).or_default(), &taken.amount);
    }
    for taken in held {
        if let Some(left) = left.get_mut(&taken.spot) {
            subtract(left, &taken.amount);
        }
    }
    let more = |(spot, amount): (Spot, Resources)| {
        let amount: Resources = amount.into_iter().filter(|(_, amount)| *amount > Amount::ZERO).collect();
        (!amount.is_empty()).then_some(Taken { spot, amount })
    };
    left.into_iter().filter_map(more).collect()
}

/// The domains of one flavor, and what its nodes have beside what pods take that nobody placed.
#[derive(Debug, Clone)]
pub struct Site {
    pub(super) domains: Domains,
    pub(super) flavor: Flavor,
    pub(super) topology: String,
    free: Vec<Resources>,
}

impl Site {
    /// Its domains.
    pub fn domains(&self) -> &Domains {
        &self.domains
    }

    /// Whether all domains of a placement are here.
    pub(in crate::quota) fn has_all(&self, placement: &Placement) -> bool {
        let spot = |values: &[String]| Spot::of(&self.flavor.name, &placement.levels, values);
        placement.domains.iter().all(|place| self.domains.leaf_at(&spot(&place.values)).is_some())
    }
}

/// Where pods can go, and what is taken of it.
#[derive(Debug, Clone, Default)]
pub struct Ground {
    sites: Arc<BTreeMap<FlavorName, Arc<Site>>>,
    nodes: Arc<Vec<Arc<Node>>>,
    /// What pods that were not placed by topology take of nodes.
    others: Arc<BTreeMap<String, Resources>>,
    taken: Arc<HashMap<Spot, Resources>>,
    /// What was taken before each change, while a trial runs.
    journal: Vec<(Spot, Option<Resources>)>,
    trials: usize,
}

impl Ground {
    /// The same nodes for these flavors, with nothing taken of them.
    pub(in crate::quota) fn arranged<'a>(&self, flavors: impl Iterator<Item = &'a Flavor>) -> Ground {
        let (nodes, others) = (Arc::clone(&self.nodes), Arc::clone(&self.others));
        let sites = sites(flavors, &nodes, &others);
        Ground { sites: Arc::new(sites), nodes, others, ..Ground::default() }
    }

    /// Other nodes, and other pods on them that were not placed by topology.
    pub(in crate::quota) fn settle(&mut self, nodes: Vec<Arc<Node>>, others: BTreeMap<String, Resources>) {
        let flavors: Vec<Flavor> = self.sites.values().map(|site| site.flavor.clone()).collect();
        self.sites = Arc::new(sites(flavors.iter(), &nodes, &others));
        (self.nodes, self.others) = (Arc::new(nodes), Arc::new(others));
    }

    /// What pods take of a node that were not placed by topology. Says whether that is less than before of anything.
    pub(in crate::quota) fn set_others(&mut self, node: &str, amount: Resources) -> bool {
        let before = self.others.get(node).cloned().unwrap_or_default();
        if before == amount {
            return false;
        }
        for site in Arc::make_mut(&mut self.sites).values_mut() {
            if let Some(leaf) = site.domains.leaf_of(node) {
                let free = &mut Arc::make_mut(site).free[leaf];
                add(free, &before);
                subtract(free, &amount);
            }
        }
        let freed = before.iter().any(|(name, before)| amount.get(name).is_none_or(|now| now < before));
        let others = Arc::make_mut(&mut self.others);
        if amount.is_empty() {
            others.remove(node);
        } else {
            others.insert(node.to_owned(), amount);
        }
        freed
    }

    /// Where pods of a flavor can go; `None` if it has no topology, or none that is known.
    pub fn site(&self, flavor: &FlavorName) -> Option<&Arc<Site>> {
        self.sites.get(flavor)
    }

    /// What is left of a resource in a domain of the lowest level, which may be less than nothing.
    pub(super) fn left(
        &self,
        site: &Site,
        leaf: usize,
        spot: &Spot,
        name: &ResourceName,
        empty: bool,
    ) -> Amount {
        let free = site.free[leaf].get(name).copied().unwrap_or_default();
        let taken = if empty { None } else { self.taken.get(spot).and_then(|taken| taken.get(name)) };
        free - taken.copied().unwrap_or_default()
    }

    /// Whether there is room for all of `wanted` together. Nothing fits where there is no node.
    pub(in crate::quota) fn fits(&self, flavors: &[&FlavorName], wanted: &[Taken]) -> bool {
        let mut sums: BTreeMap<&Spot, Resources> = BTreeMap::new();
        for taken in wanted {
            add(sums.entry(&taken.spot).or_default(), &taken.amount);
        }
        sums.iter().all(|(spot, amount)| {
            let mut sites = flavors.iter().filter_map(|flavor| self.sites.get(*flavor));
            sites.any(|site| {
                site.domains.leaf_at(spot).is_some_and(|leaf| {
                    amount.iter().all(|(name, amount)| {
                        *amount == Amount::ZERO || *amount <= self.left(site, leaf, spot, name, false)
                    })
                })
            })
        })
    }

    /// Books what is taken.
    pub(in crate::quota) fn take(&mut self, all: &[Taken]) {
        self.change(all, add);
    }

    /// Gives back what was taken.
    pub(in crate::quota) fn give_back(&mut self, all: &[Taken]) {
        self.change(all, subtract);
    }

    fn change(&mut self, all: &[Taken], change: impl Fn(&mut Resources, &Resources)) {
        for Taken { spot, amount } in all {
            let taken = Arc::make_mut(&mut self.taken);
            if self.trials > 0 {
                self.journal.push((spot.clone(), taken.get(spot).cloned()));
            }
            let now = taken.entry(spot.clone()).or_default();
            change(now, amount);
            if now.values().all(|amount| *amount == Amount::ZERO) {
                taken.remove(spot);
            }
        }
    }

    /// Begins a trial, and says where.
    pub(in crate::quota) fn begin(&mut self) -> usize {
        self.trials += 1;
        self.journal.len()
    }

    /// Ends the trial that began there: all is as it was.
    pub(in crate::quota) fn end(&mut self, start: usize) {
        self.trials -= 1;
        if self.journal.len() == start {
            return;
        }
        let taken = Arc::make_mut(&mut self.taken);
        for (spot, before) in self.journal.drain(start..).rev() {
            match before {
                Some(before) => taken.insert(spot, before),
                None => taken.remove(&spot),
            };
        }
    }

    /// What is taken of every domain.
    #[cfg(test)]
    pub(in crate::quota) fn all_taken(&self) -> BTreeMap<Spot, Resources> {
        self.taken.iter().map(|(spot, taken)| (spot.clone(), taken.clone())).collect()
    }
}

fn sites<'a>(
    flavors: impl Iterator<Item = &'a Flavor>,
    nodes: &[Arc<Node>],
    others: &BTreeMap<String, Resources>,
) -> BTreeMap<FlavorName, Arc<Site>> {
    let site = |flavor: &Flavor| {
        let topology = flavor.topology.as_ref().filter(|topology| !topology.levels.is_empty())?;
        let domains = Domains::new(flavor, &topology.levels, nodes);
        let mut free: Vec<Resources> = domains.leaves().map(|(_, leaf)| leaf.capacity.clone()).collect();
        for (node, amount) in others {
            if let Some(leaf) = domains.leaf_of(node) {
                subtract(&mut free[leaf], amount);
            }
        }
        let site = Site { domains, flavor: flavor.clone(), topology: topology.name.clone(), free };
        Some((flavor.name.clone(), Arc::new(site)))
    };
    flavors.filter_map(site).collect()
}
