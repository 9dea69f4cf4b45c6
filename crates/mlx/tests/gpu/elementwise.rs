//! Norms, sums, and products with few outputs.

use mlx::Activation;
use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{
    AddChosen, AddNorm, AddTerm, Dialect, GateLayout, Gated, JoinRows, JoinedTerm, LayerNorm, Narrow,
    NormColumns, Operand, Plan, RmsNorm, Term,
};

use crate::emulator::{Break, Numbers, Program, Tensor, error, in_parts, tolerance};

pub struct Case {
    pub plan: Plan,
    pub inputs: Vec<Tensor>,
    pub expected: Vec<Vec<f64>>,
    pub dtype: Dtype,
}

fn add_norm(dtype: Dtype, rows: i32, width: i32, joined: JoinedTerm) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let row = [rows, width];
    let [x, r] = [0; 2].map(|_| numbers.tensor(dtype, &row));
    let [w, own] = [0; 2].map(|_| numbers.tensor(F32, &[width]));
    let (sum, normed) = sum_and_norm(dtype, joined, [&x, &r, &w, &own]);
    let plan = AddNorm { dtype, rows, width, eps: 0.25, operand: Operand::Whole, joined }.plan().unwrap();
    Case { plan, inputs: vec![x, r, w, own], expected: vec![sum, normed], dtype }
}

/// The sum as `dtype` holds it, and its norm.
fn sum_and_norm(dtype: Dtype, joined: JoinedTerm, [x, r, w, own]: [&Tensor; 4]) -> (Vec<f64>, Vec<f64>) {
    let width = w.shape[0] as usize;
    let normed = |row: &[f64], w: &[f64], eps: f64| -> Vec<f64> {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / width as f64;
        row.iter().zip(w).map(|(x, w)| x / (mean + eps).sqrt() * w).collect()
    };
    let (values, w, own) = (x.to_f64(), w.to_f64(), own.to_f64());
    let term: Vec<f64> = match joined {
        JoinedTerm::Plain => values,
        JoinedTerm::Scaled(factor) => values.iter().map(|x| x * f64::from(factor)).collect(),
        JoinedTerm::Normed(eps) => {
            values.chunks_exact(width).flat_map(|row| normed(row, &own, f64::from(eps))).collect()
        }
    };
    let sum: Vec<f32> = term.iter().zip(&r.to_f64()).map(|(x, r)| (x + r) as f32).collect();
    let sum = Tensor::floats(dtype, &r.shape, &sum).to_f64();
    let of_sum = sum.chunks_exact(width).flat_map(|row| normed(row, &w, 0.25)).collect();
    (sum, of_sum)
}

/// A sum and its norm where the term comes in parts.
fn add_norm_of_parts(dtype: Dtype, rows: i32, width: i32, joined: JoinedTerm) -> Case {
    let mut case = add_norm(dtype, rows, width, joined);
    case.plan = AddNorm { dtype, rows, width, eps: 0.25, operand: Operand::Parts, joined }.plan().unwrap();
    case.inputs[0] = in_parts(&case.inputs[0], &mut Numbers(1));
    case
}

/// The sum alone.
fn add_normed(dtype: Dtype, rows: i32, width: i32, operand: Operand) -> Case {
    let joined = JoinedTerm::Normed(0.5);
    let case = add_norm(dtype, rows, width, joined);
    let [mut x, r, _, own] = <[Tensor; 4]>::try_from(case.inputs).unwrap();
    if operand == Operand::Parts {
        x = in_parts(&x, &mut Numbers(1));
    }
    let plan = AddNorm { dtype, rows, width, eps: 0.25, operand, joined }.plan_of_sum().unwrap();
    Case { plan, inputs: vec![x, r, own], expected: case.expected[..1].to_vec(), dtype }
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
    let plan = RmsNorm { dtype, rows, width, eps: 1e-5, weights }.plan().unwrap();
    Case { plan, inputs, expected, dtype }
}

fn layer_norm(dtype: Dtype, rows: i32, width: i32, has_bias: bool) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let row = [rows, width];
    let inputs =
        vec![numbers.tensor(dtype, &row), numbers.tensor(dtype, &[width]), numbers.tensor(dtype, &[width])];
    let [x, w, b] = [0, 1, 2].map(|i: usize| inputs[i].to_f64());
    let normed = x.chunks_exact(width as usize).flat_map(|row| {
        let mean = row.iter().sum::<f64>() / f64::from(width);
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(width);
        let of = |((x, w), b): ((&f64, &f64), &f64)| {
            (x - mean) / (variance + 0.25).sqrt() * w + if has_bias { *b } else { 0.0 }
        };
        row.iter().zip(&w).zip(&b).map(of).collect::<Vec<_>>()
    });
    let expected = vec![normed.collect()];
    let plan = LayerNorm { dtype, rows, width, eps: 0.25, has_bias }.plan().unwrap();
    Case { plan, inputs, expected, dtype }
}

fn norm_columns(dtype: Dtype, rows: i32, width: i32, normed: [i32; 2]) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let [first, second] = normed;
    let weights = [numbers.tensor(dtype, &[first]), numbers.tensor(dtype, &[second])];
    let x = numbers.tensor(dtype, &[rows, width]);
    let [a, b] = weights.each_ref().map(Tensor::to_f64);
    let of = |part: &[f64], w: &[f64]| -> Vec<f64> {
        let mean = part.iter().map(|x| x * x).sum::<f64>() / part.len() as f64;
        part.iter().zip(w).map(|(x, w)| x / (mean + 0.25).sqrt() * w).collect()
    };
    let values = x.to_f64();
    let expected = values.chunks_exact(width as usize).flat_map(|row| {
        let (q, rest) = row.split_at(first as usize);
        let (k, rest) = rest.split_at(second as usize);
        [of(q, &a), of(k, &b), rest.to_vec()].concat()
    });
    let expected = vec![expected.collect()];
    let operand = Operand::Whole;
    let plan = NormColumns { dtype, rows, width, normed, eps: 0.25, operand }.plan().unwrap();
    let [a, b] = weights;
    Case { plan, inputs: vec![x, a, b], expected, dtype }
}

/// Norms of columns where the rows come in parts.
fn norm_columns_of_parts(dtype: Dtype, rows: i32, width: i32, normed: [i32; 2]) -> Case {
    let mut case = norm_columns(dtype, rows, width, normed);
    let operand = Operand::Parts;
    case.plan = NormColumns { dtype, rows, width, normed, eps: 0.25, operand }.plan().unwrap();
    case.inputs[0] = in_parts(&case.inputs[0], &mut Numbers(1));
    case
}

fn add_chosen(dtype: Dtype, rows: i32, width: i32) -> Case {
    let mut numbers = Numbers(rows as u64 + width as u64);
    let (x, table) = (numbers.tensor(dtype, &[rows, width]), numbers.tensor(dtype, &[5, width]));
    let chosen: Vec<i32> = (0..rows).map(|row| row * 3 % 5).collect();
    let (values, added) = (x.to_f64(), table.to_f64());
    let rows_of = values.chunks_exact(width as usize).zip(&chosen);
    let expected = rows_of.flat_map(|(row, chosen)| {
        let added = added.iter().skip((chosen * width) as usize);
        row.iter().zip(added).map(|(x, y)| x + y).collect::<Vec<_>>()
    });
    let expected = vec![expected.collect()];
    let plan = AddChosen { dtype, rows, width }.plan().unwrap();
    Case { plan, inputs: vec![x, Tensor::ints(&chosen), table], expected, dtype }
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

fn join_rows(dtypes: [Dtype; 2], rows: i32, widths: [i32; 2]) -> Case {
    let mut numbers = Numbers(rows as u64);
    let operands = [0, 1].map(|i: usize| numbers.tensor(dtypes[i], &[rows, widths[i]]));
    let [a, b] = [0, 1].map(|i: usize| operands[i].to_f64());
    let both = a.chunks_exact(widths[0] as usize).zip(b.chunks_exact(widths[1] as usize));
    let expected = both.flat_map(|(a, b)| [a, b].concat()).collect();
    let plan = JoinRows { dtype: dtypes[0], rows, widths }.plan().unwrap();
    Case { plan, inputs: operands.into(), expected: vec![expected], dtype: dtypes[0] }
}

/// The largest error of any case, as a share of what is tolerated.
pub fn worst(name: &str, dialect: Dialect, cases: &[Case], broken: Break) -> f64 {
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
    let normed = JoinedTerm::Normed(0.5);
    vec![
        add_norm(Bf16, 3, 1032, JoinedTerm::Plain),
        add_norm(F32, 2, 520, JoinedTerm::Plain),
        add_norm(F16, 1, 64, JoinedTerm::Plain),
        add_norm(Bf16, 2, 4096, JoinedTerm::Plain),
        add_norm_of_parts(Bf16, 3, 1032, JoinedTerm::Plain),
        add_norm(Bf16, 2, 1032, JoinedTerm::Scaled(0.25)),
        add_norm_of_parts(Bf16, 2, 520, JoinedTerm::Scaled(0.25)),
        add_norm(Bf16, 3, 1032, normed),
        add_norm(F32, 2, 64, normed),
        add_norm_of_parts(Bf16, 2, 2560, normed),
    ]
}

fn normed_sums() -> Vec<Case> {
    vec![
        add_normed(Bf16, 3, 1032, Operand::Whole),
        add_normed(F32, 2, 64, Operand::Whole),
        add_normed(Bf16, 2, 2560, Operand::Parts),
    ]
}

fn norms() -> Vec<Case> {
    vec![rms_norm(Bf16, 3, 1032, 1), rms_norm(F32, 2, 64, 1), rms_norm(Bf16, 7, 96, 3)]
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

fn layer_norms() -> Vec<Case> {
    vec![
        layer_norm(Bf16, 3, 1032, true),
        layer_norm(F32, 2, 64, false),
        layer_norm(F16, 1, 520, true),
        layer_norm(Bf16, 2, 4096, false),
    ]
}

fn column_norms() -> Vec<Case> {
    vec![
        norm_columns(Bf16, 3, 1560, [1032, 264]),
        norm_columns(F32, 2, 24, [8, 8]),
        norm_columns(F16, 2, 3072, [1024, 1024]),
        norm_columns_of_parts(Bf16, 3, 1560, [1032, 264]),
    ]
}

fn chosen_sums() -> Vec<Case> {
    vec![add_chosen(Bf16, 4, 1048), add_chosen(F32, 3, 24), add_chosen(F16, 1, 64)]
}

fn narrow_products() -> Vec<Case> {
    vec![narrow(Bf16, 3, 1048, 1), narrow(F32, 2, 24, 2), narrow(F16, 1, 264, 8)]
}

#[test]
fn sums_with_gated_terms_equal_their_reference() {
    assert!(worst("add_term_cuda", Dialect::Cuda, &terms(), None) < 1.0);
    assert!(worst("add_term_metal", Dialect::Metal, &terms(), None) < 1.0);
}

fn joined_rows() -> Vec<Case> {
    vec![join_rows([Bf16, Bf16], 3, [1048, 24]), join_rows([F32, F16], 2, [8, 1032])]
}

#[test]
fn rows_side_by_side_equal_their_reference() {
    assert!(worst("join_rows_cuda", Dialect::Cuda, &joined_rows(), None) < 1.0);
    assert!(worst("join_rows_metal", Dialect::Metal, &joined_rows(), None) < 1.0);
}

#[test]
fn products_with_few_outputs_equal_their_reference() {
    assert!(worst("narrow_cuda", Dialect::Cuda, &narrow_products(), None) < 1.0);
    assert!(worst("narrow_metal", Dialect::Metal, &narrow_products(), None) < 1.0);
}

#[test]
fn layer_norms_equal_their_reference() {
    assert!(worst("layer_norm_cuda", Dialect::Cuda, &layer_norms(), None) < 1.0);
    assert!(worst("layer_norm_metal", Dialect::Metal, &layer_norms(), None) < 1.0);
}

#[test]
fn norms_of_columns_equal_their_reference() {
    assert!(worst("norm_columns_cuda", Dialect::Cuda, &column_norms(), None) < 1.0);
    assert!(worst("norm_columns_metal", Dialect::Metal, &column_norms(), None) < 1.0);
}

#[test]
fn sums_with_chosen_rows_equal_their_reference() {
    assert!(worst("add_chosen_cuda", Dialect::Cuda, &chosen_sums(), None) < 1.0);
    assert!(worst("add_chosen_metal", Dialect::Metal, &chosen_sums(), None) < 1.0);
}

#[test]
fn add_norm_equals_its_reference() {
    assert!(worst("add_norm_cuda", Dialect::Cuda, &add_norms(), None) < 1.0);
    assert!(worst("add_norm_metal", Dialect::Metal, &add_norms(), None) < 1.0);
}

#[test]
fn sums_with_normed_terms_equal_their_reference() {
    assert!(worst("add_normed_cuda", Dialect::Cuda, &normed_sums(), None) < 1.0);
    assert!(worst("add_normed_metal", Dialect::Metal, &normed_sums(), None) < 1.0);
}

#[test]
fn rms_norm_equals_its_reference() {
    assert!(worst("rms_norm_cuda", Dialect::Cuda, &norms(), None) < 1.0);
    assert!(worst("rms_norm_metal", Dialect::Metal, &norms(), None) < 1.0);
}

#[test]
fn more_rows_than_cuda_has_groups_are_left_to_mlx() {
    let (dtype, width, eps, operand) = (Bf16, 64, 1e-6, Operand::Whole);
    let plans = |rows| {
        [
            AddNorm { dtype, rows, width, eps, operand, joined: JoinedTerm::Plain }.plan(),
            RmsNorm { dtype, rows, width, eps, weights: 1 }.plan(),
            LayerNorm { dtype, rows, width, eps, has_bias: false }.plan(),
            NormColumns { dtype, rows, width, normed: [16, 8], eps, operand }.plan(),
            AddChosen { dtype, rows, width }.plan(),
            AddTerm { dtype, rows, width, term: Term::Plain }.plan(),
            Narrow { dtype, rows, inputs: width, outputs: 1 }.plan(),
            Gated { dtype, rows, width, gate: Activation::Silu, layout: GateLayout::Alone, operand }.plan(),
        ]
    };
    assert!(plans(65_535).iter().all(Option::is_some));
    assert!(plans(65_536).iter().all(Option::is_none));
}

#[test]
fn a_missing_barrier_or_a_wrong_index_is_noticed() {
    let broken = worst("add_norm_barrier", Dialect::Cuda, &add_norms(), Some(("GK_BARRIER();", "")));
    assert!(broken > 1.0, "add_norm without its barrier: {broken}");
    let broken = worst("rms_norm_weights", Dialect::Metal, &norms(), Some(("row % W", "0")));
    assert!(broken > 1.0, "a norm with another row's weights: {broken}");
    let parts = [add_norm_of_parts(Bf16, 3, 1032, JoinedTerm::Plain)];
    let broken = worst("add_norm_parts", Dialect::Metal, &parts, Some(("GK_GROUPS_Y * H", "1 * H")));
    assert!(broken > 1.0, "parts of other rows: {broken}");
    let scaled = [add_norm(Bf16, 2, 1032, JoinedTerm::Scaled(0.25))];
    let broken = worst("add_norm_factor", Dialect::Cuda, &scaled, Some(("if (FACTORED)", "if (!FACTORED)")));
    assert!(broken > 1.0, "a sum without its factor: {broken}");
    let broken = worst("add_normed_sums", Dialect::Cuda, &normed_sums(), Some(("red[RED + j]", "red[j]")));
    assert!(broken > 1.0, "a term with another sum of squares: {broken}");
    let broken = worst("add_normed_eps", Dialect::Metal, &normed_sums(), Some(("GK_FLOAT(XEPS)", "0")));
    assert!(broken > 1.0, "a term without its epsilon: {broken}");
    let broken = worst("add_term_row", Dialect::Metal, &terms(), Some(("z[row]", "z[0]")));
    assert!(broken > 1.0, "a term with another row's gate: {broken}");
    let broken = worst("narrow_output", Dialect::Cuda, &narrow_products(), Some(("(gk_long)o * K", "0")));
    assert!(broken > 1.0, "another output's weights: {broken}");
    let broken = worst("layer_norm_mean", Dialect::Cuda, &layer_norms(), Some(("z[j].v[k] -= mean;", "")));
    assert!(broken > 1.0, "a layer norm that keeps the mean: {broken}");
    let broken = worst("layer_norm_red", Dialect::Cuda, &layer_norms(), Some(("red[RED + j]", "red[j]")));
    assert!(broken > 1.0, "a layer norm with the sum in place of squares: {broken}");
    let broken = worst(
        "norm_columns_second",
        Dialect::Cuda,
        &column_norms(),
        Some(("gk_load<8>(kw + i", "gk_load<8>(qw + i")),
    );
    assert!(broken > 1.0, "keys with the weights of queries: {broken}");
    let broken = worst("norm_columns_rest", Dialect::Metal, &column_norms(), Some(("part < 2", "part < 3")));
    assert!(broken > 1.0, "values that are normed: {broken}");
    let broken = worst("add_chosen_row", Dialect::Metal, &chosen_sums(), Some(("chosen[row]", "row % 5")));
    assert!(broken > 1.0, "a row that another chose: {broken}");
}
