//! Sampled tokens.

use super::plan::{Plan, int};
use super::source::CHOOSE;
use crate::{Array, Dtype, Error, Result};

/// One token of each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choose {
    /// How many rows.
    pub rows: i32,
}

/// Tokens that are looked at in threadgroup memory once so few are left.
const LIST: i32 = 2048;

impl Choose {
    /// Inputs: logits `[rows, vocab]` f32; `[rows, 4]` f32: temperature (0 for the most likely token), `top_p`, `min_p`,
    /// and a number in [0, 1); `[rows]` i32: `top_k`, below 1 for all. Output: tokens `[rows]` i32, all of the vocabulary.
    pub fn plan(&self) -> Plan {
        let simds = 16;
        Plan {
            kernel: &CHOOSE,
            constants: vec![int("NS", simds), int("CAP", LIST)],
            groups: [self.rows, 1, 1],
            threads: simds * 32,
            outputs: vec![(vec![self.rows], Dtype::I32)],
        }
    }
}

/// One token for each row of `logits` `[rows, vocab]` f32 → `[rows]` i32; see
/// [`cpu::choose_tokens`](crate::cpu::choose_tokens). Weights below 2⁻³⁰ of the largest count as nothing.
pub fn choose_tokens(logits: &Array, numbers: &Array, top_k: &Array) -> Result<Array> {
    let [rows, vocab] = logits.dims()?;
    let floats = logits.dtype()? == Dtype::F32 && numbers.dtype()? == Dtype::F32;
    if !floats || top_k.dtype()? != Dtype::I32 || numbers.shape() != [rows, 4] || top_k.shape() != [rows] {
        return Err(Error::new("gpu::choose_tokens: float32 logits, four float32 and one int32 a row"));
    }
    if rows == 0 || vocab == 0 {
        return Err(Error::new("gpu::choose_tokens: there are rows and a vocabulary"));
    }
    (Choose { rows }).plan().call(&[logits, numbers, top_k])?.pop().ok_or_else(|| Error::new("tokens"))
}
