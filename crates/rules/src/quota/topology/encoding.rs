//! A placement as it is written in a Workload's status (TA-5).
//!
//! Thousands of nodes mostly differ by a few characters of their names. What they have in common is written once: for all
//! of them, or for neighbours whose host names start alike, whichever is shorter.

use std::collections::HashMap;

use types::kueue::{
    TopologyAssignment, TopologyAssignmentSlice, TopologyAssignmentSliceLevelIndividualValues,
    TopologyAssignmentSliceLevelValues, TopologyAssignmentSlicePodCounts,
};

use super::{HOSTNAME, Place, Placement};

/// As many domains are in a slice at most, and as many slices in an assignment: the API takes no more.
const MOST_DOMAINS: usize = 100_000;
const MOST_SLICES: usize = 1000;

/// A placement as it is written.
pub fn encode(placement: &Placement) -> TopologyAssignment {
    let Placement { levels, domains } = placement;
    let written = |runs: Vec<&[Place]>| TopologyAssignment {
        levels: levels.clone(),
        slices: runs
            .into_iter()
            .flat_map(|run| run.chunks(MOST_DOMAINS))
            .map(|places| slice(levels.len(), places))
            .collect(),
    };
    let split = written(runs(domains, &prefixes(placement)));
    if split.slices.len() <= 1 || domains.len() > MOST_DOMAINS {
        return split;
    }
    let whole = written(vec![domains]);
    let length = |written: &TopologyAssignment| {
        serde_json::to_string(written).expect("assignments have string keys").len()
    };
    if length(&whole) < length(&split) { whole } else { split }
}

/// A placement as it was written, by whatever writer; `None` if it is none.
pub fn decode(written: &TopologyAssignment) -> Option<Placement> {
    let mut domains = Vec::new();
    for slice in &written.slices {
        for index in 0..usize::try_from(slice.domain_count).ok()? {
            let values: Option<Vec<String>> = (0..written.levels.len())
                .map(|level| value_at(slice.values_per_level.get(level)?, index))
                .collect();
            let TopologyAssignmentSlicePodCounts { universal, individual } = &slice.pod_counts;
            let count = universal.or_else(|| individual.get(index).copied())?;
            domains.push(Place { values: values?, count: count.try_into().ok()? });
        }
    }
    Some(Placement { levels: written.levels.clone(), domains })
}

fn value_at(values: &TopologyAssignmentSliceLevelValues, index: usize) -> Option<String> {
    if let Some(universal) = &values.universal {
        return Some(universal.clone());
    }
    let TopologyAssignmentSliceLevelIndividualValues { prefix, suffix, roots } =
        values.individual.as_ref()?;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    Some(format!("{}{}{}", part(prefix), roots.get(index)?, part(suffix)))
}

fn slice(levels: usize, places: &[Place]) -> TopologyAssignmentSlice {
    let counts: Vec<i32> = places.iter().map(|place| place.count.try_into().unwrap_or(i32::MAX)).collect();
    let same = counts.first().copied().filter(|first| counts.iter().all(|count| count == first));
    TopologyAssignmentSlice {
        domain_count: places.len().try_into().unwrap_or(i32::MAX),
        values_per_level: (0..levels)
            .map(|level| {
                shortened(&places.iter().map(|place| place.values[level].as_str()).collect::<Vec<_>>())
            })
            .collect(),
        pod_counts: match same {
            Some(count) => {
                TopologyAssignmentSlicePodCounts { universal: Some(count), individual: Vec::new() }
            }
            None => TopologyAssignmentSlicePodCounts { universal: None, individual: counts },
        },
    }
}

/// Values without what all of them start and end with.
fn shortened(values: &[&str]) -> TopologyAssignmentSliceLevelValues {
    let Some((first, others)) = values.split_first() else {
        return TopologyAssignmentSliceLevelValues::default();
    };
    if others.iter().all(|other| other == first) {
        let universal = Some((*first).to_owned());
        return TopologyAssignmentSliceLevelValues { universal, individual: None };
    }
    // Labels are of such characters alone; whatever else is there is not cut.
    let ascii = values.iter().all(|value| value.is_ascii());
    let alike = |length: usize, same: &dyn Fn(&str, &str) -> usize| {
        if ascii { others.iter().map(|other| same(first, other)).min().unwrap_or(0).min(length) } else { 0 }
    };
    let common = |one: &mut dyn Iterator<Item = u8>, other: &mut dyn Iterator<Item = u8>| {
        one.zip(other).take_while(|(one, other)| one == other).count()
    };
    let prefix = alike(first.len(), &|one, other| common(&mut one.bytes(), &mut other.bytes()));
    let suffix = alike(first.len(), &|one, other| common(&mut one.bytes().rev(), &mut other.bytes().rev()));
    let shortest = values.iter().map(|value| value.len()).min().unwrap_or(0);
    // What is in the middle of the shortest value is not cut off twice.
    let prefix = prefix.min(shortest - suffix);
    let part = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let individual = TopologyAssignmentSliceLevelIndividualValues {
        prefix: part(&first[..prefix]),
        suffix: part(&first[first.len() - suffix..]),
        roots: values.iter().map(|value| value[prefix..value.len() - suffix].to_owned()).collect(),
    };
    TopologyAssignmentSliceLevelValues { universal: None, individual: Some(individual) }
}

/// Neighbours with the same prefix; all of them if there are no prefixes.
fn runs<'a>(places: &'a [Place], prefixes: &[&str]) -> Vec<&'a [Place]> {
    if places.is_empty() || prefixes.is_empty() {
        return if places.is_empty() { Vec::new() } else { vec![places] };
    }
    let mut runs = Vec::new();
    let mut start = 0;
    for index in 1..=places.len() {
        if index == places.len() || prefixes[index] != prefixes[start] {
            runs.push(&places[start..index]);
            start = index;
        }
    }
    runs
}

/// How each host name starts: as far as to the last dash up to which another one starts alike, unless that makes more
/// slices than the API takes. Empty if it does so at any rate, or if domains are no nodes.
fn prefixes(placement: &Placement) -> Vec<&str> {
    let domains = &placement.domains;
    if domains.len() < 2 || placement.levels.last().is_none_or(|level| level != HOSTNAME) {
        return Vec::new();
    }
    let hosts: Vec<&str> = placement.hosts().collect();
    let candidates = |host: &'_ str| -> Vec<usize> {
        let dashes = host.bytes().enumerate().filter(|(_, byte)| *byte == b'-');
        dashes.map(|(at, _)| at + 1).filter(|end| *end < host.len()).collect()
    };
    let ends: Vec<Vec<usize>> = hosts.iter().map(|host| candidates(host)).collect();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (host, ends) in hosts.iter().zip(&ends) {
        for end in ends {
            *seen.entry(&host[..*end]).or_default() += 1;
        }
    }
    let deepest = ends.iter().map(Vec::len).max().unwrap_or(0);
    for depth in (1..=deepest).rev() {
        let longest = |(host, ends): (&&'_ str, &Vec<usize>)| -> usize {
            let reused = ends.iter().take(depth).rev().find(|end| seen[&host[..**end]] > 1);
            reused.copied().unwrap_or(0)
        };
        let prefixes: Vec<&str> =
            hosts.iter().zip(&ends).map(|(host, ends)| &host[..longest((host, ends))]).collect();
        let slices: usize = runs(domains, &prefixes).iter().map(|run| run.len().div_ceil(MOST_DOMAINS)).sum();
        if slices <= MOST_SLICES {
            return prefixes;
        }
    }
    Vec::new()
}
