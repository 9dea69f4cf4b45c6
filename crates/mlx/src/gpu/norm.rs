//! Norms of rows, and residual add with a norm.

use super::elementwise::is_float;
use super::plan::{Operand, Plan, bits, dtype, int};
use super::source::{ADD_NORM, ADD_NORMED, Kernel, LAYER_NORM, NORM_COLUMNS, RMS_NORM};
use crate::dtype::Dtype;
use crate::fast::TemplateValue;

/// The widest rows that a group of threads keeps.
const WIDTH_MAX: i32 = 1 << 16;

/// How a term joins a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JoinedTerm {
    /// As it is.
    Plain,
    /// Times a factor, as the rows' dtype holds it.
    Scaled(f32),
    /// Its RMS norm with weights; what is added to the mean square.
    Normed(f32),
}

/// A sum of rows and a term, and its RMS norm.
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
    pub operand: Operand,
    /// How it joins.
    pub joined: JoinedTerm,
}

impl AddNorm {
    /// Inputs: the term and the sum before it, `[rows, width]`, the weight of the norm, and that of the term's norm `[width]` (any
    /// floats without one); outputs: the sum and its norm, `[rows, width]`. `None` for widths that are no multiple of 8, and
    /// for those of over 65,536.
    pub fn plan(&self) -> Option<Plan> {
        let (factored, factor) = match self.joined {
            JoinedTerm::Scaled(factor) => (true, factor),
            JoinedTerm::Plain | JoinedTerm::Normed(_) => (false, 1.0),
        };
        let mut plan = normed_rows(&ADD_NORM, self.dtype, [self.rows, self.width], 2)?;
        plan.constants.extend([
            bits("EPS", self.eps),
            self.operand.constant(),
            ("NORMED", TemplateValue::Bool(matches!(self.joined, JoinedTerm::Normed(_)))),
            bits("XEPS", self.term_eps().unwrap_or_default()),
            ("FACTORED", TemplateValue::Bool(factored)),
            bits("FACTOR", factor),
        ]);
        Some(plan)
    }

    /// The sum alone, of a term that is normed: inputs the term, the sum before it, and the weight of the term's norm; output the
    /// sum. `None` for other terms, too.
    pub fn plan_of_sum(&self) -> Option<Plan> {
        let eps = self.term_eps()?;
        let mut plan = normed_rows(&ADD_NORMED, self.dtype, [self.rows, self.width], 1)?;
        plan.constants.extend([bits("XEPS", eps), self.operand.constant()]);
        Some(plan)
    }

    fn term_eps(&self) -> Option<f32> {
        match self.joined {
            JoinedTerm::Normed(eps) => Some(eps),
            JoinedTerm::Plain | JoinedTerm::Scaled(_) => None,
        }
    }
}

/// The RMS norm of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// Added to the mean square.
    pub eps: f32,
    /// Rows of weights, which rows take in turn.
    pub weights: i32,
}

impl RmsNorm {
    /// Inputs: rows `[rows, width]` and weights `[weights, width]`; output `[rows, width]`. `None` for widths that are no multiple of
    /// 8, and for those of over 65,536.
    pub fn plan(&self) -> Option<Plan> {
        let plan = normed_rows(&RMS_NORM, self.dtype, [self.rows, self.width], 1);
        let mut plan = plan.filter(|_| self.weights > 0)?;
        plan.constants.extend([bits("EPS", self.eps), int("W", self.weights)]);
        Some(plan)
    }
}

/// A group of threads for each row; the kernel's other constants are missing.
fn normed_rows(
    kernel: &'static Kernel,
    element: Dtype,
    [rows, width]: [i32; 2],
    outputs: usize,
) -> Option<Plan> {
    if width % 8 != 0 || width > WIDTH_MAX || !is_float(element) {
        return None;
    }
    let simds = simds_of(width);
    let plan = Plan {
        kernel,
        constants: vec![dtype("T", element), int("H", width), int("NS", simds)],
        groups: [1, rows, 1],
        threads: simds * 32,
        outputs: vec![(vec![rows, width], element); outputs],
    };
    plan.within_grid()
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
        let mut plan = normed_rows(&LAYER_NORM, self.dtype, [self.rows, self.width], 1)?;
        plan.constants.extend([bits("EPS", self.eps), ("BIAS", TemplateValue::Bool(self.has_bias))]);
        Some(plan)
    }
}

/// The RMS norms of the first columns of rows, and of those after them: queries and keys, all heads together.
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
        Plan {
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
        }
        .within_grid()
    }
}

/// Simd groups for rows of this width.
fn simds_of(width: i32) -> i32 {
    (width / 256).clamp(4, 16)
}
