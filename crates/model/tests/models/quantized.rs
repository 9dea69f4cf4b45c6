//! Packed weights: every mode of MLX by every kernel, layers that differ, and configs that contradict tensors.

use expect_test::{Expect, expect};
use mlx::{Array, Dtype, QuantMode, random};
use omnibus_kv::{BlockId, BlockTable, KvFormat};
use omnibus_model::{
    Batch, Kernels, KvCache, KvStorage, Model, Quantization, QuantizationChoice, Segment, Weights, families,
};
use serde_json::{Map, Value, json};

/// Every matrix has a multiple of 128 inputs.
fn config() -> Map<String, Value> {
    let config = json!({"model_type": "llama", "vocab_size": 96, "hidden_size": 128, "num_hidden_layers": 2,
        "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 1e4, "max_position_embeddings": 256, "tie_word_embeddings": false});
    config.as_object().unwrap().clone()
}

fn floats() -> Weights {
    let manifest = families::read(&config()).unwrap().manifest();
    let tensor = |(seed, (name, shape)): (usize, (&String, &Vec<usize>))| {
        let shape: Vec<i32> = shape.iter().map(|axis| *axis as i32).collect();
        let array = match *shape.as_slice() {
            [_, inputs] => {
                let bound = (3.0 / inputs as f32).sqrt();
                random::uniform(&shape, Dtype::F32, -bound..bound, &random::key(seed as u64).unwrap())
            }
            _ => Array::ones(&shape, Dtype::F32),
        };
        (name.clone(), array.unwrap())
    };
    manifest.0.iter().enumerate().map(tensor).collect()
}

/// Packs the matrices that `choice` gives a packing.
fn packed(choice: impl Fn(&str) -> Option<QuantizationChoice>) -> Weights {
    let mut weights = Weights::new();
    for (name, tensor) in floats() {
        let path = name.strip_suffix(".weight").unwrap();
        let Some(QuantizationChoice { group, bits, mode }) = choice(path).filter(|_| tensor.ndim() == 2)
        else {
            weights.insert(name, tensor);
            continue;
        };
        let parts = tensor.quantize(group, bits, mode).unwrap();
        weights.insert(format!("{path}.weight"), parts.weight);
        weights.insert(format!("{path}.scales"), parts.scales);
        weights.extend(parts.biases.map(|biases| (format!("{path}.biases"), biases)));
    }
    weights
}

fn load(section: Value, weights: Weights, kernels: Kernels) -> Result<Model, String> {
    let mut config = config();
    config.insert("quantization".to_owned(), section);
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let blueprint = families::read(&config).map_err(|error| say(&error))?;
    let quantization = Quantization::read(&config).map_err(|error| say(&error))?;
    Model::build(blueprint, quantization, weights, kernels).map_err(|error| say(&error))
}

/// Logits after each of nine tokens.
fn logits(model: &Model) -> Vec<f32> {
    let storage = KvStorage::from(KvFormat::Float(model.kv_float()));
    let mut cache = KvCache::new(model.blueprint(), &[3], 4, storage).unwrap();
    let mut table = BlockTable::new(cache.groups()[0].spec.kind, 4);
    table.blocks.extend([BlockId(2), BlockId(0), BlockId(1)]);
    let tokens = Array::from_slice(&[5, 90, 17, 3, 44, 61, 8, 29, 70], &[9]).unwrap();
    let segment =
        Segment { first: 0, len: 9, context: 0, prompt: 9, samples: 1, adapter: None, tables: vec![table] };
    let batch = Batch {
        tokens,
        segments: vec![segment],
        logits_at: (0..9).collect(),
        multimodal: None,
        hidden: None,
    };
    model.forward(&batch, &mut cache).unwrap().logits.unwrap().0.to_vec::<f32>().unwrap()
}

/// The reference is the same model of floats that MLX unpacked.
#[test]
fn every_mode_gives_the_logits_of_the_unpacked_weights() {
    const NEAR: f32 = 2e-5;
    for mode in [QuantMode::Affine, QuantMode::Mxfp4, QuantMode::Mxfp8, QuantMode::Nvfp4] {
        let (groups, widths) = QuantizationChoice::sizes(mode);
        for (group, bits) in groups.iter().flat_map(|group| widths.iter().map(move |bits| (*group, *bits))) {
            let choice = QuantizationChoice { group, bits, mode };
            let unpacked = floats().into_iter().map(|(name, tensor)| match tensor.ndim() {
                2 => (name, tensor.quantize(group, bits, mode).unwrap().dequantize(Dtype::F32).unwrap()),
                _ => (name, tensor),
            });
            let want = logits(&load(Value::Null, unpacked.collect(), Kernels::Mlx).unwrap());
            let largest = want.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
            let section = json!({"group_size": group, "bits": bits, "mode": mode.name()});
            let mut all = vec![Kernels::Mlx];
            all.extend(mlx::cpu::available().then_some(Kernels::Cpu));
            all.extend(mlx::gpu::available().then_some(Kernels::Gpu));
            for kernels in all {
                let model = load(section.clone(), packed(|_| Some(choice)), kernels).unwrap();
                let found = logits(&model);
                let off = found.iter().zip(&want).fold(0f32, |off, (a, b)| off.max((a - b).abs()));
                let near = if model.dtype() == Dtype::F32 { NEAR } else { 0.05 };
                assert!(off / largest < near, "{choice}, {kernels:?}: {off} of {largest}");
            }
        }
    }
}

fn choice(group: i32, bits: i32) -> QuantizationChoice {
    QuantizationChoice { group, bits, mode: QuantMode::Affine }
}

#[test]
fn modules_that_the_config_does_not_name_are_packed_as_their_tensors_show() {
    let weights = || {
        packed(|path| match path {
            "model.layers.0.mlp.down_proj" => Some(QuantizationChoice::default_of(QuantMode::Mxfp4)),
            "model.layers.1.self_attn.v_proj" => Some(choice(32, 6)),
            "lm_head" => None,
            _ => Some(choice(64, 4)),
        })
    };
    let named = json!({"group_size": 64, "bits": 4, "lm_head": false,
        "model.layers.0.mlp.down_proj": {"mode": "mxfp4"},
        "model.layers.1.self_attn.v_proj": {"group_size": 32, "bits": 6}});
    let by_config = logits(&load(named, weights(), Kernels::Mlx).unwrap());
    let model = load(json!({"group_size": 64, "bits": 4}), weights(), Kernels::Mlx).unwrap();
    assert_eq!(logits(&model), by_config);
}

fn check(section: Value, weights: Weights, expect: Expect) {
    let said = load(section, weights, Kernels::Mlx).err().unwrap_or_else(|| "loaded".to_owned());
    expect.assert_eq(said.split_once("; ").map_or(said.as_str(), |(first, _)| first));
}

#[test]
fn a_config_that_contradicts_the_tensors_says_how() {
    let only = |wanted: &'static str, packing: QuantizationChoice| {
        packed(move |path| (path == wanted).then_some(packing))
    };
    let path = "model.layers.0.mlp.up_proj";
    check(
        json!({"bits": 3, path: {"bits": 3}}),
        only(path, choice(64, 4)),
        expect![
            "the weights do not fit the config: of another shape: model.layers.0.mlp.up_proj.weight should be [256, 128] with 3 bits in groups of 64 by the config, but its tensors have 4 bits in groups of 64"
        ],
    );
    check(
        json!({"bits": 4, path: false}),
        only(path, choice(64, 4)),
        expect![
            "the weights do not fit the config: of another shape: model.layers.0.mlp.up_proj.weight is packed, but the config says that it is not"
        ],
    );
    check(
        Value::Null,
        only(path, choice(64, 4)),
        expect![
            "the weights do not fit the config: of another shape: model.layers.0.mlp.up_proj.weight is packed, but the config has no `quantization`"
        ],
    );
    check(
        json!({"bits": 4, "lm_head": {"bits": 4}}),
        only(path, choice(64, 4)),
        expect![
            "the weights do not fit the config: of another shape: lm_head.weight should have 4 bits in groups of 64 by the config, but there are no scales"
        ],
    );
    let mut cut = only(path, choice(64, 4));
    cut.remove(&format!("{path}.biases"));
    check(
        json!({"bits": 4}),
        cut,
        expect![
            "the weights do not fit the config: of another shape: model.layers.0.mlp.up_proj.weight should be [256, 128] with 4 bits in groups of 64 by the config, but its tensors are words [256, 16], scales [256, 2] and no biases"
        ],
    );
    let mut wrong = only(path, choice(64, 4));
    wrong.insert(format!("{path}.scales"), Array::ones(&[256, 3], Dtype::F32).unwrap());
    check(
        json!({"bits": 4}),
        wrong,
        expect![
            "the weights do not fit the config: of another shape: model.layers.0.mlp.up_proj.weight should be [256, 128] with 4 bits in groups of 64 by the config, but its tensors are words [256, 16], scales [256, 3] and biases"
        ],
    );
}
