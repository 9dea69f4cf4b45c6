//! ModernBERT: rotated queries and keys, gated MLPs, and windows in most layers.
//!
//! Source: transformers `models/modernbert`; arXiv 2412.13663.

use super::by_layer::every;
use super::encoder::*;
use super::names::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    // Of heads, or without effect.
    cfg.pass_by(&["decoder_bias", "position_embedding_type", "layer_norm_eps", "tie_word_embeddings"]);
    cfg.pass_by(&["classifier_pooling", "classifier_bias", "classifier_activation", "classifier_dropout"]);
    cfg.pass_by(&["cls_token_id", "sep_token_id", "embedding_dropout", "mlp_dropout", "reference_compile"]);
    cfg.pass_by(&["repad_logits_with_grad", "sparse_pred_ignore_index", "sparse_prediction"]);
    cfg.pass_by(&["deterministic_flash_attn", "gradient_checkpointing", "initializer_cutoff_factor"]);

    let dims = Dims::read_as(cfg, &DimFields { norm_eps: "norm_eps", ..DimFields::LLAMA })?;
    let (eps, bias) = (cfg.or("norm_eps", 1e-5)?, cfg.or("norm_bias", false)?);
    let dims = dims.with_layer_norm(eps, bias);
    let act = cfg.choice_opt("hidden_activation", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let width = cfg.req("intermediate_size")?;
    let mlp = GatedMlp { width, act, bias: cfg.or("mlp_bias", false)? };
    let rotation = |field: &str, absent: f32| -> Result<Position, ConfigError> {
        Ok(Position::Rope(Rope::new(dims.head_dim, cfg.or(field, absent)?)))
    };
    let bias = cfg.or("attention_bias", false)?;
    let global = Attention::new(&dims, rotation("global_rope_theta", 160_000.0)?).with_bias(bias);
    // The window is as wide as both sides of a row, without the row.
    let side = cfg.or("local_attention", 128)? / 2;
    let local = Attention {
        span: AttentionSpan::Window(side + 1),
        position: rotation("local_rope_theta", 10_000.0)?,
        ..global.clone()
    };
    let layer = |attention: Attention| {
        LayerSpec::pre_norm(attention, mlp, dims.norm)
            .with_norms(NormPlacement::Pre { mixer: "attn_norm", mlp: "mlp_norm" })
    };
    let period = cfg.or("global_attn_every_n_layers", 3)?;
    // The first layer of each period, and not the last.
    let mut layers = every(period, dims.layers + period, layer(global.clone()), layer(local));
    layers.drain(..period.saturating_sub(1).min(layers.len()));
    layers.truncate(dims.layers);
    if let Some(first) = layers.first_mut() {
        // It reads what the norm of the embeddings gave.
        first.norm_placement = NormPlacement::Unnormed { mlp: "mlp_norm" };
    }
    let splits = vec![
        split_qkv("model.layers.*.self_attn.qkv_proj", &global),
        split("model.layers.*.mlp.Wi", &[("gate_proj", width), ("up_proj", width)]),
    ];
    Ok(encoder(Blueprint {
        embed_norm: Some(dims.norm),
        rewrites: [rewrites(), splits].concat(),
        ..Blueprint::new(&dims, layers)
    }))
}

fn rewrites() -> Vec<WeightRewrite> {
    let unprefixed =
        ["embeddings", "layers", "final_norm"].map(|part| prefix(&format!("model.{part}"), part));
    let heads = ["head", "decoder", "classifier"].map(|head| drop(&format!("{head}.**")));
    let around = modules([
        ("embeddings.tok_embeddings", "model.embed_tokens"),
        ("embeddings.norm", "model.embed_norm"),
        ("final_norm", "model.norm"),
    ]);
    let parts = parts_of_layers([
        ("attn.Wqkv", "self_attn.qkv_proj"),
        ("attn.Wo", "self_attn.o_proj"),
        ("mlp.Wo", "mlp.down_proj"),
    ]);
    [unprefixed.to_vec(), heads.to_vec(), around, vec![prefix("layers", "model.layers")], parts].concat()
}
