//! Launches of plans: by our own programs on CUDA, else by MLX's custom kernels.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use mlx_sys as sys;

use super::plan::Plan;
use super::program;
use super::source::Dialect;
use crate::array::{Array, list, unlist};
use crate::device;
use crate::error::{Error, Result};
use crate::fast::{CustomKernel, KernelSource, Launch};
use crate::planned::is_planned;

impl Plan {
    /// Lazy outputs of the launch on the default GPU. Inputs are in the kernel's order, and what they hold is not
    /// checked. Fails without a GPU of a dialect that has the kernel.
    pub fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let dialect = Dialect::of(device::backend()).filter(|dialect| self.kernel.exists_in(*dialect));
        let dialect = dialect.ok_or_else(|| {
            Error::Unavailable(format!("kernel {}: no GPU that has it", self.kernel.name).into())
        })?;
        if (dialect == Dialect::Cuda || is_planned())
            && let Some(arrays) = program::call(self, inputs)?
        {
            return Ok(arrays);
        }
        let outputs: Vec<_> = self.outputs.iter().map(|(shape, dtype)| (shape.as_slice(), *dtype)).collect();
        let launch = Launch { grid: self.grid(), threads: [self.threads, 1, 1], init: None };
        with_kernel(self, dialect, |kernel| kernel.call(inputs, &outputs, &[], &launch))
    }
}

/// The arrays, as values that exist once `written` is computed: what a kernel that wrote to them gave. They share
/// memory. A kernel that reads them must take `written` as well, because MLX orders launches by their outputs.
pub fn written_by(arrays: &[&Array], written: &Array) -> Result<Vec<Array>> {
    let (values, on) = (list(arrays.iter().copied())?, list([written])?);
    let made =
        sys::depends(&values, &on).map_err(|e| Error::op("depends", arrays.iter().copied(), e.what()))?;
    Ok(unlist(&made))
}

/// A kernel and the values of its constants.
type Key = (&'static str, Vec<i32>);

thread_local! {
    /// Made once per thread: arrays belong to their thread, too.
    static MADE: RefCell<HashMap<Key, CustomKernel>> = RefCell::default();
}

fn with_kernel<R>(plan: &Plan, dialect: Dialect, call: impl FnOnce(&CustomKernel) -> Result<R>) -> Result<R> {
    MADE.with_borrow_mut(|made| {
        let key = (plan.kernel.name, plan.numbers().collect());
        let kernel = match made.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let kernel = compiled_on_demand(plan, dialect, unknown.key())?;
                unknown.insert(kernel)
            }
        };
        call(kernel)
    })
}

fn compiled_on_demand(plan: &Plan, dialect: Dialect, key: &Key) -> Result<CustomKernel> {
    let backend = match dialect {
        Dialect::Cuda => device::Backend::Cuda,
        Dialect::Metal => device::Backend::Metal,
    };
    let source = plan.kernel.source(dialect);
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let text = KernelSource {
        name: &format!("{}_{:016x}", plan.kernel.name, hasher.finish()),
        inputs: plan.kernel.inputs,
        outputs: plan.kernel.outputs,
        source: &(plan.declarations(dialect) + &source.body),
        header: &source.header,
    };
    CustomKernel::new(backend, &text)
}
