//! Checks of norms, sums, and products with weights.

use mlx::device::{Backend, backend};
use mlx::{Array, Dtype};

use super::weights::CheckedWeights;
use super::{KernelCheck, KernelTimes, Measure, distance, normal, time};
use crate::blueprint::{Blueprint, Residual};
use crate::mixers::{KeySource, Mixer, NormOver};
use crate::mlps::{GatedMlp, Mlp, PlainMlp};
use crate::norm::Norm;
use crate::ops::{GroupNormWeights, Joined, Kernels, Ops, Term, Weight};
use crate::params::{Held, Param};
use crate::take_rows::take_rows;

/// Rows of a decode step.
pub(super) const ROWS: usize = 16;

/// Our results and MLX's, beside each other.
pub(super) fn compare(
    measure: Measure,
    bytes: usize,
    run: impl Fn(&Ops) -> mlx::Result<Vec<Array>>,
) -> mlx::Result<(f64, Option<KernelTimes>)> {
    let (ours, mlx) = (Kernels::Gpu.ops(), Kernels::Mlx.ops());
    let mut error = 0f64;
    for (ours, mlx) in run(&ours)?.iter().zip(&run(&mlx)?) {
        error = error.max(distance(ours, mlx)?);
    }
    let times = KernelTimes {
        ours_us: time(measure, || run(&ours))?,
        mlx_us: time(measure, || run(&mlx))?,
        bytes: bytes as f64,
    };
    Ok((error, Some(times)))
}

/// The norm of the stream with the sum before it, and those of groups behind recurrences.
pub(super) fn norms(
    blueprint: &Blueprint,
    states: &[&Mixer],
    dtype: Dtype,
    measure: Measure,
) -> Vec<KernelCheck> {
    let hidden = blueprint.hidden;
    let grouped = normed_groups(states).into_iter().map(|shape| grouped_norm(shape, dtype, measure));
    let layer = layer_norm_bias(blueprint).map(|has_bias| layer_norm(hidden, has_bias, dtype, measure));
    let columns = normed_columns(blueprint).into_iter().map(|shape| norm_columns(shape, dtype, measure));
    let sums = joins(blueprint).into_iter().map(|kind| add_norm(hidden, kind, dtype, measure));
    sums.chain(grouped).chain(layer).chain(columns).collect()
}

/// Whether layer norms of the stream have a bias; `None` if there are none.
fn layer_norm_bias(blueprint: &Blueprint) -> Option<bool> {
    blueprint.layers.iter().find_map(|layer| match layer.norm {
        Norm::Layer { bias, .. } => Some(bias),
        _ => None,
    })
}

fn layer_norm(width: usize, has_bias: bool, dtype: Dtype, measure: Measure) -> KernelCheck {
    KernelCheck::new("layer_norm", format!("{ROWS} x {width}"), dtype, || {
        let x = normal(&[ROWS, width], dtype, 1)?;
        let (weight, bias) = (normal(&[width], dtype, 2)?, normal(&[width], dtype, 3)?);
        let bias = has_bias.then_some(&bias);
        compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.layer_norm(&x, &weight, bias, 1e-5)?]))
    })
}

/// Columns of queries, keys and values where all heads are normed together, each once.
fn normed_columns(blueprint: &Blueprint) -> Vec<[usize; 3]> {
    let mut shapes = Vec::new();
    for spec in blueprint.layers.iter().flat_map(|layer| layer.mixer.attentions()) {
        let is_normed = spec.qk_norm.is_some_and(|norm| norm.over == NormOver::AllHeads);
        let shape =
            [spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim, spec.kv_heads * spec.v_head_dim];
        shapes
            .extend((is_normed && spec.keys == KeySource::Own && !shapes.contains(&shape)).then_some(shape));
    }
    shapes
}

fn norm_columns(shape: [usize; 3], dtype: Dtype, measure: Measure) -> KernelCheck {
    let ([queries, keys, _], width) = (shape, shape.iter().sum::<usize>());
    KernelCheck::new("norm_columns", format!("{ROWS} x {width}"), dtype, || {
        let x = normal(&[ROWS, width], dtype, 1)?;
        let (q, k) = (normal(&[queries], dtype, 2)?, normal(&[keys], dtype, 3)?);
        compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.norm_columns(&x, [&q, &k], 1e-5)?]))
    })
}

/// Groups of a row and elements of a group, each once.
fn normed_groups(states: &[&Mixer]) -> Vec<[usize; 2]> {
    let mut shapes = Vec::new();
    for mixer in states {
        let Mixer::Mamba2(spec) = mixer else { continue };
        let shape = [spec.norm_groups, spec.inner() / spec.norm_groups.max(1)];
        shapes.extend((spec.norm.is_some() && !shapes.contains(&shape)).then_some(shape));
    }
    shapes
}

fn grouped_norm([groups, width]: [usize; 2], dtype: Dtype, measure: Measure) -> KernelCheck {
    KernelCheck::new("rms_norm", format!("{ROWS} x {groups} x {width}"), dtype, || {
        let x = normal(&[ROWS, groups * width], dtype, 1)?;
        let (weight, ones) = (normal(&[groups * width], dtype, 2)?, Array::ones(&[width as i32], dtype)?);
        let [weight, ones] = [weight, ones].map(Param::unlisted);
        let weights = GroupNormWeights { groups: groups as i32, weight, ones };
        compare(measure, 2 * x.nbytes(), |ops| Ok(vec![ops.grouped_rms_norm(&x, &weights, 1e-5)?]))
    })
}

/// How terms join a network's stream: as they are, and what else there is.
fn joins(blueprint: &Blueprint) -> Vec<JoinKind> {
    let is_normed = blueprint.layers.iter().any(|layer| layer.norm_placement.is_after().contains(&true));
    let factor = blueprint.layers.iter().find_map(|layer| match layer.residual {
        Residual::Scaled(factor) if factor != 1.0 => Some(JoinKind::Scaled(factor)),
        _ => None,
    });
    [JoinKind::Plain].into_iter().chain(is_normed.then_some(JoinKind::Normed)).chain(factor).collect()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum JoinKind {
    Plain,
    Scaled(f32),
    Normed,
}

fn add_norm(hidden: usize, kind: JoinKind, dtype: Dtype, measure: Measure) -> KernelCheck {
    KernelCheck::new("add_norm", format!("{ROWS} x {hidden}, {kind:?}"), dtype, || {
        let (sum, rows) = (normal(&[ROWS, hidden], dtype, 1)?, normal(&[ROWS, hidden], dtype, 2)?);
        let (weight, own) = (normal(&[hidden], dtype, 3)?, normal(&[hidden], dtype, 4)?);
        let joined = match kind {
            JoinKind::Plain => Joined::Plain,
            JoinKind::Scaled(factor) => Joined::Scaled(factor),
            JoinKind::Normed => Joined::Normed { weight: own, eps: 1e-5 },
        };
        let term = Term { rows, joined };
        compare(measure, 4 * sum.nbytes(), |ops| {
            let alone = ops.add(&sum, &term)?;
            let (sum, normed) = ops.add_rms_norm(&sum, &term, &weight, 1e-5)?;
            Ok(vec![ops.rms_norm(&term.rows, &weight, 1e-5)?, sum, normed, alone])
        })
    })
}

/// Rows of small tables, beside rows that the host picks: MLX compiles its gathers for seconds each.
pub(super) fn embed(hidden: usize, weights: &[CheckedWeights], dtype: Dtype) -> Vec<KernelCheck> {
    const VOCAB: usize = 256;
    let error = |weights: &CheckedWeights| -> mlx::Result<f64> {
        let [table, dense] = weights.random(&[VOCAB, hidden], dtype, 11)?;
        let tokens: Vec<usize> = (0..ROWS).map(|row| row * 131 % VOCAB).collect();
        let Weight::Dense(dense) = dense else { return Err(mlx::Error::new("unpacked weights")) };
        let values = dense.astype(Dtype::F32)?.to_vec::<f32>()?;
        let rows = tokens.iter().flat_map(|token| values.iter().skip(token * hidden).take(hidden));
        let expected: Vec<f32> = rows.copied().collect();
        let expected = Array::from_slice(&expected, &[ROWS as i32, hidden as i32])?;
        let tokens: Vec<i32> = tokens.into_iter().map(|token| token as i32).collect();
        let tokens = Array::from_slice(&tokens, &[ROWS as i32])?;
        distance(&Kernels::Gpu.ops().embedding(&tokens, &table, dtype)?, &expected)
    };
    let check = |weights: &CheckedWeights| {
        let shape = format!("{ROWS} x {hidden}, {}", weights.label());
        KernelCheck::new("embed", shape, dtype, || Ok((error(weights)?, None)))
    };
    let is_affine = |weights: &&CheckedWeights| weights.is_affine_or_dense() && weights.fits(hidden);
    weights.iter().filter(is_affine).map(check).collect()
}

/// Numbers by their places, beside those that the host picks.
pub(super) fn take_numbers() -> KernelCheck {
    const COUNT: i32 = 300;
    KernelCheck::new("take_numbers", format!("{COUNT}"), Dtype::I32, || {
        let places: Vec<i32> = (0..COUNT).map(|place| place * 97 % COUNT).collect();
        let numbers: Vec<i32> = (0..COUNT).map(|number| number * 31 - 4000).collect();
        let picked = places.iter().filter_map(|place| numbers.get(*place as usize)).copied();
        let expected = Array::from_slice(&picked.collect::<Vec<_>>(), &[COUNT])?;
        let [numbers, places] = [numbers, places].map(|values| Array::from_slice(&values, &[COUNT]));
        Ok((distance(&take_rows(&numbers?, &places?)?, &expected)?, None))
    })
}

/// Columns of logits by their numbers, as draft heads of fewer tokens take them, beside MLX's operations.
pub(super) fn take_columns() -> KernelCheck {
    const WIDTH: i32 = 70;
    KernelCheck::new("take_columns", format!("{ROWS} x {WIDTH}"), Dtype::F32, || {
        // A column that is not there gives −∞, whose distance is no number.
        let columns: Vec<i32> = (0..300).map(|place| place * 97 % WIDTH).collect();
        let (x, columns) =
            (normal(&[ROWS, WIDTH as usize], Dtype::F32, 5)?, Array::from_slice(&columns, &[300])?);
        let taken = |kernels: Kernels| kernels.ops().take_columns(&x, &columns);
        Ok((distance(&taken(Kernels::Gpu)?, &taken(Kernels::Mlx)?)?, None))
    })
}

/// Rows side by side.
pub(super) fn join(hidden: usize, dtype: Dtype) -> KernelCheck {
    KernelCheck::new("join_rows", format!("{ROWS} x {hidden}, twice"), dtype, || {
        let (a, b) = (normal(&[ROWS, hidden], dtype, 5)?, normal(&[ROWS, hidden], dtype, 6)?);
        let joined = |kernels: Kernels| kernels.ops().join(&a, &b);
        Ok((distance(&joined(Kernels::Gpu)?, &joined(Kernels::Mlx)?)?, None))
    })
}

/// Sums, plain and with a shared expert.
pub(super) fn sums(blueprint: &Blueprint, dtype: Dtype, measure: Measure) -> Vec<KernelCheck> {
    let plain = plain_sum(blueprint.hidden, dtype, measure);
    [plain].into_iter().chain(shared_expert(blueprint, dtype, measure)).collect()
}

fn plain_sum(hidden: usize, dtype: Dtype, measure: Measure) -> KernelCheck {
    KernelCheck::new("add_term", format!("{ROWS} x {hidden}, plain"), dtype, || {
        let (sum, term) = (normal(&[ROWS, hidden], dtype, 5)?, normal(&[ROWS, hidden], dtype, 6)?);
        compare(measure, 3 * sum.nbytes(), |ops| Ok(vec![ops.add_term(&sum, &term, None)?]))
    })
}

/// The sum with a shared expert's output, and the gate's logit.
fn shared_expert(blueprint: &Blueprint, dtype: Dtype, measure: Measure) -> Option<KernelCheck> {
    let is_shared = |mlp: &Mlp| matches!(mlp, Mlp::Moe(moe) if moe.shared.is_some());
    blueprint.layers.iter().find(|layer| layer.mlp.as_ref().is_some_and(is_shared))?;
    let hidden = blueprint.hidden;
    Some(KernelCheck::new("add_term", format!("{ROWS} x {hidden}"), dtype, || {
        let (x, sum) = (normal(&[ROWS, hidden], dtype, 1)?, normal(&[ROWS, hidden], dtype, 2)?);
        let gate = Weight::Dense(normal(&[1, hidden], dtype, 3)? * 0.02);
        compare(measure, 4 * x.nbytes(), |ops| {
            Ok(vec![ops.add_term(&sum, &x, Some(&ops.linear(&x, &gate)?))?])
        })
    }))
}

/// Weights of the widest layer, with a bias if there is one, beside the same weights unpacked: MLX compiles its packed product
/// for half a minute at the first use.
pub(super) fn linear(
    blueprint: &Blueprint,
    weights: &[CheckedWeights],
    dtype: Dtype,
    measure: Measure,
) -> Vec<KernelCheck> {
    let linear = LinearShape::of(blueprint);
    // One of each class of rows.
    let rows: &[usize] = match measure {
        Measure::Load => &[3, 24, 64, 96, 160, 288],
        Measure::Table => &[1, 4, 16, 32, 64, 128, 256, 512],
    };
    let checked = weights.iter().filter(|weights| weights.fits(linear.inputs));
    let check = |(rows, weights): (usize, CheckedWeights)| {
        let LinearShape { inputs, outputs, has_bias } = linear;
        let bias = if has_bias { " and a bias" } else { "" };
        let beside = if mlx_packed_is_timed() { "" } else { ", beside dense" };
        let shape = format!("{rows} x {inputs} -> {outputs}, {}{bias}{beside}", weights.label());
        KernelCheck::new("linear", shape, dtype, || product(rows, linear, weights, dtype, measure))
    };
    checked.flat_map(|weights| rows.iter().map(|rows| (*rows, *weights))).map(check).collect()
}

/// The widest of a network's layers.
#[derive(Clone, Copy)]
struct LinearShape {
    inputs: usize,
    outputs: usize,
    /// Whether some layer has one.
    has_bias: bool,
}

impl LinearShape {
    fn of(blueprint: &Blueprint) -> Self {
        let width = blueprint.layers.iter().find_map(|layer| match layer.mlp {
            Some(Mlp::Gated(GatedMlp { width, .. }) | Mlp::Plain(PlainMlp { width, .. })) => Some(width),
            _ => None,
        });
        let manifest = blueprint.manifest();
        // Norms have weights of one axis, convolutions and experts of three.
        let has_matrix = |path: &str| manifest.0.get(&format!("{path}.weight")).is_some_and(|w| w.len() == 2);
        let has_bias = manifest.0.keys().any(|name| name.strip_suffix(".bias").is_some_and(has_matrix));
        let inputs = blueprint.hidden;
        Self { inputs, outputs: width.unwrap_or(inputs), has_bias }
    }
}

/// Whether times of products with packed weights stand beside those of MLX's packed product, which CUDA compiles for half a minute.
fn mlx_packed_is_timed() -> bool {
    backend() == Backend::Metal
}

fn product(
    rows: usize,
    LinearShape { inputs, outputs, has_bias }: LinearShape,
    weights: CheckedWeights,
    dtype: Dtype,
    measure: Measure,
) -> mlx::Result<(f64, Option<KernelTimes>)> {
    let [weight, reference] = weights.random(&[outputs, inputs], dtype, 5)?;
    mlx::eval(weight.arrays().into_iter().chain(reference.arrays()))?;
    let x = normal(&[rows, inputs], dtype, 6)?;
    let bias = has_bias.then(|| normal(&[outputs], dtype, 7)).transpose()?;
    let of = |ops: &Ops, weight: &Weight| match &bias {
        Some(bias) => ops.biased_linear(&x, weight, bias),
        None => ops.linear(&x, weight),
    };
    let (gpu, plain) = (Kernels::Gpu.ops(), Kernels::Mlx.ops());
    let (ours, mlx) = (|| of(&gpu, &weight), || of(&plain, &reference));
    let error = distance(&ours()?, &mlx()?)?;
    // The time of unpacked weights says nothing about MLX's packed product.
    let is_packed = weights != CheckedWeights::Dense;
    if measure == Measure::Load && is_packed && !mlx_packed_is_timed() {
        return Ok((error, None));
    }
    let bytes: usize = weight.arrays().iter().map(|array| array.nbytes()).sum();
    let timed = if mlx_packed_is_timed() { &weight } else { &reference };
    let times = KernelTimes {
        ours_us: time(measure, || Ok(vec![ours()?]))?,
        mlx_us: time(measure, || Ok(vec![of(&plain, timed)?]))?,
        bytes: bytes as f64,
    };
    Ok((error, Some(times)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::families;

    fn blueprint(name: &str) -> Blueprint {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let config = std::fs::read_to_string(fixtures.join(name).join("config.json")).unwrap();
        families::read(&serde_json::from_str(&config).unwrap()).unwrap()
    }

    #[test]
    fn products_are_checked_at_the_shapes_of_layers() {
        let shape = |name: &str| {
            let LinearShape { inputs, outputs, has_bias } = LinearShape::of(&blueprint(name));
            (inputs, outputs, has_bias)
        };
        assert_eq!(shape("qwen3"), (64, 80, false));
        assert_eq!(shape("qwen2"), (64, 80, true));
        assert_eq!(shape("phi"), (64, 80, true));
        assert_eq!(shape("mixtral"), (64, 64, false));
    }

    #[test]
    fn norms_of_groups_are_checked_at_the_shapes_of_layers() {
        let shapes = |name: &str| {
            let blueprint = blueprint(name);
            let states: Vec<&Mixer> =
                blueprint.layers.iter().flat_map(|layer| layer.mixer.recurrences()).collect();
            normed_groups(&states)
        };
        assert_eq!(shapes("mamba2"), [[1, 128]]);
        assert_eq!(shapes("nemotron_h"), [[2, 64]]);
        assert!(shapes("qwen3_next").is_empty());
    }
}
