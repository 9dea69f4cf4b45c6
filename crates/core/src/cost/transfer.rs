//! How long blocks take from one place to another, learned from those that were moved.

use serde::{Deserialize, Serialize};

use super::{Moments, after, trust};
use crate::Tick;

/// A way that blocks take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// From the pools into the host's memory.
    Offload,
    /// From there back into the pools.
    Onload,
    /// From a disk into the host's memory.
    DiskRead,
}

/// How long blocks take on each way.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TransferCosts {
    /// [`Transfer::Offload`].
    #[serde(rename = "out")]
    pub offload: TransferCost,
    /// [`Transfer::Onload`].
    #[serde(rename = "back")]
    pub onload: TransferCost,
    /// [`Transfer::DiskRead`].
    #[serde(rename = "read")]
    pub disk_read: TransferCost,
}

/// `base + byte · bytes`, in microseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TransferCost {
    /// Of any move.
    pub base_us: f64,
    /// Of each byte.
    pub byte_us: f64,
    /// TransferCosts it was fitted to.
    pub samples: u64,
    /// How far off it was lately, as a share of the time taken.
    pub error_ratio: f64,
    /// What the fit remembers.
    #[serde(skip)]
    moments: Moments<2>,
}

/// What is left of an expected time each time that a move was not made for it.
const DOUBT: f64 = 0.98;

impl TransferCosts {
    fn way(&self, which: Transfer) -> &TransferCost {
        match which {
            Transfer::Offload => &self.offload,
            Transfer::Onload => &self.onload,
            Transfer::DiskRead => &self.disk_read,
        }
    }

    /// Microseconds that a move of so many bytes is expected to take. Zero for none, and while nothing is known.
    pub fn predict(&self, which: Transfer, bytes: u64) -> f64 {
        let way = self.way(which);
        if bytes == 0 { 0.0 } else { way.base_us + way.byte_us * bytes as f64 }
    }

    /// Learns from a move that took so long.
    pub(super) fn learn(&mut self, which: Transfer, bytes: u64, took: Tick) {
        if bytes == 0 {
            return;
        }
        let expected = self.predict(which, bytes);
        match which {
            Transfer::Offload => self.offload.learn(bytes, expected, took),
            Transfer::Onload => self.onload.learn(bytes, expected, took),
            Transfer::DiskRead => self.disk_read.learn(bytes, expected, took),
        }
    }

    /// A move was not made because of what it was expected to take. What is never made is never measured, so it is
    /// expected to take a little less each time, until it is tried again and the truth is back.
    pub(crate) fn doubt(&mut self) {
        for way in [&mut self.offload, &mut self.onload, &mut self.disk_read] {
            (way.base_us, way.byte_us) = (way.base_us * DOUBT, way.byte_us * DOUBT);
        }
    }

    /// How far off predictions are lately: of all ways, the worst.
    pub fn error_ratio(&self) -> f64 {
        [&self.offload, &self.onload, &self.disk_read]
            .into_iter()
            .map(|way| way.error_ratio)
            .fold(0.0, f64::max)
    }
}

impl TransferCost {
    fn learn(&mut self, bytes: u64, expected: f64, took: Tick) {
        let took = (took as f64).max(1.0);
        let off = (expected - took).abs() / took;
        let weight = trust(self.samples, self.error_ratio, off) / (took * took);
        self.error_ratio = after(self.samples, self.error_ratio, off);
        self.samples += 1;
        self.moments.add([bytes as f64, 1.0], took, weight);
        // One measurement is explained by its bytes: a larger one is then expected to cost more than it will, not less.
        let mut found = [self.byte_us, self.base_us];
        self.moments.settle(&mut found);
        [self.byte_us, self.base_us] = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(moves: &mut TransferCosts, times: usize, byte_ns: u64) {
        for at in 0..times as u64 {
            let bytes = (1 + at * 7 % 10) * 1_000_000;
            moves.learn(Transfer::Offload, bytes, 200 + bytes * byte_ns / 1000);
        }
    }

    #[test]
    fn bytes_are_priced_as_measured_and_by_way() {
        let mut moves = TransferCosts::default();
        assert_eq!(moves.predict(Transfer::Offload, 1_000_000), 0.0, "nothing is known");
        measure(&mut moves, 50, 1);
        let expected = moves.predict(Transfer::Offload, 5_000_000);
        assert!((expected / 5_200.0 - 1.0).abs() < 0.05, "{moves:?}");
        assert!(moves.error_ratio() < 0.1, "{moves:?}");
        assert_eq!(moves.predict(Transfer::Onload, 1_000_000), 0.0);
        assert_eq!(moves.predict(Transfer::Offload, 0), 0.0);
    }

    #[test]
    fn what_is_not_tried_is_believed_less_until_it_is() {
        let mut moves = TransferCosts::default();
        measure(&mut moves, 50, 1);
        let known = moves.predict(Transfer::Offload, 5_000_000);
        (0..40).for_each(|_| moves.doubt());
        assert!(moves.predict(Transfer::Offload, 5_000_000) < 0.5 * known);
        measure(&mut moves, 3, 1);
        assert!((moves.predict(Transfer::Offload, 5_000_000) / known - 1.0).abs() < 0.1, "{moves:?}");
    }
}
