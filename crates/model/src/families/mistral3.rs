//! Ministral 3: Llama whose queries grow with their position; and Mistral Small 3 with its picture encoder, Pixtral and
//! LLaVA, of which the text model is served: Llama, Mistral, Qwen2 or Qwen3.
//!
//! Source: mlx-lm `models/ministral3.py`, `models/mistral3.py`, `models/pixtral.py`.

use super::by_layer::*;
use super::names::*;
use super::parts::*;
use super::{deepseek_v3, llama, qwen2, qwen3};
use crate::*;

pub(super) fn read_ministral3(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let dims = Dims::read(cfg)?;
    let parameters = cfg.section("rope_parameters")?;
    let parameters =
        parameters.ok_or_else(|| ConfigError::Missing { field: "rope_parameters".to_owned() })?;
    let temperature = Temperature {
        beta: parameters.req("llama_4_scaling_beta")?,
        period: parameters.req("original_max_position_embeddings")?,
        shift: 0,
    };
    let attention = Attention { temperature: Some(temperature), ..Attention::new(&dims, rope(cfg, &dims)?) };
    let mlp = GatedMlp::read(cfg)?;
    let layer = |span| LayerSpec::pre_norm(Attention { span, ..attention.clone() }, mlp, dims.norm);
    let layers = layer_spans(cfg, dims.layers)?.into_iter().map(layer).collect();
    Ok(Blueprint { rewrites: vec![drop("**.rotary_emb.inv_freq")], ..Blueprint::new(&dims, layers) })
}

pub(super) fn read_with_encoder(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| ConfigError::Missing { field: "text_config".to_owned() })?;
    let kinds: &[(&str, Read)] = &[
        ("ministral3", read_ministral3),
        ("mistral4", deepseek_v3::read_mistral4),
        ("mistral", llama::read_mistral_text),
        ("llama", llama::read_mistral_text),
        ("qwen2", qwen2::read),
        ("qwen3", qwen3::read),
    ];
    let read = text.choice_opt("model_type", kinds)?.unwrap_or(llama::read_mistral_text);
    let blueprint = read(&text)?;
    let rewrites = [text_model(), blueprint.rewrites].concat();
    Ok(Blueprint { rewrites, ..blueprint })
}
