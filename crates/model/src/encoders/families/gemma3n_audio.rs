//! Gemma 3n: two convolutions over frames and bands with cumulative norms, conformer layers with local attention of which
//! every fourth row is kept, norms and a projection. A sound has one number of features: the embedding of a token fills up.
//!
//! Source: transformers `models/gemma3n/modeling_gemma3n.py`. mlx-vlm 0.7.10 has the same features with published configs,
//! and differs in two fields: it reads the norms' epsilon as `sscp_conv_eps` instead of `sscp_conv_group_norm_eps`, and a
//! config without `input_feat_size` has 80 bands there.

use super::gemma3n::{projected, soft_norm};
use super::gemma4_audio;
use super::names::*;
use super::siglip::drop;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::families::with_defaults;
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

/// Of the norms for which the reference reads no field.
const EPS: f32 = 1e-6;

pub(super) fn read(cfg: &Config) -> Result<AudioBlueprint, ConfigError> {
    let audio = cfg.section("audio_config")?;
    let audio = audio.ok_or_else(|| ConfigError::Missing { field: "audio_config".to_owned() })?;
    // Values are clipped where only half precision would overflow, and masked logits are far below all others. The
    // reference does not read the other two.
    audio.pass_by(&["gradient_clipping", "conf_attention_invalid_logits_value"]);
    audio.pass_by(&["conf_positional_bias_size", "sscp_conv_eps"]);
    audio.only("sscp_conv_kernel_size", serde_json::json!([[3, 3], [3, 3]]))?;
    audio.only("sscp_conv_stride_size", serde_json::json!([[2, 2], [2, 2]]))?;
    let (hidden, eps): (usize, f32) = (audio.or("hidden_size", 1536)?, audio.or("rms_norm_eps", EPS)?);
    let layer = conformer(&audio, 4 * hidden, eps)?;
    let layers = audio.or("conf_num_hidden_layers", 12)?;
    let features = text_width(cfg)?;
    let connector = [
        vec![
            ConnectorStep::FirstOfRows(audio.or("conf_reduction_factor", 4)?),
            soft_norm(eps),
            ConnectorStep::FillUp(filling(cfg, &audio, eps)?),
        ],
        projected(eps, features),
    ];
    Ok(AudioBlueprint {
        bands: audio.or("input_feat_size", 128)?,
        hidden,
        stem: Stem::Planes {
            channels: audio.or("sscp_conv_channel_size", [128, 32])?,
            norm: PlaneNorm::Cumulative { eps: audio.or("sscp_conv_group_norm_eps", 1e-3)? },
            padding: FramePadding::Behind,
        },
        beyond_end: BeyondEnd::OnlyInStem,
        positions: AudioPositions::Absent,
        layers: vec![AudioLayer::Conformer(layer); layers],
        clipped: false,
        connector: connector.concat(),
        features,
        rewrites: rewrites(),
    })
}

fn conformer(audio: &Config, width: usize, eps: f32) -> Result<Conformer, ConfigError> {
    let past: usize = audio.or("conf_attention_context_left", 13)?;
    let future: usize = audio.or("conf_attention_context_right", 0)?;
    let attention = LocalAttention {
        heads: audio.or("conf_num_attention_heads", 8)?,
        chunk: audio.or("conf_attention_chunk_size", 12)?,
        past,
        future,
        seen: [past, future],
        key_scale: 1.0,
        logit_cap: audio.or("conf_attention_logit_cap", 50.0)?,
    };
    Ok(Conformer {
        norm_eps: EPS,
        convolution_norm_eps: eps,
        width,
        act: Activation::Silu,
        residual: audio.or("conf_residual_weight", 0.5)?,
        attention,
        kernel: audio.or("conf_conv_kernel_size", 5)?,
    })
}

/// The last token of the text model's vocabulary, which is one of audio's.
fn filling(cfg: &Config, audio: &Config, eps: f32) -> Result<Filling, ConfigError> {
    let text = cfg.section("text_config")?.map(with_defaults).transpose()?;
    let tokens = text.map(|text| text.opt("vocab_size")).transpose()?.flatten();
    let (tokens, first): (usize, usize) = (tokens.unwrap_or(262_400), audio.or("vocab_offset", 262_272)?);
    let token = tokens.checked_sub(first + 1).ok_or_else(|| {
        let rule = format!("`vocab_offset` ({first}) is one of the text model's {tokens} tokens");
        ConfigError::Inconsistent { rules: vec![rule] }
    })?;
    Ok(Filling {
        rows: cfg.or("audio_soft_tokens_per_image", 188)?,
        vocabulary: audio.or("vocab_size", 128)?,
        token,
        norm: Norm::Rms { eps },
    })
}

/// To Gemma 4's names, and from these to the blueprint's.
fn rewrites() -> Vec<WeightRewrite> {
    let of_layer = |(from, to): (&str, &str)| {
        prefix(&format!("encoder.conformer.*.{from}"), &format!("encoder.layers.*.{to}"))
    };
    let layers = [
        ("ffw_layer_start", "feed_forward1"),
        ("ffw_layer_end", "feed_forward2"),
        ("attention.pre_attn_norm", "norm_pre_attn"),
        ("attention.post_norm", "norm_post_attn"),
        ("attention.post", "self_attn.post"),
        ("attention.attn.relative_position_embedding.pos_proj", "self_attn.relative_k_proj"),
        ("attention.attn", "self_attn"),
        ("lconv1d", "lconv1d"),
        ("norm", "norm_out"),
    ];
    [
        towers([("audio_tower", "encoder"), ("embed_audio", "encoder.connector")]),
        // Of tokens that stand for kinds of sound, which the text model embeds, too.
        vec![drop("encoder.connector.embedding_post_projection_norm.*")],
        modules([
            ("subsample_conv_projection.conv_0.conv", "stem.conv1"),
            ("subsample_conv_projection.conv_0.norm", "stem.norm1"),
            ("subsample_conv_projection.conv_1.conv", "stem.conv2"),
            ("subsample_conv_projection.conv_1.norm", "stem.norm2"),
        ]),
        layers.map(of_layer).into(),
        gemma4_audio::rewrites(false),
    ]
    .concat()
}
