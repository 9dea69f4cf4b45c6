//! Config readers and rewrites that several encoder families share: from a checkpoint's names to those below `encoder`.

use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::{ConnectorStep, EncoderLayer};
use crate::families::with_defaults;
use crate::mlps::ACTIVATIONS;
use crate::rewrite::WeightRewrite;

/// The section that describes the encoder.
pub(super) fn vision<'a>(cfg: &Config<'a>) -> Result<Config<'a>, ConfigError> {
    let section = cfg.section("vision_config")?;
    let vision = section.ok_or_else(|| ConfigError::Missing { field: "vision_config".to_owned() })?;
    // How pictures are resized, and the class tokens of towers that are trained with texts.
    vision.pass_by(&["projection_dim", "vocab_size", "vision_use_head", "tie_word_embeddings"]);
    vision.pass_by(&["image_seq_length", "video_seq_length"]);
    Ok(vision)
}

/// Width of the text model's stream.
pub(super) fn text_width(cfg: &Config) -> Result<usize, ConfigError> {
    let text = match cfg.section("text_config")? {
        Some(text) => Some(text),
        None => cfg.section("llm_config")?,
    };
    let text = text.map(with_defaults).transpose()?;
    match text.map(|text| text.opt("hidden_size")).transpose()?.flatten() {
        Some(width) => Ok(width),
        None => cfg.req("hidden_size"),
    }
}

/// A number, or the first of a list of equal ones.
pub(super) fn side(cfg: &Config, field: &str, absent: usize) -> Result<usize, ConfigError> {
    if let Ok(number) = cfg.opt::<usize>(field) {
        return Ok(number.unwrap_or(absent));
    }
    let [height, width]: [usize; 2] = cfg.req(field)?;
    if height == width {
        return Ok(height);
    }
    Err(ConfigError::Inconsistent { rules: vec![format!("`{field}` ({height}, {width}) is a square's")] })
}

/// `linear_1`, a non-linearity, `linear_2`.
pub(super) fn two_linears(width: usize, act: Activation, features: usize, bias: bool) -> Vec<ConnectorStep> {
    vec![
        ConnectorStep::Linear { name: "linear_1", width, bias },
        ConnectorStep::Act(act),
        ConnectorStep::Linear { name: "linear_2", width: features, bias },
    ]
}

/// The non-linearity of a projector.
pub(super) fn projector_act(cfg: &Config) -> Result<Activation, ConfigError> {
    Ok(cfg.choice_opt("projector_hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu))
}

/// One layer so many times.
pub(super) fn layers(count: usize, layer: &EncoderLayer) -> Vec<EncoderLayer> {
    vec![layer.clone(); count]
}

/// Another name for everything below a prefix.
pub(super) fn prefix(from: &str, to: &str) -> WeightRewrite {
    WeightRewrite::Rename { from: format!("{from}.**").into(), to: format!("{to}.**").into() }
}

/// The encoder and its connector, wherever a checkpoint has them.
pub(super) fn towers<const N: usize>(prefixes: [(&str, &str); N]) -> Vec<WeightRewrite> {
    prefixes.iter().flat_map(|(from, to)| [prefix(&format!("model.{from}"), to), prefix(from, to)]).collect()
}

/// Other names for modules below `encoder`.
pub(super) fn modules<const N: usize>(renames: [(&str, &str); N]) -> Vec<WeightRewrite> {
    renames.map(|(from, to)| rename(&format!("encoder.{from}.*"), &format!("encoder.{to}.*"))).into()
}

/// Other names for parts of layers, from below `encoder.PARENT.N`.
pub(super) fn parts_of_layers<const N: usize>(
    parent: &str,
    renames: [(&str, &str); N],
) -> Vec<WeightRewrite> {
    let part =
        |(from, to)| rename(&format!("encoder.{parent}.*.{from}.*"), &format!("encoder.layers.*.{to}.*"));
    renames.map(part).into()
}

/// Queries, keys and values of layers that one module computes.
pub(super) fn split_qkv(module: &str, hidden: usize) -> WeightRewrite {
    let parts = ["q_proj", "k_proj", "v_proj"];
    let to = parts.map(|part| (format!("encoder.layers.*.attn.{part}.*").into(), hidden));
    WeightRewrite::Split { from: format!("encoder.layers.*.{module}.*").into(), to: to.into() }
}

/// Another name.
pub(super) fn rename(from: &str, to: &str) -> WeightRewrite {
    WeightRewrite::Rename { from: from.into(), to: to.into() }
}
