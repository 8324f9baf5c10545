//! What LocalQueues used of late, where that decides who comes first (admission fair sharing).
//!
//! Use fades: after the half-life of it, it counts half. So a LocalQueue that had much comes after others for a while, and
//! not for ever. [`super::ledger`] keeps what this is about from one moment to the next.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::SignedDuration;
use types::{Amount, Quantity};

use super::{names::ResourceName, requests::List};

/// How use is measured (the section `admissionFairSharing` of Kueue's configuration).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// After which time use counts half. With zero nothing that is over counts.
    pub half_life: SignedDuration,
    /// How often what was used is written down.
    pub interval: SignedDuration,
    /// How much a unit of each resource counts; 1 if it is not said.
    pub weights: BTreeMap<String, f64>,
}

/// How much a LocalQueue used, as one number. Who used less comes first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage(f64);

impl Usage {
    /// The number, as metrics show it.
    pub fn as_f64(self) -> f64 {
        self.0
    }
}

impl Ord for Usage {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Usage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Usage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Usage {}

impl Settings {
    /// What was used as one number (QU-20): units of all resources by their weights, divided by the weight of the
    /// LocalQueue. One that weighs nothing comes last.
    pub fn usage(&self, used: &List, weight: f64) -> Usage {
        if weight <= 0.0 {
            return Usage(f64::INFINITY);
        }
        let of = |(name, amount): (&String, &Quantity)| {
            self.weights.get(name).copied().unwrap_or(1.0) * amount.to_f64()
        };
        // Zero is added so that there is only one: a sum of nothing is -0.
        Usage((used.iter().map(of).sum::<f64>() + 0.0) / weight)
    }

    /// What counts as used after some time in which `held` was held (QU-21).
    pub fn faded(&self, before: &List, held: &List, elapsed: SignedDuration) -> List {
        if self.half_life.is_zero() {
            return List::new();
        }
        let new = self.renewed(elapsed);
        sum(&times(before, 1.0 - new), &times(held, new))
    }

    /// What a Workload counts as soon as it gets in, before it has used anything (QU-22): what it would have used until
    /// use is written down next. Without that, a LocalQueue could get in everything at once.
    pub fn penalty(&self, requests: &List) -> List {
        times(requests, self.renewed(self.interval))
    }

    /// The part of the use that is made up of the latest, after some time.
    fn renewed(&self, elapsed: SignedDuration) -> f64 {
        if self.half_life.is_zero() {
            return 0.0;
        }
        1.0 - 0.5_f64.powf(elapsed.as_secs_f64().max(0.0) / self.half_life.as_secs_f64())
    }
}

/// Amounts as quantities.
pub fn list<'a>(amounts: impl IntoIterator<Item = (&'a ResourceName, Amount)>) -> List {
    let mut list = List::new();
    for (resource, amount) in amounts {
        add(&mut list, resource.as_str(), &amount.to_quantity(resource.as_str()));
    }
    list
}

/// What two lists come to.
pub(super) fn sum(one: &List, other: &List) -> List {
    let mut sum = one.clone();
    for (resource, amount) in other {
        add(&mut sum, resource, amount);
    }
    sum
}

/// What is left of a list, without resources of which nothing is left.
pub(super) fn less(list: &List, gone: &List) -> List {
    let mut left = list.clone();
    for (resource, amount) in gone {
        add(&mut left, resource, &-amount);
    }
    left.retain(|_, amount| !amount.is_zero());
    left
}

fn add(list: &mut List, resource: &str, amount: &Quantity) {
    match list.get_mut(resource) {
        Some(sum) => *sum += amount,
        None => drop(list.insert(resource.to_owned(), amount.clone())),
    }
}

fn times(list: &List, factor: f64) -> List {
    list.iter().map(|(resource, amount)| (resource.clone(), amount.times(factor))).collect()
}
