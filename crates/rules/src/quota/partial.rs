//! Partial admission: a Workload that does not fit at its full size may get in with fewer pods.

use super::workload::PodSet;

/// What `try_at` gives for the largest numbers of pods for which it gives anything, between the least and the full
/// size of each pod set (SC-5). Sizes shrink in proportion, and are searched by halving: `try_at` is taken to succeed
/// for every size below one that it succeeds for.
pub fn largest<R>(pod_sets: &[PodSet], mut try_at: impl FnMut(&[u32]) -> Option<R>) -> Option<R> {
    let slack: u64 = pod_sets.iter().map(|pod_set| u64::from(pod_set.slack())).sum();
    if slack == 0 {
        return None;
    }
    let shrunk = |pod_set: &PodSet, step: u64| {
        let less = u64::from(pod_set.slack()) * step / slack;
        pod_set.count - u32::try_from(less).unwrap_or(pod_set.count)
    };
    let mut best = None;
    // Of the steps from `low` to `high` that may be the smallest to succeed, `high` is past the last one.
    let (mut low, mut high) = (0, slack + 1);
    while low < high {
        let step = u64::midpoint(low, high);
        let counts: Vec<u32> = pod_sets.iter().map(|pod_set| shrunk(pod_set, step)).collect();
        match try_at(&counts) {
            Some(found) => {
                best = Some(found);
                high = step;
            }
            None => low = step + 1,
        }
    }
    best
}
