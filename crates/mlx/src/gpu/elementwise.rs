//! Sums of rows, rows side by side, products with few outputs, and copies to the device's memory.

use super::plan::{Plan, dtype, int};
use super::source::{ADD_CHOSEN, ADD_TERM, JOIN_ROWS, NARROW, UPLOAD};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// How a term joins a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// As it is.
    Plain,
    /// Times the sigmoid of one logit of its row.
    Gated,
    /// One row for all.
    Bias,
    /// As it is, and the sum is multiplied by a number.
    Scaled,
}

/// A sum of rows and a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddTerm {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
    /// How the term joins.
    pub term: Term,
}

impl AddTerm {
    /// Inputs: the sum and the term, `[rows, width]`, a bias `[width]`, and logits `[rows, 1]` or a factor `[1]`, which may be any
    /// array where they are not read; output `[rows, width]`. `None` for widths that are no multiple of 8.
    pub fn plan(&self) -> Option<Plan> {
        if self.width % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let threads = 128;
        Plan {
            kernel: &ADD_TERM,
            constants: vec![
                dtype("T", self.dtype),
                int("H", self.width),
                int("GATE", i32::from(self.term == Term::Gated)),
                int("SCALE", i32::from(self.term == Term::Scaled)),
                int("SAME", i32::from(self.term == Term::Bias)),
                int("NT", threads),
            ],
            groups: [(self.width / 8 + threads - 1) / threads, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        }
        .within_grid()
    }
}

/// A sum of rows and the row of a table that each chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddChosen {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row.
    pub width: i32,
}

impl AddChosen {
    /// Inputs: rows `[rows, width]`, what they chose `[rows]` u32, the table `[_, width]`; output `[rows, width]`. `None` for
    /// widths that are no multiple of 8.
    pub fn plan(&self) -> Option<Plan> {
        if self.width % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let threads = 128;
        Plan {
            kernel: &ADD_CHOSEN,
            constants: vec![dtype("T", self.dtype), int("H", self.width), int("NT", threads)],
            groups: [(self.width / 8 + threads - 1) / threads, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, self.width], self.dtype)],
        }
        .within_grid()
    }
}

/// Rows of two arrays, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinRows {
    /// Of the result.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of a row of each.
    pub widths: [i32; 2],
}

impl JoinRows {
    /// Inputs: rows `[rows, width]` each, floats; output `[rows, sum of widths]`. `None` for widths that are no multiple of 8.
    pub fn plan(&self) -> Option<Plan> {
        let [first, second] = self.widths;
        if first % 8 != 0 || second % 8 != 0 || !is_float(self.dtype) {
            return None;
        }
        let (threads, width) = (128, first + second);
        Plan {
            kernel: &JOIN_ROWS,
            constants: vec![dtype("T", self.dtype), int("A", first), int("B", second), int("NT", threads)],
            groups: [(width / 8 + threads - 1) / threads, self.rows, 1],
            threads,
            outputs: vec![(vec![self.rows, width], self.dtype)],
        }
        .within_grid()
    }
}

/// A product with a dense weight of few outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// Of the rows.
    pub dtype: Dtype,
    /// How many rows.
    pub rows: i32,
    /// Elements of an input's row.
    pub inputs: i32,
    /// Elements of an output's row.
    pub outputs: i32,
}

impl Narrow {
    /// Outputs up to which a weight is narrow.
    pub const OUTPUTS_MAX: i32 = 8;

    /// Inputs `x` `[rows, inputs]` and the weight `[outputs, inputs]`; output `[rows, outputs]`. `None` for inputs that are
    /// no multiple of 8, and for more outputs.
    pub fn plan(&self) -> Option<Plan> {
        if self.inputs % 8 != 0 || self.outputs > Self::OUTPUTS_MAX || !is_float(self.dtype) {
            return None;
        }
        Plan {
            kernel: &NARROW,
            constants: vec![dtype("T", self.dtype), int("K", self.inputs), int("O", self.outputs)],
            groups: [self.outputs, self.rows, 1],
            threads: 32,
            outputs: vec![(vec![self.rows, self.outputs], self.dtype)],
        }
        .within_grid()
    }
}

/// Threads of a group that copies.
const UPLOAD_GROUP: usize = 256;

/// Numbers in the device's own memory, padded with zeros, `[n]` i32 with `n` a multiple of 256. MLX itself would leave
/// them in managed memory.
pub fn upload(values: &[i32]) -> Result<Array> {
    copy_to_device(&host_numbers(values, values.len())?)
}

/// Numbers in the host's memory, padded with zeros to `room` of them at least, `[n]` i32 with `n` a multiple of 256.
pub fn host_numbers(values: &[i32], room: usize) -> Result<Array> {
    let padded = values.len().max(room).max(1).next_multiple_of(UPLOAD_GROUP);
    let mut numbers = values.to_vec();
    numbers.resize(padded, 0);
    Array::from_slice(&numbers, &[padded as i32])
}

/// What [`host_numbers`] made, in the device's own memory.
pub fn copy_to_device(host: &Array) -> Result<Array> {
    let padded = host.size();
    let plan = Plan {
        kernel: &UPLOAD,
        constants: Vec::new(),
        groups: [(padded / UPLOAD_GROUP) as i32, 1, 1],
        threads: UPLOAD_GROUP as i32,
        outputs: vec![(vec![padded as i32], Dtype::I32)],
    };
    plan.call(&[host])?.pop().ok_or_else(|| Error::new("a copy"))
}

pub(super) fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}
