//! Sequences of bounded memory: the first tokens and the last ones.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_model::{Batch, GroupKind, Kernels, KvCache, Model, Segment, Table};

const BLOCK_SIZE: usize = 2;
const BLOCKS: usize = 64;
const TOKENS: usize = 9;
const KEEP: usize = 3;

fn model(name: &str, kernels: Kernels) -> (Fixture, Model) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let fixture = Fixture::read(&path).unwrap();
    let model = fixture.model(kernels).unwrap();
    (fixture, model)
}

/// Logits of all tokens, computed in pieces of `sizes`; blocks behind the window are other sequences'.
fn logits(model: &Model, tokens: &[i32], sizes: &[usize]) -> Vec<f32> {
    let groups = model.blueprint().kv_cache_groups(mlx::Dtype::F32);
    let blocks = vec![BLOCKS; groups.len()];
    let mut state = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.dtype()).unwrap();
    let (mut found, mut context) = (Vec::new(), 0);
    for len in sizes.iter().copied().chain(std::iter::repeat(1)) {
        let len = len.min(tokens.len() - context);
        if len == 0 {
            break;
        }
        let table = |group: &omnibus_model::KvCacheGroup| {
            let (kept, first) = match group.kind {
                GroupKind::Window { tokens, sink_tokens } => {
                    (sink_tokens.div_ceil(BLOCK_SIZE), (context + 1).saturating_sub(tokens) / BLOCK_SIZE)
                }
                GroupKind::Full | GroupKind::UnquantizedPrefix { .. } | GroupKind::State => (0, 0),
            };
            let end = (context + len).div_ceil(BLOCK_SIZE);
            let held = (0..kept.min(first)).chain(first..end);
            // Never in order, and no two sequences' alike.
            let blocks = held.map(|block| ((block * 7 + 5) % BLOCKS) as u32).collect();
            Table { first: first.saturating_sub(kept), blocks }
        };
        let tables = groups.iter().map(table).collect();
        let segment = Segment { first: 0, len, context, prompt: tokens.len(), tables };
        let rows = Array::from_slice(&tokens[context..context + len], &[len as i32]).unwrap();
        let batch = Batch { tokens: rows, segments: vec![segment], logits_at: (0..len).collect() };
        found.extend(model.forward(&batch, &mut state).unwrap().unwrap().0.to_vec::<f32>().unwrap());
        context += len;
    }
    found
}

fn apart(found: &[f32], want: &[f32]) -> f32 {
    assert_eq!(found.len(), want.len());
    let largest = want.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
    found
        .iter()
        .zip(want)
        .fold(0f32, |worst, (a, b)| if (a - b).abs() <= worst { worst } else { (a - b).abs() })
        / largest
}

#[test]
fn both_paths_see_the_first_and_the_last_tokens() {
    let (fixture, mut reference) = model("qwen3", Kernels::Mlx);
    let tokens = [fixture.prompts[0].tokens.as_slice(), &fixture.prompts[0].decode].concat();
    let whole = logits(&reference, &tokens, &[tokens.len()]);
    reference.limit_attention_span(TOKENS, KEEP);
    let bounded = logits(&reference, &tokens, &[tokens.len()]);
    let row = whole.len() / tokens.len();
    assert!(apart(&bounded[..row * TOKENS], &whole[..row * TOKENS]) < 1e-5, "nothing is hidden at first");
    assert!(apart(&bounded, &whole) > 1e-2, "then something is");
    let mut without = model("qwen3", Kernels::Mlx).1;
    without.limit_attention_span(TOKENS - KEEP, 0);
    let without = logits(&without, &tokens, &[tokens.len()]);
    assert!(apart(&bounded, &without) > 1e-2, "the first ones are seen");
    for kernels in [Kernels::Mlx, Kernels::fastest()] {
        let mut model = model("qwen3", kernels).1;
        model.limit_attention_span(TOKENS, KEEP);
        for sizes in [&[tokens.len()][..], &[5, 7, 1, 1, 3], &[1]] {
            let off = apart(&logits(&model, &tokens, sizes), &bounded);
            assert!(off < 1e-4, "{kernels:?} in {sizes:?}: {off}");
        }
    }
}

#[test]
fn layers_that_have_a_window_keep_theirs() {
    let (_, mut model) = model("gemma3_text", Kernels::Mlx);
    let kinds = |model: &Model| -> Vec<GroupKind> {
        model.blueprint().kv_cache_groups(mlx::Dtype::F32).into_iter().map(|group| group.kind).collect()
    };
    assert_eq!(kinds(&model), [GroupKind::Full, GroupKind::Window { tokens: 8, sink_tokens: 0 }]);
    model.limit_attention_span(TOKENS, KEEP);
    let bounded = GroupKind::Window { tokens: TOKENS - KEEP, sink_tokens: KEEP };
    assert_eq!(kinds(&model), [bounded, GroupKind::Window { tokens: 8, sink_tokens: 0 }]);
}
