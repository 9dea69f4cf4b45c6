//! Evaluation: making lazy arrays real, and what to do when that fails.
//!
//! MLX reports a failure of its worker once, to the first call on that stream, and then marks the results
//! as available. So an error from [`eval`] may stem from other arrays, and later reads of the failed ones
//! succeed with garbage. [`recover`] is the way back.

use cxx::Exception;
use mlx_sys as sys;

use crate::array::{Array, list};
use crate::error::{Error, Result};
use crate::planned::is_planned;

/// How many failures [`recover`] drains before it gives up.
const MOST_FAILURES: usize = 1000;

impl Array {
    /// Computes this array and waits for it. See [`eval`](crate::eval).
    pub fn eval(&self) -> Result<()> {
        eval([self])
    }

    /// The error of reading this array.
    pub(crate) fn eval_error(&self, e: &Exception) -> Error {
        failed(std::slice::from_ref(&self), e)
    }
}

/// Computes the arrays and waits for them.
///
/// After an error from here, from [`async_eval`] or from [`synchronize`], treat every array that was in flight
/// on this thread as garbage, and call [`recover`].
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    if is_planned() {
        return Ok(());
    }
    let arrays: Vec<_> = arrays.into_iter().collect();
    sys::eval(&*list(arrays.iter().copied())?).map_err(|e| failed(&arrays, &e))
}

/// Starts the computation and returns. MLX may still wait, when much is in flight already.
pub fn async_eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<()> {
    if is_planned() {
        return Ok(());
    }
    let arrays: Vec<_> = arrays.into_iter().collect();
    sys::async_eval(&*list(arrays.iter().copied())?).map_err(|e| failed(&arrays, &e))
}

/// Waits until all that the calling thread started is done.
pub fn synchronize() -> Result<()> {
    sys::synchronize().map_err(|e| failed(&[], &e))
}

/// After a failed evaluation: waits for everything in flight and collects what else went wrong, so that the
/// next evaluation starts clean. Drop the arrays that were in flight; their values are undefined.
///
/// Returns the failures it drained. An error means that they did not end, and the process should.
pub fn recover() -> Result<Vec<Error>> {
    let mut drained = Vec::new();
    while let Err(e) = synchronize() {
        if drained.len() == MOST_FAILURES {
            return Err(e);
        }
        drained.push(e);
    }
    Ok(drained)
}

/// The error of an evaluation that `arrays` were part of.
fn failed(arrays: &[&Array], e: &Exception) -> Error {
    let op = list(arrays.iter().copied()).map_or(String::new(), |list| sys::stuck_at(&list));
    let work = if !op.is_empty() {
        op
    } else if arrays.is_empty() {
        "earlier work".into()
    } else {
        let named: Vec<_> = arrays.iter().take(3).map(|a| a.describe()).collect();
        format!("{} of {} arrays or earlier work", named.join(", "), arrays.len())
    };
    Error::Eval { work: work.into(), message: e.what().into() }
}
