//! Compiles the GPU kernels of a model's passes before the first of them.

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable};

use super::{DraftPassInput, Model};
use crate::batch::{Batch, Segment};
use crate::draft_states::DraftStates;
use crate::forward::{LogitRows, StatePath};
use crate::kernel_check;
use crate::kv_cache::KvCache;
use crate::kv_format::KvStorage;
use crate::mixers::Mixer;
use crate::ops::Kernels;

/// How many rows a pass has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassShape {
    /// Of each sequence.
    pub sequences: Vec<usize>,
    /// With padding.
    pub rows: usize,
}

impl Model {
    /// Compiles the kernels of these passes, and of the choice of tokens, on all cores: how many. Nothing is computed. A failure
    /// costs only time: what is not compiled here is compiled when it is first used.
    pub fn compile_ahead(
        &self,
        storage: KvStorage,
        block_size: usize,
        passes: &[PassShape],
    ) -> mlx::Result<usize> {
        let recurrent: Vec<&Mixer> =
            self.blueprint.layers.iter().flat_map(|layer| layer.mixer.recurrences()).collect();
        // Without kernels for them, the graph's construction reads initial states.
        let reads_states = !recurrent.is_empty() && self.ops.state_path(&recurrent) == StatePath::Gather;
        if self.kernels != Kernels::Gpu || reads_states {
            return Ok(0);
        }
        mlx::gpu::compile_ahead(|| {
            passes.iter().try_for_each(|pass| self.build_pass(storage, block_size, pass))?;
            kernel_check::build_choices(&self.blueprint)
        })
    }

    /// Compiles the kernels of these passes of a draft head likewise: those that read the target's hidden states of `places` layers,
    /// and those that read what a pass before gave.
    pub(crate) fn compile_drafts_ahead(
        &self,
        target: &Self,
        own_rows: Option<&Array>,
        places: usize,
        (storage, block_size): (KvStorage, usize),
        passes: &[PassShape],
    ) -> mlx::Result<usize> {
        if self.kernels != Kernels::Gpu {
            return Ok(0);
        }
        let states = |rows: usize, places: usize| {
            Array::zeros(&[rows as i32, (places * target.blueprint.hidden) as i32], target.dtype)
        };
        let build = |pass: &PassShape, states: DraftStates<'_>| -> mlx::Result<()> {
            let (batch, mut cache) = self.first_pass(storage, block_size, pass)?;
            let (mut ctx, _adapted) = self.context(&batch, &mut cache)?;
            ctx.logits_at = Some(LogitRows::First(pass.rows as i32));
            let input = DraftPassInput { target, states: Some(states), own_rows };
            self.draft_graph(input, &batch.tokens, &ctx, &mut cache).map(drop)
        };
        mlx::gpu::compile_ahead(|| {
            passes.iter().try_for_each(|pass| {
                build(pass, DraftStates::OfTarget(&states(pass.rows, places)?))?;
                build(pass, DraftStates::OfHead(&states(pass.rows, 1)?))
            })
        })
    }

    /// Builds the graph of a pass over a cache of its own, and drops it.
    fn build_pass(&self, storage: KvStorage, block_size: usize, pass: &PassShape) -> mlx::Result<()> {
        let (batch, mut cache) = self.first_pass(storage, block_size, pass)?;
        let (ctx, _adapted) = self.context(&batch, &mut cache)?;
        self.compute(&batch.tokens, &ctx, &mut cache).map(drop)
    }

    /// A pass of prompts whose tokens are 0, and a cache that has room for it.
    pub(super) fn first_pass(
        &self,
        storage: KvStorage,
        block_size: usize,
        pass: &PassShape,
    ) -> mlx::Result<(Batch, KvCache)> {
        let sequences = pass.sequences.len();
        let longest = pass.sequences.iter().copied().max().unwrap_or(0).div_ceil(block_size);
        let groups = self.blueprint.kv_cache_groups(storage);
        let held = |is_state: bool| if is_state { 1 } else { longest };
        let blocks: Vec<usize> =
            groups.iter().map(|group| sequences * held(group.spec.kind.is_state())).collect();
        let cache = KvCache::new(&self.blueprint, &blocks, block_size, storage)?;
        let (mut segments, mut first) = (Vec::new(), 0);
        for (at, len) in pass.sequences.iter().copied().enumerate() {
            let tables = groups.iter().map(|group| {
                let kind = group.spec.kind;
                let begin = at * held(kind.is_state());
                let count = if kind.is_state() { 1 } else { len.div_ceil(block_size) };
                let blocks = (begin..begin + count).map(|block| BlockId(block as u32)).collect();
                BlockTable { blocks, ..BlockTable::new(kind, block_size) }
            });
            let tables = tables.collect();
            segments.push(Segment { first, len, context: 0, prompt: len, samples: 1, adapter: None, tables });
            first += len;
        }
        let logits_at = segments.iter().map(|segment| segment.first + segment.len - 1).collect();
        let tokens = Array::from_slice(&vec![0i32; pass.rows], &[pass.rows as i32])?;
        let batch = Batch { tokens, segments, logits_at, multimodal: None, hidden: None };
        Ok((batch, cache))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use omnibus_kv::{FloatType, KvFormat};

    use super::*;
    use crate::weights::{RandomWeights, Source};

    #[test]
    fn graphs_of_every_kind_of_layer_are_built() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let passes = [vec![40], vec![1; 8], vec![30, 1, 17, 1, 3]];
        let passes = passes.map(|sequences| PassShape { rows: 64, sequences });
        for name in [
            "qwen3",
            "qwen3_moe",
            "gemma3_text",
            "gemma3n",
            "gemma4_text",
            "gpt_oss",
            "deepseek_v3",
            "qwen3_next",
            "mamba2",
            "lfm2",
        ] {
            let config = std::fs::read_to_string(fixtures.join(name).join("config.json")).unwrap();
            let random = RandomWeights::new(name, &config, None).unwrap();
            let model = Model::load(&Source::Random(random), Kernels::fastest()).unwrap();
            for pass in &passes {
                let storage = KvStorage::from(KvFormat::Float(FloatType::F32));
                let built = model.build_pass(storage, 16, pass);
                assert!(built.is_ok(), "{name}, {pass:?}: {built:?}");
            }
        }
    }

    /// Some tensors of two axes are no weights of a product: their numbers are read one by one.
    #[test]
    fn graphs_of_all_families_with_packed_weights_are_built() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let pass = PassShape { rows: 8, sequences: vec![3, 1] };
        let (mut built, mut failed) = (0, Vec::new());
        for entry in std::fs::read_dir(fixtures).unwrap() {
            let config = entry.unwrap().path().join("config.json");
            let Ok(text) = std::fs::read_to_string(&config) else { continue };
            // Encoders alone, and configs of other formats of packed weights.
            let Ok(random) = RandomWeights::new(&config.display().to_string(), &text, Some(4)) else {
                continue;
            };
            let model = Model::load(&Source::Random(random), Kernels::fastest()).unwrap();
            let storage = KvStorage::from(KvFormat::Float(FloatType::F32));
            match model.build_pass(storage, 16, &pass) {
                Ok(()) => built += 1,
                Err(error) => failed.push(format!("{}: {error}", config.display())),
            }
        }
        assert!(failed.is_empty() && built > 100, "{built} built, {failed:#?}");
    }
}
