//! Our GPU kernels beside MLX's operations, at a model's shapes: how far apart they are, and how long each takes.
//!
//! Attention runs through everything that a pass has: metadata, block tables, pools and both kinds of rows.

mod activations;
mod attention;
mod choose;
mod elementwise;
mod experts;
mod latent;
mod probed;
mod recurrent;
mod softmax;
mod weights;

use std::time::Instant;

use mlx::device::{Backend, backend};
use mlx::gpu::MatrixUnit;
use mlx::{Array, Dtype};

use omnibus_kv::KvFormat;

use weights::CheckedWeights;

use crate::blueprint::{Blueprint, LayerSpec};
use crate::kernel_choice::{GpuKernel, KernelChoice};
use crate::kv_format;
use crate::mixers::{Attention, Mixer};
use crate::quantization::Quantization;
use crate::take_rows::{self, take_rows};

/// One kernel at one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelCheck {
    /// Its name.
    pub kernel: &'static str,
    /// The sizes, in words.
    pub shape: String,
    /// Relative to MLX's result; infinite if the kernel fails or gives numbers that are not finite.
    pub error: f64,
    /// The largest error that is accepted.
    pub tolerance: f64,
    /// What failed; empty if nothing did.
    pub problem: String,
    /// Absent where only errors are measured.
    pub times: Option<KernelTimes>,
}

/// How long a kernel takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelTimes {
    /// Ours, in microseconds.
    pub ours_us: f64,
    /// MLX's.
    pub mlx_us: f64,
    /// Bytes that must be read and written.
    pub bytes: f64,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// At a few shapes, and in little time: when a model is loaded.
    Load,
    /// Everything.
    Table,
}

impl Measure {
    /// How often each time is taken; the best counts.
    fn rounds(self) -> usize {
        match self {
            Self::Load => 2,
            Self::Table => 3,
        }
    }
}

/// Which kernels are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckExtent {
    /// All.
    All,
    /// All but products with packed weights, which take the longest.
    DenseProducts,
}

impl KernelCheck {
    /// Whether the kernel may be used.
    pub fn holds(&self) -> bool {
        self.error <= self.tolerance
    }

    fn new(
        kernel: &'static str,
        shape: String,
        dtype: Dtype,
        run: impl FnOnce() -> mlx::Result<(f64, Option<KernelTimes>)>,
    ) -> Self {
        let tolerance = match dtype {
            Dtype::Bf16 => 2e-2,
            Dtype::F16 => 5e-3,
            _ => 1e-3,
        };
        let failed = |error: mlx::Error| {
            // What else failed with it must not reach the next evaluation.
            let _failures = mlx::recover();
            (f64::INFINITY, None, error.to_string())
        };
        let (error, times, problem) =
            run().map_or_else(failed, |(error, times)| (error, times, String::new()));
        Self { kernel, shape, error, tolerance, problem, times }
    }
}

/// Builds the graphs that choose tokens and put them into the next step, and drops them.
pub(crate) fn build_choices(blueprint: &Blueprint) -> mlx::Result<()> {
    let tokens = choose::build(blueprint)?;
    take_rows(&tokens, &tokens).map(drop)
}

/// Kernels at the shapes of a network whose activations are of `dtype`, with keys and values as floats and packed.
pub fn check(blueprint: &Blueprint, dtype: Dtype, measure: Measure, extent: CheckExtent) -> Vec<KernelCheck> {
    let packed = [8, 4].into_iter().filter_map(|bits| blueprint.quantized_kv_format(bits, 64).ok());
    let formats: Vec<KvFormat> =
        [KvFormat::Float(kv_format::float_of(dtype))].into_iter().chain(packed).collect();
    let weights = match extent {
        CheckExtent::All => CheckedWeights::of_table(),
        CheckExtent::DenseProducts => vec![CheckedWeights::Dense],
    };
    let of = |kernel: &GpuKernel| checks_of(*kernel, blueprint, dtype, measure, (&weights, &formats));
    CHECKED.iter().flat_map(of).collect()
}

/// Checks the kernels at the shapes of a network: those that may be used, and one line for each other. Attention that fails
/// with warpgroups is checked once more without. `formats`: of keys and values.
pub(crate) fn choose_kernels(
    blueprint: &Blueprint,
    quantization: &Quantization,
    dtype: Dtype,
    formats: &[KvFormat],
) -> (KernelChoice, Vec<String>) {
    let weights = CheckedWeights::of(quantization);
    let (mut choice, mut lines) = (KernelChoice::default(), Vec::new());
    for kernel in CHECKED {
        let checks = confirmed(|| checks_of(kernel, blueprint, dtype, Measure::Load, (&weights, formats)));
        let has_warpgroups = MatrixUnit::of_device() == MatrixUnit::Warpgroup;
        let faster =
            (kernel == GpuKernel::Attention && has_warpgroups).then_some(GpuKernel::WarpgroupAttention);
        let again = || {
            let without = KernelChoice::default().without(GpuKernel::WarpgroupAttention);
            of_attention(blueprint, dtype, Measure::Load, (formats, &without))
        };
        for (kernel, why) in settled(kernel, &checks, faster, again) {
            lines.push(why);
            choice = choice.without(kernel);
        }
    }
    if !choice.uses(GpuKernel::Embed) {
        take_rows::switch_off();
    }
    (choice, lines)
}

/// How often a kernel must be found slow: other load can delay a measurement, and what it decides holds for as long as the model is loaded.
const FOUND_SLOW: usize = 3;

/// The checks of a kernel, made again where it holds and is found slow.
fn confirmed(checks: impl Fn() -> Vec<KernelCheck>) -> Vec<KernelCheck> {
    let mut found = checks();
    for _ in 1..FOUND_SLOW {
        if failure(&found).is_some() || slowness(&found).is_none() {
            break;
        }
        found = checks();
    }
    found
}

/// What is not used after these checks of a kernel, and why. `faster`: the way of it that is given up first; `again`: checks it
/// without that.
fn settled(
    kernel: GpuKernel,
    checks: &[KernelCheck],
    faster: Option<GpuKernel>,
    again: impl FnOnce() -> Vec<KernelCheck>,
) -> Vec<(GpuKernel, String)> {
    let verdict = |checks: &[KernelCheck]| failure(checks).or_else(|| slowness(checks));
    let Some(why) = verdict(checks) else { return Vec::new() };
    let Some(faster) = faster else { return vec![(kernel, why)] };
    let mut off = vec![(faster, format!("{why}; simd groups compute it in place of warpgroups"))];
    off.extend(verdict(&again()).map(|why| (kernel, why)));
    off
}

/// Why the kernel may not be used, if it may not.
fn failure(checks: &[KernelCheck]) -> Option<String> {
    let KernelCheck { kernel, shape, error, tolerance, problem, .. } =
        checks.iter().find(|check| !check.holds())?;
    let why = if problem.is_empty() {
        format!("it differs from MLX by {error:.1e}, above {tolerance:.0e}")
    } else {
        problem.clone()
    };
    Some(format!("the GPU kernel {kernel} ({shape}) is not used: {why}"))
}

/// How many times as long as MLX's operations a kernel may take.
const SLOWER: f64 = 2.0;
/// Microseconds beyond that for each shape: kernels of ours make a decode step one graph, and a launch of MLX's operations
/// costs the host as much.
const LAUNCH_US: f64 = 10.0;

/// How many times as long our products may take where they are no part of a graph.
const SLOWER_ALONE: f64 = 1.1;

/// Why the kernel is not worth its use, if it takes longer than MLX's operations over all shapes.
fn slowness(checks: &[KernelCheck]) -> Option<String> {
    slowness_on(backend(), checks)
}

fn slowness_on(backend: Backend, checks: &[KernelCheck]) -> Option<String> {
    let times: Vec<KernelTimes> = checks.iter().filter_map(|check| check.times).collect();
    let sum = |of: fn(&KernelTimes) -> f64| times.iter().map(of).sum::<f64>();
    let (ours, mlx) = (sum(|times| times.ours_us), sum(|times| times.mlx_us));
    let kernel = checks.first()?.kernel;
    let allowed = match (backend, kernel) {
        (Backend::Metal, "linear") => SLOWER_ALONE * mlx,
        _ => SLOWER * mlx + LAUNCH_US * times.len() as f64,
    };
    (ours > allowed).then(|| {
        format!(
            "the GPU kernel {kernel} is not used: it takes {ours:.0} us where MLX's operations take {mlx:.0}"
        )
    })
}

/// The kernels that are checked, in order.
const CHECKED: [GpuKernel; 8] = [
    GpuKernel::Attention,
    GpuKernel::Embed,
    GpuKernel::AddNorm,
    GpuKernel::Gated,
    GpuKernel::Linear,
    GpuKernel::Experts,
    GpuKernel::Recurrence,
    GpuKernel::Choose,
];

/// Of one of [`CHECKED`]. `weights`: that products are checked with; `formats`: of keys and values.
fn checks_of(
    kernel: GpuKernel,
    blueprint: &Blueprint,
    dtype: Dtype,
    measure: Measure,
    (weights, formats): (&[CheckedWeights], &[KvFormat]),
) -> Vec<KernelCheck> {
    match kernel {
        GpuKernel::Attention => of_attention(blueprint, dtype, measure, (formats, &KernelChoice::default())),
        // It is checked with attention.
        GpuKernel::WarpgroupAttention => Vec::new(),
        GpuKernel::Embed => {
            let mut checks = elementwise::embed(blueprint.hidden, weights, dtype);
            checks.extend([
                elementwise::take_numbers(),
                elementwise::take_columns(),
                elementwise::join(blueprint.hidden, dtype),
            ]);
            checks
        }
        GpuKernel::AddNorm => elementwise::norms(blueprint, &states(blueprint), dtype, measure),
        GpuKernel::Gated => {
            let mut checks = activations::checks(blueprint, dtype, measure);
            checks.extend(elementwise::sums(blueprint, dtype, measure));
            checks
        }
        GpuKernel::Linear => elementwise::linear(blueprint, weights, dtype, measure),
        GpuKernel::Experts => experts::checks(blueprint, weights, dtype),
        GpuKernel::Recurrence => {
            let of = |mixer: &Mixer| recurrent::checks(blueprint, mixer, dtype, measure);
            states(blueprint).into_iter().flat_map(of).collect()
        }
        GpuKernel::Choose => choose::checks(blueprint, measure),
    }
}

/// Every kind of recurrent mixer.
fn states(blueprint: &Blueprint) -> Vec<&Mixer> {
    let mut states: Vec<&Mixer> = Vec::new();
    for mixer in blueprint.layers.iter().flat_map(|layer| layer.mixer.recurrences()) {
        if !states.contains(&mixer) {
            states.push(mixer);
        }
    }
    states
}

/// Of every kind of attention layer, with these kernels.
fn of_attention(
    blueprint: &Blueprint,
    dtype: Dtype,
    measure: Measure,
    (formats, choice): (&[KvFormat], &KernelChoice),
) -> Vec<KernelCheck> {
    let mut layers: Vec<LayerSpec> = Vec::new();
    for layer in blueprint.layers.iter().flat_map(attention_layers) {
        if !layers.iter().any(|known| computes_as(known, &layer)) {
            layers.push(layer);
        }
    }
    let of = |format: &KvFormat| {
        let format = *format;
        let of_layer =
            move |layer: &LayerSpec| attention::checks(blueprint, layer, (dtype, format, choice), measure);
        layers.iter().flat_map(of_layer)
    };
    formats.iter().flat_map(of).collect()
}

/// The attention of a layer, also where it is beside another mixer or inside one, as layers of their own.
fn attention_layers(layer: &LayerSpec) -> Vec<LayerSpec> {
    let alone = |mixer: Mixer| LayerSpec { mixer, ..layer.clone() };
    let latents = layer.mixer.latents().into_iter().map(|latent| alone(latent.clone().into()));
    let attentions = match &layer.mixer {
        // Keys that are chosen are read by MLX's operations.
        Mixer::IndexedAttention(_) => Vec::new(),
        mixer => mixer.attentions(),
    };
    attentions.into_iter().map(|attention| alone(attention.clone().into())).chain(latents).collect()
}

/// Whether the attention of two layers is computed alike, whichever layers' keys they read.
fn computes_as(one: &LayerSpec, other: &LayerSpec) -> bool {
    match (&one.mixer, &other.mixer) {
        (Mixer::Attention(one), Mixer::Attention(other)) if !one.has_keys() && !other.has_keys() => {
            *one == Attention { keys: one.keys, ..other.clone() }
        }
        (one, other) => one == other,
    }
}

/// Bytes a second that a sum over a large array reads.
pub fn read_rate() -> mlx::Result<f64> {
    let array = Array::ones(&[1 << 14, 1 << 14], Dtype::F32)?;
    array.eval()?;
    let us = time(Measure::Table, || Ok(vec![array.sum(&[0, 1])?]))?;
    Ok(array.nbytes() as f64 / us * 1e6)
}

/// Runs that are measured together.
const TOGETHER: usize = 20;
/// Rows and columns of the matrices whose products keep the device busy meanwhile, and how many products.
const BUSY_SIZE: i32 = 4096;
const BUSY_PRODUCTS: usize = 8;

/// Microseconds of a computation on the device. The runs wait behind other work, so that what the host needs to start
/// them is not counted.
fn time(measure: Measure, run: impl Fn() -> mlx::Result<Vec<Array>>) -> mlx::Result<f64> {
    mlx::eval(&run()?)?;
    let busy = Array::ones(&[BUSY_SIZE, BUSY_SIZE], Dtype::Bf16)?;
    busy.eval()?;
    let (mut alone, mut with) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..=measure.rounds() {
        alone = alone.min(behind(&busy, 0, &run)?);
        with = with.min(behind(&busy, TOGETHER, &run)?);
    }
    Ok((with - alone).max(0.0) / TOGETHER as f64)
}

/// Microseconds of products, and of `count` runs behind them.
fn behind(busy: &Array, count: usize, run: &impl Fn() -> mlx::Result<Vec<Array>>) -> mlx::Result<f64> {
    let started = Instant::now();
    let mut product = busy.clone();
    for _ in 0..BUSY_PRODUCTS {
        product = product.matmul(busy)?;
    }
    mlx::async_eval([&product])?;
    let mut outputs = vec![product];
    for _ in 0..count {
        let output = run()?;
        mlx::async_eval(&output)?;
        outputs.extend(output);
    }
    mlx::eval(&outputs)?;
    Ok(started.elapsed().as_secs_f64() * 1e6)
}

/// Relative distance of two arrays, infinite if the first is not finite.
fn distance(ours: &Array, mlx: &Array) -> mlx::Result<f64> {
    let values = |array: &Array| array.astype(Dtype::F32)?.to_vec::<f32>();
    let (ours, mlx) = (values(ours)?, values(mlx)?);
    if ours.len() != mlx.len() || !ours.iter().all(|value| value.is_finite()) {
        return Ok(f64::INFINITY);
    }
    let square = |value: f32| f64::from(value) * f64::from(value);
    let apart: f64 = ours.iter().zip(&mlx).map(|(a, b)| square(a - b)).sum();
    let whole: f64 = mlx.iter().map(|value| square(*value)).sum();
    Ok((apart / whole.max(f64::MIN_POSITIVE)).sqrt())
}

/// Random numbers, the same for the same seed.
fn normal(shape: &[usize], dtype: Dtype, seed: u64) -> mlx::Result<Array> {
    let shape: Vec<i32> = shape.iter().map(|size| *size as i32).collect();
    let array = mlx::random::normal(&shape, dtype, 1.0, &mlx::random::key(seed)?)?;
    array.eval()?;
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(times: Option<[f64; 2]>) -> KernelCheck {
        let run = || Ok((0.0, times.map(|[ours_us, mlx_us]| KernelTimes { ours_us, mlx_us, bytes: 0.0 })));
        KernelCheck::new("gated", "16 x 64".to_owned(), Dtype::F32, run)
    }

    #[test]
    fn attention_without_warpgroups_takes_the_place_of_attention_with_them() {
        let (good, slow) = (|| vec![check(Some([1.0, 9.0]))], || vec![check(Some([90.0, 10.0]))]);
        let off = |checks: Vec<KernelCheck>, faster, again: fn() -> Vec<KernelCheck>| -> Vec<GpuKernel> {
            settled(GpuKernel::Choose, &checks, faster, again).into_iter().map(|(kernel, _)| kernel).collect()
        };
        let by_warpgroups = Some(GpuKernel::WarpgroupAttention);
        assert_eq!(off(good(), by_warpgroups, || panic!("nothing is checked again")), []);
        assert_eq!(off(slow(), None, || panic!("there is no other way")), [GpuKernel::Choose]);
        assert_eq!(off(slow(), by_warpgroups, good), [GpuKernel::WarpgroupAttention]);
        assert_eq!(off(slow(), by_warpgroups, slow), [GpuKernel::WarpgroupAttention, GpuKernel::Choose]);
    }

    #[test]
    fn one_slow_measurement_switches_no_kernel_off() {
        let runs = std::cell::Cell::new(0);
        let slow_before = |good: usize| {
            runs.set(0);
            let found = confirmed(|| {
                runs.set(runs.get() + 1);
                vec![check(Some(if runs.get() < good { [90.0, 10.0] } else { [1.0, 9.0] }))]
            });
            (slowness(&found).is_some(), runs.get())
        };
        assert_eq!(slow_before(1), (false, 1));
        assert_eq!(slow_before(3), (false, 3));
        assert_eq!(slow_before(4), (true, 3));
        runs.set(0);
        confirmed(|| {
            runs.set(runs.get() + 1);
            vec![KernelCheck { error: 1.0, ..check(Some([90.0, 10.0])) }]
        });
        assert_eq!(runs.get(), 1, "a wrong result is not measured again");
    }

    #[test]
    fn a_kernel_that_takes_longer_over_all_shapes_is_not_used() {
        let slow = [check(Some([90.0, 10.0])), check(Some([5.0, 9.0])), check(None)];
        let why = "the GPU kernel gated is not used: it takes 95 us where MLX's operations take 19";
        assert_eq!(slowness(&slow).as_deref(), Some(why));
        assert_eq!(failure(&slow), None);
        let small = [check(Some([60.0, 10.0])), check(Some([30.0, 90.0]))];
        assert_eq!(slowness(&small), None, "the larger shape makes up for it");
        assert_eq!(slowness(&[check(Some([14.0, 2.5]))]), None, "a launch makes up for it");
        assert_eq!(slowness(&[check(None)]), None);
        let product = |ours_us| {
            let times = Some(KernelTimes { ours_us, mlx_us: 100.0, bytes: 0.0 });
            [KernelCheck { kernel: "linear", times, ..check(None) }]
        };
        let is_slow = |backend, ours_us| slowness_on(backend, &product(ours_us)).is_some();
        assert!(is_slow(Backend::Metal, 120.0) && !is_slow(Backend::Metal, 105.0));
        assert!(!is_slow(Backend::Cuda, 120.0), "a product of a graph may take longer");
    }

    fn blueprint(fixture: &str) -> Blueprint {
        let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let config = std::fs::read_to_string(fixtures.join(fixture).join("config.json")).unwrap();
        crate::families::read(&serde_json::from_str(&config).unwrap()).unwrap()
    }

    #[test]
    fn attention_beside_other_mixers_and_experts_beside_a_dense_mlp_are_checked() {
        for fixture in ["qwen3", "falcon_h1", "baichuan_m1", "iquestloopcoder", "deepseek_v2"] {
            let layers = blueprint(fixture).layers;
            assert!(layers.iter().any(|layer| !attention_layers(layer).is_empty()), "{fixture}");
        }
        let chosen = blueprint("minimax_m3_vl");
        let indexed = |layer: &&LayerSpec| matches!(layer.mixer, Mixer::IndexedAttention(_));
        assert!(chosen.layers.iter().filter(indexed).all(|layer| attention_layers(layer).is_empty()));
        for fixture in ["qwen3_moe", "gemma4_text.moe"] {
            let layers = blueprint(fixture).layers;
            assert!(
                layers.iter().flat_map(|layer| &layer.mlp).any(|mlp| mlp.routed().is_some()),
                "{fixture}"
            );
        }
    }
}
