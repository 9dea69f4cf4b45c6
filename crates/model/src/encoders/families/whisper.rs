//! Whisper: two convolutions over frames, a table of positions, pre-norm layers, a norm. Its features are the rows that
//! the decoder attends to.
//!
//! Source: arXiv 2212.04356 §2.2; transformers `models/whisper/modeling_whisper.py`.

use super::names::*;
use super::siglip::PARTS;
use crate::Activation;
use crate::config::{Config, ConfigError};
use crate::encoders::*;
use crate::mlps::{ACTIVATIONS, PlainMlp};
use crate::norm::Norm;
use crate::rewrite::WeightRewrite;

pub(super) fn read(cfg: &Config) -> Result<AudioBlueprint, ConfigError> {
    let hidden = cfg.req("d_model")?;
    let norm = Norm::Layer { eps: 1e-5, bias: true };
    let act = cfg.choice_opt("activation_function", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let layer = EncoderLayer {
        norm,
        after: None,
        attention: EncoderAttention::new(cfg.req("encoder_attention_heads")?),
        mlp: PlainMlp { width: cfg.req("encoder_ffn_dim")?, act, bias: true }.into(),
        scales: LayerScale::None,
    };
    let layers = layers(cfg.req("encoder_layers")?, &layer).into_iter();
    Ok(AudioBlueprint {
        bands: cfg.or("num_mel_bins", 80)?,
        hidden,
        stem: Stem::Frames(Activation::Gelu),
        beyond_end: BeyondEnd::Heard,
        positions: AudioPositions::Table { count: cfg.or("max_source_positions", 1500)? },
        layers: layers.map(|layer| AudioLayer::Transformer(Box::new(layer))).collect(),
        clipped: false,
        connector: vec![ConnectorStep::Norm { name: "norm", norm }],
        features: hidden,
        rewrites: rewrites(),
    })
}

fn rewrites() -> Vec<WeightRewrite> {
    [
        towers([("encoder", "encoder")]),
        modules([
            ("conv1", "stem.conv1"),
            ("conv2", "stem.conv2"),
            ("embed_positions", "positions"),
            ("layer_norm", "connector.norm"),
        ]),
        parts_of_layers("layers", PARTS),
        parts_of_layers(
            "layers",
            [
                ("self_attn_layer_norm", "norm1"),
                ("final_layer_norm", "norm2"),
                ("fc1", "mlp.up_proj"),
                ("fc2", "mlp.down_proj"),
            ],
        ),
        vec![WeightRewrite::ZeroBias {
            weights: "encoder.layers.*.attn.k_proj.weight".into(),
            bias: "encoder.layers.*.attn.k_proj.bias".into(),
        }],
    ]
    .concat()
}
