//! Products of many rows with the weights of the experts that were chosen for each.

use mlx::Dtype::{self, Bf16, F16};
use mlx::gpu::{Dialect, GroupedProduct, MatrixUnit, Plan, WeightFormat, lane_order_plan};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};
use crate::linear::stored;

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    expected: Vec<f64>,
    dtype: Dtype,
}

/// `counts`: pairs of each expert; `chosen` of them share a row.
fn case(
    (dtype, format): (Dtype, WeightFormat),
    counts: &[usize],
    chosen: usize,
    [inputs, outputs]: [i32; 2],
) -> Case {
    let mut numbers = Numbers((counts.len() * 31 + chosen) as u64);
    let (pairs, experts) = (counts.iter().sum::<usize>(), counts.len());
    let x = numbers.tensor(dtype, &[(pairs / chosen) as i32, inputs]);
    let (mut weights, w_values) = stored(&mut numbers, dtype, format, [inputs, experts as i32 * outputs]);
    weights[0].shape = vec![experts as i32, outputs, weights[0].shape[1]];
    let mut order: Vec<usize> = (0..pairs).collect();
    for at in 0..pairs {
        order.swap(at, at + numbers.below(pairs - at));
    }
    let starts: Vec<i32> =
        (0..=experts).map(|expert| counts[..expert].iter().sum::<usize>() as i32).collect();
    let (x_values, columns) = (x.to_f64(), inputs as usize);
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
        format,
        pairs: pairs as i32,
        pairs_per_row: chosen as i32,
        experts: experts as i32,
        inputs,
        outputs,
    };
    let plan = product.plan(Dialect::Cuda, MatrixUnit::Warpgroup).unwrap();
    let order: Vec<i32> = order.into_iter().map(|pair| pair as i32).collect();
    let mut inputs = match format {
        WeightFormat::Dense => vec![x, weights.swap_remove(0)],
        _ => vec![in_lane_order(&x, format), weights.remove(0), weights.remove(0), weights.remove(0)],
    };
    inputs.extend([Tensor::ints(&order), Tensor::ints(&starts)]);
    Case { plan, inputs, expected, dtype }
}

/// What `lane_order` must make of rows.
fn in_lane_order(x: &Tensor, format: WeightFormat) -> Tensor {
    let steps = match format {
        WeightFormat::Eight { .. } => [0, 1, 2, 3],
        _ => [0, 4, 1, 5],
    };
    let mut from = vec![0; 64];
    for product in 0..4 {
        let first = match format {
            WeightFormat::Eight { .. } => 4 * product,
            _ => 8 * (product / 2) + 2 * (product % 2),
        };
        for lane in 0..4 {
            for (to, step) in [0, 1, 8, 9].into_iter().zip(steps) {
                from[16 * product + 2 * lane + to] = 16 * lane + first + step;
            }
        }
    }
    let element = |at: usize| {
        let read = at / 64 * 64 + from[at % 64];
        x.bytes[2 * read..2 * read + 2].to_vec()
    };
    let bytes = (0..x.bytes.len() / 2).flat_map(element).collect();
    Tensor { bytes, ..x.clone() }
}

fn dense_cases() -> Vec<Case> {
    let dense = |dtype| (dtype, WeightFormat::Dense);
    vec![
        case(dense(Bf16), &[3, 0, 140, 1], 1, [192, 256]),
        case(dense(Bf16), &[20, 12], 2, [576, 133]),
        case(dense(F16), &[0, 37, 129], 1, [128, 70]),
        // More tiles than groups.
        case(dense(Bf16), &[1; 90], 1, [64, 700]),
    ]
}

fn packed_cases() -> Vec<Case> {
    vec![
        case((Bf16, WeightFormat::Four { group: 64 }), &[3, 0, 140, 1], 1, [256, 256]),
        case((Bf16, WeightFormat::Four { group: 64 }), &[20, 12], 2, [576, 133]),
        case((F16, WeightFormat::Four { group: 32 }), &[0, 37, 129], 1, [128, 70]),
        case((Bf16, WeightFormat::MxFp4), &[9, 40], 1, [320, 256]),
        case((Bf16, WeightFormat::Eight { group: 64 }), &[5, 0, 100, 7], 1, [448, 64]),
    ]
}

/// The largest error of each case, as a share of what is tolerated.
fn errors(cases: &[Case], name: &str, broken: Break, seed: i32) -> Vec<f64> {
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
    for (name, cases) in [("wmm_grouped", dense_cases()), ("wmm_grouped_packed", packed_cases())] {
        for seed in [1, 2] {
            let errors = errors(&cases, name, None, seed);
            assert!(errors.iter().all(|error| *error < 1.0), "{name}: {errors:?}");
        }
    }
}

#[test]
fn rows_are_put_into_the_order_of_lanes() {
    let formats = [WeightFormat::Four { group: 64 }, WeightFormat::Eight { group: 64 }, WeightFormat::MxFp4];
    let plan = |format| lane_order_plan([3, 704], Bf16, format).unwrap();
    let plans: Vec<_> = formats.iter().map(|format| (plan(*format), vec![Bf16], None)).collect();
    let program = Program::new("lane_order", Dialect::Cuda, &plans);
    let x = Numbers(5).tensor(Bf16, &[3, 704]);
    for (at, format) in formats.into_iter().enumerate() {
        let mut made = program.run(at, &plan(format), std::slice::from_ref(&x), 1).unwrap();
        assert_eq!(made.pop().unwrap().bytes, in_lane_order(&x, format).bytes, "{format:?}");
    }
    let constants = |rows| format!("{:?}", lane_order_plan([rows, 704], Bf16, formats[0]).unwrap().constants);
    assert_eq!(constants(3), constants(400), "no number of rows is compiled in");
    assert!(lane_order_plan([3, 96], Bf16, formats[0]).is_none());
    assert!(lane_order_plan([3, 64], Bf16, WeightFormat::Dense).is_none());
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_grouped_products_are_noticed() {
    let of_dense = [
        ("(gk_long)expert * N * K", "0"),
        ("gk_join<ALL>(free(step));", ""),
        ("gk_wait<LAG>();", ""),
        ("gk_warpgroup_wait<1>();", ""),
    ];
    let of_packed = [
        ("order[p] / CHOSEN", "order[p]"),
        ("(gk_long)order[p] * N", "(gk_long)p * N"),
        ("begin + at % parts * pairs", "begin"),
        ("begin = end;", ""),
        ("g & 1 ? low : high, 4", "g & 1 ? low : high, 8"),
        ("if (!EVEN && n + 1 < N)", "if (!EVEN)"),
        ("gk_join<FREE>(free(step));", ";"),
        ("gk_join<FULL>(full(step, GK_SIMD / 4));", ""),
        ("row >= 0 && (WHOLE || k + 64 < K)", "row >= 0"),
        ("(step % ST * 2 + i / 2) * HALF", "step % ST * 2 * HALF"),
    ];
    let kernels = [
        ("wmm_grouped", dense_cases(), of_dense.as_slice()),
        ("wmm_grouped_packed", packed_cases(), of_packed.as_slice()),
    ];
    for (kernel, mut cases, own) in kernels {
        // One with an expert of two parts, and one of sizes that are no whole tiles: a program of few cases is compiled soon.
        cases.truncate(2);
        for (at, (old, new)) in own.iter().enumerate() {
            let name = format!("{kernel}_{at}");
            let noticed = |seed| errors(&cases, &name, Some((old, new)), seed).iter().any(|e| *e > 1.0);
            let found = (1..=4).chain(101..=104).any(noticed);
            assert!(found, "{kernel}: `{old}` was replaced, and nothing noticed");
        }
    }
}
