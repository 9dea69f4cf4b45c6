//! Passes a checkpoint's tensors to the blocks that compute with them, each once.

use std::collections::BTreeSet;

use mlx::{Array, Dtype, QuantMode, Quantized};

use super::check::{Difference, check};
use crate::blocks::{Linear, RmsNorm, SwitchLinear};
use crate::{Blueprint, Head, Kernels, LoadError, Norm, Quantization, WeightRewrite, Weights};

/// A checkpoint under the blueprint's names, cast for the kernels that run it.
pub(crate) struct Store {
    weights: Weights,
    quantization: Quantization,
    kernels: Kernels,
}

impl Store {
    /// Applies the blueprint's rewrites and checks that exactly the named tensors come out. Decides
    /// the blueprint's head where that depends on the checkpoint.
    pub(crate) fn new(
        blueprint: &mut Blueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Self, LoadError> {
        if blueprint.head == Head::OwnIfPresent {
            let present = weights.contains_key("lm_head.weight");
            blueprint.head = if present { Head::Own } else { Head::Tied };
        }
        let mut weights = weights;
        let published: BTreeSet<String> = weights.keys().cloned().collect();
        if blueprint.head == Head::Tied {
            weights = WeightRewrite::Drop { tensors: "lm_head.*".into() }.apply(weights, &published)?;
        }
        for rewrite in &blueprint.rewrites {
            weights = rewrite.apply(weights, &published)?;
        }
        check(blueprint, &quantization, &weights)?;
        Ok(Self { weights, quantization, kernels })
    }

    /// True when nothing is left to take.
    pub(crate) fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// The dtype of activations: the kernels', else the embedding's.
    pub(crate) fn activation_dtype(&self, embed: &str) -> Result<Dtype, LoadError> {
        if let Some(dtype) = self.kernels.activations() {
            return Ok(dtype);
        }
        let stored =
            self.weights.get(&format!("{embed}.scales")).or(self.weights.get(&format!("{embed}.weight")));
        match stored.map(Array::dtype).transpose()? {
            Some(dtype @ (Dtype::F16 | Dtype::Bf16 | Dtype::F32)) => Ok(dtype),
            _ => Ok(Dtype::Bf16), // Scales of the mx modes are bytes.
        }
    }

    /// A linear layer at `path`: dense or packed.
    pub(crate) fn linear(&mut self, path: &str) -> Result<Linear, LoadError> {
        let bias = self.weights.remove(&format!("{path}.bias"));
        let bias = bias.map(|bias| self.cast(bias)).transpose()?;
        let weight = self.take(&format!("{path}.weight"))?;
        match self.packed(path, weight)? {
            Ok(packed) => Ok(Linear::packed(packed, bias)),
            Err(dense) => Ok(Linear::dense(self.cast_dense(dense)?, bias)),
        }
    }

    /// Stacked experts at `path`: dense or packed.
    pub(crate) fn switch_linear(&mut self, path: &str) -> Result<SwitchLinear, LoadError> {
        let weight = self.take(&format!("{path}.weight"))?;
        match self.packed(path, weight)? {
            Ok(packed) => Ok(SwitchLinear::Packed(packed)),
            Err(dense) => Ok(SwitchLinear::Dense(self.cast_dense(dense)?)),
        }
    }

    /// A linear layer at `path` whose outputs come in another order: `rows[i]` becomes output `i`.
    pub(crate) fn linear_rows(&mut self, path: &str, rows: &[usize]) -> Result<Linear, LoadError> {
        let linear = self.linear(path)?;
        let rows: Vec<i32> = rows.iter().map(|row| *row as i32).collect();
        Ok(linear.take_rows(&Array::from_slice(&rows, &[rows.len() as i32])?)?)
    }

    /// A tensor of a recurrence, in float32 like its state.
    pub(crate) fn float(&mut self, name: &str) -> Result<Array, LoadError> {
        Ok(self.take(name)?.astype(Dtype::F32)?)
    }

    /// A depthwise convolution at `path`: weights `[conv_kernel_size, channels]` and perhaps a bias `[channels]`, float32.
    pub(crate) fn conv(&mut self, path: &str) -> Result<(Array, Option<Array>), LoadError> {
        let weight = self.float(&format!("{path}.weight"))?.squeeze(&[2])?.t()?.contiguous()?;
        let bias = self.weights.remove(&format!("{path}.bias"));
        Ok((weight, bias.map(|bias| bias.astype(Dtype::F32)).transpose()?))
    }

    /// A norm's weight, with what the norm's kind adds.
    pub(crate) fn norm(&mut self, path: &str, norm: Norm) -> Result<RmsNorm, LoadError> {
        let Norm::Rms { eps } = norm;
        let weight = self.take(&format!("{path}.weight"))?;
        Ok(RmsNorm { weight: self.cast(weight)?, eps })
    }

    /// `Ok` when the checkpoint has scales for `path`, else the weight back.
    fn packed(&mut self, path: &str, weight: Array) -> Result<Result<Quantized, Array>, LoadError> {
        let Some(scales) = self.weights.remove(&format!("{path}.scales")) else { return Ok(Err(weight)) };
        let biases = self.weights.remove(&format!("{path}.biases"));
        let Some(choice) = self.quantization.at(path) else { return Ok(Err(weight)) };
        let affine = choice.mode == QuantMode::Affine;
        let scales = if affine { self.cast(scales)? } else { scales };
        let biases = biases.map(|biases| self.cast(biases)).transpose()?;
        let (group, bits, mode) = (choice.group, choice.bits, choice.mode);
        Ok(Ok(Quantized { weight, scales, biases, group, bits, mode }))
    }

    fn take(&mut self, name: &str) -> Result<Array, LoadError> {
        let missing =
            || LoadError::Mismatch(Difference { missing: vec![name.to_owned()], ..Difference::default() });
        self.weights.remove(name).ok_or_else(missing)
    }

    /// Small tensors take the activations' dtype; packed ones keep theirs where the kernels accept any.
    fn cast(&self, tensor: Array) -> Result<Array, LoadError> {
        match self.kernels.activations() {
            Some(dtype) => Ok(tensor.astype(dtype)?),
            None => Ok(tensor),
        }
    }

    /// Dense weights stay as stored where the kernels read them so, which halves what a step reads.
    fn cast_dense(&self, tensor: Array) -> Result<Array, LoadError> {
        if self.kernels.reads_dense(tensor.dtype()?) { Ok(tensor) } else { self.cast(tensor) }
    }
}
