//! Checks of residual add and norm, gated activations, and products with packed weights.

use mlx::{Array, Dtype, QuantMode};

use super::{KernelCheck, KernelTimes, Measure, distance, normal, time};
use crate::ops::{Kernels, Ops, Weight};
use crate::{Activation, Blueprint, Mlp};

/// Rows of a decode step.
const ROWS: usize = 16;

/// Our results and MLX's, beside each other.
fn compare(
    measure: Measure,
    bytes: usize,
    run: impl Fn(&dyn Ops) -> mlx::Result<Vec<Array>>,
) -> mlx::Result<(f64, Option<KernelTimes>)> {
    let (ours, mlx) = (Kernels::Gpu.ops(), Kernels::Mlx.ops());
    let mut error = 0f64;
    for (ours, mlx) in run(ours)?.iter().zip(&run(mlx)?) {
        error = error.max(distance(ours, mlx)?);
    }
    let times = match measure {
        Measure::Errors => None,
        Measure::Times => Some(KernelTimes {
            ours_us: time(|| run(ours))?,
            mlx_us: time(|| run(mlx))?,
            bytes: bytes as f64,
        }),
    };
    Ok((error, times))
}

pub(super) fn add_norm(hidden: usize, dtype: Dtype, measure: Measure) -> KernelCheck {
    KernelCheck::new("add_norm", format!("{ROWS} x {hidden}"), dtype, || {
        let (sum, term) = (normal(&[ROWS, hidden], dtype, 1)?, normal(&[ROWS, hidden], dtype, 2)?);
        let weight = normal(&[hidden], dtype, 3)?;
        compare(measure, 4 * sum.nbytes(), |ops| {
            let (sum, normed) = ops.add_rms_norm(&sum, &term, &weight, 1e-5)?;
            Ok(vec![sum, normed])
        })
    })
}

pub(super) fn gated(blueprint: &Blueprint, dtype: Dtype, measure: Measure) -> Vec<KernelCheck> {
    let mut shapes: Vec<(usize, Activation)> = Vec::new();
    for layer in &blueprint.layers {
        let of_mlp = match &layer.mlp {
            Some(Mlp::Gated(mlp)) => Some((mlp.width, mlp.act)),
            _ => None,
        };
        shapes.extend(of_mlp.filter(|shape| !shapes.contains(shape)));
    }
    let check = |(width, act): (usize, Activation)| {
        KernelCheck::new("gated", format!("{ROWS} x {width}, {act:?}"), dtype, || {
            let gate_up = normal(&[ROWS, 2 * width], dtype, 4)?;
            compare(measure, gate_up.nbytes() * 3 / 2, |ops| Ok(vec![ops.gated_act(&gate_up, act)?]))
        })
    };
    shapes.into_iter().map(check).collect()
}

/// Four-bit weights of the widest layer.
pub(super) fn linear(blueprint: &Blueprint, dtype: Dtype, measure: Measure) -> Vec<KernelCheck> {
    let width = blueprint.layers.iter().find_map(|layer| match &layer.mlp {
        Some(Mlp::Gated(mlp)) => Some(mlp.width),
        _ => None,
    });
    let (Some(width), hidden) = (width, blueprint.hidden) else { return Vec::new() };
    if hidden % 64 != 0 {
        return Vec::new();
    }
    let rows: &[usize] = match measure {
        Measure::Errors => &[1, 16],
        Measure::Times => &[1, 4, 16, 64, 512],
    };
    let check = |rows: &usize| {
        let rows = *rows;
        KernelCheck::new("linear", format!("{rows} x {hidden} -> {width}, 4 bits"), dtype, || {
            let weight = normal(&[width, hidden], dtype, 5)?.quantize(64, 4, QuantMode::Affine)?;
            let weight = Weight::Packed(weight);
            mlx::eval(weight.arrays())?;
            let x = normal(&[rows, hidden], dtype, 6)?;
            let bytes: usize = weight.arrays().iter().map(|array| array.nbytes()).sum();
            compare(measure, bytes, |ops| Ok(vec![ops.linear(&x, &weight)?]))
        })
    };
    rows.iter().map(check).collect()
}
