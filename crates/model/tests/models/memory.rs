//! Writing keys and values never copies a pool, even while the step before still reads it.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_model::{Attending, Batch, Kernels, KvState, Segment, Table};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 4096;

/// The most that was in use during some decode steps, over what was before, in bytes.
fn growth(kernels: Kernels) -> (usize, usize) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3");
    let model = Fixture::read(&fixture).unwrap().model(kernels).unwrap();
    let mut state = KvState::new(model.blueprint(), &[BLOCKS], BLOCK_SIZE, model.dtype()).unwrap();
    let pool = state.arrays().next().unwrap().nbytes();
    mlx::synchronize().unwrap();
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    let before = mlx::memory::active_memory();
    let mut ahead: Option<Array> = None;
    for position in 0..40 {
        let table = Table { first: 0, blocks: vec![7, 3, 9] };
        let segment = Segment { first: 0, len: 1, context: position, prompt: 1, tables: vec![table] };
        let tokens = Array::from_slice(&[5], &[1]).unwrap();
        let batch = Batch { tokens, segments: vec![segment], logits_at: vec![0] };
        let logits = model.forward(&batch, &mut state).unwrap().unwrap().0;
        mlx::async_eval(std::iter::once(&logits).chain(state.arrays())).unwrap();
        match model.attending() {
            // The step before is waited for only now, when the next one is already launched.
            Attending::InPlace => {
                if let Some(before) = ahead.replace(logits) {
                    before.eval().unwrap();
                }
            }
            Attending::Gathered => logits.eval().unwrap(),
        }
    }
    (mlx::memory::peak_memory().saturating_sub(before), pool)
}

#[test]
fn no_step_copies_a_pool() {
    for kernels in [Kernels::Reference, Kernels::fastest()] {
        let (grown, pool) = growth(kernels);
        assert!(grown < pool / 2, "{kernels:?}: {grown} bytes more, a pool has {pool}");
    }
}
