//! Rows in tiles, for products with packed weights.

use mlx::Dtype::{self, Bf16, F16};
use mlx::gpu::{Dialect, FewRows, MatrixUnit, WeightFormat};

use crate::emulator::{Numbers, Program, Tensor};

/// What `row_tiles` must make of rows `[rows, inputs]`, for weights of this format.
pub(crate) fn in_tiles(x: &Tensor, format: WeightFormat) -> Tensor {
    let [rows, inputs] = [x.shape[0] as usize, x.shape[1] as usize];
    let blocks = inputs.div_ceil(256) * 4;
    let mut bytes = vec![0; blocks * rows * 128];
    for row in 0..rows {
        for input in 0..inputs {
            let (product, element) = match format {
                // A lane has 16 inputs of 64, and four in a row go to a product.
                WeightFormat::Eight { .. } => {
                    let (lane, of_four) = (input % 64 / 16, input % 4);
                    (input % 128 / 64 * 4 + input % 16 / 4, 2 * lane + of_four / 2 * 8 + of_four % 2)
                }
                // A lane has 32 inputs of 128; eight of them go to two products, of which each takes two, and those four further on.
                _ => {
                    let (lane, eight, of_eight) = (input % 128 / 32, input % 32 / 8, input % 8);
                    (2 * eight + of_eight % 4 / 2, 2 * lane + of_eight % 2 * 8 + of_eight / 4)
                }
            };
            let in_block = product % 4 * 16 + element;
            let (chunk, block) = ((in_block / 8) ^ (row % 8), input / 128 * 2 + product / 4);
            let to = ((block * rows + row) * 64 + chunk * 8 + in_block % 8) * 2;
            let from = (row * inputs + input) * 2;
            bytes[to..to + 2].copy_from_slice(&x.bytes[from..from + 2]);
        }
    }
    Tensor { dtype: x.dtype, shape: vec![blocks as i32, rows as i32, 64], bytes }
}

const FOUR: WeightFormat = WeightFormat::Four { group: 32 };
const EIGHT: WeightFormat = WeightFormat::Eight { group: 32 };

fn product(dtype: Dtype, format: WeightFormat, rows: i32, inputs: i32) -> FewRows {
    let unit = MatrixUnit::Warpgroup;
    FewRows { dtype, format, rows, inputs, outputs: 64, has_bias: false, unit }
}

#[test]
fn rows_are_put_into_tiles() {
    let cases = [(Bf16, FOUR, 67, 704), (F16, FOUR, 130, 512), (Bf16, FOUR, 49, 32), (Bf16, EIGHT, 67, 320)];
    let plans: Vec<_> = cases
        .iter()
        .map(|(dtype, format, rows, inputs)| {
            (product(*dtype, *format, *rows, *inputs).row_tiles().unwrap(), vec![*dtype], None)
        })
        .collect();
    let program = Program::new("row_tiles", Dialect::Cuda, &plans);
    for (at, (dtype, format, rows, inputs)) in cases.into_iter().enumerate() {
        let x = Numbers(at as u64).tensor(dtype, &[rows, inputs]);
        let tiles = program.run(at, &plans[at].0, std::slice::from_ref(&x), 1).unwrap().pop().unwrap();
        assert_eq!(tiles.bytes, in_tiles(&x, format).bytes, "{rows} rows of {inputs}");
    }
}

#[test]
fn one_program_puts_any_number_of_rows_into_tiles() {
    let constants = |rows| format!("{:?}", product(Bf16, FOUR, rows, 704).row_tiles().unwrap().constants);
    assert_eq!(constants(49), constants(200));
    assert!(product(Bf16, FOUR, 48, 704).row_tiles().is_none());
    assert!(product(Bf16, EIGHT, 64, 704).row_tiles().is_none());
}
