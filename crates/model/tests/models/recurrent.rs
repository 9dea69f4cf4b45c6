//! States of recurrences: copied with their slots, and the same bits for all chunk sizes.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, FloatType};
use omnibus_model::{Batch, Kernels, KvCache, KvCacheGroup, Model, Segment};

const BLOCK_SIZE: usize = 4;
const BLOCKS: usize = 16;

/// One sequence over slot `slot`, and whole blocks from `first_block` on.
struct Walk {
    slot: u32,
    first_block: u32,
    computed: usize,
}

fn fixture(name: &str) -> Fixture {
    Fixture::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap()
}

fn state_of(model: &Model) -> KvCache {
    let blocks = vec![BLOCKS; model.blueprint().kv_cache_groups(FloatType::F32).len()];
    KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.kv_float()).unwrap()
}

/// Logits after the last of `tokens`.
fn step(model: &Model, state: &mut KvCache, walk: &mut Walk, tokens: &[i32]) -> Vec<f32> {
    let table = |group: &KvCacheGroup| {
        let blocks = match group.spec.kind.is_state() {
            true => vec![BlockId(walk.slot)],
            false => (walk.first_block..BLOCKS as u32).map(BlockId).collect(),
        };
        BlockTable { blocks, ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
    };
    let tables: Vec<BlockTable> = state.groups().iter().map(table).collect();
    let context = walk.computed;
    let segment = Segment { first: 0, len: tokens.len(), context, prompt: 1, tables };
    walk.computed += tokens.len();
    let rows = Array::from_slice(tokens, &[tokens.len() as i32]).unwrap();
    let batch = Batch { tokens: rows, segments: vec![segment], logits_at: vec![tokens.len() - 1] };
    model.forward(&batch, state).unwrap().unwrap().0.to_vec().unwrap()
}

#[test]
fn a_copied_slot_continues_from_the_same_state() {
    for kernels in [Kernels::Mlx, Kernels::fastest()] {
        let fixture = fixture("mamba2");
        let model = fixture.model(kernels).unwrap();
        let (tokens, mut state) = (&fixture.prompts[0].tokens, state_of(&model));
        let group = model.blueprint().kv_cache_groups(FloatType::F32).len() - 1;
        let mut walk = Walk { slot: 3, first_block: 0, computed: 0 };
        step(&model, &mut state, &mut walk, &tokens[..10]);
        state.copy_blocks(group, &[(BlockId(3), BlockId(9))]).unwrap();
        let first = step(&model, &mut state, &mut walk, &tokens[10..]);
        // The first sequence has finished; its slot was written since.
        let mut copy = Walk { slot: 9, first_block: 0, computed: 10 };
        assert_eq!(step(&model, &mut state, &mut copy, &tokens[10..]), first, "{kernels:?}");
    }
}

#[test]
fn a_reused_slot_starts_from_zero() {
    for name in ["mamba2", "qwen3_next"] {
        for kernels in [Kernels::Mlx, Kernels::fastest()] {
            let fixture = fixture(name);
            let model = fixture.model(kernels).unwrap();
            let (tokens, mut state) = (&fixture.prompts[0].tokens, state_of(&model));
            let mut walk =
                || step(&model, &mut state, &mut Walk { slot: 2, first_block: 0, computed: 0 }, tokens);
            assert_eq!(walk(), walk(), "{name} by {kernels:?}");
        }
    }
}

#[test]
fn chunk_sizes_do_not_change_the_bits() {
    if !mlx::cpu::available() {
        return;
    }
    for name in ["mamba2", "qwen3_next"] {
        let fixture = fixture(name);
        let model = fixture.model(Kernels::Cpu).unwrap();
        let (tokens, mut state) = (&fixture.prompts[0].tokens, state_of(&model));
        let mut cut = |sizes: usize| {
            let mut walk = Walk { slot: 0, first_block: 0, computed: 0 };
            tokens.chunks(sizes).map(|chunk| step(&model, &mut state, &mut walk, chunk)).last().unwrap()
        };
        let whole = cut(tokens.len());
        for size in [1, 2, 5] {
            assert_eq!(cut(size), whole, "{name} in chunks of {size}");
        }
    }
}
