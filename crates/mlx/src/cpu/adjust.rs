//! Biases and penalties of logits.

use super::{Op, one};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use omnibus_cpu_kernels::{Adjust, Kernel};

/// The changed logits of some rows: one entry for each, a row's entries together, no token twice in a row.
#[derive(Clone, Copy, Debug)]
pub struct LogitEntries<'a> {
    /// `[rows + 1]` i32, ascending: where each row's entries start; last, their number.
    pub starts: &'a Array,
    /// `[entries]` i32. Those outside the vocabulary have no effect.
    pub tokens: &'a Array,
    /// `[entries]` f32, added first.
    pub bias: &'a Array,
    /// `[entries]` f32: then positive logits are divided by it, others multiplied (arXiv 1909.05858 §4.1).
    pub repetition: &'a Array,
    /// `[entries]` f32, subtracted last.
    pub subtract: &'a Array,
}

/// `logits` `[rows, vocab]` f32 with these entries changed.
pub fn adjust_logits(logits: &Array, entries: &LogitEntries<'_>) -> Result<Array> {
    let LogitEntries { starts, tokens, bias, repetition, subtract } = *entries;
    let inputs = [logits, starts, tokens, bias, repetition, subtract];
    let op = Op { name: "cpu::adjust_logits", inputs: &inputs };
    let &[rows, vocab] = logits.shape() else { return Err(op.fail("the logits have two axes")) };
    op.require(starts.shape() == [rows + 1], "each row has a start, and the last an end")?;
    op.require(
        starts.dtype()? == Dtype::I32 && tokens.dtype()? == Dtype::I32,
        "starts and tokens are int32",
    )?;
    let [count] = tokens.dims()?;
    for floats in [bias, repetition, subtract] {
        op.require(floats.shape() == [count] && floats.dtype()? == Dtype::F32, "an entry has three float32")?;
    }
    op.require(logits.dtype()? == Dtype::F32, "the logits are float32")?;
    let kernel = Adjust { rows: rows as usize, vocab: vocab as usize, entries: count as usize };
    one(&op, Kernel::Adjust(kernel), &inputs, logits.shape(), Dtype::F32)
}
