//! Whisper: a decoder whose layers attend to the rows of a sound, too, by cross attention; learned positions, layer norms.
//!
//! Each of the published layers is three here: attention to the text, attention to the sound, an MLP.
//!
//! Source: arXiv 2212.04356 §2.2; transformers `models/whisper/modeling_whisper.py`.

use super::names::*;
use crate::*;

/// Of every layer norm; configs do not say it.
const NORM: Norm = Norm::Layer { eps: 1e-5, bias: true };

/// Layers here of one published layer.
const PARTS: usize = 3;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    if cfg.opt::<usize>("n_audio_state")?.is_some() {
        return Err(ConfigError::Unsupported {
            field: "n_audio_state".to_owned(),
            found: "a config of mlx-examples".to_owned(),
            supported: "checkpoints in the layout of transformers, which come with a tokenizer".to_owned(),
        });
    }
    cfg.only("tie_word_embeddings", true)?;
    cfg.only("scale_embedding", false)?;
    // The encoder's, and the decoder's layers once more.
    cfg.pass_by(&["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "max_source_positions"]);
    cfg.pass_by(&["num_mel_bins", "num_hidden_layers"]);
    let [hidden, heads, width] =
        ["d_model", "decoder_attention_heads", "decoder_ffn_dim"].map(|field| cfg.req(field));
    let (hidden, heads, width): (usize, usize, usize) = (hidden?, heads?, width?);
    let context = cfg.req("max_target_positions")?;
    let dims = Dims {
        hidden,
        layers: Dims::layers(cfg, "decoder_layers")?,
        heads,
        kv_heads: heads,
        head_dim: hidden.checked_div(heads).unwrap_or(0),
        vocab: cfg.req("vocab_size")?,
        context,
        norm: NORM,
        head: Head::Tied,
    };
    let act = cfg.choice_opt("activation_function", ACTIVATIONS)?.unwrap_or(Activation::Gelu);
    let layer = |number: usize| {
        let attention = Attention::new(&dims, Position::None).with_bias(true);
        let crossing = CrossAttention {
            heads,
            kv_heads: heads,
            head_dim: dims.head_dim,
            bias: true,
            norm: None,
            number,
        };
        let mlp = PlainMlp { width, act, bias: true };
        [
            LayerSpec::mixer_alone(attention, NORM, "self_attn_layer_norm"),
            LayerSpec {
                mixer_name: "cross_attn",
                ..LayerSpec::mixer_alone(crossing, NORM, "encoder_attn_layer_norm")
            },
            LayerSpec::mlp_alone(mlp, NORM, "final_layer_norm"),
        ]
    };
    let layers = (0..dims.layers).flat_map(layer).collect();
    let blueprint = Blueprint {
        learned_positions: Some(LearnedPositions::new(context)),
        rewrites: rewrites(),
        ..Blueprint::new(&dims, layers)
    };
    Ok(blueprint.numbered(|index| index / PARTS))
}

fn rewrites() -> Vec<WeightRewrite> {
    [
        vec![drop("model.encoder.**"), drop("proj_out.*"), prefix("model.decoder", "model")],
        modules([("model.layer_norm", "model.norm")]),
        parts_of_layers([
            ("self_attn.out_proj", "self_attn.o_proj"),
            ("encoder_attn.q_proj", "cross_attn.q_proj"),
            ("encoder_attn.k_proj", "cross_attn.k_proj"),
            ("encoder_attn.v_proj", "cross_attn.v_proj"),
            ("encoder_attn.out_proj", "cross_attn.o_proj"),
            ("fc1", "mlp.up_proj"),
            ("fc2", "mlp.down_proj"),
        ]),
        ["self_attn", "cross_attn"].map(|name| without_bias(&format!("model.layers.*.{name}.k_proj"))).into(),
    ]
    .concat()
}

/// A module without a bias beside others that have one.
fn without_bias(module: &str) -> WeightRewrite {
    WeightRewrite::ZeroBias {
        weights: format!("{module}.weight").into(),
        bias: format!("{module}.bias").into(),
    }
}
