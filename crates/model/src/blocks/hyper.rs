//! Hyper-connections: a stream of several copies. A part reads a mix of them, and what it computes joins each copy by its
//! own weight, while the copies mix.
//!
//! Source: arXiv 2409.19606; the normalisation of the mixing matrix is that of arXiv 2512.24880.

use mlx::{Array, Dtype, fast};

use super::ResidualStream;
use crate::blueprint::HyperConnections;
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// How the copies meet one part, a mixer or an MLP.
pub(crate) struct HyperBlock {
    spec: HyperConnections,
    /// `[copies · hidden, mixes]`, `[mixes]` and `[mixes]`, f32.
    projection: Param,
    base: Param,
    scale: Param,
}

/// How the copies of each row mix.
pub(crate) struct HyperMix {
    /// What the next part reads of each copy, `[T, copies]` f32.
    pub(crate) read: Array,
    /// What of a part's output joins each copy, `[T, copies, 1]` f32.
    joins: Array,
    /// `[T, to, from]` f32.
    mixing: Array,
}

impl HyperBlock {
    pub(crate) fn load(spec: HyperConnections, store: &mut Store, path: &str) -> Result<Self, LoadError> {
        let (copies, scale) = (spec.copies as i32, store.float(&format!("{path}.scale"))?);
        // One scale for each of three parts.
        let parts = [copies, copies, copies * copies];
        let scales = (0..3).zip(parts).map(|(at, count)| scale.slice(&[at], &[at + 1])?.repeat(count, 0));
        let scales = scales.collect::<mlx::Result<Vec<_>>>()?;
        Ok(Self {
            spec,
            projection: store.float(&format!("{path}.fn"))?.map(Array::t)?,
            base: store.float(&format!("{path}.base"))?,
            scale: scale.beside(mlx::concatenate(&scales.iter().collect::<Vec<_>>(), 0)?),
        })
    }

    /// From the copies of `x`.
    pub(crate) fn mix(&self, x: &ResidualStream) -> mlx::Result<HyperMix> {
        let HyperConnections { copies, norm_eps, eps, .. } = self.spec;
        let copies = copies as i32;
        let flat = mlx::concatenate(&x.copies.iter().collect::<Vec<_>>(), -1)?.astype(Dtype::F32)?;
        let mixes = fast::rms_norm(&flat, None, norm_eps)?.matmul(&self.projection)?;
        let parts = (mixes * &self.scale + &self.base).split(&[copies, 2 * copies], -1)?;
        let [read, joins, mixing] = parts.as_slice() else { return Err(mlx::Error::new("three parts")) };
        let mixing = mixing.reshape(&[-1, copies, copies])?.softmax(-1)? + eps;
        Ok(HyperMix {
            read: read.sigmoid()? + eps,
            joins: (joins.sigmoid()? * 2.0).expand_dims(&[-1])?,
            mixing: self.doubly_stochastic(mixing)?.swapaxes(-1, -2)?,
        })
    }

    /// Rows and columns that sum to nearly one, `[T, from, to]`.
    fn doubly_stochastic(&self, mut mixing: Array) -> mlx::Result<Array> {
        let HyperConnections { iterations, eps, .. } = self.spec;
        for turn in 0..(2 * iterations).saturating_sub(1) {
            let axis = if turn % 2 == 0 { -2 } else { -1 };
            mixing = &mixing / (mixing.sum(&[axis])?.expand_dims(&[axis])? + eps);
        }
        Ok(mixing)
    }
}

impl HyperConnections {
    /// A stream of copies of `x`, `[T, hidden]`, of which the first part reads one.
    pub(crate) fn copies(self, ops: &Ops, x: &Array) -> mlx::Result<ResidualStream> {
        let (rows, others) = (x.dim(0)?, self.copies as i32 - 1);
        let one = Array::ones(&[rows, 1], Dtype::F32)?;
        let mut stream = ResidualStream::new(ops, x.clone());
        stream.copies = vec![x.clone(); self.copies];
        stream.read_shares =
            Some(mlx::concatenate(&[&one, &Array::zeros(&[rows, others], Dtype::F32)?], -1)?);
        Ok(stream)
    }
}

impl ResidualStream {
    /// What the next part reads of the copies, `[T, hidden]`, by shares `[T, copies]`.
    pub(crate) fn of_copies(&self, shares: &Array) -> mlx::Result<Array> {
        let copies = mlx::stack(&self.copies.iter().collect::<Vec<_>>(), 1)?;
        let read = (copies.astype(Dtype::F32)? * shares.expand_dims(&[-1])?).sum(&[1])?;
        read.astype(copies.dtype()?)
    }

    /// Mixes the copies, and adds what a part computed, `[T, hidden]`.
    pub(crate) fn mix_copies(&mut self, mix: &HyperMix, computed: &Array) -> mlx::Result<()> {
        let copies = mlx::stack(&self.copies.iter().collect::<Vec<_>>(), 1)?;
        let mixed = mix.mixing.matmul(&copies.astype(Dtype::F32)?)?;
        let joined = mixed + &mix.joins * computed.astype(Dtype::F32)?.expand_dims(&[1])?;
        let cuts: Vec<i32> = (1..self.copies.len() as i32).collect();
        let parts = joined.astype(copies.dtype()?)?.split(&cuts, 1)?;
        self.copies = parts.into_iter().map(|part| part.squeeze(&[1])).collect::<mlx::Result<_>>()?;
        Ok(())
    }
}
