//! Keys and values in 8 and 4 bits: nearly the same logits, the same by every kernel, in less memory.

use mlx::Array;
use omnibus_kv::{BlockId, BlockTable, FloatType, KvFormat};
use omnibus_model::{
    Batch, Blueprint, Kernels, KeySource, KvCache, KvStorage, Mixer, Model, Quantization, Segment,
    UnquantizedPrefix, Weights, families,
};
use serde_json::{Map, Value, json};

use crate::golden::generate;

const BLOCK_SIZE: usize = 4;
const BLOCKS: usize = 24;

fn config(head_dim: usize, layers: usize) -> Map<String, Value> {
    let config = json!({
        "model_type": "qwen3", "hidden_size": 96, "num_hidden_layers": layers, "intermediate_size": 80,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head_dim, "vocab_size": 96,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 256, "tie_word_embeddings": true,
    });
    config.as_object().unwrap().clone()
}

fn blueprint(head_dim: usize) -> Blueprint {
    families::read(&config(head_dim, 3)).unwrap()
}

/// A network with keys that are also values, and a last layer that reads them.
fn with_shared_keys(mut blueprint: Blueprint) -> Blueprint {
    let keys = [KeySource::Own, KeySource::OwnAsValues, KeySource::Layer(1)];
    for (layer, keys) in blueprint.layers.iter_mut().zip(keys) {
        let Mixer::Attention(attention) = &mut layer.mixer else { panic!("a layer of attention") };
        attention.keys = keys;
    }
    blueprint
}

fn weights(blueprint: &Blueprint) -> Weights {
    let rows = blueprint.manifest().0.into_iter().map(|(name, shape)| match shape.as_slice() {
        [_] => json!([name, shape, 1.0, 0.25]),
        [.., input] => json!([name, shape, 0.0, (3.0 / *input as f64).sqrt()]),
        [] => unreachable!("no tensor is a scalar"),
    });
    generate::weights(&json!({ "seed": 7, "tensors": rows.collect::<Vec<_>>() })).unwrap()
}

/// Logits after each of some tokens: a prompt in chunks, then token by token, beside another sequence.
fn logits(model: &Model, storage: impl Into<KvStorage>) -> Vec<f32> {
    let storage = storage.into();
    let groups = model.blueprint().kv_cache_groups(storage).len();
    let mut state = KvCache::new(model.blueprint(), &vec![BLOCKS; groups], BLOCK_SIZE, storage).unwrap();
    step_through(model, &mut state)
}

fn step_through(model: &Model, state: &mut KvCache) -> Vec<f32> {
    let groups = state.groups().len();
    let token = |sequence: usize, position: usize| 1 + ((position * 7 + sequence * 31) % 95) as i32;
    let mut found = Vec::new();
    let mut context = 0;
    for len in [7, 10, 1, 1, 3, 1] {
        let (mut tokens, mut segments) = (Vec::new(), Vec::new());
        for sequence in 0..2 {
            let blocks = (0..8).map(|block| BlockId((2 * block + sequence) as u32)).rev().collect();
            let (first, tables) =
                (tokens.len(), vec![BlockTable { blocks, ..BlockTable::default() }; groups]);
            segments.push(Segment { first, len, context, prompt: 17, samples: 1, adapter: None, tables });
            tokens.extend((context..context + len).map(|position| token(sequence, position)));
        }
        let rows = Array::from_slice(&tokens, &[tokens.len() as i32]).unwrap();
        let batch = Batch {
            tokens: rows,
            segments,
            logits_at: (0..tokens.len()).collect(),
            multimodal: None,
            hidden: None,
        };
        found.extend(model.forward(&batch, state).unwrap().logits.unwrap().0.to_vec::<f32>().unwrap());
        context += len;
    }
    found
}

/// The root of the mean square of the difference, relative to that of `want`.
fn apart(found: &[f32], want: &[f32]) -> f32 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
    let off = square(&mut found.iter().zip(want).map(|(found, want)| found - want));
    (off / square(&mut want.iter().copied())).sqrt()
}

#[test]
fn fewer_bits_give_nearly_the_same_logits_by_every_kernel() {
    for (blueprint, bits, group, near) in [
        (blueprint(64), 8, 64, 0.02),
        (blueprint(64), 4, 32, 0.3),
        (blueprint(96), 8, 32, 0.02),
        (blueprint(128), 4, 64, 0.3),
        (with_shared_keys(blueprint(64)), 8, 64, 0.02),
    ] {
        let format = blueprint.quantized_kv_format(bits, group).unwrap();
        assert_eq!(format, KvFormat::Packed { bits, group_size: group });
        let of = |kernels| {
            let weights = weights(&blueprint);
            let model = Model::build(blueprint.clone(), Quantization::default(), weights, kernels).unwrap();
            (logits(&model, model.kv_float()), logits(&model, format))
        };
        let (exact, reference) = of(Kernels::Mlx);
        let off = apart(&reference, &exact);
        assert!(off > 0.0 && off < near, "{bits} bits by MLX's operations: {off}");
        if mlx::cpu::available() {
            let (_, kernel) = of(Kernels::Cpu);
            assert!(apart(&kernel, &exact) < near, "{bits} bits by the kernel: {}", apart(&kernel, &exact));
            // A code at a border may round the other way, and the error grows through the layers.
            let off = apart(&kernel, &reference);
            assert!(off < 0.002, "{bits} bits, the kernel against MLX's operations: {off}");
        }
    }
}

#[test]
fn rows_of_the_unquantized_prefix_read_floats_and_later_rows_read_codes() {
    const TOKENS: usize = 23;
    // With one layer, keys and values do not depend on attention.
    let of = |layers| families::read(&config(64, layers)).unwrap();
    let mut cases =
        [(3, 1), (3, 9), (1, 9), (3, 17), (1, 18), (3, TOKENS)].map(|(n, start)| (of(n), start)).to_vec();
    cases.extend([1, 9, 18].map(|start| (with_shared_keys(of(3)), start)));
    for (blueprint, start) in cases {
        let layers = blueprint.layers.len();
        let format = blueprint.quantized_kv_format(4, 32).unwrap();
        let kernels = [Kernels::Mlx, Kernels::Cpu];
        for kernels in kernels.into_iter().take(if mlx::cpu::available() { 2 } else { 1 }) {
            let weights = weights(&blueprint);
            let model = Model::build(blueprint.clone(), Quantization::default(), weights, kernels).unwrap();
            let prefix = Some(UnquantizedPrefix { tokens: start, float: model.kv_float() });
            let found = logits(&model, KvStorage { format, unquantized_prefix: prefix });
            let (floats, codes) = (logits(&model, model.kv_float()), logits(&model, format));
            // Two sequences take turns.
            let mut positions = Vec::new();
            for (context, len) in [(0, 7), (7, 10), (17, 1), (18, 1), (19, 3), (22, 1)] {
                positions.extend((context..context + len).chain(context..context + len));
            }
            let vocab = found.len() / positions.len();
            let mut differs = false;
            for (row, position) in positions.into_iter().enumerate() {
                let of = |logits: &'_ [f32]| logits[row * vocab..(row + 1) * vocab].to_vec();
                if position < start {
                    assert_eq!(of(&found), of(&floats), "{kernels:?}, start {start}: position {position}");
                } else if layers == 1 {
                    assert_eq!(of(&found), of(&codes), "{kernels:?}, start {start}: position {position}");
                } else {
                    let off = apart(&of(&found), &of(&floats));
                    assert!(off < 0.4, "{kernels:?}, start {start}: position {position} is off by {off}");
                    differs |= off > 0.0;
                }
            }
            assert!(differs || layers == 1 || start == TOKENS, "later rows read no codes");
        }
    }
}

#[test]
fn memory_is_what_was_computed() {
    let blueprint = blueprint(64);
    let bytes_of = |format: KvFormat| {
        let state = KvCache::new(&blueprint, &[BLOCKS], BLOCK_SIZE, format).unwrap();
        let bytes: usize = state.arrays().map(Array::nbytes).sum();
        assert_eq!(bytes as u64, (BLOCKS as u64 + 1) * state.groups()[0].spec.block_bytes(BLOCK_SIZE));
        bytes as f32
    };
    let whole = bytes_of(KvFormat::Float(FloatType::F16));
    // 8 bits and two words for each 64 elements, of 16 bits each.
    assert_eq!(bytes_of(KvFormat::Packed { bits: 8, group_size: 64 }) / whole, 72.0 / 128.0);
    assert_eq!(bytes_of(KvFormat::Packed { bits: 4, group_size: 64 }) / whole, 40.0 / 128.0);
}

#[test]
fn groups_divide_heads_or_the_error_says_why() {
    assert_eq!(blueprint(96).quantized_kv_format(4, 64), Ok(KvFormat::Packed { bits: 4, group_size: 32 }));
    assert_eq!(blueprint(64).quantized_kv_format(4, 128), Ok(KvFormat::Packed { bits: 4, group_size: 64 }));
    assert!(blueprint(16).quantized_kv_format(4, 64).unwrap_err().contains("16 wide"));
    assert!(blueprint(64).quantized_kv_format(3, 64).unwrap_err().contains("4 or 8 bits"));
}

#[test]
fn stale_contents_of_a_pool_are_not_read() {
    let blueprint = blueprint(64);
    let format = blueprint.quantized_kv_format(4, 32).unwrap();
    for kernels in [Kernels::Mlx, Kernels::Cpu].into_iter().take(1 + usize::from(mlx::cpu::available())) {
        let weights = weights(&blueprint);
        let model = Model::build(blueprint.clone(), Quantization::default(), weights, kernels).unwrap();
        let float = model.kv_float();
        let prefix = Some(UnquantizedPrefix { tokens: 9, float });
        for storage in [float.into(), format.into(), KvStorage { format, unquantized_prefix: prefix }] {
            let groups = blueprint.kv_cache_groups(storage).len();
            let new = || KvCache::new(&blueprint, &vec![BLOCKS; groups], BLOCK_SIZE, storage).unwrap();
            let (mut clean, mut spoilt) = (new(), new());
            for group in 0..groups {
                // All ones are a NaN, as an element and as a scale.
                let content = vec![0xff; spoilt.block_bytes(group)];
                let blocks: Vec<BlockId> = (0..BLOCKS as u32).map(BlockId).collect();
                spoilt.write_blocks(group, &blocks, &[content.as_slice(); BLOCKS]).unwrap();
            }
            let same = step_through(&model, &mut clean) == step_through(&model, &mut spoilt);
            assert!(same, "{kernels:?}, {storage:?}");
        }
    }
}
