//! Residual add and norm, gated activations and sums, and products with few outputs.

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{AddNorm, AddTerm, Dialect, Gate, GateLayout, Gated, Narrow, Operand, Plan, Term};

use crate::emulator::{Break, Numbers, Program, Tensor, error, in_parts, tolerance};

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    expected: Vec<Vec<f64>>,
    dtype: Dtype,
}

fn add_norm(dtype: Dtype, rows: i32, width: i32) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let row = [rows, width];
    let inputs =
        [numbers.tensor(dtype, &row), numbers.tensor(dtype, &row), numbers.tensor(F32, &[width])].to_vec();
    let [x, r, w] = [0, 1, 2].map(|i: usize| inputs[i].to_f64());
    let sum: Vec<f32> = x.iter().zip(&r).map(|(x, r)| (x + r) as f32).collect();
    let sum = Tensor::floats(dtype, &[rows, width], &sum).to_f64();
    let normed = sum.chunks_exact(width as usize).flat_map(|row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / f64::from(width);
        row.iter().zip(&w).map(move |(x, w)| x / (mean + 1e-5).sqrt() * w).collect::<Vec<_>>()
    });
    let expected = vec![sum.clone(), normed.collect()];
    let plan = AddNorm { dtype, rows, width, eps: 1e-5, term: Operand::Whole }.plan().unwrap();
    Case { plan, inputs, expected, dtype }
}

/// The same where the term comes in parts.
fn add_norm_of_parts(dtype: Dtype, rows: i32, width: i32) -> Case {
    let mut case = add_norm(dtype, rows, width);
    case.plan = AddNorm { dtype, rows, width, eps: 1e-5, term: Operand::Parts }.plan().unwrap();
    case.inputs[0] = in_parts(&case.inputs[0], &mut Numbers(1));
    case
}

/// Rows take `weights` rows of weights in turn.
fn rms_norm(dtype: Dtype, rows: i32, width: i32, weights: i32) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let inputs = vec![numbers.tensor(dtype, &[rows, width]), numbers.tensor(dtype, &[weights, width])];
    let [x, w] = [0, 1].map(|i: usize| inputs[i].to_f64());
    let weights_of_rows = w.chunks_exact(width as usize).cycle();
    let normed = x.chunks_exact(width as usize).zip(weights_of_rows).flat_map(|(row, w)| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / f64::from(width);
        row.iter().zip(w).map(move |(x, w)| x / (mean + 1e-5).sqrt() * w).collect::<Vec<_>>()
    });
    let expected = vec![normed.collect()];
    let plan =
        AddNorm { dtype, rows, width, eps: 1e-5, term: Operand::Whole }.plan_without_sum(weights).unwrap();
    Case { plan, inputs, expected, dtype }
}

fn gated(dtype: Dtype, rows: i32, width: i32, gate: Gate, layout: GateLayout) -> Case {
    let mut numbers = Numbers(rows as u64 * width as u64);
    let operand = Operand::Whole;
    let plan = Gated { dtype, rows, width, gate, layout, operand }.plan().unwrap();
    let w = width as usize;
    let (inputs, gates, ups): (Vec<Tensor>, Vec<f64>, Vec<f64>) = match layout {
        GateLayout::Joined => {
            let both = numbers.tensor(dtype, &[rows, 2 * width]);
            let values = both.to_f64();
            let rows = || values.chunks_exact(2 * w);
            let gates = rows().flat_map(|row| row[..w].to_vec()).collect();
            let ups = rows().flat_map(|row| row[w..].to_vec()).collect();
            (vec![both.clone(), both], gates, ups)
        }
        GateLayout::Apart => {
            let [gate, up] = [numbers.tensor(dtype, &[rows, width]), numbers.tensor(dtype, &[rows, width])];
            let (gates, ups) = (gate.to_f64(), up.to_f64());
            (vec![gate, up], gates, ups)
        }
    };
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let act = |x: f64| match gate {
        Gate::Silu => x * sigmoid(x),
        Gate::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Gate::GeluTanh => 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh()),
        Gate::Sigmoid => sigmoid(x),
    };
    let expected = vec![gates.iter().zip(&ups).map(|(gate, up)| act(*gate) * up).collect()];
    Case { plan, inputs, expected, dtype }
}

/// The same where both operands come in parts, of one product.
fn gated_parts(dtype: Dtype, rows: i32, width: i32) -> Case {
    let (gate, layout) = (Gate::Silu, GateLayout::Joined);
    let mut case = gated(dtype, rows, width, gate, layout);
    case.plan = Gated { dtype, rows, width, gate, layout, operand: Operand::Parts }.plan().unwrap();
    let parts = in_parts(&case.inputs[0], &mut Numbers(1));
    case.inputs = vec![parts.clone(), parts];
    case
}

fn add_term(dtype: Dtype, rows: i32, width: i32, term: Term) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let row = [rows, width];
    let added = if term == Term::Bias { vec![width] } else { row.to_vec() };
    let inputs =
        vec![numbers.tensor(dtype, &row), numbers.tensor(dtype, &added), numbers.tensor(dtype, &[rows, 1])];
    let [sum, added, logits] = [0, 1, 2].map(|i: usize| inputs[i].to_f64());
    let scale = |row: usize| match term {
        Term::Plain | Term::Bias | Term::Scaled => 1.0,
        Term::Gated => 1.0 / (1.0 + (-logits[row]).exp()),
    };
    let both = sum.iter().zip(added.iter().cycle()).enumerate();
    let factor = if term == Term::Scaled { logits[0] } else { 1.0 };
    let of = |(at, (sum, term)): (usize, (&f64, &f64))| (sum + scale(at / width as usize) * term) * factor;
    let expected = vec![both.map(of).collect()];
    Case { plan: AddTerm { dtype, rows, width, term }.plan().unwrap(), inputs, expected, dtype }
}

fn narrow(dtype: Dtype, rows: i32, inputs: i32, outputs: i32) -> Case {
    let mut numbers = Numbers(rows as u64 + inputs as u64);
    let plan = Narrow { dtype, rows, inputs, outputs }.plan().unwrap();
    let operands = vec![numbers.tensor(dtype, &[rows, inputs]), numbers.tensor(dtype, &[outputs, inputs])];
    let [x, w] = [0, 1].map(|i: usize| operands[i].to_f64());
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    let width = inputs as usize;
    let rows = x.chunks_exact(width);
    let expected = rows.flat_map(|x| w.chunks_exact(width).map(|w| dot(x, w)).collect::<Vec<_>>()).collect();
    Case { plan, inputs: operands, expected: vec![expected], dtype }
}

/// By its series, which converges for the values here.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// The largest error of any case, as a share of what is tolerated.
fn worst(name: &str, dialect: Dialect, cases: &[Case], broken: Break) -> f64 {
    let types = |case: &Case| case.inputs.iter().map(|input| input.dtype).collect::<Vec<_>>();
    let plans: Vec<_> = cases.iter().map(|case| (case.plan.clone(), types(case), broken)).collect();
    let program = Program::new(name, dialect, &plans);
    let of = |(at, case): (usize, &Case)| {
        let Ok(arrays) = program.run(at, &case.plan, &case.inputs, 7) else { return f64::INFINITY };
        let outputs = arrays[case.inputs.len()..].iter().zip(&case.expected);
        outputs
            .map(|(found, expected)| error(&found.to_f64(), expected) / tolerance(case.dtype))
            .fold(0.0, f64::max)
    };
    cases.iter().enumerate().map(of).fold(0.0, f64::max)
}

fn add_norms() -> Vec<Case> {
    vec![
        add_norm(Bf16, 3, 1032),
        add_norm(F32, 2, 520),
        add_norm(F16, 1, 64),
        add_norm(Bf16, 2, 4096),
        add_norm_of_parts(Bf16, 3, 1032),
    ]
}

fn norms() -> Vec<Case> {
    vec![rms_norm(Bf16, 3, 1032, 1), rms_norm(F32, 2, 64, 1), rms_norm(Bf16, 7, 96, 3)]
}

fn gates() -> Vec<Case> {
    vec![
        gated(Bf16, 3, 1048, Gate::Silu, GateLayout::Joined),
        gated(F32, 2, 24, Gate::Gelu, GateLayout::Joined),
        gated(F16, 1, 64, Gate::GeluTanh, GateLayout::Apart),
        gated(F32, 5, 40, Gate::Sigmoid, GateLayout::Apart),
        gated_parts(Bf16, 3, 1048),
    ]
}

fn terms() -> Vec<Case> {
    vec![
        add_term(Bf16, 3, 1048, Term::Gated),
        add_term(F32, 2, 24, Term::Plain),
        add_term(F16, 1, 64, Term::Gated),
        add_term(Bf16, 3, 1048, Term::Bias),
        add_term(Bf16, 2, 1048, Term::Scaled),
    ]
}

fn narrow_products() -> Vec<Case> {
    vec![narrow(Bf16, 3, 1048, 1), narrow(F32, 2, 24, 2), narrow(F16, 1, 264, 8)]
}

#[test]
fn sums_with_gated_terms_equal_their_reference() {
    assert!(worst("add_term_cuda", Dialect::Cuda, &terms(), None) < 1.0);
    assert!(worst("add_term_metal", Dialect::Metal, &terms(), None) < 1.0);
}

#[test]
fn products_with_few_outputs_equal_their_reference() {
    assert!(worst("narrow_cuda", Dialect::Cuda, &narrow_products(), None) < 1.0);
    assert!(worst("narrow_metal", Dialect::Metal, &narrow_products(), None) < 1.0);
}

#[test]
fn add_norm_equals_its_reference() {
    assert!(worst("add_norm_cuda", Dialect::Cuda, &add_norms(), None) < 1.0);
    assert!(worst("add_norm_metal", Dialect::Metal, &add_norms(), None) < 1.0);
}

#[test]
fn rms_norm_equals_its_reference() {
    assert!(worst("rms_norm_cuda", Dialect::Cuda, &norms(), None) < 1.0);
    assert!(worst("rms_norm_metal", Dialect::Metal, &norms(), None) < 1.0);
}

#[test]
fn gated_activations_equal_their_reference() {
    assert!(worst("gated_cuda", Dialect::Cuda, &gates(), None) < 1.0);
    assert!(worst("gated_metal", Dialect::Metal, &gates(), None) < 1.0);
}

#[test]
fn a_missing_barrier_or_a_wrong_index_is_noticed() {
    let broken = worst("add_norm_barrier", Dialect::Cuda, &add_norms(), Some(("GK_BARRIER();", "")));
    assert!(broken > 1.0, "add_norm without its barrier: {broken}");
    let broken = worst("rms_norm_weights", Dialect::Metal, &norms(), Some(("row % W", "0")));
    assert!(broken > 1.0, "a norm with another row's weights: {broken}");
    let parts = [add_norm_of_parts(Bf16, 3, 1032)];
    let broken = worst("add_norm_parts", Dialect::Metal, &parts, Some(("GK_GROUPS_Y * H", "1 * H")));
    assert!(broken > 1.0, "parts of other rows: {broken}");
    let broken = worst("gated_up", Dialect::Metal, &gates(), Some(("STRIDE + UP", "STRIDE")));
    assert!(broken > 1.0, "gated with a wrong operand: {broken}");
    let broken = worst("add_term_row", Dialect::Metal, &terms(), Some(("z[row]", "z[0]")));
    assert!(broken > 1.0, "a term with another row's gate: {broken}");
    let broken = worst("narrow_output", Dialect::Cuda, &narrow_products(), Some(("(gk_long)o * K", "0")));
    assert!(broken > 1.0, "another output's weights: {broken}");
}
