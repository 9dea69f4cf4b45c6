//! `config.json` and `generation_config.json` of a file's model.

use serde_json::{Map, Value, json};

use crate::architecture::{Architecture, Extra};
use crate::error::Problem;
use crate::head::Head;
use crate::metadata::{Metadata, required};
use crate::rotary::{self, RotaryTensors};
use crate::sizes::{Keys, Sizes};

/// The config of a model. `dtype`: of its floats, as configs name it.
pub fn of_model(
    head: &Head,
    architecture: &Architecture,
    rotary: &RotaryTensors,
    dtype: &str,
) -> Result<Map<String, Value>, Problem> {
    let metadata = Metadata(&head.metadata);
    let keys = Keys::new(metadata, architecture);
    let sizes = Sizes::read(keys)?;
    let embedding = head.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
    let vocabulary =
        required("token_embd.weight", embedding.and_then(|tensor| tensor.shape.first().copied()))?;
    let eps = required(
        &keys.key("attention.layer_norm_rms_epsilon"),
        keys.number("attention.layer_norm_rms_epsilon")?,
    )?;
    let has = |name: &str| head.tensors.iter().any(|tensor| tensor.name == name);
    let mut config = object(json!({
        "architectures": [architecture.class],
        "model_type": architecture.model_type,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "intermediate_size": keys.size("feed_forward_length")?,
        "vocab_size": vocabulary,
        "rms_norm_eps": short(eps),
        "rope_theta": keys.number("rope.freq_base")?.map_or(10_000.0, short),
        "max_position_embeddings": keys.size("context_length")?,
        "tie_word_embeddings": !has("output.weight"),
        "torch_dtype": dtype,
    }));
    rotary::add_to(&mut config, keys, &sizes, rotary)?;
    extra(&mut config, keys, &sizes, architecture.extra, &has)?;
    for name in ["bos", "eos"] {
        if let Some(id) = metadata.count(&format!("tokenizer.ggml.{name}_token_id"))? {
            config.insert(format!("{name}_token_id"), Value::from(id));
        }
    }
    Ok(config)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A float32 of the file as its shortest decimal: 1e-05, not 9.999999747378752e-06.
fn short(number: f64) -> f64 {
    (number as f32).to_string().parse().unwrap_or(number)
}

/// `has`: whether the file has a tensor.
fn extra(
    config: &mut Map<String, Value>,
    keys: Keys,
    sizes: &Sizes,
    extra: Extra,
    has: &dyn Fn(&str) -> bool,
) -> Result<(), Problem> {
    let fields = match extra {
        Extra::Nothing => json!({}),
        Extra::Gemma => json!({ "hidden_activation": "gelu_pytorch_tanh" }),
        Extra::Gemma2 => json!({
            "hidden_activation": "gelu_pytorch_tanh",
            "sliding_window": keys.count("attention.sliding_window")?.unwrap_or(4096),
            "attn_logit_softcapping": keys.number("attn_logit_softcapping")?.unwrap_or(50.0),
            "final_logit_softcapping": keys.number("final_logit_softcapping")?.unwrap_or(30.0),
            "query_pre_attn_scalar": query_scalar(sizes, 46),
        }),
        Extra::Gemma3 => json!({
            "hidden_activation": "gelu_pytorch_tanh",
            "sliding_window": keys.size("attention.sliding_window")?,
            "sliding_window_pattern": 6,
            "rope_local_base_freq": keys.number("rope.freq_base_swa")?.map_or(10_000.0, short),
            "query_pre_attn_scalar": query_scalar(sizes, 62),
        }),
        Extra::QwenExperts => json!({
            "num_experts": keys.size("expert_count")?,
            "num_experts_per_tok": keys.size("expert_used_count")?,
            "moe_intermediate_size": keys.size("expert_feed_forward_length")?,
            "norm_topk_prob": true,
            "decoder_sparse_step": 1,
        }),
        Extra::Mixtral => json!({
            "num_local_experts": keys.size("expert_count")?,
            "num_experts_per_tok": keys.size("expert_used_count")?,
        }),
        Extra::GptOss => json!({
            "num_local_experts": keys.size("expert_count")?,
            "num_experts_per_tok": keys.size("expert_used_count")?,
            "intermediate_size": keys.size("expert_feed_forward_length")?,
            "sliding_window": keys.size("attention.sliding_window")?,
        }),
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
    };
    config.extend(object(fields));
    Ok(())
}

fn needed(keys: Keys, name: &str) -> Result<f64, Problem> {
    required(&keys.key(name), keys.number(name)?)
}

/// What Gemma's scores are divided by the square root of. Its models of 27 billion parameters, which have `large` layers,
/// take the stream's width by head; files do not say.
///
/// Source: llama.cpp `src/models/gemma2.cpp`, `gemma3.cpp`.
fn query_scalar(sizes: &Sizes, large: usize) -> usize {
    if sizes.layers == large { sizes.hidden / sizes.heads } else { sizes.head_dim }
}
