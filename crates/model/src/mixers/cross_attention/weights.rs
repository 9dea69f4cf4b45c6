//! The weights of one head.

use mlx::{Array, Dtype};

use crate::ops::{Ops, Weight};

/// What `head` attends to among the first `count` keys, `[rows, count]` f32. Queries `[rows, heads, head_dim]`, keys
/// `[1, kv_heads, n, head_dim]`.
pub(super) fn of_head(
    ops: &Ops,
    [queries, keys]: [&Array; 2],
    head: usize,
    count: usize,
) -> mlx::Result<Array> {
    let ([rows, heads, width], [_, groups, most, _]) = (queries.dims()?, keys.dims()?);
    let (head, count) = (head as i32, count as i32);
    if head >= heads || !(1..=most).contains(&count) {
        return Err(mlx::Error::new("a head, and keys within those that rows attend to"));
    }
    let group = head / (heads / groups.max(1)).max(1);
    let queries = queries.slice(&[0, head, 0], &[rows, head + 1, width])?;
    let queries = queries.reshape(&[rows, width])?.astype(Dtype::F32)?.contiguous()?;
    let keys = keys.slice(&[0, group, 0, 0], &[1, group + 1, count, width])?;
    let keys = Weight::Dense(keys.reshape(&[count, width])?.astype(Dtype::F32)?.contiguous()?);
    let scores = ops.linear(&queries, &keys)? * (width as f32).powf(-0.5);
    scores.softmax(-1)
}
