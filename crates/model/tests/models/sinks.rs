//! Sequences of bounded memory: the first tokens and the last ones.

use std::path::Path;

use crate::golden::Fixture;
use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, CacheKind, FloatType};
use omnibus_model::{Batch, Kernels, KvCache, KvCacheGroup, Model, Segment};

const BLOCK_SIZE: usize = 2;
const BLOCKS: usize = 64;
const TOKENS: usize = 9;
const SINKS: usize = 3;

fn model(name: &str, kernels: Kernels) -> (Fixture, Model) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let fixture = Fixture::read(&path).unwrap();
    let model = fixture.model(kernels).unwrap();
    (fixture, model)
}

/// Logits of all tokens, computed in pieces of `sizes`; blocks out of the window are reused.
fn logits(model: &Model, tokens: &[i32], sizes: &[usize]) -> Vec<f32> {
    let groups = model.blueprint().kv_cache_groups(FloatType::F32);
    let blocks = vec![BLOCKS; groups.len()];
    let mut state = KvCache::new(model.blueprint(), &blocks, BLOCK_SIZE, model.kv_float()).unwrap();
    let (mut found, mut context) = (Vec::new(), 0);
    for len in sizes.iter().copied().chain(std::iter::repeat(1)) {
        let len = len.min(tokens.len() - context);
        if len == 0 {
            break;
        }
        let table = |group: &KvCacheGroup| {
            let kind = group.spec.kind;
            let freed_blocks = kind.out_of_window_blocks(BLOCK_SIZE, context);
            let mut table = BlockTable { freed_blocks, ..BlockTable::new(kind, BLOCK_SIZE) };
            let end = kind.blocks_for(BLOCK_SIZE, context + len);
            let held = (0..table.sink_blocks.min(end)).chain(table.sink_blocks + freed_blocks..end);
            // Never in order, and no two sequences' alike.
            table.blocks = held.map(|block| BlockId(((block * 7 + 5) % BLOCKS) as u32)).collect();
            table
        };
        let tables = groups.iter().map(table).collect();
        let segment =
            Segment { first: 0, len, context, prompt: tokens.len(), samples: 1, adapter: None, tables };
        let rows = Array::from_slice(&tokens[context..context + len], &[len as i32]).unwrap();
        let batch = Batch {
            tokens: rows,
            segments: vec![segment],
            logits_at: (0..len).collect(),
            multimodal: None,
            hidden: None,
        };
        found.extend(model.forward(&batch, &mut state).unwrap().logits.unwrap().0.to_vec::<f32>().unwrap());
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
fn both_paths_attend_to_sinks_and_the_window() {
    let (fixture, mut reference) = model("qwen3", Kernels::Mlx);
    let tokens = [fixture.prompts[0].tokens.as_slice(), &fixture.prompts[0].decode].concat();
    let whole = logits(&reference, &tokens, &[tokens.len()]);
    reference.limit_attention_span(TOKENS, SINKS);
    let bounded = logits(&reference, &tokens, &[tokens.len()]);
    let row = whole.len() / tokens.len();
    assert!(
        apart(&bounded[..row * TOKENS], &whole[..row * TOKENS]) < 1e-5,
        "all tokens are visible at first"
    );
    assert!(apart(&bounded, &whole) > 1e-2, "later ones are out of the window");
    let mut without = model("qwen3", Kernels::Mlx).1;
    without.limit_attention_span(TOKENS - SINKS, 0);
    let without = logits(&without, &tokens, &[tokens.len()]);
    assert!(apart(&bounded, &without) > 1e-2, "sinks are visible");
    check("qwen3", &tokens, &bounded);
}

/// Layers that read another's keys, and a second pass that mixes its own window with all keys of the first.
#[test]
fn shared_keys_are_bounded_as_the_layer_that_wrote_them() {
    for name in ["hunyuan", "iquestloopcoder"] {
        let (fixture, mut reference) = model(name, Kernels::Mlx);
        let tokens = [fixture.prompts[0].tokens.as_slice(), &fixture.prompts[0].decode].concat();
        let whole = logits(&reference, &tokens, &[tokens.len()]);
        reference.limit_attention_span(TOKENS, SINKS);
        let bounded = logits(&reference, &tokens, &[tokens.len()]);
        assert!(apart(&bounded, &whole) > 1e-3, "{name}: later ones are out of the window");
        check(name, &tokens, &bounded);
    }
}

/// The logits of a bounded model, by all kernels and in pieces.
fn check(name: &str, tokens: &[i32], bounded: &[f32]) {
    for kernels in [Kernels::Mlx, Kernels::fastest()] {
        let mut model = model(name, kernels).1;
        model.limit_attention_span(TOKENS, SINKS);
        for sizes in [&[tokens.len()][..], &[5, 7, 1, 1, 3], &[1]] {
            let off = apart(&logits(&model, tokens, sizes), bounded);
            assert!(off < 1e-4, "{name} by {kernels:?} in {sizes:?}: {off}");
        }
    }
}

#[test]
fn layers_with_a_window_keep_it() {
    let (_, mut model) = model("gemma3_text", Kernels::Mlx);
    let kinds = |model: &Model| -> Vec<CacheKind> {
        model.blueprint().kv_cache_groups(FloatType::F32).into_iter().map(|group| group.spec.kind).collect()
    };
    assert_eq!(kinds(&model), [CacheKind::Full, CacheKind::SlidingWindow { tokens: 8, sinks: 0 }]);
    model.limit_attention_span(TOKENS, SINKS);
    let bounded = CacheKind::SlidingWindow { tokens: TOKENS - SINKS, sinks: SINKS };
    assert_eq!(kinds(&model), [bounded, CacheKind::SlidingWindow { tokens: 8, sinks: 0 }]);
}
