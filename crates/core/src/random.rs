//! SplitMix64, the one generator of pseudo-random numbers: simulations, benchmarks, and the seeds that are derived from
//! a request's seed.
//!
//! Invariant: its bits never change, because they decide what a seed generates. The scheduler draws no numbers.

/// The increment of the state: 2^64 divided by the golden ratio.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// A number in `range`, both ends included.
    pub fn within(&mut self, range: std::ops::RangeInclusive<usize>) -> usize {
        range.start() + self.below((range.end() - range.start() + 1) as u64) as usize
    }

    /// A number above zero and at most one.
    pub fn unit(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number of an exponential distribution: the time to the next event of a Poisson process.
    pub fn exponential(&mut self, rate: f64) -> f64 {
        -self.unit().ln() / rate
    }

    /// A number of a log-normal distribution. Source: Box and Muller 1958.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let (radius, turn) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
        median * (sigma * radius * turn.cos()).exp()
    }

    /// True once in `chances` times on average, and never for zero.
    pub fn one_in(&mut self, chances: u64) -> bool {
        chances > 0 && self.below(chances) == 0
    }
}

/// The `n`-th number of a seed, counted from 1, without the ones before.
pub fn nth(seed: u64, n: u64) -> u64 {
    mix(seed.wrapping_add(n.wrapping_mul(INCREMENT)))
}

/// The finalizer: a bijection that changes about half of the bits when one input bit changes.
pub fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_reference() {
        // The first outputs of the C code at https://prng.di.unimi.it/splitmix64.c for the state 1234567.
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.draw(), rng.draw(), rng.draw()], expected);
        assert_eq!([1, 2, 3].map(|n| nth(1_234_567, n)), expected);
    }
}
