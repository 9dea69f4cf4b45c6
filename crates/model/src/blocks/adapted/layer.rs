//! The low-rank matrices that named adapters add to one linear layer, stacked like experts.
//!
//! Invariant: it knows of adapters only their place in the stacks. A change makes a new stack beside the old one, so that
//! one that fails leaves nothing behind.

use std::cell::{Ref, RefCell};

use mlx::{Array, Dtype};

use crate::ops::{LowRankPart, LowRankStack, Ops, Weight};
use crate::params::Param;
use crate::weights::LowRank;

/// A layer's weight `[out, in]` or `[experts, out, in]`, and the matrices of the adapters that are loaded beside it.
pub(crate) struct AdaptedLayer {
    pub(super) weight: Param<Weight>,
    /// Matrices of the weight, and of each adapter: one, or one for each expert.
    pub(super) matrices: i32,
    /// Which compute with the stack, and say how it is stored.
    ops: Ops,
    /// The modules whose outputs it computes, in order. Without any it is never adapted.
    pub(super) parts: Vec<Part>,
    /// The matrices of all loaded adapters one after the other. Where a backend computes rows without an adapter, too, one
    /// of zeros comes last. `None` while no adapter changes the layer.
    stack: RefCell<Option<LowRankStack>>,
}

/// A module of the checkpoint, or some of its outputs.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) path: String,
    /// Outputs of the module.
    pub(super) all_outputs: i32,
    /// How many of them are computed here.
    pub(super) outputs: i32,
    /// Which, `[outputs]` i32; `None` for all, in their order.
    pub(super) rows: Option<Param>,
}

/// What one adapter does to a weight.
struct Entry {
    /// For each part `[matrices, rank, in]` and `[matrices, outputs, rank]`.
    products: Vec<Option<[Array; 2]>>,
    /// `[out]`
    gain: Option<Array>,
}

impl AdaptedLayer {
    pub(super) fn new(ops: Ops, weight: Param<Weight>, parts: Vec<Part>) -> mlx::Result<Self> {
        let matrices = weight.matrices()?;
        Ok(Self { weight, matrices, ops, parts, stack: RefCell::default() })
    }

    /// The matrices of the loaded adapters.
    pub(crate) fn stack(&self) -> Ref<'_, Option<LowRankStack>> {
        self.stack.borrow()
    }

    /// The paths of its modules, in the order of their outputs.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| part.path.as_str())
    }

    /// Why a change does not fit, if it is for a module of this weight.
    pub(crate) fn misfit(&self, change: &LowRank) -> mlx::Result<Option<String>> {
        let inputs = self.weight.inputs()?;
        let (rank, own_inputs) = (change.down.dim(-2)?, change.down.dim(-1)?);
        let (own_outputs, own_rank) = (change.up.dim(-2)?, change.up.dim(-1)?);
        let experts = |matrix: &Array| if matrix.ndim() == 3 { matrix.dim(0) } else { Ok(1) };
        let own_experts = [experts(&change.down)?, experts(&change.up)?];
        for part in self.parts.iter().filter(|part| part.path == change.path) {
            if own_experts != [self.matrices; 2] {
                let count = own_experts[0];
                return Ok(Some(format!("is for {count} experts, the model's module has {}", self.matrices)));
            }
            if own_inputs != inputs {
                return Ok(Some(format!("takes {own_inputs} inputs, the model's module {inputs}")));
            }
            if own_outputs != part.all_outputs {
                return Ok(Some(format!(
                    "has {own_outputs} outputs, the model's module {}",
                    part.all_outputs
                )));
            }
        }
        Ok((rank != own_rank || rank == 0).then(|| format!("has matrices of rank {rank} and {own_rank}")))
    }

    /// The stack with these changes of one more adapter, not computed yet. `loaded`: how many adapters are loaded before it.
    pub(crate) fn with_adapter(
        &self,
        changes: &[LowRank],
        loaded: usize,
    ) -> mlx::Result<Option<LowRankStack>> {
        let layout = self.ops.low_rank_layout();
        let before = self.stack.borrow().clone().map(|stack| stack.turned(layout)).transpose()?;
        let entry = self.entry(changes)?;
        if before.is_none() && entry.is_none() {
            return Ok(None);
        }
        let entry = entry.unwrap_or_else(|| Entry { products: vec![None; self.parts.len()], gain: None });
        self.stacked(before, entry, loaded as i32)?.turned(layout).map(Some)
    }

    /// The stack without the adapter at a place, not computed yet. `left`: how many are loaded then.
    pub(crate) fn without_adapter(&self, place: usize, left: usize) -> mlx::Result<Option<LowRankStack>> {
        let stack = self.stack.borrow();
        let Some(stack) = stack.as_ref().filter(|_| left > 0) else { return Ok(None) };
        let without = |array: &Array| -> mlx::Result<Array> {
            let kept = (0..array.dim(0)?).filter(|index| index / self.matrices != place as i32);
            let kept: Vec<i32> = kept.collect();
            array.take(&Array::from_slice(&kept, &[kept.len() as i32])?, 0)
        };
        let parts = stack.parts.iter().map(|LowRankPart { outputs, up }| {
            Ok(LowRankPart { outputs: *outputs, up: up.as_ref().map(without).transpose()? })
        });
        let made = LowRankStack {
            down: without(&stack.down)?,
            parts: parts.collect::<mlx::Result<_>>()?,
            gain: stack.gain.as_ref().map(without).transpose()?,
        };
        Ok(Some(made))
    }

    /// Computes with this stack from here on.
    pub(crate) fn set_stack(&self, stack: Option<LowRankStack>) {
        self.stack.replace(stack);
    }

    /// What these changes do to this weight; `None` if nothing.
    fn entry(&self, changes: &[LowRank]) -> mlx::Result<Option<Entry>> {
        let (mut products, mut gains, mut first) = (Vec::new(), Vec::new(), 0);
        for part in &self.parts {
            let change = changes.iter().find(|change| change.path == part.path);
            let own = |array: &Array| match &part.rows {
                Some(rows) => array.take(rows, 0),
                None => Ok(array.clone()),
            };
            let end = first + part.outputs;
            let Some(change) = change else {
                products.push(None);
                gains.push(Array::ones(&[part.outputs], Dtype::F32)?);
                first = end;
                continue;
            };
            let up = own(&change.up)?;
            gains.push(match &change.magnitude {
                Some(magnitude) => {
                    let wide = self.weight.rows_as_floats(first, end)?;
                    let low_rank = up.astype(Dtype::F32)?.matmul(&change.down.astype(Dtype::F32)?)?;
                    let length = (wide + low_rank).square()?.sum(&[-1])?.sqrt()?;
                    own(&magnitude.astype(Dtype::F32)?)? / length
                }
                None => Array::ones(&[part.outputs], Dtype::F32)?,
            });
            let stacked = |matrix: &Array| {
                if matrix.ndim() == 2 { matrix.expand_dims(&[0]) } else { Ok(matrix.clone()) }
            };
            products.push(Some([stacked(&change.down)?, stacked(&up)?]));
            first = end;
        }
        if products.iter().all(Option::is_none) {
            return Ok(None);
        }
        let paths: Vec<&str> = self.paths().collect();
        let has_gain =
            changes.iter().any(|change| change.magnitude.is_some() && paths.contains(&change.path.as_str()));
        let gain =
            if has_gain { Some(mlx::concatenate(&gains.iter().collect::<Vec<_>>(), 0)?) } else { None };
        Ok(Some(Entry { products, gain }))
    }

    /// The stack with one more adapter behind the `loaded` ones.
    fn stacked(&self, before: Option<LowRankStack>, entry: Entry, loaded: i32) -> mlx::Result<LowRankStack> {
        let (inputs, matrices) = (self.weight.inputs()?, loaded * self.matrices);
        let (mut downs, mut parts) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (index, (part, own)) in self.parts.iter().zip(&entry.products).enumerate() {
            let old = before.as_ref().and_then(|stack| Some((stack, stack.parts.get(index)?.up.as_ref()?)));
            let old_rank = old.map_or(Ok(0), |(_, up)| up.dim(-1))?;
            let own_rank = own.as_ref().map_or(Ok(0), |[down, _]| down.dim(1))?;
            let rank = old_rank.max(own_rank);
            if rank == 0 {
                parts.push(LowRankPart { outputs: part.outputs, up: None });
                continue;
            }
            let old_down = match old {
                Some((stack, _)) => {
                    Some(stack.down.slice(&[0, first, 0], &[matrices, first + old_rank, inputs])?)
                }
                None => None,
            };
            first += old_rank;
            let [own_down, own_up] = match own {
                Some([down, up]) => [Some(down.clone()), Some(up.clone())],
                None => [None, None],
            };
            let old_up = match old {
                Some((_, up)) => Some(up.slice(&[0, 0, 0], &[matrices, part.outputs, old_rank])?),
                None => None,
            };
            downs.push(self.one_stack(old_down, own_down, matrices, [rank, inputs])?);
            let up = self.one_stack(old_up, own_up, matrices, [part.outputs, rank])?;
            parts.push(LowRankPart { outputs: part.outputs, up: Some(up) });
        }
        let gain = match (before.and_then(|stack| stack.gain), entry.gain) {
            (None, None) => None,
            (old, own) => {
                let width: i32 = self.parts.iter().map(|part| part.outputs).sum();
                let ones = Array::ones(&[1, width], Dtype::F32)?;
                let old = match old {
                    Some(old) => old.slice(&[0, 0], &[loaded, width])?,
                    None => Array::ones(&[loaded, width], Dtype::F32)?,
                };
                let own = own.map_or_else(|| Ok(ones.clone()), |own| own.expand_dims(&[0]))?;
                Some(mlx::concatenate(&[&old, &own, &ones], 0)?)
            }
        };
        let down = match downs.as_slice() {
            [one] => one.clone(),
            several => {
                let dtype = widest(several.iter())?;
                let cast = several.iter().map(|one| one.astype(dtype)).collect::<mlx::Result<Vec<_>>>()?;
                mlx::concatenate(&cast.iter().collect::<Vec<_>>(), 1)?
            }
        };
        Ok(LowRankStack { down: down.contiguous()?, parts, gain })
    }

    /// `[n, rows, columns]`: the old matrices, padded, and those of a new adapter; zeros for those that are absent.
    /// `before`: how many old ones there should be.
    fn one_stack(
        &self,
        old: Option<Array>,
        own: Option<Array>,
        before: i32,
        [rows, columns]: [i32; 2],
    ) -> mlx::Result<Array> {
        let dtype = widest(old.iter().chain(&own))?;
        let part = |matrices: Option<Array>, count: i32| match matrices {
            Some(matrices) => {
                let [_, own_rows, own_columns] = matrices.dims()?;
                let widths = [(0, 0), (0, rows - own_rows), (0, columns - own_columns)];
                matrices.astype(dtype)?.pad(&widths, 0.0)
            }
            None => Array::zeros(&[count, rows, columns], dtype),
        };
        let (old, own) = (part(old, before)?, part(own, self.matrices)?);
        // Ids of rows without an adapter lie behind the stack.
        let rest = Array::zeros(&[i32::from(!self.ops.skips_unknown_experts()), rows, columns], dtype)?;
        mlx::concatenate(&[&old, &own, &rest], 0)?.contiguous()
    }
}

/// The dtype that holds the numbers of all.
fn widest<'a>(arrays: impl Iterator<Item = &'a Array>) -> mlx::Result<Dtype> {
    let dtypes = arrays.map(Array::dtype).collect::<mlx::Result<Vec<_>>>()?;
    Ok(match dtypes.as_slice() {
        [first, rest @ ..] if rest.iter().all(|dtype| dtype == first) => *first,
        _ => Dtype::F32,
    })
}
