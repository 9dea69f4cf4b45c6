//! Heads that published checkpoints have for predicting further tokens (MTP): their names, and their layer.

use std::collections::BTreeSet;

use mlx::{Array, Dtype};

use crate::blueprint::{
    Blueprint, DraftHeadInput, Head, HeadStates, LayerSpec, Stage, StreamKind, TokenTable,
};
use crate::error::Error;
use crate::families;
use crate::mixers::{AttentionSpan, Mixer};
use crate::mlps::Mlp;
use crate::norm::Norm;
use crate::pattern::Pattern;
use crate::rewrite::WeightRewrite;
use crate::weights::{RandomWeights, Source, Weights};

/// Where a checkpoint has the text model's tensors.
const PREFIXES: [&str; 4] = ["model.language_model", "language_model.model", "model", "backbone"];

/// How a kind of checkpoints names the parts of its head, and what its layer is.
struct Form {
    place: Place,
    /// The modules, in the order of [`MODULES`], below the place; empty for those that it does not have.
    modules: [&'static str; 6],
    /// Where the layers are, below the place; empty for the place itself.
    layers: &'static [&'static str],
    /// Parts of the layers that have other names than the target's.
    parts: &'static [(&'static str, &'static str)],
    kind: LayersKind,
    order: JoinOrder,
}

/// Where the head's modules are.
enum Place {
    /// In a layer behind the last.
    Behind,
    /// At the top.
    At(&'static str),
    /// Beside the layers; empty for there itself.
    Beside(&'static str),
}

/// Which of the target's layers a head's are like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayersKind {
    /// The last that attends to all tokens.
    Last,
    /// That, with the MLP of a layer without experts.
    Dense,
    /// One that attends to a window, with the MLP of a layer without experts.
    DenseWindow,
    /// Attention, then experts, where the target's layers are one or the other.
    AttentionThenExperts,
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

/// What most have.
const PLAIN: Form = Form {
    place: Place::Behind,
    modules: ["", "", "", "", "", ""],
    layers: &[""],
    parts: &[],
    kind: LayersKind::Last,
    order: JoinOrder::EmbeddingFirst,
};

const FORMS: [Form; 7] = [
    // DeepSeek-V3, GLM-4.5 and later.
    Form {
        modules: ["enorm", "hnorm", "shared_head.norm", "eh_proj", "shared_head.head", "embed_tokens"],
        ..PLAIN
    },
    // Qwen3-Next, Qwen3.5.
    Form {
        place: Place::At("mtp"),
        modules: ["pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc", "lm_head", "embed_tokens"],
        layers: &["layers.0"],
        ..PLAIN
    },
    // MiMo.
    Form {
        place: Place::Beside("mtp_layers.0"),
        modules: [
            "token_layernorm",
            "hidden_layernorm",
            "final_layernorm",
            "input_proj",
            "lm_head",
            "embed_tokens",
        ],
        order: JoinOrder::StateFirst,
        ..PLAIN
    },
    // Ernie 4.5.
    Form {
        place: Place::Beside(""),
        modules: ["mtp_emb_norm.0", "mtp_hidden_norm.0", "", "mtp_linear_proj.0", "", ""],
        layers: &["mtp_block.0"],
        kind: LayersKind::Dense,
        ..PLAIN
    },
    // MiMo-V2: the first of its heads.
    Form {
        place: Place::Beside("mtp.layers.0"),
        modules: ["enorm", "hnorm", "final_layernorm", "eh_proj", "", ""],
        parts: &[("pre_mlp_layernorm", "post_attention_layernorm")],
        kind: LayersKind::DenseWindow,
        ..PLAIN
    },
    // LongCat Flash.
    Form {
        place: Place::Beside("mtp"),
        modules: ["layers.0.enorm.m", "layers.0.hnorm.m", "norm", "layers.0.eh_proj", "", "embed_tokens"],
        layers: &["layers.0"],
        parts: &[
            ("transformer_layer.mlp.down_proj", "mlp.down_proj"),
            ("transformer_layer.mlp.gate_proj", "mlp.gate_proj"),
            ("transformer_layer.mlp.up_proj", "mlp.up_proj"),
        ],
        kind: LayersKind::Dense,
        ..PLAIN
    },
    // Nemotron-H.
    Form {
        place: Place::At("mtp"),
        modules: ["layers.0.enorm", "layers.0.hnorm", "layers.1.final_layernorm", "layers.0.eh_proj", "", ""],
        layers: &["layers.0", "layers.1"],
        kind: LayersKind::AttentionThenExperts,
        ..PLAIN
    },
];

/// A name below another; that itself for an empty one.
fn below(at: &str, name: &str) -> String {
    if name.is_empty() { at.to_owned() } else { format!("{at}.{name}") }
}

impl Form {
    /// Where the head's modules are.
    fn root(&self, prefix: &str, number: usize) -> String {
        match self.place {
            Place::Behind => format!("{prefix}.layers.{number}"),
            Place::At(at) => at.to_owned(),
            Place::Beside(beside) => below(prefix, beside),
        }
    }

    /// A module by its place in [`MODULES`]; `None` if the form has none.
    fn module(&self, prefix: &str, number: usize, which: &str) -> Option<String> {
        let names = MODULES.iter().zip(self.modules);
        let (_, name) = names.filter(|(_, name)| !name.is_empty()).find(|(module, _)| **module == which)?;
        Some(below(&self.root(prefix, number), name))
    }

    fn is_in(&self, weights: &Weights, prefix: &str, number: usize) -> bool {
        let has = |module: &str| {
            let module = self.module(prefix, number, module);
            module.is_some_and(|module| weights.contains_key(&format!("{module}.weight")))
        };
        ["embedding_norm", "state_norm", "fuse.projection"].into_iter().all(has)
    }

    /// From published names to layers behind the last.
    fn renames(&self, prefix: &str, number: usize) -> Vec<WeightRewrite> {
        let first = format!("{prefix}.layers.{number}");
        let modules = MODULES.iter().filter_map(|ours| {
            let old = self.module(prefix, number, ours)?;
            Some(rename(&format!("{old}.*"), &format!("{first}.{ours}.*")))
        });
        let layers = self.layers.iter().zip(number..).flat_map(|(layer, number)| {
            let (from, to) = (below(&self.root(prefix, number), layer), format!("{prefix}.layers.{number}"));
            let part =
                |(old, new): &(&str, &str)| rename(&format!("{from}.{old}.*"), &format!("{to}.{new}.*"));
            let parts = self.parts.iter().map(part);
            let whole = (from != to).then(|| rename(&format!("{from}.**"), &format!("{to}.**")));
            parts.chain(whole).collect::<Vec<_>>()
        });
        modules.chain(layers).collect()
    }

    /// What a head of this form applies behind its layer.
    fn final_norm(&self, target: &Blueprint) -> Norm {
        let has_norm = self.module("", 0, "head_norm").is_some();
        if has_norm { target.final_norm } else { Norm::Absent }
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
    let Some(layers) = layers_like(target, LayersKind::Last) else { return Ok(None) };
    let layers = (layers, target.final_norm);
    let blueprint =
        Blueprint { rewrites: Vec::new(), ..network(target, layers, Head::Target, TokenTable::Target) };
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
    let Some((prefix, form)) = found else { return Ok(None) };
    let Some(layers) = layers_like(target, form.kind) else { return Ok(None) };
    let copies = [
        ("fuse.head", ["lm_head".to_owned(), "language_model.lm_head".to_owned()]),
        ("fuse.embed_tokens", [format!("{prefix}.embed_tokens"), "model.embed_tokens".to_owned()]),
    ];
    let mut own = [false; 2];
    for ((module, others), own) in copies.iter().zip(&mut own) {
        let Some(module) = form.module(prefix, number, module) else { continue };
        *own = is_own(&weights, &module, others)?;
        if !*own {
            weights.retain(|name, _| !name.starts_with(&format!("{module}.")));
        }
    }
    let [own_head, own_table] = own;
    let rewrites = rewrites(target, &layers, (form, prefix, number));
    let layers = (layers, form.final_norm(target));
    let blueprint = Blueprint { rewrites, ..network(target, layers, head_of(own_head), table_of(own_table)) };
    Ok(Some((blueprint, weights)))
}

/// A head with a file of its own, which has our names. `None` if the target has no layer like it.
fn apart(target: &Blueprint, weights: Weights) -> Option<(Blueprint, Weights)> {
    let has = |module: &str| weights.contains_key(&format!("{module}.weight"));
    let (root, embed) = (target.names.root, target.names.embed);
    let (head, table) = (head_of(has("lm_head")), table_of(has(&format!("{root}.{embed}"))));
    let forms = FORMS.iter().filter_map(|form| {
        let layers = (layers_like(target, form.kind)?, form.final_norm(target));
        Some(Blueprint { rewrites: Vec::new(), ..network(target, layers, head, table) })
    });
    let forms: Vec<Blueprint> = forms.collect();
    // What has all of its tensors; else whatever is said of the first is of use.
    let fits = |blueprint: &&Blueprint| has_tensors_of(&weights, blueprint);
    let blueprint = forms.iter().find(fits).or(forms.first())?.clone();
    Some((blueprint, weights))
}

/// Whether tensors, packed or not, are those of a network by their names.
fn has_tensors_of(weights: &Weights, blueprint: &Blueprint) -> bool {
    let beside_codes = |name: &&String| !name.ends_with(".scales") && !name.ends_with(".biases");
    let found: BTreeSet<&String> = weights.keys().filter(beside_codes).collect();
    blueprint.manifest().0.keys().collect::<BTreeSet<&String>>() == found
}

/// A head's network: layers behind the target's last, and the norm behind them.
fn network(
    target: &Blueprint,
    (layers, final_norm): (Vec<LayerSpec>, Norm),
    head: Head,
    table: TokenTable,
) -> Blueprint {
    let input = DraftHeadInput { table, states: HeadStates::FinalNorm };
    let numbered = layers.into_iter().zip(target.stored_layer_count()..);
    Blueprint {
        stage: Stage::DraftHead(input),
        layers: numbered.map(|(layer, number)| LayerSpec { number, ..layer }).collect(),
        final_norm,
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

/// Layers of this kind. `None` if the target has none like them.
fn layers_like(target: &Blueprint, kind: LayersKind) -> Option<Vec<LayerSpec>> {
    let last = |is_like: fn(&&LayerSpec) -> bool| target.layers.iter().rev().find(is_like);
    let attends = |layer: &&LayerSpec| matches!(layer.mixer, Mixer::Attention(_) | Mixer::Latent(_));
    let has_window = |layer: &&LayerSpec| matches!(&layer.mixer, Mixer::Attention(of) if matches!(of.span, AttentionSpan::Window(_)));
    let of = match kind {
        LayersKind::Last => return last(attends).map(|layer| vec![layer.clone()]),
        LayersKind::AttentionThenExperts => {
            let attention = last(|layer| matches!(layer.mixer, Mixer::Attention(_)) && layer.mlp.is_none())?;
            let experts = last(|layer| {
                matches!(layer.mixer, Mixer::Absent(_)) && matches!(layer.mlp, Some(Mlp::Moe(_)))
            })?;
            return Some(vec![attention.clone(), experts.clone()]);
        }
        LayersKind::Dense => last(attends)?,
        LayersKind::DenseWindow => last(has_window)?,
    };
    let dense = target.layers.iter().find_map(|layer| match &layer.mlp {
        Some(Mlp::Gated(mlp)) => Some(*mlp),
        _ => None,
    });
    Some(vec![LayerSpec::pre_norm(of.mixer.clone(), dense?, of.norm)])
}

fn rename(from: &str, to: &str) -> WeightRewrite {
    WeightRewrite::Rename { from: from.into(), to: to.into() }
}

/// The head is layers behind the last for the target's own rewrites, and nothing else is left behind them.
fn rewrites(
    target: &Blueprint,
    layers: &[LayerSpec],
    (form, prefix, number): (&Form, &str, usize),
) -> Vec<WeightRewrite> {
    let mut rewrites = form.renames(prefix, number);
    let keeps_head = |rewrite: &&WeightRewrite| !matches!(rewrite, WeightRewrite::DropLayersFrom { .. });
    rewrites.extend(target.rewrites.iter().filter(keeps_head).cloned());
    let at = |number: usize| format!("{}.layers.{number}", target.names.root);
    let numbered = || layers.iter().zip(number..);
    // Nothing is left of them where the target's own rewrites know the layer.
    rewrites.extend(numbered().filter_map(|(layer, number)| match &layer.mixer {
        Mixer::Latent(of) => {
            Some(families::split_latent_at(&format!("{}.{}", at(number), layer.mixer_name), of))
        }
        _ => None,
    }));
    let tensors = numbered().map(|(_, number)| format!("{}.**", at(number)).into()).collect();
    rewrites.push(WeightRewrite::Keep { tensors });
    let layer = at(number);
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
