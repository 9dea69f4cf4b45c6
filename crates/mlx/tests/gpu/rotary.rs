//! Norm, rotation and the write of keys and values.

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::RotaryPairing;
use mlx::gpu::{
    Dialect, HeadShape, Operand, Plan, PoolFormat, Projected, QueryTemperature, Rotary, RotaryAxes,
    RotaryNorm,
};

use crate::emulator::{Break, Numbers, Program, Tensor, error, in_parts, tolerance};
use crate::pools;

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    /// Queries, then the pools.
    expected: [Vec<f64>; 3],
    rotary: Rotary,
}

fn case(rotary: Rotary, rows: usize) -> Case {
    let HeadShape { heads, kv_heads, head_dim } = rotary.shape;
    let mut numbers = Numbers(rows as u64 + head_dim as u64);
    let all = heads + rotary.projected.parts_of_keys() as i32 * kv_heads;
    let qkv = numbers.tensor(rotary.dtype, &[rows as i32, all * head_dim]);
    let norms = [numbers.tensor(F32, &[head_dim]), numbers.tensor(rotary.dtype, &[head_dim])];
    let pairs = (rotary.dims / 2).max(1);
    let frequencies: Vec<f32> = (0..pairs).map(|i| 100f32.powf(-(i as f32) / pairs as f32)).collect();
    let frequencies = Tensor::floats(F32, &[pairs], &frequencies);
    let axes: Vec<i32> = (0..pairs).map(|pair| (pair * 2 + pair / 5) % 3).collect();
    let positions = match rotary.axes {
        RotaryAxes::One => rows,
        RotaryAxes::Three => 3 * rows,
    };
    let positions: Vec<i32> = (0..positions).map(|_| numbers.below(500) as i32).collect();
    let mut slots: Vec<i32> = (0..rows as i32).map(|row| row * 7 % 31).collect();
    if rows > 2 {
        slots[rows / 2] = -1;
    }
    let mut pool = || pools::random(rotary.pool, &[4, 8, kv_heads], head_dim, &mut numbers);
    let pools = [pool(), pool()];
    let expected =
        reference(&rotary, [&qkv, &norms[0], &norms[1], &frequencies], [&axes, &positions, &slots], &pools);
    let [q_norm, k_norm] = norms;
    let [keys, values] = pools;
    let [axes, positions, slots] = [&axes, &positions, &slots].map(|numbers| Tensor::ints(numbers));
    let inputs = vec![qkv, q_norm, k_norm, frequencies, axes, positions, slots, keys, values];
    Case { plan: rotary.plan(rows as i32).unwrap(), inputs, expected, rotary }
}

/// A case where the projected rows come in parts.
fn case_of_parts(rotary: Rotary, rows: usize) -> Case {
    let mut case = case(rotary, rows);
    case.plan = Rotary { operand: Operand::Parts, ..rotary }.plan(rows as i32).unwrap();
    case.inputs[0] = in_parts(&case.inputs[0], &mut Numbers(1));
    case
}

fn reference(
    rotary: &Rotary,
    [qkv, q_norm, k_norm, frequencies]: [&Tensor; 4],
    [axes, positions, slots]: [&[i32]; 3],
    pools: &[Tensor; 2],
) -> [Vec<f64>; 3] {
    let (heads, kv_heads) = (rotary.shape.heads as usize, rotary.shape.kv_heads as usize);
    let (dim, half) = (rotary.shape.head_dim as usize, rotary.dims as usize / 2);
    let (x, frequencies) = (qkv.to_f64(), frequencies.to_f64());
    let (mut queries, mut keys, mut values) = {
        let [keys, values] = pools.each_ref().map(|pool| pools::floats(rotary.pool, pool, dim));
        (Vec::new(), keys, values)
    };
    let of_row = (heads + rotary.projected.parts_of_keys() * kv_heads) * dim;
    for (row, x) in x.chunks_exact(of_row).enumerate() {
        let keys_as_values = match rotary.projected {
            Projected::QueriesAndKeys => &x[heads * dim..],
            Projected::QueriesKeysValues | Projected::Queries => &[],
        };
        for (head, x) in x.chunks_exact(dim).chain(keys_as_values.chunks_exact(dim)).enumerate() {
            let mut y = x.to_vec();
            let weight = if head < heads { q_norm } else { k_norm }.to_f64();
            if let Some(clip) = rotary.clip {
                y.iter_mut().for_each(|y| *y = y.clamp(f64::from(-clip), f64::from(clip)));
            }
            let normed = |y: &[f64], eps: f32| {
                let mean = y.iter().map(|y| y * y).sum::<f64>() / dim as f64;
                y.iter().zip(&weight).map(|(y, w)| y / (mean + f64::from(eps)).sqrt() * w).collect::<Vec<_>>()
            };
            if let (RotaryNorm::Rms(eps), true) = (rotary.norm, head < heads + kv_heads) {
                y = normed(&y, eps);
            }
            if let (RotaryNorm::Rms(eps), true) = (rotary.value_norm, head >= heads + kv_heads) {
                let mean = x.iter().map(|x| x * x).sum::<f64>() / dim as f64;
                y = x.iter().map(|x| x / (mean + f64::from(eps)).sqrt()).collect();
            }
            for (pair, frequency) in frequencies.iter().enumerate().take(half) {
                let (i, j) = match rotary.order {
                    RotaryPairing::Halves => (pair, pair + half),
                    RotaryPairing::Interleaved => (2 * pair, 2 * pair + 1),
                };
                let position = match rotary.axes {
                    RotaryAxes::One => positions[row],
                    RotaryAxes::Three => positions[axes[pair] as usize * slots.len() + row],
                };
                let (sin, cos) = (f64::from(position) * frequency).sin_cos();
                let (a, b, m) = (y[i], y[j], f64::from(rotary.magnitude));
                if head < heads + kv_heads {
                    (y[i], y[j]) = (m * (a * cos - b * sin), m * (a * sin + b * cos));
                }
            }
            if let (RotaryNorm::Late(eps), true) = (rotary.norm, head < heads + kv_heads) {
                y = normed(&y, eps);
            }
            let factor = rotary.temperature.map_or(1.0, |QueryTemperature { beta, period, shift }| {
                let periods = f64::from(positions[row] + shift) / f64::from(period);
                1.0 + f64::from(beta) * periods.floor().ln_1p()
            });
            match head.checked_sub(heads) {
                None => queries.extend(y.iter().map(|x| x * factor)),
                Some(_) if slots[row] < 0 => {}
                Some(head) => {
                    let (pool, head) =
                        if head < kv_heads { (&mut keys, head) } else { (&mut values, head - kv_heads) };
                    let at = (slots[row] as usize * kv_heads + head) * dim;
                    pool[at..at + dim].copy_from_slice(&y);
                }
            }
        }
    }
    [queries, keys, values]
}

fn cases() -> Vec<Case> {
    let shape = |heads, kv_heads, head_dim| HeadShape { heads, kv_heads, head_dim };
    let rotary = |dtype, shape: HeadShape, dims| Rotary {
        dtype,
        pool: PoolFormat::Float(dtype),
        shape,
        projected: Projected::QueriesKeysValues,
        dims,
        order: RotaryPairing::Halves,
        magnitude: 1.0,
        axes: RotaryAxes::One,
        clip: None,
        norm: RotaryNorm::Absent,
        value_norm: RotaryNorm::Absent,
        temperature: None,
        operand: Operand::Whole,
    };
    let temperature = |beta, period, shift| Some(QueryTemperature { beta, period, shift });
    let normed = RotaryNorm::Rms(1e-6);
    let packed = |bits, group| PoolFormat::Packed { bits, group };
    let interleaved = RotaryPairing::Interleaved;
    vec![
        case(Rotary { norm: normed, ..rotary(Bf16, shape(6, 2, 128), 128) }, 3),
        case(Rotary { norm: normed, order: interleaved, ..rotary(F16, shape(4, 1, 64), 64) }, 4),
        case(Rotary { magnitude: 1.25, ..rotary(F32, shape(3, 1, 80), 32) }, 3),
        case(Rotary { norm: normed, ..rotary(Bf16, shape(2, 2, 256), 64) }, 5),
        case_of_parts(Rotary { norm: normed, ..rotary(Bf16, shape(6, 2, 128), 128) }, 3),
        case(
            Rotary { pool: PoolFormat::Float(F32), order: interleaved, ..rotary(Bf16, shape(6, 2, 8), 4) },
            1,
        ),
        case(rotary(F32, shape(2, 1, 96), 0), 2),
        case(Rotary { norm: normed, axes: RotaryAxes::Three, ..rotary(Bf16, shape(4, 2, 128), 128) }, 3),
        case(Rotary { axes: RotaryAxes::Three, order: interleaved, ..rotary(F32, shape(2, 1, 64), 48) }, 4),
        case(Rotary { norm: normed, pool: packed(8, 64), ..rotary(Bf16, shape(4, 2, 128), 128) }, 3),
        case(Rotary { pool: packed(4, 32), ..rotary(F32, shape(6, 3, 96), 64) }, 5),
        case(Rotary { pool: packed(8, 128), order: interleaved, ..rotary(F32, shape(2, 2, 256), 256) }, 2),
        case(Rotary { norm: normed, value_norm: normed, ..rotary(Bf16, shape(4, 2, 128), 128) }, 3),
        case(
            Rotary {
                value_norm: RotaryNorm::Rms(0.5),
                pool: packed(8, 64),
                ..rotary(F32, shape(2, 2, 64), 32)
            },
            2,
        ),
        case(Rotary { norm: normed, value_norm: normed, ..as_values(rotary(Bf16, shape(6, 2, 128), 64)) }, 3),
        case(
            Rotary { value_norm: normed, pool: packed(4, 32), ..as_values(rotary(F32, shape(5, 1, 64), 64)) },
            4,
        ),
        case_of_parts(Rotary { norm: normed, ..as_values(rotary(Bf16, shape(6, 3, 64), 64)) }, 3),
        case(Rotary { norm: normed, ..of_queries(rotary(Bf16, shape(6, 2, 128), 128)) }, 3),
        case(Rotary { pool: packed(8, 64), ..of_queries(rotary(F32, shape(10, 2, 64), 32)) }, 4),
        case_of_parts(Rotary { norm: normed, ..of_queries(rotary(Bf16, shape(4, 4, 64), 64)) }, 3),
        case(
            Rotary { norm: normed, value_norm: normed, ..as_values(rotary(Bf16, shape(4, 1, 512), 128)) },
            2,
        ),
        case(Rotary { pool: packed(8, 64), ..rotary(F32, shape(2, 1, 512), 512) }, 2),
        case(Rotary { temperature: temperature(0.1, 30, 0), ..rotary(Bf16, shape(4, 2, 128), 128) }, 5),
        case(Rotary { temperature: temperature(0.5, 64, 40), ..rotary(F32, shape(3, 1, 64), 0) }, 6),
        case(Rotary { norm: RotaryNorm::Late(1e-5), ..rotary(Bf16, shape(6, 2, 128), 128) }, 3),
        case(
            Rotary {
                norm: RotaryNorm::Late(1e-5),
                order: interleaved,
                pool: packed(8, 64),
                ..rotary(F32, shape(4, 1, 64), 32)
            },
            4,
        ),
        case(Rotary { clip: Some(0.75), ..rotary(F16, shape(4, 2, 96), 96) }, 3),
    ]
}

fn as_values(rotary: Rotary) -> Rotary {
    Rotary { projected: Projected::QueriesAndKeys, ..rotary }
}

fn of_queries(rotary: Rotary) -> Rotary {
    Rotary { projected: Projected::Queries, ..rotary }
}

fn types(case: &Case) -> Vec<Dtype> {
    case.inputs.iter().map(|input| input.dtype).collect()
}

/// The largest error of a case, as a share of what is tolerated.
fn worst(program: &Program, at: usize, case: &Case) -> f64 {
    let Ok(arrays) = program.run(at, &case.plan, &case.inputs, 3) else { return f64::INFINITY };
    assert!(arrays[10].bytes.iter().take(4).all(|byte| *byte == 0), "the counter begins at zero");
    let Rotary { dtype, pool, shape, .. } = case.rotary;
    let [keys, values] = [&arrays[7], &arrays[8]].map(|pool_of| {
        (pools::floats(pool, pool_of, shape.head_dim as usize), pools::tolerance(pool, dtype))
    });
    let found = [(arrays[9].to_f64(), tolerance(dtype)), keys, values].into_iter().zip(&case.expected);
    found.map(|((found, tolerance), expected)| error(&found, expected) / tolerance).fold(0.0, f64::max)
}

#[test]
fn rotation_and_write_equal_their_reference() {
    for (name, dialect) in [("rotary_cuda", Dialect::Cuda), ("rotary_metal", Dialect::Metal)] {
        let cases = cases();
        let plans: Vec<_> = cases.iter().map(|case| (case.plan.clone(), types(case), None)).collect();
        let program = Program::new(name, dialect, &plans);
        for (at, case) in cases.iter().enumerate() {
            let worst = worst(&program, at, case);
            assert!(worst < 1.0, "{name}, case {at}: {worst}");
        }
    }
}

#[test]
fn a_wrong_partner_slot_head_norm_or_axis_is_noticed() {
    let breaks: [(usize, Break); 16] = [
        (24, Some(("NORM && !LATE", "NORM"))),
        (26, Some(("a[j] > most ? most : a[j]", "a[j]"))),
        (22, Some(("TEMPERED && h < HQ", "TEMPERED && h <= HQ"))),
        (23, Some(("(pos[row] + SHIFT) / PERIOD", "pos[row] / PERIOD"))),
        (14, Some(("h >= HQ + HK ? h - HK : h", "h >= HQ + HK ? h - HK - 1 : h"))),
        (15, Some(("PROJECTED == 1 && h >= HQ + HK", "PROJECTED == 1 && h > HQ + HK"))),
        (16, Some(("GK_GROUPS_Y * COLUMNS * D", "GK_GROUPS_Y * HQ * D"))),
        (17, Some(("row * COLUMNS", "row / 2 * COLUMNS"))),
        (12, Some(("VALUE_NORM && h >= HQ + HK", "VALUE_NORM && h > HQ + HK"))),
        (13, Some(("GK_FLOAT(VALUE_EPS)", "GK_FLOAT(EPS)"))),
        (8, Some(("axis[p] * GK_GROUPS_Y", "axis[p] * 1"))),
        (4, Some(("GK_GROUPS_Y * COLUMNS * D", "1 * COLUMNS * D"))),
        (2, Some(("2 * p + 1 : p + R / 2), parts", "2 * p + 1 : p + R / 2 - 1), parts"))),
        (5, Some(("h < HQ + HK ? (at * HK", "h < HQ + HK ? ((at + 1) * HK"))),
        (2, Some(("&& at >= 0", "&& true"))),
        (1, Some(("h < HQ ? gk_f(qw[i0])", "h < HQ ? gk_f(kw[i0])"))),
    ];
    let cases = cases();
    let plan = |(case, broken): &(usize, Break)| (cases[*case].plan.clone(), types(&cases[*case]), *broken);
    let program = Program::new("rotary_broken", Dialect::Cuda, &breaks.iter().map(plan).collect::<Vec<_>>());
    for (at, (case, broken)) in breaks.iter().enumerate() {
        let worst = worst(&program, at, &cases[*case]);
        assert!(worst > 1.0, "{broken:?}: {worst}");
    }
}
