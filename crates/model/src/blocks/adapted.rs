//! The weight of a linear layer with the low-rank products of named adapters.
//!
//! Invariant: rows are independent. A row's products depend on its own adapter only, and rows without one get none.
//!
//! Adapters are stacked like experts, so that one grouped product computes the rows of all: rows with the same adapter
//! share its matrices, and rows without an adapter choose none. Of a layer with experts, each expert of an adapter is one.

mod adapters;
mod layer;

use std::rc::Rc;

use mlx::{Array, Dtype};

use crate::ops::{ChosenExperts, LowRankStack, Ops, Weight};
use crate::params::Param;
pub(crate) use adapters::{AdaptedPass, Adapters};
use layer::{AdaptedLayer, Part};

/// A weight `[out, in]` or `[experts, out, in]`, and what adapters add to its products.
#[derive(Clone)]
pub(crate) struct AdaptedWeight {
    ops: Ops,
    layer: Rc<AdaptedLayer>,
    adapters: Rc<Adapters>,
}

impl AdaptedWeight {
    /// The weight of the module at `path`.
    pub(crate) fn new(
        ops: Ops,
        weight: Param<Weight>,
        adapters: &Rc<Adapters>,
        path: &str,
    ) -> mlx::Result<Self> {
        let outputs = weight.outputs()?;
        let part = Part { path: path.to_owned(), all_outputs: outputs, outputs, rows: None };
        Self::of(ops, weight, adapters, vec![part])
    }

    fn of(ops: Ops, weight: Param<Weight>, adapters: &Rc<Adapters>, parts: Vec<Part>) -> mlx::Result<Self> {
        let layer = Rc::new(AdaptedLayer::new(ops.clone(), weight, parts)?);
        if !layer.parts.is_empty() {
            adapters.register(&layer);
        }
        Ok(Self { ops, layer, adapters: Rc::clone(adapters) })
    }

    /// This weight's modules and operations with another weight and parts.
    fn with(&self, weight: Param<Weight>, parts: Vec<Part>) -> mlx::Result<Self> {
        Self::of(self.ops.clone(), weight, &self.adapters, parts)
    }

    /// The operations that compute it.
    pub(crate) fn ops(&self) -> &Ops {
        &self.ops
    }

    /// The weight without what adapters add.
    pub(crate) fn weight(&self) -> &Weight {
        &self.layer.weight
    }

    /// This weight without adapters: none may change it.
    pub(crate) fn without_adapters(&self) -> mlx::Result<Self> {
        self.with(self.layer.weight.clone(), Vec::new())
    }

    /// This weight with only these outputs, in this order, `[n]` i32.
    pub(crate) fn take_rows(&self, rows: &Array) -> mlx::Result<Self> {
        let taken = self.layer.weight.map(|weight| weight.take_rows(rows))?;
        let outputs = taken.outputs()?;
        // A weight of several modules has no such order yet.
        let parts = match self.layer.parts.as_slice() {
            [part] => {
                let rows = match &part.rows {
                    Some(before) => before.map(|before| before.take(rows, 0))?,
                    None => taken.beside(rows.clone()),
                };
                vec![Part { outputs, rows: Some(rows), ..part.clone() }]
            }
            _ => Vec::new(),
        };
        self.with(taken, parts)
    }

    /// The outputs of one and then those of another, if both are stored alike.
    pub(crate) fn join(first: &Self, second: &Self) -> mlx::Result<Option<Self>> {
        let (first_layer, second_layer) = (&first.layer, &second.layer);
        if first_layer.parts.is_empty() != second_layer.parts.is_empty() {
            return Ok(None);
        }
        let Some(weight) = Weight::join(&first_layer.weight, &second_layer.weight)? else { return Ok(None) };
        let weight = first_layer.weight.beside(weight);
        let parts = first_layer.parts.iter().chain(&second_layer.parts).cloned().collect();
        first.with(weight, parts).map(Some)
    }

    /// `x · Wᵀ`, the bias `[out]`, and the products of the rows' adapters. `[.., in]` → `[.., out]`.
    pub(crate) fn product(&self, x: &Array, bias: Option<&Array>) -> mlx::Result<Array> {
        self.record(x)?;
        let product = match bias {
            Some(bias) => self.ops.biased_linear(x, self.weight(), bias)?,
            None => self.ops.linear(x, self.weight())?,
        };
        match (&*self.layer.stack(), self.adapters.rows()) {
            (Some(stack), Some(rows)) => self.adapted(x, product, stack, &rows.chosen),
            _ => Ok(product),
        }
    }

    /// Each row through the experts chosen for it, see [`Ops::expert_linear`], and the products of the rows' adapters.
    pub(crate) fn expert_product(&self, x: &Array, experts: &ChosenExperts) -> mlx::Result<Array> {
        self.record(x)?;
        let product = self.ops.expert_linear(x, experts, self.weight())?;
        let (Some(stack), Some(rows)) = (&*self.layer.stack(), self.adapters.rows()) else {
            return Ok(product);
        };
        let number = |value: usize| Array::from_slice(&[value as u32], &[1]);
        let (count, loaded) = (self.layer.matrices as usize, self.adapters.loaded().len());
        let own = &rows.chosen.indices * &number(count)? + experts.indices.astype(Dtype::U32)?;
        self.adapted(x, product, stack, &ChosenExperts::new(own.minimum(&number(count * loaded)?)?))
    }

    /// Counts rows of inputs where they are recorded.
    fn record(&self, x: &Array) -> mlx::Result<()> {
        match self.adapters.inputs().as_mut() {
            Some(sums) => sums.add(self.layer.paths(), x),
            None => Ok(()),
        }
    }

    /// `chosen`: for each row, and each of its experts, the place of the matrices in the stack.
    fn adapted(
        &self,
        x: &Array,
        product: Array,
        stack: &LowRankStack,
        chosen: &ChosenExperts,
    ) -> mlx::Result<Array> {
        let count = chosen.indices.dim(0)?;
        if x.dim(0)? != count {
            let shape = x.shape();
            return Err(mlx::Error::new(format!("{shape:?} are not the {count} rows of the pass")));
        }
        // Several inputs of a row, such as its heads, have the row's adapter.
        if let (1, [_, several, _]) = (self.layer.matrices, x.shape()) {
            let indices = chosen.indices.broadcast_to(&[count, *several])?.contiguous()?;
            return self.ops.add_low_rank(product, x, &ChosenExperts::new(indices), stack);
        }
        self.ops.add_low_rank(product, x, chosen, stack)
    }
}
