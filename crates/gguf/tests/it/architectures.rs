//! Tiny models of each architecture as files, with the names that llama.cpp's Python package gives to their tensors, become what
//! they were: every tensor and every field of the config.

use serde_json::{Map, Value, json};

use super::writer::{File, tokenized};

const NAMES: &str = include_str!("../names.json");

/// What a key holds: a field of the config as a number of things, a number, or a truth value.
enum Key {
    Count(&'static str),
    Number(&'static str),
    Truth(&'static str),
}

use Key::{Count, Number, Truth};

/// A fixture of `omnibus-model`, and what its files have beside the common keys.
struct Case {
    fixture: &'static str,
    keys: &'static [(&'static str, Key)],
    /// Further keys.
    more: fn(File, &Value) -> File,
    /// What the config has in place of fields of the fixture. Null: nothing.
    instead: fn(&Value) -> Value,
    /// What conversion makes of a tensor's numbers.
    numbers: fn(&str, Vec<f32>, &Value) -> Vec<f32>,
}

const PLAIN: Case = Case {
    fixture: "",
    keys: &[],
    more: |file, _| file,
    instead: |_| json!({}),
    numbers: |_, numbers, _| numbers,
};
const LAYER_NORM: &str = "attention.layer_norm_epsilon";
const CASES: &[Case] = &[
    Case { fixture: "mistral", numbers: pairs_side_by_side, ..PLAIN },
    Case {
        fixture: "ministral3",
        keys: &[
            ("rope.scaling.factor", Number("rope_parameters.factor")),
            (
                "rope.scaling.original_context_length",
                Count("rope_parameters.original_max_position_embeddings"),
            ),
            ("rope.scaling.yarn_beta_fast", Number("rope_parameters.beta_fast")),
            ("rope.scaling.yarn_beta_slow", Number("rope_parameters.beta_slow")),
            ("rope.scaling.yarn_log_multiplier", Number("rope_parameters.mscale_all_dim")),
            ("attention.temperature_scale", Number("rope_parameters.llama_4_scaling_beta")),
        ],
        more: |file, _| file.text("mistral3.rope.scaling.type", "yarn"),
        // Published models have no windows, and files have no place for them.
        instead: |config| {
            let mut parameters = config["rope_parameters"].clone();
            parameters.as_object_mut().unwrap().remove("type");
            json!({ "rope_parameters": parameters, "layer_types": null, "sliding_window": null })
        },
        numbers: pairs_side_by_side,
    },
    Case {
        fixture: "qwen2_moe",
        keys: &[
            ("expert_count", Count("num_experts")),
            ("expert_used_count", Count("num_experts_per_tok")),
            ("expert_feed_forward_length", Count("moe_intermediate_size")),
            ("expert_shared_feed_forward_length", Count("shared_expert_intermediate_size")),
        ],
        ..PLAIN
    },
    Case {
        fixture: "glm4",
        more: |file, _| file.number("glm4.rope.dimension_count", 8),
        instead: |_| json!({ "rope_traditional": true }),
        ..PLAIN
    },
    Case {
        fixture: "glm4_moe",
        keys: &[
            ("expert_count", Count("n_routed_experts")),
            ("expert_used_count", Count("num_experts_per_tok")),
            ("expert_feed_forward_length", Count("moe_intermediate_size")),
            ("expert_shared_count", Count("n_shared_experts")),
            ("expert_group_count", Count("n_group")),
            ("expert_group_used_count", Count("topk_group")),
            ("leading_dense_block_count", Count("first_k_dense_replace")),
            ("expert_weights_scale", Number("routed_scaling_factor")),
            ("expert_weights_norm", Truth("norm_topk_prob")),
        ],
        more: |file, _| {
            file.number("glm4moe.rope.dimension_count", 8).number("glm4moe.expert_gating_func", 2)
        },
        instead: |_| json!({ "moe_layer_freq": null }),
        ..PLAIN
    },
    Case {
        fixture: "exaone4",
        keys: &[("attention.sliding_window", Count("sliding_window"))],
        more: |file, _| file.integers("exaone4.attention.sliding_window_pattern", &[1, 1, 1, 0]),
        // Of Llama 3's scaling there is a test of its own.
        instead: |_| json!({ "rope_scaling": null }),
        ..PLAIN
    },
    Case { fixture: "exaone4.full", instead: |_| json!({ "rope_scaling": null }), ..PLAIN },
    Case {
        fixture: "cohere",
        keys: &[(LAYER_NORM, Number("layer_norm_eps")), ("logit_scale", Number("logit_scale"))],
        more: |file, _| file.text("command-r.rope.scaling.type", "none"),
        ..PLAIN
    },
    Case {
        fixture: "cohere2",
        keys: &[
            (LAYER_NORM, Number("layer_norm_eps")),
            ("logit_scale", Number("logit_scale")),
            ("attention.sliding_window", Count("sliding_window")),
        ],
        ..PLAIN
    },
    Case {
        fixture: "starcoder2",
        keys: &[(LAYER_NORM, Number("norm_epsilon"))],
        instead: |_| json!({ "use_bias": true }),
        ..PLAIN
    },
    Case {
        fixture: "phi",
        keys: &[(LAYER_NORM, Number("layer_norm_eps"))],
        more: |file, _| file.number("phi2.rope.dimension_count", 8),
        instead: |_| json!({ "rms_norm_eps": null }),
        ..PLAIN
    },
    Case {
        fixture: "hunyuan_v1_dense",
        // A file's base is stretched already.
        more: |file, config| {
            file.float("hunyuan-dense.rope.freq_base", stretched(config) as f32)
                .text("hunyuan-dense.rope.scaling.type", "none")
                .float("hunyuan-dense.rope.scaling.factor", 1.0)
        },
        instead: |config| json!({ "rope_theta": stretched(config), "rope_scaling": null }),
        ..PLAIN
    },
    Case {
        fixture: "lfm2",
        keys: &[
            ("attention.layer_norm_rms_epsilon", Number("norm_eps")),
            ("shortconv.l_cache", Count("conv_L_cache")),
        ],
        more: |file, _| {
            file.number("lfm2.feed_forward_length", 64).integers("lfm2.attention.head_count_kv", &[0, 2, 0])
        },
        instead: |_| {
            json!({
                "block_ff_dim": 64, "intermediate_size": 64, "block_auto_adjust_ff_dim": false,
                "block_multiple_of": null, "block_ffn_dim_multiplier": null
            })
        },
        ..PLAIN
    },
    Case {
        fixture: "qwen3_next",
        keys: DELTA,
        more: |file, _| {
            file.number("qwen3next.ssm.inner_size", 64).number("qwen3next.rope.dimension_count", 4)
        },
        instead: |_| json!({ "mlp_only_layers": [] }),
        numbers: |name, numbers, _| match name {
            name if name.ends_with(".A_log") => numbers.iter().map(|number| -number.exp()).collect(),
            _ => numbers,
        },
    },
    Case {
        fixture: "qwen3_5.flat",
        keys: DELTA,
        more: |file, config| delta(file, config, "qwen35"),
        numbers: tiled,
        ..PLAIN
    },
    Case {
        fixture: "qwen3_5",
        keys: DELTA,
        more: |file, config| delta(file, config, "qwen35"),
        instead: |_| json!({ "model_type": "qwen3_5" }),
        numbers: tiled,
    },
    Case {
        fixture: "qwen3_5_moe",
        keys: DELTA,
        more: |file, config| delta(file, config, "qwen35moe"),
        // It is always so.
        instead: |_| json!({ "model_type": "qwen3_5_moe", "norm_topk_prob": null }),
        numbers: tiled,
    },
    Case {
        fixture: "deepseek_v3",
        keys: &[
            ("attention.kv_lora_rank", Count("kv_lora_rank")),
            ("attention.q_lora_rank", Count("q_lora_rank")),
            ("attention.value_length_mla", Count("v_head_dim")),
            ("rope.dimension_count", Count("qk_rope_head_dim")),
            ("rope.scaling.factor", Number("rope_scaling.factor")),
            ("rope.scaling.original_context_length", Count("rope_scaling.original_max_position_embeddings")),
            ("rope.scaling.yarn_beta_fast", Number("rope_scaling.beta_fast")),
            ("rope.scaling.yarn_beta_slow", Number("rope_scaling.beta_slow")),
            ("expert_count", Count("n_routed_experts")),
            ("expert_used_count", Count("num_experts_per_tok")),
            ("expert_feed_forward_length", Count("moe_intermediate_size")),
            ("expert_shared_count", Count("n_shared_experts")),
            ("expert_group_count", Count("n_group")),
            ("expert_group_used_count", Count("topk_group")),
            ("leading_dense_block_count", Count("first_k_dense_replace")),
            ("expert_weights_scale", Number("routed_scaling_factor")),
            ("expert_weights_norm", Truth("norm_topk_prob")),
        ],
        more: |file, _| {
            file.number("deepseek2.expert_gating_func", 2)
                .number("deepseek2.attention.head_count_kv", 1)
                .number("deepseek2.attention.key_length", 32)
                .number("deepseek2.attention.value_length", 24)
                .number("deepseek2.attention.key_length_mla", 24)
                .text("deepseek2.rope.scaling.type", "yarn")
                .float("deepseek2.rope.scaling.yarn_log_multiplier", 0.08)
        },
        // Files have one of both factors.
        instead: |config| {
            let mut scaling = config["rope_scaling"].clone();
            scaling["mscale"] = scaling["mscale_all_dim"].clone();
            scaling["rope_type"] = scaling["type"].take();
            scaling.as_object_mut().unwrap().remove("type");
            json!({ "rope_scaling": scaling, "moe_layer_freq": null })
        },
        ..PLAIN
    },
];

const DELTA: &[(&str, Key)] = &[
    ("ssm.group_count", Count("linear_num_key_heads")),
    ("ssm.time_step_rank", Count("linear_num_value_heads")),
    ("ssm.state_size", Count("linear_key_head_dim")),
    ("ssm.conv_kernel", Count("linear_conv_kernel_dim")),
    ("full_attention_interval", Count("full_attention_interval")),
    // Of experts, where there are any.
    ("expert_count", Count("num_experts")),
    ("expert_used_count", Count("num_experts_per_tok")),
    ("expert_feed_forward_length", Count("moe_intermediate_size")),
    ("expert_shared_feed_forward_length", Count("shared_expert_intermediate_size")),
];

/// Keys of Qwen3.5 that are no field as it is.
fn delta(file: File, config: &Value, architecture: &str) -> File {
    let size = |name: &str| config[name].as_u64().unwrap() as u32;
    let values = size("linear_num_value_heads") * size("linear_value_head_dim");
    file.number(&format!("{architecture}.ssm.inner_size"), values)
        .number(&format!("{architecture}.rope.dimension_count"), 4)
        .integers(&format!("{architecture}.rope.dimension_sections"), &[1, 1, 0, 0])
}

/// Keys of every architecture. Those that a case has again are the case's.
const COMMON: &[(&str, Key)] = &[
    ("embedding_length", Count("hidden_size")),
    ("block_count", Count("num_hidden_layers")),
    ("feed_forward_length", Count("intermediate_size")),
    ("context_length", Count("max_position_embeddings")),
    ("attention.head_count", Count("num_attention_heads")),
    ("attention.head_count_kv", Count("num_key_value_heads")),
    ("attention.key_length", Count("head_dim")),
    ("attention.value_length", Count("head_dim")),
    ("attention.layer_norm_rms_epsilon", Number("rms_norm_eps")),
    ("rope.freq_base", Number("rope_theta")),
];
/// Fields that may be added: what models have without them, or what does not belong to the network.
const ADDED: &[&str] = &[
    "architectures",
    "torch_dtype",
    "eos_token_id",
    "head_dim",
    "max_position_embeddings",
    "tie_word_embeddings",
    "attention_bias",
    "layer_norm_bias",
    "use_qk_norm",
];

/// The base of Hunyuan's rotation with its `alpha`.
fn stretched(config: &Value) -> f64 {
    let dims = config["head_dim"].as_f64().unwrap();
    let alpha = config["rope_scaling"]["alpha"].as_f64().unwrap();
    let base = config["rope_theta"].as_f64().unwrap() * alpha.powf(dims / (dims - 2.0));
    (base as f32).to_string().parse().unwrap()
}

fn fixture(name: &str, file: &str) -> Value {
    let path = format!("{}/../model/tests/fixtures/{name}/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The text model's part of a config.
fn text_config(config: Value) -> Value {
    config.get("text_config").cloned().unwrap_or(config)
}

fn field<'a>(config: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(config, |at, name| &at[name])
}

/// Numbers that no other tensor has in this order.
fn numbers(name: &str, shape: &[u64]) -> Vec<f32> {
    let seed = name.bytes().fold(7_u64, |seed, byte| (seed * 31 + u64::from(byte)) % 65_521);
    (0..shape.iter().product()).map(|at| ((seed + at * 37) % 4093) as f32 / 64.0).collect()
}

/// Parts of equal size in another order.
fn ordered(numbers: &[f32], parts: usize, source: impl Fn(usize) -> usize) -> Vec<f32> {
    let length = numbers.len() / parts;
    (0..parts).flat_map(|part| &numbers[source(part) * length..][..length]).copied().collect()
}

/// Row `j × half + i` of each head becomes row `2i + j`.
fn pairs_side_by_side(name: &str, numbers: Vec<f32>, config: &Value) -> Vec<f32> {
    let heads = match name {
        name if name.contains(".q_proj.") => config["num_attention_heads"].as_u64(),
        name if name.contains(".k_proj.") => config["num_key_value_heads"].as_u64(),
        _ => return numbers,
    };
    let dim = config["head_dim"].as_u64().unwrap() as usize;
    let source = |row: usize| row / dim * dim + row % 2 * (dim / 2) + row % dim / 2;
    ordered(&numbers, heads.unwrap() as usize * dim, source)
}

/// Heads of values: the first one of each key's, then the second one of each. Decays as they are multiplied.
fn tiled(name: &str, numbers: Vec<f32>, config: &Value) -> Vec<f32> {
    let size = |name: &str| config[name].as_u64().unwrap() as usize;
    let (keys, values) = (size("linear_num_key_heads"), size("linear_num_value_heads"));
    let source = |head: usize| head % keys * (values / keys) + head / keys;
    let part = name.split(".linear_attn.").nth(1).unwrap_or_default();
    match part.split('.').next().unwrap() {
        "A_log" => ordered(&numbers, values, source).iter().map(|number| -number.exp()).collect(),
        "in_proj_z" | "in_proj_a" | "in_proj_b" | "dt_bias" => ordered(&numbers, values, source),
        "in_proj_qkv" | "conv1d" => {
            let rows = 2 * keys * size("linear_key_head_dim");
            let columns = numbers.len() / (rows + values * size("linear_value_head_dim"));
            let (of_keys, of_values) = numbers.split_at(rows * columns);
            [of_keys, &ordered(of_values, values, source)].concat()
        }
        "out_proj" => {
            let rows = numbers.chunks_exact(values * size("linear_value_head_dim"));
            rows.flat_map(|row| ordered(row, values, source)).collect()
        }
        _ => numbers,
    }
}

/// Axes of one element that files leave out.
fn shape_in_file(name: &str, shape: &[u64]) -> Vec<u64> {
    match shape {
        [1, columns] if name.contains(".shared_expert_gate.") => vec![*columns],
        [channels, width, 1] if name.contains("conv") => vec![*channels, *width],
        shape => shape.to_vec(),
    }
}

/// The tensors of a fixture that files have: names and shapes.
fn tensors(fixture_name: &str, names: &Value) -> Vec<(String, Vec<u64>)> {
    let rows = fixture(fixture_name, "tensors.json")["tensors"].clone();
    let row = |row: &Value| serde_json::from_value::<(String, Vec<u64>)>(json!([row[0], row[1]])).unwrap();
    let mut tensors = Vec::new();
    for (name, shape) in rows.as_array().unwrap().iter().map(row) {
        // Files of Qwen3-Next have queries, keys and values in one tensor, and gates in another.
        match name.split_once("in_proj_qkvz") {
            Some((before, after)) => {
                tensors.extend([("in_proj_qkv", 2), ("in_proj_z", 1)].map(|(part, thirds)| {
                    (format!("{before}{part}{after}"), vec![shape[0] * thirds / 3, shape[1]])
                }))
            }
            None => tensors.push((name, shape)),
        }
    }
    tensors.retain(|(name, _)| !names[name].is_null());
    tensors
}

impl Case {
    fn file(&self, config: &Value, architecture: &str, names: &Value) -> File {
        let key = |name: &str| format!("{architecture}.{name}");
        let mut file = tokenized(File::default()).text("general.architecture", architecture);
        file = (self.more)(file, config);
        for (name, of) in self.keys.iter().chain(COMMON) {
            if file.has(&key(name)) {
                continue;
            }
            let name = key(name);
            file = match of {
                Count(path) | Number(path) | Truth(path) if field(config, path).is_null() => file,
                Count(path) => file.number(&name, field(config, path).as_u64().unwrap() as u32),
                Number(path) => file.float(&name, field(config, path).as_f64().unwrap() as f32),
                Truth(path) => file.truth(&name, field(config, path).as_bool().unwrap()),
            };
        }
        if !file.has(&key("context_length")) {
            file = file.number(&key("context_length"), 256);
        }
        for (name, shape) in tensors(self.fixture, names) {
            let numbers = (self.numbers)(&name, numbers(&name, &shape), config);
            file =
                file.floats_tensor(names[&name].as_str().unwrap(), &shape_in_file(&name, &shape), &numbers);
        }
        file
    }

    fn expected(&self, config: &Value) -> Map<String, Value> {
        let mut expected = config.as_object().unwrap().clone();
        expected.extend((self.instead)(config).as_object().unwrap().clone());
        expected.retain(|_, value| !value.is_null());
        expected
    }
}

/// Whether values are equal. A number may be whole or not.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| is_same(value, other)))
        }
        _ => left == right || left.as_f64().is_some_and(|number| right.as_f64() == Some(number)),
    }
}

fn check(case: &Case) {
    let names: Value = serde_json::from_str(NAMES).unwrap();
    let model = &names[case.fixture];
    let config = text_config(fixture(case.fixture, "config.json"));
    let file = case.file(&config, model["architecture"].as_str().unwrap(), &model["names"]).write();
    let (folder, written) = file.convert();
    assert_eq!(written.changes, [""; 0], "{}", case.fixture);
    let found = folder.json("config.json");
    let expected = case.expected(&config);
    for (name, value) in &expected {
        assert!(is_same(&found[name], value), "{} `{name}`: {} for {value}", case.fixture, found[name]);
    }
    let is_known = |name: &&String| expected.contains_key(*name) || ADDED.contains(&name.as_str());
    let unknown: Vec<_> = found.as_object().unwrap().keys().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{} has {unknown:?}", case.fixture);
    for (name, shape) in tensors(case.fixture, &model["names"]) {
        let (dtype, found, bytes) = folder.tensor(&name);
        let found: Vec<u64> = found.iter().map(|axis| *axis as u64).collect();
        assert_eq!((dtype.as_str(), &found), ("F32", &shape), "{} {name}", case.fixture);
        let expected = numbers(&name, &shape);
        let found = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        // Decays were powers and are logarithms again.
        let bound = if name.ends_with(".A_log") { 1e-5 } else { 0.0 };
        let is_near = |(found, expected): (f32, &f32)| (found - expected).abs() <= bound;
        assert!(found.zip(&expected).all(is_near), "{} {name}", case.fixture);
    }
}

#[test]
fn models_as_files_become_what_they_were() {
    CASES.iter().for_each(check);
}
