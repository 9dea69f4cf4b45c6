//! Numbers by their places.

use mlx::Dtype::I32;
use mlx::gpu::{Dialect, TakeNumbers};

use crate::emulator::{Break, Program, Tensor};

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
