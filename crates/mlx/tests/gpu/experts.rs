//! Products with the weights of the experts that were chosen for each row.

use mlx::Dtype::{self, Bf16, F16, I32, U32};
use mlx::gpu::{Dialect, ExpertProduct, MatrixUnit, Plan, WeightFormat, expert_rows_plan};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};
use crate::linear::stored;

struct Case {
    product: ExpertProduct,
    x: Tensor,
    weights: Vec<Tensor>,
    chosen: Vec<usize>,
    expected: Vec<f64>,
}

/// `tokens` rows with `chosen` different experts each. With `shared`, these read one row of `x`.
fn case(
    (dtype, format): (Dtype, WeightFormat),
    [tokens, chosen, experts]: [usize; 3],
    shared: bool,
    [inputs, outputs]: [i32; 2],
) -> Case {
    let mut numbers = Numbers((tokens * 31 + chosen * 7 + experts) as u64);
    let rows = if shared { tokens } else { tokens * chosen };
    let x = numbers.tensor(dtype, &[rows as i32, inputs]);
    let all = experts as i32 * outputs;
    let (mut weights, dense) = stored(&mut numbers, dtype, format, [inputs, all]);
    weights[0].shape = vec![experts as i32, outputs, weights[0].shape[1]];
    let mut pairs = Vec::new();
    for _ in 0..tokens {
        let mut of_row: Vec<usize> = (0..experts).collect();
        for at in 0..chosen {
            of_row.swap(at, at + numbers.below(experts - at));
        }
        pairs.extend(&of_row[..chosen]);
    }
    let (x_values, columns) = (x.to_f64(), inputs as usize);
    let mut expected = Vec::new();
    for (pair, expert) in pairs.iter().enumerate() {
        let row = &x_values[if shared { pair / chosen } else { pair } * columns..][..columns];
        for output in 0..outputs as usize {
            let w = &dense[(expert * outputs as usize + output) * columns..][..columns];
            expected.push(row.iter().zip(w).map(|(x, w)| x * w).sum());
        }
    }
    let product = ExpertProduct {
        dtype,
        format,
        unit: MatrixUnit::SimdGroup,
        pairs: pairs.len() as i32,
        pairs_per_row: if shared { chosen as i32 } else { 1 },
        experts: experts as i32,
        inputs,
        outputs,
    };
    Case { product, x, weights, chosen: pairs, expected }
}

/// A case of a GPU whose groups have much shared memory.
fn flowing(mut case: Case) -> Case {
    case.product.unit = MatrixUnit::Warpgroup;
    case
}

fn cases() -> Vec<Case> {
    vec![
        case((Bf16, WeightFormat::Eight { group: 64 }), [1, 4, 6], true, [768, 48]),
        case((Bf16, WeightFormat::Four { group: 64 }), [1, 4, 6], true, [768, 48]),
        case((Bf16, WeightFormat::Four { group: 64 }), [3, 2, 5], false, [768, 32]),
        case((Bf16, WeightFormat::Four { group: 64 }), [9, 2, 40], true, [768, 32]),
        case((Bf16, WeightFormat::Four { group: 64 }), [37, 3, 4], false, [512, 32]),
        case((Bf16, WeightFormat::Four { group: 64 }), [1, 4, 6], true, [704, 48]),
        case((Bf16, WeightFormat::Four { group: 64 }), [9, 2, 40], false, [1408, 32]),
        case((Bf16, WeightFormat::Eight { group: 64 }), [9, 2, 4], false, [704, 32]),
        case((Bf16, WeightFormat::Dense), [5, 3, 7], true, [768, 32]),
        case((Bf16, WeightFormat::MxFp4), [1, 4, 6], true, [704, 48]),
        case((Bf16, WeightFormat::MxFp4), [9, 2, 4], false, [704, 32]),
        case((Bf16, WeightFormat::Four { group: 32 }), [3, 2, 5], false, [768, 32]),
        case((Bf16, WeightFormat::Dense), [2, 3, 4], false, [768, 16]),
        case((F16, WeightFormat::Four { group: 64 }), [1, 4, 6], true, [704, 48]),
        case((F16, WeightFormat::MxFp4), [9, 2, 4], false, [704, 32]),
        case((Bf16, WeightFormat::Four { group: 64 }), [550, 2, 128], false, [256, 16]),
        flowing(case((Bf16, WeightFormat::Four { group: 64 }), [9, 2, 40], true, [768, 160])),
        flowing(case((Bf16, WeightFormat::Four { group: 128 }), [37, 3, 4], false, [512, 64])),
        flowing(case((F16, WeightFormat::Four { group: 64 }), [30, 2, 3], true, [256, 32])),
        flowing(case((Bf16, WeightFormat::Four { group: 64 }), [70, 2, 3], true, [256, 2112])),
        flowing(case((Bf16, WeightFormat::Four { group: 64 }), [70, 4, 300], true, [256, 64])),
        flowing(case((Bf16, WeightFormat::Four { group: 64 }), [9, 2, 4], false, [384, 96])),
        flowing(case((F16, WeightFormat::Four { group: 64 }), [40, 3, 5], true, [1408, 32])),
    ]
}

fn experts_of(case: &Case) -> Tensor {
    let ints: Vec<i32> = case.chosen.iter().map(|expert| *expert as i32).collect();
    Tensor { dtype: U32, ..Tensor::ints(&ints) }
}

fn order_plan(case: &Case) -> Plan {
    expert_rows_plan(case.product.pairs, case.product.experts, Dialect::Cuda).unwrap()
}

/// The order and the starts that the kernel must find.
fn order_of(case: &Case) -> (Vec<f64>, Vec<f64>) {
    let mut order: Vec<usize> = (0..case.chosen.len()).collect();
    order.sort_by_key(|pair| case.chosen[*pair]);
    let before = |expert: usize| case.chosen.iter().filter(|other| **other < expert).count() as f64;
    (
        order.iter().map(|pair| *pair as f64).collect(),
        (0..=case.product.experts as usize).map(before).collect(),
    )
}

fn order_program(name: &str, cases: &[Case], broken: Break) -> Program {
    let plans: Vec<_> = cases.iter().map(|case| (order_plan(case), vec![U32], broken)).collect();
    Program::new(name, Dialect::Cuda, &plans)
}

/// Whether a program sorts a case's pairs.
fn sorts(program: &Program, at: usize, case: &Case, seed: i32) -> bool {
    let Ok(mut made) = program.run(at, &order_plan(case), &[experts_of(case)], seed) else { return false };
    let (starts, order) = (made.pop().unwrap().to_f64(), made.pop().unwrap().to_f64());
    let expected = order_of(case);
    (order, starts[..expected.1.len()].to_vec()) == expected
}

/// The error of a case's product, relative to what rounding may cost; infinite if the emulator refuses.
fn product_error(program: &Program, at: usize, case: &Case, seed: i32) -> f64 {
    let pairs = match case.product.sorts() {
        false => vec![experts_of(case)],
        true => {
            let (order, starts) = order_of(case);
            let ints = |values: Vec<f64>| values.iter().map(|value| *value as i32).collect::<Vec<_>>();
            vec![Tensor::ints(&ints(order)), Tensor::ints(&ints(starts))]
        }
    };
    let inputs = [vec![case.x.clone()], case.weights.clone(), pairs].concat();
    let plan = case.product.plan(Dialect::Cuda).unwrap();
    match program.run(at, &plan, &inputs, seed) {
        Ok(mut made) => error(&made.pop().unwrap().to_f64(), &case.expected) / tolerance(case.product.dtype),
        Err(_) => f64::INFINITY,
    }
}

fn product_program(name: &str, cases: &[Case], broken: Break) -> Program {
    let plan = |case: &Case| {
        let inputs = std::iter::once(&case.x).chain(&case.weights);
        let mut types: Vec<_> = inputs.map(|input| input.dtype).collect();
        types.extend(if case.product.sorts() { vec![I32, I32] } else { vec![U32] });
        (case.product.plan(Dialect::Cuda).unwrap(), types, broken)
    };
    Program::new(name, Dialect::Cuda, &cases.iter().map(plan).collect::<Vec<_>>())
}

fn cases_of(kernel: &str) -> Vec<Case> {
    let of = |case: &Case| case.product.plan(Dialect::Cuda).unwrap().kernel.name == kernel;
    cases().into_iter().filter(of).collect()
}

/// More pairs than are sorted at a time, too.
fn sorted_cases() -> Vec<Case> {
    let many = case((Bf16, WeightFormat::Dense), [1100, 4, 70], true, [64, 16]);
    let more = case((Bf16, WeightFormat::Dense), [600, 2, 300], true, [64, 16]);
    cases().into_iter().chain([many, more]).collect()
}

#[test]
fn pairs_are_sorted_by_expert() {
    let cases = sorted_cases();
    let program = order_program("expert_rows", &cases, None);
    for (at, case) in cases.iter().enumerate() {
        assert!((1..=2).all(|seed| sorts(&program, at, case, seed)), "case {at}");
    }
}

#[test]
fn products_with_experts_equal_their_reference() {
    for kernel in ["wmm_expert", "wmm_experts", "wmm_expert_flow"] {
        let cases = cases_of(kernel);
        assert!(cases.len() > 1, "{kernel}");
        let program = product_program(kernel, &cases, None);
        for (at, case) in cases.iter().enumerate() {
            for seed in [1, 2] {
                let error = product_error(&program, at, case, seed);
                assert!(error < 1.0, "{kernel}, case {at}: {error}");
            }
        }
    }
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_orders_are_noticed() {
    let cases = sorted_cases();
    let breaks = [
        ("GK_BARRIER();\nint sum", "int sum"),
        ("start += sum;", ""),
        ("if (first == 0 && GK_TID < E)", "if (GK_TID < E)"),
        ("counts[GK_TID] = 0;", ""),
    ];
    for (at, broken) in breaks.into_iter().enumerate() {
        let program = order_program(&format!("expert_rows_broken_{at}"), &cases, Some(broken));
        let sorted = |seed| cases.iter().enumerate().all(|(at, case)| sorts(&program, at, case, seed));
        assert!(!(1..=16).all(sorted), "`{}` was replaced, and nothing noticed", broken.0);
    }
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_kernels_of_experts_are_noticed() {
    let breaks = [
        ("wmm_expert", "experts[pair] * N", "experts[0] * N"),
        ("wmm_experts", "M = end - first < 8 * MT ? end - first : 8 * MT;", "M = 8 * MT;"),
        ("wmm_experts", "order[first + m] / CHOSEN", "order[first + m]"),
        ("wmm_expert_flow", "order[segment.first + m] / CHOSEN", "order[segment.first + m]"),
        ("wmm_expert_flow", "gk_wait<ST - 2>();", ""),
        ("wmm_expert_flow", "GK_BARRIER();\n  int slot", "int slot"),
        ("wmm_expert_flow", "int before = base", "int before = 0"),
        ("wmm_expert_flow", "(segment - before) * 8 * COLUMNS", "0"),
        ("wmm_expert_flow", "slot += (now.pairs + 7) / 8;", ""),
        ("wmm_expert_flow", "i * 64 / GROUP * 2", "i * 2"),
        ("wmm_expert_flow", "Codes::TIMES * scale", "scale"),
        ("wmm_expert_flow", "(row & 3) * 2", "(row & 1) * 2"),
        ("wmm_expert_flow", "if (!WHOLE && u * 4 + i >= PIECES) break;", ""),
        ("wmm_expert_flow", "b += EACH", "b += NUMBERS"),
    ];
    for (at, (kernel, old, new)) in breaks.into_iter().enumerate() {
        let cases = cases_of(kernel);
        let program = product_program(&format!("{kernel}_broken_{at}"), &cases, Some((old, new)));
        let noticed = (1..=4).any(|seed| {
            cases.iter().enumerate().any(|(at, case)| product_error(&program, at, case, seed) > 1.0)
        });
        assert!(noticed, "{kernel}: `{old}` was replaced, and nothing noticed");
    }
}
