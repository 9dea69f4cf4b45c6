//! Masks of logits.

use super::{Op, one};
use crate::{Array, Dtype, Result};
use mlx_sys::kernels::{Kernel, Mask};

/// `logits` `[rows, vocab]` f32 with −∞ where a bit of the row's mask is 0. `places`: `[rows]` i32, each row's mask, −1 for
/// none. `masks`: `[masks, words]` u32, the lowest bit of the first word for token 0; bits that are missing are 0.
pub fn mask_logits(logits: &Array, places: &Array, masks: &Array) -> Result<Array> {
    let inputs = [logits, places, masks];
    let op = Op { name: "cpu::mask_logits", inputs: &inputs };
    let &[rows, vocab] = logits.shape() else { return Err(op.fail("the logits have two axes")) };
    let &[count, words] = masks.shape() else { return Err(op.fail("the masks have two axes")) };
    op.require(places.shape() == [rows] && places.dtype()? == Dtype::I32, "each row has an int32")?;
    op.require(logits.dtype()? == Dtype::F32 && masks.dtype()? == Dtype::U32, "float32 and uint32")?;
    let kernel =
        Mask { rows: rows as usize, vocab: vocab as usize, masks: count as usize, words: words as usize };
    one(&op, Kernel::Mask(kernel), &inputs, logits.shape(), Dtype::F32)
}
