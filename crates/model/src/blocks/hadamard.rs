//! Signed Walsh-Hadamard rotations, block by block: packed weights were rotated along their inputs, so rows are, too.

use mlx::{Array, Dtype, Quantized};

use crate::ops::Weight;
use crate::params::Param;

/// `signs`: one for each input, f32; `block` divides their number.
#[derive(Clone)]
pub(crate) struct HadamardRotation {
    pub(crate) signs: Param,
    pub(crate) block: i32,
}

impl HadamardRotation {
    /// Rows `[.., in]` in the basis of the weights.
    pub(crate) fn apply(&self, x: &Array) -> mlx::Result<Array> {
        self.transformed(&(x.astype(Dtype::F32)? * &self.signs))?.astype(x.dtype()?)
    }

    /// Rows of an embedding, `[T, in]`, in the basis of the stream. Packs are made for embeddings in float16.
    pub(crate) fn rows(&self, table: &Weight, tokens: &Array) -> mlx::Result<Array> {
        let rows = match table.take_rows(tokens)? {
            Weight::Dense(rows) => rows.astype(Dtype::F16)?,
            Weight::Packed(packed) => {
                let biases = packed.biases.as_ref().map(|biases| biases.astype(Dtype::F16)).transpose()?;
                let scales = packed.scales.astype(Dtype::F16)?;
                Quantized { scales, biases, ..packed }.dequantize(Dtype::F16)?
            }
        };
        (self.transformed(&rows.astype(Dtype::F32)?)? * &self.signs).astype(Dtype::F16)
    }

    fn transformed(&self, x: &Array) -> mlx::Result<Array> {
        let scale = (self.block as f32).powf(-0.5);
        x.reshape(&[-1, self.block])?.hadamard(scale)?.reshape(x.shape())
    }
}
