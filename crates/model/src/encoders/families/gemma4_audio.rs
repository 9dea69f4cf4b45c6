//! Gemma 4: two convolutions over frames and bands, conformer layers with local attention, and one projection.
//!
//! Source: transformers `models/gemma4/modeling_gemma4.py`.

use super::names::*;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::ACTIVATIONS;
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

/// Mel bands, which the config does not name.
const BANDS: usize = 128;

pub(super) fn read(cfg: &Config) -> Result<AudioBlueprint, ConfigError> {
    let audio = cfg.section("audio_config")?;
    let audio = audio.ok_or_else(|| ConfigError::Missing { field: "audio_config".to_owned() })?;
    // Values are clipped where only half precision would overflow, and masked logits are far below all others.
    audio.pass_by(&["gradient_clipping", "attention_invalid_logits_value", "initializer_range"]);
    let hidden: usize = audio.req("hidden_size")?;
    let eps = audio.or("rms_norm_eps", 1e-6)?;
    let past: usize = audio.or("attention_context_left", 13)?;
    let future: usize = audio.or("attention_context_right", 0)?;
    let attention = LocalAttention {
        heads: audio.req("num_attention_heads")?,
        chunk: audio.or("attention_chunk_size", 12)?,
        past,
        future,
        // The furthest row has a position, and is not seen.
        seen: [past, future].map(|rows| rows.saturating_sub(1)),
        key_scale: (1.0 + std::f32::consts::E).ln() / std::f32::consts::LN_2,
        logit_cap: audio.or("attention_logit_cap", 50.0)?,
    };
    let layer = Conformer {
        norm_eps: eps,
        convolution_norm_eps: eps,
        width: 4 * hidden,
        act: audio.choice_opt("hidden_act", ACTIVATIONS)?.unwrap_or(Activation::Silu),
        residual: audio.or("residual_weight", 0.5)?,
        attention,
        kernel: audio.or("conv_kernel_size", 5)?,
    };
    let layers = audio.req("num_hidden_layers")?;
    let (clipped, features) = (audio.or("use_clipped_linears", false)?, text_width(cfg)?);
    let output = audio.opt("output_proj_dims")?;
    let output = output.map(|width| ConnectorStep::Linear { name: "output_proj", width, bias: true });
    let projected = [
        ConnectorStep::Norm { name: "norm", norm: Norm::RmsUnweighted { eps } },
        ConnectorStep::Linear { name: "embedding_projection", width: features, bias: false },
    ];
    Ok(AudioBlueprint {
        bands: BANDS,
        hidden,
        stem: Stem::Planes {
            channels: audio.or("subsampling_conv_channels", [128, 32])?,
            norm: PlaneNorm::Channels(Norm::Layer { eps, bias: false }),
            padding: FramePadding::Even,
        },
        beyond_end: BeyondEnd::LeftOut,
        positions: AudioPositions::Absent,
        layers: vec![AudioLayer::Conformer(layer); layers],
        clipped,
        connector: output.into_iter().chain(projected).collect(),
        features,
        rewrites: rewrites(clipped),
    })
}

/// From the names of a checkpoint to those of the blueprint.
pub(super) fn rewrites(clipped: bool) -> Vec<WeightRewrite> {
    let unread = ["input_min", "input_max", "output_min", "output_max"];
    let unread = unread.iter().filter(|_| !clipped);
    let unread = unread.map(|limit| WeightRewrite::Drop { tensors: format!("encoder.**.{limit}").into() });
    let clipped_linears = [
        ("feed_forward1.ffw_layer_1", "feed_forward1.up_proj"),
        ("feed_forward1.ffw_layer_2", "feed_forward1.down_proj"),
        ("feed_forward2.ffw_layer_1", "feed_forward2.up_proj"),
        ("feed_forward2.ffw_layer_2", "feed_forward2.down_proj"),
        ("self_attn.q_proj", "attn.q_proj"),
        ("self_attn.k_proj", "attn.k_proj"),
        ("self_attn.v_proj", "attn.v_proj"),
        ("self_attn.post", "attn.o_proj"),
        ("lconv1d.linear_start", "conv.in_proj"),
        ("lconv1d.linear_end", "conv.out_proj"),
    ];
    let inner = clipped_linears.map(|(from, to)| {
        rename(&format!("encoder.layers.*.{from}.linear.*"), &format!("encoder.layers.*.{to}.*"))
    });
    let parts = [
        ("feed_forward1.pre_layer_norm", "feed_forward1.norm_before"),
        ("feed_forward1.post_layer_norm", "feed_forward1.norm_after"),
        ("feed_forward2.pre_layer_norm", "feed_forward2.norm_before"),
        ("feed_forward2.post_layer_norm", "feed_forward2.norm_after"),
        ("self_attn.relative_k_proj", "attn.relative_k_proj"),
        ("lconv1d.pre_layer_norm", "conv.norm_before"),
        ("lconv1d.conv_norm", "conv.norm_after"),
        ("lconv1d.depthwise_conv1d", "conv.depthwise"),
        ("norm_pre_attn", "norm_before"),
        ("norm_post_attn", "norm_after"),
    ];
    [
        towers([("audio_tower", "encoder"), ("embed_audio", "encoder.connector")]),
        unread.collect(),
        modules([
            ("subsample_conv_projection.layer0.conv", "stem.conv1"),
            ("subsample_conv_projection.layer0.norm", "stem.norm1"),
            ("subsample_conv_projection.layer1.conv", "stem.conv2"),
            ("subsample_conv_projection.layer1.norm", "stem.norm2"),
            ("subsample_conv_projection.input_proj_linear", "stem.linear"),
            ("output_proj", "connector.output_proj"),
        ]),
        inner.into(),
        parts_of_layers("layers", clipped_linears),
        parts_of_layers("layers", parts),
        vec![
            rename("encoder.layers.*.self_attn.per_dim_scale", "encoder.layers.*.attn.per_dim_scale"),
            WeightRewrite::Transpose {
                tensors: "encoder.layers.*.conv.depthwise.weight".into(),
                order: [0, 2, 1],
                unless_last: 1,
            },
        ],
    ]
    .concat()
}
