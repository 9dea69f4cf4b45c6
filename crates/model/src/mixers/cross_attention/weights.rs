//! The weights of some heads, for those who want to know what rows attend to.

use std::cell::RefCell;

use mlx::{Array, Dtype};

use super::CrossAttention;
use crate::ops::{Ops, Weight};

/// A head of a layer of cross attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossHead {
    /// Which of the model's layers of cross attention.
    pub layer: usize,
    #[allow(missing_docs)]
    pub head: usize,
}

/// Collects the weights of heads while a pass is built.
pub struct CrossWeights {
    heads: Vec<CrossHead>,
    /// The first keys, so many, are seen; the softmax is over these.
    keys: usize,
    /// `[rows, keys]` f32 of each head that has been computed.
    found: RefCell<Vec<Option<Array>>>,
}

impl CrossWeights {
    /// Weights of these heads on the first `keys` keys, which must exist.
    pub fn new(heads: Vec<CrossHead>, keys: usize) -> Self {
        let found = RefCell::new(vec![None; heads.len()]);
        Self { heads, keys, found }
    }

    /// `[heads, rows, keys]` f32, when the pass is built. Fails if a layer or head does not exist.
    pub fn take(&self) -> mlx::Result<Array> {
        let found: Option<Vec<Array>> = self.found.take().into_iter().collect();
        let found = found.filter(|found| !found.is_empty());
        let found = found.ok_or_else(|| mlx::Error::new("heads of the model's cross attention"))?;
        mlx::stack(&found.iter().collect::<Vec<_>>(), 0)
    }

    /// Computes those of one layer. Queries `[rows, heads, head_dim]`, keys `[1, kv_heads, n, head_dim]`.
    pub(super) fn collect(
        &self,
        (spec, ops): (&CrossAttention, &dyn Ops),
        queries: &Array,
        keys: &Array,
    ) -> mlx::Result<()> {
        let [rows, heads, width] = queries.dims()?;
        let [_, _, most, _] = keys.dims()?;
        let count = self.keys as i32;
        if count < 1 || count > most {
            return Err(mlx::Error::new("keys within those that rows attend to"));
        }
        let shared = spec.heads / spec.kv_heads.max(1);
        let mut found = self.found.borrow_mut();
        for (of, found) in self.heads.iter().zip(found.iter_mut()) {
            let head = of.head as i32;
            if of.layer != spec.number || head >= heads {
                continue;
            }
            let queries = queries.slice(&[0, head, 0], &[rows, head + 1, width])?;
            let queries = queries.reshape(&[rows, width])?.astype(Dtype::F32)?.contiguous()?;
            let group = (of.head / shared.max(1)) as i32;
            let keys = keys.slice(&[0, group, 0, 0], &[1, group + 1, count, width])?;
            let keys = Weight::Dense(keys.reshape(&[count, width])?.astype(Dtype::F32)?.contiguous()?);
            let scores = ops.linear(&queries, &keys)? * (width as f32).powf(-0.5);
            *found = Some(scores.softmax(-1)?);
        }
        Ok(())
    }
}
