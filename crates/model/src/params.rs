//! The arrays that a network holds, in one list.
//!
//! Invariant: the list keeps no array in memory. What a layer joins, casts or drops leaves the list with it, so that the list
//! is what layers hold now.

use std::cell::RefCell;
use std::ops::{Add, Deref, Div, Mul, Sub};
use std::rc::{Rc, Weak};

use mlx::Array;

/// A value made of arrays.
pub(crate) trait Held {
    fn arrays(&self) -> Vec<&Array>;
}

impl Held for Array {
    fn arrays(&self) -> Vec<&Array> {
        vec![self]
    }
}

/// A value that a network holds: what it is made of is in the network's list. A clone is the same value.
pub(crate) struct Param<T = Array> {
    value: Rc<T>,
    params: Params,
}

/// The list of a network.
#[derive(Clone, Default)]
pub(crate) struct Params(Rc<RefCell<List>>);

#[derive(Default)]
struct List {
    values: Vec<Weak<dyn Held>>,
    /// How many of them were evaluated.
    evaluated: usize,
}

impl Params {
    /// Makes `value` one of the network's.
    pub(crate) fn hold<T: Held + 'static>(&self, value: T) -> Param<T> {
        let value = Rc::new(value);
        let listed: Rc<dyn Held> = Rc::clone(&value) as Rc<dyn Held>;
        self.0.borrow_mut().values.push(Rc::downgrade(&listed));
        Param { value, params: self.clone() }
    }

    /// Every array that the network holds.
    pub(crate) fn arrays(&self) -> Vec<Array> {
        cloned(&self.0.borrow().values)
    }

    /// Bytes of every array that the network holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.arrays().iter().map(|array| array.nbytes() as u64).sum()
    }

    /// Makes resident what was added since the last call, and frees what it was computed from.
    pub(crate) fn evaluate(&self) -> mlx::Result<()> {
        let mut list = self.0.borrow_mut();
        let List { values, evaluated } = &mut *list;
        let new = values.split_off(*evaluated);
        values.extend(new.into_iter().filter(|value| value.strong_count() > 0));
        mlx::eval(&cloned(values.get(*evaluated..).unwrap_or_default()))?;
        *evaluated = values.len();
        Ok(())
    }
}

fn cloned(values: &[Weak<dyn Held>]) -> Vec<Array> {
    let values: Vec<Rc<dyn Held>> = values.iter().filter_map(Weak::upgrade).collect();
    values.iter().flat_map(|value| value.arrays()).cloned().collect()
}

impl<T: Held> Param<T> {
    /// A value of no network, of a check.
    pub(crate) fn unlisted(value: T) -> Self {
        Self { value: Rc::new(value), params: Params::default() }
    }

    /// Another value of the same network.
    pub(crate) fn beside<U: Held + 'static>(&self, value: U) -> Param<U> {
        self.params.hold(value)
    }

    /// What is computed of it, which the network holds in its place once this one is dropped.
    pub(crate) fn map<U: Held + 'static>(
        &self,
        compute: impl FnOnce(&T) -> mlx::Result<U>,
    ) -> mlx::Result<Param<U>> {
        Ok(self.beside(compute(&self.value)?))
    }

    /// Makes it resident.
    pub(crate) fn evaluate(&self) -> mlx::Result<()> {
        mlx::eval(self.value.arrays())
    }
}

impl<T> Clone for Param<T> {
    fn clone(&self) -> Self {
        Self { value: Rc::clone(&self.value), params: self.params.clone() }
    }
}

impl<T> Deref for Param<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

macro_rules! computes_as_its_array {
    ($($operator:ident $method:ident),*) => {$(
        impl $operator<&Param> for &Array {
            type Output = Array;

            fn $method(self, other: &Param) -> Array {
                self.$method(&*other.value)
            }
        }

        impl $operator<&Param> for Array {
            type Output = Array;

            fn $method(self, other: &Param) -> Array {
                self.$method(&*other.value)
            }
        }
    )*};
}

computes_as_its_array!(Add add, Sub sub, Mul mul, Div div);

#[cfg(test)]
mod tests {
    use mlx::{Array, Dtype, memory};

    use super::Params;

    const BYTES: usize = 64 << 20;

    /// Other tests of the process take less than this.
    const SLACK: usize = 16 << 20;

    fn ones() -> Array {
        Array::ones(&[(BYTES / 4) as i32], Dtype::F32).unwrap().contiguous().unwrap() + 0.0
    }

    #[test]
    fn what_layers_drop_is_freed() {
        let params = Params::default();
        let before = memory::active_memory();
        let (first, second) = (params.hold(ones()), params.hold(ones()));
        params.evaluate().unwrap();
        let joined = first.map(|first| mlx::concatenate(&[first, &second], 0)).unwrap();
        params.evaluate().unwrap();
        let grown = || memory::active_memory().saturating_sub(before);
        assert!(grown() > 4 * BYTES - SLACK, "{} bytes of sources and of what was joined", grown());
        drop((first, second));
        assert!(grown() < 2 * BYTES + SLACK, "{} bytes of what was joined", grown());
        assert_eq!(params.arrays().iter().map(Array::nbytes).sum::<usize>(), 2 * BYTES);
        // A clone is the same parameter.
        drop(joined.clone());
        assert_eq!(params.arrays().len(), 1);
        drop(joined);
        assert!(params.arrays().is_empty() && grown() < SLACK, "{} bytes are left", grown());
    }

    #[test]
    fn what_is_computed_from_dropped_values_is_freed_when_it_is_evaluated() {
        let params = Params::default();
        let before = memory::active_memory();
        let source = ones();
        source.eval().unwrap();
        let negative = params.hold(source).map(Array::negative).unwrap();
        params.evaluate().unwrap();
        let grown = memory::active_memory().saturating_sub(before);
        assert!(grown < BYTES + SLACK, "{grown} bytes of one array");
        assert_eq!(params.arrays().len(), 1);
        drop(negative);
    }
}
