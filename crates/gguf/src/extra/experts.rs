//! Routed experts in the words of each model's config.

use serde_json::{Value, json};

use crate::architecture::SIGMOID;
use crate::error::Problem;
use crate::fields::{joined, short};
use crate::rotary;
use crate::sizes::{Keys, Sizes};

pub(super) fn mixtral(keys: Keys) -> Result<Value, Problem> {
    Ok(json!({
        "num_local_experts": keys.size("expert_count")?,
        "num_experts_per_tok": keys.size("expert_used_count")?,
    }))
}

pub(super) fn gpt_oss(keys: Keys) -> Result<Value, Problem> {
    Ok(json!({
        "num_local_experts": keys.size("expert_count")?,
        "num_experts_per_tok": keys.size("expert_used_count")?,
        "intermediate_size": keys.size("expert_feed_forward_length")?,
        "sliding_window": keys.size("attention.sliding_window")?,
    }))
}

/// Experts in the words of Qwen2.
pub(super) fn qwen2(keys: Keys) -> Result<Value, Problem> {
    Ok(json!({
        "num_experts": keys.size("expert_count")?,
        "num_experts_per_tok": keys.size("expert_used_count")?,
        "moe_intermediate_size": keys.size("expert_feed_forward_length")?,
        "shared_expert_intermediate_size": keys.size("expert_shared_feed_forward_length")?,
    }))
}

pub(super) fn qwen3_next(keys: Keys) -> Result<Value, Problem> {
    let always = json!({ "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [] });
    Ok(joined(qwen2(keys)?, always))
}

pub(super) fn qwen3(keys: Keys) -> Result<Value, Problem> {
    Ok(json!({
        "num_experts": keys.size("expert_count")?,
        "num_experts_per_tok": keys.size("expert_used_count")?,
        "moe_intermediate_size": keys.size("expert_feed_forward_length")?,
        "norm_topk_prob": true,
        "decoder_sparse_step": 1,
    }))
}

pub(super) fn glm4(keys: Keys, sizes: &Sizes, has: &dyn Fn(&str) -> bool) -> Result<Value, Problem> {
    const GATE: &str = "expert_gating_func";
    if keys.count(GATE)?.is_some_and(|gate| gate != SIGMOID) {
        return Err(Problem::unsupported(format!("`{}` is not {SIGMOID}, a sigmoid", keys.key(GATE))));
    }
    let fields = json!({
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "use_qk_norm": has("blk.0.attn_q_norm.weight"),
        "attention_bias": has("blk.0.attn_q.bias"),
        "partial_rotary_factor": rotary::part(keys, sizes)?,
    });
    Ok(joined(routed(keys)?, fields))
}

/// Experts of DeepSeek's models and of those that share its architecture; nothing where there are none.
pub(super) fn deepseek(keys: Keys) -> Result<Value, Problem> {
    if keys.count("expert_count")?.unwrap_or(0) == 0 {
        return Ok(json!({}));
    }
    let is_grouped = keys.count("expert_group_count")?.is_some_and(|groups| groups > 1);
    let (method, scores) = match (keys.count("expert_gating_func")?, is_grouped) {
        (Some(SIGMOID), _) => ("noaux_tc", "sigmoid"),
        (_, true) => ("group_limited_greedy", "softmax"),
        (_, false) => ("greedy", "softmax"),
    };
    Ok(joined(routed(keys)?, json!({ "topk_method": method, "scoring_func": scores })))
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
