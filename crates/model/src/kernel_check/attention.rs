//! Checks of attention: two passes over pools of their own, with chunks, decoding rows and padding.

use mlx::{Array, Dtype};
use omnibus_kv::{BlockId, BlockTable, KvFormat};

use super::latent::LatentLayer;
use super::probed::Probed;
use super::softmax::SoftmaxLayer;
use super::{KernelCheck, KernelTimes, Measure, distance, time};
use crate::batch::{Batch, Segment};
use crate::blueprint::{Blueprint, LayerSpec};
use crate::forward::ForwardContext;
use crate::kernel_choice::KernelChoice;
use crate::kv_cache::KvCache;
use crate::kv_format;
use crate::kv_format::KvStorage;
use crate::mixers::{Attention, KeyReads, KeySource, Mixer};
use crate::ops::{AttentionNeeds, ByLength, Kernels, LayerContext, Ops};

const BLOCK_SIZE: usize = 16;
/// Scores from which the tolerance grows with them. MLX rounds queries and keys once more than kernels do, and scores too: weights of
/// larger ones differ by more. Gemma 4, which does not scale them, has 16 with heads of 256 and 23 with heads of 512, and distances of
/// 2e-2 to 3e-2 in bfloat16.
const ROUNDED_SCORES: f64 = 8.0;
/// Packing in 4 bits itself costs about 8e-2.
const PACKED_4_BIT_TOLERANCE: f64 = 6e-2;

/// Sequences of a pass: tokens before it and rows in it.
type Pass<'a> = &'a [(usize, usize)];

/// A network with one layer.
struct Probe<'a> {
    layer: Box<dyn Probed + 'a>,
    /// The network with this layer alone.
    blueprint: Blueprint,
    storage: KvStorage,
    /// The GPU kernels that are used.
    choice: KernelChoice,
}

/// `None` for layers without attention kernels.
fn probed<'a>(layer: &'a LayerSpec, dtype: Dtype) -> Option<mlx::Result<Box<dyn Probed + 'a>>> {
    match &layer.mixer {
        Mixer::Attention(spec) => {
            Some(SoftmaxLayer::new(spec, dtype).map(|layer| Box::new(layer) as Box<dyn Probed>))
        }
        Mixer::Latent(spec) if spec.reads == KeyReads::All => {
            Some(LatentLayer::new(spec, dtype).map(|layer| Box::new(layer) as Box<dyn Probed>))
        }
        _ => None,
    }
}

pub(super) fn checks(
    blueprint: &Blueprint,
    layer: &LayerSpec,
    (dtype, format, choice): (Dtype, KvFormat, &KernelChoice),
    measure: Measure,
) -> Vec<KernelCheck> {
    let stored = match (format, &layer.mixer) {
        // Packed latents have no kernels.
        (KvFormat::Packed { .. }, Mixer::Latent(_)) => return Vec::new(),
        (KvFormat::Float(_), _) => String::new(),
        (KvFormat::Packed { bits, .. }, _) => format!(", {bits} bits"),
    };
    let Some(Ok(of_layer)) = probed(layer, dtype) else { return Vec::new() };
    let (shape, scores) = (of_layer.shape() + &stored, of_layer.scores());
    let probe = || {
        let probed = probed(layer, dtype).ok_or_else(|| mlx::Error::new("a layer with kernels"))??;
        Ok::<_, mlx::Error>(Probe::new(blueprint, &writer(layer), probed, (format, choice)))
    };
    let mut check = KernelCheck::new("attention", shape.clone(), dtype, || Ok((probe()?.error()?, None)));
    check.tolerance *= (scores / ROUNDED_SCORES).max(1.0);
    if let KvFormat::Packed { bits: 4, .. } = format {
        // A number that is rounded otherwise before it is packed gets another code, a fifteenth of its group's range away.
        check.tolerance = check.tolerance.max(PACKED_4_BIT_TOLERANCE);
    }
    let mut checks = vec![check];
    let passes: &[(&str, (usize, usize), usize)] = match measure {
        Measure::Load => &[("decode 16 x 512", (511, 1), 16)],
        Measure::Table => &[
            ("decode 1 x 4096", (4095, 1), 1),
            ("decode 16 x 4096", (4095, 1), 16),
            ("decode 64 x 512", (511, 1), 64),
            ("prompt 2048", (0, 2048), 1),
        ],
    };
    for (name, row, count) in passes {
        let run = || probe()?.times(&vec![*row; *count], measure).map(|times| (0.0, Some(times)));
        checks.push(KernelCheck::new("attention", format!("{shape}, {name}"), dtype, run));
    }
    checks
}

/// The layer, with keys of its own in place of another layer's: what a layer that reads them is checked with.
fn writer(layer: &LayerSpec) -> LayerSpec {
    match &layer.mixer {
        Mixer::Attention(spec) if !spec.has_keys() => {
            let own = Attention { keys: KeySource::Own, ..spec.clone() };
            LayerSpec { mixer: own.into(), ..layer.clone() }
        }
        _ => layer.clone(),
    }
}

impl<'a> Probe<'a> {
    fn new(
        blueprint: &Blueprint,
        spec: &LayerSpec,
        layer: Box<dyn Probed + 'a>,
        (format, choice): (KvFormat, &KernelChoice),
    ) -> Self {
        let blueprint = Blueprint { layers: vec![spec.clone()], ..blueprint.clone() };
        Self { layer, blueprint, storage: format.into(), choice: choice.clone() }
    }

    fn ops(&self, kernels: Kernels) -> Ops {
        let ops = kernels.ops();
        ops.set_choice(self.choice.clone());
        ops
    }

    /// The largest error of prompts and of the pass that follows them.
    fn error(&self) -> mlx::Result<f64> {
        let passes: [Pass; 3] =
            [&[(0, 37), (0, 5), (0, 150)], &[(37, 1), (5, 60), (150, 1)], &[(38, 1), (65, 1), (151, 1)]];
        let (ours, mlx) = (self.outputs(&passes, Kernels::Gpu)?, self.outputs(&passes, Kernels::Mlx)?);
        let errors = ours.iter().zip(&mlx).map(|(ours, mlx)| distance(ours, mlx));
        errors.collect::<mlx::Result<Vec<f64>>>().map(|errors| errors.into_iter().fold(0.0, f64::max))
    }

    /// The outputs of passes one after another, without padding.
    fn outputs(&self, passes: &[Pass], kernels: Kernels) -> mlx::Result<Vec<Array>> {
        let longest = passes.iter().flat_map(|pass| pass.iter()).map(|(context, rows)| context + rows);
        let mut cache = self.cache(3, longest.max().unwrap_or(0))?;
        let (ops, mut outputs) = (self.ops(kernels), Vec::new());
        for (seed, pass) in passes.iter().enumerate() {
            let used: usize = pass.iter().map(|(_, rows)| rows).sum();
            let batch = batch(pass, used.next_power_of_two().max(8), &self.tables(&cache, pass))?;
            let ctx = self.context(&batch, &cache, &ops)?;
            let projected = self.layer.projected(batch.tokens.size(), 20 + seed as u64)?;
            let attended = self.attend(&ops, &ctx, &mut cache, &projected)?;
            mlx::eval([&attended].into_iter().chain(cache.arrays()))?;
            outputs.push(attended.slice(&[0, 0], &[used as i32, attended.dim(-1)?])?);
        }
        Ok(outputs)
    }

    /// How long one pass takes. The cache holds zeros.
    fn times(&self, pass: Pass, measure: Measure) -> mlx::Result<KernelTimes> {
        let longest = pass.iter().map(|(context, rows)| context + rows).max().unwrap_or(0);
        let rows: usize = pass.iter().map(|(_, rows)| rows).sum();
        let us = |kernels: Kernels| {
            let (ops, cache) = (self.ops(kernels), self.cache(pass.len(), longest)?);
            let batch = batch(pass, rows, &self.tables(&cache, pass))?;
            let ctx = self.context(&batch, &cache, &ops)?;
            let projected = self.layer.projected(rows, 9)?;
            let cache = std::cell::RefCell::new(cache);
            time(measure, || {
                let attended = self.attend(&ops, &ctx, &mut cache.borrow_mut(), &projected)?;
                // MLX's operations copy a pool that is still read.
                if kernels == Kernels::Mlx {
                    mlx::eval([&attended].into_iter().chain(cache.borrow().arrays()))?;
                }
                Ok(vec![attended])
            })
        };
        let keys: usize = pass.iter().map(|(context, rows)| context + rows).sum();
        let of_key = self.storage.format.width(self.layer.cached())
            * kv_format::dtype_of(self.storage.format).size_of();
        let bytes = keys * of_key;
        let times =
            KernelTimes { ours_us: us(Kernels::Gpu)?, mlx_us: us(Kernels::Mlx)?, bytes: bytes as f64 };
        mlx::memory::clear_cache();
        Ok(times)
    }

    /// A cache of blocks for so many sequences.
    fn cache(&self, sequences: usize, tokens: usize) -> mlx::Result<KvCache> {
        let blocks = sequences * tokens.div_ceil(BLOCK_SIZE);
        KvCache::new(&self.blueprint, &[blocks], BLOCK_SIZE, self.storage)
    }

    /// Each sequence's table: every n-th block.
    fn tables(&self, cache: &KvCache, pass: Pass) -> Vec<BlockTable> {
        let (count, total) = (pass.len(), cache.blocks.first().copied().unwrap_or(0));
        let kind = cache.groups.first().map(|group| group.spec.kind);
        let table = |(at, (context, rows)): (usize, &(usize, usize))| {
            let held = (context + rows).div_ceil(BLOCK_SIZE);
            let blocks = (at..total).step_by(count).take(held).map(|block| BlockId(block as u32)).collect();
            let sink_blocks = kind.map_or(0, |kind| kind.sink_blocks(BLOCK_SIZE));
            BlockTable { freed_blocks: 0, sink_blocks, blocks }
        };
        pass.iter().enumerate().map(table).collect()
    }

    fn context(&self, batch: &Batch, cache: &KvCache, ops: &Ops) -> mlx::Result<ForwardContext> {
        let mut needs = AttentionNeeds {
            storage: self.storage,
            by_length: if self.blueprint.shares_prefixes() { ByLength::No } else { ByLength::Yes },
            block_size: BLOCK_SIZE,
            layers: Vec::new(),
            latents: Vec::new(),
            gathers: false,
        };
        self.layer.add_to(&mut needs);
        let paths = (ops.attention_path(&needs), ops.state_path(&[]));
        ForwardContext::new(batch, cache, self.blueprint.rotary_axes(), paths)
    }

    fn attend(
        &self,
        ops: &Ops,
        ctx: &ForwardContext,
        cache: &mut KvCache,
        projected: &[Array],
    ) -> mlx::Result<Array> {
        self.layer.attend(ops, projected, LayerContext { ctx, index: 0, cache })
    }
}

fn batch(pass: Pass, rows: usize, tables: &[BlockTable]) -> mlx::Result<Batch> {
    let mut first = 0;
    let mut segments = Vec::new();
    for ((context, len), table) in pass.iter().zip(tables) {
        let prompt = context + len;
        let (len, context, tables) = (*len, *context, vec![table.clone()]);
        segments.push(Segment { first, len, context, prompt, samples: 0, adapter: None, tables });
        first += len;
    }
    let tokens = Array::from_slice(&vec![0i32; rows], &[rows as i32])?;
    Ok(Batch { tokens, segments, logits_at: Vec::new(), multimodal: None, hidden: None })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::families;

    /// The GPU's checks with the CPU's kernels in their place.
    #[test]
    fn layers_of_every_key_source_are_checked() {
        if !mlx::cpu::available() {
            return;
        }
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let mut seen = Vec::new();
        for name in ["qwen3", "gemma3n", "gemma4_text.moe"] {
            let config = std::fs::read_to_string(fixtures.join(name).join("config.json")).unwrap();
            let blueprint = families::read(&serde_json::from_str(&config).unwrap()).unwrap();
            for layer in &blueprint.layers {
                let probed = probed(layer, Dtype::F32).unwrap().unwrap();
                seen.push(probed.shape());
                let format = KvFormat::Float(omnibus_kv::FloatType::F32);
                let probe =
                    Probe::new(&blueprint, &writer(layer), probed, (format, &KernelChoice::default()));
                let passes: [Pass; 2] = [&[(0, 21), (0, 5)], &[(21, 1), (5, 9)]];
                let [ours, mlx] =
                    [Kernels::Cpu, Kernels::Mlx].map(|kernels| probe.outputs(&passes, kernels).unwrap());
                for (ours, mlx) in ours.iter().zip(&mlx) {
                    let apart = distance(ours, mlx).unwrap();
                    assert!(apart < 1e-4, "{name}, {}: {apart}", probe.layer.shape());
                }
            }
        }
        for kind in ["full", "full, keys as values", "full, shared keys"] {
            assert!(seen.iter().any(|shape| shape.ends_with(kind)), "{kind} in {seen:?}");
        }
    }
}
