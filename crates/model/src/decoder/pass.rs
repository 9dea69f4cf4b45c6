//! One pass: from tokens, or from the stream of the stage before, through the layers to hidden states, and from these to logits.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};

use super::{Model, RowLogits};
use crate::batch::{Batch, HiddenPlace, HiddenRows};
use crate::blocks::{ResidualStream, TokenInputs};
use crate::blueprint::{Head, Passes};
use crate::forward::{ForwardContext, LogitRows};
use crate::kv_cache::KvCache;
use crate::ops::LayerContext;
use crate::take_rows::take_rows;

/// What a pass gives.
#[derive(Default)]
pub struct PassOutput {
    /// Of the rows that the batch names; `None` if it names none, and but for the last stage.
    pub logits: Option<RowLogits>,
    /// One array for each place that the batch names, `[n, hidden]`.
    pub hidden: Vec<Array>,
    /// What the next stage begins with, `[T, hidden]`; of stages but the last.
    pub stream: Option<Array>,
}

/// What a pass begins with.
#[derive(Clone, Copy)]
pub(super) enum PassInput<'a> {
    /// `[T]` i32.
    Tokens(&'a Array),
    /// What the stage before gave, `[T, hidden]`.
    Stream(&'a Array),
    /// Embeddings, and the stream that a draft head made of them and of hidden states, `[T, hidden]` each.
    Fused { embedded: &'a Array, stream: &'a Array },
}

/// When the device begins with a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// When what it gives is evaluated. So nothing is computed of a pass that is only looked at.
    Evaluated,
    /// While the host builds it, a layer at a time: a prompt's first layers run during the others' construction, which takes
    /// milliseconds.
    WhileBuilt,
}

/// The fewest rows of a pass that begins while it is built: each layer costs the host one more launch, and a device that has few
/// rows waits for the host.
const ROWS_WHILE_BUILT: usize = 65;
/// The fewest rows of a pass that begins while it is built, where each sequence has one row: such a pass is built while the one
/// before it computes.
const DECODED_WHILE_BUILT: usize = 256;

/// What the layers of a pass made.
pub(super) struct Hidden {
    pub(super) stream: ResidualStream,
    /// Rows behind the layers that were named, by their index in the whole network.
    behind: BTreeMap<usize, Array>,
}

/// Rows of hidden states that a pass gives, and which of its own layers they are behind.
pub(super) struct WantedRows<'a> {
    rows: LogitRows,
    places: &'a [HiddenPlace],
}

impl WantedRows<'_> {
    fn names(&self, layer: usize) -> bool {
        self.places.contains(&HiddenPlace::Layer(layer))
    }
}

impl Model {
    /// Builds the graph of one pass of a stage behind another, as [`forward`](Self::forward) does. `stream`: what the
    /// stage before gave of the same batch.
    pub fn forward_from(
        &self,
        stream: &Array,
        batch: &Batch,
        cache: &mut KvCache,
    ) -> mlx::Result<PassOutput> {
        if self.blueprint.stage.reads_tokens() {
            return Err(mlx::Error::new("a stage that begins with a stream"));
        }
        let (ctx, _adapted) = self.context(batch, cache)?;
        self.output(PassInput::Stream(stream), batch, &ctx, cache)
    }

    /// All that the batch names.
    pub(super) fn output(
        &self,
        input: PassInput,
        batch: &Batch,
        ctx: &ForwardContext,
        cache: &mut KvCache,
    ) -> mlx::Result<PassOutput> {
        let wanted = batch.hidden.as_ref().map(|hidden| self.wanted(hidden, ctx)).transpose()?;
        let made = self.hidden(input, ctx, cache, (wanted.as_ref(), self.begins(batch)))?;
        let hidden =
            wanted.as_ref().map(|wanted| self.hidden_at(&made, wanted)).transpose()?.unwrap_or_default();
        if !self.blueprint.stage.gives_logits() {
            return Ok(PassOutput { logits: None, hidden, stream: Some(made.stream.plain()?) });
        }
        let logits = match &ctx.logits_at {
            Some(rows) => Some(RowLogits(self.logits_at(made.stream, rows)?)),
            None => None,
        };
        Ok(PassOutput { logits, hidden, stream: None })
    }

    /// Hidden states of the wanted rows, `[n, hidden]` of each place.
    fn hidden_at(&self, made: &Hidden, WantedRows { rows, places }: &WantedRows) -> mlx::Result<Vec<Array>> {
        let of_place = |place: &HiddenPlace| match place {
            HiddenPlace::FinalNorm => self.adapters.of_rows(rows, || self.normed(made.stream.clone(), rows)),
            HiddenPlace::Layer(layer) => {
                made.behind.get(layer).cloned().ok_or_else(|| mlx::Error::new("a layer of the pass"))
            }
        };
        places.iter().map(of_place).collect()
    }

    /// Float32 logits of the rows that the pass names, `[n, vocab]`.
    pub(super) fn compute(
        &self,
        tokens: &Array,
        ctx: &ForwardContext,
        cache: &mut KvCache,
    ) -> mlx::Result<Option<Array>> {
        let made = self.hidden(PassInput::Tokens(tokens), ctx, cache, (None, Begins::Evaluated))?;
        ctx.logits_at.as_ref().map(|rows| self.logits_at(made.stream, rows)).transpose()
    }

    /// Float32 logits of all rows of a pass, `[T, vocab]`, and their hidden states of these places, `[T, hidden]` each.
    pub(super) fn of_all_rows(
        &self,
        tokens: &Array,
        ctx: &ForwardContext,
        cache: &mut KvCache,
        places: &[HiddenPlace],
    ) -> mlx::Result<Vec<Array>> {
        let all = || LogitRows::First(tokens.size() as i32);
        let wanted = WantedRows { rows: all(), places };
        let made = self.hidden(PassInput::Tokens(tokens), ctx, cache, (Some(&wanted), Begins::Evaluated))?;
        let hidden = self.hidden_at(&made, &wanted)?;
        let logits = self.logits_at(made.stream, &all())?;
        Ok(std::iter::once(logits).chain(hidden).collect())
    }

    /// When a pass begins that is no graph.
    fn begins(&self, batch: &Batch) -> Begins {
        let decodes = batch.segments.iter().all(|segment| segment.len == 1);
        let least = if decodes { DECODED_WHILE_BUILT } else { ROWS_WHILE_BUILT };
        match &self.step_graphs {
            Some(_) if batch.tokens.size() >= least => Begins::WhileBuilt,
            _ => Begins::Evaluated,
        }
    }

    /// Runs the layers.
    pub(super) fn hidden(
        &self,
        input: PassInput,
        ctx: &ForwardContext,
        cache: &mut KvCache,
        (wanted, begins): (Option<&WantedRows>, Begins),
    ) -> mlx::Result<Hidden> {
        if let Some(shard) = &self.shard {
            shard.begin_pass();
        }
        let ops = &self.ops;
        let (inputs, mut stream) = self.begin(input, ctx)?;
        let (mut index, mut passed, mut behind) = (0, 0, BTreeMap::new());
        let (passes, first) = (self.blueprint.passes, self.blueprint.stage.first_layer());
        for spec in &self.blueprint.layers {
            let at = passed % self.layers.len();
            if let (Passes::Several { each_normed: true, .. }, true) = (passes, passed > 0 && at == 0) {
                stream = ResidualStream::new(ops, stream.norm(self.final_norm()?)?);
            }
            self.layers[at].forward(&mut stream, &inputs, LayerContext { ctx, index, cache })?;
            if let Some(placed) = &ctx.features
                && let Some(term) = placed.deepstack.get(first + passed)
            {
                stream.add_to_rows(&placed.rows, term)?;
            }
            if let Some(wanted) = wanted.filter(|wanted| wanted.names(first + passed)) {
                behind.insert(first + passed, wanted.rows.of(&stream.plain()?)?);
            }
            index += spec.mixer.spec().caches().len();
            passed += 1;
            if begins == Begins::WhileBuilt {
                mlx::async_eval(stream.arrays())?;
            }
        }
        Ok(Hidden { stream, behind })
    }

    /// What the layers read, and the stream before the first of them.
    fn begin(&self, input: PassInput, ctx: &ForwardContext) -> mlx::Result<(TokenInputs, ResidualStream)> {
        let ops = &self.ops;
        let tokens = match input {
            PassInput::Tokens(tokens) => tokens,
            PassInput::Stream(stream) => {
                let inputs = TokenInputs { embedded: stream.clone(), per_layer: None };
                return Ok((inputs, self.stream.resume(ops, stream.clone())));
            }
            PassInput::Fused { embedded, stream } => {
                let inputs = TokenInputs { embedded: embedded.clone(), per_layer: None };
                return Ok((inputs, self.stream.resume(ops, stream.clone())));
            }
        };
        let embedded = self.embedded(tokens, ctx)?;
        let per_layer = match (&self.per_layer, &ctx.features) {
            (Some(own), Some(placed)) => {
                // Their own embeddings of features are those of the first token.
                let first = Array::zeros(placed.rows.shape(), tokens.dtype()?)?;
                Some(own.forward(&tokens.clone().scatter_rows(&placed.rows, &first)?, &embedded)?)
            }
            (own, _) => own.as_ref().map(|own| own.forward(tokens, &embedded)).transpose()?,
        };
        let inputs = TokenInputs { embedded, per_layer };
        let stream = self.stream.begin(ops, &inputs.embedded)?;
        Ok((inputs, stream))
    }

    /// The rows that hidden states are wanted of, if its layers have them.
    fn wanted<'a>(&self, hidden: &'a HiddenRows, ctx: &ForwardContext) -> mlx::Result<WantedRows<'a>> {
        let stage = self.blueprint.stage;
        let layers = stage.first_layer()..stage.first_layer() + self.blueprint.layers.len();
        let is_there = |place: &HiddenPlace| match place {
            HiddenPlace::FinalNorm => stage.gives_logits(),
            HiddenPlace::Layer(layer) => layers.contains(layer),
        };
        if let Some(place) = hidden.places.iter().find(|place| !is_there(place)) {
            return Err(mlx::Error::new(format!("hidden states of a place that is there, not {place:?}")));
        }
        let rows = ctx.rows(&hidden.rows)?.ok_or_else(|| mlx::Error::new("rows of hidden states"))?;
        Ok(WantedRows { rows, places: &hidden.places })
    }

    /// The final norm of these rows, `[n, hidden]`.
    pub(super) fn normed(&self, mut stream: ResidualStream, rows: &LogitRows) -> mlx::Result<Array> {
        stream.take_rows(rows)?;
        self.stream.end(&self.ops, stream)?.norm(self.final_norm()?)
    }

    /// Float32 logits of these rows, `[n, vocab]`.
    fn logits_at(&self, stream: ResidualStream, rows: &LogitRows) -> mlx::Result<Array> {
        self.adapters.of_rows(rows, || self.logits(&self.normed(stream, rows)?))
    }

    /// Float32 logits, `[n, vocab]`, of hidden states of the final norm, `[n, hidden]`.
    pub fn logits(&self, hidden: &Array) -> mlx::Result<Array> {
        let logits = self.head_rows(hidden)?.astype(Dtype::F32)?;
        let logits = self.scaled(logits, self.blueprint.logit_scale)?;
        let logits = match self.blueprint.logit_softcap {
            Some(cap) => (logits / cap).tanh()? * cap,
            None => logits,
        };
        let rest = self.blueprint.unpredicted as i32;
        let logits = match rest {
            0 => logits,
            rest => logits.pad(&[(0, 0), (0, rest)], f32::NEG_INFINITY)?,
        };
        self.without_placeholders(logits)
    }

    /// What the output matrix gives, `[n, rows]`.
    pub(super) fn head_rows(&self, hidden: &Array) -> mlx::Result<Array> {
        let tied = self.embed.as_ref().map(|embed| &embed.0).filter(|_| self.blueprint.head != Head::Absent);
        let head = self.head.as_ref().or(tied).ok_or_else(|| mlx::Error::new("a stage with a head"))?;
        let rows = head.forward(hidden)?;
        match &self.shard {
            Some(shard) => shard.join(&rows, self.blueprint.vocab),
            None => Ok(rows),
        }
    }

    /// Logits `[n, vocab]`, −∞ for tokens that are never sampled.
    fn without_placeholders(&self, logits: Array) -> mlx::Result<Array> {
        if self.blueprint.never_sampled.is_empty() {
            return Ok(logits);
        }
        let never = &self.blueprint.never_sampled;
        let is_never: Vec<bool> = (0..self.blueprint.vocab).map(|token| never.contains(&token)).collect();
        let is_never = Array::from_slice(&is_never, &[is_never.len() as i32])?;
        mlx::where_(&is_never, &Array::scalar(f32::NEG_INFINITY, Dtype::F32)?, &logits)
    }

    pub(super) fn scaled(&self, x: Array, factor: f32) -> mlx::Result<Array> {
        if factor == 1.0 { Ok(x) } else { self.ops.scaled(&x, factor) }
    }

    /// What the first layer reads, `[T, hidden]`.
    fn embedded(&self, tokens: &Array, ctx: &ForwardContext) -> mlx::Result<Array> {
        let embed = self.embed.as_ref().ok_or_else(|| mlx::Error::new("a stage that begins with tokens"))?;
        let vocab = self.blueprint.vocab as i32;
        let typed = self.token_types.as_ref().map(|types| typed(tokens, vocab, types)).transpose()?;
        let tokens = typed.as_ref().map_or(tokens, |(tokens, _)| tokens);
        let mut x = self.scaled(embed.forward(tokens, self.dtype)?, self.blueprint.embed_scale)?;
        if let Some((_, types)) = &typed {
            x = x + types;
        }
        if let Some(vocabulary) = &self.media_vocabulary {
            x = vocabulary.replace(&x, tokens)?;
        }
        if let Some(placed) = &ctx.features {
            if placed.features.dim(-1)? as usize != self.blueprint.hidden {
                return Err(mlx::Error::new("features as wide as the stream"));
            }
            x = x.scatter_rows(&placed.rows, &placed.features)?;
        }
        if let Some((table, spec)) = self.positions.as_ref().zip(self.blueprint.learned_positions) {
            let rows = match spec.first {
                0 => ctx.positions()?.clone(),
                first => ctx.positions()? + &Array::from_slice(&[first as i32], &[1])?,
            };
            x = x + table.take(&rows, 0)?;
        }
        match &self.embed_norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}

/// Some rows of hidden states of all rows, in memory of their own. `hidden`: of each place, `[T, hidden]`.
pub(super) fn copied_rows(hidden: &[Array], wanted: Option<&HiddenRows>) -> mlx::Result<Vec<Array>> {
    let Some(wanted) = wanted else { return Ok(Vec::new()) };
    let rows: Vec<i32> = wanted.rows.iter().map(|row| *row as i32).collect();
    let rows = Array::from_slice(&rows, &[rows.len() as i32])?;
    hidden.iter().map(|states| take_rows(states, &rows)).collect()
}

/// Tokens without their types, `[T]` i32, and embeddings of their types, `[T, hidden]`. `table`: `[types, hidden]`.
fn typed(tokens: &Array, vocab: i32, table: &Array) -> mlx::Result<(Array, Array)> {
    let mut types = Array::zeros(tokens.shape(), tokens.dtype()?)?;
    for number in 1..table.dim(0)? {
        let first = Array::from_slice(&[number * vocab], &[1])?;
        types = types + tokens.greater_equal(&first)?.astype(tokens.dtype()?)?;
    }
    let tokens = tokens - &types * &Array::from_slice(&[vocab], &[1])?;
    Ok((tokens, table.take(&types, 0)?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use omnibus_kv::{FloatType, KvFormat};

    use super::*;
    use crate::decoder::PassShape;
    use crate::kv_format::KvStorage;
    use crate::ops::Kernels;
    use crate::weights::{RandomWeights, Source};

    /// Bits of the logits of a pass of three prompts.
    fn logits(model: &Model, begins: Begins) -> Vec<u32> {
        let storage = KvStorage::from(KvFormat::Float(FloatType::F32));
        let pass = PassShape { rows: 40, sequences: vec![20, 3, 17] };
        let (mut batch, mut cache) = model.first_pass(storage, 16, &pass).unwrap();
        let tokens: Vec<i32> = (0..40).map(|row| row * 7 % 60).collect();
        batch.tokens = Array::from_slice(&tokens, &[40]).unwrap();
        let (ctx, _adapted) = model.context(&batch, &mut cache).unwrap();
        let made = model.hidden(PassInput::Tokens(&batch.tokens), &ctx, &mut cache, (None, begins)).unwrap();
        let logits = model.logits_at(made.stream, ctx.logits_at.as_ref().unwrap()).unwrap();
        let all = cache.arrays().chain([&logits]);
        mlx::eval(all).unwrap();
        logits.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn passes_have_equal_logits_whenever_they_begin() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for name in ["qwen3", "qwen3_moe", "gemma3n", "deepseek_v3", "qwen3_next", "mamba2", "gpt_oss"] {
            let config = std::fs::read_to_string(fixtures.join(name).join("config.json")).unwrap();
            for kernels in [Kernels::fastest(), Kernels::Mlx] {
                let random = RandomWeights::new(name, &config, None).unwrap();
                let model = Model::load(&Source::Random(random), kernels).unwrap();
                let whole = logits(&model, Begins::Evaluated);
                assert!(whole.iter().any(|bits| *bits != whole[0]), "{name}: all logits are equal");
                assert!(whole == logits(&model, Begins::WhileBuilt), "{name}, {kernels:?}");
            }
        }
    }
}
