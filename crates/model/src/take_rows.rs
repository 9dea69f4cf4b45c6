//! Rows of an array by their numbers, and numbers by their places.
//!
//! Invariant: both ways give the same bits, so which of them is used is a matter of the process and of no model.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use mlx::device::{Backend, backend};
use mlx::gpu::{Embed, TableFormat, TakeNumbers};
use mlx::{Array, Dtype};

use crate::environment;

/// Whether the kernels were found wrong on this device.
static OFF: AtomicBool = AtomicBool::new(false);

/// Takes rows by MLX's operation from now on, in the whole process.
pub(crate) fn switch_off() {
    OFF.store(true, Ordering::Relaxed);
}

/// The rows of `x`, `[n, ..]`, that `rows` names, any shape of i32 or u32 below n: `[rows' shape, ..]`. On CUDA rows of
/// floats and single i32 and f32 are taken by our kernels: MLX compiles a gather of each type for two to three seconds, and
/// reads a tenth of the memory's bandwidth with it.
pub fn take_rows(x: &Array, rows: &Array) -> mlx::Result<Array> {
    match by_kernel(x, rows)? {
        Some(taken) => Ok(taken),
        None => x.take(rows, 0),
    }
}

fn by_kernel(x: &Array, rows: &Array) -> mlx::Result<Option<Array>> {
    static CHOSEN: OnceLock<bool> = OnceLock::new();
    let is_used = backend() == Backend::Cuda
        && mlx::gpu::available()
        && *CHOSEN.get_or_init(|| environment::kernels().as_deref() != Some("mlx"))
        && !OFF.load(Ordering::Relaxed);
    let Some((count, row)) = x.shape().split_first().filter(|_| is_used) else { return Ok(None) };
    let (width, taken) = (row.iter().product(), rows.size() as i32);
    let numbers = rows.reshape(&[-1])?.view(Dtype::I32)?;
    let made = match (x.dtype()?, row.is_empty()) {
        _ if taken == 0 || *count == 0 => return Ok(None),
        (dtype @ (Dtype::I32 | Dtype::F32), true) => {
            let made = TakeNumbers { count: taken }.plan().call(&[&x.view(Dtype::I32)?, &numbers])?;
            made.into_iter().map(|made| made.view(dtype)).collect::<mlx::Result<_>>()?
        }
        (dtype @ (Dtype::I32 | Dtype::U32), false) => {
            return by_kernel(&x.view(Dtype::F32)?, rows)?.map(|taken| taken.view(dtype)).transpose();
        }
        (dtype, _) => {
            let embed = Embed { dtype, rows: taken, width, format: TableFormat::Float };
            let Some(plan) = embed.plan() else { return Ok(None) };
            let table = x.reshape(&[*count, width])?;
            plan.call(&[&numbers, &table, &table, &table])?
        }
    };
    let made = made.into_iter().next().ok_or_else(|| mlx::Error::new("rows of an array"))?;
    made.reshape(&[rows.shape(), row].concat()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_shape_of_their_numbers() {
        let x = Array::arange(0..12, Dtype::I32).unwrap().reshape(&[3, 2, 2]).unwrap();
        let rows = Array::from_slice(&[2, 0, 2, 1], &[2, 2]).unwrap();
        let taken = take_rows(&x, &rows).unwrap();
        assert_eq!(taken.shape(), [2, 2, 2, 2]);
        assert_eq!(taken.to_vec::<i32>().unwrap(), [8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7]);
        let numbers = take_rows(&x.reshape(&[12]).unwrap(), &Array::from_slice(&[7u32, 3], &[2]).unwrap());
        assert_eq!(numbers.unwrap().to_vec::<i32>().unwrap(), [7, 3]);
    }
}
