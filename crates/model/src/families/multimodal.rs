//! Text models below encoders of pictures and sound: what the section `text_config` says, under its own `model_type`.
//!
//! Source: transformers `models/smolvlm`, `models/internvl`, `models/aya_vision` and others, which compose models so.

use super::names::*;
use super::parts::*;
use super::without_effect;
use super::{cohere, gemma, glm, glm4_moe, lfm2, llama, qwen2, qwen3, qwen3_5};
use crate::*;

/// The text models that are served so.
const TEXT_MODELS: &[(&str, Read)] = &[
    ("cohere2", cohere::read_cohere2),
    ("gemma", gemma::read_below_encoder),
    ("glm4v_moe_text", glm4_moe::read),
    ("glm4v_text", glm::read_glm4),
    ("glm_ocr_text", glm::read_glm4),
    ("lfm2", lfm2::read),
    ("llama", llama::read),
    ("mistral", llama::read_mistral),
    ("qwen2", qwen2::read),
    ("qwen3", qwen3::read),
];

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    below(cfg, text_config(cfg)?.ok_or_else(|| missing("text_config"))?)
}

/// InternVL as its publisher's code has it.
pub(super) fn read_internvl_chat(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let _none = text_config(cfg)?;
    let blueprint = below(cfg, cfg.section("llm_config")?.ok_or_else(|| missing("llm_config"))?)?;
    Ok(Blueprint { rewrites: [vec![drop("mlp1.**")], blueprint.rewrites].concat(), ..blueprint })
}

/// MiniCPM-V, whose mergers stand beside its tower, and whose pictures take positions as texts do.
pub(super) fn read_minicpmv(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let mut blueprint = qwen3_5::read(cfg)?;
    for attention in blueprint.layers.iter_mut().flat_map(|layer| layer.mixer.attentions_mut()) {
        if let Position::Rope(rope) = &mut attention.position {
            rope.sections = None;
        }
    }
    let mergers = ["merger.**", "model.merger.**", "vit_merger.**", "model.vit_merger.**"].map(drop);
    let head = match cfg.opt("tie_word_embeddings")? {
        Some(true) => Head::Tied,
        Some(false) => Head::Own,
        None => blueprint.head,
    };
    Ok(Blueprint { head, rewrites: [mergers.to_vec(), blueprint.rewrites].concat(), ..blueprint })
}

/// dots.ocr, whose config is that of its text model, Qwen2.
pub(super) fn read_dots_ocr(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("attention_bias", true)?;
    beside(cfg, qwen2::read)
}

/// PaddleOCR-VL, whose config is that of its text model, Ernie 4.5 with Llama's rotation.
pub(super) fn read_paddleocr_vl(cfg: &Config) -> Result<Blueprint, ConfigError> {
    cfg.only("use_bias", false)?;
    beside(cfg, llama::read)
}

/// A text model whose config has a section for the encoder.
fn beside(cfg: &Config, read: Read) -> Result<Blueprint, ConfigError> {
    let _none = text_config(cfg)?;
    let blueprint = read(cfg)?;
    let head = vec![prefix("model.lm_head", "lm_head")];
    Ok(Blueprint {
        rewrites: [vec![drop("mlp_AR.**")], text_model(), head, blueprint.rewrites].concat(),
        ..blueprint
    })
}

/// The text model of a section of the config.
fn below(cfg: &Config, text: Config) -> Result<Blueprint, ConfigError> {
    let read = text.choice("model_type", TEXT_MODELS)?;
    let model_type: String = text.req("model_type")?;
    for field in without_effect::fields(&model_type) {
        text.pass_by(&[field]);
    }
    let tied: Option<bool> = match text.opt("tie_word_embeddings")? {
        Some(tied) => Some(tied),
        None => cfg.opt("tie_word_embeddings")?,
    };
    let blueprint = read(&text)?;
    let head = match tied {
        Some(true) => blueprint.head,
        Some(false) => Head::Own,
        None => Head::OwnIfPresent,
    };
    Ok(Blueprint { head, rewrites: [text_model(), blueprint.rewrites].concat(), ..blueprint })
}

/// PaliGemma, whose prompts attend in both directions.
pub(super) fn read_paligemma(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let mut blueprint = read(cfg)?;
    blueprint.attend_to_later(Bidirectional::Prompts);
    Ok(blueprint)
}
