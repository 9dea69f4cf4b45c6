//! The weights of some heads of cross attention, for callers that need to know what rows attend to.

use std::cell::RefCell;

use mlx::Array;

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
    pub(crate) keys: usize,
    /// `[rows, keys]` f32 of each head that has been computed.
    found: RefCell<Vec<Option<Array>>>,
}

impl CrossWeights {
    /// Weights of these heads on the first `keys` keys, which must exist.
    pub fn new(heads: Vec<CrossHead>, keys: usize) -> Self {
        let found = RefCell::new(vec![None; heads.len()]);
        Self { heads, keys, found }
    }

    /// Computes the heads of one layer by `weights`, which gives a head's, `[rows, keys]` f32.
    pub(crate) fn collect(
        &self,
        layer: usize,
        weights: impl Fn(usize) -> mlx::Result<Array>,
    ) -> mlx::Result<()> {
        let mut found = self.found.borrow_mut();
        for (of, found) in self.heads.iter().zip(found.iter_mut()).filter(|(of, _)| of.layer == layer) {
            *found = Some(weights(of.head)?);
        }
        Ok(())
    }

    /// `[heads, rows, keys]` f32, when the pass is built. Fails if a layer does not exist.
    pub fn take(&self) -> mlx::Result<Array> {
        let found: Option<Vec<Array>> = self.found.take().into_iter().collect();
        let found = found.filter(|found| !found.is_empty());
        let found = found.ok_or_else(|| mlx::Error::new("layers of the model's cross attention"))?;
        mlx::stack(&found.iter().collect::<Vec<_>>(), 0)
    }
}
