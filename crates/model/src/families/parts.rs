//! Config readers and rewrites that several families share.
//!
//! A function moves here on its second use, and takes what differs as an argument.

use crate::config::Field;
use crate::*;

/// How a family is read.
pub(super) type Read = fn(&Config) -> Result<Blueprint, ConfigError>;

/// Qwen's configs carry window fields that the published models never switch on.
pub(super) fn no_sliding_window(cfg: &Config) -> Result<(), ConfigError> {
    for (field, off) in [("use_sliding_window", false), ("use_mrope", false)] {
        cfg.only(field, off)?;
    }
    let _window: Option<usize> = cfg.opt("sliding_window")?; // Without effect while it is off.
    let kinds: Vec<String> = cfg.or("layer_types", Vec::new())?;
    match kinds.into_iter().find(|kind| kind != "full_attention") {
        None => Ok(()),
        Some(found) => Err(ConfigError::Unsupported {
            field: "layer_types".to_owned(),
            found,
            supported: "full_attention".to_owned(),
        }),
    }
}

/// The MLP of each layer, as Qwen spells it: every `decoder_sparse_step`-th is routed, bar those
/// in `mlp_only_layers`.
pub(super) fn qwen_mlps(
    cfg: &Config,
    layers: usize,
    shared: Option<SharedExpert>,
) -> Result<Vec<Mlp>, ConfigError> {
    let dense = GatedMlp::read(cfg)?;
    for (field, only) in [("qkv_bias", false), ("use_qk_norm", true)] {
        cfg.only(field, only)?;
    }
    let Some(experts) = cfg.opt("num_experts")? else { return Ok(vec![Mlp::Gated(dense); layers]) };
    let renormalize = cfg.or("norm_topk_prob", false)?;
    let expert = dense.with_width(cfg.req("moe_intermediate_size")?);
    let router = Router { renormalize, ..Router::SOFTMAX };
    let moe = Moe { shared, ..Moe::new(experts, cfg.req("num_experts_per_tok")?, expert, router) };
    let step: usize = cfg.or("decoder_sparse_step", 1)?;
    let only_dense: Vec<usize> = cfg.or("mlp_only_layers", Vec::new())?;
    let routed = |layer: usize| step > 0 && (layer + 1).is_multiple_of(step) && !only_dense.contains(&layer);
    let mlp = |layer| if routed(layer) { Mlp::Moe(moe.clone()) } else { Mlp::Gated(dense) };
    Ok((0..layers).map(mlp).collect())
}

/// Published experts are one tensor each; ours are stacked. Nothing to do in a dense model.
pub(super) fn stack_experts(mlps: &[Mlp]) -> Option<WeightRewrite> {
    let experts = mlps.iter().find_map(|mlp| match mlp {
        Mlp::Moe(moe) => Some(moe.experts),
        _ => None,
    })?;
    Some(WeightRewrite::StackExperts {
        from: "model.layers.*.mlp.experts.#.*.*".into(),
        to: "model.layers.*.mlp.switch_mlp.*.*".into(),
        experts,
    })
}

/// Norms stored as `weight − 1`: the final one, every layer's own, and those on queries and keys, an indexer's
/// among them.
pub(super) fn add_one_to_norms(when: When) -> impl Iterator<Item = WeightRewrite> {
    let norms = [
        "model.norm.weight",
        "model.layers.*.*.weight",
        "model.layers.*.self_attn.q_norm.weight",
        "model.layers.*.self_attn.k_norm.weight",
        "model.layers.*.self_attn.index_q_norm.weight",
        "model.layers.*.self_attn.index_k_norm.weight",
    ];
    norms.into_iter().map(move |tensors| WeightRewrite::Add {
        amount: 1.0,
        tensors: tensors.into(),
        when: when.clone(),
    })
}

/// Depthwise convolutions of Mamba's layers and those like them.
pub(super) fn conv_to_mlx() -> WeightRewrite {
    super::names::depthwise_to_mlx("**.conv1d.weight")
}

/// Rotation of whole heads, as the config has it.
pub(super) fn rope(cfg: &Config, dims: &Dims) -> Result<Position, ConfigError> {
    Ok(Position::Rope(Rope::read(cfg, dims.head_dim)?))
}

/// Rotation of whole heads with neighbours as pairs, as the config has it.
pub(super) fn interleaved_rope(cfg: &Config, dims: &Dims) -> Result<Position, ConfigError> {
    Ok(Position::Rope(Rope::read(cfg, dims.head_dim)?.interleaved()))
}

/// Rotation of a part of each head: `partial_rotary_factor`, or as much if it is absent.
pub(super) fn partial_rope(cfg: &Config, dims: &Dims, absent: f32) -> Result<Position, ConfigError> {
    Ok(Position::Rope(Rope::read_partial(cfg, dims.head_dim, absent)?))
}

/// The number that bfloat16 has for this one: Gemma 3 was trained with a scale in it.
pub(super) fn rounded_to_bf16(number: f32) -> f32 {
    let bits = number.to_bits();
    f32::from_bits((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF_0000)
}

/// The text model of a config with pictures or sound: its section, or the config itself if it has none.
pub(super) fn text_config<'a>(cfg: &Config<'a>) -> Result<Option<Config<'a>>, ConfigError> {
    cfg.pass_by(MULTIMODAL);
    let section = cfg.section("text_config")?.map(super::with_defaults).transpose()?;
    if let Some(text) = &section {
        text.pass_by(MULTIMODAL);
        // The text model's, repeated.
        cfg.pass_by(&["vocab_size"]);
    }
    Ok(section)
}

/// What describes the encoders of pictures and sound beside a text model.
const MULTIMODAL: &[&str] = &[
    "vision_config",
    "audio_config",
    "image_token_id",
    "image_token_index",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "vision_token_id",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "multimodal_projector_bias",
    "projector_hidden_act",
    "spatial_merge_size",
    "image_seq_length",
    "mm_tokens_per_image",
    "ignore_index",
    "tie_word_embeddings",
    "model_type",
    "norm_eps",
];

/// A field of a section, or where that has none, of the config itself.
pub(super) fn nested<T: Field>(
    cfg: &Config,
    (section, name): (&str, &str),
    flat: &str,
) -> Result<Option<T>, ConfigError> {
    let flat = cfg.opt(flat)?;
    let nested = cfg.section(section)?.map(|section| section.opt(name)).transpose()?.flatten();
    Ok(nested.or(flat))
}

/// The error of a config without a field.
pub(super) fn missing(field: &str) -> ConfigError {
    ConfigError::Missing { field: field.to_owned() }
}

/// A switch that may be a number.
pub(super) fn is_on(cfg: &Config, field: &str) -> Result<bool, ConfigError> {
    match cfg.opt::<usize>(field) {
        Ok(number) => Ok(number.is_some_and(|number| number > 0)),
        Err(_) => cfg.req(field),
    }
}
