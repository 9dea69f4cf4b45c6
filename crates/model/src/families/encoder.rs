//! What families of text encoders share: layers that attend in both directions, and no head.

use crate::*;

/// A network whose rows see all of their prompt, and that gives hidden states alone.
pub(super) fn encoder(mut blueprint: Blueprint) -> Blueprint {
    blueprint.attend_to_later(Bidirectional::Symmetric);
    Blueprint { head: Head::Absent, ..blueprint }
}

/// A decoder whose config says `is_causal: false`. All of its layers attend.
pub(super) fn of_decoder(blueprint: Blueprint) -> Result<Blueprint, ConfigError> {
    let attends = |layer: &LayerSpec| matches!(layer.mixer, Mixer::Attention(_));
    match blueprint.layers.iter().all(attends) {
        true => Ok(encoder(blueprint)),
        false => Err(ConfigError::Unsupported {
            field: "is_causal".to_owned(),
            found: "false".to_owned(),
            supported: "true, where layers are recurrent".to_owned(),
        }),
    }
}

/// A network of layers that end with the norm of a sum, so that none follows the last.
pub(super) fn of_sums(dims: &Dims, layer: LayerSpec) -> Blueprint {
    encoder(Blueprint {
        embed_norm: Some(dims.norm),
        final_norm: Norm::Absent,
        ..Blueprint::uniform(dims, layer.with_norms(OF_SUMS))
    })
}

/// The norm behind attention and the one behind the MLP.
const OF_SUMS: NormPlacement =
    NormPlacement::OfSums { mixer: "post_attention_layernorm", mlp: "post_feedforward_layernorm" };

/// What a config calls the sizes of BERT.
pub(super) const BERT_FIELDS: DimFields = DimFields { norm_eps: "layer_norm_eps", ..DimFields::LLAMA };

/// Sizes with layer norms, whose epsilon may be below what float32 has beside 1.
pub(super) fn dims(cfg: &Config, fields: &DimFields) -> Result<Dims, ConfigError> {
    cfg.pass_by(&["tie_word_embeddings"]);
    cfg.pass_by(WITHOUT_EFFECT);
    let dims = Dims::read_as(cfg, fields)?;
    Ok(Dims { head: Head::Absent, ..dims.with_layer_norm(cfg.or(fields.norm_eps, 1e-12)?, true) })
}

/// Training.
const WITHOUT_EFFECT: &[&str] =
    &["attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "gradient_checkpointing"];
