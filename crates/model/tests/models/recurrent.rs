//! States of recurrences: copied with their slots, and the same bits however a sequence is cut.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_model::{Batch, GroupKind, Kernels, KvCache, Model, Segment, Table};

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
    let blocks = vec![BLOCKS; model.blueprint().kv_cache_groups(mlx::Dtype::F32).len()];
    KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.dtype()).unwrap()
}

/// Logits after the last of `tokens`.
fn step(model: &Model, state: &mut KvCache, walk: &mut Walk, tokens: &[i32]) -> Vec<f32> {
    let tables =
        model.blueprint().kv_cache_groups(mlx::Dtype::F32).into_iter().map(|group| match group.kind {
            GroupKind::State => Table { first: 0, blocks: vec![walk.slot] },
            GroupKind::Full | GroupKind::Window { .. } | GroupKind::UnquantizedPrefix { .. } => {
                Table { first: 0, blocks: (walk.first_block..BLOCKS as u32).collect() }
            }
        });
    let context = walk.computed;
    let segment = Segment { first: 0, len: tokens.len(), context, prompt: 1, tables: tables.collect() };
    walk.computed += tokens.len();
    let rows = Array::from_slice(tokens, &[tokens.len() as i32]).unwrap();
    let batch = Batch { tokens: rows, segments: vec![segment], logits_at: vec![tokens.len() - 1] };
    model.forward(&batch, state).unwrap().unwrap().0.to_vec().unwrap()
}

#[test]
fn a_copied_slot_goes_on_where_the_first_one_was() {
    for kernels in [Kernels::Mlx, Kernels::fastest()] {
        let fixture = fixture("mamba2");
        let model = fixture.model(kernels).unwrap();
        let (tokens, mut state) = (&fixture.prompts[0].tokens, state_of(&model));
        let group = model.blueprint().kv_cache_groups(mlx::Dtype::F32).len() - 1;
        let mut walk = Walk { slot: 3, first_block: 0, computed: 0 };
        step(&model, &mut state, &mut walk, &tokens[..10]);
        state.copy_blocks(group, &[(3, 9)]).unwrap();
        let first = step(&model, &mut state, &mut walk, &tokens[10..]);
        // The first sequence is over; its slot was written since.
        let mut copy = Walk { slot: 9, first_block: 0, computed: 10 };
        assert_eq!(step(&model, &mut state, &mut copy, &tokens[10..]), first, "{kernels:?}");
    }
}

#[test]
fn a_slot_that_somebody_used_before_starts_from_nothing() {
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
fn the_kernels_give_the_same_bits_however_a_sequence_is_cut() {
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
