//! The cost of transfers of blocks, learned from measured ones.

use serde::{Deserialize, Serialize};

use super::{Moments, after, trust};
use crate::request::Tick;

/// A kind of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// From the pools into host memory.
    Offload,
    /// From host memory into the pools.
    Onload,
    /// From a disk into host memory.
    DiskRead,
    /// From another replica into host memory.
    PeerRead,
    /// None: another replica computes a prompt. Its tokens take the place of bytes.
    PeerPrefill,
}

/// The cost of each kind of transfer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TransferCosts {
    /// [`Transfer::Offload`].
    pub offload: TransferCost,
    /// [`Transfer::Onload`].
    pub onload: TransferCost,
    /// [`Transfer::DiskRead`].
    pub disk_read: TransferCost,
    /// [`Transfer::PeerRead`].
    pub peer_read: TransferCost,
    /// [`Transfer::PeerPrefill`].
    pub peer_prefill: TransferCost,
}

/// `base + byte · bytes`, in microseconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TransferCost {
    /// Of any transfer.
    pub base_us: f64,
    /// Of each byte.
    pub byte_us: f64,
    /// Transfers it was fitted to.
    pub samples: u64,
    /// The recent prediction error, as a share of the time taken.
    pub error_ratio: f64,
    /// The fit's state.
    #[serde(skip)]
    moments: Moments<2>,
}

/// Decay of an expected time for each transfer that was not made because of it.
const DOUBT: f64 = 0.98;

impl TransferCosts {
    fn way(&self, which: Transfer) -> &TransferCost {
        match which {
            Transfer::Offload => &self.offload,
            Transfer::Onload => &self.onload,
            Transfer::DiskRead => &self.disk_read,
            Transfer::PeerRead => &self.peer_read,
            Transfer::PeerPrefill => &self.peer_prefill,
        }
    }

    /// Expected microseconds of a transfer. Zero for no bytes, and without measurements.
    pub fn predict(&self, which: Transfer, bytes: u64) -> f64 {
        let way = self.way(which);
        if bytes == 0 { 0.0 } else { way.base_us + way.byte_us * bytes as f64 }
    }

    /// Learns from a measured transfer.
    pub(super) fn learn(&mut self, which: Transfer, bytes: u64, took: Tick) {
        if bytes == 0 {
            return;
        }
        let expected = self.predict(which, bytes);
        match which {
            Transfer::Offload => self.offload.learn(bytes, expected, took),
            Transfer::Onload => self.onload.learn(bytes, expected, took),
            Transfer::DiskRead => self.disk_read.learn(bytes, expected, took),
            Transfer::PeerRead => self.peer_read.learn(bytes, expected, took),
            Transfer::PeerPrefill => self.peer_prefill.learn(bytes, expected, took),
        }
    }

    /// A transfer was not made because of its expected time. Without transfers there are no measurements, so the
    /// expectation decays each time, until a transfer is tried and measured again.
    pub(crate) fn doubt(&mut self) {
        let Self { offload, onload, disk_read, peer_read, peer_prefill } = self;
        for way in [offload, onload, disk_read, peer_read, peer_prefill] {
            (way.base_us, way.byte_us) = (way.base_us * DOUBT, way.byte_us * DOUBT);
        }
    }

    /// The recent prediction error: the largest of all kinds.
    pub fn error_ratio(&self) -> f64 {
        [&self.offload, &self.onload, &self.disk_read, &self.peer_read, &self.peer_prefill]
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
        // One measurement is explained by its bytes: so larger transfers are overestimated at first.
        let mut found = [self.byte_us, self.base_us];
        self.moments.fit(&mut found);
        [self.byte_us, self.base_us] = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(transfers: &mut TransferCosts, times: usize, byte_ns: u64) {
        for at in 0..times as u64 {
            let bytes = (1 + at * 7 % 10) * 1_000_000;
            transfers.learn(Transfer::Offload, bytes, 200 + bytes * byte_ns / 1000);
        }
    }

    #[test]
    fn bytes_are_priced_as_measured_and_by_way() {
        let mut transfers = TransferCosts::default();
        assert_eq!(transfers.predict(Transfer::Offload, 1_000_000), 0.0, "nothing is known");
        measure(&mut transfers, 50, 1);
        let expected = transfers.predict(Transfer::Offload, 5_000_000);
        assert!((expected / 5_200.0 - 1.0).abs() < 0.05, "{transfers:?}");
        assert!(transfers.error_ratio() < 0.1, "{transfers:?}");
        assert_eq!(transfers.predict(Transfer::Onload, 1_000_000), 0.0);
        assert_eq!(transfers.predict(Transfer::Offload, 0), 0.0);
    }

    #[test]
    fn what_is_not_tried_is_believed_less_until_it_is() {
        let mut transfers = TransferCosts::default();
        measure(&mut transfers, 50, 1);
        let known = transfers.predict(Transfer::Offload, 5_000_000);
        (0..40).for_each(|_| transfers.doubt());
        assert!(transfers.predict(Transfer::Offload, 5_000_000) < 0.5 * known);
        measure(&mut transfers, 3, 1);
        assert!((transfers.predict(Transfer::Offload, 5_000_000) / known - 1.0).abs() < 0.1, "{transfers:?}");
    }
}
