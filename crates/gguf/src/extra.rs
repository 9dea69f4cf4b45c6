//! Fields of `config.json` that only some architectures have.

use serde_json::{Map, Value, json};

use crate::architecture::{Extra, SIGMOID};
use crate::config::{object, short};
use crate::error::Problem;
use crate::metadata::required;
use crate::rotary;
use crate::sizes::{Keys, Sizes, linear_heads};

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
        Extra::Qwen2Experts => qwen2_experts(keys)?,
        Extra::Glm4 => glm4(keys, sizes, has)?,
        Extra::Glm4Experts => glm4_experts(keys, sizes, has)?,
        Extra::Exaone4 => exaone4(keys, sizes)?,
        Extra::Cohere => json!({
            "logit_scale": short(needed(keys, "logit_scale")?),
            "layer_norm_bias": has("blk.0.attn_norm.bias"),
            "use_qk_norm": has("blk.0.attn_q_norm.weight"),
            "attention_bias": has("blk.0.attn_q.bias"),
        }),
        Extra::Cohere2 => json!({
            "logit_scale": short(needed(keys, "logit_scale")?),
            "sliding_window": keys.size("attention.sliding_window")?,
            "sliding_window_pattern": window_period(keys, sizes)?,
        }),
        Extra::StarCoder2 => json!({ "use_bias": has("blk.0.attn_q.bias") }),
        Extra::PartialRotation => json!({ "partial_rotary_factor": rotary::part(keys, sizes)? }),
        Extra::Hunyuan => json!({ "use_qk_norm": has("blk.0.attn_q_norm.weight") }),
        Extra::Ministral3 => ministral3(config, keys)?,
        Extra::Lfm2 => lfm2(keys, sizes, has)?,
        Extra::Qwen35 => qwen35(config, keys, sizes)?,
        Extra::Qwen35Experts => {
            let mut fields = object(qwen35(config, keys, sizes)?);
            fields.extend(object(qwen2_experts(keys)?));
            Value::Object(fields)
        }
        Extra::DeepSeek => deepseek(config, keys, has)?,
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

/// Files of GLM-4V have rows whose halves are apart; their sections of a rotation tell.
fn glm4(keys: Keys, sizes: &Sizes, has: &dyn Fn(&str) -> bool) -> Result<Value, Problem> {
    Ok(json!({
        "attention_bias": has("blk.0.attn_q.bias"),
        "partial_rotary_factor": rotary::part(keys, sizes)?,
        "rope_traditional": keys.counts("rope.dimension_sections")?.is_none(),
    }))
}

fn glm4_experts(keys: Keys, sizes: &Sizes, has: &dyn Fn(&str) -> bool) -> Result<Value, Problem> {
    const GATE: &str = "expert_gating_func";
    if keys.count(GATE)?.is_some_and(|gate| gate != SIGMOID) {
        return Err(Problem::unsupported(format!("`{}` is not {SIGMOID}, a sigmoid", keys.key(GATE))));
    }
    let mut fields = object(routed(keys)?);
    fields.extend(object(json!({
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "use_qk_norm": has("blk.0.attn_q_norm.weight"),
        "attention_bias": has("blk.0.attn_q.bias"),
        "partial_rotary_factor": rotary::part(keys, sizes)?,
    })));
    Ok(Value::Object(fields))
}

/// Experts in the words of DeepSeek.
fn routed(keys: Keys) -> Result<Value, Problem> {
    Ok(json!({
        "n_routed_experts": keys.size("expert_count")?,
        "num_experts_per_tok": keys.size("expert_used_count")?,
        "moe_intermediate_size": keys.size("expert_feed_forward_length")?,
        "n_shared_experts": keys.count("expert_shared_count")?.unwrap_or(0),
        "first_k_dense_replace": keys.count("leading_dense_block_count")?.unwrap_or(0),
        "routed_scaling_factor": keys.number("expert_weights_scale")?.map_or(1.0, short),
        "norm_topk_prob": keys.truth("expert_weights_norm")?.unwrap_or(false),
        "n_group": keys.count("expert_group_count")?.unwrap_or(1),
        "topk_group": keys.count("expert_group_used_count")?.unwrap_or(1),
    }))
}

/// Experts in the words of Qwen2.
fn qwen2_experts(keys: Keys) -> Result<Value, Problem> {
    Ok(json!({
        "num_experts": keys.size("expert_count")?,
        "num_experts_per_tok": keys.size("expert_used_count")?,
        "moe_intermediate_size": keys.size("expert_feed_forward_length")?,
        "shared_expert_intermediate_size": keys.size("expert_shared_feed_forward_length")?,
    }))
}

/// Which layers have a window, where the file says it layer by layer or by a period.
fn windows(keys: Keys, sizes: &Sizes) -> Result<Vec<bool>, Problem> {
    const NAME: &str = "attention.sliding_window_pattern";
    /// Where files do not say, every fourth layer has none, as in llama.cpp.
    const PERIOD: usize = 4;
    let every = |period: usize| (1..=sizes.layers).map(|layer| !layer.is_multiple_of(period)).collect();
    match keys.counts(NAME)?.as_deref() {
        None => Ok(every(PERIOD)),
        Some([period]) if *period > 0 && sizes.layers > 1 => Ok(every(*period)),
        Some(layers) if layers.len() >= sizes.layers => {
            Ok(layers.iter().take(sizes.layers).map(|window| *window != 0).collect())
        }
        Some(layers) => Err(Problem::broken(format!("`{}` is of {} layers", keys.key(NAME), layers.len()))),
    }
}

/// Every how many layers one has no window.
fn window_period(keys: Keys, sizes: &Sizes) -> Result<usize, Problem> {
    let windows = windows(keys, sizes)?;
    let period = windows.iter().position(|window| !window).map_or(sizes.layers + 1, |last| last + 1);
    let is_periodic = (1..).zip(&windows).all(|(layer, window)| (layer % period != 0) == *window);
    is_periodic
        .then_some(period)
        .ok_or_else(|| Problem::unsupported("windows that do not come in a period of layers".to_owned()))
}

/// A letter for each layer, as EXAONE's configs have them.
fn exaone4(keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    let Some(window) = keys.count("attention.sliding_window")?.filter(|window| *window > 0) else {
        return Ok(json!({}));
    };
    let letters = windows(keys, sizes)?.into_iter().map(|window| if window { 'L' } else { 'G' });
    Ok(json!({ "sliding_window": window, "sliding_window_pattern": letters.collect::<String>() }))
}

/// The rotation in the words of Ministral 3, whose scale of scores llama.cpp computes for an `mscale` of one.
fn ministral3(config: &mut Map<String, Value>, keys: Keys) -> Result<Value, Problem> {
    let scaling = required(&keys.key("rope.scaling.type"), config.remove("rope_scaling"))?;
    let mut parameters = object(scaling);
    parameters.extend(object(json!({
        "rope_theta": config.get("rope_theta"),
        "mscale": 1.0,
        "mscale_all_dim": short(needed(keys, "rope.scaling.yarn_log_multiplier")?),
        "llama_4_scaling_beta": short(needed(keys, "attention.temperature_scale")?),
    })));
    Ok(json!({ "rope_parameters": parameters }))
}

fn lfm2(keys: Keys, sizes: &Sizes, has: &dyn Fn(&str) -> bool) -> Result<Value, Problem> {
    const HEADS: &str = "attention.head_count_kv";
    let heads = required(&keys.key(HEADS), keys.counts(HEADS)?)?;
    let kind = |heads: usize| if heads == 0 { "conv" } else { "full_attention" };
    let kinds: Vec<&str> = match heads.as_slice() {
        layers if layers.len() == sizes.layers => layers.iter().map(|heads| kind(*heads)).collect(),
        layers => {
            return Err(Problem::broken(format!("`{}` is of {} layers", keys.key(HEADS), layers.len())));
        }
    };
    Ok(json!({
        "layer_types": kinds,
        "conv_L_cache": keys.size("shortconv.l_cache")?,
        "conv_bias": has("blk.0.shortconv.conv.bias"),
        "block_dim": sizes.hidden,
        "block_ff_dim": keys.size("feed_forward_length")?,
        "block_auto_adjust_ff_dim": false,
    }))
}

fn qwen35(config: &mut Map<String, Value>, keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    let heads = linear_heads(keys)?;
    config.remove("partial_rotary_factor");
    let mut parameters = object(json!({
        "rope_type": "default",
        "rope_theta": config.get("rope_theta"),
        "partial_rotary_factor": rotary::part(keys, sizes)?,
    }));
    if let Some(mut sections) = keys.counts("rope.dimension_sections")? {
        // Files have one more, which is zero.
        sections.truncate(3);
        parameters.insert("mrope_section".to_owned(), json!(sections));
    }
    Ok(json!({
        "linear_num_key_heads": heads.k_heads,
        "linear_num_value_heads": heads.v_heads,
        "linear_key_head_dim": heads.k_dim,
        "linear_value_head_dim": heads.v_dim,
        "linear_conv_kernel_dim": keys.size("ssm.conv_kernel")?,
        "full_attention_interval": keys.count("full_attention_interval")?.unwrap_or(4),
        "rope_parameters": parameters,
    }))
}

fn deepseek(
    config: &mut Map<String, Value>,
    keys: Keys,
    has: &dyn Fn(&str) -> bool,
) -> Result<Value, Problem> {
    const HEAD: &str = "attention.key_length_mla";
    let (head, rotated) = (keys.size(HEAD)?, keys.size("rope.dimension_count")?);
    let plain = head.checked_sub(rotated).filter(|plain| *plain > 0);
    let plain = plain.ok_or_else(|| Problem::unsupported(format!("`{}` is {head}", keys.key(HEAD))))?;
    for name in ["partial_rotary_factor", "head_dim", "num_key_value_heads"] {
        config.remove(name);
    }
    // llama.cpp takes both factors for equal, and has a tenth of them.
    let factor =
        keys.number("rope.scaling.yarn_log_multiplier")?.map_or(0.0, |tenth| short(10.0 * short(tenth)));
    if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling") {
        scaling.extend(object(json!({ "mscale": factor, "mscale_all_dim": factor })));
    }
    let mut fields = object(json!({
        "num_key_value_heads": config.get("num_attention_heads"),
        "kv_lora_rank": keys.size("attention.kv_lora_rank")?,
        "q_lora_rank": keys.count("attention.q_lora_rank")?.filter(|_| has("blk.0.attn_q_a.weight")),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": plain,
        "v_head_dim": keys.size("attention.value_length_mla")?,
    }));
    if keys.count("expert_count")?.unwrap_or(0) > 0 {
        fields.extend(object(routed(keys)?));
        let is_grouped = fields.get("n_group") != Some(&json!(1));
        let (method, scores) = match (keys.count("expert_gating_func")?, is_grouped) {
            (Some(SIGMOID), _) => ("noaux_tc", "sigmoid"),
            (_, true) => ("group_limited_greedy", "softmax"),
            (_, false) => ("greedy", "softmax"),
        };
        fields.extend(object(json!({ "topk_method": method, "scoring_func": scores })));
    }
    Ok(Value::Object(fields))
}
