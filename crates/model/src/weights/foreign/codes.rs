//! Integers in words of 32 bits: unpacking and packing, the lowest bits first.

use mlx::{Array, Dtype, QuantMode, Quantized};

/// `[rows, words]` → `[rows, words · 32 / bits]`, float32. The result's last axis is a multiple of 32.
pub(super) fn unpack(words: &Array, bits: i32) -> mlx::Result<Array> {
    let words = words.view(Dtype::U32)?;
    let [rows, count] = words.dims()?;
    // As weights in groups of 32 with a scale of one and a bias of zero.
    let groups = [rows, count * 32 / bits / 32];
    let (scales, biases) = (Array::ones(&groups, Dtype::F32)?, Some(Array::zeros(&groups, Dtype::F32)?));
    Quantized { weight: words, scales, biases, group: 32, bits, mode: QuantMode::Affine }
        .dequantize(Dtype::F32)
}

/// `[rows, codes]` of any type → `[rows, codes · bits / 32]` u32. `bits` divides 32, and a word's codes the last axis.
pub(super) fn pack(codes: &Array, bits: i32) -> mlx::Result<Array> {
    let per_word = 32 / bits;
    let factors: Vec<u32> = (0..per_word).map(|place| 1 << (place * bits)).collect();
    let factors = Array::from_slice(&factors, &[per_word])?;
    let [rows, count] = codes.dims()?;
    let codes = codes.astype(Dtype::U32)?.reshape(&[rows, count / per_word, per_word])?;
    (codes * factors).sum(&[-1])?.astype(Dtype::U32)
}
