//! Which items of a list stand there again. Lists are as long as whoever sends them likes, so that nothing may look back over
//! all of a list at each of its items.

use std::collections::BTreeSet;

/// For each item whether one before it has the same key.
pub fn repeated<T, K: Ord>(items: impl IntoIterator<Item = T>, key: impl FnMut(T) -> K) -> Vec<bool> {
    let mut seen = BTreeSet::new();
    items.into_iter().map(key).map(|key| !seen.insert(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_again() {
        assert_eq!(repeated(["a", "b", "a", "a"], |item| item), [false, false, true, true]);
        assert_eq!(repeated([1, 2, 3], |item| item % 2), [false, false, true]);
    }
}
