//! Rows of a table.

use mlx::Dtype::{self, Bf16, F16, F32};
use mlx::gpu::{Dialect, Embed, Plan, TableFormat};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};
use crate::linear::packed;

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    expected: Vec<f64>,
    dtype: Dtype,
}

fn case(dtype: Dtype, width: i32, format: TableFormat) -> Case {
    let mut numbers = Numbers(width as u64);
    let (rows, vocab) = (5, 11);
    let tokens: Vec<i32> = (0..rows).map(|_| numbers.below(vocab as usize) as i32).collect();
    let (table, dense) = match format {
        TableFormat::Float => {
            let table = numbers.tensor(F16, &[vocab, width]);
            let dense = table.to_f64();
            (vec![table.clone(), table.clone(), table], dense)
        }
        TableFormat::Packed { bits, group } => {
            packed(&mut numbers, Bf16, (bits as usize, group), [width, vocab])
        }
    };
    let row = |token: &i32| dense[(token * width) as usize..((token + 1) * width) as usize].to_vec();
    let expected = tokens.iter().flat_map(row).collect();
    let plan = Embed { dtype, rows, width, format }.plan().unwrap();
    Case { plan, inputs: [vec![Tensor::ints(&tokens)], table].concat(), expected, dtype }
}

fn cases() -> Vec<Case> {
    vec![
        case(Bf16, 1048, TableFormat::Float),
        case(F32, 192, TableFormat::Packed { bits: 4, group: 64 }),
        case(Bf16, 96, TableFormat::Packed { bits: 8, group: 32 }),
    ]
}

/// The largest error of any case, as a share of what is tolerated.
fn worst(name: &str, dialect: Dialect, broken: Break) -> f64 {
    let cases = cases();
    let types = |case: &Case| case.inputs.iter().map(|input| input.dtype).collect::<Vec<_>>();
    let plans: Vec<_> = cases.iter().map(|case| (case.plan.clone(), types(case), broken)).collect();
    let program = Program::new(name, dialect, &plans);
    let of = |(at, case): (usize, &Case)| {
        let Ok(mut arrays) = program.run(at, &case.plan, &case.inputs, 7) else { return f64::INFINITY };
        error(&arrays.pop().unwrap().to_f64(), &case.expected) / tolerance(case.dtype)
    };
    cases.iter().enumerate().map(of).fold(0.0, f64::max)
}

#[test]
fn rows_of_a_table_equal_their_reference() {
    assert!(worst("embed_cuda", Dialect::Cuda, None) < 1.0);
    assert!(worst("embed_metal", Dialect::Metal, None) < 1.0);
}

#[test]
fn a_wrong_row_is_noticed() {
    let broken = worst("embed_row", Dialect::Metal, Some(("tokens[row]", "tokens[0]")));
    assert!(broken > 1.0, "the first token for all: {broken}");
}
