//! Check of mixtures of experts: choice, products and sum together.

use mlx::{Array, Dtype, QuantMode};

use super::{KernelCheck, distance, normal};
use crate::ops::{Kernels, Ops, Weight};
use crate::{Blueprint, Mlp, Moe, Router};

/// Experts that take part: all of a large model would take gigabytes.
const EXPERTS_MAX: usize = 16;

/// One check for pairs that are multiplied one by one, and one for those that are sorted. Errors alone: MLX takes half a
/// minute to compile its own packed product, and no model has its experts unpacked.
pub(super) fn checks(blueprint: &Blueprint, bits: &[i32], dtype: Dtype) -> Vec<KernelCheck> {
    let moe = blueprint.layers.iter().find_map(|layer| match &layer.mlp {
        Some(Mlp::Moe(moe)) => Some(moe),
        _ => None,
    });
    let (Some(moe), hidden) = (moe, blueprint.hidden) else { return Vec::new() };
    if hidden % 64 != 0 {
        return Vec::new();
    }
    // Without a kernel of ours for packed weights, the check would wait for that compiler.
    let packed = dtype == Dtype::Bf16;
    let checked = bits.iter().filter(|bits| **bits == 16 || (**bits == 4 && packed));
    let cases = checked.flat_map(|bits| [1, 16].map(|rows| (rows, *bits)));
    let check = |(rows, bits): (usize, i32)| {
        let (experts, width) = (moe.experts.min(EXPERTS_MAX), moe.expert.width());
        let shape = format!("{rows} rows x {hidden} -> {width}, {experts} experts, {bits} bits");
        KernelCheck::new("experts", shape, dtype, || {
            Ok((error(moe, [rows, hidden, experts], bits, dtype)?, None))
        })
    };
    cases.map(check).collect()
}

fn error(moe: &Moe, [rows, hidden, experts]: [usize; 3], bits: i32, dtype: Dtype) -> mlx::Result<f64> {
    let dense = normal(&[experts, moe.expert.width(), hidden], dtype, 7)?;
    let (weight, reference) = match bits {
        4 => {
            let packed = dense.quantize(64, 4, QuantMode::Affine)?;
            (Weight::Packed(packed.clone()), Weight::Dense(packed.dequantize(dtype)?))
        }
        _ => (Weight::Dense(dense.clone()), Weight::Dense(dense)),
    };
    let (x, logits) = (normal(&[rows, hidden], dtype, 8)?, normal(&[rows, experts], dtype, 9)?);
    let correction = match moe.router.correction_bias {
        true => Some(normal(&[experts], Dtype::F32, 10)?),
        false => None,
    };
    let run = |ops: &dyn Ops, weight: &Weight| -> mlx::Result<Array> {
        let router = Router { groups: moe.router.groups.filter(|_| experts == moe.experts), ..moe.router };
        let (chosen, weights) = ops.route(&logits, &router, correction.as_ref(), moe.top_k.min(experts))?;
        ops.weighted_sum(&ops.expert_linear(&x, &chosen, weight)?, &weights)
    };
    distance(&run(Kernels::Gpu.ops(), &weight)?, &run(Kernels::Mlx.ops(), &reference)?)
}
