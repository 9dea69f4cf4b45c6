//! Copies of blocks within pools.

use mlx::Dtype::{self, F32, I32, U32};
use mlx::gpu::{BlockCopies, Dialect, POOLS_MAX};

use crate::emulator::{Program, Tensor};

/// One launch over these many pools: each must have the same copies, and other blocks and pools stay.
fn check(name: &str, pools: usize, dtype: Dtype) {
    let plan = BlockCopies { count: 2, block_bytes: 4800, pools, dtype }.plan().unwrap();
    let of = |pool: usize| -> Vec<i32> { (0..5 * 1200).map(|word| word + 10_000 * pool as i32).collect() };
    for (dialect, spelling) in [(Dialect::Cuda, "cuda"), (Dialect::Metal, "metal")] {
        let name = format!("{name}_{spelling}");
        let types = [vec![dtype; POOLS_MAX], vec![I32]].concat();
        let program = Program::new(&name, dialect, &[(plan.clone(), types, None)]);
        let mut inputs: Vec<Tensor> =
            (0..POOLS_MAX).map(|pool| Tensor { dtype, ..Tensor::ints(&of(pool)) }).collect();
        inputs.push(Tensor::ints(&[1, 0, 3, 4]));
        let arrays = program.run(0, &plan, &inputs, 1).unwrap();
        for (pool, array) in arrays.iter().take(POOLS_MAX).enumerate() {
            let mut expected = of(pool);
            if pool < pools {
                expected.copy_within(1200..2400, 0);
                expected.copy_within(3600..4800, 4800);
            }
            assert_eq!(array.bytes, Tensor::ints(&expected).bytes, "{name}, pool {pool}");
        }
    }
}

#[test]
fn blocks_are_copied_and_others_stay() {
    check("copy_one", 1, U32);
    check("copy_some", 6, F32);
    check("copy_all", POOLS_MAX, U32);
}

#[test]
fn blocks_of_odd_sizes_and_too_many_pools_have_no_kernel() {
    let plan = |count, block_bytes, pools| BlockCopies { count, block_bytes, pools, dtype: U32 }.plan();
    assert!(plan(1, 32, 2).is_some());
    assert!(plan(1, 24, 2).is_none());
    assert!(plan(0, 32, 2).is_none());
    assert!(plan(1, 32, 0).is_none());
    assert!(plan(1, 32, POOLS_MAX + 1).is_none());
}
