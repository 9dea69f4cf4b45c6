//! Numbers by their places, and columns of rows.

use mlx::Dtype::{Bf16, I32};
use mlx::gpu::{Dialect, TakeColumns, TakeNumbers};

use crate::emulator::{Break, Numbers, Program, Tensor};

/// Whether each number comes to its place.
fn is_right(name: &str, dialect: Dialect, broken: Break) -> bool {
    let numbers: Vec<i32> = (0..700).map(|number| number * 31 - 9000).collect();
    let places: Vec<i32> = (0..300).map(|place| place * 97 % 700).collect();
    let expected: Vec<i32> = places.iter().map(|place| numbers[*place as usize]).collect();
    let plan = TakeNumbers { count: 300 }.plan();
    let program = Program::new(name, dialect, &[(plan.clone(), vec![I32, I32], broken)]);
    let inputs = [Tensor::ints(&numbers), Tensor::ints(&places)];
    let arrays = program.run(0, &plan, &inputs, 3).unwrap();
    arrays[2].bytes == Tensor::ints(&expected).bytes
}

#[test]
fn numbers_come_to_their_places() {
    assert!(is_right("take_cuda", Dialect::Cuda, None));
    assert!(is_right("take_metal", Dialect::Metal, None));
}

#[test]
fn a_wrong_place_is_noticed() {
    assert!(!is_right("take_place", Dialect::Metal, Some(("x[at[i]]", "x[i]"))));
}

/// Whether each column comes to its place, and `-1` to those that are not there.
fn columns_are_right(name: &str, dialect: Dialect, broken: Break) -> bool {
    const WIDTH: i32 = 70;
    let rows = Numbers(5).tensor(Bf16, &[3, WIDTH]);
    let columns: Vec<i32> = (0..300).map(|place| place * 97 % (WIDTH + 9)).collect();
    let taken = |row: &[f64]| -> Vec<f64> {
        columns.iter().map(|column| row.get(*column as usize).copied().unwrap_or(-1.0)).collect()
    };
    let expected: Vec<f64> = rows.to_f64().chunks_exact(WIDTH as usize).flat_map(taken).collect();
    let plan = TakeColumns { rows: 3, width: WIDTH, count: 300, other: -1.0 }.plan().unwrap();
    let program = Program::new(name, dialect, &[(plan.clone(), vec![Bf16, I32], broken)]);
    let arrays = program.run(0, &plan, &[rows, Tensor::ints(&columns)], 3).unwrap();
    arrays[2].to_f64() == expected
}

#[test]
fn columns_come_to_their_places() {
    assert!(columns_are_right("columns_cuda", Dialect::Cuda, None));
    assert!(columns_are_right("columns_metal", Dialect::Metal, None));
}

#[test]
fn a_column_that_is_not_there_is_noticed() {
    assert!(!columns_are_right("columns_bound", Dialect::Metal, Some(("from < W", "from <= W"))));
}
