//! Whether graphs compute what their kernels compute one by one.

use std::collections::BTreeSet;

use mlx::gpu::KernelOrder;
use mlx::{Array, Dtype};

/// What comparisons have found so far. Only a step that replaces no state that it starts from can be computed twice and
/// compared; once one was equal, other steps trust their graphs.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Of the graphs that are built; `None` where graphs differ in every order.
    order: Option<KernelOrder>,
    /// Numbers of rows whose graphs in this order were equal.
    equal_rows: BTreeSet<i32>,
}

/// How a step may use a graph that is built for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphUse {
    /// Not at all, or not yet.
    None,
    /// Once its result is compared.
    Compared(KernelOrder),
    /// At once.
    Trusted(KernelOrder),
}

impl Default for Comparison {
    fn default() -> Self {
        Self { order: Some(KernelOrder::Overlapped), equal_rows: BTreeSet::new() }
    }
}

impl Comparison {
    /// In a step that can be computed twice.
    pub(super) fn in_repeatable_step(&self, rows: i32) -> GraphUse {
        match self.order {
            None => GraphUse::None,
            Some(order) if self.equal_rows.contains(&rows) => GraphUse::Trusted(order),
            Some(order) => GraphUse::Compared(order),
        }
    }

    /// In a step that cannot.
    pub(super) fn in_other_step(&self) -> GraphUse {
        self.order.filter(|_| !self.equal_rows.is_empty()).map_or(GraphUse::None, GraphUse::Trusted)
    }

    /// A graph with this many rows computed the same.
    pub(super) fn add_equal(&mut self, rows: i32) {
        self.equal_rows.insert(rows);
    }

    /// A graph did not: the order to compare next, if there is one.
    pub(super) fn add_difference(&mut self) -> Option<KernelOrder> {
        self.equal_rows.clear();
        self.order = match self.order {
            Some(KernelOrder::Overlapped) => Some(KernelOrder::Serial),
            Some(KernelOrder::Serial) | None => None,
        };
        self.order
    }
}

/// How many elements of two float32 arrays differ, and by how much; `None` if their bits are equal. Compared on the device: what
/// the host reads is moved in memory, and a graph writes to where its results were.
pub(super) fn difference(found: &Array, expected: &Array) -> mlx::Result<Option<String>> {
    let axes: Vec<i32> = (0..found.ndim() as i32).collect();
    let equal = found.view(Dtype::I32)?.equal(&expected.view(Dtype::I32)?)?;
    let equal = equal.astype(Dtype::I32)?.sum(&axes)?.to_vec::<i32>()?;
    let [equal] = equal[..] else { return Err(mlx::Error::new("one number")) };
    let differ = found.size() as i32 - equal;
    if differ == 0 {
        return Ok(None);
    }
    let largest = (found - expected).abs()?.max(&axes)?.to_vec::<f32>()?;
    let largest = largest.first().copied().unwrap_or(f32::NAN);
    Ok(Some(format!("in {differ} of {}, by up to {largest:e}", found.size())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_compared_once_for_each_number_of_rows() {
        let mut comparison = Comparison::default();
        let overlapped = KernelOrder::Overlapped;
        assert_eq!(comparison.in_other_step(), GraphUse::None);
        assert_eq!(comparison.in_repeatable_step(1), GraphUse::Compared(overlapped));
        comparison.add_equal(1);
        assert_eq!(comparison.in_repeatable_step(1), GraphUse::Trusted(overlapped));
        assert_eq!(comparison.in_repeatable_step(8), GraphUse::Compared(overlapped));
        assert_eq!(comparison.in_other_step(), GraphUse::Trusted(overlapped));
    }

    #[test]
    fn a_difference_ends_the_overlap_and_then_all_graphs() {
        let mut comparison = Comparison::default();
        comparison.add_equal(1);
        assert_eq!(comparison.add_difference(), Some(KernelOrder::Serial));
        let compared = GraphUse::Compared(KernelOrder::Serial);
        assert_eq!([1, 8].map(|rows| comparison.in_repeatable_step(rows)), [compared; 2]);
        assert_eq!(comparison.in_other_step(), GraphUse::None);
        comparison.add_equal(8);
        assert_eq!(comparison.in_other_step(), GraphUse::Trusted(KernelOrder::Serial));
        assert_eq!(comparison.add_difference(), None);
        assert_eq!(comparison.in_repeatable_step(8), GraphUse::None);
        assert_eq!(comparison.in_other_step(), GraphUse::None);
    }

    #[test]
    fn arrays_differ_by_their_bits() {
        let array = |values: &[f32]| Array::from_slice(values, &[1, values.len() as i32]).unwrap();
        let of = |found: &[f32], expected: &[f32]| difference(&array(found), &array(expected)).unwrap();
        assert_eq!(of(&[1.0, f32::NAN], &[1.0, f32::NAN]), None);
        assert_eq!(of(&[1.0, 2.0, 4.0], &[1.0, 2.5, 3.0]).unwrap(), "in 2 of 3, by up to 1e0");
        assert_eq!(of(&[f32::NAN, 2.0], &[1.0, 2.5]).unwrap(), "in 2 of 2, by up to NaN");
    }
}
