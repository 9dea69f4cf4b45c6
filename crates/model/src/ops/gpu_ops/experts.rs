//! Products of rows with weights of experts.

use mlx::device::{Backend, backend};
use mlx::gpu::{
    AddChosen, Correction, ExpertFactors, ExpertGroups, FewRowsWeight, MatrixUnit, Route, RouteWeights,
    WeightedSum, expert_product, expert_rows, experts_flow, grouped_product,
};
use mlx::{Array, Dtype, Sorted};

use super::linear::{can_be_unpacked, unpacked};
use crate::mlps::{ExpertChoice, Router};
use crate::ops::{ChosenExperts, ExpertVectors, RowOrder, Weight};
use crate::take_rows::take_rows;

/// On CUDA, from so many rows on, experts are unpacked and the rows sorted by expert. Measured on an H200 with 128 experts
/// of 2,048 x 2,048 in 4 bits: MLX's packed product takes 1.6 us a row, the sorted dense one 2 ms for any number.
const SORT_ROWS: usize = 1536;

/// Pairs of an expert, on average, from which unpacked weights and grouped products by warpgroups are faster than products with packed
/// weights.
const GROUPED_PAIRS: usize = 24;

/// Each row through the experts chosen for it, see [`Ops::expert_linear`](crate::ops::Ops::expert_linear); `None` where
/// MLX's own operation is the best.
pub(super) fn product(x: &Array, experts: &ChosenExperts, weight: &Weight) -> mlx::Result<Option<Array>> {
    if backend() != Backend::Cuda {
        return Ok(None);
    }
    let stored = Stored::of(weight)?;
    let pairs = experts.indices.size();
    let is_grouped = MatrixUnit::of_device() == MatrixUnit::Warpgroup
        && pairs > GROUPED_PAIRS * stored.count as usize
        && !experts_flow(&x.reshape(&[-1, x.dim(-1)?])?, pairs as i32, stored.weight)?;
    if !(is_grouped && stored.can_be_unpacked)
        && let Some(product) = few_pairs(x, experts, &stored)?
    {
        return Ok(Some(product));
    }
    if !stored.can_be_unpacked || (pairs < SORT_ROWS && !is_grouped) {
        return Ok(None);
    }
    let rows = x.reshape(&[-1, x.dim(-1)?])?;
    let [order, starts] = sorted_pairs(experts, stored.count)?;
    if let Some(product) = grouped_product(&rows, [&order, &starts], stored.weight)? {
        return of_tokens(product, experts).map(Some);
    }
    let dense = match weight {
        Weight::Dense(dense) => dense.clone(),
        Weight::Packed(packed) => unpacked(packed, x.dtype()?)?,
    };
    match grouped_product(&rows, [&order, &starts], FewRowsWeight::Dense(&dense))? {
        Some(product) => of_tokens(product, experts).map(Some),
        None => gathered(x, experts, &dense).map(Some),
    }
}

/// Weights of experts.
struct Stored<'a> {
    weight: FewRowsWeight<'a>,
    /// How many experts there are.
    count: i32,
    can_be_unpacked: bool,
}

impl<'a> Stored<'a> {
    fn of(weight: &'a Weight) -> mlx::Result<Self> {
        Ok(match weight {
            Weight::Dense(dense) => {
                Self { weight: FewRowsWeight::Dense(dense), count: dense.dim(0)?, can_be_unpacked: true }
            }
            Weight::Packed(packed) => Self {
                weight: FewRowsWeight::Packed(packed),
                count: packed.weight.dim(0)?,
                can_be_unpacked: can_be_unpacked(packed),
            },
        })
    }
}

/// By our kernel, for steps of decoding rows.
fn few_pairs(x: &Array, experts: &ChosenExperts, stored: &Stored<'_>) -> mlx::Result<Option<Array>> {
    let flat = experts.indices.reshape(&[-1])?;
    let rows = x.reshape(&[-1, x.dim(-1)?])?;
    let sorted = || sorted_pairs(experts, stored.count).map(Some);
    match expert_product(&rows, &flat, stored.weight, sorted)? {
        Some(product) => of_tokens(product, experts).map(Some),
        None => Ok(None),
    }
}

/// Rows of pairs `[pairs, outputs]` as those of tokens, `[tokens, chosen, outputs]`.
fn of_tokens(pairs: Array, experts: &ChosenExperts) -> mlx::Result<Array> {
    let [tokens, chosen] = experts.indices.dims()?;
    pairs.reshape(&[tokens, chosen, pairs.dim(-1)?])
}

/// What [`expert_rows`] gives, made by the first product that needs it.
fn sorted_pairs(experts: &ChosenExperts, count: i32) -> mlx::Result<[Array; 2]> {
    if let Some(sorted) = experts.sorted.get() {
        return Ok(sorted.clone());
    }
    let made = match expert_rows(&experts.indices.reshape(&[-1])?, count)? {
        Some(made) => made,
        None => many_rows(experts, count)?,
    };
    Ok(experts.sorted.get_or_init(|| made).clone())
}

/// What [`expert_rows`] gives, for more pairs than it takes.
fn many_rows(experts: &ChosenExperts, count: i32) -> mlx::Result<[Array; 2]> {
    let RowOrder { order, experts, .. } = experts.row_order()?;
    let first: Vec<u32> = (0..=count as u32).collect();
    let first = Array::from_slice(&first, &[count + 1, 1])?;
    let below = experts.expand_dims(&[0])?.less(&first)?;
    Ok([order.astype(Dtype::I32)?, below.astype(Dtype::I32)?.sum(&[1])?])
}

/// By MLX's operation, with rows in the order of their experts. `weight`: `[experts, out, in]`.
fn gathered(x: &Array, experts: &ChosenExperts, weight: &Array) -> mlx::Result<Array> {
    let [tokens, chosen] = experts.indices.dims()?;
    let (rows, inputs) = (tokens * chosen, x.dim(-1)?);
    let RowOrder { order, experts, tokens_of, back } = experts.row_order()?;
    let x = match x.ndim() {
        2 => take_rows(x, tokens_of)?,
        _ => take_rows(&x.reshape(&[rows, inputs])?, order)?,
    };
    let matrices = weight.swapaxes(-1, -2)?;
    let y = x.expand_dims(&[1])?.gather_mm(&matrices, None, Some(experts), Sorted::Yes)?.squeeze(&[1])?;
    let outputs = y.dim(-1)?;
    take_rows(&y, back)?.reshape(&[tokens, chosen, outputs])
}

/// The best experts of each row by our kernel, see [`Ops::route`](crate::ops::Ops::route).
pub(super) fn route(
    logits: &Array,
    router: &Router,
    ExpertVectors { correction, factors }: ExpertVectors<'_>,
    top_k: usize,
) -> mlx::Result<Option<(ChosenExperts, Array)>> {
    if router.choice != ExpertChoice::Best {
        return Ok(None);
    }
    let groups = router.groups.map_or(ExpertGroups::ONE, |groups| ExpertGroups {
        count: groups.count as i32,
        kept: groups.kept as i32,
        best: groups.best as i32,
    });
    let ([rows, experts], top_k) = (logits.dims()?, top_k as i32);
    let route = Route {
        dtype: logits.dtype()?,
        rows,
        experts,
        top_k,
        scores: router.scores,
        softcap: router.logit_softcap,
        correction: if correction.is_some() { Correction::PerExpert } else { Correction::Absent },
        groups,
        weights: if router.renormalize { RouteWeights::Renormalized } else { RouteWeights::Scores },
        factor: router.scale,
        factors: if factors.is_some() { ExpertFactors::PerExpert } else { ExpertFactors::Absent },
    };
    let Some(plan) = route.plan().filter(|_| rows > 0) else { return Ok(None) };
    let made: Result<[Array; 2], _> =
        plan.call(&[logits, correction.unwrap_or(logits), factors.unwrap_or(logits)])?.try_into();
    let [chosen, weights] = made.map_err(|_| mlx::Error::new("experts and their weights"))?;
    Ok(Some((ChosenExperts::new(chosen), weights)))
}

/// By our kernel, see [`Ops::weighted_sum`](crate::ops::Ops::weighted_sum).
pub(super) fn weighted_sum(parts: &Array, weights: &Array) -> mlx::Result<Option<Array>> {
    let [rows, count, width] = parts.dims()?;
    let plan = WeightedSum { dtype: parts.dtype()?, rows, parts: count, width }.plan();
    let Some(plan) = plan.filter(|_| rows > 0) else { return Ok(None) };
    plan.call(&[parts, weights])?.pop().map(Some).ok_or_else(|| mlx::Error::new("a sum"))
}

/// By our kernel, see [`Ops::add_expert_bias`](crate::ops::Ops::add_expert_bias).
pub(super) fn add_bias(x: &Array, bias: &Array, experts: &ChosenExperts) -> mlx::Result<Option<Array>> {
    let (dtype, [tokens, chosen, width]) = (x.dtype()?, x.dims()?);
    let rows = tokens * chosen;
    let plan = AddChosen { dtype, rows, width }.plan();
    let used = bias.dtype()? == dtype && rows > 0;
    let Some(plan) = plan.filter(|_| used) else { return Ok(None) };
    let made = plan.call(&[&x.reshape(&[rows, width])?, &experts.indices.reshape(&[rows])?, bias])?.pop();
    made.ok_or_else(|| mlx::Error::new("a sum"))?.reshape(x.shape()).map(Some)
}

#[cfg(test)]
mod tests {
    use mlx::Dtype;

    use super::*;
    use crate::ops::Kernels;

    #[test]
    fn sorted_rows_come_back_in_their_order() {
        let normal = |shape: &[i32], seed| {
            mlx::random::normal(shape, Dtype::F32, 1.0, &mlx::random::key(seed).unwrap()).unwrap()
        };
        let weight = normal(&[4, 6, 8], 1);
        let experts = Array::from_slice(&[3u32, 0, 1, 3, 2, 0, 1, 2, 0, 1], &[5, 2]).unwrap();
        for x in [normal(&[5, 8], 2), normal(&[5, 2, 8], 3)] {
            let chosen = ChosenExperts::new(experts.clone());
            let found = gathered(&x, &chosen, &weight).unwrap();
            let expected =
                Kernels::Mlx.ops().expert_linear(&x, &chosen, &Weight::Dense(weight.clone())).unwrap();
            let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {expected:?}");
        }
    }
}
