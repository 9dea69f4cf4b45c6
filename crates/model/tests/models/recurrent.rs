//! States of recurrences: copied with their slots, and the same bits for all chunk sizes.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, FloatType};
use omnibus_model::{Batch, Kernels, KvCache, KvCacheGroup, Model, Segment};

const BLOCK_SIZE: usize = 4;
const BLOCKS: usize = 16;

/// One sequence over state slots, and whole blocks from `first_block` on.
#[derive(Clone)]
struct Walk {
    slots: Vec<u32>,
    first_block: u32,
    computed: usize,
}

impl Walk {
    fn new(slots: &[u32], first_block: u32) -> Self {
        Self { slots: slots.to_vec(), first_block, computed: 0 }
    }
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
    batch(model, state, &mut [(walk, tokens, 1)])
}

/// Logits after the last tokens of some sequences, each with how many of them are sampled, end to end.
fn batch(model: &Model, state: &mut KvCache, walks: &mut [(&mut Walk, &[i32], usize)]) -> Vec<f32> {
    let (mut rows, mut segments, mut logits_at) = (Vec::new(), Vec::new(), Vec::new());
    for (walk, tokens, samples) in walks {
        let table = |group: &KvCacheGroup| {
            let blocks = match group.spec.kind.is_state() {
                true => walk.slots.iter().copied().map(BlockId).collect(),
                false => (walk.first_block..BLOCKS as u32).map(BlockId).collect(),
            };
            BlockTable { blocks, ..BlockTable::new(group.spec.kind, BLOCK_SIZE) }
        };
        let tables: Vec<BlockTable> = state.groups().iter().map(table).collect();
        let (first, context) = (rows.len(), walk.computed);
        segments.push(Segment {
            first,
            len: tokens.len(),
            context,
            prompt: 1,
            samples: *samples,
            adapter: None,
            tables,
        });
        walk.computed += tokens.len();
        rows.extend_from_slice(tokens);
        logits_at.push(rows.len() - 1);
    }
    let tokens = Array::from_slice(&rows, &[rows.len() as i32]).unwrap();
    model
        .forward(&Batch { tokens, segments, logits_at, multimodal: None, hidden: None }, state)
        .unwrap()
        .logits
        .unwrap()
        .0
        .to_vec()
        .unwrap()
}

#[test]
fn a_copied_slot_continues_from_the_same_state() {
    for kernels in [Kernels::Mlx, Kernels::fastest()] {
        let fixture = fixture("mamba2");
        let model = fixture.model(kernels).unwrap();
        let (tokens, mut state) = (&fixture.prompts[0].tokens, state_of(&model));
        let group = model.blueprint().kv_cache_groups(FloatType::F32).len() - 1;
        let mut walk = Walk::new(&[3], 0);
        step(&model, &mut state, &mut walk, &tokens[..10]);
        state.copy_blocks(group, &[(BlockId(3), BlockId(9))]).unwrap();
        let first = step(&model, &mut state, &mut walk, &tokens[10..]);
        // The first sequence has finished; its slot was written since.
        let mut copy = Walk { computed: 10, ..Walk::new(&[9], 0) };
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
            let mut walk = || step(&model, &mut state, &mut Walk::new(&[2], 0), tokens);
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
            let mut walk = Walk::new(&[0], 0);
            tokens.chunks(sizes).map(|chunk| step(&model, &mut state, &mut walk, chunk)).last().unwrap()
        };
        let whole = cut(tokens.len());
        for size in [1, 2, 5] {
            assert_eq!(cut(size), whole, "{name} in chunks of {size}");
        }
    }
}

/// Logits after `count` tokens and one more, computed alone.
fn after(model: &Model, tokens: &[i32], count: usize) -> Vec<f32> {
    let (mut state, mut walk) = (state_of(model), Walk::new(&[0], 0));
    step(model, &mut state, &mut walk, &tokens[..count]);
    step(model, &mut state, &mut walk, &tokens[count..=count])
}

/// Rolling back to any of several samples is choosing its slot.
#[test]
fn each_sample_leaves_its_state_in_a_slot_of_its_own() {
    for name in ["mamba2", "qwen3_next"] {
        let fixture = fixture(name);
        let tokens = &fixture.prompts[0].tokens;
        for kernels in [Kernels::Mlx, Kernels::fastest()] {
            let model = fixture.model(kernels).unwrap();
            let mut state = state_of(&model);
            let (mut drafts, mut chunk, mut plain) =
                (Walk::new(&[4, 9, 2], 0), Walk::new(&[7, 1], 5), Walk::new(&[3], 10));
            step(&model, &mut state, &mut drafts, &tokens[..8]);
            step(&model, &mut state, &mut plain, &tokens[..5]);
            let mut walks = [
                (&mut chunk, &tokens[..6], 2),
                (&mut drafts, &tokens[8..11], 3),
                (&mut plain, &tokens[5..6], 1),
            ];
            batch(&model, &mut state, &mut walks);
            for (walk, slot, computed) in [
                (&drafts, 0, 9),
                (&drafts, 1, 10),
                (&drafts, 2, 11),
                (&chunk, 0, 5),
                (&chunk, 1, 6),
                (&plain, 0, 6),
            ] {
                let mut walk = Walk { slots: vec![walk.slots[slot]], computed, ..walk.clone() };
                let found = step(&model, &mut state, &mut walk, &tokens[computed..=computed]);
                let expected = after(&model, tokens, computed);
                let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                // MLX's products of one row and of several differ in their last bits.
                let bound = if kernels == Kernels::Cpu { 0.0 } else { 1e-4 };
                assert!(apart <= bound, "{name} by {kernels:?}: {apart} apart after {computed} tokens");
            }
        }
    }
}
