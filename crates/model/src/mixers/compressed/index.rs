//! Which entries a row reads.

use mlx::{Array, Dtype};

use super::compressor::Tail;
use super::rounding::{BlockScale, as_e2m1};
use super::spec::KEYS;
use super::{Candidates, CompressedAttention, EntryIndexer, EntryReads};
use crate::blocks::Linear;
use crate::forward::{Gather, KeyChoice};
use crate::mixers::RowCache;
use crate::mixers::written_rows::{WrittenRows, in_blocks, largest, where_seen};
use crate::ops::{LayerContext, Rotation};
use crate::weights::{LoadError, Store};
use omnibus_kv::CacheKind;

/// The indexer with its weights.
pub(super) struct EntryIndexerBlock {
    spec: EntryIndexer,
    queries: Linear,
    weights: Linear,
}

/// Entries of whole groups: every `ratio`-th of the rows `[n, 1, positions, width]` of a gather.
pub(super) fn entries(rows: &Array, ratio: usize) -> mlx::Result<Array> {
    let [count, heads, positions, width] = rows.dims()?;
    let ratio = ratio as i32;
    let start = [0, 0, (ratio - 1).min(positions), 0];
    rows.slice_strided(&start, &[count, heads, positions, width], &[1, 1, ratio, 1])
}

/// `true` where the group of an entry ends at a row or before, `[n, 1, rows, entries]`.
fn seen(gather: &Gather, ratio: usize) -> mlx::Result<Array> {
    let [rows, _] = gather.positions()?;
    let ends = Array::arange(0..gather.keys / ratio as i32, Dtype::I32)?;
    rows.greater_equal(&(ends * ratio as i32 + (ratio as i32 - 1)))
}

impl EntryIndexerBlock {
    pub(super) fn load(
        spec: &CompressedAttention,
        store: &mut Store,
        path: &str,
    ) -> Result<Option<Self>, LoadError> {
        let Some(spec) = spec.indexer() else { return Ok(None) };
        Ok(Some(Self {
            spec: spec.clone(),
            queries: store.linear(&format!("{path}.indexer.q_b_proj"))?,
            weights: store.linear(&format!("{path}.indexer.weights_proj"))?,
        }))
    }

    /// The choice for every gather. `narrow`: what queries come from.
    pub(super) fn choose(
        &self,
        x: &Array,
        narrow: &Array,
        rotation: &Rotation,
        reads: &EntryReads,
        layer: &mut LayerContext,
    ) -> mlx::Result<Vec<KeyChoice>> {
        let (rows, heads, width) = (x.dim(0)?, self.spec.heads as i32, self.spec.width as i32);
        let tail = Tail { rotation, positions: layer.ctx.positions()? };
        let queries = tail.rotated(&self.queries.forward(narrow)?.reshape(&[rows, heads, width])?, layer)?;
        let queries = as_e2m1(&queries, 32, BlockScale::PowerOfTwo)?.astype(Dtype::F32)?;
        let scale = (heads as f32 * width as f32).powf(-0.5);
        let weights = (self.weights.forward(x)?.astype(Dtype::F32)? * scale).expand_dims(&[-1])?;
        let keys = RowCache { width: self.spec.width, kind: CacheKind::Latent };
        let keys = WrittenRows::of_layer(keys, layer, (reads.source, KEYS))?;
        let nominated = match self.spec.candidates {
            Candidates::Of(source) => Some(layer.ctx.choices_of(source)?),
            Candidates::All | Candidates::Nominates { .. } => None,
        };
        let choose = |(at, (pool, gather)): (usize, (usize, &Gather))| {
            let keys = entries(&keys.rows(pool, gather)?, reads.ratio)?;
            let seen = seen(gather, reads.ratio)?;
            if keys.dim(2)? == 0 {
                return Ok(KeyChoice { chosen: seen, candidates: None });
            }
            let queries = gather.rows.of_heads(&queries)?;
            let scores = queries.matmul(&keys.swapaxes(-1, -2)?)?.relu()? * gather.rows.of_heads(&weights)?;
            let scores = scores.sum(&[1])?.expand_dims(&[1])?;
            let nominated = nominated.as_ref().and_then(|choices| choices.get(at)?.candidates.as_ref());
            self.best(&scores, seen, nominated)
        };
        keys.gathers().enumerate().map(choose).collect()
    }

    /// The best of the entries that a row sees, by scores `[n, 1, rows, entries]`.
    fn best(&self, scores: &Array, seen: Array, nominated: Option<&Array>) -> mlx::Result<KeyChoice> {
        let candidates = match self.spec.candidates {
            Candidates::Nominates { blocks, size } => Some(best_blocks(scores, &seen, blocks, size)?),
            Candidates::All | Candidates::Of(_) => None,
        };
        let among = match nominated {
            Some(nominated) => seen.logical_and(nominated)?,
            None => seen,
        };
        let kept = self.spec.kept as i32;
        let chosen = match scores.dim(-1)? <= kept {
            true => among,
            false => largest(&where_seen(&among, scores)?, kept)?.logical_and(&among)?,
        };
        Ok(KeyChoice { chosen, candidates })
    }
}

/// `true` at the entries of a row's best blocks, its newest one among them: that one is rarely whole, so that an older one
/// could have a better score.
fn best_blocks(scores: &Array, seen: &Array, kept: usize, size: usize) -> mlx::Result<Array> {
    let (entries, size, kept) = (scores.dim(-1)?, size as i32, kept as i32);
    let best = in_blocks(&where_seen(seen, scores)?, size)?.max(&[-1])?;
    let blocks = best.dim(-1)?;
    if blocks <= kept {
        return Ok(seen.clone());
    }
    let visible = seen.astype(Dtype::I32)?.sum(&[-1])?.expand_dims(&[-1])?;
    let newest = (visible - 1).floor_divide(&Array::from_slice(&[size], &[1])?)?;
    let is_newest = Array::arange(0..blocks, Dtype::I32)?.equal(&newest)?;
    let best = mlx::where_(&is_newest, &Array::scalar(f32::INFINITY, Dtype::F32)?, &best)?;
    let mut stop = seen.shape().to_vec();
    let chosen = largest(&best, kept)?.repeat(size, -1)?;
    if let Some(last) = stop.last_mut() {
        *last = entries;
    }
    chosen.slice(&vec![0; stop.len()], &stop)?.logical_and(seen)
}
