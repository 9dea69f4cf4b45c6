//! The choice of experts in MLX's operations.

use mlx::{Array, Dtype};

use crate::mlps::{ExpertChoice, Router};
use crate::ops::ChosenExperts;
use crate::{RouteGroups, RouteScores};

/// See [`Ops::route`](crate::ops::Ops::route).
pub(in crate::ops) fn route(
    logits: &Array,
    router: &Router,
    correction: Option<&Array>,
    top_k: usize,
) -> mlx::Result<(ChosenExperts, Array)> {
    let logits = logits.astype(Dtype::F32)?;
    let logits = match router.logit_softcap {
        Some(cap) => (logits / cap).tanh()? * cap,
        None => logits,
    };
    if let ExpertChoice::SparseMixer(jitter) = router.choice {
        return sparse_mixer(&logits, jitter, top_k);
    }
    let scores = match router.scores {
        RouteScores::Softmax => logits.softmax(-1)?,
        RouteScores::ChosenSoftmax => logits,
        RouteScores::Sigmoid => logits.sigmoid()?,
        RouteScores::SqrtSoftplus => logits.softplus()?.sqrt()?,
    };
    let choosing = match correction {
        Some(correction) => &scores + correction,
        None => scores.clone(),
    };
    let choosing = match router.groups {
        Some(groups) => of_best_groups(&choosing, groups)?,
        None => choosing,
    };
    let chosen = best(&choosing, top_k)?;
    let weights = scores.take_along_axis(&chosen, -1)?;
    let weights = match router.scores {
        RouteScores::ChosenSoftmax => weights.softmax(-1)?,
        _ => weights,
    };
    let weights =
        if router.renormalize { &weights / weights.sum(&[-1])?.expand_dims(&[-1])? } else { weights };
    let weights = if router.scale == 1.0 { weights } else { weights * router.scale };
    Ok((ChosenExperts::new(chosen), weights))
}

/// The indices of the largest `count` scores of each row, in no order: `[T, n]` → `[T, count]` u32.
fn best(scores: &Array, count: usize) -> mlx::Result<Array> {
    let [rows, experts] = scores.dims()?;
    let kth = experts - count as i32;
    scores.argpartition(kth, -1)?.slice(&[0, kth], &[rows, experts])?.astype(Dtype::U32)
}

/// The scores `[T, experts]`, zero in all but the best groups.
fn of_best_groups(scores: &Array, groups: RouteGroups) -> mlx::Result<Array> {
    let [rows, experts] = scores.dims()?;
    let RouteGroups { count, kept, best } = groups;
    if kept >= count {
        return Ok(scores.clone());
    }
    let count = count as i32;
    let grouped = scores.reshape(&[rows, count, experts / count])?;
    let of_group = grouped.topk(best as i32, -1)?.sum(&[-1])?;
    let dropped = count - kept as i32;
    let worst = of_group.argpartition(dropped - 1, -1)?.slice(&[0, 0], &[rows, dropped])?;
    let zeros = Array::zeros(&[rows, dropped, experts / count], Dtype::F32)?;
    let worst = worst.expand_dims(&[-1])?.broadcast_to(&[rows, dropped, experts / count])?;
    grouped.put_along_axis(&worst, &zeros, 1)?.reshape(&[rows, experts])
}

/// One expert after the other. Source: arXiv 2409.12136 §2.2.
fn sparse_mixer(logits: &Array, jitter: f32, top_k: usize) -> mlx::Result<(ChosenExperts, Array)> {
    let never = Array::scalar(f32::NEG_INFINITY, Dtype::F32)?;
    let (mut left, mut chosen, mut weights) = (logits.clone(), Vec::new(), Vec::new());
    for _ in 0..top_k {
        let top = left.max(&[-1])?.expand_dims(&[-1])?;
        let index = left.argmax(-1)?.expand_dims(&[-1])?;
        let scale = logits.abs()?.maximum(&top)?;
        let is_far = ((&top - logits) / scale).greater(&Array::scalar(2.0 * jitter, Dtype::F32)?)?;
        let near = mlx::where_(&is_far, &never, &left)?.softmax(-1)?;
        weights.push(near.take_along_axis(&index, -1)?);
        left = left.put_along_axis(&index, &never.broadcast_to(index.shape())?, -1)?;
        chosen.push(index);
    }
    let joined = |parts: &[Array]| mlx::concatenate(&parts.iter().collect::<Vec<_>>(), -1);
    Ok((ChosenExperts::new(joined(&chosen)?.astype(Dtype::U32)?), joined(&weights)?))
}
