//! GPU kernels from source of the caller. Without their backend, making one is an error.

use std::fmt;

use cxx::UniquePtr;
use mlx_sys as sys;

use crate::array::Array;
use crate::array::{check_shape, list, unlist};
use crate::device::{self, Backend};
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// A kernel's text and the names it uses.
#[derive(Clone, Copy, Debug)]
pub struct KernelSource<'a> {
    /// A valid identifier, unique to this source.
    pub name: &'a str,
    /// Names of the input arrays. `{name}_shape`, `{name}_strides` and `{name}_ndim` exist where used.
    pub inputs: &'a [&'a str],
    /// Names of the output arrays.
    pub outputs: &'a [&'a str],
    /// The body of the kernel function; MLX writes its signature.
    pub source: &'a str,
    /// Text before the kernel function: includes and helpers.
    pub header: &'a str,
}

/// A template parameter of one call.
pub type TemplateArg<'a> = (&'a str, TemplateValue);

/// The value of a template parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateValue {
    /// An `int`.
    Int(i32),
    /// A `bool`.
    Bool(bool),
    /// A type.
    Dtype(Dtype),
}

/// What one call runs over.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Threads in all, per axis.
    pub grid: [i32; 3],
    /// Threads of a group, per axis.
    pub threads: [i32; 3],
    /// What outputs hold before the kernel writes; `None` leaves them undefined.
    pub init: Option<f32>,
}

/// A compiled-on-demand GPU kernel. Inputs are made row-contiguous; outputs are always new arrays.
pub struct CustomKernel {
    name: String,
    kernel: UniquePtr<sys::CustomKernel>,
}

/// A kernel in Metal's language. Fails unless the backend is Metal.
pub fn metal_kernel(source: &KernelSource<'_>) -> Result<CustomKernel> {
    CustomKernel::new(Backend::Metal, source)
}

/// A kernel in CUDA C++. Fails unless the backend is CUDA.
pub fn cuda_kernel(source: &KernelSource<'_>) -> Result<CustomKernel> {
    CustomKernel::new(Backend::Cuda, source)
}

impl CustomKernel {
    /// A kernel in the language of `backend`, which must be the one found.
    pub fn new(backend: Backend, source: &KernelSource<'_>) -> Result<Self> {
        let found = device::backend();
        let language = match backend {
            Backend::Metal => sys::KernelLanguage::Metal,
            Backend::Cuda => sys::KernelLanguage::Cuda,
            Backend::Cpu => return Err(unavailable(source.name, "the CPU has no kernel language")),
        };
        if found != backend {
            return Err(unavailable(source.name, &format!("is for {backend}, this machine has {found}")));
        }
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (inputs, outputs) = (names(source.inputs), names(source.outputs));
        let kernel =
            sys::custom_kernel(language, source.name, &inputs, &outputs, source.source, source.header)
                .map_err(|e| unavailable(source.name, e.what()))?;
        Ok(Self { name: source.name.to_owned(), kernel })
    }

    /// One call: a lazy array for each of `outputs` (shape and dtype).
    pub fn call(
        &self,
        inputs: &[&Array],
        outputs: &[(&[i32], Dtype)],
        templates: &[TemplateArg<'_>],
        launch: &Launch,
    ) -> Result<Vec<Array>> {
        for (shape, _) in outputs {
            check_shape("custom_kernel", shape)?;
        }
        let shapes: Vec<_> = outputs.iter().flat_map(|(shape, _)| shape.iter().copied()).collect();
        let ranks: Vec<_> = outputs.iter().map(|(shape, _)| shape.len() as i32).collect();
        let dtypes: Vec<_> = outputs.iter().map(|(_, dtype)| dtype.code()).collect();
        let templates: Vec<_> = templates.iter().map(template).collect();
        let launch = sys::Launch {
            grid: launch.grid,
            threads: launch.threads,
            shared_bytes: 0,
            has_init: launch.init.is_some(),
            init: launch.init.unwrap_or(0.0),
        };
        let list = list(inputs.iter().copied())?;
        let made = self.kernel.call(&list, &shapes, &ranks, &dtypes, &templates, &launch);
        let failed = |e: cxx::Exception| {
            Error::op("custom_kernel", inputs.iter().copied(), format!("{}: {}", self.name, e.what()))
        };
        Ok(unlist(&*made.map_err(failed)?))
    }
}

fn template((name, value): &TemplateArg<'_>) -> sys::Template {
    let (kind, value) = match *value {
        TemplateValue::Int(value) => (sys::TemplateKind::Int, value),
        TemplateValue::Bool(value) => (sys::TemplateKind::Bool, value.into()),
        TemplateValue::Dtype(dtype) => (sys::TemplateKind::Dtype, dtype.code().repr),
    };
    sys::Template { name: (*name).to_owned(), kind, value }
}

fn unavailable(name: &str, why: &str) -> Error {
    Error::Unavailable(format!("custom kernel {name}: {why}").into())
}

impl fmt::Debug for CustomKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomKernel").field("name", &self.name).finish_non_exhaustive()
    }
}
