//! Rows of an array by their numbers.

use std::sync::OnceLock;

use mlx::Array;
use mlx::device::{Backend, backend};
use mlx::gpu::{Embed, TableFormat};

use crate::environment;
use crate::gpu_switches::{GpuKernel, is_on};

/// The rows of `x`, `[n, ..]`, that `rows` names, any shape of i32 or u32 below n: `[rows' shape, ..]`. On CUDA by our kernel:
/// MLX compiles a gather of each type for two to three seconds, and reads a tenth of the memory's bandwidth with it.
pub(crate) fn take_rows(x: &Array, rows: &Array) -> mlx::Result<Array> {
    match by_kernel(x, rows)? {
        Some(taken) => Ok(taken),
        None => x.take(rows, 0),
    }
}

fn by_kernel(x: &Array, rows: &Array) -> mlx::Result<Option<Array>> {
    static CHOSEN: OnceLock<bool> = OnceLock::new();
    let is_used = backend() == Backend::Cuda
        && *CHOSEN.get_or_init(|| environment::kernels().as_deref() != Some("mlx"))
        && is_on(GpuKernel::Embed);
    let Some((count, row)) = x.shape().split_first().filter(|_| is_used) else { return Ok(None) };
    let width = row.iter().product();
    let embed = Embed { dtype: x.dtype()?, rows: rows.size() as i32, width, format: TableFormat::Float };
    let Some(plan) = embed.plan().filter(|_| rows.size() > 0 && *count > 0) else { return Ok(None) };
    let table = x.reshape(&[*count, width])?;
    let numbers = rows.reshape(&[-1])?.view(mlx::Dtype::I32)?;
    let taken = plan.call(&[&numbers, &table, &table, &table])?.pop();
    let taken = taken.ok_or_else(|| mlx::Error::new("rows of an array"))?;
    taken.reshape(&[rows.shape(), row].concat()).map(Some)
}
