//! The table of architectures.

use super::names::*;
use super::{Architecture, Epsilon, Extra, Norms, Range, RotaryRows, ValueHeads};

const PLAIN: Architecture = Architecture {
    name: "",
    model_type: "",
    class: "",
    rotary_rows: RotaryRows::AsPublished,
    value_heads: ValueHeads::ByKey,
    norms: Norms::AsPublished,
    epsilon: Epsilon { key: "attention.layer_norm_rms_epsilon", field: "rms_norm_eps" },
    range: Range::OfFile,
    extra: Extra::Nothing,
    prefix: "",
    names: &[],
    top: &[],
    tensors: &[],
};
const GEMMA: Architecture = Architecture { norms: Norms::PlusOne, range: Range::Bf16, ..PLAIN };
/// The key of an epsilon of norms that subtract the mean.
const LAYER_NORM: &str = "attention.layer_norm_epsilon";
/// Gated delta rules between layers of attention. Norms have their one, as in checkpoints that mlx-lm wrote.
const DELTA: Architecture =
    Architecture { value_heads: ValueHeads::Tiled, prefix: "language_model.", tensors: DECAYS, ..PLAIN };
const DEEPSEEK: Architecture = Architecture {
    name: "deepseek2",
    range: Range::Bf16,
    extra: Extra::DeepSeek,
    names: &[LATENT_ATTENTION, EXPERTS, SHARED_EXPERTS],
    tensors: CORRECTION,
    ..PLAIN
};

/// Every architecture. [`Architecture::of`] tells models apart that share one of these names.
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
        names: &[EXPERTS],
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
        names: &[GEMMA_NORMS],
        ..GEMMA
    },
    Architecture {
        name: "gemma3",
        model_type: "gemma3_text",
        class: "Gemma3ForCausalLM",
        extra: Extra::Gemma3,
        names: &[GEMMA_NORMS],
        ..GEMMA
    },
    Architecture {
        name: "phi3",
        model_type: "phi3",
        class: "Phi3ForCausalLM",
        names: &[&[("ffn_up", "mlp.gate_up_proj")]],
        ..PLAIN
    },
    Architecture {
        name: "gpt-oss",
        model_type: "gpt_oss",
        class: "GptOssForCausalLM",
        range: Range::Bf16,
        extra: Extra::GptOss,
        names: &[GPT_OSS],
        tensors: &[("attn_sinks.weight", "self_attn.sinks")],
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
        names: &[LATE_NORMS],
        ..PLAIN
    },
    Architecture {
        name: "seed_oss",
        model_type: "seed_oss",
        class: "SeedOssForCausalLM",
        extra: Extra::SeedOss,
        names: &[LATE_NORMS],
        ..PLAIN
    },
    Architecture {
        name: "ernie4_5",
        model_type: "ernie4_5",
        class: "Ernie4_5ForCausalLM",
        extra: Extra::Ernie,
        ..PLAIN
    },
    Architecture {
        name: "qwen2moe",
        model_type: "qwen2_moe",
        class: "Qwen2MoeForCausalLM",
        extra: Extra::Qwen2Experts,
        names: &[EXPERTS, SHARED_EXPERT],
        ..PLAIN
    },
    Architecture {
        name: "glm4",
        model_type: "glm4",
        class: "Glm4ForCausalLM",
        range: Range::Bf16,
        extra: Extra::Glm4,
        names: &[GLM4],
        ..PLAIN
    },
    Architecture {
        name: "glm4moe",
        model_type: "glm4_moe",
        class: "Glm4MoeForCausalLM",
        range: Range::Bf16,
        extra: Extra::Glm4Experts,
        names: &[POST_ATTENTION, EXPERTS, SHARED_EXPERTS],
        tensors: CORRECTION,
        ..PLAIN
    },
    Architecture {
        name: "exaone4",
        model_type: "exaone4",
        class: "Exaone4ForCausalLM",
        extra: Extra::Exaone4,
        names: &[LATE_NORMS],
        ..PLAIN
    },
    Architecture {
        name: "command-r",
        model_type: "cohere",
        class: "CohereForCausalLM",
        epsilon: Epsilon { key: LAYER_NORM, field: "layer_norm_eps" },
        extra: Extra::Cohere,
        ..PLAIN
    },
    Architecture {
        name: "cohere2",
        model_type: "cohere2",
        class: "Cohere2ForCausalLM",
        epsilon: Epsilon { key: LAYER_NORM, field: "layer_norm_eps" },
        extra: Extra::Cohere2,
        ..PLAIN
    },
    Architecture {
        name: "starcoder2",
        model_type: "starcoder2",
        class: "Starcoder2ForCausalLM",
        epsilon: Epsilon { key: LAYER_NORM, field: "norm_epsilon" },
        extra: Extra::StarCoder2,
        names: &[STARCODER2],
        ..PLAIN
    },
    Architecture {
        name: "phi2",
        model_type: "phi",
        class: "PhiForCausalLM",
        epsilon: Epsilon { key: LAYER_NORM, field: "layer_norm_eps" },
        extra: Extra::PartialRotation,
        names: &[PHI2],
        top: &[("output_norm", "model.final_layernorm")],
        ..PLAIN
    },
    Architecture {
        name: "hunyuan-dense",
        model_type: "hunyuan_v1_dense",
        class: "HunYuanDenseV1ForCausalLM",
        extra: Extra::Hunyuan,
        names: &[HUNYUAN],
        ..PLAIN
    },
    Architecture {
        name: "mistral3",
        model_type: "mistral",
        class: "MistralForCausalLM",
        rotary_rows: RotaryRows::SideBySide,
        ..PLAIN
    },
    Architecture {
        name: "lfm2",
        model_type: "lfm2",
        class: "Lfm2ForCausalLM",
        epsilon: Epsilon { key: "attention.layer_norm_rms_epsilon", field: "norm_eps" },
        extra: Extra::Lfm2,
        names: &[LFM2],
        top: LFM2_TOP,
        ..PLAIN
    },
    Architecture {
        name: "qwen3next",
        model_type: "qwen3_next",
        class: "Qwen3NextForCausalLM",
        extra: Extra::Qwen3Next,
        names: &[POST_ATTENTION, LINEAR_ATTENTION, EXPERTS, SHARED_EXPERT],
        tensors: DECAYS,
        ..PLAIN
    },
    Architecture {
        name: "qwen35",
        model_type: "qwen3_5",
        class: "Qwen3_5ForConditionalGeneration",
        extra: Extra::Qwen35,
        names: &[POST_ATTENTION, LINEAR_ATTENTION],
        ..DELTA
    },
    Architecture {
        name: "qwen35moe",
        model_type: "qwen3_5_moe",
        class: "Qwen3_5MoeForConditionalGeneration",
        extra: Extra::Qwen35Experts,
        names: &[POST_ATTENTION, LINEAR_ATTENTION, EXPERTS, SHARED_EXPERT],
        ..DELTA
    },
    Architecture { name: "deepseek2", model_type: "deepseek_v3", class: "DeepseekV3ForCausalLM", ..DEEPSEEK },
];

/// `llama` with experts.
pub(super) const MIXTRAL: Architecture = Architecture {
    name: "llama",
    model_type: "mixtral",
    class: "MixtralForCausalLM",
    rotary_rows: RotaryRows::SideBySide,
    extra: Extra::Mixtral,
    names: &[MIXTRAL_EXPERTS],
    ..PLAIN
};

/// `mistral3` whose queries grow with their position.
pub(super) const MINISTRAL3: Architecture = Architecture {
    name: "mistral3",
    model_type: "ministral3",
    class: "Ministral3ForCausalLM",
    rotary_rows: RotaryRows::SideBySide,
    extra: Extra::Ministral3,
    ..PLAIN
};

/// `deepseek2` whose experts are chosen by probabilities.
pub(super) const DEEPSEEK_V2: Architecture =
    Architecture { model_type: "deepseek_v2", class: "DeepseekV2ForCausalLM", ..DEEPSEEK };
