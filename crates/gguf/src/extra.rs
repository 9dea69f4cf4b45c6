//! Fields of `config.json` that only some architectures have.

mod experts;
mod mixers;
mod windows;

use serde_json::{Map, Value, json};

use crate::architecture::Extra;
use crate::error::Problem;
use crate::fields::{joined, object, short};
use crate::metadata::required;
use crate::rotary;
use crate::sizes::{Keys, Sizes};

/// Adds the fields. `has`: whether the file has a tensor.
pub fn add_to(
    config: &mut Map<String, Value>,
    keys: Keys,
    sizes: &Sizes,
    extra: Extra,
    has: &dyn Fn(&str) -> bool,
) -> Result<(), Problem> {
    let fields = match extra {
        Extra::Nothing => json!({}),
        Extra::Gemma => json!({ "hidden_activation": "gelu_pytorch_tanh" }),
        Extra::Gemma2 => windows::gemma2(keys, sizes)?,
        Extra::Gemma3 => windows::gemma3(keys, sizes)?,
        Extra::QwenExperts => experts::qwen3(keys)?,
        Extra::Mixtral => experts::mixtral(keys)?,
        Extra::GptOss => experts::gpt_oss(keys)?,
        Extra::Granite => json!({
            "attention_multiplier": short(needed(keys, "attention.scale")?),
            "embedding_multiplier": short(needed(keys, "embedding_scale")?),
            "residual_multiplier": short(needed(keys, "residual_scale")?),
            "logits_scaling": short(needed(keys, "logit_scale")?),
            "attention_bias": has("blk.0.attn_q.bias"),
            "mlp_bias": has("blk.0.ffn_up.bias"),
        }),
        // Files do not say which layers; llama.cpp leaves out every fourth, too.
        Extra::SmolLm3 => json!({ "no_rope_layer_interval": 4 }),
        Extra::SeedOss => json!({
            "attention_bias": has("blk.0.attn_q.bias"),
            "attention_out_bias": has("blk.0.attn_output.bias"),
            "mlp_bias": has("blk.0.ffn_up.bias"),
        }),
        Extra::Ernie => json!({ "use_bias": has("blk.0.attn_q.bias") }),
        Extra::AttentionBias => json!({ "attention_bias": has("blk.0.attn_q.bias") }),
        Extra::Qwen2Experts => experts::qwen2(keys)?,
        Extra::Glm4 => mixers::glm4(keys, sizes, has)?,
        Extra::Glm4Experts => experts::glm4(keys, sizes, has)?,
        Extra::Exaone4 => windows::exaone4(keys, sizes)?,
        Extra::Cohere => json!({
            "logit_scale": short(needed(keys, "logit_scale")?),
            "layer_norm_bias": has("blk.0.attn_norm.bias"),
            "use_qk_norm": has("blk.0.attn_q_norm.weight"),
            "attention_bias": has("blk.0.attn_q.bias"),
        }),
        Extra::Cohere2 => windows::cohere2(keys, sizes)?,
        Extra::StarCoder2 => json!({ "use_bias": has("blk.0.attn_q.bias") }),
        Extra::PartialRotation => json!({ "partial_rotary_factor": rotary::part(keys, sizes)? }),
        Extra::Hunyuan => json!({ "use_qk_norm": has("blk.0.attn_q_norm.weight") }),
        Extra::Ministral3 => mixers::ministral3(config, keys)?,
        Extra::Lfm2 => mixers::lfm2(keys, sizes, has)?,
        Extra::Qwen3Next => joined(mixers::qwen3_next(keys, sizes)?, experts::qwen3_next(keys)?),
        Extra::Qwen35 => mixers::qwen35(config, keys, sizes)?,
        Extra::Qwen35Experts => joined(mixers::qwen35(config, keys, sizes)?, experts::qwen2(keys)?),
        Extra::DeepSeek => joined(mixers::latent(config, keys, has)?, experts::deepseek(keys)?),
    };
    config.extend(object(fields));
    Ok(())
}

fn needed(keys: Keys, name: &str) -> Result<f64, Problem> {
    required(&keys.key(name), keys.number(name)?)
}
