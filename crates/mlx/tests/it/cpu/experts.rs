//! The choice of experts and the sum of what they compute, against MLX's ops.

use mlx::cpu::{self, Route};
use mlx::{Array, Dtype, Result};
use mlx::{RouteGroups, RouteScores};

use super::{with_each_isa, with_this_isa};

fn random(shape: &[i32], seed: u64) -> Result<Array> {
    let a = mlx::random::normal(shape, Dtype::F32, 1.0, &mlx::random::key(seed)?)?;
    a.eval()?;
    Ok(a)
}

fn plain(logits: &Array) -> Route<'_> {
    Route {
        logits,
        scores: RouteScores::Softmax,
        softcap: None,
        correction: None,
        groups: None,
        chosen: 3,
        renormalize: false,
        scale: 1.0,
    }
}

/// Scores of all experts, and those that choose, by MLX's operations.
fn scores(route: Route) -> Result<[Array; 2]> {
    let logits = match route.softcap {
        Some(cap) => (route.logits / cap).tanh()? * cap,
        None => route.logits.clone(),
    };
    let scores = match route.scores {
        RouteScores::Softmax => logits.softmax(-1)?,
        RouteScores::ChosenSoftmax => logits,
        RouteScores::Sigmoid => logits.sigmoid()?,
        RouteScores::SqrtSoftplus => logits.softplus()?.sqrt()?,
    };
    let choosing = match route.correction {
        Some(correction) => &scores + correction,
        None => scores.clone(),
    };
    Ok([scores, choosing])
}

/// The chosen experts and their weights, by sorting.
fn expected(route: Route) -> Result<Vec<Vec<(u32, f32)>>> {
    let [rows, experts] = route.logits.dims()?;
    let [scores, choosing] = scores(route)?;
    let (scores, mut choosing) = (scores.to_vec::<f32>()?, choosing.to_vec::<f32>()?);
    let descending = |a: &f32, b: &f32| b.total_cmp(a);
    let mut all = Vec::new();
    for row in 0..rows as usize {
        let own = row * experts as usize..(row + 1) * experts as usize;
        let (scores, choosing) = (&scores[own.clone()], &mut choosing[own]);
        if let Some(RouteGroups { count, kept, best }) = route.groups {
            let size = choosing.len() / count;
            let of_group = |group: &[f32]| {
                let mut sorted = group.to_vec();
                sorted.sort_by(descending);
                sorted[..best].iter().sum::<f32>()
            };
            let values: Vec<f32> = choosing.chunks(size).map(of_group).collect();
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|a, b| descending(&values[*a], &values[*b]));
            for dropped in &order[kept..] {
                choosing[dropped * size..(dropped + 1) * size].fill(0.0);
            }
        }
        let mut order: Vec<usize> = (0..choosing.len()).collect();
        order.sort_by(|a, b| descending(&choosing[*a], &choosing[*b]));
        let chosen = &order[..route.chosen as usize];
        let mut weights: Vec<f32> = chosen.iter().map(|expert| scores[*expert]).collect();
        if route.scores == RouteScores::ChosenSoftmax {
            weights = weights.iter().map(|weight| (weight - weights[0]).exp()).collect();
        }
        if route.renormalize || route.scores == RouteScores::ChosenSoftmax {
            let sum: f32 = weights.iter().sum();
            weights = weights.iter().map(|weight| weight / sum).collect();
        }
        let weights = weights.iter().map(|weight| weight * route.scale);
        all.push(chosen.iter().map(|expert| *expert as u32).zip(weights).collect());
    }
    Ok(all)
}

#[track_caller]
fn check(what: &str, route: Route) -> Result<()> {
    let want = expected(route)?;
    let [indices, weights] = route.run()?;
    let (indices, weights) = (indices.to_vec::<u32>()?, weights.to_vec::<f32>()?);
    let found: Vec<(u32, f32)> = indices.into_iter().zip(weights).collect();
    for (row, (found, want)) in found.chunks(route.chosen as usize).zip(&want).enumerate() {
        let near = |((a, x), (b, y)): (&(u32, f32), &(u32, f32))| a == b && (x - y).abs() < 1e-5;
        assert!(found.iter().zip(want).all(near), "{what}, row {row}: {found:?}, not {want:?}");
    }
    Ok(())
}

#[test]
fn chosen_experts_are_the_best_by_their_scores() -> Result<()> {
    let _isa = with_this_isa();
    for rows in [1, 5, 40] {
        let (logits, correction) = (random(&[rows, 24], 3)?, random(&[24], 4)?);
        let correction = Some(&correction);
        let route = plain(&logits);
        check("softmax", route)?;
        check("renormalized", Route { renormalize: true, scale: 2.5, ..route })?;
        check("chosen softmax", Route { scores: RouteScores::ChosenSoftmax, softcap: Some(1.5), ..route })?;
        check("all experts", Route { chosen: 24, ..route })?;
        for best in [1, 2] {
            let groups = Some(RouteGroups { count: 4, kept: 2, best });
            let scores = RouteScores::Sigmoid;
            check("groups", Route { scores, correction, groups, renormalize: true, ..route })?;
        }
        check("square roots", Route { scores: RouteScores::SqrtSoftplus, correction, ..route })?;
    }
    Ok(())
}

#[test]
fn logits_that_are_no_numbers_choose_experts_that_exist() -> Result<()> {
    let _isa = with_this_isa();
    let logits = Array::full(&[2, 5], f32::NAN, Dtype::F32)?;
    let [indices, _] = plain(&logits).run()?;
    assert_eq!(indices.to_vec::<u32>()?, [0, 1, 2, 0, 1, 2]);
    Ok(())
}

#[test]
fn impossible_choices_are_refused() -> Result<()> {
    let _isa = with_this_isa();
    let logits = random(&[2, 6], 1)?;
    let refused = |route: Route| route.run().unwrap_err().to_string();
    assert!(refused(Route { chosen: 7, ..plain(&logits) }).contains("from one expert to all"));
    let groups = Some(RouteGroups { count: 4, kept: 1, best: 1 });
    assert!(refused(Route { groups, ..plain(&logits) }).contains("groups divide the experts"));
    Ok(())
}

#[test]
fn weighted_sums_agree_with_mlx_and_rows_are_independent() -> Result<()> {
    with_each_isa(|isa| {
        for (rows, chosen, width) in [(1, 4, 64), (7, 3, 37), (90, 8, 512)] {
            let (parts, weights) = (random(&[rows, chosen, width], 1)?, random(&[rows, chosen], 2)?);
            let found = cpu::weighted_sum(&parts, &weights)?;
            let want = (&parts * weights.expand_dims(&[-1])?).sum(&[1])?;
            let apart = (&found - want).abs()?.reshape(&[-1])?.max(&[0])?.to_vec::<f32>()?;
            assert!(apart[0] < 1e-5, "{isa:?}: {apart:?}");
            let last = cpu::weighted_sum(
                &parts.slice(&[rows - 1, 0, 0], &[rows, chosen, width])?,
                &weights.slice(&[rows - 1, 0], &[rows, chosen])?,
            )?;
            let of_all = found.slice(&[rows - 1, 0], &[rows, width])?;
            assert_eq!(last.to_vec::<f32>()?, of_all.contiguous()?.to_vec::<f32>()?, "{isa:?}");
        }
        Ok(())
    })
}
