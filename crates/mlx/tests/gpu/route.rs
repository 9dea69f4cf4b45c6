//! Choice of experts, and the weighted sum of what they computed, in both dialects.

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{Dialect, Plan, Route, RouteWeights, WeightedSum};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};

const ROUTES: [Route; 4] = [
    Route { dtype: Bf16, rows: 5, experts: 128, top_k: 8, weights: RouteWeights::Renormalized },
    Route { dtype: F32, rows: 3, experts: 20, top_k: 2, weights: RouteWeights::Probabilities },
    Route { dtype: F16, rows: 1, experts: 4, top_k: 4, weights: RouteWeights::Renormalized },
    Route { dtype: F32, rows: 9, experts: 300, top_k: 10, weights: RouteWeights::Probabilities },
];

/// Logits of a route, with equal ones among them.
fn logits(route: &Route) -> Tensor {
    Numbers(route.experts as u64).tensor(route.dtype, &[route.rows, route.experts])
}

/// Experts and weights of all rows.
fn expected(route: &Route, logits: &Tensor) -> (Vec<f64>, Vec<f64>) {
    let (mut experts, mut weights) = (Vec::new(), Vec::new());
    for row in logits.to_f64().chunks_exact(route.experts as usize) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        let powers: Vec<f64> = row.iter().map(|logit| logit.exp()).collect();
        let best = &order[..route.top_k as usize];
        let total: f64 = match route.weights {
            RouteWeights::Probabilities => powers.iter().sum(),
            RouteWeights::Renormalized => best.iter().map(|expert| powers[*expert]).sum(),
        };
        experts.extend(best.iter().map(|expert| *expert as f64));
        weights.extend(best.iter().map(|expert| powers[*expert] / total));
    }
    (experts, weights)
}

fn route_program(name: &str, dialect: Dialect, broken: Break) -> Program {
    let plans: Vec<_> =
        ROUTES.iter().map(|route| (route.plan().unwrap(), vec![route.dtype], broken)).collect();
    Program::new(name, dialect, &plans)
}

fn routes(program: &Program, at: usize, seed: i32) -> bool {
    let (route, logits) = (&ROUTES[at], logits(&ROUTES[at]));
    let (experts, weights) = expected(route, &logits);
    let Ok(mut made) = program.run(at, &route.plan().unwrap(), &[logits], seed) else { return false };
    let found = made.pop().unwrap();
    made.pop().unwrap().to_f64() == experts && error(&found.to_f64(), &weights) < tolerance(F32)
}

#[test]
fn the_best_experts_are_chosen() {
    for dialect in [Dialect::Cuda, Dialect::Metal] {
        let program = route_program(&format!("route_{dialect:?}"), dialect, None);
        for (at, route) in ROUTES.iter().enumerate() {
            assert!((1..=2).all(|seed| routes(&program, at, seed)), "{dialect:?}: {route:?}");
        }
    }
}

#[test]
fn logits_that_are_not_numbers_choose_experts_that_exist() {
    let program = route_program("route_nan", Dialect::Cuda, None);
    let route = &ROUTES[0];
    let logits = Tensor::garbage(&[route.rows, route.experts], route.dtype);
    let made = program.run(0, &route.plan().unwrap(), &[logits], 1).unwrap();
    let experts = made[made.len() - 2].to_f64();
    assert!(experts.iter().all(|expert| (0.0..f64::from(route.experts)).contains(expert)), "{experts:?}");
}

const SUMS: [WeightedSum; 2] = [
    WeightedSum { dtype: Bf16, rows: 3, parts: 8, width: 1056 },
    WeightedSum { dtype: F32, rows: 2, parts: 3, width: 64 },
];

fn sum_error(program: &Program, at: usize) -> f64 {
    let WeightedSum { dtype, rows, parts, width } = SUMS[at];
    let mut numbers = Numbers(at as u64);
    let (x, weights) = (numbers.tensor(dtype, &[rows * parts, width]), numbers.tensor(F32, &[rows, parts]));
    let (values, factors) = (x.to_f64(), weights.to_f64());
    let (parts, width) = (parts as usize, width as usize);
    let one = |i: usize| {
        let (row, column) = (i / width, i % width);
        let part = |j: usize| factors[row * parts + j] * values[(row * parts + j) * width + column];
        (0..parts).map(part).sum()
    };
    let expected: Vec<f64> = (0..rows as usize * width).map(one).collect();
    match program.run(at, &SUMS[at].plan().unwrap(), &[x, weights], 1) {
        Ok(mut made) => error(&made.pop().unwrap().to_f64(), &expected) / tolerance(dtype),
        Err(_) => f64::INFINITY,
    }
}

fn sum_program(name: &str, dialect: Dialect, broken: Break) -> Program {
    let types = |sum: &WeightedSum| -> (Plan, Vec<Dtype>, Break) {
        (sum.plan().unwrap(), vec![sum.dtype, F32], broken)
    };
    Program::new(name, dialect, &SUMS.iter().map(types).collect::<Vec<_>>())
}

#[test]
fn parts_are_added_up_by_their_weights() {
    for dialect in [Dialect::Cuda, Dialect::Metal] {
        let program = sum_program(&format!("weighted_sum_{dialect:?}"), dialect, None);
        for at in 0..SUMS.len() {
            let error = sum_error(&program, at);
            assert!(error < 1.0, "{dialect:?}, case {at}: {error}");
        }
    }
}

#[test]
fn broken_routes_and_sums_are_noticed() {
    for (at, old, new) in [(0, "other < at", "other > at"), (2, "RENORM ? chosen : sum", "chosen")] {
        let program = route_program(&format!("route_broken_{at}"), Dialect::Cuda, Some((old, new)));
        let holds = (0..ROUTES.len()).all(|at| (1..=2).all(|seed| routes(&program, at, seed)));
        assert!(!holds, "`{old}` was replaced, and nothing noticed");
    }
    let program = sum_program("weighted_sum_broken", Dialect::Cuda, Some(("row * TOPK + j]", "j]")));
    assert!((0..SUMS.len()).any(|at| sum_error(&program, at) > 1.0), "a wrong weight, and nothing noticed");
}
