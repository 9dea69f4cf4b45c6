//! The one decoder: embeds rows, runs the layers over them, and returns logits of the requested rows.

mod adapters;
mod compile_ahead;
mod draft_pass;
mod inputs;
mod launches;
mod layer;
mod pass;
mod stream;

use std::rc::Rc;

use mlx::cpu::ExpertMemory;
use mlx::gpu::{KernelOrder, KernelTime, OtherArrays, StepArrays, StepTrace};
use mlx::{Array, Dtype};
use omnibus_kv::{FloatType, KvFormat};

use crate::batch::{Batch, CrossStates, MultimodalRows};
use crate::blocks::{
    AdaptedPass, Adapters, Embedding, FuseBlock, Linear, MaskedHeadBlock, MediaVocabularyBlock, NormBlock,
    PerLayerEmbedding,
};
use crate::blueprint::{Blueprint, EMBED_NORM, Head, LayerSpec, POSITIONS, Stage, TOKEN_TYPES};
use crate::error::Error;
use crate::forward::{AttentionPath, ForwardContext, KvPath, LogitRows};
use crate::kernel_choice::{GpuKernel, KernelChoice};
use crate::kv_cache::KvCache;
use crate::kv_format::KvStorage;
use crate::mixers::Mixer;
use crate::ops::{AttentionNeeds, ByLength, Kernels, Ops};
use crate::params::{Param, Params};
use crate::quantization::Quantization;
use crate::shard::{ModelPart, Shard};
use crate::step_graphs::{GraphPass, StepGraphs};
use crate::weights::{ExpertFiles, LoadError, Source, Store, Weights};
use crate::{families, kernel_check, kv_format};
pub use compile_ahead::PassShape;
pub(crate) use draft_pass::{DraftPass, DraftPassInput};
pub use launches::StepLaunches;
use layer::Layer;
pub use pass::PassOutput;
use pass::{PassInput, copied_rows};
use stream::StreamEnds;

/// Rows of a step up to which logits of all cost no more than those of some.
const ALL_LOGITS_MAX: i32 = 128;

/// A network with its weights. Stays on the thread that built it.
pub struct Model {
    blueprint: Blueprint,
    /// All stages of it, where this is one of several.
    network: Option<Blueprint>,
    quantization: Quantization,
    kernels: Kernels,
    ops: Ops,
    dtype: Dtype,
    /// Of the first stage, and of the last if it has no head of its own.
    embed: Option<Embedding>,
    /// Learned positions, `[positions, hidden]`.
    positions: Option<Param>,
    /// `[types, hidden]`.
    token_types: Option<Param>,
    per_layer: Option<PerLayerEmbedding>,
    media_vocabulary: Option<MediaVocabularyBlock>,
    stream: StreamEnds,
    embed_norm: Option<NormBlock>,
    /// Of a draft head.
    fuse: Option<FuseBlock>,
    layers: Vec<Layer>,
    /// Of the last stage.
    norm: Option<NormBlock>,
    head: Option<Linear>,
    masked_head: Option<MaskedHeadBlock>,
    adapters: Rc<Adapters>,
    /// What its layers hold.
    params: Params,
    /// On CUDA.
    step_graphs: Option<StepGraphs>,
    /// Of a rank of several: `head` has its part of the vocabulary.
    shard: Option<Shard>,
    /// Where experts stay in their files.
    expert_memory: Option<ExpertMemory>,
}

/// How a GPU's work is launched. Those named `…_total` only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaunchStats {
    /// Kernels that were compiled, or loaded from the compiler's cache.
    pub compiled_kernels_total: u64,
    /// Graphs of decode steps that were built.
    pub step_graphs_total: u64,
    /// Kernels and operations of the last decode step; 0 if it was not a graph.
    pub step_launches: u64,
}

/// Float32 logits of the requested rows, `[n, vocab]`.
pub struct RowLogits(pub Array);

/// What of a checkpoint is loaded, and where its progress goes.
pub struct Loading<'a> {
    /// Of the model.
    pub part: ModelPart,
    /// Called with the bytes of weights that are resident so far, after each layer.
    pub progress: &'a mut dyn FnMut(u64),
    /// Most bytes of experts that are resident while the others stay in their files. `None`: all are resident.
    pub expert_memory: Option<u64>,
}

impl<'a> Loading<'a> {
    /// A part with all its experts.
    pub fn resident(part: ModelPart, progress: &'a mut dyn FnMut(u64)) -> Self {
        Self { part, progress, expert_memory: None }
    }
}

impl Model {
    /// Reads the config and the weights of a checkpoint, checks one against the other, and makes the
    /// weights resident.
    pub fn load(source: &Source, kernels: Kernels) -> Result<Self, Error> {
        Self::load_part(source, kernels, Loading::resident(ModelPart::default(), &mut |_| ()))
    }

    /// Loads a model likewise, or the part of a rank, and says how far it is.
    pub fn load_part(source: &Source, kernels: Kernels, loading: Loading<'_>) -> Result<Self, Error> {
        let config = source.config()?;
        let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
        let mut blueprint = families::read(&config).map_err(in_config)?;
        if matches!(source, Source::Random(_)) {
            // They have the names that rewrites lead to.
            blueprint.rewrites.clear();
        }
        let quantization = Quantization::read(&config).map_err(in_config)?;
        let weights = source.weights()?;
        let experts = match loading.expert_memory {
            Some(bytes) => {
                let of = (source, &weights);
                Some(ExpertFiles::open(of, &blueprint, (kernels, &loading.part), bytes)?)
            }
            None => None,
        };
        Self::assemble(blueprint, quantization, (weights, experts), kernels, loading)
    }

    /// The network of a blueprint over the tensors of a checkpoint.
    pub fn build(
        blueprint: Blueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
    ) -> Result<Self, Error> {
        Self::build_part(blueprint, quantization, weights, kernels, ModelPart::default())
    }

    /// What one of several processes computes of the network of a blueprint, over the tensors of the whole checkpoint.
    pub fn build_part(
        blueprint: Blueprint,
        quantization: Quantization,
        weights: Weights,
        kernels: Kernels,
        part: ModelPart,
    ) -> Result<Self, Error> {
        let progress = &mut |_| ();
        let loading = Loading::resident(part, progress);
        Self::assemble(blueprint, quantization, (weights, None), kernels, loading)
    }

    fn assemble(
        mut blueprint: Blueprint,
        quantization: Quantization,
        (weights, experts): (Weights, Option<ExpertFiles>),
        kernels: Kernels,
        Loading { part, progress, .. }: Loading<'_>,
    ) -> Result<Self, Error> {
        let shard = part.shard.clone();
        let store = Store::new(&mut blueprint, quantization.clone(), weights, kernels, part)?;
        let mut store = store.with_experts_in(experts);
        let root = blueprint.names.root;
        let embed_path = format!("{root}.{}", blueprint.names.embed);
        let dtype = store.activations();
        let embed = blueprint.has_embeddings().then(|| store.embedding(&embed_path)).transpose()?;
        let stage = blueprint.stage;
        let learned = blueprint.learned_positions.filter(|_| stage.reads_tokens());
        let positions = learned.map(|_| store.table(&format!("{root}.{POSITIONS}"))).transpose()?;
        let types = blueprint.token_types.filter(|_| stage.reads_tokens());
        let token_types = types.map(|_| store.table(&format!("{root}.{TOKEN_TYPES}"))).transpose()?;
        let per_layer = blueprint.per_layer_inputs;
        let per_layer =
            per_layer.map(|inputs| PerLayerEmbedding::load(inputs, &mut store, root)).transpose()?;
        let vocabularies = if stage.reads_tokens() { blueprint.media_vocabularies.as_slice() } else { &[] };
        let media_vocabulary = MediaVocabularyBlock::load(vocabularies, &mut store, root)?;
        let stream = StreamEnds::load(&blueprint, &mut store)?;
        let hidden = blueprint.hidden;
        let mut norm_at = |name: &str, norm| store.norm(&format!("{root}.{name}"), norm, hidden);
        let embed_norm = blueprint.embed_norm.filter(|_| stage.reads_tokens());
        let embed_norm = embed_norm.map(|norm| norm_at(EMBED_NORM, norm)).transpose()?;
        let fuse_norm = blueprint.fuse_norm();
        let fuse = stage.draft_head();
        let fuse =
            fuse.map(|input| FuseBlock::load(input.states, fuse_norm, &mut store, root)).transpose()?;
        let mut norm_at = |name: &str, norm| store.norm(&format!("{root}.{name}"), norm, hidden);
        let norm = stage.gives_logits().then(|| norm_at(blueprint.names.final_norm, blueprint.final_norm));
        let norm = norm.transpose()?;
        evaluate(&store, progress)?;
        let layers = load_layers(&blueprint, &mut store, progress)?;
        let head = load_head(&blueprint, &mut store, embed.as_ref(), shard.as_ref())?;
        let masked_head = blueprint.masked_head.filter(|_| stage.gives_logits());
        let masked_head = masked_head.map(|spec| MaskedHeadBlock::load(spec, &mut store)).transpose()?;
        evaluate(&store, progress)?;
        assert!(store.is_empty(), "the check left only what the blocks take");
        let step_graphs = kernels.uses_step_graphs().then(StepGraphs::default);
        Ok(Self {
            blueprint,
            network: store.take_network(),
            quantization,
            kernels,
            ops: store.ops(),
            dtype,
            embed,
            positions,
            token_types,
            per_layer,
            media_vocabulary,
            stream,
            embed_norm,
            fuse,
            layers,
            norm,
            head,
            masked_head,
            adapters: Rc::clone(store.adapters()),
            params: store.params().clone(),
            step_graphs,
            shard,
            expert_memory: store.expert_memory(),
        })
    }

    /// The memory for experts, where they stay in their files.
    pub fn expert_memory(&self) -> Option<&ExpertMemory> {
        self.expert_memory.as_ref()
    }

    /// Limits layers with full attention to the first `sink_tokens` positions and the last ones, `tokens` together, so
    /// that a sequence of any length takes the memory of so many. `tokens` is above `sink_tokens`.
    pub fn limit_attention_span(&mut self, tokens: usize, sink_tokens: usize) {
        self.blueprint.limit_attention_span(tokens, sink_tokens);
        if let Some(network) = &mut self.network {
            network.limit_attention_span(tokens, sink_tokens);
        }
        for (layer, spec) in self.layers.iter_mut().zip(&self.blueprint.layers) {
            if let Some(attention) = spec.mixer.attentions().first() {
                layer.mixer.set_span(attention.span);
            }
        }
    }

    /// The norm behind the last layer.
    fn final_norm(&self) -> mlx::Result<&NormBlock> {
        self.norm.as_ref().ok_or_else(|| mlx::Error::new("the stage with the last layer"))
    }

    /// The largest float32 logit of each token of the vocabulary over these hidden states of the final norm, `[n, hidden]`, by
    /// the head of a masked language model: `[1, vocab]`. `None` without such a head.
    pub fn largest_masked_logits(&self, hidden: &Array) -> mlx::Result<Option<Array>> {
        let Some((head, embed)) = self.masked_head.as_ref().zip(self.embed.as_ref()) else { return Ok(None) };
        head.logits(hidden, embed)?.max_keepdims(&[0]).map(Some)
    }

    /// The network with the layers of all stages, whole on each rank. Without stages it is the [`blueprint`](Self::blueprint).
    pub fn network(&self) -> &Blueprint {
        self.network.as_ref().unwrap_or(&self.blueprint)
    }

    /// What it computes of the network.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// Which of several ranks it is computed on.
    pub fn shard(&self) -> Option<&Shard> {
        self.shard.as_ref()
    }

    /// How its weights are packed.
    pub fn quantization(&self) -> &Quantization {
        &self.quantization
    }

    /// The dtype of activations.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The type that unquantized keys and values are stored in.
    pub fn kv_float(&self) -> FloatType {
        kv_format::float_of(self.dtype)
    }

    /// Compares GPU kernels with MLX's operations at the model's shapes and this format of keys and values, and from then on
    /// uses those that neither fail nor differ: a line for each other.
    pub fn switch_off_failing_kernels(&self, storage: KvStorage) -> Vec<String> {
        let float = storage.unquantized_prefix.map(|prefix| KvFormat::Float(prefix.float));
        let formats: Vec<KvFormat> = [storage.format].into_iter().chain(float).collect();
        match self.kernels {
            Kernels::Gpu => {
                let (choice, lines) =
                    kernel_check::choose_kernels(&self.blueprint, &self.quantization, self.dtype, &formats);
                self.ops.set_choice(choice);
                lines
            }
            Kernels::Mlx | Kernels::Cpu | Kernels::CpuInt8 => Vec::new(),
        }
    }

    /// Which GPU kernels the model uses.
    pub fn kernel_choice(&self) -> KernelChoice {
        self.ops.choice()
    }

    /// Uses these GPU kernels, which another process has chosen, in place of a check. To be called before the first pass.
    pub fn use_kernels(&self, choice: KernelChoice) {
        self.ops.set_choice(choice);
    }

    /// Whether a kernel of ours chooses tokens ([`mlx::cpu::choose_tokens`], [`mlx::gpu::choose_tokens`]).
    pub fn has_choice_kernel(&self) -> bool {
        match self.kernels {
            Kernels::Mlx => false,
            Kernels::Cpu | Kernels::CpuInt8 => true,
            Kernels::Gpu => self.ops.choice().uses(GpuKernel::Choose),
        }
    }

    /// Which kernels compute.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// How rows reach keys and values that are stored like this.
    pub fn kv_path(&self, storage: KvStorage, block_size: usize) -> KvPath {
        self.attention_path(storage, block_size).kv_path()
    }

    fn attention_path(&self, storage: KvStorage, block_size: usize) -> AttentionPath {
        let layers = self.blueprint.layers.iter().flat_map(|layer| layer.mixer.attentions());
        let by_length = if self.blueprint.shares_prefixes() { ByLength::No } else { ByLength::Yes };
        let needs = AttentionNeeds {
            storage,
            by_length,
            block_size,
            layers: layers.collect(),
            latents: self.blueprint.layers.iter().flat_map(|layer| layer.mixer.latents()).collect(),
            gathers: self.blueprint.needs_mlx(|kind| !kind.is_state()),
        };
        self.ops.attention_path(&needs)
    }

    /// Keys and values of a picture in each layer of cross attention, of its encoder's rows, `[n, hidden]`; lazily. `None` if
    /// the model has no such layers.
    pub fn cross_states(&self, rows: &Array) -> mlx::Result<Option<CrossStates>> {
        let states = self.layers.iter().map(|layer| layer.mixer.cross_keys(rows));
        let states = states.collect::<mlx::Result<Vec<_>>>()?;
        let states: Vec<[Array; 2]> = states.into_iter().flatten().collect();
        Ok((!states.is_empty()).then(|| CrossStates(states.into())))
    }

    /// Builds the graph of one pass. Keys, values and states of every segment's rows are written to `cache`.
    /// Nothing is computed before the result is evaluated, except that MLX's operations read the initial states
    /// of recurrences, and that CUDA begins with the first layers of a long pass.
    ///
    /// Logits come for the rows `batch.logits_at` names, in that order; `None` if it names none. Steps of a part
    /// of a network are not launched as graphs. After an error `cache` may lack pools
    /// ([`KvCache::is_whole`]).
    pub fn forward(&self, batch: &Batch, cache: &mut KvCache) -> mlx::Result<PassOutput> {
        let (mut ctx, _adapted) = self.context(batch, cache)?;
        let graphs = self.graphs_of(batch).filter(|_| self.blueprint.stage == Stage::Whole);
        let rows = batch.tokens.size() as i32;
        if let Some(graphs) = graphs
            && let Some(wanted) = ctx.logits_at.take_if(|wanted| may_have_all_logits(wanted, rows))
        {
            // Padding rows have logits, too, so that fewer shapes occur.
            ctx.logits_at = Some(LogitRows::First(rows));
            let constants = || self.constants();
            let places = batch.hidden.as_ref().map(|hidden| hidden.places.as_slice()).unwrap_or_default();
            let compute = |tokens: &Array, cache: &mut KvCache| self.of_all_rows(tokens, &ctx, cache, places);
            let pass = GraphPass { tokens: &batch.tokens, states: None, places };
            if let Some(made) = graphs.run(pass, &ctx, cache, constants, compute)? {
                let [logits, hidden @ ..] = made.as_slice() else { return Err(mlx::Error::new("logits")) };
                let logits = Some(RowLogits(wanted.of(logits)?));
                let hidden = copied_rows(hidden, batch.hidden.as_ref())?;
                return Ok(PassOutput { logits, hidden, stream: None });
            }
            ctx.logits_at = Some(wanted);
        }
        self.output(PassInput::Tokens(&batch.tokens), batch, &ctx, cache)
    }

    /// Graphs that a pass may be one of. They have no place for adapters, nor for features and rows that see later ones, and record
    /// no inputs.
    fn graphs_of(&self, batch: &Batch) -> Option<&StepGraphs> {
        let only_positions = batch.multimodal.as_ref().is_none_or(MultimodalRows::are_positions);
        self.step_graphs.as_ref().filter(|_| only_positions && self.adapters.are_idle())
    }

    /// What the layers of a pass share, and its adapters while they are in use.
    fn context(&self, batch: &Batch, cache: &mut KvCache) -> mlx::Result<(ForwardContext, AdaptedPass<'_>)> {
        let path = match self.attention_path(cache.storage, cache.block_size) {
            // Kernels of GPUs are causal.
            AttentionPath::Items if batch.has_bidirectional_rows() => AttentionPath::Gather,
            AttentionPath::Segments | AttentionPath::Items if batch.has_unattended_rows() => {
                AttentionPath::Gather
            }
            path => path,
        };
        let recurrent: Vec<&Mixer> =
            self.blueprint.layers.iter().flat_map(|layer| layer.mixer.recurrences()).collect();
        let state_path = self.ops.state_path(&recurrent);
        let ctx = ForwardContext::new(batch, cache, self.blueprint.rotary_axes(), (path, state_path))?;
        Ok((ctx, self.adapters.enter(batch)?))
    }

    /// How decode steps are launched.
    pub fn launches(&self) -> LaunchStats {
        let graphs = self.step_graphs.as_ref();
        LaunchStats {
            compiled_kernels_total: mlx::gpu::compiled_kernels(),
            step_graphs_total: graphs.map_or(0, StepGraphs::built),
            step_launches: graphs.map_or(0, StepGraphs::launches) as u64,
        }
    }

    /// How long each kernel of a pass takes by itself, in the order in which they run, the mean of `runs`; operations of MLX
    /// that are short are measured with the host's part. What the pass writes to `cache` is written several times.
    ///
    /// Fails but for CUDA.
    pub fn kernel_times(
        &self,
        batch: &Batch,
        cache: &mut KvCache,
        runs: u32,
    ) -> mlx::Result<Vec<KernelTime>> {
        mlx::eval(cache.arrays())?;
        let pools: Vec<Array> = cache.arrays().cloned().collect();
        let pools: Vec<&Array> = pools.iter().collect();
        let (ctx, _adapted) = self.context(batch, cache)?;
        let computed = self.compute(&batch.tokens, &ctx, cache);
        cache.restore(&pools);
        let logits = computed?.ok_or_else(|| mlx::Error::new("a pass with logits"))?;
        let constants = self.constants();
        let constants = constants.iter().collect::<Vec<_>>();
        let arrays =
            StepArrays { inputs: &[], constants: &constants, borrowed: &pools, others: OtherArrays::Held };
        StepTrace::new(&[&logits], &arrays)?.graph(KernelOrder::Overlapped)?.times(&[], &pools, runs)
    }

    /// What a pass reads besides its input and its caches.
    fn constants(&self) -> Vec<Array> {
        let exchanged = self.shard.iter().flat_map(Shard::arrays);
        self.params.arrays().into_iter().chain(exchanged).collect()
    }

    /// Why decode steps are not launched as graphs, once.
    pub fn take_launch_problem(&self) -> Option<String> {
        self.step_graphs.as_ref().and_then(StepGraphs::take_problem)
    }
}

/// Whether logits of all of so many rows cost no more than those that are wanted: where there are few, or most are wanted.
fn may_have_all_logits(wanted: &LogitRows, rows: i32) -> bool {
    match wanted {
        LogitRows::First(_) => true,
        LogitRows::At(wanted) => rows <= ALL_LOGITS_MAX || 2 * wanted.size() as i32 >= rows,
    }
}

/// What gives the logits, if that is not the embedding: a head of its own, or a rank's rows of the embedding.
fn load_head(
    blueprint: &Blueprint,
    store: &mut Store,
    embed: Option<&Embedding>,
    shard: Option<&Shard>,
) -> Result<Option<Linear>, LoadError> {
    if !blueprint.stage.gives_logits() {
        return Ok(None);
    }
    Ok(match (blueprint.head, embed.zip(shard)) {
        (Head::Own, _) => Some(store.linear("lm_head")?),
        (Head::Tied, Some((embed, shard))) => Some(embed.rows(shard.range(blueprint.vocab))?),
        (Head::Tied | Head::OwnIfPresent | Head::Target | Head::Absent, _) => None,
    })
}

/// Makes resident what the store gave out, and says how many bytes there are now.
fn evaluate(store: &Store, progress: &mut dyn FnMut(u64)) -> mlx::Result<()> {
    store.params().evaluate()?;
    progress(store.params().bytes());
    Ok(())
}

/// The layers that have weights, each resident before the next is read.
fn load_layers(
    blueprint: &Blueprint,
    store: &mut Store,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Layer>, LoadError> {
    let (root, hidden) = (blueprint.names.root, blueprint.hidden);
    let load_layer = |(index, spec): (usize, &LayerSpec)| {
        let path = format!("{root}.layers.{}", spec.number);
        let layer = Layer::load(spec, (blueprint.stream, index), store, &path, hidden)?;
        evaluate(store, progress)?;
        Ok(layer)
    };
    blueprint.stored_layers().iter().enumerate().map(load_layer).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::weights::RandomWeights;

    /// Every tensor of a checkpoint is one of the network's arrays, or part of one, but for tables that are computed once.
    #[test]
    fn a_network_lists_all_its_tensors() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for name in ["qwen3", "qwen3_moe", "mamba2", "qwen3_next", "rwkv7", "deepseek_v3", "gpt_oss"] {
            let config = std::fs::read_to_string(fixtures.join(name).join("config.json")).unwrap();
            let weights = Source::Random(RandomWeights::new(name, &config, None).unwrap());
            let model = Model::load(&weights, Kernels::Mlx).unwrap();
            let stored: usize =
                model.blueprint().manifest().0.values().map(|shape| shape.iter().product::<usize>()).sum();
            let listed: usize = model.params.arrays().iter().map(Array::size).sum();
            assert!(listed >= stored, "{name}: {listed} elements of {stored} are listed");
        }
    }
}
