//! The quota tree: who has how much, who uses how much, and what is left for whom.
//!
//! ClusterQueues are the leaves and Cohorts the inner nodes of a forest. For each resource in each flavor the tree is
//! an account book of its own, so the book is kept in [cells](CellId): one per node and flavor-resource, each knowing
//! the cell of the node above. Nothing here knows Workloads, priorities or policies.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use types::Amount;

use super::{
    config::{ClusterQueue, Cohort, Quota, ResourceGroup},
    names::{ClusterQueueName, CohortName, FlavorResource, ResourceName},
    topology::Ground,
};

/// A ClusterQueue or Cohort in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// A flavor-resource that somebody has quota for or uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrId(usize);

/// The account of one flavor-resource at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(usize);

/// An amount of one flavor-resource, asked for or used at one ClusterQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Of what.
    pub fr: FrId,
    /// The ClusterQueue's account.
    pub cell: CellId,
    /// How much.
    pub amount: Amount,
}

/// How far up the tree a request has to go for its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Borrowing {
    /// The height of the lowest node in whose quota the request fits; 0 is the ClusterQueue itself.
    pub level: usize,
    /// Whether that node is less than the whole tree, so that others in the tree may hold what is its own.
    pub below_root: bool,
}

/// Quotas and usage of all ClusterQueues and Cohorts.
///
/// The quotas are shared between clones, so a clone costs one number per account.
#[derive(Debug, Clone)]
pub struct Tree {
    shape: Arc<Shape>,
    usage: Vec<Amount>,
    /// What usage was before each change, while a [trial](Tree::trial) runs.
    journal: Vec<(CellId, Amount)>,
    trials: usize,
    /// What is taken of nodes, which is booked and put back along with quota.
    ground: Ground,
}

#[derive(Debug, Clone, Default)]
struct Shape {
    nodes: Vec<Node>,
    cells: Vec<Cell>,
    frs: Vec<FlavorResource>,
    fr_ids: HashMap<FlavorResource, FrId>,
    queues: HashMap<ClusterQueueName, NodeId>,
    cohorts: HashMap<CohortName, NodeId>,
}

#[derive(Debug, Clone)]
struct Node {
    name: NodeName,
    parent: Option<NodeId>,
    child_cohorts: Vec<NodeId>,
    child_queues: Vec<NodeId>,
    height: usize,
    weight: f64,
    /// Whether the way up never ends. Such a node stands alone, and takes part in nothing.
    cyclic: bool,
    cells: BTreeMap<FrId, CellId>,
}

#[derive(Debug, Clone)]
struct Cell {
    node: NodeId,
    parent: Option<CellId>,
    quota: Quota,
    /// Whether the node or one below it has quota for this, be it zero; otherwise it is only used here, by a Workload
    /// that came in before the quota was taken away.
    listed: bool,
    /// The node's quota and what those below lend it.
    subtree: Amount,
    /// The part of `subtree` that the node above cannot see.
    local: Amount,
}

/// The name of a node of the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeName {
    /// A ClusterQueue.
    ClusterQueue(ClusterQueueName),
    /// A Cohort.
    Cohort(CohortName),
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeName::ClusterQueue(name) => write!(f, "ClusterQueue {name}"),
            NodeName::Cohort(name) => write!(f, "Cohort {name}"),
        }
    }
}

impl NodeName {
    fn as_str(&self) -> &str {
        match self {
            NodeName::ClusterQueue(name) => name.as_str(),
            NodeName::Cohort(name) => name.as_str(),
        }
    }
}

impl Tree {
    /// The tree in which nothing is used. Cohorts that are named but not given exist, without quota and parent.
    pub fn new(cohorts: &[Cohort], queues: &[ClusterQueue]) -> Tree {
        let mut shape = Shape::default();
        for cohort in cohorts {
            let id = shape.cohort(&cohort.name);
            shape.nodes[id.0].weight = cohort.weight;
            if let Some(parent) = &cohort.parent {
                let parent = shape.cohort(parent);
                shape.nodes[id.0].parent = Some(parent);
            }
        }
        for queue in queues {
            let id = shape.add_node(NodeName::ClusterQueue(queue.name.clone()));
            shape.queues.insert(queue.name.clone(), id);
            shape.nodes[id.0].weight = queue.weight;
            if let Some(cohort) = &queue.cohort {
                let parent = shape.cohort(cohort);
                shape.nodes[id.0].parent = Some(parent);
            }
        }
        shape.cut_cycles();
        for queue in queues {
            let id = shape.queues[&queue.name];
            shape.add_quotas(id, &queue.groups);
            if let Some(parent) = shape.nodes[id.0].parent
                && queue.active
            {
                shape.nodes[parent.0].child_queues.push(id);
            }
        }
        for cohort in cohorts {
            let id = shape.cohorts[&cohort.name];
            shape.add_quotas(id, &cohort.groups);
        }
        shape.add_up();
        let usage = vec![Amount::ZERO; shape.cells.len()];
        Tree { shape: Arc::new(shape), usage, journal: Vec::new(), trials: 0, ground: Ground::default() }
    }

    /// The node of a ClusterQueue.
    pub fn queue(&self, name: &ClusterQueueName) -> Option<NodeId> {
        self.shape.queues.get(name).copied()
    }

    /// The node of a Cohort, explicit or not.
    pub fn cohort(&self, name: &CohortName) -> Option<NodeId> {
        self.shape.cohorts.get(name).copied()
    }

    /// All Cohorts, those that are only named included.
    pub fn cohorts(&self) -> impl Iterator<Item = &CohortName> {
        self.shape.cohorts.keys()
    }

    /// What a node is called.
    pub fn name(&self, node: NodeId) -> &NodeName {
        &self.node(node).name
    }

    /// The weight of a node in fair sharing.
    pub fn weight(&self, node: NodeId) -> f64 {
        self.node(node).weight
    }

    /// Whether a node is, or is below, a Cohort that is its own ancestor.
    pub fn is_cyclic(&self, node: NodeId) -> bool {
        self.node(node).cyclic
    }

    /// The Cohort right above.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.node(node).parent
    }

    /// All Cohorts above, from the parent to the root.
    pub fn ancestors(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        std::iter::successors(self.parent(node), |&node| self.parent(node))
    }

    /// The topmost node of the tree that `node` is in.
    pub fn root(&self, node: NodeId) -> NodeId {
        self.ancestors(node).last().unwrap_or(node)
    }

    /// The Cohorts right below.
    pub fn child_cohorts(&self, node: NodeId) -> &[NodeId] {
        &self.node(node).child_cohorts
    }

    /// The active ClusterQueues right below.
    pub fn child_queues(&self, node: NodeId) -> &[NodeId] {
        &self.node(node).child_queues
    }

    /// The way from the root to `node`, for example `/company/team/queue`.
    pub fn path(&self, node: NodeId) -> String {
        let mut names: Vec<&str> = self.ancestors(node).map(|above| self.name(above).as_str()).collect();
        names.reverse();
        names.push(self.name(node).as_str());
        format!("/{}", names.join("/"))
    }

    /// The number of a flavor-resource, if anybody has quota for it or uses it.
    pub fn fr(&self, fr: &FlavorResource) -> Option<FrId> {
        self.shape.fr_ids.get(fr).copied()
    }

    /// What a number stands for.
    pub fn flavor_resource(&self, fr: FrId) -> &FlavorResource {
        &self.shape.frs[fr.0]
    }

    /// The account of `fr` at `node`.
    pub fn cell(&self, node: NodeId, fr: FrId) -> Option<CellId> {
        self.node(node).cells.get(&fr).copied()
    }

    /// The accounts at `node` for which there is quota in it or below it.
    pub fn listed(&self, node: NodeId) -> impl Iterator<Item = (FrId, CellId)> {
        self.node(node).cells.iter().map(|(&fr, &cell)| (fr, cell)).filter(|&(_, cell)| self.at(cell).listed)
    }

    /// The account of `fr` at `node`, opened if need be. A Workload keeps what it was given even where the quota for
    /// it is gone, and counts against the Cohorts above.
    pub fn open(&mut self, node: NodeId, fr: &FlavorResource) -> (FrId, CellId) {
        if let Some(fr) = self.fr(fr)
            && let Some(cell) = self.cell(node, fr)
        {
            return (fr, cell);
        }
        let shape = Arc::make_mut(&mut self.shape);
        let fr = shape.intern(fr);
        let mut below = shape.add_cell(node, fr);
        let mut above = shape.nodes[node.0].parent;
        let opened = below;
        while let Some(node) = above {
            if let Some(&cell) = shape.nodes[node.0].cells.get(&fr) {
                shape.cells[below.0].parent = Some(cell);
                break;
            }
            let cell = shape.add_cell(node, fr);
            shape.cells[below.0].parent = Some(cell);
            below = cell;
            above = shape.nodes[node.0].parent;
        }
        self.usage.resize(shape.cells.len(), Amount::ZERO);
        (fr, opened)
    }

    /// What is used here and counts against this node's quota.
    pub fn usage(&self, cell: CellId) -> Amount {
        self.usage[cell.0]
    }

    /// The quota given to this very node.
    pub fn quota(&self, cell: CellId) -> Quota {
        self.at(cell).quota
    }

    /// The quota of this node and what those below lend it (QM-1).
    pub fn subtree(&self, cell: CellId) -> Amount {
        self.at(cell).subtree
    }

    /// The part of [`Tree::subtree`] that is never lent to the node above (QM-2).
    pub fn local(&self, cell: CellId) -> Amount {
        self.at(cell).local
    }

    /// What is left of [`Tree::local`] (QM-3).
    pub fn local_available(&self, cell: CellId) -> Amount {
        (self.local(cell) - self.usage(cell)).or_zero()
    }

    /// What this node could still use, with what it may borrow (QM-4). Negative where more was given out than there is.
    pub fn available(&self, cell: CellId) -> Amount {
        let Some(parent) = self.at(cell).parent else {
            return self.subtree(cell) - self.usage(cell);
        };
        let mut from_above = self.available(parent);
        if let Some(most) = self.most_from_above(cell) {
            from_above = from_above.min(most);
        }
        self.local_available(cell) + from_above
    }

    /// What this node could use if nobody used anything (QM-5).
    pub fn potential(&self, cell: CellId) -> Amount {
        let Some(parent) = self.at(cell).parent else {
            return self.subtree(cell);
        };
        let most = self.local(cell) + self.potential(parent);
        match self.quota(cell).borrowing_limit {
            Some(limit) => most.min(self.subtree(cell) + limit),
            None => most,
        }
    }

    /// The node that has nothing left to give when [`Tree::available`] is not enough: the lowest one whose borrowing
    /// limit is what holds, or the root.
    pub fn bottleneck(&self, cell: CellId) -> NodeId {
        let Some(parent) = self.at(cell).parent else {
            return self.at(cell).node;
        };
        if self.most_from_above(cell).is_some_and(|most| most < self.available(parent)) {
            return self.at(cell).node;
        }
        self.bottleneck(parent)
    }

    /// What the borrowing limit lets this node still take from above.
    fn most_from_above(&self, cell: CellId) -> Option<Amount> {
        let limit = self.quota(cell).borrowing_limit?;
        let lent = self.subtree(cell) - self.local(cell);
        let taken = (self.usage(cell) - self.local(cell)).or_zero();
        Some(lent - taken + limit)
    }

    /// Whether this node uses more than its own once `more` is added (QM-9).
    pub fn borrows_with(&self, cell: CellId, more: Amount) -> bool {
        self.usage(cell) + more > self.subtree(cell)
    }

    /// Whether `node` uses no more than its own of any of `frs`.
    pub fn is_within_quota(&self, node: NodeId, frs: &[FrId]) -> bool {
        frs.iter().all(|&fr| self.cell(node, fr).is_none_or(|cell| !self.borrows_with(cell, Amount::ZERO)))
    }

    /// How far up a request of a ClusterQueue has to go (QM-11).
    pub fn borrowing(&self, cell: CellId, amount: Amount) -> Borrowing {
        let Some(mut above) = self.at(cell).parent else {
            return Borrowing { level: 0, below_root: false };
        };
        if !self.borrows_with(cell, amount) {
            return Borrowing { level: 0, below_root: true };
        }
        let mut remaining = amount - self.local_available(cell);
        loop {
            let node = self.at(above).node;
            let parent = self.at(above).parent;
            if !self.borrows_with(above, remaining) {
                return Borrowing { level: self.node(node).height, below_root: parent.is_some() };
            }
            remaining -= self.local_available(above);
            match parent {
                Some(parent) => above = parent,
                None => return Borrowing { level: self.node(node).height, below_root: false },
            }
        }
    }

    /// Whether all of `uses` fit into what their ClusterQueue could still use.
    pub fn fits(&self, uses: &[Use]) -> bool {
        uses.iter().all(|wanted| wanted.amount <= self.available(wanted.cell).or_zero())
    }

    /// Books usage at a ClusterQueue, and at the nodes above what exceeds each one's own (QM-6).
    pub fn add(&mut self, cell: CellId, amount: Amount) {
        let free = self.local_available(cell);
        self.set_usage(cell, self.usage(cell) + amount);
        if let Some(parent) = self.at(cell).parent
            && amount > free
        {
            self.add(parent, amount - free);
        }
    }

    /// Takes booked usage back (QM-6).
    pub fn remove(&mut self, cell: CellId, amount: Amount) {
        let from_above = self.usage(cell) - self.local(cell);
        self.set_usage(cell, self.usage(cell) - amount);
        if let Some(parent) = self.at(cell).parent
            && from_above > Amount::ZERO
        {
            self.remove(parent, amount.min(from_above));
        }
    }

    /// Books all of `uses`.
    pub fn add_all(&mut self, uses: &[Use]) {
        for used in uses {
            self.add(used.cell, used.amount);
        }
    }

    /// Takes all of `uses` back.
    pub fn remove_all(&mut self, uses: &[Use]) {
        for used in uses {
            self.remove(used.cell, used.amount);
        }
    }

    /// Where pods can be placed, and what is taken of that.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The same, to change it.
    pub(super) fn ground_mut(&mut self) -> &mut Ground {
        &mut self.ground
    }

    /// Runs `what_if` on this tree, then puts every account back to where it was.
    pub fn trial<R>(&mut self, what_if: impl FnOnce(&mut Tree) -> R) -> R {
        let start = self.journal.len();
        let ground = self.ground.begin();
        self.trials += 1;
        let answer = what_if(self);
        self.trials -= 1;
        self.ground.end(ground);
        for (cell, before) in self.journal.drain(start..).rev() {
            self.usage[cell.0] = before;
        }
        answer
    }

    fn set_usage(&mut self, cell: CellId, amount: Amount) {
        if self.trials > 0 {
            self.journal.push((cell, self.usage[cell.0]));
        }
        self.usage[cell.0] = amount;
    }

    fn node(&self, node: NodeId) -> &Node {
        &self.shape.nodes[node.0]
    }

    fn at(&self, cell: CellId) -> &Cell {
        &self.shape.cells[cell.0]
    }
}

impl Shape {
    fn add_node(&mut self, name: NodeName) -> NodeId {
        self.nodes.push(Node {
            name,
            parent: None,
            child_cohorts: Vec::new(),
            child_queues: Vec::new(),
            height: 0,
            weight: 1.0,
            cyclic: false,
            cells: BTreeMap::new(),
        });
        NodeId(self.nodes.len() - 1)
    }

    fn cohort(&mut self, name: &CohortName) -> NodeId {
        if let Some(&id) = self.cohorts.get(name) {
            return id;
        }
        let id = self.add_node(NodeName::Cohort(name.clone()));
        self.cohorts.insert(name.clone(), id);
        id
    }

    fn intern(&mut self, fr: &FlavorResource) -> FrId {
        if let Some(&id) = self.fr_ids.get(fr) {
            return id;
        }
        let id = FrId(self.frs.len());
        self.frs.push(fr.clone());
        self.fr_ids.insert(fr.clone(), id);
        id
    }

    fn add_cell(&mut self, node: NodeId, fr: FrId) -> CellId {
        let id = CellId(self.cells.len());
        self.cells.push(Cell {
            node,
            parent: None,
            quota: Quota::default(),
            listed: false,
            subtree: Amount::ZERO,
            local: Amount::ZERO,
        });
        self.nodes[node.0].cells.insert(fr, id);
        id
    }

    fn cell_or_new(&mut self, node: NodeId, fr: FrId) -> CellId {
        match self.nodes[node.0].cells.get(&fr) {
            Some(&cell) => cell,
            None => self.add_cell(node, fr),
        }
    }

    /// Takes nodes whose way up never ends out of the tree (CO-4).
    fn cut_cycles(&mut self) {
        let ends = |mut node: usize| {
            for _ in 0..=self.nodes.len() {
                match self.nodes[node].parent {
                    Some(parent) => node = parent.0,
                    None => return true,
                }
            }
            false
        };
        let cyclic: Vec<usize> = (0..self.nodes.len()).filter(|&node| !ends(node)).collect();
        for node in cyclic {
            self.nodes[node].cyclic = true;
            self.nodes[node].parent = None;
        }
    }

    fn add_quotas(&mut self, node: NodeId, groups: &[ResourceGroup]) {
        for group in groups {
            for flavor in &group.flavors {
                let named = flavor.resources.keys().filter(|name| !group.covered.contains(*name));
                let resources: Vec<&ResourceName> = group.covered.iter().chain(named).collect();
                for resource in resources {
                    let fr = self
                        .intern(&FlavorResource { flavor: flavor.name.clone(), resource: resource.clone() });
                    let cell = self.cell_or_new(node, fr);
                    self.cells[cell.0].listed = true;
                    self.cells[cell.0].quota = flavor.resources.get(resource).copied().unwrap_or_default();
                }
            }
        }
    }

    /// Passes quotas upwards, from the lowest nodes to the roots (QM-1, QM-2), and measures heights on the way.
    fn add_up(&mut self) {
        let depth = |node: usize| {
            std::iter::successors(self.nodes[node].parent, |id| self.nodes[id.0].parent).count()
        };
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|&node| std::cmp::Reverse(depth(node)));
        for node in order {
            let parent = self.nodes[node].parent;
            if !self.nodes[node].child_queues.is_empty() {
                self.nodes[node].height = self.nodes[node].height.max(1);
            }
            if let (Some(parent), NodeName::Cohort(_)) = (parent, &self.nodes[node].name) {
                self.nodes[parent.0].child_cohorts.push(NodeId(node));
                self.nodes[parent.0].height = self.nodes[parent.0].height.max(self.nodes[node].height + 1);
            }
            let cells: Vec<(FrId, CellId)> =
                self.nodes[node].cells.iter().map(|(&fr, &cell)| (fr, cell)).collect();
            for (fr, cell) in cells {
                let Cell { quota, subtree: lent, .. } = self.cells[cell.0];
                let subtree = quota.nominal + lent;
                let local = quota.lending_limit.map_or(Amount::ZERO, |limit| (subtree - limit).or_zero());
                self.cells[cell.0].subtree = subtree;
                self.cells[cell.0].local = local;
                if let Some(parent) = parent {
                    let above = self.cell_or_new(parent, fr);
                    self.cells[above.0].listed = true;
                    self.cells[above.0].subtree += subtree - local;
                    self.cells[cell.0].parent = Some(above);
                }
            }
        }
    }
}
