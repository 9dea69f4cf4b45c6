//! DeepSeek-V4.1: hyper-connections, attention to a window and to compressed entries that layers share, and many experts.
//!
//! Source: mlx-lm `models/deepseek_v41.py`.

use omnibus_kv::CacheKind;

use super::entry_sources::EntrySources;
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
        let attention = attention(text, &dims, sources.reads(index)?)?;
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
    Ok(Blueprint { hyper: Some(hyper), rewrites, ..Blueprint::new(&dims, layers) })
}

fn attention(
    cfg: &Config,
    dims: &Dims,
    entries: Option<EntryReads>,
) -> Result<CompressedAttention, ConfigError> {
    let window = CacheKind::SlidingWindow { tokens: cfg.or("sliding_window", 128)?, sinks: 0 };
    let theta = cfg.or("rope_theta", 10_000.0)?;
    let compressed_theta = cfg.or("compress_rope_theta", 160_000.0)?;
    let scaling = match Rope::read_scaling(cfg)? {
        // It rotates without a magnitude.
        Scaling::Yarn { factor, fast, slow, trained, .. } => {
            Scaling::Yarn { factor, fast, slow, mscale: 0.0, mscale_all: 0.0, trained }
        }
        other => other,
    };
    let (base, scaling) = match entries {
        Some(_) => (compressed_theta, scaling),
        None => (theta, Scaling::None),
    };
    Ok(CompressedAttention {
        heads: dims.heads,
        window: RowCache { width: dims.head_dim, kind: window },
        query_dim: cfg.req("q_lora_rank")?,
        rope: Rope { scaling, ..Rope::new(cfg.req("qk_rope_head_dim")?, base).interleaved() },
        out_groups: cfg.or("o_groups", 8)?,
        out_rank: cfg.req("o_lora_rank")?,
        norm_eps: dims.norm.eps(),
        entries,
    })
}

fn moe(cfg: &Config) -> Result<Moe, ConfigError> {
    let scores = [
        ("sqrtsoftplus", RouteScores::SqrtSoftplus),
        ("sigmoid", RouteScores::Sigmoid),
        ("softmax", RouteScores::Softmax),
    ];
    let act = match cfg.or("swiglu_limit", 10.0)? {
        limit if limit > 0.0 => Activation::ClampedSilu { limit },
        _ => Activation::Silu,
    };
    let width = cfg.req("moe_intermediate_size")?;
    let top_k = cfg.req("num_experts_per_tok")?;
    Ok(Moe {
        experts: cfg.req("n_routed_experts")?,
        top_k,
        expert: GatedMlp { width, act, bias: false }.into(),
        router: Router {
            scores: cfg.choice_opt("scoring_func", &scores)?.unwrap_or(RouteScores::SqrtSoftplus),
            logit_scale: 1.0 / cfg.or::<f32>("gate_temp", 1.0)?,
            renormalize: top_k > 1 && cfg.or("norm_topk_prob", true)?,
            scale: cfg.or("routed_scaling_factor", 1.5)?,
            correction_bias: true,
            ..Router::SOFTMAX
        },
        shared: Some(shared_experts(width)),
        latent: None,
    })
}

fn rewrites(experts: usize, out_groups: usize) -> Vec<WeightRewrite> {
    let dropped = ["vision.**", "aligner.**", "mtp.**", "layers.*.ffn.gate.bias_vl"].map(drop);
    let outside = [prefix("embed", "model.embed_tokens"), prefix("head", "lm_head")];
    let inside = ["layers", "norm"].map(|name| prefix(name, &format!("model.{name}")));
    let block_diagonal = WeightRewrite::Unstack {
        from: "model.layers.*.attn.wo_a.weight".into(),
        to: "model.layers.*.self_attn.o_a_proj.weight".into(),
        experts: out_groups,
    };
    [
        dropped.to_vec(),
        outside.into(),
        inside.into(),
        vec![block_diagonal],
        tensors_of_layers([
            ("attn.**", "self_attn.**"),
            ("ffn.**", "mlp.**"),
            ("attn_norm.*", "input_layernorm.*"),
            ("ffn_norm.*", "post_attention_layernorm.*"),
            ("self_attn.attn_sink", "self_attn.sinks"),
            ("mlp.gate.bias", "mlp.gate.e_score_correction_bias"),
            ("mlp.experts.switch_mlp.**", "mlp.switch_mlp.**"),
        ]),
        hyper_names(),
        parts_of_layers([
            ("self_attn.wq_a", "self_attn.q_a_proj"),
            ("self_attn.q_norm", "self_attn.q_a_norm"),
            ("self_attn.wq_b", "self_attn.q_b_proj"),
            ("self_attn.wkv", "self_attn.kv_proj"),
            ("self_attn.wo_b", "self_attn.o_b_proj"),
            ("self_attn.compressor.wkv", "self_attn.compressor.kv_proj"),
            ("self_attn.compressor.wgate", "self_attn.compressor.gate_proj"),
            ("self_attn.compressor.norm", "self_attn.compressor.kv_norm"),
            ("self_attn.indexer.wq_b", "self_attn.indexer.q_b_proj"),
            ("self_attn.indexer.wk", "self_attn.indexer.k_proj"),
            ("mlp.shared_experts.w1", "mlp.shared_experts.gate_proj"),
            ("mlp.shared_experts.w2", "mlp.shared_experts.down_proj"),
            ("mlp.shared_experts.w3", "mlp.shared_experts.up_proj"),
        ]),
        numbered_matrices(),
        stacked_experts(experts),
    ]
    .concat()
}

fn hyper_names() -> Vec<WeightRewrite> {
    let of_part = |part: &str| {
        let rename = |tensor: &str| WeightRewrite::Rename {
            from: format!("model.layers.*.hc_{part}_{tensor}").into(),
            to: format!("model.layers.*.{part}_hc.{tensor}").into(),
        };
        ["fn", "base", "scale"].map(rename)
    };
    ["attn", "ffn"].map(of_part).concat()
}
