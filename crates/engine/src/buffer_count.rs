//! The count of Metal buffers, which the system limits: freed ones are given back first, then no new requests are admitted.
//!
//! Metal ends a process's allocations at some number of buffers (499,000 by default), whatever their bytes, and MLX keeps freed
//! buffers for reuse: steps of ever new shapes add ever new sizes. The count is that of MLX's allocator, so weights, KV
//! pools, results and kept buffers are all in it.
//!
//! Invariant: pure but for [`MlxBuffers`].

use serde::{Deserialize, Serialize};

/// Parts of the limit above which kept buffers are given back: one in so many.
const GIVE_BACK_PART: u64 = 4;
/// New buffers since the last time, as a part of the limit, before they are given back again: what is in use cannot be.
const AGAIN_PART: u64 = 8;
/// Parts of the limit above which new requests are refused.
const REFUSE_PART: u64 = 2;

/// The buffers of Metal's allocator. All zero on other backends, and where they are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferStats {
    /// Buffers, those kept for reuse included.
    pub count: u64,
    /// Most that the system allows.
    pub limit: u64,
    /// How often kept buffers were given back because there were too many.
    pub cache_clears_total: u64,
}

impl BufferStats {
    /// Whether too many are in use for new requests.
    pub(crate) fn refuses_requests(&self) -> bool {
        self.limit > 0 && self.count > self.limit / REFUSE_PART
    }

    /// For `/health`; empty while there are few.
    pub(crate) fn detail(&self) -> String {
        match self.refuses_requests() {
            true => {
                format!("{} of {} Metal buffers are in use: new requests are refused", self.count, self.limit)
            }
            false => String::new(),
        }
    }
}

/// An allocator whose buffers are counted.
pub(crate) trait Buffers {
    /// How many there are, and how many the system allows. `None` where they are not counted.
    fn count(&self) -> Option<(u64, u64)>;
    /// Gives those that are kept for reuse back to the system.
    fn give_back(&mut self);
}

/// MLX's allocator.
pub(crate) struct MlxBuffers;

impl Buffers for MlxBuffers {
    fn count(&self) -> Option<(u64, u64)> {
        mlx::memory::buffer_count().map(|buffers| (buffers.count as u64, buffers.limit as u64))
    }

    fn give_back(&mut self) {
        mlx::memory::clear_cache();
    }
}

/// Keeps the count of an allocator's buffers far below the limit, between steps.
#[derive(Debug, Default)]
pub(crate) struct BufferBound {
    stats: BufferStats,
    /// What was left when kept buffers were given back last.
    left: u64,
}

impl BufferBound {
    /// Counts the buffers, and gives kept ones back where there are too many.
    pub(crate) fn hold(&mut self, buffers: &mut impl Buffers) {
        let Some((count, limit)) = buffers.count() else { return };
        (self.stats.count, self.stats.limit) = (count, limit);
        self.left = self.left.min(count);
        if count <= (limit / GIVE_BACK_PART).max(self.left + limit / AGAIN_PART) {
            return;
        }
        buffers.give_back();
        self.stats.cache_clears_total += 1;
        self.left = buffers.count().map_or(count, |(count, _)| count);
        self.stats.count = self.left;
    }

    /// The count as of the last [`Self::hold`].
    pub(crate) fn stats(&self) -> BufferStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use omnibus_core::random::Rng;

    use super::*;

    const LIMIT: u64 = 499_000;

    /// Metal's allocator on a Mac that is not there.
    struct FakeMetal {
        in_use: u64,
        kept: u64,
    }

    impl Buffers for FakeMetal {
        fn count(&self) -> Option<(u64, u64)> {
            Some((self.in_use + self.kept, LIMIT))
        }

        fn give_back(&mut self) {
            self.kept = 0;
        }
    }

    #[test]
    fn steps_of_ever_new_shapes_stay_far_below_the_limit() {
        let mut rng = Rng::new(34);
        let (mut metal, mut bound) = (FakeMetal { in_use: 900, kept: 0 }, BufferBound::default());
        let (mut most, steps) = (0, 20_000);
        for _ in 0..steps {
            metal.kept += rng.below(4_000);
            most = most.max(metal.in_use + metal.kept);
            bound.hold(&mut metal);
            assert!(!bound.stats().refuses_requests());
        }
        let clears = bound.stats().cache_clears_total;
        assert!(most <= LIMIT / 4 + 4_000, "{most}");
        assert!(clears > 100 && clears < steps / 20, "giving back is rare: {clears}");
    }

    #[test]
    fn what_is_in_use_is_not_given_back_again_and_again_and_ends_admission() {
        let (mut metal, mut bound) = (FakeMetal { in_use: 0, kept: 10_000 }, BufferBound::default());
        for _ in 0..300 {
            metal.in_use += 1_000;
            metal.kept += 10;
            bound.hold(&mut metal);
            let refuses = metal.in_use + metal.kept > LIMIT / 2;
            assert_eq!(bound.stats().refuses_requests(), refuses, "{:?}", bound.stats());
        }
        let stats = bound.stats();
        assert!(stats.refuses_requests() && stats.detail().contains("of 499000 Metal buffers"), "{stats:?}");
        assert!(stats.cache_clears_total < 10, "{stats:?}");
        metal.in_use = 1_000;
        bound.hold(&mut metal);
        assert_eq!((bound.stats().refuses_requests(), bound.stats().detail()), (false, String::new()));
    }

    #[test]
    fn without_a_count_nothing_is_done() {
        struct Uncounted;
        impl Buffers for Uncounted {
            fn count(&self) -> Option<(u64, u64)> {
                None
            }
            fn give_back(&mut self) {
                panic!("nothing is known to be too many");
            }
        }
        let mut bound = BufferBound::default();
        bound.hold(&mut Uncounted);
        assert_eq!(bound.stats(), BufferStats::default());
    }
}
