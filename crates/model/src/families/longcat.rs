//! LongCat Flash: layers of two attentions and two MLPs, with experts that join behind the second; some experts give back
//! what they read. LongCat Flash Lite also embeds the last tokens together.
//!
//! Source: mlx-lm `models/longcat_flash.py`, `models/longcat_flash_ngram.py`.

use super::latent::*;
use super::names::*;
use super::routed::*;
use crate::*;

/// Of the norms inside attention, whatever the config says of the others.
const INNER_EPS: f32 = 1e-5;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_method", "MLA")?;
    cfg.only("zero_expert_type", "identity")?;
    let fields = DimFields { layers: "num_layers", ..DimFields::LLAMA };
    let dims = Dims { head: Head::Own, ..Dims::read_as(cfg, &fields)? };
    let latent = latent(cfg, &dims)?;
    let mlp = GatedMlp { width: cfg.req("ffn_hidden_size")?, act: Activation::Silu, bias: false };
    let moe = moe(cfg, mlp)?;
    let half = |mixer_name, mlp_name, norms: [&'static str; 2]| {
        let [mixer, mlp_norm] = norms;
        let layer = LayerSpec::pre_norm(latent.clone(), mlp, dims.norm);
        let norms = NormPlacement::Pre { mixer, mlp: mlp_norm };
        LayerSpec { mixer_name, mlp_name, ..layer.with_norms(norms) }
    };
    let first = half("self_attn.0", "mlps.0", ["input_layernorm.0", "post_attention_layernorm.0"]);
    let first = LayerSpec { shortcut: Some(("mlp", moe.clone().into())), ..first };
    let second = half("self_attn.1", "mlps.1", ["input_layernorm.1", "post_attention_layernorm.1"]);
    let rewrites = [
        vec![drop("model.mtp.**")],
        routed_rewrites(dims.layers, Some(&moe)),
        parts_of_layers([("mlp.router.classifier", "mlp.gate")]),
        tensors_of_layers([("mlp.router.*", "mlp.gate.*")]),
        ["0", "1"].map(|half| split_latent_at(&format!("model.layers.*.self_attn.{half}"), &latent)).into(),
    ];
    let layers = vec![[first, second]; dims.layers].concat();
    Ok(Blueprint { rewrites: rewrites.concat(), ..Blueprint::new(&dims, layers).numbered(|index| index / 2) })
}

/// LongCat Flash with embeddings of the last tokens together.
pub(super) fn read_ngram(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let mut blueprint = read(cfg)?;
    let (neighbors, tables): (usize, usize) = (cfg.or("emb_neighbor_num", 4)?, cfg.or("emb_split_num", 4)?);
    let history = TokenHistory { tokens: neighbors.saturating_sub(1) };
    let scale = 1.0 / (1 + tables * history.tokens) as f32;
    let (vocab, hidden) = (blueprint.vocab, blueprint.hidden);
    let rows = cfg.or::<usize>("ngram_vocab_size_ratio", 78)?.saturating_mul(vocab);
    let embedding = NgramEmbedding { history, tables, rows, vocab, hidden, scale };
    let norm = blueprint.final_norm;
    let layer = LayerSpec::mixer_alone(embedding, norm, "").with_norms(NormPlacement::Bare);
    blueprint.layers.insert(0, LayerSpec { mixer_name: "ngram", ..layer });
    let names = [
        modules([("model.ngram_embeddings.word_embeddings", "model.embed_tokens")]),
        vec![prefix("model.ngram_embeddings", "model.layers.0.ngram")],
    ];
    let rewrites = [names.concat(), blueprint.rewrites].concat();
    Ok(Blueprint { embed_scale: scale, rewrites, ..blueprint })
}

fn latent(cfg: &Config, dims: &Dims) -> Result<LatentAttention, ConfigError> {
    let latent = latent_attention(cfg, dims, INNER_EPS)?;
    let scale = |field: &str, rank: usize| -> Result<f32, ConfigError> {
        Ok(if cfg.or(field, false)? { (dims.hidden as f32 / rank as f32).sqrt() } else { 1.0 })
    };
    let of_queries = scale("mla_scale_q_lora", latent.query_dim.unwrap_or(dims.hidden))?;
    let latent_scales = [scale("mla_scale_kv_lora", latent.latent_dim)?, of_queries];
    Ok(LatentAttention { latent_scales, ..latent })
}

fn moe(cfg: &Config, mlp: GatedMlp) -> Result<Moe, ConfigError> {
    Ok(Moe {
        experts: cfg.req("n_routed_experts")?,
        top_k: cfg.req("moe_topk")?,
        expert: mlp.with_width(cfg.req("expert_ffn_hidden_size")?).into(),
        router: Router {
            bias: cfg.or("router_bias", false)?,
            correction_bias: true,
            renormalize: cfg.or("norm_topk_prob", false)?,
            scale: cfg.req("routed_scaling_factor")?,
            identities: cfg.req("zero_expert_num")?,
            ..Router::SOFTMAX
        },
        shared: None,
        latent: None,
        sum_bias: false,
    })
}
