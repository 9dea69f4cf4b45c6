//! Products with the weights of experts that stay in a file: read while a product runs, into memory with a bound.
//!
//! Results have the bits of products with resident weights. A product of more experts than fit is computed in parts.

mod file;
mod history;
mod lru;
mod memory;
mod residents;

use std::collections::BTreeSet;
use std::sync::Arc;

use mlx_sys::kernels::{Node, StoredWeights};
use omnibus_cpu_kernels::{Activations, Float, Kernel, Layout, Linear, Rows, Weights};

use super::{Op, one_of};
use crate::array::Array;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use file::StackFiles;
pub use file::{ExpertRange, FileRange, StoredFile};
pub use memory::ExpertMemory;
pub use residents::ExpertMemoryStats;

/// The matrices `[experts, out, in]` of experts in a file.
#[derive(Clone)]
pub struct StoredExperts(Arc<Stack>);

struct Stack {
    weights: Weights,
    n: usize,
    k: usize,
    number: u32,
    files: Arc<StackFiles>,
    memory: ExpertMemory,
}

/// How the elements of a stack are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredFormat {
    /// As floats, in one tensor.
    Dense(Dtype),
    /// In MLX's affine format: words, scales and biases.
    Affine {
        /// Of a code: 2 to 6 or 8.
        bits: usize,
        /// Elements that share a scale: 32, 64 or 128.
        group: usize,
        /// Of scales and biases.
        scales: Dtype,
    },
}

impl StoredExperts {
    /// `layer`: the name that stacks of the same experts share; layers are added in the order in which they compute.
    /// `tensors`: one of dense experts, else words, scales and biases. `shape`: experts, outputs and inputs. Fails where
    /// the kernels do not read the format, or a tensor does not have the bytes that the shape needs.
    pub fn new(
        (memory, layer): (&ExpertMemory, &str),
        tensors: Vec<ExpertRange>,
        format: StoredFormat,
        shape: [usize; 3],
    ) -> Result<Self> {
        let [experts, n, k] = shape;
        let weights = weights_of(format)?;
        let matrix_bytes: Vec<usize> = match weights {
            Weights::Dense(float) => vec![n * k * float.bytes()],
            Weights::Affine { bits, group, scales } => {
                let scales = n * (k / group) * scales.bytes();
                vec![n * k * bits / 8, scales, scales]
            }
        };
        let fits = tensors.len() == matrix_bytes.len()
            && tensors.iter().zip(&matrix_bytes).all(|(tensor, bytes)| tensor.holds(experts, *bytes));
        if !fits {
            return Err(Error::new(format!("tensors of experts do not have the bytes of {shape:?}")));
        }
        let ranges = tensors.into_iter().zip(matrix_bytes).collect();
        let files = Arc::new(StackFiles { experts, ranges });
        let number = memory.add_stack(layer, Arc::clone(&files));
        Ok(Self(Arc::new(Stack { weights, n, k, number, files, memory: memory.clone() })))
    }

    /// Bytes that one expert takes while it is resident.
    pub fn expert_bytes(&self) -> u64 {
        self.0.files.expert_bytes()
    }
}

fn weights_of(format: StoredFormat) -> Result<Weights> {
    let float = |dtype| match dtype {
        Dtype::F32 => Ok(Float::F32),
        Dtype::F16 => Ok(Float::F16),
        Dtype::Bf16 => Ok(Float::Bf16),
        other => Err(Error::new(format!("{other} where float32, float16 or bfloat16 is needed"))),
    };
    match format {
        StoredFormat::Dense(dtype) => Ok(Weights::Dense(float(dtype)?)),
        StoredFormat::Affine { bits: bits @ (2..=6 | 8), group: group @ (32 | 64 | 128), scales } => {
            Ok(Weights::Affine { bits, group, scales: float(scales)? })
        }
        StoredFormat::Affine { bits, group, .. } => {
            Err(Error::new(format!("no kernel reads {bits} bits in groups of {group}")))
        }
    }
}

/// [`gather_qmm`](super::gather_qmm) and [`gather_mm`](super::gather_mm) for experts in a file.
pub fn gather_stored(
    x: &Array,
    experts: &Array,
    w: &StoredExperts,
    activations: Activations,
) -> Result<Array> {
    let op = Op { name: "cpu::gather_stored", inputs: &[x, experts] };
    let stack = &w.0;
    let sizes = (stack.files.experts, stack.n, stack.k);
    let (kernel, shape) = op.chosen(x, experts, stack.weights, sizes)?;
    let Rows::Chosen { results, sharing, experts: count, .. } = kernel.rows else {
        return Err(op.fail("rows choose their experts"));
    };
    let activations = match stack.weights {
        Weights::Dense(_) => Activations::Exact,
        Weights::Affine { .. } => activations,
    };
    let rows = Rows::Chosen { results, sharing, experts: count, layout: Layout::Table };
    let kernel = Kernel::Linear(Linear { activations, rows, ..kernel });
    let weights: Arc<dyn StoredWeights> = Arc::clone(stack) as Arc<dyn StoredWeights>;
    one_of(&op, Node::Stored(kernel, weights), &[x, experts], &shape, x.dtype()?)
}

impl StoredWeights for Stack {
    unsafe fn run(&self, kernel: &Kernel, inputs: &[*const u8], outputs: &[*mut u8]) {
        let Kernel::Linear(Linear { rows: Rows::Chosen { results, experts, .. }, n, float, .. }) = kernel
        else {
            return;
        };
        let (&[x, ids], &[out]) = (inputs, outputs) else { return };
        // SAFETY: `gather_stored` checked that there is a 32-bit id for each result.
        let chosen = unsafe { std::slice::from_raw_parts(ids.cast::<u32>(), *results) };
        let needed: BTreeSet<u32> = chosen.iter().copied().filter(|id| (*id as usize) < *experts).collect();
        let needed: Vec<u32> = needed.into_iter().collect();
        let computed = self.memory.by_parts((self.number, &self.files), &needed, |table| {
            // SAFETY: the caller's promise, and the memory holds what the table names until this returns.
            unsafe { kernel.run(&[x, table.as_ptr().cast(), ids], &[out]) }
        });
        if let Err(why) = computed {
            // SAFETY: the output has so many bytes. Zeros are wrong, but defined.
            unsafe { std::ptr::write_bytes(out, 0, results * n * float.bytes()) };
            self.memory.fail(why);
        }
    }
}
