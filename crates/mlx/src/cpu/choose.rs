//! Sampled tokens.

use super::{Op, one};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::Result;
use omnibus_cpu_kernels::{Choose, Kernel, Masks, Xtc};

/// Which tokens rows may choose.
#[derive(Clone, Copy, Debug)]
pub struct TokenMasks<'a> {
    /// Each row's mask, `[rows]` i32; −1 for none.
    pub places: &'a Array,
    /// `[masks, words]` u32, one bit a token, the lowest of the first word for token 0; bits that are missing are 0.
    pub masks: &'a Array,
}

/// Exclusion of rows' most likely tokens: of those above a threshold's share of what the filters keep, all but the least
/// likely one.
#[derive(Clone, Copy, Debug)]
pub struct XtcRows<'a> {
    /// `[rows]` f32; 1 for none.
    pub thresholds: &'a Array,
    /// Tokens that are never excluded, `[rows, count]` i32; −1 for none.
    pub kept: &'a Array,
}

/// One token for each row of `logits` `[rows, vocab]` f32 → `[rows]` i32, all of the vocabulary. `numbers`: `[rows, 4]` f32:
/// temperature (0 for the most likely token), `top_p`, `min_p`, and a number in [0, 1); `top_k`: `[rows]` i32, below 1
/// for all.
///
/// Of what `min_p`, `top_k` and then `top_p` keep of the softmax at the temperature, the first token in the order of ids
/// is chosen whose probability, with those before it, passes the number's share of all.
pub fn choose_tokens(
    logits: &Array,
    numbers: &Array,
    top_k: &Array,
    masks: Option<TokenMasks<'_>>,
    xtc: Option<XtcRows<'_>>,
) -> Result<Array> {
    let mut inputs = vec![logits, numbers, top_k];
    inputs.extend(masks.iter().flat_map(|masks| [masks.places, masks.masks]));
    inputs.extend(xtc.iter().flat_map(|xtc| [xtc.thresholds, xtc.kept]));
    let op = Op { name: "cpu::choose_tokens", inputs: &inputs };
    let &[rows, vocab] = logits.shape() else { return Err(op.fail("the logits have two axes")) };
    op.require(vocab > 0, "there is a vocabulary")?;
    op.require(
        numbers.shape() == [rows, 4] && top_k.shape() == [rows],
        "each row has four numbers and a top_k",
    )?;
    let floats = logits.dtype()? == Dtype::F32 && numbers.dtype()? == Dtype::F32;
    op.require(floats && top_k.dtype()? == Dtype::I32, "logits and numbers are float32, top_k is int32")?;
    let mut sizes = None;
    if let Some(TokenMasks { places, masks }) = masks {
        let &[count, words] = masks.shape() else { return Err(op.fail("the masks have two axes")) };
        let typed = places.dtype()? == Dtype::I32 && masks.dtype()? == Dtype::U32;
        op.require(places.shape() == [rows] && typed, "each row has the int32 of its uint32 mask")?;
        sizes = Some(Masks { count: count as usize, words: words as usize });
    }
    let mut kept = None;
    if let Some(XtcRows { thresholds, kept: tokens }) = xtc {
        let &[of, count] = tokens.shape() else { return Err(op.fail("the kept tokens have two axes")) };
        let typed = thresholds.dtype()? == Dtype::F32 && tokens.dtype()? == Dtype::I32;
        let sized = thresholds.shape() == [rows] && of == rows && typed;
        op.require(sized, "each row has a float32 threshold and int32 tokens")?;
        kept = Some(Xtc { kept: count as usize });
    }
    let kernel = Choose { rows: rows as usize, vocab: vocab as usize, masks: sizes, xtc: kept };
    one(&op, Kernel::Choose(kernel), &inputs, &[rows], Dtype::I32)
}
