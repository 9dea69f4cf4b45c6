//! One launch of a kernel: constants, grid and outputs, without its input arrays.

use std::cell::RefCell;
use std::collections::BTreeMap;

use mlx_sys as sys;

use super::source::{Dialect, Kernel};
use crate::array::{list, unlist};
use crate::fast::{CustomKernel, KernelSource, Launch, TemplateArg, TemplateValue};
use crate::{Array, Dtype, Error, Result, device};

/// One launch of a kernel, without its input arrays.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kernel.
    pub kernel: &'static Kernel,
    /// The constants that are compiled in.
    pub constants: Vec<TemplateArg<'static>>,
    /// Groups of threads, per axis.
    pub groups: [i32; 3],
    /// Threads of a group.
    pub threads: i32,
    /// Shape and type of each output.
    pub outputs: Vec<(Vec<i32>, Dtype)>,
}

impl Plan {
    /// Threads in all, per axis.
    pub fn grid(&self) -> [i32; 3] {
        let [x, y, z] = self.groups;
        [x * self.threads, y, z]
    }

    /// Lazy outputs of the launch on the default GPU. Inputs are in the kernel's order, and what they hold is not
    /// checked. Fails without a GPU of a dialect that has the kernel.
    pub fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let dialect = Dialect::of(device::backend()).filter(|dialect| self.kernel.exists_in(*dialect));
        let dialect = dialect.ok_or_else(|| {
            Error::Unavailable(format!("kernel {}: no GPU that has it", self.kernel.name).into())
        })?;
        let outputs: Vec<_> = self.outputs.iter().map(|(shape, dtype)| (shape.as_slice(), *dtype)).collect();
        let launch = Launch { grid: self.grid(), threads: [self.threads, 1, 1], init: None };
        with_kernel(self.kernel, dialect, |kernel| kernel.call(inputs, &outputs, &self.constants, &launch))
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

thread_local! {
    /// Made once per thread: arrays belong to their thread, too.
    static MADE: RefCell<BTreeMap<&'static str, CustomKernel>> = const { RefCell::new(BTreeMap::new()) };
}

fn with_kernel<R>(
    kernel: &'static Kernel,
    dialect: Dialect,
    call: impl FnOnce(&CustomKernel) -> Result<R>,
) -> Result<R> {
    MADE.with_borrow_mut(|made| {
        if !made.contains_key(kernel.name) {
            let source = kernel.source(dialect);
            let backend = match dialect {
                Dialect::Cuda => device::Backend::Cuda,
                Dialect::Metal => device::Backend::Metal,
            };
            let text = KernelSource {
                name: kernel.name,
                inputs: kernel.inputs,
                outputs: kernel.outputs,
                source: &source.body,
                header: &source.header,
            };
            made.insert(kernel.name, CustomKernel::new(backend, &text)?);
        }
        match made.get(kernel.name) {
            Some(kernel) => call(kernel),
            None => Err(Error::new("a kernel that was just made")),
        }
    })
}

/// An `int` constant.
pub(super) fn int(name: &'static str, value: i32) -> TemplateArg<'static> {
    (name, TemplateValue::Int(value))
}

/// The bits of a float, for `GK_FLOAT`.
pub(super) fn bits(name: &'static str, value: f32) -> TemplateArg<'static> {
    int(name, i32::from_ne_bytes(value.to_ne_bytes()))
}

/// A type.
pub(super) fn dtype(name: &'static str, value: Dtype) -> TemplateArg<'static> {
    (name, TemplateValue::Dtype(value))
}

/// An output that holds nothing, larger than what MLX keeps in managed memory.
pub(super) fn unused_output() -> (Vec<i32>, Dtype) {
    (vec![64], Dtype::F32)
}
