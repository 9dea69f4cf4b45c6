//! EmbeddingGemma 2: Gemma 4's layers in both directions, with embeddings of each layer's own that are projections alone.
//!
//! What projects its states to a vector's width is of the pooler. Source: transformers `models/embedding_gemma2`.

use super::by_layer::*;
use super::encoder::encoder;
use super::names::*;
use super::parts::*;
use crate::*;

/// Beside encoders of pictures and sound.
pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    cfg.pass_by(&["boi_token_id", "eoi_token_id", "boa_token_id", "eoa_token_index", "audio_token_id"]);
    let blueprint = blueprint(&text)?;
    Ok(Blueprint { rewrites: [text_model(), blueprint.rewrites].concat(), ..blueprint })
}

fn blueprint(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.pass_by(&["embedding_dim", "attention_dropout"]);
    cfg.only("attention_bias", false)?;
    let dims = Dims { head_dim: cfg.or("head_dim", 256)?, ..Dims::read(cfg)? };
    let eps = dims.norm.eps();
    let act = cfg.choice_opt("hidden_activation", ACTIVATIONS)?.unwrap_or(Activation::GeluTanh);
    let mlp = GatedMlp { act, ..GatedMlp::read(cfg)? };
    let width = cfg.req("hidden_size_per_layer_input")?;
    let kinds: Vec<String> = cfg.req("layer_types")?;
    let of_full = full_dims(cfg, &kinds, dims)?;
    let [global, local] = rope_by_kind_if_any(cfg, [of_full.head_dim, dims.head_dim])?
        .ok_or_else(|| missing("rope_parameters.full_attention"))?;
    // It reaches as far to both sides.
    let radius: usize = cfg.req("sliding_window")?;
    let layer = |dims: &Dims, rope: Rope, span: AttentionSpan| {
        let attention = Attention {
            scale: 1.0,
            qk_norm: Some(QkNorm::per_head(eps)),
            value_norm: Some(eps),
            span,
            ..Attention::new(dims, Position::Rope(rope))
        };
        let layer = LayerSpec::pre_norm(attention, mlp, dims.norm).with_norms(NormPlacement::GEMMA);
        LayerSpec {
            finish: vec![Finish::PerLayerInput { width, act, norm_eps: eps }, Finish::Scale],
            ..layer
        }
    };
    let window = AttentionSpan::Window(radius.saturating_add(1));
    let (full, sliding) = (layer(&of_full, global, AttentionSpan::Full), layer(&dims, local, window));
    let layers = by_kind(&kinds, dims.layers, full, sliding)?;
    Ok(encoder(Blueprint {
        embed_scale: (dims.hidden as f32).sqrt(),
        per_layer_inputs: Some(PerLayerInputs { width, vocab: None, norm_eps: eps }),
        rewrites: rewrites(),
        ..Blueprint::new(&dims, layers)
    }))
}

/// Sizes of layers with full attention, which `per_layer_config` has by their numbers.
fn full_dims(cfg: &Config, kinds: &[String], dims: Dims) -> Result<Dims, ConfigError> {
    let Some(by_layer) = cfg.section("per_layer_config")? else {
        let head_dim = cfg.or("global_head_dim", 512)?;
        return Ok(Dims { head_dim, kv_heads: cfg.or("num_global_key_value_heads", 1)?, ..dims });
    };
    let full = kinds.iter().enumerate().filter(|(_, kind)| *kind == "full_attention");
    let mut found: Option<Dims> = None;
    for (number, _) in full {
        let Some(of_layer) = by_layer.section(&number.to_string())? else { continue };
        let own = Dims {
            head_dim: of_layer.or("head_dim", dims.head_dim)?,
            kv_heads: of_layer.or("num_key_value_heads", dims.kv_heads)?,
            ..dims
        };
        if found.is_some_and(|found| found != own) {
            let rule = "`per_layer_config` has one form of layers with full attention".to_owned();
            return Err(ConfigError::Inconsistent { rules: vec![rule] });
        }
        found = Some(own);
    }
    Ok(found.unwrap_or(dims))
}

fn rewrites() -> Vec<WeightRewrite> {
    let own = modules([
        ("model.ple.per_layer_model_projection", "model.per_layer_model_projection"),
        ("model.ple.per_layer_projection_norm", "model.per_layer_projection_norm"),
    ]);
    let parts = inside_layers_of_ple();
    [vec![drop("model.embedding_projection.**"), drop("embedding_projection.**")], own, parts].concat()
}

fn inside_layers_of_ple() -> Vec<WeightRewrite> {
    parts_of_layers([
        ("ple_block.per_layer_input_gate", "per_layer_input_gate"),
        ("ple_block.per_layer_projection", "per_layer_projection"),
        ("ple_block.post_per_layer_input_norm", "post_per_layer_input_norm"),
    ])
}
