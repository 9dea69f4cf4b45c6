//! The weight of a linear layer with the low-rank products of named adapters, and what all such weights of a model share:
//! which adapters are loaded, and which rows of a pass use which.
//!
//! Invariant: rows are independent. A row's products depend on its own adapter only, and rows without one get none.
//!
//! Adapters are stacked like experts, so that one grouped product computes the rows of all: rows with the same adapter
//! share its matrices, and rows without an adapter choose none. Of a layer with experts, each expert of an adapter is one.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use mlx::{Array, Dtype};

use crate::forward::LogitRows;
use crate::input_squares::InputSums;
use crate::ops::{ChosenExperts, Ops, Weight};
use crate::weights::LowRank;
use crate::{AdapterId, Batch};

/// A weight `[out, in]` or `[experts, out, in]`, and what adapters add to its products.
pub(crate) struct AdaptedWeight {
    pub(crate) ops: &'static dyn Ops,
    pub(crate) weight: Weight,
    adapters: Rc<Adapters>,
    /// Matrices of the weight, and of each adapter: one, or one for each expert.
    matrices: i32,
    /// The modules whose outputs it computes, in order. Without any it is never adapted.
    parts: Vec<Part>,
    /// `None` while no adapter changes it.
    stack: RefCell<Option<Stack>>,
}

/// A module of the checkpoint, or some of its outputs.
#[derive(Clone)]
struct Part {
    path: String,
    /// Outputs of the module.
    all_outputs: i32,
    /// How many of them are computed here.
    outputs: i32,
    /// Which, `[outputs]` i32; `None` for all, in their order.
    rows: Option<Array>,
}

/// The matrices of all loaded adapters one after the other, `n` together. Where a backend computes rows without an
/// adapter, too, one of zeros comes last.
#[derive(Clone)]
pub(crate) struct Stack {
    /// Of the parts that some adapter changes, one after the other: `[n, parts · rank, in]`.
    down: Array,
    /// One for each part, `[n, outputs, rank]`; `None` where no adapter changes it.
    up: Vec<Option<Array>>,
    /// DoRA's factors of the outputs, `[n + 1, out]`; the last are ones. `None` if no adapter has any.
    gain: Option<Array>,
}

impl Stack {
    fn evaluated(self) -> mlx::Result<Self> {
        mlx::eval([&self.down].into_iter().chain(self.up.iter().flatten()).chain(&self.gain))?;
        Ok(self)
    }
}

/// What one adapter does to a weight.
struct Entry {
    /// For each part `[matrices, rank, in]` and `[matrices, outputs, rank]`.
    products: Vec<Option<[Array; 2]>>,
    /// `[out]`
    gain: Option<Array>,
}

impl AdaptedWeight {
    /// The weight of the module at `path`.
    pub(crate) fn new(
        ops: &'static dyn Ops,
        weight: Weight,
        adapters: &Rc<Adapters>,
        path: &str,
    ) -> mlx::Result<Rc<Self>> {
        let outputs = weight.outputs()?;
        let part = Part { path: path.to_owned(), all_outputs: outputs, outputs, rows: None };
        let matrices = weight.matrices()?;
        let (adapters, stack) = (Rc::clone(adapters), RefCell::default());
        Ok(Self { ops, weight, adapters, matrices, parts: vec![part], stack }.registered())
    }

    /// The same with another weight, of these modules.
    fn with(&self, weight: Weight, parts: Vec<Part>) -> Rc<Self> {
        let (adapters, stack) = (Rc::clone(&self.adapters), RefCell::default());
        Self { ops: self.ops, weight, adapters, matrices: self.matrices, parts, stack }.registered()
    }

    fn registered(self) -> Rc<Self> {
        let made = Rc::new(self);
        if !made.parts.is_empty() {
            made.adapters.register(&made);
        }
        made
    }

    /// The same weight, which no adapter may change.
    pub(crate) fn without_adapters(&self) -> Rc<Self> {
        self.with(self.weight.clone(), Vec::new())
    }

    /// The same weight with only these outputs, in this order, `[n]` i32.
    pub(crate) fn take_rows(&self, rows: &Array) -> mlx::Result<Rc<Self>> {
        let taken = self.weight.take_rows(rows)?;
        let outputs = taken.outputs()?;
        // A weight of several modules has no such order yet.
        let parts = match self.parts.as_slice() {
            [part] => {
                let rows = match &part.rows {
                    Some(before) => before.take(rows, 0)?,
                    None => rows.clone(),
                };
                vec![Part { outputs, rows: Some(rows), ..part.clone() }]
            }
            _ => Vec::new(),
        };
        Ok(self.with(taken, parts))
    }

    /// The outputs of one and then those of another, if both are stored alike.
    pub(crate) fn join(first: &Self, second: &Self) -> mlx::Result<Option<Rc<Self>>> {
        if first.parts.is_empty() != second.parts.is_empty() {
            return Ok(None);
        }
        let Some(weight) = Weight::join(&first.weight, &second.weight)? else { return Ok(None) };
        let parts = first.parts.iter().chain(&second.parts).cloned().collect();
        Ok(Some(first.with(weight, parts)))
    }

    /// `x · Wᵀ`, and the products of the rows' adapters. `[.., in]` → `[.., out]`.
    pub(crate) fn product(&self, x: &Array) -> mlx::Result<Array> {
        self.record(x)?;
        let product = self.ops.linear(x, &self.weight)?;
        match (&*self.stack.borrow(), self.adapters.rows()) {
            (Some(stack), Some(rows)) => self.adapted(x, product, stack, &rows.chosen),
            _ => Ok(product),
        }
    }

    /// Each row through the experts chosen for it, see [`Ops::expert_linear`], and the products of the rows' adapters.
    pub(crate) fn expert_product(&self, x: &Array, experts: &ChosenExperts) -> mlx::Result<Array> {
        self.record(x)?;
        let product = self.ops.expert_linear(x, experts, &self.weight)?;
        let (Some(stack), Some(rows)) = (&*self.stack.borrow(), self.adapters.rows()) else {
            return Ok(product);
        };
        let number = |value: usize| Array::from_slice(&[value as u32], &[1]);
        let (count, loaded) = (self.matrices as usize, self.adapters.loaded().len());
        let own = &rows.chosen.indices * &number(count)? + experts.indices.astype(Dtype::U32)?;
        self.adapted(x, product, stack, &ChosenExperts::new(own.minimum(&number(count * loaded)?)?))
    }

    /// Counts rows of inputs where they are recorded.
    fn record(&self, x: &Array) -> mlx::Result<()> {
        match self.adapters.inputs().as_mut() {
            Some(sums) => sums.add(self.paths(), x),
            None => Ok(()),
        }
    }

    /// `chosen`: for each row, and each of its experts, the place of the matrices in the stack.
    fn adapted(
        &self,
        x: &Array,
        product: Array,
        stack: &Stack,
        chosen: &ChosenExperts,
    ) -> mlx::Result<Array> {
        let [count, choices] = chosen.indices.dims()?;
        let dtype = product.dtype()?;
        if x.dim(0)? != count || (x.ndim() != 2 && self.matrices == 1) {
            let shape = x.shape();
            return Err(mlx::Error::new(format!("{shape:?} are not the {count} rows of the pass")));
        }
        let narrow = self.ops.expert_linear(x, chosen, &Weight::Dense(stack.down.clone()))?;
        let mut first = 0;
        let mut terms = Vec::with_capacity(stack.up.len());
        for (part, up) in self.parts.iter().zip(&stack.up) {
            terms.push(match up {
                Some(up) => {
                    let end = first + up.dim(-1)?;
                    let own = narrow.slice(&[0, 0, first], &[count, choices, end])?.contiguous()?;
                    first = end;
                    self.ops.expert_linear(&own, chosen, &Weight::Dense(up.clone()))?.astype(dtype)?
                }
                None => Array::zeros(&[count, choices, part.outputs], dtype)?,
            });
        }
        let term = match terms.as_slice() {
            [one] => one.clone(),
            several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), -1)?,
        };
        let sum = &product + term.reshape(product.shape())?;
        match &stack.gain {
            Some(gain) => {
                let gain = gain.take(&chosen.indices.squeeze(&[1])?, 0)?;
                (sum.astype(Dtype::F32)? * gain).astype(dtype)
            }
            None => Ok(sum),
        }
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

    /// The stack with these changes of one more adapter. `loaded`: how many adapters are loaded before it.
    pub(crate) fn with_adapter(&self, changes: &[LowRank], loaded: usize) -> mlx::Result<Option<Stack>> {
        let before = self.stack.borrow().clone();
        let entry = self.entry(changes)?;
        if before.is_none() && entry.is_none() {
            return Ok(None);
        }
        let entry = entry.unwrap_or_else(|| Entry { products: vec![None; self.parts.len()], gain: None });
        self.stacked(before, entry, loaded as i32)?.evaluated().map(Some)
    }

    /// The stack without the adapter at a place. `left`: how many are loaded then.
    pub(crate) fn without_adapter(&self, place: usize, left: usize) -> mlx::Result<Option<Stack>> {
        let stack = self.stack.borrow();
        let Some(stack) = stack.as_ref().filter(|_| left > 0) else { return Ok(None) };
        let without = |array: &Array| -> mlx::Result<Array> {
            let kept = (0..array.dim(0)?).filter(|index| index / self.matrices != place as i32);
            let kept: Vec<i32> = kept.collect();
            array.take(&Array::from_slice(&kept, &[kept.len() as i32])?, 0)
        };
        let up = stack.up.iter().map(|up| up.as_ref().map(without).transpose());
        let made = Stack {
            down: without(&stack.down)?,
            up: up.collect::<mlx::Result<_>>()?,
            gain: stack.gain.as_ref().map(without).transpose()?,
        };
        made.evaluated().map(Some)
    }

    /// Computes with this stack from here on.
    pub(crate) fn set_stack(&self, stack: Option<Stack>) {
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
    fn stacked(&self, before: Option<Stack>, entry: Entry, loaded: i32) -> mlx::Result<Stack> {
        let (inputs, matrices) = (self.weight.inputs()?, loaded * self.matrices);
        let (mut downs, mut ups) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (index, (part, own)) in self.parts.iter().zip(&entry.products).enumerate() {
            let old = before.as_ref().and_then(|stack| Some((stack, stack.up.get(index)?.as_ref()?)));
            let old_rank = old.map_or(Ok(0), |(_, up)| up.dim(-1))?;
            let own_rank = own.as_ref().map_or(Ok(0), |[down, _]| down.dim(1))?;
            let rank = old_rank.max(own_rank);
            if rank == 0 {
                ups.push(None);
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
            ups.push(Some(self.one_stack(old_up, own_up, matrices, [part.outputs, rank])?));
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
        Ok(Stack { down: down.contiguous()?, up: ups, gain })
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

/// What a model's linear layers share: its adapters, those of the rows that are computed, and a record of inputs.
#[derive(Default)]
pub(crate) struct Adapters {
    /// By their place in every layer's stack.
    loaded: RefCell<Vec<AdapterId>>,
    /// The layers that adapters may change, by path. A layer that was joined with another is gone.
    weights: RefCell<Vec<Weak<AdaptedWeight>>>,
    /// Of the pass that is being built; `None` where no row has an adapter.
    rows: RefCell<Option<AdapterRows>>,
    /// What the layers take as inputs; `None` while it is not recorded.
    inputs: RefCell<Option<InputSums>>,
}

/// The adapters of a pass's rows.
#[derive(Clone)]
pub(crate) struct AdapterRows {
    /// The place of each row's adapter in the stacks, `[T, 1]` u32. A row without an adapter has the number of adapters.
    pub(crate) chosen: Rc<ChosenExperts>,
}

/// Ends the use of a pass's rows.
pub(crate) struct AdaptedPass<'a>(&'a Adapters);

impl Drop for AdaptedPass<'_> {
    fn drop(&mut self) {
        self.0.rows.replace(None);
    }
}

impl Adapters {
    /// What the layers take as inputs, while it is recorded.
    pub(crate) fn inputs(&self) -> RefMut<'_, Option<InputSums>> {
        self.inputs.borrow_mut()
    }

    /// The loaded adapters, by their place in the stacks.
    pub(crate) fn loaded(&self) -> Ref<'_, Vec<AdapterId>> {
        self.loaded.borrow()
    }

    /// Adds an adapter at the end of the stacks.
    pub(crate) fn push(&self, adapter: AdapterId) {
        self.loaded.borrow_mut().push(adapter);
    }

    /// Takes an adapter out of the stacks; `None` if it is not loaded.
    pub(crate) fn remove(&self, adapter: AdapterId) -> Option<usize> {
        let mut loaded = self.loaded.borrow_mut();
        let place = loaded.iter().position(|id| *id == adapter)?;
        loaded.remove(place);
        Some(place)
    }

    /// A layer that adapters may change.
    pub(crate) fn register(&self, weight: &Rc<AdaptedWeight>) {
        self.weights.borrow_mut().push(Rc::downgrade(weight));
    }

    /// All layers that adapters may change.
    pub(crate) fn weights(&self) -> Vec<Rc<AdaptedWeight>> {
        let mut weights = self.weights.borrow_mut();
        weights.retain(|weight| weight.strong_count() > 0);
        weights.iter().filter_map(Weak::upgrade).collect()
    }

    /// The rows of the pass that is being built; `None` where none has an adapter.
    pub(crate) fn rows(&self) -> Option<AdapterRows> {
        self.rows.borrow().clone()
    }

    /// Whether layers compute their weights' products alone.
    pub(crate) fn are_idle(&self) -> bool {
        self.rows.borrow().is_none() && self.inputs.borrow().is_none()
    }

    /// The layers compute the low-rank products of this batch's rows until the result is dropped. Fails if an adapter of
    /// the batch is not loaded.
    pub(crate) fn enter(&self, batch: &Batch) -> mlx::Result<AdaptedPass<'_>> {
        let pass = AdaptedPass(self);
        if batch.segments.iter().all(|segment| segment.adapter.is_none()) {
            return Ok(pass);
        }
        let loaded = self.loaded.borrow();
        let places: BTreeMap<AdapterId, u32> = loaded.iter().copied().zip(0..).collect();
        let none = loaded.len() as u32;
        let mut rows = vec![none; batch.tokens.size()];
        for segment in &batch.segments {
            let Some(adapter) = segment.adapter else { continue };
            let place = places.get(&adapter).ok_or_else(|| mlx::Error::new("an adapter is not loaded"))?;
            let own = rows.get_mut(segment.rows());
            own.ok_or_else(|| mlx::Error::new("segments lie within the batch"))?.fill(*place);
        }
        let chosen = ChosenExperts::new(Array::from_slice(&rows, &[rows.len() as i32, 1])?);
        self.rows.replace(Some(AdapterRows { chosen: Rc::new(chosen) }));
        Ok(pass)
    }

    /// From here on only these rows of the pass are computed.
    pub(crate) fn take_rows(&self, taken: &LogitRows) -> mlx::Result<()> {
        let mut rows = self.rows.borrow_mut();
        if let Some(rows) = rows.as_mut() {
            let indices = taken.of(&rows.chosen.indices)?.contiguous()?;
            rows.chosen = Rc::new(ChosenExperts::new(indices));
        }
        Ok(())
    }
}
