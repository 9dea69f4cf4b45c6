//! Packed weights as numbers, for products of so many rows that reading codes again for each tile of rows costs more.

use super::linear::{FewRowsWeight, Stored, is_half_width};
use super::plan::{Plan, dtype, int};
use super::source::{Dialect, UNPACK};
use super::weight_format::WeightFormat;
use crate::array::Array;
use crate::device;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::quant::Quantized;

/// Packed weights as bf16 or f16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpack {
    /// Of scales, biases and the result.
    pub dtype: Dtype,
    /// How the weights are stored.
    pub format: WeightFormat,
    /// Words of codes.
    pub words: i32,
}

/// Words of a thread: enough on their way at once to use the memory's bandwidth.
const WORDS_OF_THREAD: i32 = 4;

impl Unpack {
    /// Inputs: codes `[words]` u32, scales and biases `[words · 32 / bits / group]` (any array where there are none). Output:
    /// `[words · 32 / bits]`. `None` for weights that are not packed, and but for CUDA.
    pub fn plan(&self, dialect: Dialect) -> Option<Plan> {
        let group = self.format.group();
        let codes = 32 / self.format.bits();
        let numbers = self.words.checked_mul(codes)?;
        let fits = self.format != WeightFormat::Dense
            && self.words > 0
            && matches!(group, 32 | 64 | 128)
            && numbers % group == 0;
        if !fits || !is_half_width(self.dtype) || dialect != Dialect::Cuda {
            return None;
        }
        let threads = 256;
        Some(Plan {
            kernel: &UNPACK,
            constants: [
                vec![dtype("T", self.dtype), int("NT", threads), int("PER", WORDS_OF_THREAD)],
                self.format.constants().to_vec(),
            ]
            .concat(),
            groups: [(self.words - 1) / (threads * WORDS_OF_THREAD) + 1, 1, 1],
            threads,
            outputs: vec![(vec![numbers], self.dtype)],
        })
    }
}

/// Weights `[.., outputs, inputs]` as numbers of `dtype`, by our kernel; `None` where there is none for them.
pub fn unpack(packed: &Quantized, dtype: Dtype) -> Result<Option<Array>> {
    let Some(Stored { format, w, scales, biases }) = FewRowsWeight::Packed(packed).stored(dtype)? else {
        return Ok(None);
    };
    let Ok(words) = i32::try_from(w.size()) else { return Ok(None) };
    let dialect = Dialect::of(device::backend());
    let Some(plan) = dialect.and_then(|dialect| Unpack { dtype, format, words }.plan(dialect)) else {
        return Ok(None);
    };
    let numbers = plan.call(&[&w.reshape(&[-1])?, &scales.reshape(&[-1])?, &biases.reshape(&[-1])?])?.pop();
    let mut shape = w.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last *= 32 / format.bits();
    }
    numbers.ok_or_else(|| Error::new("unpacked weights"))?.reshape(&shape).map(Some)
}
