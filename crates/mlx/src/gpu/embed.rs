//! Rows of a table, packed or not: embeddings.

use super::elementwise::is_float;
use super::plan::{Plan, dtype, int};
use super::source::EMBED;
use crate::dtype::Dtype;

/// How a table is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Floats.
    Float,
    /// Affine codes with scales and biases.
    Packed {
        /// Bits of a code, 4 or 8.
        bits: i32,
        /// Elements that share a scale, a multiple of 8.
        group: i32,
    },
}

/// Rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embed {
    /// Of the result.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// How the table is stored.
    pub format: TableFormat,
}

impl Embed {
    /// Inputs: row numbers `[rows]` i32, which are not checked; the table, `[.., width]` floats or codes in words; scales and
    /// biases `[.., width / group]`, any arrays of floats for a table of floats. Output `[rows, width]`. `None` for widths that
    /// are no multiple of 8 and other packings.
    pub fn plan(&self) -> Option<Plan> {
        let (bits, group) = match self.format {
            TableFormat::Float => (0, 8),
            TableFormat::Packed { bits, group } => (bits, group),
        };
        let fits = matches!(bits, 0 | 4 | 8) && group > 0 && group % 8 == 0 && self.width % group == 0;
        if !fits || self.width % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let threads = 128;
        Some(Plan {
            kernel: &EMBED,
            constants: vec![
                dtype("T", self.dtype),
                int("H", self.width),
                int("BITS", bits),
                int("GROUP", group),
                int("NT", threads),
            ],
            // CUDA has at most 65,535 groups on any axis but the first.
            groups: [self.rows, (self.width / 8 + threads - 1) / threads, 1],
            threads,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        })
    }
}
