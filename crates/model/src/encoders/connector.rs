//! From an encoder's rows to features of the text model's width.

use mlx::Array;

use super::blueprint::{ConnectorStep, MergedElements, PatchOrder};
use super::filling::FillingRow;
use super::grid::{Grid, Layout};
use super::manifest::{GATED, STANDARDIZE};
use super::perceiver::PerceiverBlock;
use super::pooling::AttentionPool;
use crate::Activation;
use crate::blocks::{Fused, Linear, NormBlock};
use crate::ops::Ops;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// The steps with their weights.
pub(super) struct Connector {
    ops: Ops,
    order: PatchOrder,
    steps: Vec<Step>,
}

enum Step {
    Merge(usize, MergedElements),
    Pool(usize),
    JoinRows(usize),
    MeanOfRows(usize),
    FirstOfRows(usize),
    FillUp(FillingRow),
    Norm(NormBlock),
    Linear(Linear),
    Act(Activation),
    GateHalf(Activation),
    Gated(Fused, Activation),
    AttentionPool(Box<AttentionPool>),
    Perceiver(Box<PerceiverBlock>),
    Scale(f32),
    Standardize([Param; 2]),
}

impl Connector {
    /// Over rows as wide as the stream.
    pub(super) fn load(
        steps: &[ConnectorStep],
        order: PatchOrder,
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let hidden = store.hidden();
        Self::load_over(steps, (order, hidden), store, path)
    }

    /// Over rows of this width.
    pub(super) fn load_over(
        steps: &[ConnectorStep],
        (order, mut width): (PatchOrder, usize),
        store: &mut Store,
        path: &str,
    ) -> Result<Self, LoadError> {
        let mut step = |step: &ConnectorStep| {
            Ok(match *step {
                ConnectorStep::Merge { side, elements } => {
                    width *= side * side;
                    Step::Merge(side, elements)
                }
                ConnectorStep::Pool { side } => Step::Pool(side),
                ConnectorStep::JoinRows(rows) => {
                    width *= rows;
                    Step::JoinRows(rows)
                }
                ConnectorStep::MeanOfRows(rows) => Step::MeanOfRows(rows),
                ConnectorStep::FirstOfRows(rows) => Step::FirstOfRows(rows),
                ConnectorStep::FillUp(filling) => {
                    Step::FillUp(FillingRow::load(filling, width, store, path)?)
                }
                ConnectorStep::Act(act) => Step::Act(act),
                ConnectorStep::GateHalf(act) => {
                    width /= 2;
                    Step::GateHalf(act)
                }
                ConnectorStep::AttentionPool { heads, width: to, .. } => {
                    width = to;
                    Step::AttentionPool(Box::new(AttentionPool::load(heads, store, path)?))
                }
                ConnectorStep::Perceiver(perceiver) => {
                    Step::Perceiver(Box::new(PerceiverBlock::load(&perceiver, width, store, path)?))
                }
                ConnectorStep::Scale(factor) => Step::Scale(factor),
                ConnectorStep::Standardize => {
                    let [shift, scale] = STANDARDIZE.map(|name| store.vector(&format!("{path}.{name}")));
                    Step::Standardize([shift?, scale?])
                }
                ConnectorStep::Gated { act, width: to, .. } => {
                    width = to;
                    let linears = GATED.map(|name| store.linear(&format!("{path}.{name}")));
                    Step::Gated(Fused::new(linears.into_iter().collect::<Result<_, _>>()?)?, act)
                }
                ConnectorStep::Norm { name, norm } => {
                    Step::Norm(store.norm(&format!("{path}.{name}"), norm, width)?)
                }
                ConnectorStep::Linear { name, width: to, .. } => {
                    width = to;
                    Step::Linear(store.linear(&format!("{path}.{name}"))?)
                }
            })
        };
        let steps = steps.iter().map(&mut step).collect::<Result<_, LoadError>>()?;
        Ok(Self { ops: store.ops(), order, steps })
    }

    /// `[count · rows · columns, hidden]` → `[features of all views, width]`.
    pub(super) fn forward(&self, rows: &Array, grid: Grid) -> mlx::Result<Array> {
        self.forward_as(rows, grid, &Layout::Views)
    }

    /// `[count · rows · columns, hidden]` → `[features of all views, width]`, where `layout` says which rows a pool
    /// has.
    pub(super) fn forward_as(&self, rows: &Array, mut grid: Grid, layout: &Layout) -> mlx::Result<Array> {
        let mut x = rows.clone();
        for step in &self.steps {
            x = match step {
                Step::Norm(norm) => norm.forward(&x)?,
                Step::Linear(linear) => linear.forward(&x)?,
                Step::Act(act) => self.ops.act(&x, *act)?,
                Step::Gated(linears, act) => self.ops.gated_act(&linears.forward(&x)?, *act)?,
                Step::AttentionPool(pool) => pool.forward(&x, layout)?,
                Step::Perceiver(perceiver) => perceiver.forward(&x, grid.count)?,
                Step::Scale(factor) => x * *factor,
                Step::Standardize([shift, scale]) => (x - shift) * scale,
                Step::GateHalf(act) => match x.split(&[x.dim(-1)? / 2], -1)?.as_slice() {
                    [up, gate] => self.ops.gated_act_pair(gate, up, *act)?,
                    _ => return Err(mlx::Error::new("two halves")),
                },
                Step::Merge(side, elements) => {
                    let squares = squares(&x, (self.order, grid), *side)?;
                    let [count, _, width] = squares.dims()?;
                    let squares = match elements {
                        MergedElements::PatchByPatch => squares,
                        MergedElements::ChannelByChannel => squares.swapaxes(1, 2)?,
                    };
                    squares.reshape(&[count, (side * side) as i32 * width])?
                }
                Step::Pool(side) => squares(&x, (self.order, grid), *side)?.mean(&[1])?,
                Step::JoinRows(count) => joined(&x, *count as i32)?,
                Step::MeanOfRows(count) => means(&x, *count as i32)?,
                Step::FirstOfRows(count) => x.slice_strided(&[0, 0], x.shape(), &[*count as i32, 1])?,
                Step::FillUp(filling) => filling.behind(&x)?,
            };
            if let Step::Merge(side, _) | Step::Pool(side) = step {
                grid = grid.merged(*side);
            }
        }
        Ok(x)
    }
}

/// Squares with so many patches on a side, `[squares, side · side, width]`.
pub(super) fn squares(x: &Array, (order, grid): (PatchOrder, Grid), side: usize) -> mlx::Result<Array> {
    let width = x.dim(-1)?;
    let patches = (side * side) as i32;
    if order == PatchOrder::Squares(side) {
        return x.reshape(&[-1, patches, width]);
    }
    let (merged, of_side) = (grid.merged(side), side as i32);
    let (down, across) = (merged.rows as i32, merged.columns as i32);
    let (rows, columns) = (grid.rows as i32, grid.columns as i32);
    let x = x.reshape(&[grid.count as i32, rows, columns, width])?;
    let (below, behind) = (down * of_side - rows, across * of_side - columns);
    let x = match below + behind {
        0 => x,
        _ => x.pad(&[(0, 0), (0, below), (0, behind), (0, 0)], 0.0)?,
    };
    let parts = x.reshape(&[grid.count as i32, down, of_side, across, of_side, width])?;
    parts.transpose(&[0, 1, 3, 2, 4, 5])?.reshape(&[-1, patches, width])
}

/// So many rows as one row of all their elements, `[rows, width]` → `[⌈rows / count⌉, count · width]`.
fn joined(x: &Array, count: i32) -> mlx::Result<Array> {
    let [rows, width] = x.dims()?;
    let filled = (rows + count - 1) / count * count;
    x.pad(&[(0, filled - rows), (0, 0)], 0.0)?.reshape(&[-1, count * width])
}

/// The mean of each so many rows, `[rows, width]` → `[⌊rows / count⌋, width]`.
fn means(x: &Array, count: i32) -> mlx::Result<Array> {
    let [rows, width] = x.dims()?;
    let whole = rows / count * count;
    x.slice(&[0, 0], &[whole, width])?.reshape(&[-1, count, width])?.mean(&[1])
}
