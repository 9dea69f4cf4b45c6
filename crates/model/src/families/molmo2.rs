//! Molmo 2: Qwen3 under other names, with embeddings of further tokens that it never predicts.
//!
//! Source: transformers `models/molmo2/modeling_molmo2.py`. All tokens of a prompt's pictures attend to each other in both
//! directions; mlx-vlm computes them causally.

use super::names::*;
use super::parts::*;
use crate::*;

pub(super) fn read(cfg: &Config) -> Result<Blueprint, ConfigError> {
    let text = text_config(cfg)?.ok_or_else(|| missing("text_config"))?;
    let fields = DimFields { norm_eps: "layer_norm_eps", ..DimFields::LLAMA };
    let dims = Dims { head: Head::Own, ..Dims::read_as(&text, &fields)? };
    text.only("tie_word_embeddings", false)?;
    text.only("norm_after", false)?;
    text.only("use_qk_norm", true)?;
    text.only("qk_norm_type", "qwen3")?;
    let more: usize = text.or("additional_vocab_size", 128)?;
    let attention = Attention {
        qkv_bias: text.or("qkv_bias", false)?,
        qk_norm: Some(QkNorm::per_head(dims.norm.eps())),
        ..Attention::new(&dims, rope(&text, &dims)?)
    };
    let mlp = GatedMlp::read(&text)?;
    let own = [
        vec![drop("model.vision_backbone.**"), prefix("model.transformer", "model")],
        text_model(),
        vec![
            prefix("model.blocks", "model.layers"),
            WeightRewrite::Join {
                from: vec!["model.wte.embedding".into(), "model.wte.new_embedding".into()],
                to: "model.embed_tokens.weight".into(),
            },
        ],
        modules([("model.ln_f", "model.norm")]),
        parts_of_layers([
            ("attn_norm", "input_layernorm"),
            ("ff_norm", "post_attention_layernorm"),
            ("mlp.ff_out", "mlp.down_proj"),
            ("self_attn.attn_out", "self_attn.o_proj"),
        ]),
        vec![
            split_qkv("model.layers.*.self_attn.att_proj", &attention),
            split("model.layers.*.mlp.ff_proj", &[("up_proj", mlp.width), ("gate_proj", mlp.width)]),
        ],
    ];
    let layer = LayerSpec::pre_norm(attention, mlp, dims.norm);
    let mut blueprint = Blueprint::uniform(&dims, layer);
    blueprint.attend_to_later(Bidirectional::AllPictures);
    Ok(Blueprint {
        vocab: dims.vocab + more,
        unpredicted: more,
        picture_tokens: picture_tokens(cfg)?,
        rewrites: own.concat(),
        ..blueprint
    })
}

/// Tokens that stand for features, and those around them, with what they are where a config does not say it.
fn picture_tokens(cfg: &Config) -> Result<Vec<u32>, ConfigError> {
    let tokens = [
        ("image_start_token_id", 151_936),
        ("image_end_token_id", 151_937),
        ("image_patch_id", 151_938),
        ("image_col_id", 151_939),
        ("low_res_image_start_token_id", 151_940),
        ("image_low_res_id", 151_942),
        ("frame_start_token_id", 151_943),
        ("frame_end_token_id", 151_944),
    ];
    tokens.iter().map(|(field, absent)| Ok(cfg.or::<usize>(field, *absent)? as u32)).collect()
}
