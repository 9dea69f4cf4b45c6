//! Packed weights as numbers.

use mlx::Dtype::{self, Bf16, F16};
use mlx::gpu::{Dialect, Plan, Unpack, WeightFormat};

use crate::emulator::{Break, Numbers, Program, Tensor, error, tolerance};
use crate::linear::stored;

struct Case {
    plan: Plan,
    inputs: Vec<Tensor>,
    expected: Vec<f64>,
    dtype: Dtype,
}

fn case(dtype: Dtype, format: WeightFormat, inputs: i32, outputs: i32) -> Case {
    let mut numbers = Numbers(inputs as u64);
    let (tensors, expected) = stored(&mut numbers, dtype, format, [inputs, outputs]);
    let flat = |tensor: Tensor| Tensor { shape: vec![tensor.shape.iter().product()], ..tensor };
    let inputs: Vec<Tensor> = tensors.into_iter().map(flat).collect();
    let plan = Unpack { dtype, format, words: inputs[0].shape[0] }.plan(Dialect::Cuda).unwrap();
    Case { plan, inputs, expected, dtype }
}

fn cases() -> Vec<Case> {
    vec![
        case(Bf16, WeightFormat::Four { group: 64 }, 1088, 17),
        case(Bf16, WeightFormat::Eight { group: 32 }, 96, 5),
        case(F16, WeightFormat::Four { group: 32 }, 704, 12),
        case(F16, WeightFormat::Eight { group: 128 }, 256, 9),
        case(Bf16, WeightFormat::MxFp4, 704, 12),
        case(F16, WeightFormat::MxFp4, 64, 7),
    ]
}

/// The largest error of each case, as a share of what is tolerated.
fn errors(name: &str, broken: Break) -> Vec<f64> {
    let cases = cases();
    let types = |case: &Case| case.inputs.iter().map(|input| input.dtype).collect::<Vec<_>>();
    let plans: Vec<_> = cases.iter().map(|case| (case.plan.clone(), types(case), broken)).collect();
    let program = Program::new(name, Dialect::Cuda, &plans);
    let of = |(at, case): (usize, &Case)| {
        let Ok(mut arrays) = program.run(at, &case.plan, &case.inputs, 7) else { return f64::INFINITY };
        error(&arrays.pop().unwrap().to_f64(), &case.expected) / tolerance(case.dtype)
    };
    cases.iter().enumerate().map(of).collect()
}

#[test]
fn unpacked_weights_equal_their_reference() {
    let errors = errors("unpack", None);
    assert!(errors.iter().all(|error| *error < 1.0), "{errors:?}");
}

#[test]
fn weights_in_another_order_are_noticed() {
    let errors = errors("unpack_order", Some(("p[2], p[3], 0x5410", "p[2], p[3], 0x7632")));
    assert!(errors[0] > 1.0 && errors[2] > 1.0, "{errors:?}");
}
