//! The forward pass: latents of the window, then entries, and one attention over both.

use mlx::{Array, Dtype, fast};

use super::compressor::{CompressorBlock, Tail};
use super::index::{EntryIndexerBlock, entries};
use super::rounding::as_e4m3;
use super::spec::ENTRIES;
use super::{CompressedAttention, EntryReads};
use crate::blocks::{Linear, MixerBlock, NormBlock};
use crate::forward::{Gather, KeyChoice};
use crate::mixers::written_rows::WrittenRows;
use crate::norm::Norm;
use crate::ops::{LayerContext, Rotation, Weight};
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// One layer with its weights.
pub(crate) struct CompressedBlock {
    spec: CompressedAttention,
    narrow: Linear,
    narrow_norm: NormBlock,
    queries: Linear,
    latent: Linear,
    latent_norm: NormBlock,
    /// A matrix for each group of heads.
    out_groups: Param<Weight>,
    out: Linear,
    /// `[heads]` f32
    sinks: Param,
    rotation: Rotation,
    back: Rotation,
    compressor: Option<CompressorBlock>,
    indexer: Option<EntryIndexerBlock>,
}

/// Entries, and which of them each row reads.
struct ChosenEntries<'a> {
    ratio: usize,
    rows: WrittenRows<'a>,
    choices: Vec<KeyChoice>,
}

impl CompressedBlock {
    pub(crate) fn load(spec: &CompressedAttention, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let norm = Norm::Rms { eps: spec.norm_eps };
        let at = |name: &str| format!("{path}.{name}");
        let rotation = Rotation::new(&spec.rope, store.params())?;
        Ok(Self {
            narrow: store.linear(&at("q_a_proj"))?,
            narrow_norm: store.norm(&at("q_a_norm"), norm, spec.query_dim)?,
            queries: store.linear(&at("q_b_proj"))?,
            latent: store.linear(&at("kv_proj"))?,
            latent_norm: store.norm(&at("kv_norm"), norm, spec.head_dim())?,
            out_groups: store.head_linear(&at("o_a_proj"))?,
            out: store.linear(&at("o_b_proj"))?,
            sinks: store.float(&at("sinks"))?,
            back: rotation.reversed()?,
            rotation,
            compressor: CompressorBlock::load(spec, store, path)?,
            indexer: EntryIndexerBlock::load(spec, store, path)?,
            spec: spec.clone(),
        })
    }

    /// Entries of `reads`, those of the rows `x` included. `narrow`: what queries come from.
    fn entries<'a>(
        &self,
        reads: &EntryReads,
        x: &Array,
        narrow: &Array,
        layer: &mut LayerContext<'a>,
    ) -> mlx::Result<ChosenEntries<'a>> {
        if let Some(compressor) = &self.compressor {
            compressor.write(x, &self.rotation, layer, self.spec.open_part())?;
        }
        let number = layer.number()?;
        if let Some(indexer) = &self.indexer {
            let choices = indexer.choose(x, narrow, &self.rotation, reads, layer)?;
            layer.ctx.choices.borrow_mut().insert(number, choices);
        }
        let source = (reads.source, ENTRIES);
        let rows =
            crate::mixers::row_cache::RowCache { kind: omnibus_kv::CacheKind::Latent, ..self.spec.window };
        let rows = WrittenRows::of_layer(rows, layer, source)?;
        Ok(ChosenEntries { ratio: reads.ratio, rows, choices: layer.ctx.choices_of(reads.chooser)? })
    }

    /// What the heads see, `[n, heads · head_dim]`, of the rows of one gather. `q`: `[T, heads, head_dim]`.
    fn attend(
        &self,
        q: &Array,
        (window, pool, gather): (&WrittenRows, usize, &Gather),
        beyond: Option<(Array, Array)>,
    ) -> mlx::Result<Array> {
        let (latents, seen) = (window.rows(pool, gather)?, gather.visible(&gather.positions()?)?);
        let (keys, seen) = match beyond {
            Some((entries, chosen)) => {
                (mlx::concatenate(&[&latents, &entries], 2)?, mlx::concatenate(&[&seen, &chosen], -1)?)
            }
            None => (latents, seen),
        };
        let q = gather.rows.of_heads(q)?.astype(Dtype::F32)?;
        let scale = (self.spec.head_dim() as f32).powf(-0.5);
        let y = fast::sdpa(&q, &keys, &keys, scale, fast::Mask::Array(&seen), Some(&self.sinks))?;
        let [count, heads, rows, width] = y.dims()?;
        y.transpose(&[0, 2, 1, 3])?.reshape(&[count * rows, heads * width])
    }

    /// The layer's output, of what the heads saw, `[T, heads, head_dim]`.
    fn output(&self, attended: &Array) -> mlx::Result<Array> {
        let rows = attended.dim(0)?;
        let by_group = attended.reshape(&[rows, self.spec.out_groups as i32, -1])?.transpose(&[1, 0, 2])?;
        let narrow = self.out_groups.of_heads(&by_group)?.transpose(&[1, 0, 2])?;
        self.out.forward(&narrow.reshape(&[rows, -1])?)
    }
}

impl MixerBlock for CompressedBlock {
    fn forward(&self, x: &Array, mut layer: LayerContext) -> mlx::Result<Array> {
        let (rows, heads, width) = (x.dim(0)?, self.spec.heads as i32, self.spec.head_dim() as i32);
        let positions = layer.ctx.positions()?;
        let tail = Tail { rotation: &self.rotation, positions };
        let narrow = self.narrow_norm.forward(&self.narrow.forward(x)?)?;
        let q = tail.rotated(&self.queries.forward(&narrow)?.reshape(&[rows, heads, width])?, &layer)?;
        let latent = self.latent_norm.forward(&self.latent.forward(x)?)?.expand_dims(&[1])?;
        let latent = as_e4m3(&tail.rotated(&latent, &layer)?.squeeze(&[1])?)?;
        let window = WrittenRows::write(self.spec.window, &latent, &mut layer, 0)?;
        let beyond = match &self.spec.entries {
            Some(reads) => Some(self.entries(reads, x, &narrow, &mut layer)?),
            None => None,
        };
        let mut attended = Vec::new();
        let mut chosen = beyond.iter().flat_map(|beyond| beyond.rows.gathers().zip(&beyond.choices));
        for (pool, gather) in window.gathers() {
            let entries = match (&beyond, chosen.next()) {
                (Some(beyond), Some(((pool, gather), choice))) => {
                    let entries = entries(&beyond.rows.rows(pool, gather)?, beyond.ratio)?;
                    (entries.dim(2)? > 0).then(|| (entries, choice.chosen.clone()))
                }
                _ => None,
            };
            attended.push(self.attend(&q, (&window, pool, gather), entries)?);
        }
        let attended = window.in_order(&attended)?.reshape(&[rows, heads, width])?;
        let turned_back = Tail { rotation: &self.back, positions }.rotated(&attended, &layer)?;
        self.output(&turned_back.astype(x.dtype()?)?)
    }
}
