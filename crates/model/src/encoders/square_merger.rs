//! Squares of rows that attend to each other and become one row each, between two layers.
//!
//! Source: transformers `models/minicpmv4_6/modeling_minicpmv4_6.py`.

use mlx::Array;

use super::blueprint::{PatchOrder, SquareMerger};
use super::connector::squares;
use super::grid::Grid;
use super::manifest::{ATTENTION, SQUARES};
use crate::Activation;
use crate::blocks::{Linear, NormBlock};
use crate::ops::Ops;
use crate::weights::{LoadError, Store};

/// Rows of a square.
const ROWS: i32 = 4;

/// The merger with its weights.
pub(super) struct SquareMergerBlock {
    ops: Ops,
    /// Behind which layer.
    pub(super) layer: usize,
    heads: i32,
    act: Activation,
    norms: [NormBlock; 2],
    /// Of queries, keys, values and outputs.
    attention: [Linear; 4],
    linears: [Linear; 2],
}

impl SquareMergerBlock {
    pub(super) fn load(spec: &SquareMerger, store: &mut Store) -> Result<Self, LoadError> {
        let (hidden, path) = (store.hidden(), format!("encoder.{SQUARES}"));
        let mut norm = |name: &str, width| store.norm(&format!("{path}.{name}"), spec.norm, width);
        let norms = [norm("norm1", hidden)?, norm("norm2", ROWS as usize * hidden)?];
        let [q, k, v, o] = ATTENTION.map(|name| store.linear(&format!("{path}.attn.{name}")));
        let [first, second] = ["linear_1", "linear_2"].map(|name| store.linear(&format!("{path}.{name}")));
        Ok(Self {
            ops: store.ops(),
            layer: spec.layer,
            heads: spec.heads as i32,
            act: spec.act,
            norms,
            attention: [q?, k?, v?, o?],
            linears: [first?, second?],
        })
    }

    /// `x`: rows of views in the order of their patches, `[rows, hidden]`. A quarter of them comes out.
    pub(super) fn forward(&self, x: &Array, grid: Grid) -> mlx::Result<Array> {
        let rows = squares(x, (PatchOrder::Rows, grid), 2)?;
        let [count, _, hidden] = rows.dims()?;
        let [norm, norm_joined] = &self.norms;
        let rows = &rows + self.attend(&norm.forward(&rows)?)?;
        let joined = norm_joined.forward(&rows.reshape(&[count, ROWS * hidden])?)?;
        let [first, second] = &self.linears;
        let transformed = second.forward(&self.ops.act(&first.forward(&joined)?, self.act)?)?;
        Ok(transformed + rows.mean(&[1])?)
    }

    /// `x`: `[squares, 4, hidden]`.
    fn attend(&self, x: &Array) -> mlx::Result<Array> {
        let [count, _, hidden] = x.dims()?;
        let head_dim = hidden / self.heads;
        let by_head = |linear: &Linear| {
            linear.forward(x)?.reshape(&[count, ROWS, self.heads, head_dim])?.transpose(&[0, 2, 1, 3])
        };
        let [q, k, v, o] = &self.attention;
        let (q, k, v) = (by_head(q)?, by_head(k)?, by_head(v)?);
        let scale = (head_dim as f32).powf(-0.5);
        let seen = (q * scale).matmul(&k.swapaxes(-1, -2)?)?.softmax(-1)?.matmul(&v)?;
        o.forward(&seen.transpose(&[0, 2, 1, 3])?.reshape(&[count, ROWS, hidden])?)
    }
}
