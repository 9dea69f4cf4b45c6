//! EAGLE-3 heads: their two published layouts.

use std::num::NonZeroUsize;

use mlx::{Array, Dtype};
use serde_json::{Map, Value};

use crate::batch::HiddenPlace;
use crate::blueprint::{
    BesideSum, Blueprint, DraftHeadInput, Head, HeadStates, LayerSpec, NormPlacement, Stage, TokenTable,
};
use crate::config::{Config, ConfigError};
use crate::decoder::Model;
use crate::dims::Dims;
use crate::error::Error;
use crate::mixers::Attention;
use crate::mlps::GatedMlp;
use crate::rewrite::WeightRewrite;
use crate::rope::{Position, Rope};
use crate::weights::{LoadError, Source, Weights};

/// What a head's directory has.
pub(super) struct Checkpoint {
    pub(super) blueprint: Blueprint,
    pub(super) weights: Weights,
    pub(super) places: Vec<HiddenPlace>,
    pub(super) own_rows: Option<Array>,
}

/// What a config says beside its network.
struct Settings {
    dims: Dims,
    rope: Rope,
    mlp: GatedMlp,
    bias: bool,
    adds_to: BesideSum,
    /// Layers in front of which the target's stream is read.
    layers: Option<Vec<usize>>,
    /// Rows of the output matrix.
    draft_vocab: usize,
}

/// Whether a config is that of an EAGLE-3 head.
pub(super) fn is_eagle3(config: &Map<String, Value>) -> bool {
    let says = |value: &Value| value.as_str().is_some_and(|text| text.to_lowercase().contains("eagle3"));
    let architectures = config.get("architectures").and_then(Value::as_array).into_iter().flatten();
    config.get("speculators_model_type").is_some_and(says) || architectures.into_iter().any(says)
}

/// Reads a head for a target. Fails with what does not fit.
pub(super) fn read(source: &Source, target: &Model) -> Result<Checkpoint, Error> {
    let config = source.config()?;
    let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
    let settings = settings(&config).map_err(in_config)?;
    check(&settings, target.blueprint()).map_err(in_config)?;
    let mut weights = source.weights()?;
    weights.remove("t2d");
    let own_rows = weights.remove("d2t").map(|offsets| own_rows(&offsets, target.blueprint().vocab));
    let own_rows = own_rows.transpose()?;
    let blueprint = blueprint(&settings, &weights, target.blueprint());
    let count = target.blueprint().layers.len();
    let layers = settings.layers.unwrap_or_else(|| vec![2, count / 2, count.saturating_sub(3)]);
    let places = layers.iter().map(|layer| HiddenPlace::Layer(layer - 1)).collect();
    Ok(Checkpoint { blueprint, weights, places, own_rows })
}

/// Fields of both layouts. Others do not change what is computed, or repeat what tensors say.
fn settings(config: &Map<String, Value>) -> Result<Settings, ConfigError> {
    let top = Config::new(config);
    let nested = top.section("transformer_layer_config")?;
    let is_nested = nested.is_some();
    let network = nested.unwrap_or(Config::new(config));
    let dims = Dims::read(&network)?;
    network.only("num_hidden_layers", 1)?;
    network.only("hidden_act", "silu")?;
    for variant in ["norm_before_fc", "fc_norm", "norm_output", "mask_hidden"] {
        top.only(variant, false)?;
    }
    let adds_to = match top.or("norm_before_residual", is_nested)? {
        true => BesideSum::Normed,
        false => BesideSum::Stream,
    };
    let eagle = top.section("eagle_config")?;
    let listed = match &eagle {
        Some(eagle) => eagle.opt::<Vec<usize>>("eagle_aux_hidden_state_layer_ids")?,
        None => None,
    };
    let layers = top.opt::<Vec<usize>>("eagle_aux_hidden_state_layer_ids")?.or(listed);
    Ok(Settings {
        rope: Rope::read(&network, dims.head_dim)?,
        mlp: GatedMlp::read(&network)?,
        bias: network.or("attention_bias", false)?,
        adds_to,
        layers,
        draft_vocab: top.opt::<NonZeroUsize>("draft_vocab_size")?.map_or(dims.vocab, NonZeroUsize::get),
        dims,
    })
}

fn check(settings: &Settings, target: &Blueprint) -> Result<(), ConfigError> {
    let mut rules = Vec::new();
    let (dims, count) = (&settings.dims, target.layers.len());
    if dims.hidden != target.hidden {
        rules.push(format!(
            "`hidden_size` ({}) is the target model's ({}): this head was trained for another",
            dims.hidden, target.hidden
        ));
    }
    if dims.vocab > target.vocab || settings.draft_vocab > dims.vocab {
        rules.push(format!(
            "`draft_vocab_size` ({}) is at most `vocab_size` ({}), and that at most the target model's ({})",
            settings.draft_vocab, dims.vocab, target.vocab
        ));
    }
    let layers = settings.layers.clone().unwrap_or_default();
    if layers.iter().any(|layer| *layer == 0 || *layer > count) || (settings.layers.is_none() && count < 4) {
        rules.push(format!(
            "`eagle_aux_hidden_state_layer_ids` ({layers:?}) are layers of the target model, which has {count}"
        ));
    }
    if rules.is_empty() { Ok(()) } else { Err(ConfigError::Inconsistent { rules }) }
}

/// Rows of the head's own logits for all tokens of the target. `offsets`: what is added to each own row to get its token.
fn own_rows(offsets: &Array, vocab: usize) -> Result<Array, Error> {
    let offsets = offsets.astype(Dtype::I32)?.to_vec::<i32>()?;
    let mut rows = vec![offsets.len() as i32; vocab];
    for (row, offset) in (0i32..).zip(&offsets) {
        let token = row.checked_add(*offset).and_then(|token| usize::try_from(token).ok());
        let Some(own) = token.and_then(|token| rows.get_mut(token)) else {
            let problem = format!("gives row {row} a token that the target model does not have");
            return Err(LoadError::Format { path: "d2t".to_owned(), problem }.into());
        };
        *own = row;
    }
    Ok(Array::from_slice(&rows, &[vocab as i32])?)
}

fn blueprint(settings: &Settings, weights: &Weights, target: &Blueprint) -> Blueprint {
    let Settings { dims, rope, mlp, bias, adds_to, layers, draft_vocab } = settings;
    let streams = layers.as_ref().map_or(3, Vec::len);
    let attention = Attention {
        inputs: Some(2 * dims.hidden),
        qkv_bias: *bias,
        out_bias: *bias,
        ..Attention::new(dims, Position::Rope(rope.clone()))
    };
    let placement = NormPlacement::Beside {
        embeddings: "input_layernorm",
        mixer: "hidden_norm",
        mlp: "post_attention_layernorm",
        adds_to: *adds_to,
    };
    let has = |module: &str| weights.contains_key(&format!("{module}.weight"));
    let table = if has("embed_tokens") { TokenTable::Own } else { TokenTable::Target };
    let layer = LayerSpec::pre_norm(attention, *mlp, dims.norm).with_norms(placement);
    let head = if has("lm_head") { Head::Own } else { Head::Target };
    let vocab = if head == Head::Own { dims.vocab } else { target.vocab };
    let unpredicted = if head == Head::Own { dims.vocab - draft_vocab } else { 0 };
    let rename = |from: &str, to: &str| WeightRewrite::Rename { from: from.into(), to: to.into() };
    Blueprint {
        stage: Stage::DraftHead(DraftHeadInput { table, states: HeadStates::Streams(streams) }),
        head,
        vocab,
        unpredicted,
        embed_scale: target.embed_scale,
        rewrites: vec![
            rename("midlayer.**", "model.layers.0.**"),
            rename("layers.0.**", "model.layers.0.**"),
            rename("fc.*", "model.fuse.projection.*"),
            rename("norm.*", "model.norm.*"),
            rename("embed_tokens.*", "model.embed_tokens.*"),
        ],
        ..Blueprint::new(dims, vec![layer])
    }
}
