//! Random numbers that depend on a request's seed and a position alone.

/// A number in [0, 1) for the token at a position.
pub(super) fn uniform(seed: u64, position: usize) -> f32 {
    (mix(mix(seed) ^ position as u64) >> 40) as f32 / (1u32 << 24) as f32
}

/// The first number of a seed.
pub(super) fn mix(seed: u64) -> u64 {
    omnibus_core::random::nth(seed, 1)
}
