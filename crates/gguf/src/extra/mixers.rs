//! Rotations, convolutions, linear and latent attention in the words of each model's config.

use serde_json::{Map, Value, json};

use super::needed;
use crate::error::Problem;
use crate::fields::{joined, object, short};
use crate::metadata::required;
use crate::rotary;
use crate::sizes::{Keys, Sizes, linear_heads};

/// Files of GLM-4V have rows whose halves are apart; their sections of a rotation tell.
pub(super) fn glm4(keys: Keys, sizes: &Sizes, has: &dyn Fn(&str) -> bool) -> Result<Value, Problem> {
    Ok(json!({
        "attention_bias": has("blk.0.attn_q.bias"),
        "partial_rotary_factor": rotary::part(keys, sizes)?,
        "rope_traditional": keys.counts("rope.dimension_sections")?.is_none(),
    }))
}

/// The rotation in the words of Ministral 3, whose scale of scores llama.cpp computes for an `mscale` of one.
pub(super) fn ministral3(config: &mut Map<String, Value>, keys: Keys) -> Result<Value, Problem> {
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

pub(super) fn lfm2(keys: Keys, sizes: &Sizes, has: &dyn Fn(&str) -> bool) -> Result<Value, Problem> {
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

pub(super) fn qwen35(config: &mut Map<String, Value>, keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
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
    Ok(joined(linear(keys)?, json!({ "rope_parameters": parameters })))
}

pub(super) fn qwen3_next(keys: Keys, sizes: &Sizes) -> Result<Value, Problem> {
    Ok(joined(linear(keys)?, json!({ "partial_rotary_factor": rotary::part(keys, sizes)? })))
}

/// Layers with linear attention.
fn linear(keys: Keys) -> Result<Value, Problem> {
    let heads = linear_heads(keys)?;
    Ok(json!({
        "linear_num_key_heads": heads.k_heads,
        "linear_num_value_heads": heads.v_heads,
        "linear_key_head_dim": heads.k_dim,
        "linear_value_head_dim": heads.v_dim,
        "linear_conv_kernel_dim": keys.size("ssm.conv_kernel")?,
        "full_attention_interval": keys.count("full_attention_interval")?.unwrap_or(4),
    }))
}

pub(super) fn latent(
    config: &mut Map<String, Value>,
    keys: Keys,
    has: &dyn Fn(&str) -> bool,
) -> Result<Value, Problem> {
    const HEAD: &str = "attention.key_length_mla";
    let (head, rotated) = (keys.size(HEAD)?, keys.size("rope.dimension_count")?);
    let plain = head.checked_sub(rotated).filter(|plain| *plain > 0);
    let plain = plain.ok_or_else(|| Problem::unsupported(format!("`{}` is {head}", keys.key(HEAD))))?;
    for name in ["partial_rotary_factor", "head_dim"] {
        config.remove(name);
    }
    // llama.cpp takes both factors for equal, and has a tenth of them.
    let factor =
        keys.number("rope.scaling.yarn_log_multiplier")?.map_or(0.0, |tenth| short(10.0 * short(tenth)));
    if let Some(Value::Object(scaling)) = config.get_mut("rope_scaling") {
        scaling.extend(object(json!({ "mscale": factor, "mscale_all_dim": factor })));
    }
    Ok(json!({
        "num_key_value_heads": config.get("num_attention_heads"),
        "kv_lora_rank": keys.size("attention.kv_lora_rank")?,
        "q_lora_rank": keys.count("attention.q_lora_rank")?.filter(|_| has("blk.0.attn_q_a.weight")),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": plain,
        "v_head_dim": keys.size("attention.value_length_mla")?,
    }))
}
