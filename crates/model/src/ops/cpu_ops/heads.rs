//! Products with the weights of each head. MLX's own with packed weights are scalar code.

use mlx::{Array, Dtype, QuantMode, cpu};

use super::affine;
use crate::ops::Weight;
use crate::ops::mlx_ops::HeadProducts;

pub(super) const PRODUCTS: HeadProducts = HeadProducts { of_heads, of_heads_back };

/// Each head of each row with its own matrix, `[T, heads, in]` → `[T, heads, out]`.
pub(super) fn of_rows(weight: &Weight, x: &Array) -> mlx::Result<Array> {
    let [rows, heads, _] = x.dims()?;
    let all: Vec<i32> = (0..rows).flat_map(|_| 0..heads).collect();
    let all = Array::from_slice(&all, &[rows, heads])?;
    match weight {
        Weight::Dense(weight) => cpu::gather_mm(x, &all, weight),
        Weight::Packed(packed) if packed.mode == QuantMode::Affine => {
            cpu::gather_qmm(x, &all, packed, cpu::Activations::Exact)
        }
        Weight::Packed(_) => weight.of_heads(&x.expand_dims(&[2])?)?.squeeze(&[2]),
    }
}

fn of_heads(weight: &Weight, x: &Array) -> mlx::Result<Array> {
    match affine(weight) {
        Some(packed) => grouped(x, packed.weight.dim(0)?, |rows, heads| {
            cpu::gather_qmm(rows, heads, packed, cpu::Activations::Exact)
        }),
        None => weight.of_heads(x),
    }
}

/// Unpacked and turned first: rows of a chunk are many.
fn of_heads_back(weight: &Weight, x: &Array) -> mlx::Result<Array> {
    let Some(packed) = affine(weight) else { return weight.of_heads_back(x) };
    let turned = packed.dequantize(Dtype::F32)?.swapaxes(-1, -2)?.contiguous()?;
    grouped(x, packed.weight.dim(0)?, |rows, heads| cpu::gather_mm(rows, heads, &turned))
}

/// Heads are the experts of a product, and each row chooses all. `[n, heads or 1, rows, in]` → `[n, heads, rows, out]`.
fn grouped(
    x: &Array,
    heads: i32,
    product: impl Fn(&Array, &Array) -> mlx::Result<Array>,
) -> mlx::Result<Array> {
    let [n, own, rows, inputs] = x.dims()?;
    let by_row = match own {
        1 => x.reshape(&[n * rows, inputs])?,
        _ => x.transpose(&[0, 2, 1, 3])?.reshape(&[n * rows, heads, inputs])?,
    };
    let all = Array::from_slice(&(0..heads).collect::<Vec<i32>>(), &[1, heads])?;
    let found = product(&by_row, &all.broadcast_to(&[n * rows, heads])?)?;
    found.reshape(&[n, rows, heads, -1])?.transpose(&[0, 2, 1, 3])
}
