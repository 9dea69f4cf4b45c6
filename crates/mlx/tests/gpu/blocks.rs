//! Copies of blocks within a pool.

use mlx::Dtype::{I32, U32};
use mlx::gpu::{BlockCopies, Dialect};

use crate::emulator::{Program, Tensor};

#[test]
fn blocks_are_copied_and_others_stay() {
    let plan = BlockCopies { count: 2, block_bytes: 4800 }.plan().unwrap();
    let words: Vec<i32> = (0..5 * 1200).collect();
    let pool = Tensor { dtype: U32, ..Tensor::ints(&words) };
    let mut expected = words.clone();
    expected.copy_within(1200..2400, 0);
    expected.copy_within(3600..4800, 4800);
    for (name, dialect) in [("copy_cuda", Dialect::Cuda), ("copy_metal", Dialect::Metal)] {
        let program = Program::new(name, dialect, &[(plan.clone(), vec![U32, I32], None)]);
        let inputs = [pool.clone(), Tensor::ints(&[1, 0, 3, 4])];
        let arrays = program.run(0, &plan, &inputs, 1).unwrap();
        assert_eq!(arrays[0].bytes, Tensor::ints(&expected).bytes, "{name}");
    }
}

#[test]
fn blocks_of_odd_sizes_have_no_kernel() {
    assert!(BlockCopies { count: 1, block_bytes: 24 }.plan().is_none());
    assert!(BlockCopies { count: 0, block_bytes: 32 }.plan().is_none());
}
