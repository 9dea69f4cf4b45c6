//! Heads that published checkpoints have for predicting further tokens (MTP): their names, and their layer.

use mlx::{Array, Dtype};

use crate::blueprint::{
    Blueprint, DraftHeadInput, Head, HeadStates, LayerSpec, Stage, StreamKind, TokenTable,
};
use crate::error::Error;
use crate::mixers::Mixer;
use crate::pattern::Pattern;
use crate::rewrite::WeightRewrite;
use crate::weights::{RandomWeights, Source, Weights};

/// Where a checkpoint has the text model's tensors.
const PREFIXES: [&str; 3] = ["model.language_model", "language_model.model", "model"];

/// How a kind of checkpoints names the parts of its head.
struct Form {
    /// Where they are, if not beside the layers.
    at: Option<&'static str>,
    /// Below the prefix, where they are numbered like a layer.
    beside: Option<&'static str>,
    /// The modules, in the order of [`MODULES`]; and where the layer is.
    modules: [&'static str; 6],
    layer: Option<&'static str>,
    order: JoinOrder,
}

/// What the projection reads first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JoinOrder {
    EmbeddingFirst,
    StateFirst,
}

/// Our names, below the layer: norms are direct children, so that families that store norms in another way treat them as those
/// of any layer.
const MODULES: [&str; 6] =
    ["embedding_norm", "state_norm", "head_norm", "fuse.projection", "fuse.head", "fuse.embed_tokens"];

const FORMS: [Form; 3] = [
    // DeepSeek-V3, GLM-4.5 and later: a layer behind the last.
    Form {
        at: None,
        beside: None,
        modules: ["enorm", "hnorm", "shared_head.norm", "eh_proj", "shared_head.head", "embed_tokens"],
        layer: None,
        order: JoinOrder::EmbeddingFirst,
    },
    // Qwen3-Next, Qwen3.5.
    Form {
        at: Some("mtp"),
        beside: None,
        modules: ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc", "lm_head", "embed_tokens"],
        layer: Some("layers.0"),
        order: JoinOrder::EmbeddingFirst,
    },
    // MiMo.
    Form {
        at: None,
        beside: Some("mtp_layers.0"),
        modules: [
            "token_layernorm",
            "hidden_layernorm",
            "final_layernorm",
            "input_proj",
            "lm_head",
            "embed_tokens",
        ],
        layer: None,
        order: JoinOrder::StateFirst,
    },
];

impl Form {
    /// Where the head's modules are.
    fn root(&self, prefix: &str, number: usize) -> String {
        match (self.at, self.beside) {
            (Some(at), _) => at.to_owned(),
            (None, Some(beside)) => format!("{prefix}.{beside}"),
            (None, None) => format!("{prefix}.layers.{number}"),
        }
    }

    fn is_in(&self, weights: &Weights, prefix: &str, number: usize) -> bool {
        let projection = MODULES.iter().position(|module| *module == "fuse.projection").unwrap_or(0);
        weights.contains_key(&format!("{}.{}.weight", self.root(prefix, number), self.modules[projection]))
    }

    /// From published names to a layer behind the last.
    fn renames(&self, prefix: &str, number: usize) -> Vec<WeightRewrite> {
        let (from, to) = (self.root(prefix, number), format!("{prefix}.layers.{number}"));
        let modules = self.modules.iter().zip(MODULES);
        let mut renames: Vec<WeightRewrite> =
            modules.map(|(old, new)| rename(&format!("{from}.{old}.*"), &format!("{to}.{new}.*"))).collect();
        let layer = match self.layer {
            Some(layer) => format!("{from}.{layer}"),
            None => from,
        };
        if layer != to {
            renames.push(rename(&format!("{layer}.**"), &format!("{to}.**")));
        }
        renames
    }
}

/// A checkpoint's head: its network, and tensors that it is among. `None` without a head of a known form.
pub(crate) fn found(source: &Source, target: &Blueprint) -> Result<Option<(Blueprint, Weights)>, Error> {
    match (source, source.mtp_weights()?) {
        (Source::Random(random), _) => made(random, target),
        (_, Some(weights)) => Ok(apart(target, weights)),
        (_, None) => among(target, source.weights()?),
    }
}

/// A head of random weights. `None` if the target has no layer like it.
fn made(random: &RandomWeights, target: &Blueprint) -> Result<Option<(Blueprint, Weights)>, Error> {
    let Some(layer) = layer_like(target) else { return Ok(None) };
    let blueprint =
        Blueprint { rewrites: Vec::new(), ..network(target, layer, Head::Target, TokenTable::Target) };
    let weights = random.weights_of(&blueprint.manifest())?;
    Ok(Some((blueprint, weights)))
}

/// A head among the tensors of a checkpoint.
fn among(target: &Blueprint, mut weights: Weights) -> Result<Option<(Blueprint, Weights)>, Error> {
    let number = target.stored_layer_count();
    let found = PREFIXES.iter().flat_map(|prefix| FORMS.iter().map(move |form| (*prefix, form)));
    let is_there = |prefix: &str| weights.keys().any(|name| name.starts_with(&format!("{prefix}.layers.")));
    let found = found
        .filter(|(prefix, _)| is_there(prefix))
        .find(|(prefix, form)| form.is_in(&weights, prefix, number));
    let (Some((prefix, form)), Some(layer)) = (found, layer_like(target)) else { return Ok(None) };
    let root = form.root(prefix, number);
    let copies = [
        (format!("{root}.{}", form.modules[4]), ["lm_head".to_owned(), "language_model.lm_head".to_owned()]),
        (
            format!("{root}.{}", form.modules[5]),
            [format!("{prefix}.embed_tokens"), "model.embed_tokens".to_owned()],
        ),
    ];
    let mut own = [false; 2];
    for ((module, others), own) in copies.iter().zip(&mut own) {
        *own = is_own(&weights, module, others)?;
        if !*own {
            weights.retain(|name, _| !name.starts_with(&format!("{module}.")));
        }
    }
    let [own_head, own_table] = own;
    let rewrites = rewrites(target, (form, prefix, number));
    let blueprint = Blueprint { rewrites, ..network(target, layer, head_of(own_head), table_of(own_table)) };
    Ok(Some((blueprint, weights)))
}

/// A head with a file of its own, which has our names. `None` if the target has no layer like it.
fn apart(target: &Blueprint, weights: Weights) -> Option<(Blueprint, Weights)> {
    let has = |module: &str| weights.contains_key(&format!("{module}.weight"));
    let (root, embed) = (target.names.root, target.names.embed);
    let (head, table) = (head_of(has("lm_head")), table_of(has(&format!("{root}.{embed}"))));
    let blueprint = network(target, layer_like(target)?, head, table);
    Some((Blueprint { rewrites: Vec::new(), ..blueprint }, weights))
}

/// A head's network: one layer behind the target's last.
fn network(target: &Blueprint, layer: LayerSpec, head: Head, table: TokenTable) -> Blueprint {
    let input = DraftHeadInput { table, states: HeadStates::FinalNorm };
    Blueprint {
        stage: Stage::DraftHead(input),
        layers: vec![LayerSpec { number: target.stored_layer_count(), ..layer }],
        head,
        ..plain(target)
    }
}

fn head_of(is_own: bool) -> Head {
    if is_own { Head::Own } else { Head::Target }
}

fn table_of(is_own: bool) -> TokenTable {
    if is_own { TokenTable::Own } else { TokenTable::Target }
}

/// A network like the target, without what is beside its layers.
fn plain(target: &Blueprint) -> Blueprint {
    Blueprint {
        learned_positions: None,
        token_types: None,
        per_layer_inputs: None,
        media_vocabularies: Vec::new(),
        stream: StreamKind::Plain,
        embed_norm: None,
        passes: crate::blueprint::Passes::One,
        rotated: Vec::new(),
        ..target.clone()
    }
}

/// The last layer that attends to all tokens: heads have such a one.
fn layer_like(target: &Blueprint) -> Option<LayerSpec> {
    let attends = |layer: &&LayerSpec| matches!(layer.mixer, Mixer::Attention(_) | Mixer::Latent(_));
    target.layers.iter().rev().find(attends).cloned()
}

fn rename(from: &str, to: &str) -> WeightRewrite {
    WeightRewrite::Rename { from: from.into(), to: to.into() }
}

/// The head is a layer behind the last for the target's own rewrites, and nothing else is left behind them.
fn rewrites(target: &Blueprint, (form, prefix, number): (&Form, &str, usize)) -> Vec<WeightRewrite> {
    let mut rewrites = form.renames(prefix, number);
    let keeps_head = |rewrite: &&WeightRewrite| !matches!(rewrite, WeightRewrite::DropLayersFrom { .. });
    rewrites.extend(target.rewrites.iter().filter(keeps_head).cloned());
    let layer = format!("{}.layers.{number}", target.names.root);
    rewrites.push(WeightRewrite::Keep { tensors: format!("{layer}.**").into() });
    let (root, hidden) = (target.names.root, target.hidden);
    let ours = [
        format!("{root}.fuse.embedding_norm"),
        format!("{root}.fuse.state_norm"),
        format!("{root}.{}", target.names.final_norm),
        format!("{root}.fuse.projection"),
        "lm_head".to_owned(),
        format!("{root}.{}", target.names.embed),
    ];
    rewrites.extend(
        MODULES
            .iter()
            .zip(ours)
            .map(|(module, ours)| rename(&format!("{layer}.{module}.*"), &format!("{ours}.*"))),
    );
    if form.order == JoinOrder::StateFirst {
        let tensors: Pattern = format!("{root}.fuse.projection.weight").into();
        rewrites.push(WeightRewrite::TakeInputs {
            tensors,
            inputs: (hidden..2 * hidden).chain(0..hidden).collect(),
        });
    }
    rewrites
}

/// Whether a module is there and differs from all of `others`: most checkpoints repeat the target's.
fn is_own(weights: &Weights, module: &str, others: &[String]) -> Result<bool, Error> {
    let Some(weight) = weights.get(&format!("{module}.weight")) else { return Ok(false) };
    for other in others {
        let Some(same) = weights.get(&format!("{other}.weight")) else { continue };
        if weight.ndim() == 2
            && same.shape() == weight.shape()
            && same.dtype()? == weight.dtype()?
            && has_same_values(weight, same)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Elements that are compared at once: tables have a billion, and memory is for weights.
const COMPARED: usize = 1 << 22;

/// Compares two matrices of one shape and type, some rows at a time, up to the first difference.
fn has_same_values(one: &Array, other: &Array) -> Result<bool, Error> {
    let [rows, width] = one.dims()?;
    let step = (COMPARED / (width.max(1) as usize)).max(1);
    for from in (0..rows).step_by(step) {
        let to = from.saturating_add(step as i32).min(rows);
        let part = |array: &Array| array.slice(&[from, 0], &[to, width])?.astype(Dtype::F32);
        let most = (part(one)? - part(other)?).abs()?.max(&[0, 1])?.to_vec::<f32>()?;
        if most != [0.0] {
            return Ok(false);
        }
    }
    Ok(true)
}
