//! The architectures that are read: llama.cpp's name, the name in `config.json`, and how their tensors differ.
//!
//! Source: llama.cpp `gguf-py/gguf/constants.py` (names) and `conversion/` (what is changed on the way into a file).

/// What the rows of a rotation's projections look like in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryRows {
    /// As in the published checkpoint.
    AsPublished,
    /// Both elements of a pair side by side.
    SideBySide,
}

/// Whether norms are stored with a one that the checkpoint leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norms {
    /// As in the published checkpoint.
    AsPublished,
    /// `weight + 1`, where the checkpoint has `weight`.
    PlusOne,
}

/// Which floats activations need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// What the file has.
    OfFile,
    /// bfloat16's: activations exceed float16.
    Bf16,
}

/// Fields of `config.json` that only some architectures have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// None.
    Nothing,
    /// Gemma's activation.
    Gemma,
    /// Windows and capped scores.
    Gemma2,
    /// Windows with a rotation of their own.
    Gemma3,
    /// Routed experts as Qwen's.
    QwenExperts,
    /// Routed experts as Mixtral's.
    Mixtral,
    /// Windows and routed experts of gpt-oss.
    GptOss,
    /// Granite's factors.
    Granite,
    /// Some layers without a rotation.
    SmolLm3,
    /// Which projections have a bias, in the words of Seed-OSS.
    SeedOss,
    /// Whether projections have a bias, in the words of ERNIE.
    Ernie,
    /// Whether projections of attention have a bias.
    AttentionBias,
}

/// An architecture.
#[derive(Debug)]
pub struct Architecture {
    /// llama.cpp's name, the prefix of its metadata.
    pub name: &'static str,
    /// `model_type`.
    pub model_type: &'static str,
    /// `architectures`.
    pub class: &'static str,
    /// Of queries and keys.
    pub rotary_rows: RotaryRows,
    /// Of all norms.
    pub norms: Norms,
    /// Of activations.
    pub range: Range,
    /// Further fields.
    pub extra: Extra,
    /// Names of tensors that differ from the common ones, or are not among them.
    pub names: &'static [(&'static str, &'static str)],
}

const PLAIN: Architecture = Architecture {
    name: "",
    model_type: "",
    class: "",
    rotary_rows: RotaryRows::AsPublished,
    norms: Norms::AsPublished,
    range: Range::OfFile,
    extra: Extra::Nothing,
    names: &[],
};
const GEMMA: Architecture = Architecture { norms: Norms::PlusOne, range: Range::Bf16, ..PLAIN };

/// Four norms around attention and MLP.
const GEMMA_NORMS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];
/// Norms behind attention and MLP.
const LATE_NORMS: &[(&str, &str)] =
    &[("post_attention_norm", "post_attention_layernorm"), ("post_ffw_norm", "post_feedforward_layernorm")];
const GPT_OSS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("attn_sinks", "self_attn.sinks"),
    ("ffn_gate_inp", "mlp.router"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
];
const QWEN_EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.switch_mlp.gate_proj"),
    ("ffn_up_exps", "mlp.switch_mlp.up_proj"),
    ("ffn_down_exps", "mlp.switch_mlp.down_proj"),
];
const MIXTRAL_EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("ffn_gate_exps", "block_sparse_moe.switch_mlp.gate_proj"),
    ("ffn_up_exps", "block_sparse_moe.switch_mlp.up_proj"),
    ("ffn_down_exps", "block_sparse_moe.switch_mlp.down_proj"),
];

/// Every architecture. Files of `llama` with experts are Mixtral's.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llama",
        model_type: "llama",
        class: "LlamaForCausalLM",
        rotary_rows: RotaryRows::SideBySide,
        ..PLAIN
    },
    Architecture { name: "qwen2", model_type: "qwen2", class: "Qwen2ForCausalLM", ..PLAIN },
    Architecture { name: "qwen3", model_type: "qwen3", class: "Qwen3ForCausalLM", ..PLAIN },
    Architecture {
        name: "qwen3moe",
        model_type: "qwen3_moe",
        class: "Qwen3MoeForCausalLM",
        extra: Extra::QwenExperts,
        names: QWEN_EXPERTS,
        ..PLAIN
    },
    Architecture {
        name: "gemma",
        model_type: "gemma",
        class: "GemmaForCausalLM",
        extra: Extra::Gemma,
        ..GEMMA
    },
    Architecture {
        name: "gemma2",
        model_type: "gemma2",
        class: "Gemma2ForCausalLM",
        extra: Extra::Gemma2,
        names: GEMMA_NORMS,
        ..GEMMA
    },
    Architecture {
        name: "gemma3",
        model_type: "gemma3_text",
        class: "Gemma3ForCausalLM",
        extra: Extra::Gemma3,
        names: GEMMA_NORMS,
        ..GEMMA
    },
    Architecture {
        name: "phi3",
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        names: &[("ffn_up", "mlp.gate_up_proj")],
        ..PLAIN
    },
    Architecture {
        name: "gpt-oss",
        model_type: "gpt_oss",
        class: "GptOssForCausalLM",
        range: Range::Bf16,
        extra: Extra::GptOss,
        names: GPT_OSS,
        ..PLAIN
    },
    Architecture {
        name: "granite",
        model_type: "granite",
        class: "GraniteForCausalLM",
        rotary_rows: RotaryRows::SideBySide,
        extra: Extra::Granite,
        ..PLAIN
    },
    Architecture {
        name: "smollm3",
        model_type: "smollm3",
        class: "SmolLM3ForCausalLM",
        rotary_rows: RotaryRows::SideBySide,
        extra: Extra::SmolLm3,
        ..PLAIN
    },
    Architecture {
        name: "olmo2",
        model_type: "olmo2",
        class: "Olmo2ForCausalLM",
        extra: Extra::AttentionBias,
        names: LATE_NORMS,
        ..PLAIN
    },
    Architecture {
        name: "seed_oss",
        model_type: "seed_oss",
        class: "SeedOssForCausalLM",
        extra: Extra::SeedOss,
        names: LATE_NORMS,
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5",
        model_type: "ernie4_5",
        class: "Ernie4_5ForCausalLM",
        extra: Extra::Ernie,
        ..PLAIN
    },
];

/// `llama` with experts.
const MIXTRAL: Architecture = Architecture {
    name: "llama",
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    rotary_rows: RotaryRows::SideBySide,
    extra: Extra::Mixtral,
    names: MIXTRAL_EXPERTS,
    ..PLAIN
};

/// Parts of layers by llama.cpp's names.
const NAMES: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];
/// Tensors outside of layers.
const TOP: &[(&str, &str)] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

impl Architecture {
    /// The architecture with llama.cpp's name, for a model with so many experts.
    pub fn of(name: &str, experts: usize) -> Option<&'static Self> {
        let found = ARCHITECTURES.iter().find(|architecture| architecture.name == name)?;
        match (found.name, experts) {
            ("llama", 1..) => Some(&MIXTRAL),
            _ => Some(found),
        }
    }

    /// The module that a tensor belongs to and the last part of its name: `model.layers.3.self_attn.q_proj`, `weight`.
    pub fn module(&self, tensor: &str) -> Option<(String, &'static str)> {
        let (module, suffix) = tensor.rsplit_once('.')?;
        let suffix = ["weight", "bias"].into_iter().find(|known| *known == suffix)?;
        if let Some((_, name)) = TOP.iter().find(|(known, _)| *known == module) {
            return Some(((*name).to_owned(), suffix));
        }
        let (layer, part) = module.strip_prefix("blk.")?.split_once('.')?;
        let layer: usize = layer.parse().ok()?;
        let (_, name) = self.names.iter().chain(NAMES).find(|(known, _)| *known == part)?;
        Some((format!("model.layers.{layer}.{name}"), suffix))
    }
}
