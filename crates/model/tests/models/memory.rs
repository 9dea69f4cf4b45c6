//! Writing keys, values and states never copies a pool, even while the step before still reads it.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_model::{Batch, GroupKind, Kernels, KvCache, KvCacheGroup, KvPath, Segment, Table};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 4096;

/// The most that was in use during some decode steps, over what was before, and the least pool, in bytes.
fn growth(name: &str, kernels: Kernels) -> (usize, usize) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let model = Fixture::read(&fixture).unwrap().model(kernels).unwrap();
    let groups = model.blueprint().kv_cache_groups(mlx::Dtype::F32);
    let blocks = vec![BLOCKS; groups.len()];
    let mut state = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.dtype()).unwrap();
    let pool = state.arrays().map(Array::nbytes).min().unwrap();
    mlx::synchronize().unwrap();
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    let before = mlx::memory::active_memory();
    let mut ahead: Option<Array> = None;
    for position in 0..40 {
        let table = |group: &KvCacheGroup| match group.kind {
            GroupKind::State => Table { first: 0, blocks: vec![5] },
            GroupKind::Full | GroupKind::Window { .. } | GroupKind::UnquantizedPrefix { .. } => {
                Table { first: 0, blocks: vec![7, 3, 9] }
            }
        };
        let tables = groups.iter().map(table).collect();
        let segment = Segment { first: 0, len: 1, context: position, prompt: 1, tables };
        let tokens = Array::from_slice(&[5], &[1]).unwrap();
        let batch = Batch { tokens, segments: vec![segment], logits_at: vec![0] };
        let logits = model.forward(&batch, &mut state).unwrap().unwrap().0;
        mlx::async_eval(std::iter::once(&logits).chain(state.arrays())).unwrap();
        match model.kv_path() {
            // The step before is waited for only now, when the next one is already launched.
            KvPath::Paged => {
                if let Some(before) = ahead.replace(logits) {
                    before.eval().unwrap();
                }
            }
            KvPath::Gather => logits.eval().unwrap(),
        }
    }
    (mlx::memory::peak_memory().saturating_sub(before), pool)
}

#[test]
fn no_step_copies_a_pool() {
    for name in ["qwen3", "mamba2", "qwen3_next"] {
        for kernels in [Kernels::Mlx, Kernels::fastest()] {
            let (grown, pool) = growth(name, kernels);
            assert!(grown < pool / 2, "{name} by {kernels:?}: {grown} bytes more, a pool has {pool}");
        }
    }
}
