//! What families of text encoders share: layers that attend in both directions, and no head.

use crate::*;

/// A network whose rows see all of their prompt, and that gives hidden states alone.
pub(super) fn encoder(mut blueprint: Blueprint) -> Blueprint {
    blueprint.attend_to_later(Bidirectional::Symmetric);
    Blueprint { head: Head::Absent, ..blueprint }
}

/// A decoder whose config says `is_causal: false`. All of its layers attend, or are short convolutions.
pub(super) fn of_decoder(mut blueprint: Blueprint) -> Result<Blueprint, ConfigError> {
    for layer in &mut blueprint.layers {
        match &mut layer.mixer {
            Mixer::Attention(_) => {}
            Mixer::ShortConv(conv) => conv.reach = ConvReach::BothSides,
            _ => {
                return Err(ConfigError::Unsupported {
                    field: "is_causal".to_owned(),
                    found: "false".to_owned(),
                    supported: "true, where layers are recurrent".to_owned(),
                });
            }
        }
    }
    Ok(encoder(blueprint))
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

/// The head of a checkpoint that was saved with the one of a masked language model.
pub(super) fn masked_head(
    cfg: &Config,
    norm: Norm,
    act: Activation,
) -> Result<Option<MaskedHead>, ConfigError> {
    let classes: Vec<String> = cfg.or("architectures", Vec::new())?;
    let is_masked = classes.iter().any(|class| class.ends_with("ForMaskedLM"));
    Ok(is_masked.then_some(MaskedHead { act, norm }))
}

/// From a checkpoint's names of that head: the dense layer, the norm, the bias, and the projection, which is the embedding.
pub(super) fn masked_head_names([dense, norm, bias, projection]: [&str; 4]) -> Vec<WeightRewrite> {
    let own = |name: &str| format!("masked_head.{name}");
    let rename = |from: String, to: String| WeightRewrite::Rename { from: from.into(), to: to.into() };
    vec![
        rename(format!("{dense}.*"), own("dense.*")),
        rename(format!("{norm}.*"), own("norm.*")),
        rename(bias.to_owned(), own("bias")),
        WeightRewrite::DropBeside {
            tensors: format!("{projection}.bias").into(),
            other: own("bias").as_str().into(),
        },
        rename(format!("{projection}.bias"), own("bias")),
        super::names::drop(&format!("{projection}.**")),
    ]
}

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
