//! Check of mixtures of experts: choice, products and sum together.

use mlx::{Array, Dtype};

use super::weights::CheckedWeights;
use super::{KernelCheck, distance, normal};
use crate::blueprint::Blueprint;
use crate::mlps::{Mlp, Moe, Router};
use crate::ops::{ExpertVectors, Kernels, Ops, Weight};

/// Experts that take part: all of a large model would take gigabytes.
const EXPERTS_MAX: usize = 16;

/// Rows of a prompt, so many that unpacked weights are multiplied.
const PROMPT_ROWS: usize = 400;

/// One check for pairs that are multiplied one by one, one for those that are sorted, and one of a prompt. Errors alone: MLX takes half a
/// minute to compile its own packed product, and no model has its experts unpacked.
pub(super) fn checks(blueprint: &Blueprint, weights: &[CheckedWeights], dtype: Dtype) -> Vec<KernelCheck> {
    let mut moes: Vec<&Moe> = Vec::new();
    for moe in blueprint.layers.iter().flat_map(|layer| &layer.mlp).filter_map(Mlp::routed) {
        if !moes.contains(&moe) {
            moes.push(moe);
        }
    }
    moes.into_iter().flat_map(|moe| checks_of(moe, blueprint.hidden, weights, dtype)).collect()
}

fn checks_of(moe: &Moe, hidden: usize, weights: &[CheckedWeights], dtype: Dtype) -> Vec<KernelCheck> {
    // Without a kernel of ours for packed weights, the check would wait for that compiler.
    let packed = matches!(dtype, Dtype::Bf16 | Dtype::F16);
    let has_kernel = |weights: &&CheckedWeights| packed || **weights == CheckedWeights::Dense;
    let checked = weights.iter().filter(|weights| weights.fits(hidden)).filter(has_kernel);
    let cases = checked.flat_map(|weights| [1, 16, PROMPT_ROWS].map(|rows| (rows, *weights)));
    let check = |(rows, weights): (usize, CheckedWeights)| {
        let (experts, width) = (moe.experts.min(EXPERTS_MAX), moe.expert.width());
        let shape = format!("{rows} rows x {hidden} -> {width}, {experts} experts, {}", weights.label());
        KernelCheck::new("experts", shape, dtype, || {
            Ok((error(moe, [rows, hidden, experts], weights, dtype)?, None))
        })
    };
    cases.map(check).collect()
}

fn error(
    moe: &Moe,
    [rows, hidden, experts]: [usize; 3],
    weights: CheckedWeights,
    dtype: Dtype,
) -> mlx::Result<f64> {
    let [weight, reference] = weights.random(&[experts, moe.expert.width(), hidden], dtype, 7)?;
    let x = normal(&[rows, hidden], dtype, 8)?;
    // Ranks: among equal logits, MLX may choose other experts.
    let ranks = normal(&[rows, experts], Dtype::F32, 9)?.argsort(-1)?.argsort(-1)?;
    let logits = (ranks.astype(Dtype::F32)? * 0.25).astype(dtype)?;
    let numbers = |wanted: bool, seed| wanted.then(|| normal(&[experts], Dtype::F32, seed)).transpose();
    let (correction, factors) =
        (numbers(moe.router.correction_bias, 10)?, numbers(moe.router.expert_scales, 11)?);
    let vectors = ExpertVectors { correction: correction.as_ref(), factors: factors.as_ref() };
    let bias = moe.expert.bias().then(|| normal(&[experts, moe.expert.width()], dtype, 12)).transpose()?;
    let run = |ops: &Ops, weight: &Weight| -> mlx::Result<Array> {
        let router = Router { groups: moe.router.groups.filter(|_| experts == moe.experts), ..moe.router };
        let (chosen, weights) = ops.route(&logits, &router, vectors, moe.top_k.min(experts))?;
        let product = ops.expert_linear(&x, &chosen, weight)?;
        let product = match &bias {
            Some(bias) => ops.add_expert_bias(&product, bias, &chosen)?,
            None => product,
        };
        ops.weighted_sum(&product, &weights)
    };
    distance(&run(&Kernels::Gpu.ops(), &weight)?, &run(&Kernels::Mlx.ops(), &reference)?)
}
