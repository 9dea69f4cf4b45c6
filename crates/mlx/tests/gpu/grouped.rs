//! Products of many rows with the weights of the experts that were chosen for each.

use mlx::Dtype::{self, Bf16, F16};
use mlx::gpu::{Dialect, GroupedProduct, MatrixUnit, Plan};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    expected: Vec<f64>,
    dtype: Dtype,
}

/// `counts`: pairs of each expert; `chosen` of them share a row.
fn case(dtype: Dtype, counts: &[usize], chosen: usize, [inputs, outputs]: [i32; 2]) -> Case {
    let mut numbers = Numbers((counts.len() * 31 + chosen) as u64);
    let (pairs, experts) = (counts.iter().sum::<usize>(), counts.len());
    let x = numbers.tensor(dtype, &[(pairs / chosen) as i32, inputs]);
    let w = numbers.tensor(dtype, &[experts as i32, outputs, inputs]);
    let mut order: Vec<usize> = (0..pairs).collect();
    for at in 0..pairs {
        order.swap(at, at + numbers.below(pairs - at));
    }
    let starts: Vec<i32> =
        (0..=experts).map(|expert| counts[..expert].iter().sum::<usize>() as i32).collect();
    let (x_values, w_values, columns) = (x.to_f64(), w.to_f64(), inputs as usize);
    let mut expected = vec![0.0; pairs * outputs as usize];
    for expert in 0..experts {
        for at in starts[expert]..starts[expert + 1] {
            let pair = order[at as usize];
            let row = &x_values[pair / chosen * columns..][..columns];
            for output in 0..outputs as usize {
                let weights = &w_values[(expert * outputs as usize + output) * columns..][..columns];
                expected[pair * outputs as usize + output] =
                    row.iter().zip(weights).map(|(x, w)| x * w).sum();
            }
        }
    }
    let product = GroupedProduct {
        dtype,
        pairs: pairs as i32,
        pairs_per_row: chosen as i32,
        experts: experts as i32,
        inputs,
        outputs,
    };
    let plan = product.plan(Dialect::Cuda, MatrixUnit::Warpgroup).unwrap();
    let order: Vec<i32> = order.into_iter().map(|pair| pair as i32).collect();
    Case { plan, inputs: vec![x, w, Tensor::ints(&order), Tensor::ints(&starts)], expected, dtype }
}

fn cases() -> Vec<Case> {
    vec![
        case(Bf16, &[3, 0, 140, 1], 1, [192, 256]),
        case(Bf16, &[20, 12], 2, [576, 133]),
        case(F16, &[0, 37, 129], 1, [128, 70]),
        // More tiles than groups.
        case(Bf16, &[1; 90], 1, [64, 700]),
    ]
}

/// The largest error of each case, as a share of what is tolerated.
fn errors(name: &str, broken: Break, seed: i32) -> Vec<f64> {
    let cases = cases();
    let types = |case: &Case| case.inputs.iter().map(|input| input.dtype).collect::<Vec<_>>();
    let plans: Vec<_> = cases.iter().map(|case| (case.plan.clone(), types(case), broken)).collect();
    let program = Program::new(name, Dialect::Cuda, &plans);
    let of = |(at, case): (usize, &Case)| {
        let Ok(mut arrays) = program.run(at, &case.plan, &case.inputs, seed) else { return f64::INFINITY };
        error(&arrays.pop().unwrap().to_f64(), &case.expected) / tolerance(case.dtype)
    };
    cases.iter().enumerate().map(of).collect()
}

#[test]
fn grouped_products_equal_their_reference() {
    for seed in [1, 2] {
        let errors = errors("wmm_grouped", None, seed);
        assert!(errors.iter().all(|error| *error < 1.0), "{errors:?}");
    }
}

#[test]
fn broken_grouped_products_are_noticed() {
    let breaks = [
        ("order[p] / CHOSEN", "order[p]"),
        ("(gk_long)order[p] * N", "(gk_long)p * N"),
        ("begin + at % parts * pairs", "begin"),
        ("begin = end;", ""),
        ("g & 1 ? low : high, 4", "g & 1 ? low : high, 8"),
        ("if (!EVEN && n + 1 < N)", "if (!EVEN)"),
        ("(gk_long)expert * N * K", "0"),
        ("gk_wait<LAG>();", ""),
        ("gk_join<ALL>(free(step));", ""),
        ("gk_warpgroup_wait<1>();", ""),
    ];
    for (at, (old, new)) in breaks.into_iter().enumerate() {
        let noticed =
            |seed| errors(&format!("wmm_grouped_{at}"), Some((old, new)), seed).iter().any(|e| *e > 1.0);
        assert!((1..=4).chain(101..=104).any(noticed), "`{old}` was replaced, and nothing noticed");
    }
}
