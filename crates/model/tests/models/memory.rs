//! Writing keys, values and states never copies a pool, even while the step before still reads it.

use std::path::Path;
use std::sync::Mutex;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, FloatType};
use omnibus_model::{Batch, Kernels, KvCache, KvCacheGroup, KvPath, Segment};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 4096;

/// Held by a test that reads the process's memory counters.
static COUNTERS: Mutex<()> = Mutex::new(());

/// The most that was in use during some decode steps, over what was before, and the least pool, in bytes.
fn growth(name: &str, kernels: Kernels) -> (usize, usize) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let model = Fixture::read(&fixture).unwrap().model(kernels).unwrap();
    let groups = model.blueprint().kv_cache_groups(FloatType::F32);
    let blocks = vec![BLOCKS; groups.len()];
    let mut state = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.kv_float()).unwrap();
    let pool = state.arrays().map(Array::nbytes).min().unwrap();
    mlx::synchronize().unwrap();
    mlx::memory::clear_cache();
    mlx::memory::reset_peak_memory();
    let before = mlx::memory::active_memory();
    let mut ahead: Option<Array> = None;
    for position in 0..40 {
        let table = |group: &KvCacheGroup| {
            let blocks: &[u32] = if group.spec.kind.is_state() { &[5] } else { &[7, 3, 9] };
            let blocks = blocks.iter().copied().map(BlockId).collect();
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
        };
        let tables = groups.iter().map(table).collect();
        let segment =
            Segment { first: 0, len: 1, context: position, prompt: 1, samples: 1, adapter: None, tables };
        let tokens = Array::from_slice(&[5], &[1]).unwrap();
        let batch =
            Batch { tokens, segments: vec![segment], logits_at: vec![0], multimodal: None, hidden: None };
        let logits = model.forward(&batch, &mut state).unwrap().logits.unwrap().0;
        mlx::async_eval(std::iter::once(&logits).chain(state.arrays())).unwrap();
        match model.kv_path(model.kv_float().into(), BLOCK_SIZE) {
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
    let _counters = COUNTERS.lock().unwrap();
    for name in ["qwen3", "mamba2", "qwen3_next"] {
        for kernels in [Kernels::Mlx, Kernels::fastest()] {
            let (grown, pool) = growth(name, kernels);
            assert!(grown < pool / 2, "{name} by {kernels:?}: {grown} bytes more, a pool has {pool}");
        }
    }
}

/// Resident bytes of this process.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// A pool takes memory when blocks are written: 1 GB of them costs next to nothing, before and after some steps.
#[test]
#[cfg(target_os = "linux")]
fn unused_blocks_take_no_memory() {
    let _counters = COUNTERS.lock().unwrap();
    if !mlx::cpu::available() {
        return;
    }
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/qwen3");
    let model = Fixture::read(&fixture).unwrap().model(Kernels::fastest()).unwrap();
    let groups = model.blueprint().kv_cache_groups(FloatType::F32);
    let block_bytes: u64 = groups.iter().map(|group| group.spec.block_bytes(BLOCK_SIZE)).sum();
    let blocks = vec![((1 << 30) / block_bytes) as usize; groups.len()];
    let before = resident_bytes();
    let mut cache = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.kv_float()).unwrap();
    let table = BlockTable { blocks: vec![BlockId(7), BlockId(3)], ..BlockTable::default() };
    for context in 0..20 {
        let tables = vec![table.clone(); groups.len()];
        let segment = Segment { first: 0, len: 1, context, prompt: 1, samples: 1, adapter: None, tables };
        let tokens = Array::from_slice(&[5], &[1]).unwrap();
        let batch =
            Batch { tokens, segments: vec![segment], logits_at: vec![0], multimodal: None, hidden: None };
        model.forward(&batch, &mut cache).unwrap().logits.unwrap().0.eval().unwrap();
    }
    // Other tests of this process run at the same time.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 300 << 20, "{grown} bytes more for pools of 1 GB");
}
