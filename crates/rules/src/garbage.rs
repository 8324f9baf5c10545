//! Who owns whom in a cluster, and what follows when an owner goes.
//!
//! A [`Graph`] holds what is known of every object: its owners, and whether it is being deleted and how. It is told
//! what is [seen](Graph::seen), what is [gone](Graph::gone) and what it [cannot see](Graph::lost_sight_of), and answers which objects deserve a look; a look
//! [decides](Graph::decide) one [`Step`]. Whether an owner that the graph does not know exists is for the caller to find
//! out, from the cluster itself ([`Graph::unknown_owners`]): an object is never given up on hearsay.
//!
//! Three ways of deleting an owner (X-02…X-04): in the background it goes at once and its dependents follow; in the
//! foreground those that block it go first; and orphaned dependents stay, without the reference.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

#[cfg(test)]
mod tests;

/// The finalizer of an owner that waits for its dependents to go.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents are to stay.
pub const ORPHAN: &str = "orphan";

/// So many objects that went are remembered, so that nobody asks the cluster for them.
const REMEMBERED: usize = 10_000;

/// What the graph knows of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The group of its API; empty for the core.
    pub group: String,
    /// The version under which it is watched.
    pub version: String,
    /// Its kind.
    pub kind: String,
    /// Empty if it lives in none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, by which owners are named.
    pub uid: String,
    /// What a change of it is conditional on.
    pub resource_version: String,
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl Object {
    /// What is to be known of an object of this kind; `None` if it has no uid.
    pub fn read(group: &str, version: &str, kind: &str, meta: &ObjectMeta) -> Option<Self> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(Object {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: meta.uid.clone()?,
            resource_version: text(&meta.resource_version),
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        })
    }

    fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == name)
    }

    /// Whether it is being deleted and waits for its dependents.
    pub fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    /// Whether it is being deleted and its dependents are to stay.
    pub fn lets_dependents_go(&self) -> bool {
        self.deleting && self.has_finalizer(ORPHAN)
    }

    /// Whether a reference in an object of `namespace` can mean this one: owners are in the same namespace, or in none.
    fn answers_to(&self, reference: &OwnerReference, namespace: &str) -> bool {
        let group = reference.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        self.uid == reference.uid
            && self.name == reference.name
            && self.kind == reference.kind
            && self.group == group
            && (self.namespace.is_empty() || self.namespace == namespace)
    }

    fn reference_to(&self, uid: &str) -> Option<&OwnerReference> {
        self.owners.iter().find(|owner| owner.uid == uid)
    }
}

/// What became of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It is not there, or another object has its name.
    Absent,
    /// It is there.
    Solid,
    /// It is there, and waits for its dependents to go.
    Waiting,
}

/// How the dependents of a deleted object fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// They follow it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// What to do about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Nothing,
    /// Take these owners off it, by uid: they are gone or going, others are there.
    DropOwners(Vec<String>),
    /// Delete it, if it is still as it was seen.
    Delete {
        /// How.
        policy: Policy,
        /// First let its own references block nobody: owners and dependents wait for each other.
        unblock: bool,
    },
    /// Take the finalizer [`FOREGROUND`] off: nothing that blocks it is left.
    FinishForeground,
    /// Look at these dependents first: they block it.
    WaitFor(Vec<String>),
    /// Take it off these dependents as an owner, then take the finalizer [`ORPHAN`] off it.
    Orphan(Vec<String>),
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct Graph {
    objects: BTreeMap<String, Object>,
    /// Who names an owner, by the owner's uid, whether that exists or not.
    dependents: BTreeMap<String, BTreeSet<String>>,
    /// Objects that went, and when they went, as a number that grows.
    gone: BTreeMap<String, u64>,
    gone_by_age: BTreeMap<u64, String>,
    age: u64,
}

impl Graph {
    /// An object by its uid.
    pub fn get(&self, uid: &str) -> Option<&Object> {
        self.objects.get(uid)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The uids of all objects of a kind.
    pub fn of_kind<'a>(&'a self, group: &'a str, kind: &'a str) -> impl Iterator<Item = &'a str> {
        let all = self.objects.values();
        all.filter(move |object| object.group == group && object.kind == kind).map(|object| &*object.uid)
    }

    /// Takes in an object as it was seen last, and returns whom to look at.
    pub fn seen(&mut self, object: Object) -> BTreeSet<String> {
        let mut look = BTreeSet::new();
        let uid = object.uid.clone();
        let old = self.objects.get(&uid);
        if let Some(old) = old
            && is_newer(old, &object)
        {
            return look;
        }
        // Whoever it blocked may go on.
        for reference in old.iter().flat_map(|old| &old.owners) {
            let same = object.reference_to(&reference.uid);
            if same.is_none_or(|same| same.block_owner_deletion != reference.block_owner_deletion) {
                look.extend(self.waiting(&reference.uid));
            }
        }
        if old.is_none_or(|old| old.owners != object.owners) {
            let strange = |reference: &OwnerReference| {
                let owner = self.objects.get(&reference.uid);
                owner.is_none_or(|owner| {
                    !owner.answers_to(reference, &object.namespace) || owner.waits_for_dependents()
                })
            };
            if object.owners.iter().any(strange) {
                look.insert(uid.clone());
            }
            look.extend(object.owners.iter().filter_map(|reference| self.waiting(&reference.uid)));
        }
        let began = |is: fn(&Object) -> bool| is(&object) && !old.is_some_and(is);
        if began(Object::lets_dependents_go) {
            look.insert(uid.clone());
        }
        if began(Object::waits_for_dependents) {
            look.insert(uid.clone());
            look.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
        }
        if old.is_none() {
            // Whoever named it wrongly, while nobody knew it, is to be looked at again.
            let wrong = |dependent: &&Object| {
                let references = dependent.owners.iter().filter(|reference| reference.uid == uid);
                references.clone().any(|reference| !object.answers_to(reference, &dependent.namespace))
            };
            let dependents = self.dependents.get(&uid).into_iter().flatten();
            let wrong = dependents.filter_map(|dependent| self.objects.get(dependent)).filter(wrong);
            look.extend(wrong.map(|dependent| dependent.uid.clone()));
        }
        self.link(object);
        look
    }

    /// Takes out an object that is gone, and returns whom to look at: its dependents, and owners that waited for it.
    pub fn gone(&mut self, uid: &str) -> BTreeSet<String> {
        self.remember_gone(uid);
        self.lost_sight_of(uid)
    }

    /// Takes out an object that can be watched no longer, and returns whom to look at. It may well exist: whether its
    /// dependents have an owner is for the cluster to say.
    pub fn lost_sight_of(&mut self, uid: &str) -> BTreeSet<String> {
        let Some(object) = self.objects.remove(uid) else { return BTreeSet::new() };
        self.unlink(&object);
        let mut look: BTreeSet<String> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        look.extend(object.owners.iter().filter_map(|reference| self.waiting(&reference.uid)));
        look
    }

    /// Whether the object was seen to go. Uids are never used again.
    pub fn is_known_gone(&self, uid: &str) -> bool {
        self.gone.contains_key(uid)
    }

    /// The owners of an object that the graph cannot answer for: the caller has to ask the cluster.
    pub fn unknown_owners(&self, uid: &str) -> Vec<OwnerReference> {
        let Some(object) = self.objects.get(uid).filter(|object| !object.deleting) else { return Vec::new() };
        let known = |reference: &OwnerReference| self.state(object, reference).is_some();
        object.owners.iter().filter(|reference| !known(reference)).cloned().collect()
    }

    /// Owners of an object that exist, but in another namespace: such a reference means nothing.
    pub fn owners_elsewhere(&self, uid: &str) -> Vec<OwnerReference> {
        let Some(object) = self.objects.get(uid) else { return Vec::new() };
        let elsewhere = |reference: &&OwnerReference| {
            let owner = self.objects.get(&reference.uid);
            owner.is_some_and(|owner| !owner.namespace.is_empty() && owner.namespace != object.namespace)
        };
        object.owners.iter().filter(elsewhere).cloned().collect()
    }

    /// Decides about an object. `found` says what became of its [unknown owners](Graph::unknown_owners), by uid; one that
    /// it does not name counts as there.
    pub fn decide(&self, uid: &str, found: &BTreeMap<String, Owner>) -> Step {
        let Some(object) = self.objects.get(uid) else { return Step::Nothing };
        if object.lets_dependents_go() {
            return Step::Orphan(self.dependents_of(uid).map(|dependent| dependent.uid.clone()).collect());
        }
        if object.waits_for_dependents() {
            let blocks = |dependent: &&Object| {
                let mut references = dependent.owners.iter().filter(|reference| reference.uid == uid);
                references.any(|reference| reference.block_owner_deletion == Some(true))
            };
            let blocking: Vec<&Object> = self.dependents_of(uid).filter(blocks).collect();
            if blocking.is_empty() {
                return Step::FinishForeground;
            }
            let to_delete = blocking.iter().filter(|dependent| !dependent.waits_for_dependents());
            return Step::WaitFor(to_delete.map(|dependent| dependent.uid.clone()).collect());
        }
        if object.deleting || object.owners.is_empty() {
            return Step::Nothing;
        }
        let state = |reference: &OwnerReference| {
            let found = || found.get(&reference.uid).copied();
            self.state(object, reference).or_else(found).unwrap_or(Owner::Solid)
        };
        let of = |wanted: Owner| object.owners.iter().filter(move |reference| state(reference) == wanted);
        if of(Owner::Solid).next().is_some() {
            let going: Vec<String> =
                of(Owner::Absent).chain(of(Owner::Waiting)).map(|reference| reference.uid.clone()).collect();
            return if going.is_empty() { Step::Nothing } else { Step::DropOwners(going) };
        }
        let mut dependents = self.dependents_of(uid).peekable();
        if of(Owner::Waiting).next().is_some() && dependents.peek().is_some() {
            let unblock = dependents.any(Object::waits_for_dependents);
            return Step::Delete { policy: Policy::Foreground, unblock };
        }
        let policy = if object.has_finalizer(ORPHAN) {
            Policy::Orphan
        } else if object.has_finalizer(FOREGROUND) {
            Policy::Foreground
        } else {
            Policy::Background
        };
        Step::Delete { policy, unblock: false }
    }

    /// What the graph knows about an owner; `None` if it has to be asked for.
    fn state(&self, object: &Object, reference: &OwnerReference) -> Option<Owner> {
        match self.objects.get(&reference.uid) {
            Some(owner) if owner.answers_to(reference, &object.namespace) => {
                Some(if owner.waits_for_dependents() { Owner::Waiting } else { Owner::Solid })
            }
            Some(_) => None,
            None => self.is_known_gone(&reference.uid).then_some(Owner::Absent),
        }
    }

    fn waiting(&self, uid: &str) -> Option<String> {
        self.objects.get(uid).filter(|owner| owner.waits_for_dependents()).map(|owner| owner.uid.clone())
    }

    fn dependents_of<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a Object> + use<'a> {
        let dependents = self.dependents.get(uid).into_iter().flatten();
        dependents.filter_map(|dependent| self.objects.get(dependent))
    }

    fn link(&mut self, object: Object) {
        if let Some(old) = self.objects.remove(&object.uid) {
            self.unlink(&old);
        }
        for reference in &object.owners {
            self.dependents.entry(reference.uid.clone()).or_default().insert(object.uid.clone());
        }
        self.objects.insert(object.uid.clone(), object);
    }

    fn unlink(&mut self, object: &Object) {
        for reference in &object.owners {
            if let Some(dependents) = self.dependents.get_mut(&reference.uid) {
                dependents.remove(&object.uid);
                if dependents.is_empty() {
                    self.dependents.remove(&reference.uid);
                }
            }
        }
    }

    fn remember_gone(&mut self, uid: &str) {
        if self.gone.contains_key(uid) {
            return;
        }
        self.age += 1;
        self.gone.insert(uid.to_owned(), self.age);
        self.gone_by_age.insert(self.age, uid.to_owned());
        if self.gone.len() > REMEMBERED
            && let Some((_, oldest)) = self.gone_by_age.pop_first()
        {
            self.gone.remove(&oldest);
        }
    }
}

/// Whether what is known of an object is newer than what was seen. Versions of one kind compare as numbers.
fn is_newer(known: &Object, seen: &Object) -> bool {
    let number = |object: &Object| object.resource_version.parse::<u64>().ok();
    number(known).zip(number(seen)).is_some_and(|(known, seen)| known > seen)
}
