//! Norms of rows, and residual add with a norm.

use super::elementwise::is_float;
use super::plan::{Operand, Plan, bits, dtype, int};
use super::source::{ADD_NORM, Kernel, LAYER_NORM, NORM_COLUMNS, RMS_NORM};
use crate::Dtype;
use crate::fast::TemplateValue;

/// The widest rows that a group of threads keeps.
const WIDTH_MAX: i32 = 1 << 16;

/// The RMS norm of rows, and perhaps a sum before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddNorm {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// Added to the mean square.
    pub eps: f32,
    /// How what joins the sum is stored.
    pub term: Operand,
}

impl AddNorm {
    /// Inputs `x` (the term), `r` `[rows, width]` and the weight `[width]`; outputs `sum = r + x` and its norm, `[rows, width]`.
    /// `None` for widths that are no multiple of 8, and for those of over 65,536.
    pub fn plan(&self) -> Option<Plan> {
        self.plan_of(&ADD_NORM, 2)
    }

    /// Without the sum and its term: inputs `x` and `weights` rows of weights, which rows take in turn; output the norm.
    pub fn plan_without_sum(&self, weights: i32) -> Option<Plan> {
        let mut plan = self.plan_of(&RMS_NORM, 1).filter(|_| weights > 0)?;
        plan.constants.push(int("W", weights));
        Some(plan)
    }

    fn plan_of(&self, kernel: &'static Kernel, outputs: usize) -> Option<Plan> {
        if self.width % 8 != 0 || self.width > WIDTH_MAX || !is_float(self.dtype) {
            return None;
        }
        let simds = simds_of(self.width);
        Some(Plan {
            kernel,
            constants: vec![
                dtype("T", self.dtype),
                int("H", self.width),
                int("NS", simds),
                bits("EPS", self.eps),
                self.term.constant(),
            ],
            groups: [1, self.rows, 1],
            threads: simds * 32,
            outputs: vec![(vec![self.rows, self.width], self.dtype); outputs],
        })
    }
}

/// The layer norm of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// Added to the variance.
    pub eps: f32,
    /// Whether there is a bias.
    pub has_bias: bool,
}

impl LayerNorm {
    /// Inputs: rows `[rows, width]`, weight and bias `[width]` (any floats without a bias); output `[rows, width]`. `None` for
    /// widths that are no multiple of 8, and for those of over 65,536.
    pub fn plan(&self) -> Option<Plan> {
        if self.width % 8 != 0 || self.width > WIDTH_MAX || !is_float(self.dtype) {
            return None;
        }
        let simds = simds_of(self.width);
        Some(Plan {
            kernel: &LAYER_NORM,
            constants: vec![
                dtype("T", self.dtype),
                int("H", self.width),
                int("NS", simds),
                bits("EPS", self.eps),
                ("BIAS", TemplateValue::Bool(self.has_bias)),
            ],
            groups: [1, self.rows, 1],
            threads: simds * 32,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        })
    }
}

/// The RMS norms of the first columns of rows, and of those behind them: queries and keys, all heads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormColumns {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// Columns of either norm.
    pub normed: [i32; 2],
    /// Added to the mean square.
    pub eps: f32,
    /// How the rows are stored.
    pub operand: Operand,
}

impl NormColumns {
    /// Inputs: rows `[rows, width]` and the weights of either norm; output `[rows, width]`. `None` for columns that are no
    /// multiple of 8, and for rows of over 65,536.
    pub fn plan(&self) -> Option<Plan> {
        let [first, second] = self.normed;
        let fits = self.normed.iter().all(|columns| *columns > 0 && columns % 8 == 0);
        let fits = fits && self.width % 8 == 0 && first + second <= self.width && self.width <= WIDTH_MAX;
        if !fits || !is_float(self.dtype) {
            return None;
        }
        let simds = simds_of(first.max(second));
        Some(Plan {
            kernel: &NORM_COLUMNS,
            constants: vec![
                dtype("T", self.dtype),
                int("W", self.width),
                int("QN", first),
                int("KN", second),
                int("NS", simds),
                bits("EPS", self.eps),
                self.operand.constant(),
            ],
            groups: [3, self.rows, 1],
            threads: simds * 32,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        })
    }
}

/// Simd groups for rows of this width.
fn simds_of(width: i32) -> i32 {
    (width / 256).clamp(4, 16)
}
