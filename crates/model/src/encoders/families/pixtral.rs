//! Pixtral and Mistral Small 3: a tower with 2-D rotation over pictures of any shape, and two linear layers, in Mistral 3
//! behind a norm and merged squares of patches.
//!
//! Source: transformers `models/pixtral/modeling_pixtral.py`, `models/mistral3/modeling_mistral3.py`.

use super::names::*;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, GatedMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;
use crate::{Activation, RotaryPairing};

pub(super) fn read(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    cfg.only("vision_feature_select_strategy", "full")?;
    let tower = tower(cfg)?;
    let bias = cfg.or("multimodal_projector_bias", true)?;
    let connector = two_linears(tower.features, projector_act(cfg)?, tower.features, bias);
    Ok(EncoderBlueprint { connector, ..tower })
}

pub(super) fn read_mistral3(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let tower = tower(cfg)?;
    let bias = cfg.or("multimodal_projector_bias", false)?;
    let text = cfg.section("text_config")?;
    let eps = text.map(|text| text.opt("rms_norm_eps")).transpose()?.flatten().unwrap_or(1e-6);
    let merging = vec![
        ConnectorStep::Norm { name: "norm", norm: Norm::Rms { eps } },
        ConnectorStep::Merge {
            side: cfg.or("spatial_merge_size", 2)?,
            elements: MergedElements::ChannelByChannel,
        },
        ConnectorStep::Linear { name: "patch_merger.merging_layer", width: tower.hidden, bias: false },
    ];
    let linears = two_linears(tower.features, projector_act(cfg)?, tower.features, bias);
    Ok(EncoderBlueprint { connector: [merging, linears].concat(), ..tower })
}

fn tower(cfg: &Config) -> Result<EncoderBlueprint, ConfigError> {
    let vision = vision(cfg)?;
    // Positions are rotations, for which no size is too large.
    vision.pass_by(&["image_size", "image_token_id", "image_break_token_id", "image_end_token_id"]);
    let parameters = vision.section("rope_parameters")?;
    parameters.iter().try_for_each(|section| section.only("rope_type", "default"))?;
    let newer = parameters.as_ref().map(|section| section.opt("rope_theta")).transpose()?.flatten();
    let base = vision.opt("rope_theta")?.or(newer).unwrap_or(10_000.0);
    let (hidden, heads): (usize, usize) = (vision.req("hidden_size")?, vision.req("num_attention_heads")?);
    if let Some(head_dim) = vision.opt::<usize>("head_dim")?.filter(|dim| dim * heads != hidden) {
        let rule = format!("`head_dim` ({head_dim}) times `num_attention_heads` ({heads}) is {hidden}");
        return Err(ConfigError::Inconsistent { rules: vec![rule] });
    }
    let norm = Norm::Rms { eps: vision.or("rms_norm_eps", 1e-5)? };
    let pairs = PatchPairs::OfHead(RotaryPairing::Halves);
    let rotary = Some(Rotary2d { base, axes: RotaryAxes::AlternateFrequencies, pairs });
    let act = vision.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let layer = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention { biases: Linears::No, rotary, ..EncoderAttention::new(heads) },
        mlp: GatedMlp { width: vision.req("intermediate_size")?, act, bias: false }.into(),
        scales: LayerScale::None,
    };
    let count = vision.req("num_hidden_layers")?;
    let taken = TakenFrom(cfg.or("vision_feature_layer", -1f32)? as i64).layers(count)?;
    let patches = PatchEmbedding::new(side(&vision, "patch_size", 16)?, false);
    let patches = PatchEmbedding { channels: vision.or("num_channels", 3)?, ..patches };
    let tower = EncoderBlueprint::new(hidden, patches, layers(taken, &layer), text_width(cfg)?, rewrites());
    Ok(EncoderBlueprint { input_norm: Some(Norm::Rms { eps: 1e-5 }), ..tower })
}

fn rewrites() -> Vec<WeightRewrite> {
    [
        towers([
            ("vision_tower.vision_model", "encoder"),
            ("vision_tower", "encoder"),
            ("multi_modal_projector", "encoder.connector"),
        ]),
        modules([("patch_conv", "patch_embed"), ("ln_pre", "input_norm")]),
        parts_of_layers(
            "transformer.layers",
            [
                ("attention_norm", "norm1"),
                ("ffn_norm", "norm2"),
                ("attention.q_proj", "attn.q_proj"),
                ("attention.k_proj", "attn.k_proj"),
                ("attention.v_proj", "attn.v_proj"),
                ("attention.o_proj", "attn.o_proj"),
                ("feed_forward.gate_proj", "mlp.gate_proj"),
                ("feed_forward.up_proj", "mlp.up_proj"),
                ("feed_forward.down_proj", "mlp.down_proj"),
            ],
        ),
    ]
    .concat()
}
