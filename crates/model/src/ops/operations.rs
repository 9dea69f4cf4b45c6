//! Every operation: by a kernel of the backend where it has one, else by MLX.
//!
//! Invariant: the choice between the two is made here and nowhere else, but for how attention and states are found, which is
//! one [path](super::AttentionPath) for a whole model.

use std::cell::RefCell;
use std::rc::Rc;

use mlx::cpu::StoredExperts;
use mlx::{Array, Dtype, fast};

use super::mlx_ops::{self, HeadProducts};
use super::{
    AttentionCall, AttentionNeeds, CausalConv, ChosenExperts, ConvolutionCall, DeltaRows, ExpertVectors,
    GatedDeltaWeights, GroupNormWeights, Joined, LatentCall, LayerContext, LowRankLayout, LowRankStack,
    Mamba1Rows, Mamba2Weights, Term, Weight, WkvRows, WkvWeights,
};
use crate::Activation;
use crate::forward::{AttentionPath, StatePath};
use crate::kernel_choice::KernelChoice;
use crate::mixers::{DeltaAttention, GatedDelta, HeadGate, Mamba2, Mixer, WkvState};
use crate::mlps::Router;

/// The operations that a model's blocks compute with. Rows are the first axis, `[T, …]`. Clones share their choice of kernels.
#[derive(Clone)]
pub(crate) struct Ops {
    kernels: Rc<dyn KernelSet>,
    choice: Rc<RefCell<KernelChoice>>,
}

impl Ops {
    /// `kernels`: of a choice, which may change until the first step.
    pub(super) fn new<K: KernelSet + 'static>(kernels: impl FnOnce(Rc<RefCell<KernelChoice>>) -> K) -> Self {
        let choice: Rc<RefCell<KernelChoice>> = Rc::default();
        Self { kernels: Rc::new(kernels(Rc::clone(&choice))), choice }
    }

    /// Which GPU kernels are used.
    pub(crate) fn choice(&self) -> KernelChoice {
        self.choice.borrow().clone()
    }

    /// Uses these and no others.
    pub(crate) fn set_choice(&self, choice: KernelChoice) {
        self.choice.replace(choice);
    }

    /// The dtype that activations need, if any.
    pub(crate) fn activations(&self) -> Option<Dtype> {
        self.kernels.activations()
    }

    /// True when dense weights of this dtype can stay as they are stored.
    pub(crate) fn reads_dense(&self, dtype: Dtype) -> bool {
        self.kernels.reads_dense(dtype)
    }

    /// How attention finds keys and values, the same for all layers of a model.
    pub(crate) fn attention_path(&self, needs: &AttentionNeeds) -> AttentionPath {
        self.kernels.attention_path(needs)
    }

    /// How recurrences find their states, the same for all layers of a model. `mixers`: those that have a state.
    pub(crate) fn state_path(&self, mixers: &[&Mixer]) -> StatePath {
        self.kernels.state_path(mixers)
    }

    /// Whether [`Self::expert_linear`] gives zeros for experts that do not exist, without computing them.
    pub(crate) fn skips_unknown_experts(&self) -> bool {
        self.kernels.skips_unknown_experts()
    }

    /// How [`Self::add_low_rank`] has the matrices.
    pub(crate) fn low_rank_layout(&self) -> LowRankLayout {
        self.kernels.low_rank_layout()
    }

    /// `product` of rows with a weight, and the low-rank products of `x` with the matrices that each row chose. `chosen`:
    /// `[T, 1]`, or for a product with experts `[T, top_k]`; one behind the stack's changes nothing.
    pub(crate) fn add_low_rank(
        &self,
        product: Array,
        x: &Array,
        chosen: &ChosenExperts,
        stack: &LowRankStack,
    ) -> mlx::Result<Array> {
        match self.low_rank_layout() {
            LowRankLayout::InputsFirst => self.kernels.add_low_rank(product, x, chosen, stack),
            LowRankLayout::OutputsFirst => {
                stack.add_by(|x, weight| self.expert_linear(x, chosen, weight), &product, x, chosen)
            }
        }
    }

    /// What a term adds, `[T, hidden]`.
    pub(crate) fn joined(&self, term: &Term) -> mlx::Result<Array> {
        match &term.joined {
            Joined::Plain => Ok(term.rows.clone()),
            Joined::Scaled(factor) => self.scaled(&term.rows, *factor),
            Joined::Normed { weight, eps } => self.rms_norm(&term.rows, weight, *eps),
        }
    }

    /// Attention of rows to all rows of their entry, `[count, heads, len, head_dim]` each and together, without scores in
    /// memory; `None` where there is no kernel for it.
    pub(crate) fn attend_each_other(&self, qkv: [&Array; 3], scale: f32) -> mlx::Result<Option<Array>> {
        self.kernels.attend_each_other(qkv, scale)
    }
}

/// What a backend has of its own beside MLX's operations.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        fn $name:ident(&$this:ident $(, $arg:ident: $type:ty)* $(; $place:ident: $place_type:ty)?) -> $made:ty $body:block
    )*) => {
        /// The kernels of one backend. An operation gives `None` where there is none, or where it is not used; what it was
        /// given to write to is then as it was.
        #[allow(unused_variables)] // An operation without a kernel reads nothing.
        pub(super) trait KernelSet {
            /// See [`Ops::activations`].
            fn activations(&self) -> Option<Dtype> {
                mlx_ops::activations()
            }

            /// See [`Ops::reads_dense`].
            fn reads_dense(&self, dtype: Dtype) -> bool {
                false
            }

            /// See [`Ops::attention_path`].
            fn attention_path(&self, needs: &AttentionNeeds) -> AttentionPath {
                AttentionPath::Gather
            }

            /// See [`Ops::state_path`].
            fn state_path(&self, mixers: &[&Mixer]) -> StatePath {
                StatePath::Gather
            }

            /// See [`Ops::skips_unknown_experts`].
            fn skips_unknown_experts(&self) -> bool {
                false
            }

            /// See [`Ops::low_rank_layout`].
            fn low_rank_layout(&self) -> LowRankLayout {
                LowRankLayout::OutputsFirst
            }

            /// See [`Ops::add_low_rank`]; only of a layout of its own.
            fn add_low_rank(
                &self,
                product: Array,
                x: &Array,
                chosen: &ChosenExperts,
                stack: &LowRankStack,
            ) -> mlx::Result<Array> {
                Err(mlx::Error::new("low-rank products of this layout"))
            }

            /// Of MLX's latent attention.
            fn head_products(&self) -> HeadProducts {
                HeadProducts::MLX
            }

            /// See [`Ops::attend_each_other`].
            fn attend_each_other(&self, qkv: [&Array; 3], scale: f32) -> mlx::Result<Option<Array>> {
                Ok(None)
            }

            $(
                #[doc = concat!("See [`Ops::", stringify!($name), "`].")]
                fn $name(&self $(, $arg: $type)* $(, $place: &mut $place_type)?) -> mlx::Result<Option<$made>> {
                    Ok(None)
                }
            )*
        }

        impl Ops {
            $(
                $(#[$doc])*
                pub(crate) fn $name(&$this $(, $arg: $type)* $(, mut $place: $place_type)?) -> mlx::Result<$made> {
                    match $this.kernels.$name($($arg,)* $(&mut $place)?)? {
                        Some(made) => Ok(made),
                        None => $body,
                    }
                }
            )*
        }
    };
}

/// MLX's operations alone.
pub(super) struct NoKernels;

impl KernelSet for NoKernels {}

operations! {
    /// Rows of an embedding table, in `dtype`. `tokens`: `[T]` i32, all within the table.
    fn embedding(&self, tokens: &Array, table: &Weight, dtype: Dtype) -> Array {
        mlx_ops::embedding(tokens, table, dtype)
    }

    /// Rows of `a` and of `b` side by side, `[T, width]` each.
    fn join(&self, a: &Array, b: &Array) -> Array {
        mlx::concatenate(&[a, b], -1)
    }

    /// Columns of `x`, `[T, width]`, by their numbers, `[n]` i32, −∞ for numbers that are not below the width: `[T, n]` f32.
    fn take_columns(&self, x: &Array, columns: &Array) -> Array {
        let width = Array::from_slice(&[x.dim(-1)?], &[1])?;
        x.astype(Dtype::F32)?.pad(&[(0, 0), (0, 1)], f32::NEG_INFINITY)?.take(&columns.clip(None, Some(&width))?, 1)
    }

    /// `x · Wᵀ`, `[.., in]` → `[.., out]`.
    fn linear(&self, x: &Array, weight: &Weight) -> Array {
        mlx_ops::linear(x, weight)
    }

    /// `x · Wᵀ + bias`, `[out]`.
    fn biased_linear(&self, x: &Array, weight: &Weight, bias: &Array) -> Array {
        self.add_bias(&self.linear(x, weight)?, bias)
    }

    /// `x + bias`, `[.., out]` and `[out]`.
    fn add_bias(&self, x: &Array, bias: &Array) -> Array {
        Ok(x + bias)
    }

    /// Each row through the experts chosen for it. `x`: `[T, in]` or one row for each choice, `[T, top_k, in]`;
    /// weight `[experts, out, in]` → `[T, top_k, out]`.
    fn expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &Weight) -> Array {
        mlx_ops::expert_linear(x, experts, weight)
    }

    /// [`Self::expert_linear`] with weights that stay in files.
    fn stored_expert_linear(&self, x: &Array, experts: &ChosenExperts, weight: &StoredExperts) -> Array {
        Err(mlx::Error::new("experts that stay in files need the CPU's kernels"))
    }

    /// The best `top_k` experts of each row by its logits `[T, experts]`, and their weights `[T, top_k]` in float32.
    fn route(
        &self,
        logits: &Array,
        router: &Router,
        vectors: ExpertVectors<'_>,
        top_k: usize
    ) -> (ChosenExperts, Array) {
        let (experts, weights) = mlx_ops::route(logits, router, vectors.correction, top_k)?;
        let weights = vectors.scaled(&experts, weights)?;
        Ok((experts, weights))
    }

    /// The sum of what a row's experts computed, each times its weight: `[T, top_k, out]`, `[T, top_k]` → `[T, out]`.
    fn weighted_sum(&self, parts: &Array, weights: &Array) -> Array {
        (parts * weights.expand_dims(&[-1])?.astype(parts.dtype()?)?).sum(&[-2])
    }

    /// `x / √(mean(x²) + eps) · weight` over the last axis.
    fn rms_norm(&self, x: &Array, weight: &Array, eps: f32) -> Array {
        fast::rms_norm(x, Some(weight), eps)
    }

    /// The RMS norm of each group of a row, `[T, groups · width]`.
    fn grouped_rms_norm(&self, x: &Array, weights: &GroupNormWeights, eps: f32) -> Array {
        mlx_ops::norm_groups(x, weights, |x, weight| fast::rms_norm(x, Some(weight), eps))
    }

    /// `sum + term`, and its RMS norm.
    fn add_rms_norm(&self, sum: &Array, term: &Term, weight: &Array, eps: f32) -> (Array, Array) {
        let sum = sum + mlx_ops::joined(term)?;
        let normed = fast::rms_norm(&sum, Some(weight), eps)?;
        Ok((sum, normed))
    }

    /// `sum + term`, `[T, hidden]`.
    fn add(&self, sum: &Array, term: &Term) -> Array {
        self.add_term(sum, &self.joined(term)?, None)
    }

    /// `sum + term`, and its layer norm.
    fn add_layer_norm(
        &self,
        sum: &Array,
        term: &Term,
        weight: &Array,
        bias: Option<&Array>,
        eps: f32
    ) -> (Array, Array) {
        let sum = self.add(sum, term)?;
        let normed = self.layer_norm(&sum, weight, bias, eps)?;
        Ok((sum, normed))
    }

    /// `sum + term`, or `sum + sigmoid(gate) · term` with one logit for each row, `[T, 1]`; all others `[T, hidden]`.
    fn add_term(&self, sum: &Array, term: &Array, gate: Option<&Array>) -> Array {
        Ok(match gate {
            Some(gate) => sum + gate.sigmoid()? * term,
            None => sum + term,
        })
    }

    /// `(sum + term) · factor`, `[T, hidden]` and `[1]`.
    fn add_scaled(&self, sum: &Array, term: &Array, factor: &Array) -> Array {
        Ok((sum + term) * factor)
    }

    /// `(x − mean) / √(variance + eps) · weight + bias` over the last axis.
    fn layer_norm(&self, x: &Array, weight: &Array, bias: Option<&Array>, eps: f32) -> Array {
        fast::layer_norm(x, Some(weight), bias, eps)
    }

    /// `x · factor`
    fn scaled(&self, x: &Array, factor: f32) -> Array {
        Ok(x * factor)
    }

    /// The RMS norms of the first columns of rows, and of those behind them, each with its weights; the rest as it is.
    fn norm_columns(&self, x: &Array, weights: [&Array; 2], eps: f32) -> Array {
        mlx_ops::norm_columns(x, weights, |x, weight| fast::rms_norm(x, Some(weight), eps))
    }

    /// What experts computed, `[T, top_k, out]`, and the bias of each, `[experts, out]`.
    fn add_expert_bias(&self, x: &Array, bias: &Array, experts: &ChosenExperts) -> Array {
        Ok(x + bias.take(&experts.indices, 0)?)
    }

    /// `act(x)`
    fn act(&self, x: &Array, act: Activation) -> Array {
        mlx_ops::act(x, act)
    }

    /// `act(gate) · up` of rows `[.., 2 · width]` that hold the gate, then up.
    fn gated_act(&self, gate_up: &Array, act: Activation) -> Array {
        mlx_ops::gated_act(gate_up, act)
    }

    /// `act(gate) · up`, of equal shapes.
    fn gated_act_pair(&self, gate: &Array, up: &Array, act: Activation) -> Array {
        mlx_ops::gated_act_pair(gate, up, act)
    }

    /// `sigmoid(gate) · x`, of equal shapes.
    fn sigmoid_gate(&self, gate: &Array, x: &Array) -> Array {
        Ok(gate.sigmoid()? * x)
    }

    /// Each head of `x`, `[T, heads · head_dim]`, times the gate's function of its logit, `[T, heads]`.
    fn head_gate(&self, gate: &Array, x: &Array, function: HeadGate) -> Array {
        mlx_ops::head_gate(gate, x, function)
    }

    /// xIELU with its learned numbers αₚ, αₙ, β and ε, `[1]` f32 each. Source: arXiv 2411.13010 §3.
    fn xielu(&self, x: &Array, learned: [&Array; 4]) -> Array {
        mlx_ops::xielu(x, learned)
    }

    /// Attention of all queries to all keys of the same entry, `[count, heads, len, head_dim]` each and together.
    fn attend_all(&self, qkv: [&Array; 3], scale: f32) -> Array {
        let [q, k, v] = qkv;
        fast::sdpa(q, k, v, scale, fast::Mask::None, None)
    }

    /// Lays values out as [`attend_all`](Self::attend_all) reads them fastest in pass after pass.
    fn lay_out_values(&self, values: &Array) -> Array {
        values.contiguous()
    }

    /// A convolution over maps, `[count, height, width, out]`.
    fn convolve_map(&self, call: &ConvolutionCall) -> Array {
        call.whole()
    }

    /// Norms and rotates queries and keys, norms values, writes keys and values, if there are any, to the layer's pools, and
    /// attends: `[T, heads · v_head_dim]`.
    fn attend(&self; call: AttentionCall) -> Array {
        mlx_ops::gather(call)
    }

    /// Norms latents, rotates queries and keys, writes latents and keys to the layer's pools, and attends: `[T, heads ·
    /// v_head_dim]`.
    fn attend_latent(&self; call: LatentCall) -> Array {
        mlx_ops::latent(call, self.kernels.head_products())
    }

    /// The convolution of rows `[T, channels]`, without an activation.
    fn convolve(&self, conv: &CausalConv, x: &Array; layer: LayerContext) -> Array {
        mlx_ops::convolve(conv, x, layer)
    }

    /// `c ·` the convolution of `b · x`, `[T, channels]`. `projected`: `b`, `c` and `x`.
    fn short_conv(&self, conv: &CausalConv, projected: &Array; layer: LayerContext) -> Array {
        let width = projected.dim(-1)? / 3;
        let parts = projected.split(&[width, 2 * width], -1)?;
        let [b, c, x] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        Ok(c * self.convolve(conv, &(b * x), layer)?)
    }

    /// Convolution and recurrence of a Mamba layer, `[T, inner]`. `select`: from convolved rows to steps, writes and reads.
    fn mamba1(
        &self,
        channels: &Array,
        conv: &CausalConv,
        select: &dyn Fn(&Array) -> mlx::Result<[Array; 3]>,
        weights: Mamba1Rows<'_>;
        layer: LayerContext
    ) -> Array {
        mlx_ops::mamba1(channels, conv, select, weights, layer)
    }

    /// Convolution and recurrence of a Mamba-2 layer. `projected`: gate, channels, steps → `silu(gate) · y`,
    /// `[T, inner]`.
    fn mamba2(&self, spec: &Mamba2, weights: &Mamba2Weights, projected: &Array; layer: LayerContext) -> Array {
        mlx_ops::mamba2(spec, weights, projected, layer)
    }

    /// Convolution, recurrence, norm and gate of a gated delta rule. `projected`: channels, gate, beta, steps →
    /// `[T, values]`.
    fn gated_delta(
        &self,
        spec: &GatedDelta,
        weights: &GatedDeltaWeights,
        projected: &Array;
        layer: LayerContext
    ) -> Array {
        mlx_ops::gated_delta(spec, weights, projected, layer)
    }

    /// Convolution and recurrence of delta attention, the norm of its heads and their gate: `[T, values]`.
    fn delta_attention(
        &self,
        spec: &DeltaAttention,
        weights: &GatedDeltaWeights,
        rows: &DeltaRows<'_>;
        layer: LayerContext
    ) -> Array {
        mlx_ops::delta_attention(spec, weights, rows, layer)
    }

    /// Mixes of each row of `x`, `[T, width]`, with the row before it, zeros before the first: `x + (before − x) · share`,
    /// one for each of the shares, `[mixes, width]`.
    fn token_shift(&self, x: &Array, shares: &Array; layer: LayerContext) -> Vec<Array> {
        mlx_ops::token_shift(x, shares, layer)
    }

    /// RWKV-7's recurrence, the norm of its heads, their bonus and gate: `[T, heads · head_dim]`.
    fn wkv(&self, spec: WkvState, rows: &WkvRows<'_>, weights: &WkvWeights; layer: LayerContext) -> Array {
        mlx_ops::wkv(spec, rows, weights, layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_choice::GpuKernel;
    use crate::mixers::{ConvReach, ShortConv};
    use crate::ops::Kernels;

    #[test]
    fn each_model_of_a_process_has_kernels_of_its_own() {
        let (one, other) = (Kernels::Gpu.ops(), Kernels::Gpu.ops());
        let block_of_one = one.clone();
        one.set_choice(KernelChoice::default().without(GpuKernel::Recurrence));
        let mixer =
            Mixer::from(ShortConv { hidden: 64, conv_kernel_size: 4, reach: ConvReach::Before, bias: false });
        let path = |ops: &Ops| ops.state_path(&[&mixer]);
        assert_eq!(path(&block_of_one), StatePath::Gather);
        assert_eq!(path(&other), StatePath::DeviceRuns);
        other.set_choice(one.choice());
        assert_eq!(path(&other), StatePath::Gather);
    }
}
