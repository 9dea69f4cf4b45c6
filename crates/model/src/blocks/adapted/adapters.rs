//! What the linear layers of a model share: which adapters are loaded, which rows of a pass use which, and a record of
//! inputs.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use mlx::Array;

use super::layer::AdaptedLayer;
use crate::batch::{AdapterId, Batch};
use crate::forward::LogitRows;
use crate::input_squares::InputSums;
use crate::ops::ChosenExperts;

/// What a model's linear layers share: its adapters, those of the rows that are computed, and a record of inputs.
#[derive(Default)]
pub(crate) struct Adapters {
    /// By their place in every layer's stack.
    loaded: RefCell<Vec<AdapterId>>,
    /// The layers that adapters may change, by path. A layer that was joined with another is gone.
    layers: RefCell<Vec<Weak<AdaptedLayer>>>,
    /// Of the pass that is being built; `None` where no row has an adapter.
    rows: RefCell<Option<AdapterRows>>,
    /// Most bytes of all matrices while an adapter is loaded.
    pub(crate) bytes_max: Cell<Option<u64>>,
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
    pub(crate) fn register(&self, layer: &Rc<AdaptedLayer>) {
        self.layers.borrow_mut().push(Rc::downgrade(layer));
    }

    /// All layers that adapters may change.
    pub(crate) fn layers(&self) -> Vec<Rc<AdaptedLayer>> {
        let mut layers = self.layers.borrow_mut();
        layers.retain(|layer| layer.strong_count() > 0);
        layers.iter().filter_map(Weak::upgrade).collect()
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

    /// What is computed of these rows of the pass alone.
    pub(crate) fn of_rows<T>(
        &self,
        taken: &LogitRows,
        compute: impl FnOnce() -> mlx::Result<T>,
    ) -> mlx::Result<T> {
        let chosen = self.rows.borrow().as_ref().map(|rows| Rc::clone(&rows.chosen));
        let Some(all) = chosen else { return compute() };
        let indices = taken.of(&all.indices)?.contiguous()?;
        self.choose(Rc::new(ChosenExperts::new(indices)));
        let computed = compute();
        self.choose(all);
        computed
    }

    fn choose(&self, chosen: Rc<ChosenExperts>) {
        if let Some(rows) = self.rows.borrow_mut().as_mut() {
            rows.chosen = chosen;
        }
    }
}
