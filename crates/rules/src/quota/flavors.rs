//! Which flavor each resource of each pod set gets.

mod places;

use std::collections::{BTreeMap, BTreeSet};

use types::Amount;

use super::{
    affinity,
    config::ResourceGroup,
    considered::Considered,
    cycle::{Undeclared, World},
    fit::{Fit, Mode, Request, fit},
    names::{FlavorName, FlavorResource, PODS, ResourceName},
    placing::ToPlace,
    preempt::Preemptor,
    snapshot::Queue,
    topology::Placement,
    tree::{FrId, Tree, Use},
    why::{TopologyError, Why},
    workload::{Flavors, PodSet, PodSetAssignment, Reservation, Workload},
};

/// The flavors of a Workload, as far as they were found.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// Its pod sets, up to and including the first one that cannot be had.
    pub pod_sets: Vec<Assigned>,
    /// What all of them together would use.
    pub uses: Vec<Use>,
    /// How far up the tree the quota comes from; 0 is without borrowing.
    pub level: usize,
    /// Where the search stopped.
    pub progress: ScanProgress,
    /// The pod sets that are to be placed by topology.
    pub to_place: Vec<ToPlace>,
}

/// One pod set and its flavors.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// What it would be given.
    pub assignment: PodSetAssignment,
    /// What is contested: resources that it gets only if others leave.
    pub contested: BTreeSet<ResourceName>,
    /// Why it cannot have its flavors, or not yet, or not better ones. Empty if it simply fits.
    pub why: Vec<Why>,
    /// The flavors that were looked at and do not simply fit.
    pub considered: Vec<Considered>,
    /// Whether no flavors were found for it, or no place in them even if everybody else left.
    pub failed: bool,
    /// Why nobody can even look for a place for its pods.
    pub misplaced: Option<TopologyError>,
}

/// What it takes to admit with an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// It cannot be admitted.
    NoFit,
    /// Others have to leave first.
    Preempt,
    /// It can be admitted.
    Fit,
}

/// Where a search for flavors stopped, for the next one to go on from there (FA-9).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanProgress {
    /// For each pod set and resource the flavor that was tried last, counted in its group; `None` after the last one.
    pub tried: Vec<BTreeMap<ResourceName, Option<usize>>>,
    /// The [generation](super::snapshot::Queue::generation) of the ClusterQueue at that time.
    pub generation: u64,
    /// The scheduling cycle of that search.
    pub cycle: u64,
    /// The shape of the Workload at that time.
    pub shape: u64,
}

impl ScanProgress {
    /// Whether there are flavors that were not tried yet.
    pub fn has_more(&self) -> bool {
        self.tried.iter().flat_map(BTreeMap::values).any(Option::is_some)
    }

    /// Whether it still says something: about the same shape, and from the last cycle or with nothing freed since.
    fn is_current(&self, queue: &Queue, cycle: u64, shape: u64) -> bool {
        self.shape == shape && (cycle.saturating_sub(self.cycle) <= 1 || queue.generation <= self.generation)
    }

    fn next(&self, pod_set: usize, resource: &ResourceName) -> usize {
        let tried = self.tried.get(pod_set).and_then(|tried| tried.get(resource)).copied().flatten();
        tried.map_or(0, |index| index + 1)
    }
}

impl Assignment {
    /// What it takes to admit: the worst over all pod sets (FA-10).
    pub fn outlook(&self) -> Outlook {
        self.pod_sets.iter().map(Assigned::outlook).min().unwrap_or(Outlook::NoFit)
    }

    /// What others would have to leave.
    pub fn contested(&self, tree: &Tree) -> Vec<FrId> {
        let mut frs = BTreeSet::new();
        for pod_set in &self.pod_sets {
            for resource in &pod_set.contested {
                let flavor = pod_set.assignment.flavors[resource].clone();
                frs.extend(tree.fr(&FlavorResource { flavor, resource: resource.clone() }));
            }
        }
        frs.into_iter().collect()
    }

    /// Why it does not simply fit, in Kueue's words (FA-10). Empty if it does.
    pub fn message(&self) -> String {
        let mut parts = Vec::new();
        for pod_set in &self.pod_sets {
            let name = &pod_set.assignment.name;
            if let Some(error) = &pod_set.misplaced {
                return format!("failed to assign flavors to pod set {name}: {error}");
            }
            if !pod_set.why.is_empty() {
                let mut reasons: Vec<String> = pod_set.why.iter().map(ToString::to_string).collect();
                reasons.sort();
                parts.push(format!("couldn't assign flavors to pod set {name}: {}", reasons.join(", ")));
            }
        }
        parts.join("; ")
    }

    /// Writes down where pods go.
    pub fn set_placements(&mut self, workload: &Workload, mut placements: BTreeMap<usize, Placement>) {
        for (index, pod_set) in workload.pod_sets.iter().enumerate() {
            let mut given = self.pod_sets.iter_mut().map(|it| &mut it.assignment);
            if let Some(assignment) = given.find(|it| it.name == pod_set.name) {
                assignment.placement = placements.remove(&index);
            }
        }
    }

    /// What was given to each pod set.
    pub fn given(&self) -> Vec<PodSetAssignment> {
        self.pod_sets.iter().map(|pod_set| pod_set.assignment.clone()).collect()
    }

    /// Everything that is in the way, pod set by pod set.
    pub fn why(&self) -> impl Iterator<Item = &Why> {
        self.pod_sets.iter().flat_map(|pod_set| &pod_set.why)
    }
}

impl Assigned {
    /// Lets all that it was given depend on others leaving: quota that is there is of no use without a place.
    fn contest(&mut self) {
        self.contested = self.assignment.flavors.keys().cloned().collect();
    }

    fn outlook(&self) -> Outlook {
        if self.failed || self.misplaced.is_some() {
            Outlook::NoFit
        } else if self.contested.is_empty() {
            Outlook::Fit
        } else {
            Outlook::Preempt
        }
    }
}

/// Where a search for flavors begins.
#[derive(Debug, Clone, Copy)]
pub enum Start<'a> {
    /// After the flavor at which the last one stopped, if there was one.
    After(Option<&'a ScanProgress>),
    /// With no others than these, which were found before in the same cycle.
    With(&'a Flavors),
}

/// Looks for flavors for all pod sets, at their full size or with the given numbers of pods, and for a place in them for
/// those that are placed by topology.
pub fn assign(
    world: World<'_>,
    tree: &mut Tree,
    queue: &Queue,
    workload: &Workload,
    start: Start<'_>,
    counts: Option<&[u32]>,
) -> Assignment {
    let shape = workload.shape();
    let (progress, found) = match start {
        Start::After(progress) => (progress, None),
        Start::With(found) => (None, Some(found)),
    };
    let progress = progress.filter(|progress| progress.is_current(queue, world.at.cycle, shape));
    let mut search = Search {
        world,
        queue,
        workload,
        progress,
        found,
        replaced: queue.replaced(workload).map(|slice| &slice.reservation),
        topology_implied: queue.config.is_topology_only(|name| {
            world.snapshot.flavor(name).is_some_and(|flavor| flavor.topology.is_some())
        }),
        uses: BTreeMap::new(),
        assignment: Assignment {
            pod_sets: Vec::new(),
            uses: Vec::new(),
            level: 0,
            progress: ScanProgress {
                tried: Vec::new(),
                generation: queue.generation,
                cycle: world.at.cycle,
                shape,
            },
            to_place: Vec::new(),
        },
    };
    let all = groups(&workload.pod_sets).iter().all(|members| search.assign_group(tree, members, counts));
    if all && search.assignment.outlook() != Outlook::NoFit {
        search.place(tree);
    }
    search.assignment.uses = search.uses.into_values().collect();
    search.assignment
}

/// Pod sets that get the same flavors together, in the order of their first members.
fn groups(pod_sets: &[PodSet]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, pod_set) in pod_sets.iter().enumerate() {
        let same = |members: &&mut Vec<usize>| {
            pod_set.group.is_some() && pod_sets[members[0]].group == pod_set.group
        };
        match groups.iter_mut().find(same) {
            Some(members) => members.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

/// What a resource was given.
#[derive(Debug, Clone)]
struct Choice {
    flavor: FlavorName,
    fit: Fit,
    tried: Option<usize>,
}

type Choices = BTreeMap<ResourceName, Choice>;

/// What a search came to: what was taken, what stood in its way, and what else there was.
#[derive(Debug, Default)]
struct Found {
    choices: Choices,
    why: Vec<Why>,
    considered: Vec<Considered>,
}

type Requests = BTreeMap<ResourceName, Amount>;

struct Search<'a> {
    world: World<'a>,
    queue: &'a Queue,
    workload: &'a Workload,
    progress: Option<&'a ScanProgress>,
    /// The only flavors that are looked at.
    found: Option<&'a Flavors>,
    /// What the one holds whose place it is to take.
    replaced: Option<&'a Reservation>,
    topology_implied: bool,
    /// What the pod sets before the current one use.
    uses: BTreeMap<FrId, Use>,
    assignment: Assignment,
}

impl Search<'_> {
    /// Finds the flavors of one group of pod sets. False if there is no use in going on with the next.
    fn assign_group(&mut self, tree: &mut Tree, members: &[usize], counts: Option<&[u32]>) -> bool {
        let sized: Vec<(u32, Requests)> = members.iter().map(|&index| self.sized(index, counts)).collect();
        let mut total = Requests::new();
        for (resource, amount) in sized.iter().flat_map(|(_, requests)| requests) {
            *total.entry(resource.clone()).or_default() += *amount;
        }
        let mut found = Found::default();
        let is_found = self.choose(tree, members, &total, &mut found);
        for (&index, (count, requests)) in members.iter().zip(sized) {
            self.append(tree, index, count, &requests, is_found, &found);
        }
        is_found
    }

    /// How many pods a pod set is tried with, and what they ask for together (QM-21, QM-24).
    fn sized(&self, index: usize, counts: Option<&[u32]>) -> (u32, Requests) {
        let pod_set = &self.workload.pod_sets[index];
        let remaining = pod_set.remaining();
        let count = match counts {
            Some(counts) if remaining > 0 => counts[index],
            _ => remaining,
        };
        let mut requests: Requests = pod_set
            .requests
            .iter()
            .map(|(name, amount)| (name.clone(), amount.times(count.into())))
            .collect();
        let pods = ResourceName::from(PODS);
        if self.queue.config.group_of(&pods).is_some() {
            requests.insert(pods, Amount::new(count.into()));
        }
        (count, requests)
    }

    /// One flavor for the resources of each resource group (FA-1). False if there is none for some of them, or not yet.
    fn choose(&self, tree: &mut Tree, members: &[usize], total: &Requests, found: &mut Found) -> bool {
        for resource in in_kueues_order(total) {
            if found.choices.contains_key(resource) {
                continue;
            }
            let Some(group) = self.queue.config.group_of(resource) else {
                if total[resource] == Amount::ZERO || self.world.policy.undeclared == Undeclared::Ignore {
                    continue;
                }
                found.why = vec![Why::NotCovered(resource.clone())];
                return false;
            };
            let in_group = self.choose_in(tree, members, group, resource, total);
            found.considered.extend(in_group.considered);
            if in_group.choices.is_empty() {
                found.why = in_group.why;
                return false;
            }
            found.choices.extend(in_group.choices);
            found.why.extend(in_group.why);
        }
        true
    }

    /// The best flavor of a group, and what is wrong with it and those before it (FA-2 to FA-8).
    fn choose_in(
        &self,
        tree: &mut Tree,
        members: &[usize],
        group: &ResourceGroup,
        resource: &ResourceName,
        total: &Requests,
    ) -> Found {
        let fungibility = self.queue.config.fungibility;
        let asked: Vec<(&ResourceName, Amount)> = in_kueues_order(total)
            .into_iter()
            .filter(|name| group.covered.contains(*name))
            .map(|name| (name, total[name]))
            .collect();
        let start = self.progress.map_or(0, |progress| progress.next(members[0], resource));
        let start = if start < group.flavors.len() { start } else { 0 };
        let (mut why, mut considered) = (Vec::new(), Vec::new());
        let mut best = (Fit::WORST, Choices::new());
        let mut last = None;
        for (index, flavor) in group.flavors.iter().enumerate().skip(start) {
            last = Some(index);
            if !self.is_open(members, resource, &flavor.name) {
                continue;
            }
            if let Some(reason) = self.mismatch(members, &flavor.name, group, &asked) {
                let unfit = Fit { mode: Mode::NoFit, level: 0 };
                considered.extend(Considered::new(&flavor.name, unfit, vec![reason.clone()]));
                why.push(reason);
                continue;
            }
            let before = why.len();
            let (worst, choices) = self.try_flavor(tree, &flavor.name, &asked, &mut why);
            let level = choices.values().map(|choice| choice.fit.level).max().unwrap_or(0);
            let shown = Fit { mode: worst.mode, level };
            considered.extend(Considered::new(&flavor.name, shown, why[before..].to_vec()));
            if worst.ends_search(fungibility) {
                best = (worst, choices);
                break;
            }
            if worst.compare(best.0, fungibility.preference).is_gt() {
                best = (worst, choices);
            }
        }
        let (_, mut choices) = best;
        let tried = last.filter(|&index| index + 1 < group.flavors.len());
        for choice in choices.values_mut() {
            choice.tried = tried;
        }
        // Kueue asks the worst resource only. Where borrowing counts as worse than preemption that one may fit, while
        // another needs room made; Kueue then takes the Workload to fit, and never gets it in.
        if choices.values().all(|choice| choice.fit.mode == Mode::Fit) && !choices.is_empty() {
            why.clear();
        }
        Found { choices, why, considered }
    }

    /// Whether a flavor is among those that are looked at.
    fn is_open(&self, members: &[usize], resource: &ResourceName, flavor: &FlavorName) -> bool {
        let of = |found: &Flavors, index: usize| {
            found.get(&self.workload.pod_sets[index].name)?.get(resource).map(|found| found == flavor)
        };
        self.found.is_none_or(|found| members.iter().any(|&index| of(found, index) == Some(true)))
    }

    fn mismatch(
        &self,
        members: &[usize],
        name: &FlavorName,
        group: &ResourceGroup,
        asked: &[(&ResourceName, Amount)],
    ) -> Option<Why> {
        let Some(flavor) = self.world.snapshot.flavor(name) else {
            return Some(Why::FlavorNotFound(name.clone()));
        };
        members.iter().map(|&index| &self.workload.pod_sets[index]).find_map(|pod_set| {
            affinity::mismatch(pod_set, flavor, group, self.topology_implied)
                .or_else(|| self.other_flavor(pod_set, name, asked))
        })
    }

    /// Pods that come to others of the same Job get no other flavor than those (JF-83).
    fn other_flavor(
        &self,
        pod_set: &PodSet,
        flavor: &FlavorName,
        asked: &[(&ResourceName, Amount)],
    ) -> Option<Why> {
        let before = self.replaced?.flavors.get(&pod_set.name)?;
        let mut theirs = asked.iter().filter_map(|(resource, _)| before.get(*resource));
        let theirs = theirs.find(|theirs| *theirs != flavor)?;
        Some(Why::OtherFlavor { flavor: flavor.clone(), theirs: theirs.clone() })
    }

    /// How the resources fit into one flavor, and how the worst of them does.
    fn try_flavor(
        &self,
        tree: &mut Tree,
        flavor: &FlavorName,
        asked: &[(&ResourceName, Amount)],
        why: &mut Vec<Why>,
    ) -> (Fit, Choices) {
        let preemptor = Preemptor::new(self.queue, self.workload);
        let mut worst = Fit::BEST;
        let mut choices = Choices::new();
        for &(resource, amount) in asked {
            let fr = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
            let (fr, cell) = tree.open(self.queue.node, &fr);
            let earlier = self.uses.get(&fr).map_or(Amount::ZERO, |used| used.amount);
            let (fit, reason) = fit(self.world, tree, preemptor, Request { fr, cell, earlier, amount });
            why.extend(reason);
            if worst.compare(fit, self.queue.config.fungibility.preference).is_gt() {
                worst = fit;
            }
            choices.insert(resource.clone(), Choice { flavor: flavor.clone(), fit, tried: None });
        }
        (worst, choices)
    }

    /// Writes down what a pod set gets of its group's choices.
    fn append(
        &mut self,
        tree: &mut Tree,
        index: usize,
        count: u32,
        requests: &Requests,
        is_found: bool,
        found: &Found,
    ) {
        let pod_set = &self.workload.pod_sets[index];
        let mut assignment = PodSetAssignment {
            name: pod_set.name.clone(),
            count,
            flavors: BTreeMap::new(),
            usage: BTreeMap::new(),
            topology_pending: false,
            placement: None,
        };
        let mut contested = BTreeSet::new();
        let mut tried = BTreeMap::new();
        let choices = found.choices.iter().filter(|(name, _)| is_found && requests.contains_key(*name));
        for (resource, choice) in choices {
            let amount = requests[resource];
            let fr = FlavorResource { flavor: choice.flavor.clone(), resource: resource.clone() };
            let (fr, cell) = tree.open(self.queue.node, &fr);
            self.uses.entry(fr).or_insert(Use { fr, cell, amount: Amount::ZERO }).amount += amount;
            self.assignment.level = self.assignment.level.max(choice.fit.level);
            if choice.fit.mode != Mode::Fit {
                contested.insert(resource.clone());
            }
            tried.insert(resource.clone(), choice.tried);
            assignment.flavors.insert(resource.clone(), choice.flavor.clone());
            assignment.usage.insert(resource.clone(), amount);
        }
        // Who leads others and asks for nothing has its place in their flavor.
        if requests.is_empty() && pod_set.group.is_some() && is_found {
            let placing = found.choices.iter().filter(|(_, choice)| self.places(&choice.flavor));
            assignment.flavors.extend(placing.map(|(name, choice)| (name.clone(), choice.flavor.clone())));
        }
        self.assignment.progress.tried.push(tried);
        self.assignment.pod_sets.push(Assigned {
            assignment,
            contested,
            why: found.why.clone(),
            considered: found.considered.clone(),
            failed: !is_found,
            misplaced: None,
        });
    }
}

/// Resources in the order in which Kueue looks at them, by the FNV-1a hash of their names. It is visible: where several
/// resources fail, only the first is told.
fn in_kueues_order(requests: &Requests) -> Vec<&ResourceName> {
    let hash = |name: &ResourceName| {
        name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    let mut names: Vec<&ResourceName> = requests.keys().collect();
    names.sort_by_cached_key(|name| (hash(name), (*name).clone()));
    names
}
