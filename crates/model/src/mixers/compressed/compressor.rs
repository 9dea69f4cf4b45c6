//! How entries are made.

use mlx::{Array, Dtype};

use super::rounding::{BlockScale, as_e2m1};
use super::spec::{ENTRIES, KEYS};
use super::{CompressedAttention, Compressor, OpenGroup};
use crate::blocks::{Linear, NormBlock};
use crate::mixers::written_rows::WrittenRows;
use crate::norm::Norm;
use crate::ops::{LayerContext, Rotation};
use crate::weights::{LoadError, Store};

/// The compressor with its weights, and those of its keys.
pub(super) struct CompressorBlock {
    spec: Compressor,
    /// Positions of an entry.
    ratio: usize,
    latent: Linear,
    gate: Option<Linear>,
    norm: NormBlock,
    key: Option<(Linear, NormBlock)>,
}

/// The last dimensions of rows, which rotate.
pub(super) struct Tail<'a> {
    pub(super) rotation: &'a Rotation,
    /// Of the rows of the pass, `[T]` i32.
    pub(super) positions: &'a Array,
}

impl Tail<'_> {
    /// `x`: `[T, heads, width]`.
    pub(super) fn rotated(&self, x: &Array, layer: &LayerContext) -> mlx::Result<Array> {
        let [_, _, width] = x.dims()?;
        let parts = x.split(&[width - self.rotation.rope.dims as i32], -1)?;
        let [head, tail] = parts.as_slice() else { return Err(mlx::Error::new("a head and its tail")) };
        let turned = self.rotation.apply(&tail.astype(Dtype::F32)?, self.positions, &layer.ctx.lengths)?;
        mlx::concatenate(&[head, &turned.astype(x.dtype()?)?], -1)
    }
}

impl CompressorBlock {
    /// `path`: that of the attention.
    pub(super) fn load(
        attention: &CompressedAttention,
        store: &mut Store,
        path: &str,
    ) -> Result<Option<Self>, LoadError> {
        let (Some(entries), Some(spec)) = (&attention.entries, attention.compressor()) else {
            return Ok(None);
        };
        let norm = Norm::Rms { eps: attention.norm_eps };
        let at = |name: &str| format!("{path}.compressor.{name}");
        let key = match spec.keys {
            Some(keys) => Some((
                store.linear(&format!("{path}.indexer.k_proj"))?,
                store.norm(&format!("{path}.indexer.k_norm"), norm, keys.width)?,
            )),
            None => None,
        };
        Ok(Some(Self {
            ratio: entries.ratio,
            latent: store.linear(&at("kv_proj"))?,
            gate: spec.open.map(|_| store.linear(&at("gate_proj"))).transpose()?,
            norm: store.norm(&at("kv_norm"), norm, spec.entries.width)?,
            key,
            spec: spec.clone(),
        }))
    }

    /// Caches the entries that end at the rows `x`, `[T, hidden]`, and their keys. `open`: where the open group is cached.
    pub(super) fn write(
        &self,
        x: &Array,
        rotation: &Rotation,
        layer: &mut LayerContext,
        open: usize,
    ) -> mlx::Result<()> {
        let latent = match (&self.gate, self.spec.open) {
            (Some(gate), Some(group)) => self.pooled(x, gate, group, layer.part(open))?,
            _ => self.latent.forward(x)?,
        };
        let latent = self.norm.forward(&latent.astype(x.dtype()?)?)?;
        // An entry has the position of the first of its group.
        let positions = layer.ctx.positions()? - (self.ratio - 1) as i32;
        let tail = Tail { rotation, positions: &positions };
        let turned = |rows: &Array| tail.rotated(&rows.expand_dims(&[1])?, layer)?.squeeze(&[1]);
        let entries = as_e2m1(&turned(&latent)?, 16, BlockScale::E4m3)?;
        let keys = match &self.key {
            Some((projection, norm)) => {
                let keys = turned(&norm.forward(&projection.forward(&latent)?)?)?;
                Some(as_e2m1(&keys, 32, BlockScale::PowerOfTwo)?)
            }
            None => None,
        };
        WrittenRows::write(self.spec.entries, &entries, layer, ENTRIES)?;
        if let (Some(spec), Some(keys)) = (self.spec.keys, keys) {
            WrittenRows::write(spec, &keys, layer, KEYS)?;
        }
        Ok(())
    }

    /// For each row, the mean of the last positions, `[T, width]` f32. It is an entry where a group ends.
    fn pooled(
        &self,
        x: &Array,
        gate: &Linear,
        OpenGroup { ratio, width }: OpenGroup,
        layer: LayerContext,
    ) -> mlx::Result<Array> {
        let wide = x.astype(Dtype::F32)?;
        let both = mlx::concatenate(&[&self.latent.forward(&wide)?, &gate.forward(&wide)?], -1)?;
        let both = both.astype(Dtype::F32)?;
        let (before, width) = (ratio as i32 - 1, width as i32);
        layer.advance(|run, [last, other]| {
            let rows = run.rows(&both)?;
            let [count, len, both] = rows.dims()?;
            let joined = mlx::concatenate(&[last, &rows], 1)?;
            let shifted = (0..=before).map(|back| joined.slice(&[0, back, 0], &[count, back + len, both]));
            let shifted = shifted.collect::<mlx::Result<Vec<_>>>()?;
            // [n, len, ratio, 2 · width]
            let groups = mlx::stack(&shifted.iter().collect::<Vec<_>>(), 2)?;
            let parts = groups.split(&[width], -1)?;
            let [latents, gates] = parts.as_slice() else { return Err(mlx::Error::new("latents and gates")) };
            let pooled = (latents * gates.softmax(2)?).sum(&[2])?;
            let last = joined.slice(&[0, len, 0], &[count, len + before, both])?;
            Ok((pooled, [last, other.clone()]))
        })
    }
}
