//! DeepSeek-V4.1: hyper-connections, attention to a window and to compressed entries that layers share, and many experts.
//!
//! Source: mlx-lm `models/deepseek_v41.py`.

use super::compressed::*;
use super::names::*;
use super::parts::*;
use super::routed::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?;
    let text = text.as_ref().unwrap_or(cfg);
    text.only("engram_layer_ids", serde_json::json!([]))?;
    let dims = Dims { head: Head::Own, ..Dims::read(text)? };
    let moe = moe(text)?;
    let sources = EntrySources::read(text)?;
    let layer = |index: usize| {
        let attention = compressed_attention(text, &dims, sources.reads(index)?)?;
        Ok(LayerSpec::pre_norm(attention, moe.clone(), dims.norm))
    };
    let layers = (0..dims.layers).map(layer).collect::<Result<Vec<_>, ConfigError>>()?;
    let hyper = HyperConnections {
        copies: text.or("hc_mult", 4)?,
        iterations: text.or("hc_sinkhorn_iters", 20)?,
        eps: text.or("hc_eps", 1e-6)?,
        norm_eps: dims.norm.eps(),
    };
    let rewrites = rewrites(moe.experts, text.or("o_groups", 8)?);
    Ok(Blueprint { stream: StreamKind::Hyper(hyper), rewrites, ..Blueprint::new(&dims, layers) })
}

fn moe(cfg: &Config) -> Result<Moe, ConfigError> {
    let act = match cfg.or("swiglu_limit", 10.0)? {
        limit if limit > 0.0 => Activation::ClampedSilu { limit },
        _ => Activation::Silu,
    };
    let top_k = cfg.req("num_experts_per_tok")?;
    let router = Router {
        scores: cfg.choice_opt("scoring_func", ROUTE_SCORES)?.unwrap_or(RouteScores::SqrtSoftplus),
        logit_scale: 1.0 / cfg.or::<f32>("gate_temp", 1.0)?,
        renormalize: top_k > 1 && cfg.or("norm_topk_prob", true)?,
        scale: cfg.or("routed_scaling_factor", 1.5)?,
        correction_bias: true,
        ..Router::SOFTMAX
    };
    let width = cfg.req("moe_intermediate_size")?;
    let moe = Moe::new(cfg.req("n_routed_experts")?, top_k, GatedMlp::new(width, act), router);
    Ok(moe.with_shared(shared_experts(width)))
}

fn rewrites(experts: usize, out_groups: usize) -> Vec<WeightRewrite> {
    let dropped = ["vision.**", "aligner.**", "mtp.**", "layers.*.ffn.gate.bias_vl"].map(drop);
    let roots = [("embed", "model.embed_tokens"), ("head", "lm_head"), ("norm", "model.norm")];
    let block_diagonal = WeightRewrite::Unstack {
        from: "model.layers.*.self_attn.wo_a.weight".into(),
        to: "model.layers.*.self_attn.o_a_proj.weight".into(),
        experts: out_groups,
    };
    [
        dropped.to_vec(),
        roots.map(|(from, to)| prefix(from, to)).into(),
        vec![prefix("layers", "model.layers")],
        tensors_of_layers([
            ("attn.**", "self_attn.**"),
            ("ffn.**", "mlp.**"),
            ("attn_norm.*", "input_layernorm.*"),
            ("ffn_norm.*", "post_attention_layernorm.*"),
            ("self_attn.attn_sink", "self_attn.sinks"),
            ("self_attn.q_norm.*", "self_attn.q_a_norm.*"),
            ("self_attn.compressor.norm.*", "self_attn.compressor.kv_norm.*"),
            ("mlp.gate.bias", "mlp.gate.e_score_correction_bias"),
            ("mlp.experts.switch_mlp.**", "mlp.switch_mlp.**"),
        ]),
        vec![block_diagonal],
        inside_layers([("wq_a", "q_a_proj"), ("wq_b", "q_b_proj"), ("wkv", "kv_proj")]),
        inside_layers([("wk", "k_proj"), ("wgate", "gate_proj"), ("wo_b", "o_b_proj")]),
        numbered_matrices(),
        stacked_experts(experts),
        ["attn", "ffn"].map(hyper_names).concat(),
    ]
    .concat()
}

fn hyper_names(part: &str) -> Vec<WeightRewrite> {
    let rename = |tensor| WeightRewrite::Rename {
        from: format!("model.layers.*.hc_{part}_{tensor}").into(),
        to: format!("model.layers.*.{part}_hc.{tensor}").into(),
    };
    ["fn", "base", "scale"].map(rename).into()
}
