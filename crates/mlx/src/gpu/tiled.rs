//! Products of many rows with packed weights, by warpgroups: the rows are put into tiles before, which the memory system copies.

use super::linear::{FewRows, MatrixUnit, SHARED_MAX, Unfinished, WIDE_GROUPS_WANTED, even, units, whole};
use super::plan::{Plan, int};
use super::source::{ROW_TILES, WMM_TILED};
use super::weight_format::WeightFormat;

/// The fewest rows with weights of 4 bits, and of 8: below, making tiles costs more than they save.
const ROWS_MIN: i32 = 49;
const ROWS_MIN_OF_8_BITS: i32 = 65;
/// The most: beyond, unpacking the weights and MLX's product take as long.
const ROWS_MAX: i32 = 384;
/// Warpgroups of a group that share its rows. Measured on an H200, us of a product of 2,560 to 19,456 in 4 bits with 128 rows: 31.4
/// with three, and with 64 rows 24.9, 28.1 with four and 29.0 with two.
const WARPGROUPS: i32 = 3;
/// Tiles of 8 rows of a group: few classes, as each is compiled. A thread's sums of 24 tiles have 96 of its 168 registers.
const ROW_TILES_OF_GROUP: [i32; 5] = [8, 10, 12, 16, 24];
/// Stages of a group's rows, 128 inputs each: more are no faster.
const STAGES: i32 = 3;
const THREADS: i32 = 256;

/// How a product is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    row_blocks: i32,
    /// Tiles of 8 rows of each block.
    row_tiles: i32,
    splits: i32,
}

impl FewRows {
    /// Whether the first of [`Self::plans`] reads rows as [`Self::row_tiles`] makes them.
    pub(super) fn has_tiles(&self) -> bool {
        let least = match self.format {
            WeightFormat::Dense => return false,
            WeightFormat::Four { .. } | WeightFormat::MxFp4 => ROWS_MIN,
            WeightFormat::Eight { .. } => ROWS_MIN_OF_8_BITS,
        };
        self.unit == MatrixUnit::Warpgroup && (least..=ROWS_MAX).contains(&self.rows)
    }

    /// What puts rows `[rows, inputs]` into tiles `[inputs / 64, rows, 64]` of the same dtype, with zeros behind the last input up to a
    /// multiple of 256, for the first of [`Self::plans`]. One program for any number of rows. `None` where that reads rows as they are.
    pub fn row_tiles(&self) -> Option<Plan> {
        if !self.has_tiles() {
            return None;
        }
        let blocks = units(self.inputs) * 4;
        let chunks = (blocks * 8).checked_mul(self.rows)?;
        Some(Plan {
            kernel: &ROW_TILES,
            constants: vec![int("BITS", self.format.bits()), int("NT", THREADS)],
            groups: [(chunks - 1) / THREADS + 1, 1, 1],
            threads: THREADS,
            outputs: vec![(vec![blocks, self.rows, 64], self.dtype)],
        })
    }

    /// From [`ROWS_MIN`] rows on with packed weights.
    pub(super) fn tiled(&self) -> (Unfinished, i32) {
        let Division { row_blocks, row_tiles, splits } = self.division();
        let stage = row_tiles * 8 * 256;
        let stages = STAGES.min(SHARED_MAX / stage);
        let constants =
            vec![("MT", row_tiles), ("WN", WARPGROUPS), ("ST", stages), ("SHARED", stages * stage)];
        let (format, whole, even) = (self.format, whole(self.inputs), even(self.outputs % 2 == 0));
        let groups = [self.blocks(), splits, row_blocks];
        let simds = 4 * WARPGROUPS;
        (Unfinished { kernel: &WMM_TILED, format, whole, even, constants, groups, simds }, splits)
    }

    /// Groups that share the outputs.
    fn blocks(&self) -> i32 {
        (self.outputs + 64 * WARPGROUPS - 1) / (64 * WARPGROUPS)
    }

    /// What takes least time.
    fn division(&self) -> Division {
        let divisions = ROW_TILES_OF_GROUP.into_iter().flat_map(|row_tiles| {
            let row_blocks = (self.rows + 8 * row_tiles - 1) / (8 * row_tiles);
            let most = self.splits(
                (units(self.inputs) / 2).min(WIDE_GROUPS_WANTED / (self.blocks() * row_blocks)).min(10),
            );
            (1..=most).map(move |splits| Division { row_blocks, row_tiles, splits })
        });
        let fallback = Division { row_blocks: (self.rows + 127) / 128, row_tiles: 16, splits: 1 };
        divisions.min_by(|a, b| self.time(*a).total_cmp(&self.time(*b))).unwrap_or(fallback)
    }

    /// Estimated time on an H200, in us, by what was measured: a unit of 256 inputs takes a group 1.85, and 0.026 for each 64 outputs and
    /// tile of rows, and its start and end take 4; the parts of a split product are written and read by 3 TB/s.
    fn time(&self, division: Division) -> f64 {
        let Division { row_blocks, row_tiles, splits } = division;
        let groups = self.blocks() * row_blocks * splits;
        let waves = f64::from((groups + WIDE_GROUPS_WANTED - 1) / WIDE_GROUPS_WANTED);
        let of_group = f64::from((units(self.inputs) + splits - 1) / splits)
            * (1.85 + 0.026 * f64::from(WARPGROUPS * row_tiles))
            + 4.0;
        let parts = if splits > 1 {
            f64::from(splits) * f64::from(self.rows) * f64::from(self.outputs) * 4.0 / 3e6
        } else {
            0.0
        };
        waves * of_group + parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn divided(rows: i32, inputs: i32, outputs: i32) -> [i32; 3] {
        let product = FewRows {
            dtype: Dtype::Bf16,
            format: WeightFormat::Four { group: 64 },
            rows,
            inputs,
            outputs,
            has_bias: false,
            unit: MatrixUnit::Warpgroup,
        };
        let Division { row_blocks, row_tiles, splits } = product.division();
        [row_blocks, row_tiles, splits]
    }

    #[test]
    fn a_wave_of_groups_is_preferred() {
        // Qwen3-4B's projections: gate and up, down, output, and queries, keys and values.
        assert_eq!(divided(128, 2560, 19456), [1, 16, 1]);
        assert_eq!(divided(192, 2560, 19456), [1, 24, 1]);
        assert_eq!(divided(256, 2560, 19456), [2, 16, 1]);
        assert_eq!(divided(128, 9728, 2560)[..2], [1, 16]);
        assert_eq!(divided(65, 2560, 6144)[..2], [1, 10]);
    }

    #[test]
    fn all_rows_have_a_block() {
        for rows in ROWS_MIN..=ROWS_MAX {
            for (inputs, outputs) in [(64, 1), (2560, 19456), (9728, 2560), (704, 96)] {
                let [row_blocks, row_tiles, splits] = divided(rows, inputs, outputs);
                assert!(row_blocks * row_tiles * 8 >= rows, "{rows}");
                assert!(splits >= 1 && splits <= units(inputs), "{rows}");
            }
        }
    }
}
