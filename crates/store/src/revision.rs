//! The counter that orders all changes of a store.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// The number of a change, and the name of the state that it led to. Every change of any object takes the next one;
/// none is ever given twice, not even across a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision of a store in which nothing ever happened.
    pub const FIRST: Revision = Revision(1);

    /// How far the counter moves ahead at each start. A crash may take changes with it that somebody has seen (relaxed
    /// ones, or all since the last sync on a disk that lies); none of their numbers may be given to another change.
    pub(crate) const LEAP: u64 = 1 << 20;

    pub(crate) fn next(self) -> Self {
        Revision(self.0 + 1)
    }

    /// How many decimal digits it prints as.
    pub(crate) fn digits(self) -> usize {
        self.0.checked_ilog10().unwrap_or(0) as usize + 1
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_printed() {
        for revision in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX].map(Revision) {
            assert_eq!(revision.digits(), revision.to_string().len(), "{revision}");
        }
    }
}
