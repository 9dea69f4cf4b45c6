//! How products of up to 16 rows are shared among persistent groups of threads, which go from tile to tile of the weights'
//! rows (`wmm_flow.h`): simd groups, what they keep of `x`, and stages of their rings.
//!
//! Which way is taken for which sizes was measured on an H100, see `docs/measurements/2026-11-26-gpu-kernels.md`.

use super::weight_format::WeightFormat;

/// A product with rows for one or two instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowProduct {
    pub(super) format: WeightFormat,
    pub(super) rows: i32,
    pub(super) inputs: i32,
    pub(super) outputs: i32,
}

/// How groups compute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// Simd groups, which share the inputs.
    pub(super) simds: i32,
    /// Where a simd group has `x`.
    pub(super) x: HeldRows,
    /// Of a simd group's ring.
    pub(super) stages: i32,
    /// Groups of a multiprocessor.
    pub(super) resident: i32,
    /// Parts of the inputs, which other kernels add up.
    pub(super) splits: i32,
    /// Groups of a part.
    pub(super) groups: i32,
    /// Rows of `x` among the eight columns of an instruction.
    pub(super) columns: i32,
    /// Bytes of threadgroup memory.
    pub(super) shared: i32,
}

/// Where a simd group has its share of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldRows {
    /// In registers: of one unit of inputs.
    Registers,
    /// In threadgroup memory: of so many units.
    Shared(i32),
    /// It comes with the weights.
    Streamed,
}

/// Outputs of a tile.
pub(super) const TILE: i32 = 16;
/// Of an H100 and an H200.
const MULTIPROCESSORS: i32 = 132;
/// Threadgroup memory of a multiprocessor, and what it takes for each group beside the group's own.
const SHARED_OF_ALL: i32 = 228 << 10;
const SHARED_OF_GROUP: i32 = 1 << 10;
/// Stages of a ring: those that are on their way, one that is read, one that is free.
const STAGES_LEAST: i32 = 3;
/// Simd groups whose registers fit twice.
const SIMDS_OF_TWO: i32 = 10;
/// Simd groups of a group at most, with a unit each.
const SIMDS_MAX: i32 = 16;
/// Simd groups that have several units each.
const SIMDS_SHARING: i32 = 8;

impl FlowProduct {
    /// The first way that fits.
    pub(super) fn plan(&self) -> Option<Flow> {
        self.ways().into_iter().find_map(|(simds, x, resident, splits)| {
            let most = if self.rows <= 8 { 8 } else { 4 };
            let room = SHARED_OF_ALL / resident - SHARED_OF_GROUP;
            let columns = self.columns(x);
            let bytes = |stages| self.shared(simds, x, columns, stages);
            let stages = (STAGES_LEAST..=most).rev().find(|stages| bytes(*stages) <= room)?;
            let groups = self.tiles().min(MULTIPROCESSORS * resident / splits).max(1);
            let shared = bytes(stages);
            Some(Flow { simds, x, stages, resident, splits, groups, columns, shared })
        })
    }

    /// Simd groups, where they have `x`, groups of a multiprocessor, and splits, the best first.
    fn ways(&self) -> Vec<(i32, HeldRows, i32, i32)> {
        let units = self.units();
        let sharing = SIMDS_SHARING.min(units);
        let several = HeldRows::Shared((units + sharing - 1) / sharing);
        let streamed = (sharing, HeldRows::Streamed, 1, 1);
        let each = HeldRows::Registers;
        match (self.format, self.rows) {
            (WeightFormat::Dense, ..=8) => vec![(sharing, several, 1, 1), streamed],
            (WeightFormat::Dense, _) => vec![streamed],
            (_, ..=8) if units <= SIMDS_OF_TWO => {
                vec![(units, each, (2 * SIMDS_OF_TWO / units).clamp(2, 8), 1), (units, each, 1, 1), streamed]
            }
            (_, ..=8) if units <= SIMDS_MAX => vec![(units, each, 1, 1), streamed],
            (_, ..=8) => vec![(sharing, several, 2, 1), (sharing, several, 1, 1), streamed],
            (_, _) if units <= SIMDS_OF_TWO => {
                vec![(units, each, (SIMDS_OF_TWO / units).min(3), 1), (units, each, 1, 1), streamed]
            }
            (_, _) if units <= SIMDS_MAX && self.tiles() >= 2 * MULTIPROCESSORS => {
                vec![(units, each, 1, 1), streamed]
            }
            (_, _) if self.outputs % 8 == 0 => {
                let splits = (units + SIMDS_OF_TWO - 1) / SIMDS_OF_TWO;
                vec![((units + splits - 1) / splits, each, 1, splits), streamed]
            }
            (_, _) => vec![streamed],
        }
    }

    /// Inputs of a stage of the ring.
    fn unit(&self) -> i32 {
        if self.format == WeightFormat::Dense { 128 } else { 256 }
    }

    fn units(&self) -> i32 {
        (self.inputs + self.unit() - 1) / self.unit()
    }

    fn tiles(&self) -> i32 {
        (self.outputs + TILE - 1) / TILE
    }

    fn columns(&self, x: HeldRows) -> i32 {
        match (x, self.rows) {
            (HeldRows::Streamed, _) | (_, 5..) => 8,
            (_, 3..) => 4,
            _ => 2,
        }
    }

    /// Instructions of eight rows.
    fn row_tiles(&self) -> i32 {
        if self.rows <= 8 { 1 } else { 2 }
    }

    /// Bytes of threadgroup memory, as the kernel divides them.
    fn shared(&self, simds: i32, x: HeldRows, columns: i32, stages: i32) -> i32 {
        let (unit, bits, tiles) = (self.unit(), self.format.bits(), self.row_tiles());
        let piece = if bits == 16 || self.format.group() == 32 { 32 } else { 64 };
        let blocks = unit / (piece * (8 / columns));
        let scales = match self.format {
            WeightFormat::Dense => 0,
            WeightFormat::MxFp4 => 256 / self.format.group(),
            WeightFormat::Four { group } | WeightFormat::Eight { group } => 512 / group,
        };
        let has_biases = matches!(self.format, WeightFormat::Four { .. } | WeightFormat::Eight { .. });
        let (held, streamed, in_registers) = match x {
            HeldRows::Registers => (1, 0, true),
            HeldRows::Shared(units) => (units, 0, false),
            HeldRows::Streamed => (0, tiles * unit, true),
        };
        let stage = TILE * unit * bits / 128 + streamed + 2 * scales;
        let sums = if has_biases { simds * held * blocks * tiles * 2 } else { 0 };
        let partial = if simds > 1 { simds * tiles * columns * (TILE + 4) / 2 } else { 0 };
        let of_x = if in_registers { 0 } else { held * blocks * tiles * piece };
        16 * (simds * (stages * stage + of_x) + sums + partial)
    }
}

impl Flow {
    /// What the kernel is compiled for.
    pub(super) fn constants(&self, product: &FlowProduct) -> Vec<(&'static str, i32)> {
        let (held, kept) = match self.x {
            HeldRows::Registers => (1, 1),
            HeldRows::Shared(units) => (units, 0),
            HeldRows::Streamed => (0, 0),
        };
        vec![
            ("MT", product.row_tiles()),
            ("RT", 1),
            ("WK", self.simds),
            ("ST", self.stages),
            ("MR", self.columns),
            ("HELD", held),
            ("KEPT", kept),
            ("RESIDENT", self.resident),
            ("SHARED", self.shared),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(format: WeightFormat, rows: i32, inputs: i32, outputs: i32) -> Flow {
        FlowProduct { format, rows, inputs, outputs }.plan().unwrap()
    }

    #[test]
    fn ways_are_those_that_were_measured_best() {
        let four = WeightFormat::Four { group: 64 };
        let found = |flow: Flow| (flow.simds, flow.x, flow.stages, flow.resident, flow.splits, flow.groups);
        assert_eq!(found(flow(four, 1, 2560, 19456)), (10, HeldRows::Registers, 4, 2, 1, 264));
        assert_eq!(found(flow(four, 1, 4096, 2560)), (16, HeldRows::Registers, 6, 1, 1, 132));
        assert_eq!(found(flow(four, 1, 9728, 2560)), (8, HeldRows::Shared(5), 3, 2, 1, 160));
        assert_eq!(found(flow(four, 16, 9728, 2560)), (10, HeldRows::Registers, 4, 1, 4, 33));
        assert_eq!(found(flow(four, 16, 2560, 6144)), (10, HeldRows::Registers, 4, 1, 1, 132));
        assert_eq!(found(flow(four, 16, 1024, 6144)), (4, HeldRows::Registers, 4, 2, 1, 264));
        assert_eq!(found(flow(WeightFormat::Dense, 1, 4096, 28672)), (8, HeldRows::Shared(4), 6, 1, 1, 132));
        assert_eq!(found(flow(WeightFormat::Dense, 16, 14336, 4096)), (8, HeldRows::Streamed, 3, 1, 1, 132));
    }

    #[test]
    fn every_size_has_a_way_that_fits_and_holds_all_units() {
        let groups = [32, 64, 128];
        let packed = groups.map(|group| [WeightFormat::Four { group }, WeightFormat::Eight { group }]);
        let formats = packed.into_iter().flatten().chain([WeightFormat::MxFp4, WeightFormat::Dense]);
        for format in formats {
            for (rows, inputs) in (1..=16).flat_map(|rows| (1..600).map(move |units| (rows, units * 64))) {
                let product = FlowProduct { format, rows, inputs, outputs: 2560 };
                let flow = product.plan().unwrap();
                let parts = flow.simds * flow.splits;
                let most =
                    (0..parts).map(|at| product.units() * (at + 1) / parts - product.units() * at / parts);
                let held = match flow.x {
                    HeldRows::Registers => 1,
                    HeldRows::Shared(units) => units,
                    HeldRows::Streamed => i32::MAX,
                };
                assert!(most.max().unwrap() <= held, "{product:?}: {flow:?}");
                assert!(
                    flow.simds * flow.resident <= 32 && flow.shared <= 227 << 10,
                    "{product:?}: {flow:?}"
                );
            }
        }
    }
}
