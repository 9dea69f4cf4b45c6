//! DFlash heads: layers whose keys and values of the context come from the target's streams, and a block of masked tokens that
//! attends to all of it and to itself in both directions.

use serde_json::{Map, Value};

use super::DraftBlock;
use crate::batch::HiddenPlace;
use crate::blueprint::{Blueprint, DraftHeadInput, Head, HeadStates, Names, Stage, TokenTable};
use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::families;
use crate::mixers::{Bidirectional, Mixer};
use crate::rewrite::WeightRewrite;
use crate::weights::Source;

/// What a head's config says.
pub(super) struct Described {
    pub(super) blueprint: Blueprint,
    pub(super) places: Vec<HiddenPlace>,
    pub(super) block: DraftBlock,
}

/// Fields beside those of its layers' family.
const OWN_FIELDS: [&str; 3] = ["block_size", "dflash_config", "num_target_layers"];

/// Whether a config is that of a DFlash head.
pub(super) fn is_dflash(config: &Map<String, Value>) -> bool {
    config.contains_key("dflash_config")
}

/// Reads a head for a target. Fails with what does not fit.
pub(super) fn read(source: &Source, target: &Blueprint) -> Result<Described, Error> {
    let config = source.config()?;
    let in_config = |error| Error::Config { file: source.path("config.json"), error: Box::new(error) };
    described(&config, target).map_err(in_config)
}

fn described(config: &Map<String, Value>, target: &Blueprint) -> Result<Described, ConfigError> {
    let top = Config::new(config);
    let own = top.section("dflash_config")?;
    let own = own.ok_or_else(|| ConfigError::Missing { field: "dflash_config".to_owned() })?;
    let mask_token: usize = own.req("mask_token_id")?;
    let layers: Vec<usize> = own.req("target_layer_ids")?;
    let size: usize = top.req("block_size")?;
    let mut rules = Vec::new();
    let of_layers: Map<String, Value> = config
        .iter()
        .filter(|(field, _)| !OWN_FIELDS.contains(&field.as_str()))
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    let network = families::read(&of_layers)?;
    let (count, hidden) = (target.layers.len(), target.hidden);
    if network.hidden != hidden {
        rules.push(format!(
            "`hidden_size` ({}) is the target model's ({hidden}): this head was trained for another",
            network.hidden
        ));
    }
    if !network.layers.iter().all(|layer| matches!(layer.mixer, Mixer::Attention(_))) {
        rules.push("`model_type` is one whose layers all attend".to_owned());
    }
    if layers.is_empty() || layers.iter().any(|layer| *layer >= count) {
        rules.push(format!(
            "`dflash_config.target_layer_ids` ({layers:?}) are layers of the target model, which has {count}"
        ));
    }
    if size < 2 || mask_token >= target.vocab {
        rules.push(format!(
            "`block_size` ({size}) is above 1, and `dflash_config.mask_token_id` ({mask_token}) is a token of the target model"
        ));
    }
    if !rules.is_empty() {
        return Err(ConfigError::Inconsistent { rules });
    }
    let blueprint = blueprint(network, layers.len(), target);
    let places = layers.into_iter().map(HiddenPlace::Layer).collect();
    Ok(Described { blueprint, places, block: DraftBlock { size, mask_token: mask_token as u32 } })
}

/// The layers with the target's table and output matrix around them.
fn blueprint(network: Blueprint, streams: usize, target: &Blueprint) -> Blueprint {
    let rename = |from: &str, to: &str| WeightRewrite::Rename { from: from.into(), to: to.into() };
    let input = DraftHeadInput { table: TokenTable::Target, states: HeadStates::Context(streams) };
    let mut blueprint = Blueprint {
        stage: Stage::DraftHead(input),
        head: Head::Target,
        vocab: target.vocab,
        embed_scale: target.embed_scale,
        names: Names::LLAMA,
        rewrites: vec![
            rename("layers.*.**", "model.layers.*.**"),
            rename("fc.*", "model.fuse.projection.*"),
            rename("hidden_norm.*", "model.fuse.state_norm.*"),
            rename("norm.*", "model.norm.*"),
        ],
        ..network
    };
    blueprint.attend_to_later(Bidirectional::Prompts);
    blueprint
}
