//! Choice of experts, and the weighted sum of what they computed, in both dialects.

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::RouteScores;
use mlx::gpu::{Correction, Dialect, ExpertFactors, ExpertGroups, Plan, Route, RouteWeights, WeightedSum};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};

const PLAIN: Route = Route {
    dtype: F32,
    rows: 1,
    experts: 4,
    top_k: 2,
    scores: RouteScores::Softmax,
    softcap: None,
    correction: Correction::Absent,
    groups: ExpertGroups::ONE,
    weights: RouteWeights::Scores,
    factor: 1.0,
    factors: ExpertFactors::Absent,
};
const RENORMALIZED: Route = Route { weights: RouteWeights::Renormalized, ..PLAIN };
const CORRECTED: Route =
    Route { correction: Correction::PerExpert, scores: RouteScores::Sigmoid, ..RENORMALIZED };

const ROUTES: [Route; 10] = [
    Route { dtype: Bf16, rows: 5, experts: 128, top_k: 8, ..RENORMALIZED },
    Route { rows: 3, experts: 20, ..PLAIN },
    Route { dtype: F16, top_k: 4, ..RENORMALIZED },
    Route { rows: 9, experts: 300, top_k: 10, softcap: Some(2.0), ..PLAIN },
    Route { rows: 6, experts: 256, top_k: 8, factor: 2.5, groups: groups(8, 4, 2), ..CORRECTED },
    Route { rows: 5, experts: 160, top_k: 6, factor: 16.0, groups: groups(8, 3, 1), ..PLAIN },
    Route { dtype: Bf16, rows: 3, experts: 64, top_k: 6, ..CORRECTED },
    Route { rows: 3, experts: 40, top_k: 4, scores: RouteScores::SqrtSoftplus, ..CORRECTED },
    Route { rows: 2, experts: 32, top_k: 4, scores: RouteScores::ChosenSoftmax, ..PLAIN },
    Route {
        dtype: Bf16,
        rows: 5,
        experts: 128,
        top_k: 8,
        scores: RouteScores::ChosenSoftmax,
        factors: ExpertFactors::PerExpert,
        ..PLAIN
    },
];

const fn groups(count: i32, kept: i32, best: i32) -> ExpertGroups {
    ExpertGroups { count, kept, best }
}

/// Logits of a route, with equal ones among them, corrections and factors.
fn inputs(route: &Route) -> Vec<Tensor> {
    let mut numbers = Numbers(route.experts as u64);
    vec![
        numbers.tensor(route.dtype, &[route.rows, route.experts]),
        numbers.tensor(F32, &[route.experts]),
        numbers.tensor(Bf16, &[route.experts]),
    ]
}

/// Experts and weights of all rows.
fn expected(route: &Route, inputs: &[Tensor]) -> (Vec<f64>, Vec<f64>) {
    let (mut experts, mut weights) = (Vec::new(), Vec::new());
    let (corrections, factors) = (inputs[1].to_f64(), inputs[2].to_f64());
    for row in inputs[0].to_f64().chunks_exact(route.experts as usize) {
        let capped = |logit: &f64| match route.softcap.map(f64::from) {
            Some(cap) => cap * (logit / cap).tanh(),
            None => *logit,
        };
        let row: Vec<f64> = row.iter().map(capped).collect();
        let total: f64 = row.iter().map(|logit| logit.exp()).sum();
        let score = |logit: &f64| match route.scores {
            RouteScores::Softmax => logit.exp() / total,
            RouteScores::ChosenSoftmax => *logit,
            RouteScores::Sigmoid => 1.0 / (1.0 + (-logit).exp()),
            RouteScores::SqrtSoftplus => (1.0 + logit.exp()).ln().sqrt(),
        };
        let scores: Vec<f64> = row.iter().map(score).collect();
        let mut choosing = scores.clone();
        if route.correction == Correction::PerExpert {
            choosing.iter_mut().zip(&corrections).for_each(|(score, correction)| *score += correction);
        }
        let ExpertGroups { count, kept, best } = route.groups;
        let of_group = |group: &[f64]| {
            let mut sorted = group.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted[..best as usize].iter().sum::<f64>()
        };
        let size = route.experts as usize / count as usize;
        let sums: Vec<f64> = choosing.chunks_exact(size).map(of_group).collect();
        let mut ranked: Vec<usize> = (0..sums.len()).collect();
        ranked.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]));
        for group in &ranked[kept as usize..] {
            choosing[group * size..][..size].fill(0.0);
        }
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|a, b| choosing[*b].total_cmp(&choosing[*a]));
        let best = &order[..route.top_k as usize];
        let weight = |expert: &usize| match route.scores {
            RouteScores::ChosenSoftmax => scores[*expert].exp(),
            _ => scores[*expert],
        };
        let whole: f64 = match (route.weights, route.scores) {
            (RouteWeights::Renormalized, _) | (_, RouteScores::ChosenSoftmax) => {
                best.iter().map(weight).sum()
            }
            (RouteWeights::Scores, _) => 1.0,
        };
        experts.extend(best.iter().map(|expert| *expert as f64));
        let factor = |expert: usize| match route.factors {
            ExpertFactors::Absent => f64::from(route.factor),
            ExpertFactors::PerExpert => f64::from(route.factor) * factors[expert],
        };
        weights.extend(best.iter().map(|expert| weight(expert) / whole * factor(*expert)));
    }
    (experts, weights)
}

fn types(route: &Route) -> Vec<Dtype> {
    vec![route.dtype, F32, Bf16]
}

fn route_program(name: &str, dialect: Dialect, broken: Break) -> Program {
    let plans: Vec<_> = ROUTES.iter().map(|route| (route.plan().unwrap(), types(route), broken)).collect();
    Program::new(name, dialect, &plans)
}

fn routes(program: &Program, at: usize, seed: i32) -> bool {
    let (route, inputs) = (&ROUTES[at], inputs(&ROUTES[at]));
    let (experts, weights) = expected(route, &inputs);
    let Ok(mut made) = program.run(at, &route.plan().unwrap(), &inputs, seed) else { return false };
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
    let made = program
        .run(0, &route.plan().unwrap(), &[vec![logits], inputs(route).split_off(1)].concat(), 1)
        .unwrap();
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
    let breaks = [
        ("other < at", "other > at"),
        ("RENORM || SCORES == 1 ? chosen : SCORES == 0 ? sum : 1", "chosen"),
        ("&& !takes_part", "&& false"),
        ("v[i] += gk_f(correction[e])", "s[i] += gk_f(correction[e])"),
        ("x = less; }", "break; }"),
        ("gk_f(factors[expert])", "gk_f(factors[lane])"),
    ];
    for (at, (old, new)) in breaks.into_iter().enumerate() {
        let program = route_program(&format!("route_broken_{at}"), Dialect::Cuda, Some((old, new)));
        let holds = (0..ROUTES.len()).all(|at| (1..=2).all(|seed| routes(&program, at, seed)));
        assert!(!holds, "`{old}` was replaced, and nothing noticed");
    }
    let program = sum_program("weighted_sum_broken", Dialect::Cuda, Some(("row * TOPK + j]", "j]")));
    assert!((0..SUMS.len()).any(|at| sum_error(&program, at) > 1.0), "a wrong weight, and nothing noticed");
}
