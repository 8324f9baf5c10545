//! Chance that can be repeated: SplitMix64, seeded.

/// A sequence of numbers that a seed determines.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Whether something happens that happens so many times in a thousand.
    pub(super) fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// Another sequence that this one determines.
    pub(super) fn fork(&mut self) -> Random {
        Random(self.next())
    }
}
