//! The gate on the heads' output.

use mlx::Array;

use super::{Attention, OutputGate};
use crate::blocks::Linear;
use crate::ops::Ops;
use crate::weights::{LoadError, Store};

/// A gate with its projection.
pub(in crate::mixers) struct GateBlock {
    kind: OutputGate,
    projection: Linear,
}

impl GateBlock {
    /// The gate of a layer, and its projection to queries without it.
    pub(super) fn load(
        spec: &Attention,
        queries: Linear,
        store: &mut Store,
        path: &str,
    ) -> Result<(Linear, Option<Self>), LoadError> {
        let Some(kind) = spec.out_gate else { return Ok((queries, None)) };
        let (queries, projection) = match kind {
            OutputGate::InQueries => query_and_gate(queries, spec)?,
            OutputGate::PerElement | OutputGate::PerHead(_) => {
                return Ok((queries, Some(Self::projected(kind, store, path)?)));
            }
        };
        Ok((queries, Some(Self { kind, projection })))
    }

    /// A gate with a projection of its own.
    pub(in crate::mixers) fn projected(
        kind: OutputGate,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        Ok(Self { kind, projection: store.linear(&format!("{path}.gate_proj"))? })
    }

    /// The heads' output `[T, heads · v_head_dim]` times the gate of `x`.
    pub(in crate::mixers) fn forward(&self, ops: &Ops, x: &Array, attended: &Array) -> mlx::Result<Array> {
        let gate = self.projection.forward(x)?;
        let OutputGate::PerHead(act) = self.kind else { return ops.sigmoid_gate(&gate, attended) };
        ops.head_gate(&gate, attended, act)
    }
}

/// A query projection that yields a query and a gate for each head in turn, apart.
fn query_and_gate(both: Linear, spec: &Attention) -> mlx::Result<(Linear, Linear)> {
    let dim = spec.head_dim;
    let half = |which: usize| -> mlx::Result<Array> {
        let rows = (0..spec.heads * dim).map(|row| (row / dim * 2 + which) * dim + row % dim);
        let rows: Vec<i32> = rows.map(|row| row as i32).collect();
        Array::from_slice(&rows, &[rows.len() as i32])
    };
    Ok((both.clone().take_rows(&half(0)?)?, both.take_rows(&half(1)?)?))
}
