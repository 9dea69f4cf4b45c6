//! Sampled tokens beside a sort of the vocabulary with the same integer weights, in both dialects.

use mlx::Dtype::{F32, I32, U32};
use mlx::gpu::{Choose, ChooseEdited, Dialect};

use crate::emulator::{Break, Numbers, Program, Tensor};

/// Temperature, `top_p`, `min_p`, share.
type Floats = [f32; 4];

/// A row's logits and parameters.
struct Row {
    logits: Vec<f32>,
    floats: Floats,
    top_k: i32,
}

fn weights(row: &Row) -> Vec<u64> {
    let top = row.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let inverse = 1.0 / row.floats[0];
    let weight = |logit: &f32| {
        let power = (logit - top) * inverse;
        if power > -21.0 { (power.exp() * 1_073_741_824.0) as u64 } else { 0 }
    };
    row.logits.iter().map(weight).collect()
}

fn part(whole: u64, share: f32) -> u64 {
    let share = u64::from((share * 16_777_216.0) as u32);
    (whole >> 24) * share + (((whole & 0xff_ffff) * share) >> 24)
}

fn expected(row: &Row) -> usize {
    let [temperature, top_p, min_p, share] = row.floats;
    let top = row.logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if temperature == 0.0 || row.top_k == 1 {
        return row.logits.iter().position(|logit| *logit == top).unwrap();
    }
    let least = if min_p > 0.0 { (min_p * 1_073_741_824.0) as u64 } else { 0 };
    let mut order: Vec<(usize, u64)> = weights(row).into_iter().enumerate().collect();
    order.retain(|(_, weight)| *weight >= least);
    order.sort_by(|(i, a), (j, b)| b.cmp(a).then(i.cmp(j)));
    if row.top_k > 0 {
        order.truncate(row.top_k as usize);
    }
    let sum = |order: &[(usize, u64)]| order.iter().map(|(_, weight)| weight).sum::<u64>();
    if top_p < 1.0 {
        let (wanted, mut before) = (part(sum(&order), top_p).max(1), 0);
        order.retain(|(_, weight)| {
            let keeps = before < wanted;
            before += weight;
            keeps
        });
    }
    order.sort_by_key(|(id, _)| *id);
    let (target, mut passed) = (part(sum(&order), share), 0);
    let chosen = order.iter().find(|(_, weight)| {
        passed += weight;
        passed > target
    });
    chosen.unwrap().0
}

/// Rows of one vocabulary, with every kind of filter; `step` makes equal logits.
fn rows(vocab: usize, step: f32, seed: u64) -> Vec<Row> {
    let mut numbers = Numbers(seed);
    let mut unit = move || numbers.below(1 << 20) as f32 / (1 << 20) as f32;
    let kinds: [(f32, f32, f32, i32); 9] = [
        (0.0, 1.0, 0.0, 0),
        (1.0, 1.0, 0.0, 0),
        (0.7, 0.8, 0.0, 20),
        (1.0, 0.9, 0.0, 0),
        (1.0, 1.0, 0.1, 0),
        (30.0, 0.95, 0.0, 0),
        (1.0, 1.0, 0.0, 3),
        (1.3, 0.5, 0.01, 700),
        (0.5, 0.999, 0.0, 1),
    ];
    let rows = kinds.map(|(temperature, top_p, min_p, top_k)| {
        let logit = |x: f32| if step > 0.0 { (x / step).round() * step } else { x };
        let logits = (0..vocab).map(|_| logit(12.0 * (unit() + unit() - 1.0))).collect();
        Row { logits, floats: [temperature, top_p, min_p, unit()], top_k }
    });
    let mut rows = Vec::from(rows);
    // Equal ones are kept in the order of ids.
    rows.push(Row { logits: vec![0.5; vocab], floats: [1.0, 1.0, 0.0, 0.9], top_k: 3 });
    rows.push(Row { logits: vec![0.5; vocab], floats: [1.0, 0.5, 0.0, 0.99], top_k: 9 });
    rows
}

fn run(program: &Program, at: usize, rows: &[Row], seed: i32) -> Result<Vec<f64>, String> {
    let vocab = rows[0].logits.len() as i32;
    let all = |of: fn(&Row) -> &[f32]| -> Vec<f32> { rows.iter().flat_map(of).copied().collect() };
    let count = rows.len() as i32;
    let inputs = [
        Tensor::floats(F32, &[count, vocab], &all(|row| &row.logits)),
        Tensor::floats(F32, &[count, 4], &all(|row| &row.floats)),
        Tensor::ints(&rows.iter().map(|row| row.top_k).collect::<Vec<i32>>()),
    ];
    program.run(at, &Choose { rows: count }.plan(), &inputs, seed).map(|made| made.last().unwrap().to_f64())
}

fn program(name: &str, dialect: Dialect, broken: Break) -> Program {
    Program::new(name, dialect, &[(Choose { rows: 9 }.plan(), vec![F32, F32, I32], broken)])
}

/// Vocabularies below and above the list's length; equal logits of few values fill the list.
const CASES: [(usize, f32); 5] = [(40, 0.0), (40, 12.0), (300, 0.25), (2600, 4.0), (4001, 0.0)];

/// Indices of the cases that are also edited.
const EDITED_CASES: [usize; 3] = [0, 2, 3];

fn holds(program: &Program, case: usize) -> bool {
    let (vocab, step) = CASES[case];
    let rows = rows(vocab, step, case as u64);
    let expected: Vec<f64> = rows.iter().map(|row| expected(row) as f64).collect();
    run(program, 0, &rows, 1).is_ok_and(|found| found == expected)
}

#[test]
fn tokens_are_those_of_a_sorted_vocabulary() {
    for dialect in [Dialect::Cuda, Dialect::Metal] {
        let program = program(&format!("choose_{dialect:?}"), dialect, None);
        for (case, (vocab, step)) in CASES.iter().enumerate() {
            assert!(holds(&program, case), "{dialect:?}: {vocab} tokens in steps of {step}");
        }
    }
}

/// What is changed in a row: tokens with their changes, and the tokens that may be chosen.
#[derive(Default)]
struct Edits {
    entries: Vec<(usize, [f32; 3])>,
    allowed: Option<Vec<bool>>,
}

/// No change, changes of many and of few tokens, and masks, in turns.
fn edits(rows: &[Row], seed: u64) -> Vec<Edits> {
    let mut numbers = Numbers(seed);
    let vocab = rows[0].logits.len();
    let mut of_row = |row: usize| {
        let mut edits = Edits::default();
        let every = [0, 2, 17][row % 3];
        if every > 0 {
            let change = |numbers: &mut Numbers| {
                [
                    numbers.below(9) as f32 - 4.0,
                    1.0 + numbers.below(3) as f32 / 2.0,
                    numbers.below(5) as f32 / 4.0,
                ]
            };
            edits.entries = (row..vocab).step_by(every).map(|token| (token, change(&mut numbers))).collect();
        }
        if row % 2 == 1 {
            edits.allowed = Some((0..vocab).map(|token| token == row || numbers.below(3) == 0).collect());
        }
        edits
    };
    (0..rows.len()).map(&mut of_row).collect()
}

fn edited(row: &Row, edits: &Edits) -> Row {
    let mut logits = row.logits.clone();
    for (token, [bias, penalty, subtract]) in &edits.entries {
        let biased = logits[*token] + bias;
        logits[*token] = (if biased > 0.0 { biased / penalty } else { biased * penalty }) - subtract;
    }
    for (logit, allowed) in logits.iter_mut().zip(edits.allowed.iter().flatten()) {
        if !allowed {
            *logit = f32::NEG_INFINITY;
        }
    }
    Row { logits, ..*row }
}

fn run_edited(program: &Program, at: usize, rows: &[Row], edits: &[Edits]) -> Result<Vec<f64>, String> {
    let (count, vocab) = (rows.len() as i32, rows[0].logits.len());
    let all = |of: fn(&Row) -> &[f32]| -> Vec<f32> { rows.iter().flat_map(of).copied().collect() };
    let (mut starts, mut tokens, mut changes, mut places) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    let (words, mut masks) = (vocab.div_ceil(32), Vec::<i32>::new());
    for edits in edits {
        tokens.extend(edits.entries.iter().map(|(token, _)| *token as i32));
        changes.extend(edits.entries.iter().flat_map(|(_, change)| *change));
        starts.push(tokens.len() as i32);
        places.push(edits.allowed.as_ref().map_or(-1, |_| (masks.len() / words) as i32));
        for word in edits.allowed.iter().flat_map(|allowed| allowed.chunks(32)) {
            let bits = word.iter().enumerate().map(|(bit, allowed)| u32::from(*allowed) << bit).sum::<u32>();
            masks.push(bits as i32);
        }
    }
    let entries = tokens.len() as i32;
    let mask_rows = (masks.len() / words) as i32;
    let inputs = [
        Tensor::floats(F32, &[count, vocab as i32], &all(|row| &row.logits)),
        Tensor::floats(F32, &[count, 4], &all(|row| &row.floats)),
        Tensor::ints(&rows.iter().map(|row| row.top_k).collect::<Vec<i32>>()),
        Tensor::ints(&starts),
        Tensor::ints(&tokens),
        Tensor::floats(F32, &[entries, 3], &changes),
        Tensor::ints(&places),
        Tensor { dtype: U32, shape: vec![mask_rows, words as i32], ..Tensor::ints(&masks) },
    ];
    program
        .run(at, &ChooseEdited { rows: count }.plan(), &inputs, 1)
        .map(|made| made.last().unwrap().to_f64())
}

fn edited_program(name: &str, dialect: Dialect, broken: Break) -> Program {
    let types = vec![F32, F32, I32, I32, I32, F32, I32, U32];
    Program::new(name, dialect, &[(ChooseEdited { rows: 9 }.plan(), types, broken)])
}

fn edits_hold(program: &Program, case: usize) -> bool {
    let (vocab, step) = CASES[case];
    let rows = rows(vocab, step, case as u64 + 9);
    let edits = edits(&rows, case as u64);
    let expected: Vec<f64> =
        rows.iter().zip(&edits).map(|(row, edits)| expected(&edited(row, edits)) as f64).collect();
    run_edited(program, 0, &rows, &edits).is_ok_and(|found| found == expected)
}

#[test]
fn edited_logits_choose_what_changed_logits_choose() {
    for dialect in [Dialect::Cuda, Dialect::Metal] {
        let program = edited_program(&format!("choose_edited_{dialect:?}"), dialect, None);
        for case in EDITED_CASES {
            assert!(edits_hold(&program, case), "{dialect:?}: case {case}");
        }
    }
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_edits_are_noticed() {
    let breaks = [
        ("(i) % 32 & 1) == 0)", "(i) % 32 & 1) == 1)"),
        ("1u << token % 32", "1u << token % 31"),
        ("const int first_edit = starts[row]", "const int first_edit = starts[0]"),
    ];
    for (at, (old, new)) in breaks.into_iter().enumerate() {
        let program = edited_program(&format!("choose_edits_broken_{at}"), Dialect::Cuda, Some((old, new)));
        let noticed = EDITED_CASES.into_iter().any(|case| !edits_hold(&program, case));
        assert!(noticed, "`{old}` was replaced, and nothing noticed");
    }
}

#[test]
fn logits_that_are_not_numbers_choose_tokens_that_exist() {
    let program = program("choose_nan", Dialect::Cuda, None);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut rows = rows(100, 0.0, 5);
        for (at, row) in rows.iter_mut().enumerate() {
            row.logits[at * 7..].fill(bad);
        }
        let tokens = run(&program, 0, &rows, 1).unwrap();
        assert!(tokens.iter().all(|token| (0.0..100.0).contains(token)), "{bad}: {tokens:?}");
    }
}

#[test]
fn parameters_out_of_range_choose_tokens_that_exist() {
    let program = program("choose_range", Dialect::Cuda, None);
    for bad in [1e-40, 1e-29, f32::MAX, f32::INFINITY, f32::NAN] {
        for place in 0..4 {
            let mut rows = rows(100, 0.0, 6);
            rows.drain(4..);
            rows.drain(..2);
            rows.iter_mut().for_each(|row| row.floats[place] = bad);
            let tokens = run(&program, 0, &rows, 1).unwrap();
            assert!(tokens.iter().all(|token| (0.0..100.0).contains(token)), "{bad} at {place}: {tokens:?}");
        }
    }
}

#[test]
#[ignore = "what other tests notice, a minute: `cargo xtask nightly --only gpu-kernels`"]
fn broken_choices_are_noticed() {
    let breaks = [
        ("(wanted - sum_above + lo - 1) / lo", "(wanted - sum_above) / lo"),
        ("q == lo && of <= middle", "q == lo && of < middle"),
        ("list_q[to] = q;", "list_q[to] = lo;"),
        ("if (c >= some) to = middle", "if (c > some) to = middle"),
        ("target -= sums[j]; ++j;", "++j;"),
        ("kept = sum_above + some * lo", "kept = sum_above"),
    ];
    for (at, (old, new)) in breaks.into_iter().enumerate() {
        let program = program(&format!("choose_broken_{at}"), Dialect::Cuda, Some((old, new)));
        assert!(
            (0..CASES.len()).any(|case| !holds(&program, case)),
            "`{old}` was replaced, and nothing noticed"
        );
    }
}
