//! Convolutions and recurrences over runs of rows: single rows, prompt chunks, runs that continue each other, padding.

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{
    CausalConv, ConvActivation, ConvGates, Decays, Dialect, GatedHeads, HeadsGate, Operand, Plan, Recurrence,
    RecurrenceRule, RunCount, SelectiveScan, StateDecay,
};

use crate::emulator::{Break, Numbers, Program, Tensor, error, in_parts, tolerance};

const SLOTS: i32 = 7;

/// First row, rows, the slot that is written, the slot that is read.
type Run = [i32; 4];

/// A prompt, a sequence that begins, one that verifies two drafts, one that decodes, and two rows of padding.
const RUNS: [Run; 7] = [
    [0, 37, 1, 1],
    [37, 5, 2, -1],
    [42, 1, 3, 3],
    [43, 1, 5, 3],
    [44, 1, 0, 5],
    [45, 1, 4, 4],
    [46, 2, -1, -1],
];
/// Of one row each.
const SINGLES: [Run; 3] = [[0, 1, 6, 6], [1, 1, 2, -1], [2, 1, -1, -1]];

fn rows_of(runs: &[Run]) -> i32 {
    runs.iter().map(|run| run[1]).sum()
}

fn count(runs: &[Run]) -> RunCount {
    RunCount { runs: runs.len() as i32, longest: 37 }
}

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    /// The result, then the last input where that is a pool.
    expected: Vec<Vec<f64>>,
    dtype: Dtype,
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Calls `row` for every row with the state of its run, and gives the pool afterwards.
fn advance(runs: &[Run], pool: &[f64], mut row: impl FnMut(usize, &mut [f64])) -> Vec<f64> {
    let size = pool.len() / SLOTS as usize;
    let mut after = pool.to_vec();
    for [first, rows, to, from] in runs.iter().copied().filter(|run| run[2] >= 0) {
        let mut state = match usize::try_from(from) {
            Ok(from) => after[from * size..][..size].to_vec(),
            Err(_) => vec![0.0; size],
        };
        (first..first + rows).for_each(|at| row(at as usize, &mut state));
        after[to as usize * size..][..size].copy_from_slice(&state);
    }
    after
}

fn ints(runs: &[Run]) -> Tensor {
    Tensor::ints(&runs.concat())
}

fn conv(conv: CausalConv, runs: &[Run]) -> Case {
    let (channels, size) = (conv.channels as usize, conv.kernel_size as usize);
    let mut numbers = Numbers(conv.channels as u64);
    let ends = [conv.offset].into_iter().chain(conv.gates.into_iter().flat_map(|of| [of.inputs, of.results]));
    let width = ends.max().unwrap_or(0) + conv.channels + 3;
    let x = numbers.tensor(conv.dtype, &[conv.rows, width]);
    let weight = numbers.tensor(F32, &[conv.kernel_size, conv.channels]);
    let bias = numbers.tensor(F32, &[conv.channels]);
    let pool = numbers.tensor(F32, &[SLOTS, conv.kernel_size - 1, conv.channels]);
    let (xs, ws, biases) = (x.to_f64(), weight.to_f64(), bias.to_f64());
    let stride = xs.len() / conv.rows as usize;
    let mut y = vec![0.0; conv.rows as usize * channels];
    let after = advance(runs, &pool.to_f64(), |row, state| {
        let part = |at: i32| &xs[row * stride + at as usize..][..channels];
        let input: Vec<f64> = match conv.gates {
            Some(gates) => {
                let gated =
                    part(gates.inputs).iter().zip(part(conv.offset)).map(|(gate, x)| (gate * x) as f32);
                Tensor::floats(conv.dtype, &[conv.channels], &gated.collect::<Vec<_>>()).to_f64()
            }
            None => part(conv.offset).to_vec(),
        };
        for c in 0..channels {
            let before: f64 = (0..size - 1).map(|j| ws[j * channels + c] * state[j * channels + c]).sum();
            let bias = if conv.has_bias { biases[c] } else { 0.0 };
            let sum = before + ws[(size - 1) * channels + c] * input[c] + bias;
            let mixed = if conv.activation == ConvActivation::Silu { silu(sum) } else { sum };
            y[row * channels + c] = conv.gates.map_or(mixed, |gates| mixed * part(gates.results)[c]);
        }
        state.rotate_left(channels);
        state[(size - 2) * channels..].copy_from_slice(&input);
    });
    let inputs = vec![x, weight, bias, ints(runs), pool];
    let plan = conv.plan(count(runs)).unwrap();
    Case { plan, inputs, expected: vec![y, after], dtype: conv.output }
}

fn recurrence(dtype: Dtype, spec: Recurrence, runs: &[Run]) -> Case {
    let [heads, key_heads, value_dim, key_dim] =
        [spec.heads, spec.key_heads, spec.value_dim, spec.key_dim].map(|n| n as usize);
    let mut numbers = Numbers(key_dim as u64 + 3);
    let (values, keys) = (heads * value_dim, key_heads * key_dim);
    let mixed = numbers.tensor(F32, &[spec.rows, (values + 2 * keys) as i32]);
    let steps = match spec.decay {
        StateDecay::Head { step } => numbers.tensor(dtype, &[spec.rows, step + spec.heads + 1]),
        StateDecay::Channels => {
            let shares = (0..spec.rows * spec.heads * spec.key_dim).map(|_| numbers.below(1000) as f32 / 1e3);
            Tensor::floats(F32, &[spec.rows, spec.heads * spec.key_dim], &shares.collect::<Vec<_>>())
        }
    };
    let writes = numbers.tensor(dtype, &[spec.rows, 9 + spec.heads]);
    let [a_log, dt_bias, skip] = [(); 3].map(|()| numbers.tensor(F32, &[spec.heads]));
    let pool = numbers.tensor(F32, &[SLOTS, spec.heads, spec.value_dim, spec.key_dim]);
    let [ms, ss, ws] = [&mixed, &steps, &writes].map(Tensor::to_f64);
    let (rates, biases, skips) = (a_log.to_f64(), dt_bias.to_f64(), skip.to_f64());
    let (queries_at, keys_at, values_at) = match spec.rule {
        RecurrenceRule::StateSpace { .. } => (values + keys, values, 0),
        RecurrenceRule::Delta { .. } => (0, keys, 2 * keys),
    };
    let mut y = vec![0.0; spec.rows as usize * values];
    let after = advance(runs, &pool.to_f64(), |row, state| {
        let of_row = |all: &[f64]| all.len() / spec.rows as usize * row;
        let (m, s, w) = (&ms[of_row(&ms)..], &ss[of_row(&ss)..], &ws[of_row(&ws)..]);
        for h in 0..heads {
            let head = |at: usize, h: usize, dim: usize| &m[at + h * dim..][..dim];
            let kh = h / (heads / key_heads);
            let (q, k) = (head(queries_at, kh, key_dim), head(keys_at, kh, key_dim));
            let v = head(values_at, h, value_dim);
            let step = match spec.decay {
                StateDecay::Head { step } => (s[step as usize + h] + biases[h]).exp().ln_1p(),
                StateDecay::Channels => 0.0,
            };
            let unit = |x: &[f64]| {
                let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.iter().map(|x| x / length).collect::<Vec<_>>()
            };
            let (k, q, dt) = match spec.rule {
                RecurrenceRule::StateSpace { limits: [low, high] } => {
                    (k.to_vec(), q.to_vec(), step.clamp(f64::from(low), f64::from(high)))
                }
                RecurrenceRule::Delta { .. } => {
                    let q = unit(q).iter().map(|q| q / (key_dim as f64).sqrt()).collect();
                    (unit(k), q, step)
                }
            };
            let decays = match spec.decay {
                StateDecay::Head { .. } => vec![(-rates[h].exp() * dt).exp(); key_dim],
                StateDecay::Channels => s[h * key_dim..][..key_dim].to_vec(),
            };
            for i in 0..value_dim {
                let s = &mut state[(h * value_dim + i) * key_dim..][..key_dim];
                s.iter_mut().zip(&decays).for_each(|(s, decay)| *s *= decay);
                let written = match spec.rule {
                    RecurrenceRule::StateSpace { .. } => dt * v[i],
                    RecurrenceRule::Delta { write, scale } => {
                        let held: f64 = s.iter().zip(&k).map(|(s, k)| s * k).sum();
                        f64::from(scale) * (v[i] - held) / (1.0 + (-w[write as usize + h]).exp())
                    }
                };
                s.iter_mut().zip(&k).for_each(|(s, k)| *s += written * k);
                let through = match spec.rule {
                    RecurrenceRule::StateSpace { .. } => skips[h] * v[i],
                    RecurrenceRule::Delta { .. } => 0.0,
                };
                y[row * values + h * value_dim + i] =
                    s.iter().zip(&q).map(|(s, q)| s * q).sum::<f64>() + through;
            }
        }
    });
    let inputs = vec![mixed, steps, writes, a_log, dt_bias, skip, ints(runs), pool];
    let plan = spec.plan(count(runs)).unwrap();
    Case { plan, inputs, expected: vec![y, after], dtype: F32 }
}

fn selective(dtype: Dtype, spec: SelectiveScan, runs: &[Run]) -> Case {
    let (channels, size) = (spec.channels as usize, spec.state_dim as usize);
    let mut numbers = Numbers(channels as u64);
    let x = numbers.tensor(dtype, &[spec.rows, spec.channels]);
    let steps = (0..spec.rows * spec.channels).map(|_| numbers.below(2000) as f32 / 1e3).collect::<Vec<_>>();
    let steps = Tensor::floats(F32, &[spec.rows, spec.channels], &steps);
    let [writes, reads] = [(); 2].map(|()| numbers.tensor(dtype, &[spec.rows, spec.state_dim]));
    let rate =
        (0..spec.channels * spec.state_dim).map(|_| -(numbers.below(900) as f32) / 1e3).collect::<Vec<_>>();
    let rate = Tensor::floats(F32, &[spec.channels, spec.state_dim], &rate);
    let skip = numbers.tensor(F32, &[spec.channels]);
    let pool = numbers.tensor(F32, &[SLOTS, spec.channels, spec.state_dim]);
    let [xs, dts, ws, rs, rates, skips] = [&x, &steps, &writes, &reads, &rate, &skip].map(Tensor::to_f64);
    let mut y = vec![0.0; spec.rows as usize * channels];
    let after = advance(runs, &pool.to_f64(), |row, state| {
        for (c, state) in state.chunks_exact_mut(size).enumerate() {
            let (x, dt) = (xs[row * channels + c], dts[row * channels + c]);
            for (n, s) in state.iter_mut().enumerate() {
                *s = (dt * rates[c * size + n]).exp() * *s + dt * x * ws[row * size + n];
            }
            let read: f64 = state.iter().zip(&rs[row * size..]).map(|(s, r)| s * r).sum();
            y[row * channels + c] = read + skips[c] * x;
        }
    });
    let inputs = vec![x, steps, writes, reads, rate, skip, ints(runs), pool];
    Case { plan: spec.plan(count(runs)).unwrap(), inputs, expected: vec![y, after], dtype: spec.dtype }
}

fn scans() -> Vec<Case> {
    let spec =
        |dtype, runs: &[Run], channels| SelectiveScan { dtype, rows: rows_of(runs), channels, state_dim: 16 };
    vec![
        selective(Bf16, spec(Bf16, &RUNS, 70), &RUNS),
        selective(F32, SelectiveScan { state_dim: 4, ..spec(F32, &RUNS, 33) }, &RUNS),
        selective(F16, SelectiveScan { state_dim: 128, ..spec(F16, &SINGLES, 9) }, &SINGLES),
    ]
}

fn gated(spec: GatedHeads) -> Case {
    let (heads, dim, rows) = (spec.heads as usize, spec.value_dim as usize, spec.rows as usize);
    let mut numbers = Numbers(dim as u64);
    let x = numbers.tensor(F32, &[spec.rows, spec.heads * spec.value_dim]);
    let gates = numbers.tensor(spec.dtype, &[spec.rows, spec.gate + spec.heads * spec.value_dim + 2]);
    let weight = numbers.tensor(Bf16, &[spec.value_dim]);
    let (xs, gs, ws) = (x.to_f64(), gates.to_f64(), weight.to_f64());
    let stride = gs.len() / rows;
    let head = |at: usize| {
        let x = &xs[at * dim..][..dim];
        let scale = spec.norm.map_or(1.0, |eps| {
            1.0 / (x.iter().map(|x| x * x).sum::<f64>() / dim as f64 + f64::from(eps)).sqrt()
        });
        let (row, h) = (at / heads, at % heads);
        let gates = &gs[row * stride + spec.gate as usize + h * dim..];
        let weight = |i: usize| spec.norm.map_or(1.0, |_| ws[i]);
        let gate = |x: f64| match spec.function {
            HeadsGate::Silu => silu(x),
            HeadsGate::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        };
        (0..dim).map(|i| x[i] * scale * weight(i) * gate(gates[i])).collect::<Vec<_>>()
    };
    let expected = vec![(0..rows * heads).flat_map(head).collect()];
    Case { plan: spec.plan().unwrap(), inputs: vec![x, gates, weight], expected, dtype: spec.dtype }
}

fn convs() -> Vec<Case> {
    let spec = |dtype, runs: &[Run], channels| CausalConv {
        dtype,
        output: F32,
        rows: rows_of(runs),
        channels,
        offset: 0,
        kernel_size: 4,
        has_bias: false,
        activation: ConvActivation::Silu,
        gates: None,
    };
    let gates = Some(ConvGates { inputs: 1, results: 70 });
    vec![
        conv(CausalConv { offset: 5, has_bias: true, ..spec(Bf16, &RUNS, 131) }, &RUNS),
        conv(CausalConv { kernel_size: 3, ..spec(F32, &RUNS, 8) }, &RUNS),
        conv(
            CausalConv { activation: ConvActivation::Identity, output: F16, ..spec(F16, &SINGLES, 40) },
            &SINGLES,
        ),
        conv(
            CausalConv {
                activation: ConvActivation::Identity,
                output: Bf16,
                offset: 140,
                gates,
                ..spec(Bf16, &RUNS, 66)
            },
            &RUNS,
        ),
    ]
}

fn recurrences() -> Vec<Case> {
    let spec = |runs: &[Run], rule| Recurrence {
        rows: rows_of(runs),
        heads: 4,
        key_heads: 2,
        value_dim: 20,
        key_dim: 64,
        decay: StateDecay::Head { step: 3 },
        rule,
    };
    let delta = RecurrenceRule::Delta { write: 7, scale: 1.0 };
    let doubled = RecurrenceRule::Delta { write: 0, scale: 2.0 };
    let channels = StateDecay::Channels;
    let state_space = RecurrenceRule::StateSpace { limits: [0.1, 1.5] };
    vec![
        recurrence(Bf16, spec(&RUNS, delta), &RUNS),
        recurrence(F32, spec(&RUNS, state_space), &RUNS),
        recurrence(F16, Recurrence { key_dim: 12, value_dim: 7, ..spec(&SINGLES, state_space) }, &SINGLES),
        recurrence(F16, Recurrence { key_dim: 128, heads: 2, ..spec(&SINGLES, delta) }, &SINGLES),
        recurrence(Bf16, Recurrence { decay: channels, ..spec(&RUNS, doubled) }, &RUNS),
        recurrence(F32, Recurrence { decay: channels, key_dim: 128, ..spec(&SINGLES, delta) }, &SINGLES),
    ]
}

fn gates() -> Vec<Case> {
    let spec = GatedHeads {
        dtype: Bf16,
        rows: 3,
        heads: 5,
        value_dim: 40,
        gate: 2,
        function: HeadsGate::Silu,
        norm: Some(1e-6),
    };
    vec![
        gated(spec),
        gated(GatedHeads { dtype: F32, value_dim: 128, norm: None, ..spec }),
        gated(GatedHeads { dtype: F16, function: HeadsGate::Sigmoid, gate: 0, ..spec }),
    ]
}

fn decays(spec: Decays) -> Case {
    let width = spec.heads * spec.key_dim;
    let mut numbers = Numbers(width as u64);
    let x = numbers.tensor(spec.dtype, &[spec.rows, width]);
    let [a_log, bias] = [spec.heads, width].map(|len| numbers.tensor(F32, &[len]));
    let (rates, biases) = (a_log.to_f64(), bias.to_f64());
    let decay = |(at, x): (usize, &f64)| {
        let channel = at % width as usize;
        let (rate, x) = (rates[channel / spec.key_dim as usize].exp(), x + biases[channel]);
        match spec.bound {
            Some(bound) => (f64::from(bound) / (1.0 + (-rate * x).exp())).exp(),
            None => (-rate * x.exp().ln_1p()).exp(),
        }
    };
    let expected = vec![x.to_f64().iter().enumerate().map(decay).collect()];
    let x = if spec.operand == Operand::Parts { in_parts(&x, &mut numbers) } else { x };
    Case { plan: spec.plan().unwrap(), inputs: vec![x, a_log, bias], expected, dtype: F32 }
}

fn decayed() -> Vec<Case> {
    let operand = Operand::Whole;
    let spec = Decays { dtype: Bf16, rows: 3, heads: 5, key_dim: 64, bound: None, operand };
    vec![
        decays(spec),
        decays(Decays { dtype: F32, heads: 2, key_dim: 128, bound: Some(-5.0), ..spec }),
        decays(Decays { operand: Operand::Parts, ..spec }),
    ]
}

type Cases = fn() -> Vec<Case>;

/// The largest error of each case, as a share of what is tolerated.
fn errors(name: &str, dialect: Dialect, cases: &[Case], broken: Break) -> Vec<f64> {
    let types = |case: &Case| case.inputs.iter().map(|input| input.dtype).collect();
    let plans: Vec<_> = cases.iter().map(|case| (case.plan.clone(), types(case), broken)).collect();
    let program = Program::new(name, dialect, &plans);
    let of = |(at, case): (usize, &Case)| {
        let Ok(arrays) = program.run(at, &case.plan, &case.inputs, 3) else { return f64::INFINITY };
        let result = arrays[case.inputs.len()].to_f64();
        let pool = arrays[case.inputs.len() - 1].to_f64();
        let found = [(result, case.dtype), (pool, F32)];
        let each = found.iter().zip(&case.expected);
        each.map(|((found, dtype), expected)| error(found, expected) / tolerance(*dtype)).fold(0.0, f64::max)
    };
    cases.iter().enumerate().map(of).collect()
}

fn check(name: &str, cases: Cases) {
    for (dialect, of) in [(Dialect::Cuda, "cuda"), (Dialect::Metal, "metal")] {
        let errors = errors(&format!("{name}_{of}"), dialect, &cases(), None);
        assert!(errors.iter().all(|error| *error < 1.0), "{name}, {of}: {errors:?}");
    }
}

#[test]
fn convolutions_equal_their_reference() {
    check("conv", convs);
}

#[test]
fn recurrences_equal_their_reference() {
    check("recurrence", recurrences);
}

#[test]
fn gates_of_heads_equal_their_reference() {
    check("gated_heads", gates);
}

#[test]
fn selective_scans_equal_their_reference() {
    check("selective_scan", scans);
}

#[test]
fn decays_of_channels_equal_their_reference() {
    check("decays", decayed);
}

#[test]
fn broken_recurrences_are_noticed() {
    let breaks: [(Cases, &str, &str); 15] = [
        (convs, "X + GATE_IN + c", "X + c"),
        (convs, "X + GATE_OUT + c", "X + GATE_IN + c"),
        (convs, "p == i - (K - 1)", "p == i - K"),
        (convs, "* X + OFFSET + c", "* X + c"),
        (recurrences, "value - decay * dot", "value - dot"),
        (recurrences, "GK_FLOAT(WRITE_SCALE) /", "1.0f /"),
        (recurrences, "(gk_long)row * P + h * KD + j", "(gk_long)row * P + kh * KD + j"),
        (recurrences, "o < L; o <<= 1) read", "2 * o < L; o <<= 1) read"),
        (recurrences, "runs[r * 4 + 2] * H", "runs[RUN * 4 + 2] * H"),
        (gates, "gk_sum(s) / VD", "gk_sum(s) / 32"),
        (gates, "SIGMOID ? 1.0f : gate", "gate"),
        (decayed, "i * 8 / KD", "0"),
        (scans, "step * value * w.v[i]", "value * w.v[i]"),
        (scans, "o < L; o <<= 1", "2 * o < L; o <<= 1"),
        (scans, "runs[r * 4 + 2] * C", "runs[RUN * 4 + 2] * C"),
    ];
    for (at, (cases, old, new)) in breaks.into_iter().enumerate() {
        let errors = errors(&format!("recurrent_broken_{at}"), Dialect::Cuda, &cases(), Some((old, new)));
        assert!(errors.iter().any(|error| *error > 1.0), "`{old}` was replaced, and nothing noticed");
    }
}
