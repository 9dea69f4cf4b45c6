//! Models as GGUF files, with llama.cpp's names and orders, give the reference's logits.

use std::path::Path;

use mlx::Array;
use omnibus_gguf::Gguf;
use omnibus_model::Kernels;
use serde_json::Value;

use crate::cores;
use crate::golden::{Fixture, ways};

#[path = "../../../gguf/tests/it/writer.rs"]
#[allow(dead_code, reason = "the tests of `omnibus-gguf` need more")]
mod writer;

/// A fixture, llama.cpp's name of its architecture, and what differs in its files.
struct Case {
    fixture: &'static str,
    name: &'static str,
    /// Whether the elements of a rotated pair are side by side.
    side_by_side: bool,
    /// What is added to norms.
    norm: f32,
    /// Keys with fields of the config: whole numbers.
    numbers: &'static [(&'static str, &'static str)],
    /// Others.
    floats: &'static [(&'static str, &'static str)],
    /// Tensors beside the common ones.
    tensors: &'static [(&'static str, &'static str)],
}

const PLAIN: Case =
    Case { fixture: "", name: "", side_by_side: false, norm: 0.0, numbers: &[], floats: &[], tensors: &[] };
const LOCAL_EXPERTS: &[(&str, &str)] = &[
    ("expert_count", "num_local_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "intermediate_size"),
    ("attention.sliding_window", "sliding_window"),
    ("rope.scaling.original_context_length", "rope_scaling.original_max_position_embeddings"),
];
const LATE_NORMS: &[(&str, &str)] =
    &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")];
const CASES: &[Case] = &[
    Case { fixture: "llama", name: "llama", side_by_side: true, ..PLAIN },
    Case { fixture: "qwen2", name: "qwen2", ..PLAIN },
    Case { fixture: "qwen3", name: "qwen3", ..PLAIN },
    Case {
        fixture: "mixtral",
        name: "llama",
        side_by_side: true,
        numbers: &[("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok")],
        tensors: &[
            ("block_sparse_moe.gate", "ffn_gate_inp"),
            ("block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps"),
            ("block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps"),
            ("block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps"),
        ],
        ..PLAIN
    },
    Case { fixture: "gemma", name: "gemma", norm: 1.0, ..PLAIN },
    Case {
        fixture: "phi3",
        name: "phi3",
        numbers: &[("rope.scaling.original_context_length", "original_max_position_embeddings")],
        tensors: &[("mlp.gate_up_proj", "ffn_up")],
        ..PLAIN
    },
    Case {
        fixture: "gpt_oss",
        name: "gpt-oss",
        numbers: LOCAL_EXPERTS,
        floats: &[("rope.scaling.factor", "rope_scaling.factor")],
        tensors: &[
            ("post_attention_layernorm", "post_attention_norm"),
            ("self_attn.sinks", "attn_sinks"),
            ("mlp.router", "ffn_gate_inp"),
            ("mlp.experts.gate_proj", "ffn_gate_exps"),
            ("mlp.experts.up_proj", "ffn_up_exps"),
            ("mlp.experts.down_proj", "ffn_down_exps"),
        ],
        ..PLAIN
    },
    Case {
        fixture: "granite",
        name: "granite",
        side_by_side: true,
        floats: &[
            ("attention.scale", "attention_multiplier"),
            ("embedding_scale", "embedding_multiplier"),
            ("residual_scale", "residual_multiplier"),
            ("logit_scale", "logits_scaling"),
        ],
        ..PLAIN
    },
    Case { fixture: "smollm3", name: "smollm3", side_by_side: true, ..PLAIN },
    Case { fixture: "olmo2", name: "olmo2", tensors: LATE_NORMS, ..PLAIN },
    Case { fixture: "seed_oss", name: "seed_oss", tensors: LATE_NORMS, ..PLAIN },
    Case { fixture: "ernie4_5", name: "ernie4_5", ..PLAIN },
    Case {
        fixture: "qwen2_moe",
        name: "qwen2moe",
        numbers: &[
            ("expert_count", "num_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "moe_intermediate_size"),
            ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ],
        tensors: &[
            ("mlp.gate", "ffn_gate_inp"),
            ("mlp.switch_mlp.gate_proj", "ffn_gate_exps"),
            ("mlp.switch_mlp.up_proj", "ffn_up_exps"),
            ("mlp.switch_mlp.down_proj", "ffn_down_exps"),
            ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
            ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
            ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
            ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
        ],
        ..PLAIN
    },
    Case {
        fixture: "glm4",
        name: "glm4",
        tensors: &[
            ("post_self_attn_layernorm", "post_attention_norm"),
            ("post_mlp_layernorm", "post_ffw_norm"),
            ("mlp.gate_up_proj", "ffn_up"),
        ],
        ..PLAIN
    },
    Case {
        fixture: "cohere",
        name: "command-r",
        floats: &[("attention.layer_norm_epsilon", "layer_norm_eps"), ("logit_scale", "logit_scale")],
        ..PLAIN
    },
    Case {
        fixture: "cohere2",
        name: "cohere2",
        numbers: &[("attention.sliding_window", "sliding_window")],
        floats: &[("attention.layer_norm_epsilon", "layer_norm_eps"), ("logit_scale", "logit_scale")],
        ..PLAIN
    },
    Case {
        fixture: "starcoder2",
        name: "starcoder2",
        floats: &[("attention.layer_norm_epsilon", "norm_epsilon")],
        tensors: &[("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")],
        ..PLAIN
    },
    Case {
        fixture: "phi",
        name: "phi2",
        floats: &[("attention.layer_norm_epsilon", "layer_norm_eps")],
        tensors: &[("self_attn.dense", "attn_output"), ("mlp.fc1", "ffn_up"), ("mlp.fc2", "ffn_down")],
        ..PLAIN
    },
];

const TENSORS: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
const NUMBERS: &[(&str, &str)] = &[
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.value_length", "head_dim"),
];
const FLOATS: &[(&str, &str)] =
    &[("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")];

impl Case {
    fn tensor(&self, name: &str) -> String {
        let outer = [
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("model.final_layernorm", "output_norm"),
            ("lm_head", "output"),
        ];
        let is_bare = name.ends_with(".sinks");
        let (module, suffix) = if is_bare { (name, "weight") } else { name.rsplit_once('.').unwrap() };
        if let Some((_, name)) = outer.iter().find(|(known, _)| *known == module) {
            return format!("{name}.{suffix}");
        }
        let in_layer = module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let (layer, part) = in_layer.unwrap_or_else(|| panic!("{}: {name}", self.name));
        let known = self.tensors.iter().chain(TENSORS).find(|(known, _)| *known == part);
        format!("blk.{layer}.{}.{suffix}", known.unwrap_or_else(|| panic!("{}: {part}", self.name)).1)
    }

    /// The numbers of a tensor as the file has them.
    fn numbers(&self, name: &str, array: &Array, head_dim: usize) -> Vec<f32> {
        let numbers = array.to_vec::<f32>().unwrap();
        let is_rotated = name.contains(".q_proj.") || name.contains(".k_proj.");
        if self.norm != 0.0 && name.ends_with("norm.weight") {
            return numbers.iter().map(|number| number + self.norm).collect();
        }
        if !self.side_by_side || !is_rotated {
            return numbers;
        }
        let columns = numbers.len() / array.shape()[0] as usize;
        let row = |head: &[f32], at: usize| head[at * columns..][..columns].to_vec();
        let of_head = |head: &[f32]| {
            let half = head_dim / 2;
            (0..head_dim).flat_map(|at| row(head, at % 2 * half + at / 2)).collect::<Vec<f32>>()
        };
        numbers.chunks_exact(head_dim * columns).flat_map(of_head).collect()
    }

    fn file(&self, fixture: &Fixture) -> writer::File {
        let config = &fixture.config;
        let field = |path: &str| {
            let found = path.split('.').try_fold(&Value::Null, |at, name| match at {
                Value::Null => config.get(name),
                at => at.get(name),
            });
            found.and_then(Value::as_f64)
        };
        let key = |name: &str| format!("{}.{name}", self.name);
        let mut file = writer::tokenized(writer::File::default())
            .text("general.architecture", self.name)
            .number(&key("context_length"), 256);
        for (name, of) in NUMBERS.iter().chain(self.numbers) {
            if let Some(number) = field(of) {
                file = file.number(&key(name), number as u32);
            }
        }
        for (name, of) in FLOATS.iter().chain(self.floats) {
            if let Some(number) = field(of) {
                file = file.float(&key(name), number as f32);
            }
        }
        if config.get("rope_scaling").is_some_and(|scaling| scaling["rope_type"] == "yarn") {
            file = file.text(&key("rope.scaling.type"), "yarn");
        }
        for part in ["long", "short"] {
            let factors =
                config.get("rope_scaling").and_then(|scaling| scaling[format!("{part}_factor")].as_array());
            let Some(factors) = factors else { continue };
            let factors: Vec<f32> =
                factors.iter().filter_map(Value::as_f64).map(|factor| factor as f32).collect();
            let name = format!("rope_factors_{part}.weight");
            file = file.floats_tensor(&name, &[factors.len() as u64], &factors);
        }
        let size = |name: &str| field(name).unwrap() as usize;
        let head_dim = field("head_dim").map(|dim| dim as usize);
        let head_dim = head_dim.unwrap_or_else(|| size("hidden_size") / size("num_attention_heads"));
        if let Some(part) = field("partial_rotary_factor") {
            file = file.number(&key("rope.dimension_count"), (head_dim as f64 * part) as u32);
        }
        for (name, array) in fixture.weights().unwrap() {
            let shape: Vec<u64> = array.shape().iter().map(|axis| *axis as u64).collect();
            file = file.floats_tensor(&self.tensor(&name), &shape, &self.numbers(&name, &array, head_dim));
        }
        file
    }
}

/// Distances above their bound.
fn check(case: &Case) -> Vec<String> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut fixture = Fixture::read(&fixtures.join(case.fixture)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, case.file(&fixture).bytes()).unwrap();
    let written = Gguf::open(&path).unwrap().write(folder.path(), &mut |_| {}).unwrap();
    assert!(written.changes.is_empty(), "{}: {:?}", case.fixture, written.changes);
    let config = std::fs::read(folder.path().join("config.json")).unwrap();
    fixture.config = serde_json::from_slice(&config).unwrap();
    let weights = mlx::io::load_safetensors(folder.path().join("model.safetensors")).unwrap();
    let model = fixture.model_of(weights, Kernels::Mlx).unwrap();
    let found = ways::distances(&fixture, &model).unwrap().into_iter();
    // A norm that one was added to has lost some bits.
    let bound = fixture.bound_of(&model) * if case.norm == 0.0 { 1.0 } else { 2.0 };
    let far = found.filter(|found| found.distance > bound);
    far.map(|found| format!("{} {}: {:e}", case.fixture, found.way, found.distance)).collect()
}

#[test]
fn models_as_files_give_the_golden_logits() {
    let wrong = cores::each(CASES.iter().collect(), check).concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
