//! Reproducible randomness. The seed is printed; it is taken from `COUNTERSIGN_SEED` if that variable is set.

use std::{io::Write as _, time::Duration};

/// Prints a line even if the test harness captures output. The printed counts show how much a passing test covered.
pub(crate) fn say(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// SplitMix64 random number generator, which is good enough to choose moments.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(what: &str) -> Self {
        let seed = match std::env::var("COUNTERSIGN_SEED") {
            Ok(text) => text.parse().expect("COUNTERSIGN_SEED is a number"),
            Err(_) => {
                let mut bytes = [0; 4];
                getrandom::fill(&mut bytes).unwrap();
                u64::from(u32::from_le_bytes(bytes))
            }
        };
        say(&format!("{what}: COUNTERSIGN_SEED={seed}"));
        Self(seed)
    }

    /// Returns an independent generator, seeded with the next number of this one.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let range = (longest - shortest).as_millis() as usize;
        shortest + Duration::from_millis(self.below(range) as u64)
    }
}
